import pytest

from tnn.experiments.reproduction import published
from tnn.experiments.reproduction.arena.lra import LRA
from tnn.experiments.reproduction.efficiency.overview import OVERVIEW, ROWS
from tnn.experiments.reproduction.efficiency.speed import SPEED
from tnn.experiments.reproduction.harness.trial import Options

OPTIONS = Options(methods=("tnn", "s4", "linformer"))


@pytest.fixture
def add_accuracy(records, record):
    def make(row, *accuracies):
        finals = [trial for trial in LRA.plan(Options(methods=(row,))) if trial.part in published.LRA_TASKS]
        for trial, accuracy in zip(finals, accuracies, strict=False):
            records.add(record(trial, accuracy=accuracy))

    return make


@pytest.fixture
def add_speed(records, record):
    def make(row, seconds, megabytes, length=4096):
        (trial,) = SPEED.plan(Options(methods=(row,)))
        records.add(record(trial, lengths=[length], seconds=[seconds], megabytes=[megabytes], ended="time"))

    return make


def test_rows_and_plan():
    assert set(ROWS) == set(published.LRA)
    trials = OVERVIEW.plan(Options(methods=("tnn",), steps=20))
    assert {trial.experiment for trial in trials} == {"lra", "speed"}
    (speed,) = [trial for trial in trials if trial.experiment == "speed"]
    assert speed == SPEED.plan(Options(methods=("tnn",)))[0]  # updates are not for it
    assert [trial for trial in trials if trial.experiment == "lra"] == LRA.plan(Options(methods=("tnn",), steps=20))


def test_nothing_measured(records):
    outcome = OVERVIEW.conclude(OPTIONS, records)
    assert {claim.verdict for claim in outcome.claims} == {"not measured"}
    assert outcome.figure is None
    assert outcome.tables[0].rows[1] == ("tnn", "74.97", "8.07", "", "", "")


def test_tnn_is_ahead(records, add_accuracy, add_speed):
    add_accuracy("tnn", 80.0, 60.0)
    add_accuracy("s4", 79.0, 58.0, 99.0)  # a task that TNN has not
    add_accuracy("linformer", 90.0)  # one is missing
    add_speed("tnn", 0.25, 300.0)
    add_speed("s4", 0.5, 400.0)
    add_speed("linformer", 0.125, 200.0)
    outcome = OVERVIEW.conclude(OPTIONS, records)
    lines = {line[0]: line[1:] for line in outcome.tables[0].rows}
    assert lines["tnn"] == ("74.97", "8.07", "70.00", "4.00", "300")
    assert lines["s4"] == ("70.87", "6.66", "68.50", "2.00", "400")
    assert lines["linformer"] == ("54.69", "8.77", "", "8.00", "200")
    assert [claim.verdict for claim in outcome.claims] == ["holds"] * 3
    assert outcome.claims[0].evidence == "TNN 70.00, s4 68.50; both more accurate and faster: none"
    assert len(outcome.figure.axes) == 2


def test_tnn_is_behind(records, add_accuracy, add_speed):
    add_accuracy("tnn", 50.0)
    add_accuracy("s4", 51.0)
    add_speed("tnn", 0.5, 400.0)
    add_speed("s4", 0.25, 300.0)
    outcome = OVERVIEW.conclude(OPTIONS, records)
    assert [claim.verdict for claim in outcome.claims] == ["does not hold"] * 3
    assert outcome.claims[0].evidence.endswith("faster: s4")


def test_a_small_lead_holds_in_part(records, add_accuracy, add_speed):
    for row, accuracy in (("tnn", 50.5), ("s4", 50.0)):
        add_accuracy(row, accuracy)
        add_speed(row, 0.5, 400.0)
    assert OVERVIEW.conclude(OPTIONS, records).claims[0].verdict == "holds in part"


def test_a_method_that_did_not_get_to_the_length_is_left_out(records, add_accuracy, add_speed):
    for row in ("tnn", "s4"):
        add_accuracy(row, 50.0)
    add_speed("tnn", 0.5, 400.0)
    add_speed("s4", 0.5, 400.0, length=1024)
    assert OVERVIEW.conclude(OPTIONS, records).claims[0].verdict == "not measured"
