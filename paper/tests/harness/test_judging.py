from math import inf

import pytest

from paper.harness.judging import at_the_edge, fully_run, order_agreement, same_order, verdict_of
from paper.harness.trial import Options, Trial


def trials(row, seeds):
    return [Trial("made", row, {}, lambda context: {}, seed=seed) for seed in range(seeds)]


def test_rows_without_all_their_seeds_are_left_out():
    planned = [*trials("tnn", 3), *trials("s4", 1), *trials("gss", 3)]
    values = {"tnn": [3.7, 3.6, 3.8], "s4": [3.9], "gss": [3.6, inf]}
    assert fully_run(values, planned) == {"tnn": [3.7, 3.6, 3.8], "s4": [3.9]}


@pytest.mark.parametrize(
    ("ours", "same"),
    [
        ({"a": 1.0, "b": 2.0, "c": 3.0}, [True, True, True]),
        ({"a": 2.0, "b": 1.0, "c": 3.0}, [False, True, True]),
        ({"a": 1.0, "b": 1.0, "c": 3.0}, [True, True]),  # equal rows have no order
        ({"a": 1.0, "b": inf, "c": inf}, [True, True]),  # nor have two that diverged
        ({"a": 1.0, "d": 2.0}, []),
    ],
)
def test_order(ours, same):
    theirs = {"a": 10.0, "b": 20.0, "c": 30.0}
    assert same_order(theirs, ours) == same
    assert order_agreement(theirs, ours).startswith(f"{sum(same)} of {len(same)} pairs" if same else "there are no two")


def test_the_edge_of_a_search():
    rates = {"tnn": [0.003, 0.003], "s4": [0.003, 0.01], "elu": [0.001], "gss": []}
    assert at_the_edge(rates, (0.001, 0.003, 0.01)) == ["elu", "s4"]


def test_what_is_missing_is_no_verdict_unless_it_cannot_change_it():
    assert verdict_of([]) == verdict_of([None]) == verdict_of([False, None]) == "not measured"
    assert verdict_of([True, False, None]) == "holds in part"


@pytest.mark.parametrize("changes", [{"seeds": 0}, {"steps": -1}])
def test_options_are_checked(changes):
    (name,) = changes
    with pytest.raises(ValueError, match=f"{name} must be at least 1"):
        Options(**changes)
