"""From a recipe to what is trained: tokenizer, model, examples, and how they are judged."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase

from tnn.data.blocks import CausalBlocks, MaskedBlocks, collate
from tnn.data.corpus import Corpus, open_corpus
from tnn.data.glue import GlueDataset, find_task, load_glue, majority_score, score
from tnn.data.tokenizers import load_tokenizer, make_tokenizer, train_bpe
from tnn.data.tokens import Tokens, cache_folder, tokenize
from tnn.experiments.recipe import CausalRecipe, GlueRecipe, MaskedRecipe, TextData
from tnn.models import (
    TNNConfig,
    TNNForCausalLM,
    TNNForMaskedLM,
    TNNForSequenceClassification,
    load_preset,
)
from tnn.models.saving import save_whole

TextRecipe = CausalRecipe | MaskedRecipe


@dataclass(frozen=True)
class Task:
    """What a trainer needs. Examples are dictionaries of tensors; `collate` makes a batch of them."""

    tokenizer: PreTrainedTokenizerBase
    make_model: Callable[[], PreTrainedModel]  # with random weights where they are not given
    train: Dataset[Any]
    validation: Dataset[Any]
    collate: Callable[[list[Any]], dict[str, Any]]
    metrics: Callable[[Any], dict[str, float]] | None = None  # of predictions; None: the loss alone
    metric: str = "loss"  # the one that decides what is best
    others: Mapping[str, Dataset[Any]] = field(default_factory=dict)  # to judge the final model on as well
    to_beat: Mapping[str, float] = field(default_factory=dict)  # the same metrics of a model that learns nothing

    @property
    def evaluations(self) -> dict[str, Dataset[Any]]:
        return {"eval": self.validation, **self.others}


def text_task(recipe: TextRecipe, progress: bool = True) -> Task:
    """Blocks of a corpus' training split to learn from, and of its validation split."""
    corpus = corpus_of(recipe.data)
    tokenizer = tokenizer_of(recipe)
    texts = [tokens_of(recipe, split, corpus, tokenizer, progress) for split in ("train", "validation")]
    if len(texts[0].ids) < recipe.data.length:
        found = f"{len(texts[0].ids):,} tokens"
        raise ValueError(f"the training text must fill a block of {recipe.data.length} tokens; got {found}")
    train, validation = (blocks_of(recipe, tokens, tokenizer) for tokens in texts)
    head = TNNForCausalLM if recipe.task == "causal-lm" else TNNForMaskedLM
    return Task(
        tokenizer, lambda: _language_model(head, recipe, tokenizer), train, validation, collate(tokenizer.pad_token_id)
    )


def corpus_of(data: TextData) -> Corpus:
    return open_corpus(data.corpus, train=data.train, validation=data.validation, test=data.test)


def tokens_of(
    recipe: TextRecipe, split: str, corpus: Corpus | None = None, tokenizer: Any = None, progress: bool = True
) -> Tokens:
    """A split of the recipe's corpus, tokenised at most once."""
    corpus, tokenizer = corpus or corpus_of(recipe.data), tokenizer or tokenizer_of(recipe)
    return tokenize(corpus, split, tokenizer, cache_folder(recipe.data.cache), progress=progress)


def tokenizer_of(recipe: TextRecipe) -> PreTrainedTokenizerBase:
    """`bpe:SIZE` is trained on the corpus, once; `make_tokenizer` knows the others."""
    mask, spec = recipe.task == "masked-lm", recipe.data.tokenizer
    if not spec.startswith("bpe:"):
        return make_tokenizer(spec, mask=mask)
    size = spec.removeprefix("bpe:")
    if not size.isdecimal():
        raise ValueError(f"data.tokenizer must be bpe:SIZE with a number, as bpe:8000; got {spec!r}")
    corpus = corpus_of(recipe.data)
    key = sha256(f"{corpus.fingerprint('train')} {size} {mask}".encode()).hexdigest()[:16]
    folder = cache_folder(recipe.data.cache) / f"tokenizer-{key}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            save_whole(train_bpe(corpus.lines("train"), int(size), mask=mask), folder)
        except OSError:
            if not folder.exists():  # otherwise another process was faster, with the same
                raise
    return make_tokenizer(folder, mask=mask)


def blocks_of(recipe: TextRecipe, tokens: Tokens, tokenizer: Any) -> Dataset[Any]:
    if recipe.task == "causal-lm":
        return CausalBlocks(tokens, recipe.data.length, tokenizer.eos_token_id)
    return MaskedBlocks(tokens, recipe.data.length, tokenizer, recipe.training.seed)


def _language_model(head: Any, recipe: TextRecipe, tokenizer: Any) -> PreTrainedModel:
    section = recipe.model
    if section.start_from is not None:
        model = head.from_pretrained(checked_model_folder(section.start_from), **section.changes)
        return _checked_vocabulary(model, tokenizer)
    special = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    assert section.preset is not None
    config = load_preset(section.preset, **{"vocab_size": len(tokenizer), **special, **section.changes})
    if not isinstance(config, TNNConfig) or config.is_decoder != (recipe.task == "causal-lm"):
        kind = "causal" if recipe.task == "causal-lm" else "bidirectional"
        raise ValueError(f"model.preset must be of a {kind} text model for {recipe.task}; got {section.preset!r}")
    return _checked_vocabulary(head(config), tokenizer)


def _checked_vocabulary(model: Any, tokenizer: Any) -> PreTrainedModel:
    if len(tokenizer) > model.config.vocab_size:
        found = f"{model.config.vocab_size:,}, and the tokenizer has {len(tokenizer):,} tokens"
        raise ValueError(f"the tokenizer does not fit the model: its vocabulary is {found}")
    return model


def checked_model_folder(folder: str) -> str:
    if not (Path(folder) / "config.json").is_file():
        raise FileNotFoundError(f"there is no model in {folder}: train it first, or give another model.start_from")
    return folder


def glue_task(recipe: GlueRecipe) -> Task:
    """Sentences of the first of its tasks, on a model that has been trained on texts."""
    name = recipe.data.tasks[0]
    task = find_task(name)
    assert recipe.model.start_from is not None
    folder = checked_model_folder(recipe.model.start_from)
    vocabulary = AutoConfig.from_pretrained(folder).vocab_size
    tokenizer = load_tokenizer(Path(folder), vocabulary)
    splits = ["train", *(split for split in task.files if split.startswith("validation"))]
    sets = {
        split: GlueDataset(rows, tokenizer, recipe.data.length)
        for split, rows in load_glue(name, recipe.data.glue, splits).items()
    }
    mnli, changes = name == "mnli", {"num_labels": task.num_labels, **recipe.model.changes}
    judged = sets["validation_matched" if mnli else "validation"]

    def metrics(found: Any) -> dict[str, float]:
        outputs = found.predictions
        return score(name, outputs.argmax(-1) if task.classes else outputs.squeeze(-1), found.label_ids)

    return Task(
        tokenizer,
        lambda: TNNForSequenceClassification.from_pretrained(folder, **changes),
        train=sets["train"],
        validation=judged,
        collate=collate(tokenizer.pad_token_id),
        metrics=metrics,
        metric=task.metrics[0],
        others={"mismatched": sets["validation_mismatched"]} if mnli else {},
        to_beat=majority_score(name, _labels(judged), _labels(sets["train"])),
    )


def _labels(dataset: GlueDataset) -> list[float]:
    return [label for label in dataset.labels if label is not None]
