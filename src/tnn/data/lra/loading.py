"""Loading a task of Long-Range Arena."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tnn._checks import check_choice, check_positive
from tnn.data.lra.pixels import PixelSet, load_image, load_pathfinder
from tnn.data.lra.sources import Row, open_rows
from tnn.data.lra.tasks import SPLITS, Flavour, check_example_count, find_lra_task
from tnn.data.lra.texts import TextSet
from tnn.data.lra.vocabulary import make_lra_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SHORTEST = 2  # one token and the end token


class LraSets(NamedTuple):
    """The examples by split, the tokenizer of their texts, and a one-line summary.

    Each set is a map-style data set of dictionaries of tensors; its attribute `labels` holds all labels.
    """

    sets: dict[str, TextSet | PixelSet]
    tokenizer: "PreTrainedTokenizerBase | None"  # None for images
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
    held_out: int | None = None,
) -> LraSets:
    """The examples of a task: "text", "listops", "retrieval", "image", "pathfinder" or "pathx".

    `source` is a folder; its files may be compressed (.xz, .gz), except images.

    - text: IMDb's folders (train/pos/*.txt and so on); or train.tsv and test.tsv with columns "text" and "label"; or
      "hf:" and a data set for the `datasets` library. The validation set is the test set, as in Long-Range Arena.
    - listops, retrieval: the .tsv files of the release.
    - image: CIFAR-10.
    - pathfinder, pathx: curv_contour_length_14.

    `flavour` "tnn" reads the tasks as the authors of the paper do: characters or ListOps tokens with an end token;
    images as `pixel_values`. "skyformer" reads them as Skyformer does, whose results the paper quotes: bytes, or words
    without brackets; pixels as ids; all padded to one length.

    Texts are cut to `length` tokens, by default the flavour's; with "skyformer" they are also padded to `length`. The
    vocabulary is learned from the training split, unless `tokenizer` is given, the one of a trained model.

    Each split must have the published number of examples; with check_counts=False any number except 0.

    With `held_out`, the validation set of "text" is so many of the training examples instead of the test set, always
    the same ones, with the training set's share of each class; the other examples are the training set.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from tnn.data.lra import load_lra
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "basic_train.tsv").write_text("Source\\tTarget\\n[MAX 4 [MIN 7 4 ] ]\\t4\\n")
    ...     loaded = load_lra("listops", folder, splits=["train"], check_counts=False)
    >>> loaded.tokenizer.decode(loaded.sets["train"][0]["input_ids"])
    '[MAX 4 [MIN 7 4 X X <eos>'
    >>> loaded.summary
    'listops as tnn reads it: train 1 (largest class 100.0%); vocabulary 8; longest 8 of 2,048 tokens'
    """
    description = find_lra_task(task)
    check_choice(f"the flavour of {task}", flavour, description.flavours)
    for split in splits:
        check_choice("a split", split, SPLITS)
    if not splits:
        raise ValueError(f"splits must name at least one of {', '.join(SPLITS)}; got none")
    if held_out is not None:
        check_positive("held_out", held_out)
        if description.validation != "test":
            raise ValueError(f"held_out is for tasks whose validation set is the test set; {task} has one of its own")
    reading = _with_length(task, description.flavours[flavour], length)
    if description.kind == "pixels":
        images = _load_pixels(task, Path(source), reading, splits, check_counts)
        return LraSets(images, None, _summary(task, flavour, images, f"{reading.length:,} pixels"))
    rows = open_rows(task, source)
    if tokenizer is None:
        texts = _vocabulary_texts(_with_bar(rows("train"), f"{task} vocabulary"), reading)
        tokenizer = make_lra_tokenizer(reading.tokens, reading.length, texts, description.min_frequency)
    elif tokenizer.pad_token_id != 0:
        raise ValueError(f"the tokenizer does not fit {task}: padding must have id 0; got {tokenizer.pad_token_id}")
    if held_out is None:
        sets = _load_texts(task, rows, tokenizer, reading, splits, check_counts)
    else:
        sets = _load_texts(task, rows, tokenizer, reading, dict.fromkeys(["train", *splits]), check_counts)
        sets["train"], sets["validation"] = _hold_out(sets["train"], held_out)
        sets = {split: sets[split] for split in splits}
    longest = max(dataset.longest for dataset in sets.values())
    size = f"vocabulary {len(tokenizer):,}; longest {longest:,} of {reading.length:,} tokens"
    return LraSets({**sets}, tokenizer, _summary(task, flavour, {**sets}, size))


def _with_length(task: str, flavour: Flavour, length: int | None) -> Flavour:
    if length is None or length == flavour.length:
        return flavour
    check_positive("length", length)
    if flavour.tokens in ("numbers", "ids"):
        raise ValueError(f"length of {task} must be {flavour.length:,}, its number of pixels; got {length:,}")
    if length < SHORTEST:
        raise ValueError(f"length must be at least {SHORTEST}, for a token and the end token; got {length}")
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
    splits: Iterable[str],
    check_counts: bool,
) -> dict[str, TextSet]:
    stored = {split: find_lra_task(task).validation if split == "validation" else split for split in splits}
    loaded = {}
    for split in dict.fromkeys(stored.values()):
        texts = _with_bar(rows(split), f"{task} {split}")
        words = flavour.tokens in ("listops", "words")
        loaded[split] = TextSet(texts, tokenizer, flavour.length, flavour.padded, words)
        check_example_count(task, split, len(loaded[split]), published=check_counts)
    return {split: loaded[stored[split]] for split in splits}


def _hold_out(train: TextSet, count: int) -> tuple[TextSet, TextSet]:
    """The other rows, in their order, and `count` rows: of each class a share of the same size."""
    if count >= len(train):
        raise ValueError(f"held_out must be less than the {len(train):,} training examples; got {count:,}")
    order = np.random.default_rng(0).permutation(len(train))
    order = order[np.argsort(train.labels[order], kind="stable")]  # class after class, at random within a class
    chosen = order[np.arange(count) * len(train) // count]  # evenly spaced
    rest = np.setdiff1d(np.arange(len(train)), chosen)
    return train.select(rest), train.select(np.sort(chosen))


def _vocabulary_texts(rows: Iterable[Row], flavour: Flavour) -> Iterator[str]:
    """The texts to learn a vocabulary from; for characters only the part that a model sees, without the end token."""
    limit = flavour.length - 1 if flavour.tokens == "characters" else None
    return (text[:limit] for row in rows for text in row.texts)


def _with_bar(rows: Iterable[Row], what: str) -> Iterable[Row]:
    from tqdm import tqdm

    yield from tqdm(rows, f"reading {what}", unit=" rows", disable=None)  # None: only in a terminal


def _summary(task: str, flavour: str, sets: Mapping[str, TextSet | PixelSet], size: str) -> str:
    parts = []
    for split, dataset in sets.items():
        if split == "validation" and dataset is sets.get("test"):
            parts.append("validation (the test set)")
            continue
        share = np.bincount(dataset.labels).max() / len(dataset)
        parts.append(f"{split} {len(dataset):,} (largest class {share:.1%})")
    return f"{task} as {flavour} reads it: {', '.join(parts)}; {size}"
