"""Language models: blocks of a corpus."""

from pathlib import Path
from typing import Any

from torch.utils.data import Dataset
from transformers import PreTrainedModel

from tnn.data.blocks import CausalBlocks, MaskedBlocks, collate
from tnn.data.corpus import Corpus, open_corpus
from tnn.data.tokenizers import highest_id, load_tokenizer
from tnn.data.tokens import Tokens, cache_folder, tokenize, tokenizer_for
from tnn.models import TNNConfig, TNNForCausalLM, TNNForMaskedLM, load_preset
from tnn.training.recipe import CausalRecipe, MaskedRecipe, TextData
from tnn.training.tasks.task import Task, checked_model_folder, load_head

TextRecipe = CausalRecipe | MaskedRecipe


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
        lambda: _language_model(head, recipe, tokenizer),
        train,
        validation,
        collate(tokenizer.pad_token_id),
        processor=tokenizer,
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
        return load_with_tokenizer(head, checked_model_folder(section.start_from), section.changes, tokenizer)
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


def load_with_tokenizer(head: Any, folder: Path, changes: dict[str, Any], tokenizer: Any) -> PreTrainedModel:
    """A trained model to go on with; its tokens must mean the same."""
    model = load_head(head, folder, changes)
    if load_tokenizer(folder, model.config.vocab_size).get_vocab() != tokenizer.get_vocab():
        raise ValueError(f"the tokenizer does not fit the model: {folder} was trained with another one")
    return model
