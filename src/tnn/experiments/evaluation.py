"""What a trained model is worth, by the protocol that its kind asks for."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader
from transformers import AutoConfig, EvalPrediction

from tnn.data.blocks import collate
from tnn.data.corpus import open_corpus
from tnn.data.glue import find_task
from tnn.data.tokenizers import load_tokenizer
from tnn.data.tokens import Tokens, cache_folder, tokenize
from tnn.experiments.perplexity import block_perplexity, masked_perplexity, stream_perplexity
from tnn.experiments.recipe import GlueRecipe, TextData
from tnn.experiments.runs import load_run_recipe
from tnn.experiments.tasks import checked_model_folder, corpus_of, glue_metrics, glue_sets
from tnn.models import TNNForCausalLM, TNNForMaskedLM, TNNForSequenceClassification

HEADS: dict[str, Any] = {head.__name__: head for head in (TNNForCausalLM, TNNForMaskedLM, TNNForSequenceClassification)}


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
    split: str = "test",
    length: int | None = None,
    stream: bool = False,
    chunk: int = 4096,
) -> str:
    """Perplexity of a language model, or scores of a classifier, and how they were measured; one number a line.

    >>> from pathlib import Path
    >>> from tnn.experiments.evaluation import evaluate
    >>> print(evaluate(Path("runs/mini-alm")))  # doctest: +SKIP
    tokens         1,054,221 predicted
    ...
    """
    model = load_model(folder)
    recipe = load_run_recipe(folder)
    if isinstance(model, TNNForSequenceClassification):
        if source is not None or length is not None or stream:
            raise ValueError("a model of a GLUE task is scored on its validation set: give its folder alone")
        return _evaluate_glue(folder, model, recipe)
    text = load_text(folder, model, source, split)
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


def _evaluate_glue(folder: Path, model: Any, recipe: Any) -> str:
    if not isinstance(recipe, GlueRecipe):
        raise ValueError(f"{folder} does not say what its classes are: it has no recipe of a GLUE task")
    name = recipe.data.tasks[0]
    tokenizer = load_tokenizer(folder, model.config.vocab_size)
    lines = []
    for split, dataset in glue_sets(recipe, tokenizer, find_task(name).validations).items():
        found = _predict(model, dataset, collate(tokenizer.pad_token_id))
        lines += [f"{metric:13}  {value:.4f} on {split}" for metric, value in glue_metrics(name)(found).items()]
    return "\n".join(lines)


@torch.inference_mode()
def _predict(model: Any, dataset: Any, join: Any) -> EvalPrediction:
    outputs, labels = [], []
    for batch in DataLoader(dataset, batch_size=32, collate_fn=join):
        labels.append(batch.pop("labels").numpy())
        outputs.append(model(**{key: value.to(model.device) for key, value in batch.items()}).logits.cpu().numpy())
    return EvalPrediction(np.concatenate(outputs), np.concatenate(labels))
