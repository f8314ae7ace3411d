"""GLUE: nine tasks on English sentences and sentence pairs. Loading, encoding, scores."""

import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import Dataset

from tnn._checks import check_choice
from tnn._names import did_you_mean
from tnn.data.compressed import find_file, reading
from tnn.data.correlation import pearson, spearman

SPECIAL_TOKENS = 4  # <s> A </s> </s> B </s>
TOKENIZED_AT_ONCE = 1024  # texts
LARGEST_SIMILARITY = 5  # labels of STS-B are from 0 to 5
Numbers = NDArray[np.float64]


class Example(NamedTuple):
    """A sentence, or two. The label is a class, a number (STS-B), or None if it is not known."""

    first: str
    second: str | None
    label: int | float | None


@dataclass(frozen=True)
class GlueTask:
    """How a task is stored and scored."""

    folder: str  # of the official download
    texts: tuple[str, ...]  # columns of the files
    label: str  # column of the files
    classes: tuple[str, ...]  # names in the files, in the order of their numbers; empty: the label is a number
    metrics: tuple[str, ...]  # the headline metric first
    hub_texts: tuple[str, ...] = ()  # columns on the Hugging Face hub if they differ; the label is always "label"
    parts: tuple[str, ...] = ("",)  # of validation and test
    headless: tuple[str, ...] = ()  # columns of train and dev, if these files have no header
    has_broken_rows: bool = False

    @property
    def files(self) -> dict[str, str]:
        """The name of each split's file."""
        validation = {f"validation{part}": f"dev{part}.tsv" for part in self.parts}
        return {"train": "train.tsv"} | validation | {f"test{part}": f"test{part}.tsv" for part in self.parts}

    @property
    def validations(self) -> list[str]:
        """Its validation splits; the headline metric is measured on the first."""
        return [split for split in self.files if split.startswith("validation")]

    @property
    def num_labels(self) -> int:
        """Outputs of a model: one per class, or a single number."""
        return len(self.classes) or 1


_NUMBERED = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_INFERENCE = ("entailment", "neutral", "contradiction")
_PAIR = ("sentence1", "sentence2")
_QUESTIONS = ("question1", "question2")
_COLA = ("source", "label", "mark", "sentence")
_MNLI = ("_matched", "_mismatched")

GLUE_TASKS: dict[str, GlueTask] = {
    "cola": GlueTask("CoLA", ("sentence",), "label", _NUMBERED, ("matthews",), headless=_COLA),
    "sst2": GlueTask("SST-2", ("sentence",), "label", _NUMBERED, ("accuracy",)),
    "mrpc": GlueTask("MRPC", ("#1 String", "#2 String"), "Quality", _NUMBERED, ("f1", "accuracy"), hub_texts=_PAIR),
    "qnli": GlueTask("QNLI", ("question", "sentence"), "label", _ENTAILMENT, ("accuracy",)),
    "qqp": GlueTask("QQP", _QUESTIONS, "is_duplicate", _NUMBERED, ("accuracy", "f1"), has_broken_rows=True),
    "mnli": GlueTask("MNLI", _PAIR, "gold_label", _INFERENCE, ("accuracy",), ("premise", "hypothesis"), _MNLI),
    "rte": GlueTask("RTE", _PAIR, "label", _ENTAILMENT, ("accuracy",)),
    "stsb": GlueTask("STS-B", _PAIR, "score", (), ("pearson", "spearman")),
    "wnli": GlueTask("WNLI", _PAIR, "label", _NUMBERED, ("accuracy",)),
}


def load_glue(task: str, source: str | Path, splits: Sequence[str] = ()) -> dict[str, list[Example]]:
    """The examples of a task, by split: train, validation and test, the last without labels.

    `source` is the folder of the official download, which holds CoLA, SST-2 and so on; or "hf:" and a data set for the
    `datasets` library: a name on the Hugging Face hub, or a folder with one sub-folder per task (`cola`, `sst2`), with
    parquet files or the output of `save_to_disk`. `splits` are the ones to load; by default all that exist. MNLI has
    validation_matched, validation_mismatched, test_matched and test_mismatched.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from tnn.data.glue import load_glue
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (Path(folder) / "SST-2").mkdir()
    ...     _ = (Path(folder) / "SST-2" / "dev.tsv").write_text("sentence\\tlabel\\na charming journey \\t1\\n")
    ...     load_glue("sst2", folder)
    {'validation': [Example(first='a charming journey', second=None, label=1)]}
    """
    files = find_glue_task(task).files
    for split in splits:
        check_choice(f"a split of {task}", split, files)
    if str(source).startswith("hf:"):
        return _load_tables(task, str(source).removeprefix("hf:"), list(splits))
    return _load_files(task, Path(source), list(splits))


def find_glue_task(name: str) -> GlueTask:
    """A task by its name.

    >>> from tnn.data.glue import find_glue_task
    >>> find_glue_task("sst2").folder
    'SST-2'
    """
    if name not in GLUE_TASKS:
        raise ValueError(f"no GLUE task {name!r}; {did_you_mean(name, GLUE_TASKS)}")
    return GLUE_TASKS[name]


def _load_files(task: str, root: Path, splits: list[str]) -> dict[str, list[Example]]:
    description = GLUE_TASKS[task]
    paths = {split: find_file(root / description.folder / name) for split, name in description.files.items()}
    stored = [split for split, path in paths.items() if path.is_file()]
    loaded = {}
    for split in splits or stored or ["train"]:
        if split not in stored:
            raise FileNotFoundError(f"there is no {paths[split]}: {task} needs it, in the GLUE folder {root}")
        loaded[split] = list(_read_tsv(paths[split], description, with_labels=not split.startswith("test")))
        if not loaded[split]:
            raise ValueError(f"{paths[split]} holds no examples")
    return loaded


def _read_tsv(path: Path, task: GlueTask, with_labels: bool) -> Iterator[Example]:
    headless = [*task.headless] if with_labels else []
    with reading(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="\n")  # quotes and single \r belong to the text
        rows = (line.rstrip("\r\n").split("\t") for line in text)
        header = headless or next(rows, [])
        names = [*task.texts, task.label] if with_labels else [*task.texts]
        if missing := [name for name in names if name not in header]:
            raise ValueError(f"{path}: no column {missing[0]!r} in its first line, {' | '.join(header)[:80]!r}")
        columns = [header.index(name) for name in names]
        for number, row in enumerate(rows, start=1 if headless else 2):
            if len(row) > max(columns):
                texts = [row[column] for column in columns[: len(task.texts)]]
                label = _known_label(task, row[columns[-1]], f"{path}, line {number}") if with_labels else None
                yield _example(texts, label)
            elif row != [""] and not task.has_broken_rows:
                raise ValueError(f"{path}, line {number}: needs {max(columns) + 1} columns; got {len(row)}")


def _load_tables(task: str, name: str, splits: list[str]) -> dict[str, list[Example]]:
    from datasets import load_dataset, load_from_disk

    folder = Path(name, task)
    if not Path(name).exists():
        tables: Any = load_dataset(name, task)
    elif (folder / "dataset_dict.json").is_file():
        tables = load_from_disk(folder)
    else:
        # File by file: the library on its own would merge the two validation sets of MNLI.
        files = {split: sorted(map(str, folder.glob(f"{split}*.parquet"))) for split in GLUE_TASKS[task].files}
        if not any(files.values()):
            raise FileNotFoundError(f"{folder} must hold parquet files (train*.parquet) or a saved data set")
        tables = load_dataset("parquet", data_files={split: paths for split, paths in files.items() if paths})
    if missing := [split for split in splits if split not in tables]:
        raise FileNotFoundError(f"hf:{name} has no split {missing[0]!r} of {task}; it has {', '.join(tables)}")
    return {split: _read_table(tables[split], GLUE_TASKS[task], f"{task} of hf:{name}") for split in splits or tables}


def _read_table(table: Any, task: GlueTask, where: str) -> list[Example]:
    names = [*(task.hub_texts or task.texts), "label"]
    if missing := [name for name in names if name not in table.column_names]:
        raise ValueError(f"{where}: no column {missing[0]!r}; it has {', '.join(table.column_names)}")
    rows = zip(*(table[name] for name in names), strict=True)
    return [_example(texts, None if label == -1 else _known_label(task, label, where)) for *texts, label in rows]


def _example(texts: list[str], label: int | float | None) -> Example:
    first, *rest = (text.strip() for text in texts)
    return Example(first, rest[0] if rest else None, label)


def _known_label(task: GlueTask, value: Any, where: str) -> int | float:
    """The label that is `value` in a file (a class name) or on the hub (a class number)."""
    if value in task.classes:
        return task.classes.index(value)
    if value in range(len(task.classes)):
        return int(value)
    with suppress(ValueError, TypeError):
        if not task.classes and 0 <= float(value) <= LARGEST_SIMILARITY:
            return float(value)
    allowed = f"one of {', '.join(task.classes)}" if task.classes else f"a number from 0 to {LARGEST_SIMILARITY}"
    raise ValueError(f"{where}: a label must be {allowed}; got {value!r}")


def encode(example: Example, tokenizer: Any, max_length: int) -> dict[str, Tensor]:
    """`input_ids` as `<s> A </s>` or `<s> A </s> </s> B </s>`, and `labels` if the example has a label.

    To fit into `max_length` tokens, tokens are cut from the end of the longer text, then from both in turn. The name of
    a special token in a text is treated as text.

    >>> from tnn.data import byte_tokenizer
    >>> from tnn.data.glue import Example, encode
    >>> encode(Example("ab", "c", 1), byte_tokenizer(), max_length=512)
    {'input_ids': tensor([  0, 101, 102,   2,   2, 103,   2]), 'labels': tensor(1)}
    """
    return GlueDataset([example], tokenizer, max_length)[0]


class GlueDataset(Dataset[dict[str, Tensor]]):
    """Examples encoded as by `encode`; `tnn.data.blocks.collate` makes batches of them.

    They are tokenised in advance, many at once, which is faster than one by one.

    >>> from tnn.data import byte_tokenizer
    >>> from tnn.data.glue import Example, GlueDataset
    >>> dataset = GlueDataset([Example("ab", None, 1), Example("c", None, 0)], byte_tokenizer(), max_length=512)
    >>> dataset[1]
    {'input_ids': tensor([  0, 103,   2]), 'labels': tensor(0)}
    """

    def __init__(self, examples: Sequence[Example], tokenizer: Any, max_length: int):
        if max_length < SPECIAL_TOKENS + 2:
            raise ValueError(f"max_length must be at least {SPECIAL_TOKENS + 2}, for two texts; got {max_length}")
        self.labels = [example.label for example in examples]
        firsts = _tokenize([example.first for example in examples], tokenizer)
        seconds = _tokenize([example.second or "" for example in examples], tokenizer)
        bos, eos = [tokenizer.bos_token_id], [tokenizer.eos_token_id]
        self.rows = []
        for example, first, second in zip(examples, firsts, seconds, strict=True):
            if example.second is None:
                ids = bos + first[: max_length - 2] + eos
            else:
                first, second = _cut_longer(first, second, max_length - SPECIAL_TOKENS)
                ids = bos + first + eos + eos + second + eos
            self.rows.append(np.array(ids, dtype=np.int32))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        item = {"input_ids": torch.tensor(self.rows[index], dtype=torch.long)}
        label = self.labels[index]
        return item if label is None else item | {"labels": torch.tensor(label)}


def _tokenize(texts: list[str], tokenizer: Any) -> Iterator[list[int]]:
    for start in range(0, len(texts), TOKENIZED_AT_ONCE):
        piece = texts[start : start + TOKENIZED_AT_ONCE]
        yield from tokenizer(piece, add_special_tokens=False, split_special_tokens=True, verbose=False)["input_ids"]


def _cut_longer(first: list[int], second: list[int], room: int) -> tuple[list[int], list[int]]:
    """Drop the last token of the longer text (of the second if both are equally long) until both fit into `room`."""
    kept = min(len(second), max(room // 2, room - len(first)))
    return first[: room - kept], second[:kept]


def score(task: str, predictions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """The metrics of a task as fractions of 1, the headline first. Predictions are classes, or numbers for STS-B.

    F1 is 0 if there are no positives; a correlation is 0 if either side is constant.

    >>> from tnn.data.glue import score
    >>> score("mrpc", predictions=[1, 1, 0, 1], labels=[1, 0, 0, 1])
    {'f1': 0.8, 'accuracy': 0.75}
    """
    description = find_glue_task(task)
    x, y = (_check_numbers(description, *pair) for pair in (("predictions", predictions), ("labels", labels)))
    if len(x) != len(y):
        raise ValueError(f"there must be one prediction per label; got {len(x)} predictions and {len(y)} labels")
    return {metric: _METRICS[metric](x, y) for metric in description.metrics}


def majority_score(task: str, labels: ArrayLike, training_labels: ArrayLike) -> dict[str, float]:
    """The score of always predicting the most frequent training label (for STS-B the mean): a baseline.

    >>> from tnn.data.glue import majority_score
    >>> majority_score("rte", labels=[0, 0, 1, 0], training_labels=[0, 1, 0])
    {'accuracy': 0.75}
    """
    training = _check_numbers(find_glue_task(task), "training_labels", training_labels)
    values, counts = np.unique(training, return_counts=True)
    constant = values[counts.argmax()] if GLUE_TASKS[task].classes else training.mean()
    return score(task, np.full(np.shape(labels), constant), labels)


def _check_numbers(task: GlueTask, name: str, values: ArrayLike) -> Numbers:
    numbers = np.asarray(values, dtype=np.float64)  # None becomes nan
    if numbers.ndim != 1 or not numbers.size:
        raise ValueError(
            f"{name} must be a 1-D array that is not empty, one value per example; got shape {numbers.shape}"
        )
    allowed = np.isin(numbers, range(len(task.classes))) if task.classes else np.isfinite(numbers)
    if not allowed.all():
        wanted = f"classes from 0 to {len(task.classes) - 1}" if task.classes else "finite numbers"
        raise ValueError(f"{name} of {task.folder} must be {wanted}; got {numbers[~allowed][0]:g}")
    return numbers


def _accuracy(x: Numbers, y: Numbers) -> float:
    return float((x == y).mean())


def _f1(x: Numbers, y: Numbers) -> float:
    positives = x.sum() + y.sum()  # classes are 0 and 1
    return float(2 * (x * y).sum() / positives) if positives else 0.0


_METRICS = {
    "accuracy": _accuracy,
    "f1": _f1,
    "matthews": pearson,  # for two classes, 0 and 1, they are the same
    "pearson": pearson,
    "spearman": spearman,
}
