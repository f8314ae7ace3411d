"""Language models, causal and masked: blocks of a corpus."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import PositiveInt
from torch.utils.data import Dataset

from tnn import models
from tnn.data.blocks import CausalBlocks, MaskedBlocks, collate
from tnn.data.corpus import BadFiles, Corpus, Lines, is_table, open_corpus
from tnn.data.tokenizers import highest_id, load_tokenizer
from tnn.data.tokens import Tokens, cache_folder, tokenize, tokenizer_for
from tnn.training.fingerprints import fingerprint
from tnn.training.perplexity import Perplexity, block_perplexity, masked_perplexity, stream_perplexity
from tnn.training.schema import Recipe, Section
from tnn.training.tasks.registry import register_task
from tnn.training.tasks.setup import TrainingSetup, checked_model_folder, load_head, new_model, preset_config
from tnn.training.tasks.task import EvaluationOptions, Task

if TYPE_CHECKING:
    from transformers import PreTrainedModel


READ = ("lines", "text_column", "bad_files")  # keys that say how a text is read


class TextData(Section):
    """A text. docs/data.md says what `corpus` and `tokenizer` can be."""

    corpus: str
    train: str | None = None  # files that replace splits of the corpus
    validation: str | None = None
    test: str | None = None
    lines: Lines = "auto"  # line ends are text (keep), or each is </s> (separate)
    text_column: str | None = None  # of a table
    bad_files: BadFiles = "refuse"  # that are not text; or skip them
    tokenizer: str = "bytes"
    length: PositiveInt = 512  # tokens per block
    cache: str | None = None  # folder for tokens; see tnn.data.tokens.cache_folder


class TextRecipe(Recipe):
    data: TextData


class LanguageTask(Task[TextRecipe]):
    """What causal and masked language models share."""

    recipe_class = TextRecipe
    resumable_keys = frozenset({"data.cache"})
    places = frozenset(f"data.{key}" for key in ("corpus", "train", "validation", "test", *READ))
    former_data: Mapping[str, Any] = {"lines": "separate"}
    is_causal: bool

    def resolve(self, recipe: TextRecipe, saved: Recipe | None) -> TextRecipe:
        """With the rule for lines: that of the run, or that of the corpus."""
        if recipe.data.lines != "auto":
            return recipe
        if isinstance(saved, TextRecipe):
            lines = saved.data.lines
        else:
            lines = "separate" if corpus_of(recipe.data).separate else "keep"
        return recipe.model_copy(update={"data": recipe.data.model_copy(update={"lines": lines})})

    def build(self, recipe: TextRecipe) -> TrainingSetup:
        """Blocks of the training split and of the validation split."""
        data, corpus, cache = recipe.data, corpus_of(recipe.data), cache_folder(recipe.data.cache)
        tokenizer = tokenizer_for(data.tokenizer, corpus, mask=not self.is_causal, cache=cache)
        train, validation = (tokenize(corpus, split, tokenizer, cache) for split in ("train", "validation"))
        if len(train.ids) < data.length:
            got = f"{len(train.ids):,} tokens"
            raise ValueError(f"the training text must fill a block of {data.length} tokens; got {got}")
        return TrainingSetup(
            lambda: self._make_model(recipe, tokenizer),
            self.blocks(recipe, train, tokenizer),
            self.blocks(recipe, validation, tokenizer),
            collate(tokenizer.pad_token_id),
            processor=tokenizer,
            data_summary=skipped_files(corpus),
            data_fingerprint=lambda: fingerprint(train.ids, train.line_ends, validation.ids, validation.line_ends),
        )

    def blocks(self, recipe: TextRecipe, tokens: Tokens, tokenizer: Any) -> Dataset[Any]:
        raise NotImplementedError

    def _make_model(self, recipe: TextRecipe, tokenizer: Any) -> "PreTrainedModel":
        section, head = recipe.model, self.model_class(recipe)
        if section.start_from is not None:
            return load_with_tokenizer(head, checked_model_folder(section.start_from), section.changes, tokenizer)
        assert section.preset is not None
        special = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        size = highest_id(tokenizer) + 1
        wanted = f"a {'causal' if self.is_causal else 'bidirectional'} text model for {recipe.task}"
        fields = {"vocab_size": size, **special, **section.changes}
        config = preset_config(section.preset, models.TNNConfig, wanted, fields)
        if config.is_decoder != self.is_causal:
            raise ValueError(f"model.preset must be {wanted}; got {section.preset!r}")
        if size > config.vocab_size:
            got = f"{config.vocab_size:,}, and the tokenizer has {size:,} tokens"
            raise ValueError(f"the tokenizer does not fit the model: its vocabulary is {got}")
        return new_model(head, config)

    def evaluate(self, folder: Path, model: Any, recipe: TextRecipe | None, options: EvaluationOptions) -> str:
        text = load_text(folder, model, recipe, options.source, options.split or "test")
        length = text.length if options.length is None else options.length
        perplexity, protocol = self._perplexity(model, text, length, recipe, options)
        if not math.isfinite(perplexity.loss):
            raise ArithmeticError(f"the loss of {folder} is {perplexity.loss}: its outputs are NaN or infinite")
        return f"{perplexity.to_text()}\n{'protocol':13}  {protocol}"

    def _perplexity(
        self, model: Any, text: "Text", length: int, recipe: TextRecipe | None, options: EvaluationOptions
    ) -> tuple[Perplexity, str]:
        """The result, and how it was measured."""
        raise NotImplementedError

    def describe(self, recipe: TextRecipe) -> dict[str, Any]:
        data = recipe.data
        return {"data": data.corpus, "tokenizer": data.tokenizer, "sequence length": data.length}

    def tokens_per_example(self, recipe: TextRecipe, config: Any) -> int:
        return recipe.data.length


@register_task("causal-lm")
class CausalLM(LanguageTask):
    """Autoregressive language modelling."""

    is_causal = True

    @property
    def model_classes(self) -> tuple[type, ...]:
        return (models.TNNForCausalLM,)

    def blocks(self, recipe: TextRecipe, tokens: Tokens, tokenizer: Any) -> Dataset[Any]:
        return CausalBlocks(tokens, recipe.data.length, tokenizer.eos_token_id)

    def _perplexity(
        self, model: Any, text: "Text", length: int, recipe: TextRecipe | None, options: EvaluationOptions
    ) -> tuple[Perplexity, str]:
        eos = text.tokenizer.eos_token_id
        if options.stream:
            protocol = f"one text in chunks of {options.chunk} tokens, each token predicted from all before it"
            return stream_perplexity(model, text.tokens, eos, chunk=options.chunk), protocol
        protocol = f"blocks of {length} tokens, each predicted from those before it in its block and one more"
        return block_perplexity(model, text.tokens, length, eos), protocol

    def speed_unit(self, recipe: TextRecipe) -> tuple[int, str]:
        return recipe.data.length, "tokens"  # all blocks have the same number of them


@register_task("masked-lm")
class MaskedLM(LanguageTask):
    """Bidirectional language modelling: masked tokens are predicted."""

    is_causal = False

    @property
    def model_classes(self) -> tuple[type, ...]:
        return (models.TNNForMaskedLM,)

    def blocks(self, recipe: TextRecipe, tokens: Tokens, tokenizer: Any) -> Dataset[Any]:
        return MaskedBlocks(tokens, recipe.data.length, tokenizer, recipe.training.seed)

    def evaluate(self, folder: Path, model: Any, recipe: TextRecipe | None, options: EvaluationOptions) -> str:
        if options.stream:
            raise ValueError("masked language models are scored on blocks: --stream does not apply")
        return super().evaluate(folder, model, recipe, options)

    def _perplexity(
        self, model: Any, text: "Text", length: int, recipe: TextRecipe | None, options: EvaluationOptions
    ) -> tuple[Perplexity, str]:
        seed = recipe.training.seed if recipe else 0
        protocol = f"15% of the tokens of blocks of {length}, masked as in training"
        return masked_perplexity(model, text.tokens, length, text.tokenizer, seed), protocol


class Text(NamedTuple):
    """A text as tokens of a model, and the length of the blocks that the model was trained on."""

    tokens: Tokens
    tokenizer: Any
    length: int


def load_text(folder: Path, model: Any, recipe: Recipe | None, source: str | None, split: str) -> Text:
    """A split of the corpus that a model was trained on, or of another `source`, in tokens of the model in `folder`.

    `source` is what `open_corpus` takes; a single file is one split. The tokens go to the user's cache: the recipe of a
    model does not say where files are written.
    """
    data = recipe.data if isinstance(recipe, TextRecipe) else TextData(corpus="")
    if source is None and not data.corpus:
        raise ValueError(f"give a text: {folder} has no recipe that names one")
    if source is None:
        corpus = corpus_of(data)
    else:
        column = data.text_column if is_table(Path(source)) or source.startswith("hf:") else None
        whole: dict[str, Any] = {split: source} if Path(source).is_file() else {}
        corpus = open_corpus(source, **whole, lines=data.lines, text_column=column, bad_files=data.bad_files)
    tokenizer = load_tokenizer(folder, model.config.vocab_size)
    return Text(tokenize(corpus, split, tokenizer, cache_folder()), tokenizer, data.length)


def corpus_of(data: TextData) -> Corpus:
    return open_corpus(**data.model_dump(include={"train", "validation", "test", *READ}), source=data.corpus)


def skipped_files(corpus: Corpus) -> str:
    """How many files are left out, and the first of them; empty if there are none."""
    skipped = corpus.skipped()
    files = "1 file" if len(skipped) == 1 else f"{len(skipped):,} files"
    return f"all but {files} not in UTF-8, such as {skipped[0]}" if skipped else ""


def load_with_tokenizer(head: Any, folder: Path, changes: dict[str, Any], tokenizer: Any) -> "PreTrainedModel":
    """A trained model to start from. Its tokenizer must have the same vocabulary."""
    model = load_head(head, folder, changes)
    if load_tokenizer(folder, model.config.vocab_size).get_vocab() != tokenizer.get_vocab():
        raise ValueError(f"the tokenizer does not fit the model: {folder} was trained with another one")
    return model
