"""Loading a task of Long-Range Arena."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tnn._checks import check_choice, check_positive
from tnn.data.lra.pixels import PixelSet, load_image, load_pathfinder
from tnn.data.lra.sources import Row, open_rows
from tnn.data.lra.tasks import SPLITS, Flavour, check_number, find_lra_task
from tnn.data.lra.texts import TextSet
from tnn.data.lra.vocabulary import make_lra_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SHORTEST = 2  # a token and the end


class LraSets(NamedTuple):
    """The examples by split, what made ids of their texts, and a line that tells what was found.

    Each set is a map-style data set of dictionaries of tensors, and has `labels`, those of all its examples.
    """

    sets: dict[str, TextSet | PixelSet]
    tokenizer: "PreTrainedTokenizerBase | None"  # None: pictures
    summary: str


def load_lra(
    task: str,
    source: str | Path,
    *,
    flavour: str = "tnn",
    splits: Sequence[str] = SPLITS,
    length: int | None = None,
    tokenizer: Any = None,
    check_counts: bool = True,
) -> LraSets:
    """The examples of a task: "text", "listops", "retrieval", "image", "pathfinder" or "pathx".

    `source` is a folder; its files may be packed (.xz, .gz), pictures apart. Of text it is IMDb's own (train/pos/*.txt
    and so on), or one with train.tsv and test.tsv, which have columns "text" and "label"; or "hf:" and a data set for
    the `datasets` library. The validation set of text is its test set, as in Long-Range Arena. Of listops and
    retrieval it holds the release's .tsv files, of image CIFAR-10, of pathfinder and pathx curv_contour_length_14.

    `flavour` "tnn" is how the authors of the paper read the tasks: characters, or ListOps' tokens, with an end token;
    pictures as numbers, `pixel_values`. "skyformer" is how the rows of the paper's table that it quotes from
    Skyformer's were: bytes, or words without brackets; pixels as ids; all padded to one length.

    Texts are cut to `length` tokens, by default the flavour's; with a length of your own, Skyformer's are padded to it.
    The vocabulary is that of the training split, unless you give the `tokenizer` of a trained model.

    A split must have as many examples as were published; with check_counts=False it may have any number but 0.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from tnn.data.lra import load_lra
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "basic_train.tsv").write_text("Source\\tTarget\\n[MAX 4 [MIN 7 4 ] ]\\t4\\n")
    ...     found = load_lra("listops", folder, splits=["train"], check_counts=False)
    >>> found.tokenizer.decode(found.sets["train"][0]["input_ids"])
    '[MAX 4 [MIN 7 4 X X <eos>'
    >>> found.summary
    'listops as tnn reads it: train 1 (largest class 100.0%); vocabulary 8; longest 8 of 2,048 tokens'
    """
    description = find_lra_task(task)
    check_choice(f"the flavour of {task}", flavour, description.flavours)
    for split in splits:
        check_choice("a split", split, SPLITS)
    if not splits:
        raise ValueError(f"splits must name at least one of {', '.join(SPLITS)}; got none")
    reading = _with_length(task, description.flavours[flavour], length)
    if description.kind == "pixels":
        pictures = _load_pixels(task, Path(source), reading, splits, check_counts)
        return LraSets(pictures, None, _summary(task, flavour, pictures, f"{reading.length:,} pixels"))
    rows = open_rows(task, source)
    if tokenizer is None:
        texts = _seen(_with_bar(rows("train"), f"{task} vocabulary"), reading)
        tokenizer = make_lra_tokenizer(reading.tokens, reading.length, texts, description.min_frequency)
    elif tokenizer.pad_token_id != 0:
        raise ValueError(f"the tokenizer is none of {task}'s: padding must have id 0; got {tokenizer.pad_token_id}")
    sets = _load_texts(task, rows, tokenizer, reading, splits, check_counts)
    longest = max(found.longest for found in sets.values())
    size = f"vocabulary {len(tokenizer):,}; longest {longest:,} of {reading.length:,} tokens"
    return LraSets({**sets}, tokenizer, _summary(task, flavour, {**sets}, size))


def _with_length(task: str, flavour: Flavour, length: int | None) -> Flavour:
    if length is None or length == flavour.length:
        return flavour
    check_positive("length", length)
    if flavour.tokens in ("numbers", "ids"):
        raise ValueError(f"{task} has {flavour.length:,} pixels, so that is its length; got {length:,}")
    if length < SHORTEST:
        raise ValueError(f"length must be at least {SHORTEST}, for a token and the end; got {length}")
    return replace(flavour, length=length, padded=flavour.padded and length)


def _load_pixels(
    task: str, source: Path, flavour: Flavour, splits: Sequence[str], check_counts: bool
) -> dict[str, TextSet | PixelSet]:
    if task == "image":
        return {**load_image(source, flavour, splits, check_counts)}
    return {**load_pathfinder(task, source, flavour, splits, check_counts)}


def _load_texts(
    task: str,
    rows: Callable[[str], Iterator[Row]],
    tokenizer: Any,
    flavour: Flavour,
    splits: Sequence[str],
    check_counts: bool,
) -> dict[str, TextSet]:
    stored = {split: find_lra_task(task).validation if split == "validation" else split for split in splits}
    loaded = {}
    for split in dict.fromkeys(stored.values()):
        texts = _with_bar(rows(split), f"{task} {split}")
        words = flavour.tokens in ("listops", "words")
        loaded[split] = TextSet(texts, tokenizer, flavour.length, flavour.padded, words)
        check_number(task, split, len(loaded[split]), published=check_counts)
    return {split: loaded[stored[split]] for split in splits}


def _seen(rows: Iterable[Row], flavour: Flavour) -> Iterator[str]:
    """The texts, and of characters no more than models see, the end token apart."""
    limit = flavour.length - 1 if flavour.tokens == "characters" else None
    return (text[:limit] for row in rows for text in row.texts)


def _with_bar(rows: Iterable[Row], what: str) -> Iterable[Row]:
    from tqdm import tqdm

    yield from tqdm(rows, f"reading {what}", unit=" rows", disable=None)  # None: where there is no terminal


def _summary(task: str, flavour: str, sets: Mapping[str, TextSet | PixelSet], size: str) -> str:
    parts = []
    for split, found in sets.items():
        if split == "validation" and found is sets.get("test"):
            parts.append("validation (the test set)")
            continue
        share = np.bincount(found.labels).max() / len(found)
        parts.append(f"{split} {len(found):,} (largest class {share:.1%})")
    return f"{task} as {flavour} reads it: {', '.join(parts)}; {size}"
