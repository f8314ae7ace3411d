import json
from dataclasses import replace

import pytest

from paper import published
from paper.efficiency import speed
from paper.efficiency.growth import collect_growth
from paper.efficiency.speed import LENGTHS, SPEED_EXPERIMENT
from paper.harness.trial import Options
from paper.running import run_trial
from tnn.mixers import list_mixers


@pytest.fixture
def add(records, record):
    """Records a method as if it had been measured, with so many steps a second at each length; None: out of memory."""

    def make(method, rates, scale="mini"):
        (trial,) = SPEED_EXPERIMENT.plan(Options(scale, methods=(method,)))
        rates = [rate for rate in rates if rate is not None]
        seconds, megabytes = [1 / rate for rate in rates], [100.0 * n for n, _ in enumerate(rates, start=1)]
        ended = None if len(rates) == len(LENGTHS) else "memory"
        found = {"lengths": list(LENGTHS[: len(rates)]), "seconds": seconds, "megabytes": megabytes, "ended": ended}
        made = record(trial, **found, parameters=750_000)
        records.add(replace(made, machine={"device": "cpu", "threads": 2}))

    return make


def verdicts(outcome):
    return [claim.verdict for claim in outcome.claims]


def test_the_plan_has_every_method():
    trials = SPEED_EXPERIMENT.plan(Options())
    assert (
        {trial.row for trial in trials}
        == {name for name in list_mixers() if ":" not in name} - {"gtu", "attention"}
        == set(SPEED_EXPERIMENT.rows)
    )
    assert {trial.settings["batch"] for trial in trials} == {1}
    assert {trial.settings["batch"] for trial in SPEED_EXPERIMENT.plan(Options("paper"))} == {20}
    assert len(SPEED_EXPERIMENT.plan(Options(methods=("tnn",), seeds=3))) == 3
    json.dumps([trial.settings for trial in trials])


def test_nothing_measured(records):
    outcome = SPEED_EXPERIMENT.conclude(Options(), records)
    assert set(verdicts(outcome)) == {"not measured"}
    assert outcome.figure is None


def test_the_papers_own_numbers_agree_with_it(add, records):
    for method, rates in published.SPEED.items():
        add(method, [rate and rate / 10 for rate in rates])
    outcome = SPEED_EXPERIMENT.conclude(Options(), records)
    assert verdicts(outcome) == ["holds"] * 5
    speeds, growths, memory = ({line[0]: line[1:] for line in table.rows} for table in outcome.tables)
    assert speeds["transformer"] == (*("15.34", "3.05", "-", "-", "-"), *("1.53", "0.30", *["(memory)"] * 3))
    assert growths["tnn"] == ("3.67", "3.67", "0.83", "0.83", "5", "5", "750,000")
    assert growths["transformer"][-3:-1] == ("11", "11")
    assert memory["fnet"] == ("100", "200", "300", "400", "500")
    assert len(outcome.figure().axes) == 2
    assert "Measured on cpu with 2 threads;" in outcome.notes[1]


def test_other_numbers_do_not(add, records):
    lengths = [n / LENGTHS[0] for n in LENGTHS]
    for number, method in enumerate(reversed(published.SPEED)):  # the slowest first
        power = 2 if method == "tnn" else 1
        add(method, [(number + 1) / n**power for n in lengths])
    log_linear, quadratic, faster, fifth, order = SPEED_EXPERIMENT.conclude(Options(), records).claims
    assert log_linear.verdict == quadratic.verdict == faster.verdict == fifth.verdict == "does not hold"
    assert "exponent 2.00" in log_linear.evidence
    assert fifth.evidence == "number 11 of 11 measured"
    assert "of 55 pairs" in order.evidence


def test_a_part_of_the_methods(add, records):
    add("tnn", [10, 6, 4, 3, 2])
    add("transformer", [20, 5, 2, 1, None])
    add("elu", [20, 10, 7, 5, 4])  # not in the paper's table
    outcome = SPEED_EXPERIMENT.conclude(Options(), records)
    assert [line[0] for line in outcome.tables[0].rows[1:]] == ["transformer", "tnn", "elu"]
    assert verdicts(outcome) == ["holds", "holds", "holds in part", "not measured", "not measured"]
    assert outcome.claims[2].evidence.startswith("0.5 times as fast at 1,024, 1.2 times")
    assert outcome.claims[2].evidence.endswith("tnn alone at 5,120")


@pytest.mark.slow
def test_a_trial(context, monkeypatch):
    monkeypatch.setattr(speed, "LENGTHS", (40, 80))
    (trial,) = SPEED_EXPERIMENT.plan(Options(methods=("fnet",), steps=1))
    record = run_trial(trial, context)
    assert record.metrics["lengths"] == (40, 80)
    assert record.metrics["ended"] is None
    assert record.metrics["parameters"] == 745_920
    assert isinstance(record.metrics["exponent"], float)
    context.records.add(record)
    assert collect_growth([trial], context.records)["fnet"].exponent == record.metrics["exponent"]
