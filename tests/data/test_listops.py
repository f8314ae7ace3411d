"""ListOps: values three ways, the rules of the draw, files that do not depend on workers or interruptions."""

import hashlib
import subprocess
import sys
import time
from itertools import islice
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnn.data.lra import listops
from tnn.data.lra.listops import evaluate_listops, generate_listops

NAMES = ("basic_train.tsv", "basic_val.tsv", "basic_test.tsv")
SIZES = {"train": 30, "validation": 7, "test": 5}
SCRIPT = """
import sys, time
from contextlib import contextmanager
from pathlib import Path
from tnn.data.lra import listops

@contextmanager
def write_slowly(path, atomic_path=listops.atomic_path):
    with atomic_path(path) as temporary:
        yield temporary
        time.sleep(0.3)

listops.atomic_path = write_slowly  # in the workers too: they import this script
listops.PART = 5
if __name__ == "__main__":
    listops.generate_listops(Path(sys.argv[1]), seed=3, train=30, validation=7, test=5, workers=2)
"""

# --- a third way to compute the value: nested pairs, by the parentheses


def parse(tokens):
    token = next(tokens)
    if token != "(":
        return token
    pair = parse(tokens), parse(tokens)
    assert next(tokens) == ")"
    return pair


def operator_and_operands(tree):
    """( ( ( [OP a ) b ) ] )"""
    inner, end = tree
    assert end == "]"
    operands = []
    while isinstance(inner, tuple):
        inner, operand = inner
        operands.append(operand)
    return inner, operands[::-1]


def naive_value(tree):
    if isinstance(tree, str):
        return int(tree)
    operator, operands = operator_and_operands(tree)
    values = [naive_value(operand) for operand in operands]
    compute = {"[MIN": np.min, "[MAX": np.max, "[MED": np.median, "[SM": lambda x: np.sum(x) % 10}
    return int(compute[operator](values))


def parse_text(source):
    tokens = iter(source.split())
    tree = parse(tokens)
    assert next(tokens, None) is None
    return tree


def nodes(tree, depth=1):
    """Depth, operator or None, number of operands, of each node."""
    if isinstance(tree, str):
        yield depth, None, 0
    else:
        operator, operands = operator_and_operands(tree)
        yield depth, operator, len(operands)
        for operand in operands:
            yield from nodes(operand, depth + 1)


def counted_length(source):
    return len(source.replace("(", "").replace(")", "").split())


def read(path):
    header, *lines = path.read_bytes().decode("ascii").split("\n")
    assert header == "Source\tTarget"
    assert lines.pop() == ""  # the file ends with a line end
    return [(source, int(target)) for source, target in (line.split("\t") for line in lines)]


def contents(folder):
    return [(folder / name).read_bytes() for name in NAMES]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("listops")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listops, "PART", 5)
        statistics = generate_listops(folder, seed=3, workers=1, **SIZES)
    return folder, statistics


@pytest.fixture(scope="module")
def sample():
    """1,500 kept trees and how many were drawn for them."""
    trees = list(islice(listops._kept_trees(Random(0)), 1500))
    return [tree.row.decode().split("\t") for tree in trees], trees


# --- values


def as_text(tree):
    if isinstance(tree, int):
        return str(tree)
    operator, children = tree
    text = f"[{operator}"
    for child in children:
        text = f"( {text} {as_text(child)} )"
    return f"( {text} ] )"


TREES = st.recursive(
    st.integers(0, 9),
    lambda trees: st.tuples(st.sampled_from(["MIN", "MAX", "MED", "SM"]), st.lists(trees, min_size=1, max_size=5)),
    max_leaves=25,
)


@given(tree=TREES)
def test_values_with_and_without_parentheses(tree):
    text = as_text(tree)
    expected = naive_value(parse_text(text))
    assert evaluate_listops(text) == expected
    assert evaluate_listops(text.replace("(", "").replace(")", "")) == expected


@given(
    operator=st.sampled_from(["MIN", "MAX", "MED", "SM"]), values=st.lists(st.integers(0, 9), min_size=2, max_size=10)
)
def test_operators_of_the_generator(operator, values):
    assert listops._apply(operator, values) == naive_value(parse_text(as_text((operator, values))))


@pytest.mark.parametrize(
    ("source", "value"),
    [("7", 7), ("[MED 1 2 ]", 1), ("[MED 9 0 3 ]", 3), ("[SM 9 9 9 ]", 7), ("[MIN 4 2 [MAX 1 0 ] ]", 1)],
)
def test_known_values(source, value):
    assert evaluate_listops(source) == value


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "one complete tree; it has 0 values; got ''"),
        ("1 2", "one complete tree; it has 2 values"),
        ("[MAX 1 [MIN 2 3 ]", "one complete tree; lists not closed: 1"),
        ("1 ]", r"token 2 of a ListOps text must be .*; got '\]'"),
        ("[MAX ]", r"token 2 .*; got '\]'"),
        ("[SUM 1 2 ]", r"token 1 .* \[MIN, \[MAX, \[MED, \[SM.*; got '\[SUM'"),
        ("[SM 1 12 ]", "token 3 .*; got '12'"),
        ("[SM 1 ² ]", "token 3 .*; got '²'"),
    ],
)
def test_texts_that_are_not_trees(source, message):
    with pytest.raises(ValueError, match=message):
        evaluate_listops(source)


# --- the draw


@pytest.mark.slow
def test_every_target_of_a_sample(sample):
    rows, trees = sample
    for (source, target), tree in zip(rows[:400], trees, strict=False):
        assert int(target) == naive_value(parse_text(source)) == evaluate_listops(source)
        assert tree.length == counted_length(source)
        assert 500 < tree.length < 2000


@pytest.mark.slow
def test_shape_of_the_trees(sample):
    rows, _ = sample
    all_nodes = [node for source, _ in rows[:300] for node in nodes(parse_text(source))]
    assert max(depth for depth, _, _ in all_nodes) == 10
    assert all(operator is None for depth, operator, _ in all_nodes if depth == 10)
    operators = [(operator, operands) for _, operator, operands in all_nodes if operator]
    _, counts = np.unique([operator for operator, _ in operators], return_counts=True)
    assert counts.size == 4
    assert counts / len(operators) == pytest.approx([1 / 4] * 4, abs=0.01)  # some 45,000 operators
    assert {operands for _, operands in operators} == set(range(2, 11))
    digits = np.bincount([int(word) for source, _ in rows[:300] for word in source.split() if word.isdigit()])
    assert digits / digits.sum() == pytest.approx([0.1] * 10, abs=0.005)


@pytest.mark.slow
def test_small_trees_are_drawn_as_often_as_they_should_be():
    """Trees before the selection by length: single digits, and operators whose operands are all digits."""
    random, total = Random(1), 20_000
    drawn = [listops._draw_tree(random) for _ in range(total)]
    lengths = np.bincount([tree.length for tree in drawn if tree])
    assert lengths[1] / total == pytest.approx(0.75, abs=0.01)
    for operands in (2, 3, 4):  # below 6 operands no smaller operator fits into that length
        expected = 0.25 / 9 * 0.75**operands
        assert lengths[operands + 2] / total == pytest.approx(expected, abs=5 * (expected / total) ** 0.5)


def test_the_share_that_is_kept_and_the_lengths(sample):
    _, trees = sample
    lengths = [tree.length for tree in trees]
    assert len(trees) / sum(tree.draws for tree in trees) == pytest.approx(0.083, abs=0.008)  # 4 standard errors
    assert np.mean(lengths) == pytest.approx(1037, abs=40)
    assert np.median(lengths) == pytest.approx(956, abs=60)


def test_early_stops_do_not_change_what_is_kept(monkeypatch):
    """The length that counts up while a tree is drawn never exceeds its final one."""
    monkeypatch.setattr(listops, "SHORTER_THAN", 10**9)
    monkeypatch.setattr(listops, "DEPTH", 6)  # otherwise some trees are very large
    random = Random(2)
    whole = [listops._draw_tree(random) for _ in range(500)]
    assert all(tree.length == counted_length(tree.text) for tree in whole)
    assert max(tree.length for tree in whole) > 100


# --- files


def test_files(made):
    folder, statistics = made
    splits = [read(folder / name) for name in NAMES]
    assert [len(rows) for rows in splits] == [30, 7, 5]
    rows = [row for split in splits for row in split]
    assert len({source for source, _ in rows}) == 42
    for source, target in rows:
        assert target == naive_value(parse_text(source)) == evaluate_listops(source)
    lengths = [counted_length(source) for source, _ in rows]
    assert statistics[1:] == (42, np.mean(lengths), np.median(lengths))
    assert statistics.drawn > 42
    assert {path.name for path in folder.iterdir()} == {*NAMES, "generated.json", "statistics.json", ".lock"}


def test_the_seed_decides(made, tmp_path):
    generate_listops(tmp_path / "other", seed=4, workers=1, **SIZES)
    assert not {*read(tmp_path / "other" / NAMES[0])} & {*read(made[0] / NAMES[0])}


def test_the_same_on_every_machine(tmp_path):
    statistics = generate_listops(tmp_path, train=3, validation=0, test=0, workers=1)
    assert [type(number) for number in statistics] == [int, int, float, float]
    digest = hashlib.sha256((tmp_path / NAMES[0]).read_bytes()).hexdigest()
    assert digest.startswith("df83e5285038054cc9ccad2607e9b440")
    assert contents(tmp_path)[1:] == [b"Source\tTarget\n"] * 2


@pytest.mark.parametrize("workers", [2, 3])
def test_the_number_of_workers_does_not_matter(made, tmp_path, monkeypatch, workers):
    monkeypatch.setattr(listops, "PART", 5)
    assert generate_listops(tmp_path, seed=3, workers=workers, **SIZES) == made[1]
    assert contents(tmp_path) == contents(made[0])


def test_equal_trees_are_kept_once(tmp_path, monkeypatch):
    """Many short trees are equal, so more are drawn than planned."""
    monkeypatch.setattr(listops, "LONGER_THAN", 0)
    monkeypatch.setattr(listops, "SHORTER_THAN", 5)
    monkeypatch.setattr(listops, "PART", 20)
    statistics = generate_listops(tmp_path, seed=1, train=30, validation=5, test=5, workers=1)
    rows = [row for name in NAMES for row in read(tmp_path / name)]

    expected, drawn = [], 0
    for part in range(100):
        random, kept = Random(f"listops 1 {part}"), 0
        while kept < 20 and len(expected) < 40:
            tree = listops._draw_tree(random)
            drawn += 1
            kept += tree is not None
            if tree and (tree.text, tree.value) not in expected:
                expected.append((tree.text, tree.value))
    assert rows == expected
    assert statistics[:2] == (drawn, 40)
    assert drawn > 80


# --- interruptions


def test_finished_parts_are_not_made_again(made, tmp_path, monkeypatch):
    monkeypatch.setattr(listops, "PART", 5)
    make, asked = listops._make_part, []

    def interrupted(*arguments):
        asked.append(arguments[-1])
        if len(asked) == 4:
            raise KeyboardInterrupt
        make(*arguments)

    monkeypatch.setattr(listops, "_make_part", interrupted)
    with pytest.raises(KeyboardInterrupt):
        generate_listops(tmp_path, seed=3, workers=1, **SIZES)
    assert {path.name for path in tmp_path.iterdir()} == {".lock", ".parts", "generated.json"}
    assert generate_listops(tmp_path, seed=3, workers=1, **SIZES) == made[1]
    assert asked == [0, 1, 2, 3, 3, 4, 5, 6, 7, 8]
    assert contents(tmp_path) == contents(made[0])

    before = [(tmp_path / name).stat().st_mtime_ns for name in NAMES]
    assert generate_listops(tmp_path, seed=3, workers=1, **SIZES) == made[1]  # everything exists already
    assert [(tmp_path / name).stat().st_mtime_ns for name in NAMES] == before
    assert len(asked) == 10


def test_half_a_file_is_never_seen(made, tmp_path, monkeypatch):
    monkeypatch.setattr(listops, "PART", 5)
    trees = listops._distinct_trees

    def interrupted(*arguments):
        yield from islice(trees(*arguments), 33)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(listops, "_distinct_trees", interrupted)
        with pytest.raises(KeyboardInterrupt):
            generate_listops(tmp_path, seed=3, workers=1, **SIZES)
    assert not list(tmp_path.glob("*.tsv"))
    assert generate_listops(tmp_path, seed=3, workers=1, **SIZES) == made[1]
    assert contents(tmp_path) == contents(made[0])


def test_an_interruption_at_the_very_end(made, tmp_path, monkeypatch):
    monkeypatch.setattr(listops, "PART", 5)
    with monkeypatch.context() as patch:
        patch.setattr(listops.statistics, "median", lambda _: 1 / 0)  # after the files, before the statistics
        with pytest.raises(ZeroDivisionError):
            generate_listops(tmp_path, seed=3, workers=1, **SIZES)
    assert contents(tmp_path) == contents(made[0])
    (tmp_path / NAMES[1]).unlink()
    assert generate_listops(tmp_path, seed=3, workers=1, **SIZES) == made[1]
    assert contents(tmp_path) == contents(made[0])
    assert not (tmp_path / ".parts").exists()


@pytest.mark.slow
def test_killed_and_resumed(made, tmp_path, monkeypatch):
    out, script = tmp_path / "out", tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen([sys.executable, str(script), str(out)], stdout=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not finished_parts(out):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.communicate(timeout=30)  # until the workers have ended too
    assert {path.name for path in out.iterdir()} == {".lock", ".parts", "generated.json"}
    parts = finished_parts(out)
    assert len(parts) < 9

    monkeypatch.setattr(listops, "PART", 5)
    make, asked = listops._make_part, []
    monkeypatch.setattr(listops, "_make_part", lambda *arguments: asked.append(arguments[-1]) or make(*arguments))
    with pytest.raises(ValueError, match="was made with train = 30, not 31"):
        generate_listops(out, seed=3, workers=1, **SIZES | {"train": 31})
    assert generate_listops(out, seed=3, workers=1, **SIZES) == made[1]
    assert {*asked} == {*range(9)} - parts
    assert contents(out) == contents(made[0])


def finished_parts(out):
    return {int(path.name) for path in (out / ".parts").glob("[0-9]*")}


# --- arguments


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"train": -1}, ValueError, "train must be at least 0; got -1"),
        ({"train": 2**31}, ValueError, "train must be at most 2147483647; got 2147483648"),
        ({"seed": 2**63}, ValueError, "seed must be at most 9223372036854775807; got 9223372036854775808"),
        ({"validation": 1.5}, TypeError, "validation must be an integer; got 1.5"),
        ({"test": True}, TypeError, "test must be an integer; got True"),
        ({"seed": -1}, ValueError, "seed must be at least 0; got -1"),
        ({"train": 0, "validation": 0, "test": 0}, ValueError, "all 0; at least one"),
        ({"workers": 0}, ValueError, "workers must be at least 1; got 0"),
    ],
)
def test_bad_arguments(tmp_path, arguments, error, message):
    with pytest.raises(error, match=message):
        generate_listops(tmp_path / "out", **{"workers": 1} | arguments)
    assert not list(tmp_path.rglob("*.tsv"))


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "basic_train.tsv").write_text("mine")
    with pytest.raises(ValueError, match="is not empty and has no"):
        generate_listops(tmp_path, train=1, workers=1)
    assert (tmp_path / "basic_train.tsv").read_text() == "mine"
