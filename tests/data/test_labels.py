"""Labels in a column of a table: their names, their numbers, and what is refused."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnn.data.labels import check_trainable, read_labels

names = st.text("ab1. ", min_size=1).map(str.strip).filter(bool)


@pytest.mark.slow
@given(values=st.lists(names, min_size=1))
def test_classes_are_sorted_whatever_their_order(values):
    labels = read_labels(values, "a.csv")
    assert set(labels.names) == set(values)
    assert [labels.names[labels[row]] for row in range(len(labels))] == values
    assert read_labels(values[::-1], "a.csv").names == labels.names


@pytest.mark.slow
@given(values=st.lists(st.lists(names), min_size=1))
def test_several_classes(values):
    labels = read_labels(values, "a.jsonl", "several")
    for row, own in enumerate(values):
        assert {labels.names[k] for k in np.flatnonzero(labels[row])} == set(own)
    assert np.array_equal(labels.targets(), [labels[row] for row in range(len(values))])
    rows = np.arange(0, len(values), 2)
    assert np.array_equal(labels.select(rows).targets(), labels.targets()[rows])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["10", "9", "1"], ("1", "9", "10")),
        ([2, 1.0, "1"], ("1", "2")),
        ([True, False], ("false", "true")),
        ([" a ", "a"], ("a",)),
        (["nan", "1", "x"], ("1", "nan", "x")),
        ([0.5, "-1e3"], ("-1e3", "0.5")),
    ],
)
def test_names(values, expected):
    assert read_labels(values, "a.jsonl").names == expected


def test_known_names_keep_their_numbers():
    labels = read_labels(["b", "a"], "a.csv", names=("b", "c", "a"))
    assert (labels.names, labels.values.tolist()) == (("b", "c", "a"), [0, 2])


def test_numbers():
    labels = read_labels(["1.5", 2, " -3 "], "a.csv", "regression")
    assert (labels.names, labels.targets().tolist()) == ((), [1.5, 2, -3])
    assert labels[0].dtype == np.float32


def test_a_separator():
    labels = read_labels(["a; b", "", "b;;b"], "a.csv", "several", separator=";")
    assert labels.targets().tolist() == [[1, 1], [0, 0], [0, 1]]


def test_strata_of_several_classes_are_the_rarest():
    labels = read_labels([["a", "b"], ["a"], [], ["a", "c"], ["c"]], "a.jsonl", "several")
    first, second, none, fourth, last = labels.strata()
    assert fourth == last
    assert len({first, second, none, last}) == 4


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        ("single", ["a", ""], "a.csv, row 2: the label is missing"),
        ("single", ["a", None], "a.csv, row 2: the label is missing"),
        ("single", ["a", math.nan], "a.csv, row 2: the label is missing"),
        (
            "single",
            [["a"]],
            r"a.csv, row 1: there must be one label; got \['a'\] \(for lists, give data.kind=several\)",
        ),
        (
            "several",
            ["a, b"],
            "a.csv, row 1: there must be a list of labels, or a string and data.separator; got 'a, b'",
        ),
        ("several", [None], "a.csv, row 1: the labels are missing"),
        ("several", [["a", ""]], "a.csv, row 1: the label is missing"),
        ("regression", [1, "much"], "a.csv, row 2: the label must be a number, for data.kind=regression; got 'much'"),
        ("regression", ["inf"], "row 1: the label must be a number"),
        ("regression", [1e39], "row 1: the label must be a number"),
        ("regression", [""], "row 1: the label is missing"),
    ],
)
def test_wrong_labels(kind, values, message):
    with pytest.raises(ValueError, match=f"^{message}" if message.startswith("a.csv") else message):
        read_labels(values, "a.csv", kind)


def test_an_unknown_label():
    with pytest.raises(
        ValueError, match=r"^b.csv, row 1: the label 'goood' is not in the training table; did you mean"
    ):
        read_labels(["goood"], "b.csv", names=("bad", "good"))


def test_too_many_labels(monkeypatch):
    monkeypatch.setattr("tnn.data.labels.MOST_CLASSES", 3)
    with pytest.raises(
        ValueError, match=r"a.csv, row 4: there are more than 3 different labels: is this the right col"
    ):
        read_labels("abcd", "a.csv")


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        ("single", ["a", "a"], "a.csv has one label only, 'a': there must be at least two"),
        ("regression", [2, 2], "a.csv has one label only, 2: there must be at least two"),
        ("several", [[], []], "a.csv has no labels: the list of each row is empty"),
        ("single", [*range(30)], "a.csv has 30 different labels in 30 rows: is this the right column"),
    ],
)
def test_labels_that_teach_nothing(kind, values, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        check_trainable(read_labels(values, "a.csv", kind), "a.csv")
    check_trainable(read_labels([["a"], ["b"]], "a.csv", "several"), "a.csv")
