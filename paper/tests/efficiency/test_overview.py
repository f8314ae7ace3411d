import pytest

from paper import published
from paper.efficiency.overview import OVERVIEW_EXPERIMENT, ROWS
from paper.efficiency.speed import SPEED_EXPERIMENT
from paper.harness.trial import Options
from paper.lra.lra import LRA_EXPERIMENT
from paper.lra.setups import MINI

SOME = Options(methods=("tnn", "s4", "linformer"))


@pytest.fixture
def add_accuracy(records, record):
    """As many tasks as there are accuracies."""

    def make(row, *accuracies):
        finals = [trial for trial in LRA_EXPERIMENT.plan(Options(methods=(row,))) if trial.part in MINI]
        for trial, accuracy in zip(finals, accuracies, strict=False):
            records.add(record(trial, accuracy=accuracy))

    return make


@pytest.fixture
def add_speed(records, record):
    def make(row, seconds, megabytes, length=4096):
        (trial,) = SPEED_EXPERIMENT.plan(Options(methods=(row,)))
        records.add(record(trial, lengths=[length], seconds=[seconds], megabytes=[megabytes], ended="time"))

    return make


@pytest.fixture
def conclude(records, add_accuracy, add_speed):
    """Of all methods, with the accuracy, seconds and megabytes of TNN and those of all others."""

    def go(tnn, others, **changes):
        for row in ROWS:
            accuracy, seconds, megabytes = changes.get(row, tnn if row == "tnn" else others)
            add_accuracy(row, *[accuracy] * 4)
            add_speed(row, seconds, megabytes)
        return OVERVIEW_EXPERIMENT.conclude(Options(), records)

    return go


def verdicts(outcome):
    return [claim.verdict for claim in outcome.claims]


@pytest.mark.slow
def test_rows_and_plan():
    assert set(ROWS) == set(published.LRA)
    trials = OVERVIEW_EXPERIMENT.plan(Options(methods=("tnn",), steps=20))
    assert {trial.experiment for trial in trials} == {"lra", "speed"}
    (speed,) = [trial for trial in trials if trial.experiment == "speed"]
    assert speed == SPEED_EXPERIMENT.plan(Options(methods=("tnn",)))[0]  # updates are not for it
    assert [trial for trial in trials if trial.experiment == "lra"] == LRA_EXPERIMENT.plan(
        Options(methods=("tnn",), steps=20)
    )


def test_nothing_measured(records):
    outcome = OVERVIEW_EXPERIMENT.conclude(SOME, records)
    assert set(verdicts(outcome)) == {"not measured"}
    assert outcome.figure is None
    assert outcome.tables[0].rows[1] == ("tnn", "74.97", "8.07", "", "", "")


def test_a_part_of_the_methods_is_shown_and_not_judged(records, add_accuracy, add_speed):
    add_accuracy("tnn", 80.0, 60.0, 70.0, 70.0)
    add_accuracy("s4", 79.0, 58.0, 70.0, 67.0)
    add_accuracy("linformer", 90.0, 90.0, 90.0)  # one is missing
    add_speed("tnn", 0.25, 300.0)
    add_speed("s4", 0.5, 400.0)
    add_speed("linformer", 0.125, 200.0)
    outcome = OVERVIEW_EXPERIMENT.conclude(SOME, records)
    lines = {line[0]: line[1:] for line in outcome.tables[0].rows}
    assert lines["tnn"] == ("74.97", "8.07", "70.00", "4.00", "300")
    assert lines["s4"] == ("70.87", "6.66", "68.50", "2.00", "400")
    assert lines["linformer"] == ("54.69", "8.77", "", "8.00", "200")
    assert set(verdicts(outcome)) == {"not measured"}
    assert outcome.claims[0].evidence == "needs all 14 methods; 2 have been measured in both experiments"
    assert len(outcome.figure().axes) == 2


def test_a_rate_that_failed_is_no_task(records, record, add_accuracy):
    searches = [trial for trial in LRA_EXPERIMENT.plan(Options(methods=("tnn",))) if trial.part not in MINI]
    for trial in searches:
        records.add(record(trial, failed="the loss is nan"))
    add_accuracy("tnn", 80.0, 60.0, 70.0, 70.0)
    outcome = OVERVIEW_EXPERIMENT.conclude(Options(methods=("tnn",)), records)
    assert outcome.tables[0].rows[1][3] == "70.00"
    assert "over text, listops, pathfinder, image," in outcome.notes[0]


@pytest.mark.slow
def test_tnn_is_ahead(conclude):
    outcome = conclude((70.0, 0.25, 300.0), (68.5, 0.5, 400.0))
    assert verdicts(outcome) == ["holds"] * 3
    assert outcome.claims[0].evidence.endswith("68.50; both more accurate and faster: none")


def test_tnn_is_behind(conclude):
    outcome = conclude((50.0, 0.5, 400.0), (49.0, 0.25, 300.0), s4=(51.0, 0.25, 300.0))
    assert verdicts(outcome) == ["does not hold"] * 3
    assert outcome.claims[0].evidence == "TNN 50.00, s4 51.00; both more accurate and faster: s4"


def test_a_small_lead_holds_in_part(conclude):
    assert verdicts(conclude((50.5, 0.5, 400.0), (50.0, 0.5, 400.0)))[0] == "holds in part"


def test_a_method_that_does_not_get_to_the_length_is_the_slowest(records, conclude, add_speed):
    conclude((50.0, 0.5, 400.0), (40.0, 0.6, 500.0))
    add_speed("s4", 0.1, 10.0, length=1024)  # the last record counts
    outcome = OVERVIEW_EXPERIMENT.conclude(Options(), records)
    assert verdicts(outcome) == ["holds"] * 3
    assert "number 1 of 14 with 2 steps per second" in outcome.claims[1].evidence
