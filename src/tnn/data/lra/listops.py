"""ListOps: nested lists of digits under MIN, MAX, MED and SM, made anew by the rules of Long-Range Arena."""

import json
import shutil
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import NamedTuple

from tnn.data.lra.generation import check_count, make_parts, output_folder, write_whole

LONGER_THAN, SHORTER_THAN = 500, 2000  # digits, operators and closing brackets of a tree that is kept
DEPTH = 10  # where every node is a digit; the root is at 1
OPERATOR_SHARE = 0.25  # of the nodes above
FEWEST, MOST = 2, 10  # operands
OPERATORS = ("MIN", "MAX", "MED", "SM")
PART = 500  # trees of one task for a worker, under a second of work; another number means other trees for a seed
FILES = {"train": "basic_train.tsv", "validation": "basic_val.tsv", "test": "basic_test.tsv"}
HEADER = b"Source\tTarget\n"


class Statistics(NamedTuple):
    """Of the trees that were drawn until enough were kept, and the lengths of those that were."""

    drawn: int
    kept: int
    mean: float
    median: float


def generate_listops(
    out: Path,
    *,
    seed: int = 0,
    train: int = 96_000,
    validation: int = 2_000,
    test: int = 2_000,
    workers: int | None = None,
) -> Statistics:
    """Draws distinct trees and writes them into basic_train.tsv, basic_val.tsv and basic_test.tsv of the folder `out`.

    Each has a line "Source, tab, Target" and then a tree and its value a line, in the form of the published files. The
    seed determines all of them, whatever the number of processes (`workers`, by default one a core). If it is
    interrupted, the same call goes on where this one was; of files that are there already it gives the statistics. The
    files of 100,000 trees take 0.7 GB, and as much again until the end.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from tnn.data.lra.listops import evaluate_listops, generate_listops
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = generate_listops(Path(folder), train=2, validation=1, test=1, workers=1)
    ...     header, first, second = Path(folder, "basic_train.tsv").read_text().splitlines()
    >>> source, target = first.split("\\t")
    >>> found.kept, header, evaluate_listops(source) == int(target)
    (4, 'Source\\tTarget', True)
    """
    counts = {"train": train, "validation": validation, "test": test}
    counts = {split: check_count(split, wanted) for split, wanted in counts.items()}
    if not any(counts.values()):
        raise ValueError("train, validation and test are all 0; at least one of them must be more")
    seed = check_count("seed", seed)
    with output_folder(out, {"generator": "listops", "version": 1, "seed": seed, **counts}):
        record, parts = out / "statistics.json", out / ".parts"
        if not all((out / name).is_file() for name in [*FILES.values(), record.name]):
            parts.mkdir(exist_ok=True)
            found = _write_splits(out, parts, seed, counts, workers)
            write_whole(record, json.dumps(found._asdict(), indent=1).encode() + b"\n")
        shutil.rmtree(parts, ignore_errors=True)
        return Statistics(**json.loads(record.read_bytes()))


def _write_splits(out: Path, parts: Path, seed: int, counts: dict[str, int], workers: int | None) -> Statistics:
    size = min(PART, sum(counts.values()))
    make = partial(_make_part, parts, seed, size)
    planned = range(-(-sum(counts.values()) // size))
    make_parts(make, [part for part in planned if not (parts / str(part)).is_file()], workers=workers, what="listops")
    trees = _distinct_trees(make, parts)
    lengths, drawn = [], 0
    for split, wanted in counts.items():
        with (parts / FILES[split]).open("wb") as file:
            file.write(HEADER)
            for tree in islice(trees, wanted):
                file.write(tree.row + b"\n")
                lengths.append(tree.length)
                drawn += tree.draws
    for name in FILES.values():
        (parts / name).replace(out / name)
    return Statistics(drawn, len(lengths), statistics.fmean(lengths), float(statistics.median(lengths)))


class _Tree(NamedTuple):
    row: bytes  # of the files: text, tab, value
    length: int
    draws: int  # since the tree before it: this one, and those that were not kept


def _distinct_trees(make: Callable[[int], None], parts: Path) -> Iterator[_Tree]:
    """Those of part 0, 1, ...; parts that are not there are made, should there be so many of the same."""
    seen, draws = set(), 0
    for part in count():
        path = parts / str(part)
        if not path.is_file():
            make(part)
        for line in path.read_bytes().splitlines():
            row, length, more = line.rsplit(b"\t", 2)
            draws += int(more)
            key = blake2b(row, digest_size=16).digest()  # the texts would take 0.7 GB of memory
            if key not in seen:
                seen.add(key)
                yield _Tree(row, int(length), draws)
                draws = 0


def _make_part(parts: Path, seed: int, size: int, part: int) -> None:
    random = Random(f"listops {seed} {part}")  # its sequence is the same in every version of Python
    write_whole(parts / str(part), b"".join(b"%b\t%d\t%d\n" % tree for tree in islice(_kept_trees(random), size)))


def _kept_trees(random: Random) -> Iterator[_Tree]:
    draws = 0
    while True:
        draws += 1
        drawn = _draw_tree(random)
        if drawn and LONGER_THAN < drawn.length < SHORTER_THAN:
            yield _Tree(f"{drawn.text}\t{drawn.value}".encode(), drawn.length, draws)
            draws = 0


class _Drawn(NamedTuple):
    text: str
    value: int
    length: int


def _draw_tree(random: Random) -> _Drawn | None:
    """A tree; or None, as soon as it is certain that it is too long."""
    words: list[str] = []
    length = 1  # if all that is not drawn yet were digits

    def draw(depth: int) -> int:
        nonlocal length
        if depth == DEPTH or random.random() > OPERATOR_SHARE:
            digit = int(10 * random.random())
            words.append(str(digit))
            return digit
        operands = FEWEST + int((MOST - FEWEST + 1) * random.random())
        length += operands + 1  # two brackets and the operands, where one digit was
        if length >= SHORTER_THAN:
            raise _TooLong
        operator = OPERATORS[int(len(OPERATORS) * random.random())]
        words.append("( " * (operands + 1) + "[" + operator)
        values = []
        for _ in range(operands):
            values.append(draw(depth + 1))
            words.append(")")
        words.append("] )")
        return _apply(operator, values)

    try:
        value = draw(depth=1)
    except _TooLong:
        return None
    return _Drawn(" ".join(words), value, length)


class _TooLong(Exception):
    pass


def _apply(operator: str, values: list[int]) -> int:
    if operator == "MIN":
        return min(values)
    if operator == "MAX":
        return max(values)
    if operator == "SM":
        return sum(values) % 10
    ordered, middle = sorted(values), len(values) // 2
    return (ordered[middle] + ordered[~middle]) // 2


def evaluate_listops(source: str) -> int:
    """The value of a tree, with the parentheses of the published files or without them.

    MED is the median, rounded down; SM the last digit of the sum.

    >>> from tnn.data.lra.listops import evaluate_listops
    >>> evaluate_listops("( ( ( [MAX 2 ) ( ( ( [SM 4 ) 9 ) ] ) ) ] )")
    3
    >>> evaluate_listops("[MED 1 [MIN 4 7 ] ]")
    2
    """
    lists: list[list[int]] = [[]]  # those that are open; the first is for the value of the whole
    operators: list[str] = []
    for number, token in enumerate(source.replace("(", " ").replace(")", " ").split(), start=1):
        if token in _VALUES:
            operators.append(token)
            lists.append([])
        elif token in _DIGITS:
            lists[-1].append(int(token))
        elif token == "]" and operators and lists[-1]:
            operands = lists.pop()
            lists[-1].append(_VALUES[operators.pop()](operands))
        else:
            allowed = f"{', '.join(_VALUES)}, a digit, or ] after a digit of an open list"
            raise ValueError(f"token {number} of a ListOps text must be {allowed}; got {token[:20]!r}")
    if operators or len(lists[0]) != 1:
        wrong = f"lists that are not closed: {len(operators)}" if operators else f"it has {len(lists[0])} values"
        raise ValueError(f"a ListOps text must be one whole tree; {wrong}; got {source[:40]!r}")
    return lists[0][0]


_DIGITS = frozenset("0123456789")
_VALUES: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: int(statistics.median(values)),
    "[SM": lambda values: sum(values) % 10,
}
