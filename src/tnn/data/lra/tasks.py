"""The tasks of Long-Range Arena: their kind, length, number of examples, and where to get them."""

from dataclasses import dataclass
from typing import Literal

from tnn._names import did_you_mean

SPLITS = ("train", "validation", "test")
RELEASE = "lra_release.gz of https://github.com/google-research/long-range-arena"


@dataclass(frozen=True)
class Flavour:
    """How a code base reads a task.

    Texts become characters, bytes, ListOps tokens or alphanumeric words; images become real numbers or ids.
    """

    tokens: Literal["characters", "bytes", "listops", "words", "numbers", "ids"]
    length: int  # the most tokens, end token included; or the number of pixels
    padded: int | None = None  # pad every sequence to this length; None: each batch to its longest
    vocab_size: int | None = None  # of the embedding; None: that of the tokenizer, or no embedding for numbers


@dataclass(frozen=True)
class LraTask:
    """A task: classify a text, a pair of texts or an image into `num_labels` classes."""

    kind: Literal["text", "pair", "pixels"]
    num_labels: int
    counts: dict[str, int]  # published number of examples by split
    where: str  # to get the data
    flavours: dict[str, Flavour]
    validation: str = "validation"  # the split that is used for validation
    min_frequency: int = 1  # rarer characters are not in the vocabulary
    mean: float = 0.5  # of pixels in [0, 1]
    std: float = 0.5


def _counts(train: int, validation: int, test: int) -> dict[str, int]:
    return dict(zip(SPLITS, (train, validation, test), strict=True))


LRA_TASKS: dict[str, LraTask] = {
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
    if name not in LRA_TASKS:
        raise ValueError(f"no task {name!r} in Long-Range Arena; {did_you_mean(name, LRA_TASKS)}")
    return LRA_TASKS[name]


def check_example_count(task: str, split: str, count: int, *, published: bool) -> None:
    """There must be examples; with `published`, as many as were published."""
    if not count:
        raise ValueError(f"{task}: the {split} split is empty")
    expected = find_lra_task(task).counts[split]
    if published and count != expected:
        raise ValueError(
            f"{task}: the {split} split must have {expected:,} examples, as published; got {count:,}; "
            "check_counts=False accepts any number"
        )


def check_label(task: str, value: object, where: str) -> int:
    """The class that a file writes as 1 or 1.0."""
    classes = find_lra_task(task).num_labels
    try:
        number = float(str(value))
    except ValueError:
        number = -1
    if number not in range(classes):
        raise ValueError(f"{where}: a label of {task} must be from 0 to {classes - 1}; got {value!r}")
    return int(number)
