"""GLUE at mini scale: what is planned, a tiny run of it, and what is concluded from scores."""

import json
import re
import shutil
from dataclasses import replace

import pytest

from paper import published
from paper.bidirectional import trials as glue_trials
from paper.bidirectional.glue import GLUE_EXPERIMENT
from paper.bidirectional.kernels import KERNELS_EXPERIMENT
from paper.bidirectional.trials import FIRST_TOKEN, GLUE_METHODS, GLUE_ROWS, pre_trainings, tuning_trial
from paper.harness.trial import Options
from paper.running import reproduce

TASKS = ("sst2", "mrpc", "cola")
MAJORITY = {"sst2": ("accuracy", 0.5092), "mrpc": ("f1", 0.8122), "cola": ("matthews", 0.0)}


@pytest.fixture
def home(wikitext, monkeypatch):
    """The data directory with sentences beside the text; models are small as well."""
    columns = {
        "CoLA": ("", "x\t{1}\t\t{0}\n"),
        "SST-2": ("sentence\tlabel\n", "{0}\t{1}\n"),
        "MRPC": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n", "{1}\t1\t2\t{0}\t{0}\n"),
    }
    for folder, (header, row) in columns.items():
        (wikitext / "glue" / folder).mkdir(parents=True)
        text = header + "".join(row.format(f"sentence number {i}", int(i % 4 > 0)) for i in range(12))
        for split in ("train", "dev"):
            (wikitext / "glue" / folder / f"{split}.tsv").write_text(text)
    mini = glue_trials.SCALES["mini"]
    sizes = ("model.hidden_size=16", "model.num_hidden_layers=2")
    monkeypatch.setitem(glue_trials.SCALES, "mini", replace(mini, changes=(*mini.changes, *sizes)))
    return wikitext


@pytest.fixture
def run(home, context):
    """Runs an experiment with two updates."""

    def go(name, **options):
        said = []
        places = {"data": home, "out": context.records.folder.parent, "models": context.models}
        return reproduce(name, Options(steps=2, **options), **places, log=said.append), said

    return go


def test_the_plan():
    trials = GLUE_EXPERIMENT.plan(Options())
    assert list(dict.fromkeys(trial.row for trial in trials)) == list(GLUE_ROWS) == [*published.GLUE, FIRST_TOKEN]
    rates = [f"pre-training rate {rate}" for rate in ("0.001", "0.002", "0.004")]
    assert [trial.part for trial in trials[:7]] == [*rates, "pre-training", *TASKS]
    assert len({trial.key for trial in trials}) == 16 * 7 + 3  # the last row fine-tunes the model of TNN's
    assert has_no_place(trials)
    for number in range(7):  # all but the model is the same, in the rows of the paper
        first, *others = (without_model(trial.settings) for trial in trials[number : 16 * 7 : 7])
        assert all(other == first for other in others)


def has_no_place(trials):
    return not re.search(r'"/|runs/', json.dumps([trial.settings for trial in trials]))


def without_model(settings):
    if isinstance(settings, dict):
        return {key: without_model(value) for key, value in settings.items() if key != "model"}
    return settings


def test_the_plan_of_the_paper():
    trials = GLUE_EXPERIMENT.plan(Options(scale="paper"))
    assert len({trial.key for trial in trials}) == 16 * 7 + 6
    assert {trial.part for trial in trials} == {"pre-training", "mnli", "qnli", "qqp", *TASKS}
    assert has_no_place(trials)
    decay = {t.row: t.settings["recipe"]["training"]["weight_decay"] for t in trials if t.part == "pre-training"}
    assert decay.pop("tnn") == 0.2
    assert set(decay.values()) == {0.1}
    tuning = next(trial for trial in trials if trial.part == "cola")
    assert tuning.settings["recipe"]["learning_rates"] == [1e-5, 3e-5, 6e-5, 1e-4]
    assert tuning.settings["recipe"]["training"]["epochs"] == 3


def test_fewer_steps_are_fewer_everywhere():
    whole, few = (GLUE_EXPERIMENT.plan(Options(methods=("tnn",), steps=steps)) for steps in (None, 100))
    share = 100 / whole[3].settings["recipe"]["training"]["steps"]
    for old, new in zip(whole, few, strict=True):
        before, after = old.settings["recipe"]["training"], new.settings["recipe"]["training"]
        key = "steps" if "steps" in before else "epochs"
        assert after[key] == pytest.approx(share * before[key], rel=0.1)


def test_seeds():
    trials = GLUE_EXPERIMENT.plan(Options(methods=("s4",), seeds=2))
    wanted = [(part, seed) for part in ("pre-training", *TASKS) for seed in (0, 1)]
    assert [(trial.part, trial.seed) for trial in trials[3:]] == wanted


@pytest.mark.slow
def test_a_run(run, context):
    outcome, _ = run("glue", methods=("tnn",))
    found = list(context.records.read("glue"))
    assert len(found) == 7
    for record in found:
        assert "failed" not in record.metrics
        if record.part in TASKS:
            assert record.metrics["score"] == record.metrics[f"eval_{MAJORITY[record.part][0]}"]
            assert record.metrics["learning_rate"] in record.settings["recipe"]["learning_rates"]
    (row,) = outcome.tables[0].rows[1:]
    assert row[:2] == ("tnn", "90.60")
    assert all(row)
    assert any("mrpc 85.71" in note for note in outcome.notes)  # nine of twelve labels are 1
    assert {claim.verdict for claim in outcome.claims} == {"not measured"}  # of one method
    (kept,) = (context.models / "mini" / "glue").iterdir()
    assert kept.name.startswith("tnn-pre-training-seed-0-")
    assert (context.records.folder / "glue.png").is_file()

    assert run("kernels")[1][0] == "kernels at mini scale: 5 trials, 4 of them measured"
    (first,) = context.records.read("kernels")
    shutil.rmtree(context.models)  # then it is trained again
    (context.records.folder / "kernels.jsonl").unlink()
    assert run("kernels")[1][0] == "kernels at mini scale: 5 trials, 4 of them measured"
    (second,) = context.records.read("kernels")
    assert second.metrics == first.metrics


def test_a_pre_training_that_failed_counts_0(context, record):
    _, (of,) = pre_trainings("tnn", Options())
    context.records.add(record(of, failed="the loss is nan at step 3"))
    for task in TASKS:
        found = tuning_trial("tnn", of, task, Options()).work(context)
        assert found == {"score": 0.0, "failed": "the training failed: the loss is nan at step 3"}
    assert "failed" in KERNELS_EXPERIMENT.plan(Options())[-1].work(context)


@pytest.fixture
def conclude(records, record):
    """From the scores of rows: (sst2, mrpc, cola) in per cent."""

    def go(scores, methods=None):
        options = Options(methods=methods)
        for row, numbers in scores.items():
            _, (of,) = pre_trainings(row, options)
            rate = 4e-3 if row == "s4" else 2e-3
            records.add(record(of, validation_perplexity=90.0, parameters=1.8e6, learning_rate=rate))
            for task, number in zip(TASKS, numbers, strict=True):
                metric, majority = MAJORITY[task]
                metrics = {"score": number / 100, "learning_rate": 1e-4, f"majority_eval_{metric}": majority}
                records.add(record(tuning_trial(row, of, task, options), **metrics))
        return GLUE_EXPERIMENT.conclude(options, records)

    return go


PAPER = {row: [numbers[i] or 0.0 for i in (4, 5, 6)] for row, numbers in published.GLUE.items()}


def test_the_papers_own_numbers_agree_with_it(conclude):
    outcome = conclude(PAPER)
    assert [claim.verdict for claim in outcome.claims] == ["holds", "holds", "holds"]
    head, *rows = outcome.tables[0].rows
    assert [row[0] for row in rows][:3] == ["tnn", "transformer", "transformer-ls"]
    for name in ("cola, published", "AVG, published", "published rank"):  # of the same three tasks
        column = head.index(name)
        assert all(row[column] == row[column + 1] for row in rows)
    assert rows[0][head.index("AVG, published")] == "74.47"
    assert any(note.endswith("At the edge of the search: s4.") for note in outcome.notes)
    order = "Order, sst2: 117 of 117 pairs of rows are in the order of the paper (100%)."
    assert order in outcome.notes  # three are equal
    assert any("sst2 50.92, mrpc 81.22, cola 0.00" in note and "80.95 to 83.36" in note for note in outcome.notes)


def test_an_average_is_that_of_one_seed(records, record):
    """Seed 0 has no score on CoLA yet."""
    options = Options(methods=("tnn",), seeds=2)
    for of in pre_trainings("tnn", options)[1]:
        for task in TASKS:
            if (task, of.seed) != ("cola", 0):
                records.add(record(tuning_trial("tnn", of, task, options), score=0.1 + 0.4 * of.seed))
    (row,) = GLUE_EXPERIMENT.conclude(options, records).tables[0].rows[1:]
    assert "50.00" in row  # of seed 1; the mean of what came first on each task would be 23.33


def test_tnn_behind(conclude):
    scores = PAPER | {"tnn": (60.0, 81.0, 1.0)}
    outcome = conclude(scores)
    assert [claim.verdict for claim in outcome.claims] == ["does not hold"] * 3
    assert "the best are transformer-ls 40.65" in outcome.claims[2].evidence


def test_a_small_lead(conclude):
    outcome = conclude(PAPER | {"tnn": (90.6, 82.96, 41.0)})
    assert outcome.claims[2].verdict == "holds in part"


def test_a_task_that_no_method_learns_tells_nothing(conclude):
    outcome = conclude({row: (sst2, 81.5, 3.0) for row, (sst2, _, _) in PAPER.items()})
    competitive, everywhere, cola = outcome.claims
    assert [claim.verdict for claim in outcome.claims] == ["holds in part", "not measured", "not measured"]
    assert everywhere.evidence.startswith("number 2 of 16 on sst2; no method is 5 points above")
    assert everywhere.evidence.endswith("on mrpc, cola")
    assert competitive.evidence.startswith("over sst2 number 2 with 90.60, the best is flash with 90.71; ")
    assert cola.evidence == "no method is 5 points above the most frequent class on cola"


def test_no_task_is_learned(conclude):
    outcome = conclude(dict.fromkeys(GLUE_METHODS, (50.0, 81.5, 0.0)))
    assert {claim.verdict for claim in outcome.claims} == {"not measured"}
    assert any(note.startswith("Order, cola: there are no two rows to compare") for note in outcome.notes)


def test_the_head_of_the_others(conclude):
    outcome = conclude(PAPER | {FIRST_TOKEN: (88.0, 82.0, 20.0)})
    assert [claim.verdict for claim in outcome.claims] == ["holds"] * 3  # it is not one of the paper's rows
    assert (
        outcome.claims[0].checked
        == "with the head of the other methods TNN has 88.00 on sst2, 82.00 on mrpc, 20.00 on cola."
    )
    (row,) = [row for row in outcome.tables[0].rows if row[0] == FIRST_TOKEN]
    assert row[1:3] == ("", "88.00")


def test_the_row_of_that_head():
    _, (of,) = pre_trainings(FIRST_TOKEN, Options())
    trial = tuning_trial(FIRST_TOKEN, of, "cola", Options())
    assert of.row == "tnn"
    assert (trial.row, trial.settings["pooling"]) == (FIRST_TOKEN, "first")


def test_few_methods_tell_nothing(conclude):
    outcome = conclude({row: PAPER[row] for row in ("tnn", "gss")}, methods=("tnn", "gss"))
    assert {claim.verdict for claim in outcome.claims} == {"not measured"}


def test_nothing_is_measured(records):
    outcome = GLUE_EXPERIMENT.conclude(Options(methods=("gss", "tnn")), records)
    assert outcome.figure is None
    assert [claim.verdict for claim in outcome.claims] == ["not measured"] * 3
    assert outcome.tables[0].rows[1][:4] == ("gss", "85.67", "", "82.11")


def test_one_task_is_measured(records, record):
    options = Options(methods=("gss", "tnn"))
    _, (of,) = pre_trainings("gss", options)
    records.add(record(tuning_trial("gss", of, "sst2", options), score=0.7))
    outcome = GLUE_EXPERIMENT.conclude(options, records)
    assert outcome.figure is None
    assert [claim.verdict for claim in outcome.claims] == ["not measured"] * 3
    assert outcome.tables[0].rows[1][:5] == ("gss", "85.67", "70.00", "82.11", "")
