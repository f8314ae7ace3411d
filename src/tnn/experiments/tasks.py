"""From a recipe to what is trained: tokenizer, model, examples, and how they are judged."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase

from tnn.data.blocks import CausalBlocks, MaskedBlocks, collate
from tnn.data.corpus import Corpus, open_corpus
from tnn.data.glue import GlueDataset, find_task, load_glue, majority_score, score
from tnn.data.tokenizers import highest_id, load_tokenizer
from tnn.data.tokens import Tokens, cache_folder, tokenize, tokenizer_for
from tnn.experiments.recipe import CausalRecipe, GlueRecipe, MaskedRecipe, TextData
from tnn.models import (
    TNNConfig,
    TNNForCausalLM,
    TNNForMaskedLM,
    TNNForSequenceClassification,
    load_preset,
)

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
    to_beat: Mapping[str, float] = field(default_factory=dict)  # "majority_" and a metric: of one that learns nothing

    @property
    def evaluations(self) -> dict[str, Dataset[Any]]:
        return {"eval": self.validation, **self.others}


def text_task(recipe: TextRecipe) -> Task:
    """Blocks of a corpus' training split to learn from, and of its validation split."""
    data, corpus = recipe.data, corpus_of(recipe.data)
    tokenizer = tokenizer_for(data.tokenizer, corpus, mask=recipe.task == "masked-lm", cache=cache_folder(data.cache))
    texts = [tokenize(corpus, split, tokenizer, cache_folder(data.cache)) for split in ("train", "validation")]
    if len(texts[0].ids) < data.length:
        found = f"{len(texts[0].ids):,} tokens"
        raise ValueError(f"the training text must fill a block of {data.length} tokens; got {found}")
    train, validation = (blocks_of(recipe, tokens, tokenizer) for tokens in texts)
    head = TNNForCausalLM if recipe.task == "causal-lm" else TNNForMaskedLM
    return Task(
        tokenizer, lambda: _language_model(head, recipe, tokenizer), train, validation, collate(tokenizer.pad_token_id)
    )


def corpus_of(data: TextData) -> Corpus:
    return open_corpus(data.corpus, train=data.train, validation=data.validation, test=data.test)


def blocks_of(recipe: TextRecipe, tokens: Tokens, tokenizer: Any) -> Dataset[Any]:
    if recipe.task == "causal-lm":
        return CausalBlocks(tokens, recipe.data.length, tokenizer.eos_token_id)
    return MaskedBlocks(tokens, recipe.data.length, tokenizer, recipe.training.seed)


def _language_model(head: Any, recipe: TextRecipe, tokenizer: Any) -> PreTrainedModel:
    section = recipe.model
    if section.start_from is not None:
        return _loaded(head, checked_model_folder(section.start_from), section.changes, tokenizer)
    special = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    assert section.preset is not None
    size = highest_id(tokenizer) + 1
    config = load_preset(section.preset, **{"vocab_size": size, **special, **section.changes})
    if not isinstance(config, TNNConfig) or config.is_decoder != (recipe.task == "causal-lm"):
        kind = "causal" if recipe.task == "causal-lm" else "bidirectional"
        raise ValueError(f"model.preset must be of a {kind} text model for {recipe.task}; got {section.preset!r}")
    if size > config.vocab_size:
        found = f"{config.vocab_size:,}, and the tokenizer has {size:,} tokens"
        raise ValueError(f"the tokenizer does not fit the model: its vocabulary is {found}")
    return head(config)


def _loaded(head: Any, folder: Path, changes: dict[str, Any], tokenizer: Any) -> PreTrainedModel:
    """A trained model to go on with; its tokens must mean the same."""
    try:
        model = head.from_pretrained(folder, **changes)
    except RuntimeError as error:
        raise ValueError(f"the changes of model do not fit the weights in {folder}: {error}") from None
    if load_tokenizer(folder, model.config.vocab_size).get_vocab() != tokenizer.get_vocab():
        raise ValueError(f"the tokenizer does not fit the model: {folder} was trained with another one")
    return model


def checked_model_folder(folder: str | Path) -> Path:
    """With a model in it, or a FileNotFoundError."""
    if not (Path(folder) / "config.json").is_file():
        raise FileNotFoundError(f"there is no model in {folder}: it must be a folder with a config.json")
    return Path(folder)


def glue_task(recipe: GlueRecipe) -> Task:
    """Sentences of the first of its tasks, on a model that has been trained on texts."""
    name = recipe.data.tasks[0]
    assert recipe.model.start_from is not None
    folder = checked_model_folder(recipe.model.start_from)
    tokenizer = load_tokenizer(folder, AutoConfig.from_pretrained(folder).vocab_size)
    train = glue_sets(recipe, tokenizer, ["train"])["train"]
    validation, *others = glue_sets(recipe, tokenizer, find_task(name).validations).items()
    evaluations = {"eval": validation[1], **{f"eval_{split.rpartition('_')[2]}": found for split, found in others}}
    seen = [label for label in train.labels if label is not None]
    changes = {"num_labels": find_task(name).num_labels, **recipe.model.changes}
    return Task(
        tokenizer,
        lambda: _loaded(TNNForSequenceClassification, folder, changes, tokenizer),
        train=train,
        validation=validation[1],
        collate=collate(tokenizer.pad_token_id),
        metrics=glue_metrics(name),
        metric=find_task(name).metrics[0],
        others={prefix: found for prefix, found in evaluations.items() if prefix != "eval"},
        to_beat={
            f"majority_{prefix}_{metric}": value
            for prefix, found in evaluations.items()
            for metric, value in majority_score(name, [x for x in found.labels if x is not None], seen).items()
        },
    )


def glue_sets(recipe: GlueRecipe, tokenizer: Any, splits: Sequence[str]) -> dict[str, GlueDataset]:
    """Splits of the recipe's first task, as a model reads them."""
    rows = load_glue(recipe.data.tasks[0], recipe.data.glue, splits)
    return {split: GlueDataset(rows[split], tokenizer, recipe.data.length) for split in splits}


def glue_metrics(name: str) -> Callable[[Any], dict[str, float]]:
    """Of what a model puts out, in the form of transformers' EvalPrediction."""

    def metrics(found: Any) -> dict[str, float]:
        outputs = found.predictions
        return score(name, outputs.argmax(-1) if find_task(name).classes else outputs.squeeze(-1), found.label_ids)

    return metrics
