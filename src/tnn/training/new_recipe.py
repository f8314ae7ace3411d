"""A recipe for a text of the user: its model and its steps are chosen for the size of the text and for the machine."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from tnn.data import open_corpus
from tnn.training.durations import format_time
from tnn.training.recipe import load_recipe, quoted

READING = ("text_column", "lines", "bad_files")  # keys of data that say how a text is read
TOKENS_PER_PARAMETER = 20  # a rule of thumb: so many tokens a model should see
PASSES = 4  # over the text; what it reads more often teaches a model little
FEWEST_STEPS, ENOUGH_STEPS = 200, 800
SMALLEST_BATCH, SHORTEST = 4, 16
FLOPS_PER_THREAD = 25e9  # in training, measured with tnn-mini


TEMPLATE = """\
# A language model of {source}: {megabytes:,.3g} MB of training text, about {tokens:,} tokens.
# The model has about {parameters:,} parameters and should see {per_parameter} tokens for each, but pass over
# the text at most {passes} times.
# For this machine: {machine}.
task: causal-lm
model:
  preset: {preset} # tnn-mini is for up to 100 MB of text, tnn-small for up to 1 GB, tnn-base for more
data:
  corpus: {source} # a file, a table, or a folder of texts
{reading}  tokenizer: {tokenizer} # bytes; or bpe:8000, trained on the text, once
  length: {length} # tokens per block
training:
  steps: {steps} # {passes_made:,.1f} passes over the text
  batch_size: {batch} # blocks per step
  micro_batch_size: {micro} # of these, so many in memory at once
  learning_rate: {rate:.1e}
  schedule: cosine # a run with a constant schedule can be made longer as if it had not ended
  warmup_steps: {warmup}
  betas: [0.9, 0.98]
  weight_decay: 0.1
  clip: 1.0
  log_every: {log}
  evaluate_every: {every}
  evaluate_examples: 500 # blocks of the validation text, at most
  save_every: {every} # steps between checkpoints
  keep_best: true # the final model has the weights with the best validation loss
"""


class Size(NamedTuple):
    """One of the recommended models: the text that it is for, and what a token is."""

    recipe: str
    parameters: int
    bytes_per_token: float
    up_to: float  # bytes of text


SIZES = (
    Size("tnn-mini", 680_000, 1, 1e8),
    Size("tnn-small", 5_700_000, 3.5, 1e9),
    Size("tnn-base", 48_600_000, 4, math.inf),
)


def new_recipe(source: str, **reading: Any) -> str:
    """The text of a commented recipe for a language model of a text, which is read once.

    `reading` are options of `tnn.data.open_corpus` that the recipe shall have: text_column, lines and bad_files.

    >>> from tnn.training.new_recipe import new_recipe
    >>> print(new_recipe("stdlib").splitlines()[4])
    task: causal-lm
    """
    corpus = open_corpus(source, **reading)
    size = sum(len(piece.encode()) for document in corpus.documents("train") for piece in document)
    return write_recipe(source, size, reading)


def write_recipe(
    source: str,
    size: int,
    reading: Mapping[str, str] = MappingProxyType({}),
    *,
    threads: int | None = None,
    accelerator: bool | None = None,
) -> str:
    """The same for a training text of `size` bytes. Threads and accelerator are by default those of this machine.

    >>> from tnn.training.new_recipe import write_recipe
    >>> print(write_recipe("my-texts", 2_000_000_000, threads=8, accelerator=True).splitlines()[6])
      preset: tnn-base # tnn-mini is for up to 100 MB of text, tnn-small for up to 1 GB, tnn-base for more
    """
    accelerator = torch.accelerator.is_available() if accelerator is None else accelerator
    chosen = _choose(size, accelerator)
    known = load_recipe(chosen.recipe)
    tokens = size / chosen.bytes_per_token
    length = min(known.data.length, 2 ** int(math.log2(max(1, tokens / 8))))
    if length < SHORTEST:
        raise ValueError(f"the training text of {source} has {size:,} bytes: too few to train on")
    wanted = min(TOKENS_PER_PARAMETER * chosen.parameters, PASSES * tokens)
    batch, steps = _schedule(wanted / length, known.training.batch_size)
    seen = steps * batch * length
    return TEMPLATE.format(
        source=quoted(source),
        reading="".join(f"  {name}: {quoted(value)}\n" for name, value in reading.items()),
        megabytes=size / 1e6,
        tokens=_rounded(tokens),
        parameters=chosen.parameters,
        per_parameter=TOKENS_PER_PARAMETER,
        passes=PASSES,
        machine="an accelerator" if accelerator else _time(chosen, seen, threads or torch.get_num_threads()),
        preset=chosen.recipe,
        tokenizer=known.data.tokenizer,
        length=length,
        steps=steps,
        passes_made=seen / tokens,
        batch=batch,
        micro=min(known.training.micro_batch_size or batch, batch),
        rate=known.training.learning_rate,
        warmup=steps // 10,
        log=max(1, min(50, steps // 80)),
        every=steps // 8,
    )


def _choose(size: int, accelerator: bool) -> Size:
    """By the text; without an accelerator the largest would take months."""
    sizes = SIZES if accelerator else SIZES[:-1]
    return next((found for found in sizes if size <= found.up_to), sizes[-1])


def _schedule(blocks: float, batch: int) -> tuple[int, int]:
    """Batch size and steps for a number of blocks: smaller batches where there would be few steps."""
    while batch > SMALLEST_BATCH and blocks / batch < ENOUGH_STEPS:
        batch //= 2
    return batch, max(FEWEST_STEPS, _rounded(blocks / batch))


def _time(chosen: Size, tokens: int, threads: int) -> str:
    seconds = 6 * chosen.parameters * tokens / threads / FLOPS_PER_THREAD
    return f"{threads} thread{'s' * (threads > 1)}, with which it takes roughly {format_time(seconds)}"


def _rounded(value: float) -> int:
    """To two digits."""
    return int(float(f"{value:.1e}"))
