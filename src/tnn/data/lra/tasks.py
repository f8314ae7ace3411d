"""The tasks of Long-Range Arena: what they are made of, how long, how many, and where to get them."""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

SPLITS = ("train", "validation", "test")
RELEASE = "lra_release.gz of https://github.com/google-research/long-range-arena"


@dataclass(frozen=True)
class Flavour:
    """How a code base reads a task.

    Texts become characters, bytes, ListOps' tokens or alphanumeric words; pictures real numbers or ids.
    """

    tokens: Literal["characters", "bytes", "listops", "words", "numbers", "ids"]
    length: int  # tokens at most, the end token included; or pixels
    padded: int | None = None  # each sequence to so many tokens; None: a batch to its longest
    vocab_size: int | None = None  # of the embedding; None: the tokenizer's, and of numbers there is none


@dataclass(frozen=True)
class LraTask:
    """A task: one text, a pair of texts or a picture, to be put into one of `num_labels` classes."""

    kind: Literal["text", "pair", "pixels"]
    num_labels: int
    counts: dict[str, int]  # published, by split
    where: str  # to get it
    flavours: dict[str, Flavour]
    validation: str = "validation"  # the split that serves as it
    min_frequency: int = 1  # of a character that is in the vocabulary
    mean: float = 0.5  # of pixels, black being 0 and white 1
    std: float = 0.5


def _counts(train: int, validation: int, test: int) -> dict[str, int]:
    return dict(zip(SPLITS, (train, validation, test), strict=True))


LRA: dict[str, LraTask] = {
    "text": LraTask(
        "text",
        num_labels=2,
        counts=_counts(25_000, 25_000, 25_000),
        where="aclImdb of https://ai.stanford.edu/~amaas/data/sentiment, or hf:stanfordnlp/imdb",
        flavours={"tnn": Flavour("characters", 4096), "skyformer": Flavour("bytes", 4000, 4096, vocab_size=512)},
        validation="test",
        min_frequency=15,
    ),
    "listops": LraTask(
        "text",
        num_labels=10,
        counts=_counts(96_000, 2_000, 2_000),
        where=f"listops-1000 in {RELEASE}, or make it with `tnn data generate listops --out DIR`",
        flavours={"tnn": Flavour("listops", 2048), "skyformer": Flavour("words", 2000, 2048, vocab_size=32)},
    ),
    "retrieval": LraTask(
        "pair",
        num_labels=2,
        counts=_counts(147_086, 18_090, 17_437),
        where=f"tsv_data in {RELEASE}",
        flavours={"tnn": Flavour("characters", 4000), "skyformer": Flavour("bytes", 4000, 4096, vocab_size=512)},
    ),
    "image": LraTask(
        "pixels",
        num_labels=10,
        counts=_counts(45_000, 5_000, 10_000),
        where="CIFAR-10 of https://www.cs.toronto.edu/~kriz/cifar.html",
        flavours={"tnn": Flavour("numbers", 32 * 32), "skyformer": Flavour("ids", 32 * 32, vocab_size=256)},
        mean=122.6 / 255,
        std=61 / 255,
    ),
    "pathfinder": LraTask(
        "pixels",
        num_labels=2,
        counts=_counts(160_000, 20_000, 20_000),
        where=f"pathfinder32 in {RELEASE}, or make it with `tnn data generate pathfinder --out DIR`",
        flavours={"tnn": Flavour("numbers", 32 * 32), "skyformer": Flavour("ids", 32 * 32, vocab_size=512)},
    ),
    "pathx": LraTask(
        "pixels",
        num_labels=2,
        counts=_counts(160_000, 20_000, 20_000),
        where=f"pathfinder128 in {RELEASE}, or make it with `tnn data generate pathfinder --size 128 --out DIR`",
        flavours={"tnn": Flavour("numbers", 128 * 128)},
    ),
}


def find_lra_task(name: str) -> LraTask:
    """A task by its name.

    >>> from tnn.data.lra import find_lra_task
    >>> find_lra_task("listops").flavours["tnn"].length
    2048
    """
    if name in LRA:
        return LRA[name]
    close = get_close_matches(name.lower(), LRA, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(LRA)}"
    raise ValueError(f"no task {name!r} in Long-Range Arena; {hint}")


def check_number(task: str, split: str, found: int, *, published: bool) -> None:
    """There must be examples; with `published`, as many as were published."""
    if not found:
        raise ValueError(f"{task}: the {split} split is empty")
    wanted = find_lra_task(task).counts[split]
    if published and found != wanted:
        raise ValueError(
            f"{task}: found {found:,} examples in the {split} split, where {wanted:,} are published; "
            "check_counts=False takes them as they are"
        )


def check_label(task: str, value: object, where: str) -> int:
    """A class that a file writes as 1, or as 1.0."""
    classes = find_lra_task(task).num_labels
    try:
        number = float(str(value))
    except ValueError:
        number = -1
    if number not in range(classes):
        raise ValueError(f"{where}: a label of {task} must be from 0 to {classes - 1}; got {value!r}")
    return int(number)
