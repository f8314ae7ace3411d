"""What a trained model is worth, by the protocol that its kind asks for."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, default_collate
from transformers import AutoConfig, EvalPrediction

from tnn.data.blocks import collate
from tnn.data.corpus import open_corpus
from tnn.data.glue import find_glue_task
from tnn.data.images import open_images
from tnn.data.lra import collate_lra
from tnn.data.tokenizers import load_tokenizer
from tnn.data.tokens import Tokens, cache_folder, tokenize
from tnn.models import (
    TNNForCausalLM,
    TNNForImageClassification,
    TNNForMaskedLM,
    TNNForSequenceClassification,
    TNNForSequencePairClassification,
)
from tnn.training.perplexity import block_perplexity, masked_perplexity, stream_perplexity
from tnn.training.recipe import GlueRecipe, ImageRecipe, LraRecipe, TextData
from tnn.training.runs import load_run_recipe
from tnn.training.tasks.classes import accuracy
from tnn.training.tasks.glue import glue_metrics, glue_sets
from tnn.training.tasks.images import evaluation_images
from tnn.training.tasks.language import corpus_of
from tnn.training.tasks.lra import PAD, load_arena
from tnn.training.tasks.task import checked_model_folder

CLASSIFIERS = (TNNForSequenceClassification, TNNForSequencePairClassification, TNNForImageClassification)
HEADS: dict[str, Any] = {head.__name__: head for head in (TNNForCausalLM, TNNForMaskedLM, *CLASSIFIERS)}


class Text(NamedTuple):
    """A text as the tokens of a model, and the length of the blocks it was trained on."""

    tokens: Tokens
    tokenizer: Any
    length: int


def load_model(folder: Path) -> Any:
    """A model of any kind that can be evaluated, from the folder of a run or of save_pretrained, on the best device."""
    folder = checked_model_folder(folder)
    try:
        config = AutoConfig.from_pretrained(folder)
    except TypeError as error:
        raise ValueError(f"{folder / 'config.json'}: {error}") from error
    found = (config.architectures or ["model of unknown kind"])[0]
    if found not in HEADS:
        raise ValueError(f"{folder} must hold one of {', '.join(HEADS)}; got a {found}")
    return HEADS[found].from_pretrained(folder).eval().to(_device())


def _device() -> torch.device:
    """MPS is left out: it has no float64, which state spaces are made with."""
    found = torch.accelerator.current_accelerator(check_available=True)
    return torch.device("cpu") if found is None or found.type == "mps" else found


def load_text(folder: Path, model: Any, source: str | None, split: str) -> Text:
    """A split of the corpus that the model was trained on, or of another `source`, of which a single file is one split.

    `source` as in `open_corpus`.
    """
    recipe = load_run_recipe(folder)
    data = recipe.data if recipe is not None and isinstance(recipe.data, TextData) else TextData(corpus="")
    if source is None and not data.corpus:
        raise ValueError(f"give a text: {folder} does not say what it was trained on")
    if source is None:
        corpus = corpus_of(data)
    else:
        corpus = open_corpus(source, **({split: source} if Path(source).is_file() else {}))
    tokenizer = load_tokenizer(folder, model.config.vocab_size)
    return Text(tokenize(corpus, split, tokenizer, cache_folder(data.cache)), tokenizer, data.length)


def evaluate(
    folder: Path,
    source: str | None = None,
    *,
    split: str | None = None,
    length: int | None = None,
    stream: bool = False,
    chunk: int = 4096,
) -> str:
    """Perplexity of a language model, or scores of a classifier, and how they were measured; one number a line.

    `source` is another text, or another folder with the examples of a classifier.

    >>> from pathlib import Path
    >>> from tnn.training.evaluation import evaluate
    >>> print(evaluate(Path("runs/mini-alm")))  # doctest: +SKIP
    tokens         1,054,221 predicted
    ...
    """
    model = load_model(folder)
    recipe = load_run_recipe(folder)
    if isinstance(model, CLASSIFIERS):
        if length is not None or stream or split is not None:
            raise ValueError("a classifier is scored on all that has labels: it takes no --split, --length or --stream")
        return _evaluate_classes(folder, model, recipe, source)
    if stream and isinstance(model, TNNForMaskedLM):
        raise ValueError("a masked language model is scored on blocks: it takes no --stream")
    text = load_text(folder, model, source, split or "test")
    length = text.length if length is None else length
    if isinstance(model, TNNForMaskedLM):
        seed = recipe.training.seed if recipe else 0
        found = masked_perplexity(model, text.tokens, length, text.tokenizer, seed)
        protocol = f"15% of the tokens of blocks of {length}, masked as in training"
    elif stream:
        found = stream_perplexity(model, text.tokens, text.tokenizer.eos_token_id, chunk=chunk)
        protocol = f"one text in chunks of {chunk} tokens, each token predicted from all before it"
    else:
        found = block_perplexity(model, text.tokens, length, text.tokenizer.eos_token_id)
        protocol = f"blocks of {length} tokens, each token predicted from those of its block and one before"
    return f"{found.to_text()}\n{'protocol':13}  {protocol}"


def _evaluate_classes(folder: Path, model: Any, recipe: Any, source: str | None) -> str:
    """On the sets that the recipe names, or that another folder holds."""
    if isinstance(recipe, GlueRecipe):
        sets, join, metrics = _glue(folder, model, _moved(recipe, "glue", source))
    elif isinstance(recipe, LraRecipe):
        sets, join, metrics = _arena(folder, model, _moved(recipe, "folder", source))
    elif isinstance(recipe, ImageRecipe):
        sets, join, metrics = _pictures(model, _moved(recipe, "images", source))
    else:
        raise ValueError(f"{folder} does not say what its classes are: it has no recipe of a task with classes")
    lines = []
    for split, dataset in sets.items():
        found = metrics(_predict(model, dataset, join))
        lines += [f"{metric:13}  {value:.4f} on {split}, {len(dataset):,} examples" for metric, value in found.items()]
    return "\n".join(lines)


def _moved(recipe: Any, key: str, source: str | None) -> Any:
    """The recipe with its data elsewhere."""
    if source is None:
        return recipe
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={key: source})})


def _glue(folder: Path, model: Any, recipe: GlueRecipe) -> tuple[Any, Any, Any]:
    name = recipe.data.tasks[0]
    tokenizer = load_tokenizer(folder, model.config.vocab_size)
    sets = glue_sets(recipe, tokenizer, find_glue_task(name).validations)
    return sets, collate(tokenizer.pad_token_id), glue_metrics(name)


def _arena(folder: Path, model: Any, recipe: LraRecipe) -> tuple[Any, Any, Any]:
    has_tokens = (folder / "tokenizer.json").is_file()
    tokenizer = load_tokenizer(folder, model.config.vocab_size) if has_tokens else None
    sets = load_arena(recipe, tokenizer, ("validation", "test")).sets
    if sets["validation"] is sets["test"]:
        del sets["validation"]
    return sets, collate_lra(PAD), accuracy


def _pictures(model: Any, recipe: ImageRecipe) -> tuple[Any, Any, Any]:
    sets = open_images(recipe.data.images)
    known, found = list(model.config.id2label.values()), list(sets["train"].classes)
    if found != known[: len(found)] and not all(name.startswith("LABEL_") for name in known):
        odd = next(name for name in found if name not in known) if set(found) - set(known) else "the order"
        raise ValueError(f"{recipe.data.images} has other classes than the model was trained on: {odd!r} differs")
    judged = {split: evaluation_images(recipe, found) for split, found in sets.items() if split != "train"}
    return judged, default_collate, accuracy


@torch.inference_mode()
def _predict(model: Any, dataset: Any, join: Any) -> EvalPrediction:
    outputs, labels = [], []
    for batch in DataLoader(dataset, batch_size=32, collate_fn=join):
        labels.append(batch.pop("labels").numpy())
        outputs.append(model(**{key: value.to(model.device) for key, value in batch.items()}).logits.cpu().numpy())
    return EvalPrediction(np.concatenate(outputs), np.concatenate(labels))
