"""Long-Range Arena: what is planned, that it runs, and what is concluded."""

import json
from functools import partial

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from paper import published
from paper.__main__ import app
from paper.harness.trial import Options, Trial
from paper.lra import lra, setups, trials
from paper.lra.findings import Findings, accuracy_table, draw_lra, rank_table
from paper.lra.longer import LRA_LONGER_EXPERIMENT, about_longer
from paper.lra.lra import LRA_EXPERIMENT, LRA_LARGE_EXPERIMENT
from paper.lra.setups import IMAGE_TASKS, LRA_METHODS, MINI, ONE_AXIS, QUOTED, RELATIVE, mini_model
from tnn.data.lra.pathfinder import generate_pathfinder
from tnn.layers import count_parameters
from tnn.models import TNNForImageClassification, TNNForSequenceClassification, load_preset

TASKS = ("text", "listops", "pathfinder", "image")
SOME = ("transformer", "linformer", "s4", "tnn", ONE_AXIS, RELATIVE)


def finals(several):
    return [trial for trial in several if trial.part in published.LRA_LARGE_TASKS]


@pytest.mark.parametrize("experiment", [LRA_EXPERIMENT, LRA_LARGE_EXPERIMENT], ids=lambda experiment: experiment.name)
def test_the_papers_plan(experiment):
    planned = experiment.plan(Options(scale="paper"))
    assert len(planned) == len(finals(planned))  # rates are the published ones
    tasks = published.LRA_TASKS if experiment is LRA_EXPERIMENT else published.LRA_LARGE_TASKS
    rows = LRA_METHODS if experiment is LRA_EXPERIMENT else ("s4", "tnn")
    assert {(trial.row, trial.part) for trial in planned} >= {(row, task) for row in rows for task in tasks}
    for trial in planned:
        recipe = trial.settings["recipe"]
        assert (recipe["data"].get("flavour") == "skyformer") == (trial.row in QUOTED), trial.title
        assert ("steps" in recipe["training"]) == (trial.row in QUOTED), trial.title
    few = experiment.plan(Options(scale="paper", methods=("s4", "tnn"), steps=20))
    assert {trial.settings["recipe"]["training"]["steps"] for trial in few} == {20}


def test_all_methods_have_the_same_budget():
    planned = LRA_EXPERIMENT.plan(Options(methods=SOME))
    assert {trial.part for trial in finals(planned)} == set(MINI)
    assert {trial.seed for trial in planned} == {0}
    reference = {trial.part: trial.settings for trial in planned if trial.row == "tnn"}
    for trial in planned:
        assert trial.settings.get("search") == reference[trial.part].get("search"), trial.title
        for section in ("training", "data"):
            assert trial.settings["recipe"][section] == reference[trial.part]["recipe"][section], trial.title
    own = {trial.part for trial in finals(planned) if trial.row == ONE_AXIS}
    assert own == set(MINI) & set(IMAGE_TASKS)  # of texts, TNN's own serve
    own = {trial.part for trial in finals(planned) if trial.row == RELATIVE}
    assert own == set(MINI) - set(IMAGE_TASKS)  # of images likewise


def size(row, task, large=False):
    """Without tables of positions."""
    fields = mini_model(row, task, large)
    config = load_preset(fields.pop("preset"), **fields)
    with torch.device("meta"):
        model = (TNNForImageClassification if task in IMAGE_TASKS else TNNForSequenceClassification)(config)
    tables = [p.numel() for name, p in model.named_parameters() if name.endswith("token_mixer.projection")]
    assert len(tables) == (2 if row == "linformer" else 0)
    return count_parameters(model).trained - sum(tables)


@pytest.mark.slow
@pytest.mark.parametrize("task", MINI)
def test_models_are_of_one_size(task):
    for row in (*LRA_METHODS, ONE_AXIS, RELATIVE):
        assert size(row, task) == pytest.approx(size("tnn", task), rel=0.05), row
    assert size("s4", task, large=True) == pytest.approx(size("tnn", task, large=True), rel=0.05)
    assert 3 < size("tnn", task, large=True) / size("tnn", task) < 5


@pytest.fixture
def data(tmp_path):
    """Reviews, and images of CIFAR-10's form."""
    folder = tmp_path / "data"
    generator = np.random.default_rng(0)
    for name in ("imdb", "cifar10-gray"):
        (folder / name).mkdir(parents=True)
    for split, count in (("train", 40), ("test", 20)):
        rows = [f"{i % 2}\ta {'good' if i % 2 else 'poor'} film" for i in range(count)]
        (folder / "imdb" / f"{split}.tsv").write_text("\n".join(["label\ttext", *rows]) + "\n")
        pixels = generator.integers(0, 256, (count, 32, 32), np.uint8)
        np.save(folder / "cifar10-gray" / f"x_{split}.npy", pixels)
        np.save(folder / "cifar10-gray" / f"y_{split}.npy", np.arange(count) % 10)
    return folder


def few_images(out, *, count, **options):
    assert count == 40_000
    generate_pathfinder(out, count=40, workers=1, **options)


@pytest.mark.slow
def test_lra_from_the_command_line(tmp_path, data, monkeypatch):
    monkeypatch.setattr(setups, "RATES", (1e-3, 3e-3))
    monkeypatch.setattr(trials, "generate_pathfinder", few_images)
    for task in ("listops", "image"):
        monkeypatch.delitem(MINI, task)
    folders = ["--data-dir", data, "--out", tmp_path / "results", "--models", tmp_path / "runs"]
    arguments = ["lra", "--methods", f"tnn,{ONE_AXIS}", "--steps", "2", *map(str, folders)]
    found = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    lines = (tmp_path / "results/mini/lra.jsonl").read_text().splitlines()
    entries = {(entry["row"], entry["part"]): entry["metrics"] for entry in map(json.loads, lines)}
    assert len(entries) == len(lines) == 9  # two rates and a training: of TNN twice, of the other one on images
    assert str(tmp_path) not in "".join(lines)
    assert (tmp_path / "runs/mini/data/pathfinder-easy/curv_contour_length_3").is_dir()
    text, grid, row = entries["tnn", "text"], entries["tnn", "pathfinder"], entries[ONE_AXIS, "pathfinder"]
    assert text["accuracy"] == 100 * text["eval_accuracy"]
    assert grid["accuracy"] == 100 * grid["test_accuracy"]
    assert text["most_frequent_class"] == 50
    assert row["parameters"] == pytest.approx(grid["parameters"], rel=0.05)
    table = (tmp_path / "results/mini/lra.md").read_text()
    for score in (text, grid, row):
        assert f"| {score['accuracy']:.1f} |" in table
    assert f"{(text['accuracy'] + row['accuracy']) / 2:.1f} |" in table
    assert (tmp_path / "results/mini/lra.png").stat().st_size > 10_000
    again = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert "9 trials, 9 of them measured" in again.output


def test_images_of_the_data_directory_are_taken(context, monkeypatch):
    monkeypatch.setattr(trials, "generate_pathfinder", None)
    (context.data / "pathfinder-easy").mkdir(parents=True)
    assert trials._generate_first(context, work=lambda context: {"folder": context.data}) == {"folder": context.data}


def test_images_are_drawn_once(context, monkeypatch):
    monkeypatch.setattr(trials, "generate_pathfinder", few_images)
    draw = partial(trials._generate_first, context, work=lambda context: {"folder": context.data})
    assert draw() == {"folder": context.models / "data"}
    (drawn,) = (context.models / "data").glob("pathfinder-easy/*/imgs/0")
    before = drawn.stat().st_mtime_ns
    draw()
    assert drawn.stat().st_mtime_ns == before
    assert len(list(drawn.iterdir())) == 40


def test_nothing_measured(records):
    for experiment in (LRA_EXPERIMENT, LRA_LARGE_EXPERIMENT):
        outcome = experiment.conclude(Options(methods=("tnn",)), records)
        assert outcome.figure is None
        assert {claim.verdict for claim in outcome.claims} == {"not measured"}
        absent = " ".join(outcome.notes)
        assert "Retrieval" in absent
        assert ("Path-X" in absent) == (experiment is LRA_LARGE_EXPERIMENT)


@pytest.fixture
def findings(record):
    """Of all rows, as published but for what is given: accuracies of a row in the order of the tasks."""

    def make(tasks=TASKS, table=published.LRA, order=published.LRA_TASKS, **given):
        theirs = {row: {t: n for t, n in zip(order, table[row], strict=False) if t in tasks} for row in table}
        ours = {row: given.get(row.replace("-", "_"), [theirs[row][task] for task in tasks]) for row in table}
        records = {
            row: {
                task: [record(Trial("lra", row, {}, None, task), accuracy=accuracy)] if accuracy is not None else []
                for task, accuracy in zip(tasks, ours[row], strict=True)
            }
            for row in table
        }
        return Findings(tasks, records, theirs)

    return make


def test_claims_follow_the_numbers(findings):
    as_published = lra._claims(findings(), "what was checked.")
    assert [claim.verdict for claim in as_published] == ["holds in part", "holds", "does not hold"]
    assert {claim.checked for claim in as_published} == {"what was checked."}
    assert "the paper has s4 first, tnn 71.36, s4 71.76" in as_published[0].evidence
    ahead = lra._claims(findings(tnn=[90, 50.7, 80, 78]), "")
    assert [claim.verdict for claim in ahead] == ["holds", "holds", "holds"]
    behind = lra._claims(findings(tnn=[50, 30, 50, 60], s4=[10, 10, 10, 10]), "")
    assert [claim.verdict for claim in behind] == ["does not hold", "holds in part", "does not hold"]
    assert "Image: number 1 of 14" in behind[1].evidence
    missing = lra._claims(findings(flash=[64, 38, 70, None]), "")
    assert [claim.verdict for claim in missing] == ["not measured"] * 3


def test_claims_of_the_large_models(findings):
    make = partial(findings, table=published.LRA_LARGE, order=published.LRA_LARGE_TASKS)
    assert {claim.verdict for claim in lra._large_claims(make(tasks=published.LRA_LARGE_TASKS), "")} == {"holds"}
    mixed = lra._large_claims(make(tnn=[90, 50, 90, 90], s4=[80, 60, 70, 70]), "")
    assert [claim.verdict for claim in mixed] == ["holds", "holds in part", "does not hold"]
    for gap, verdict in ((1, "holds in part"), (3, "does not hold")):
        behind = lra._large_claims(make(tnn=[80 - gap] * 4, s4=[80] * 4), "")
        assert behind[0].verdict == verdict
    assert mixed[1].evidence == "tnn above s4: Text +10.0, ListOps -10.0"


@pytest.fixture
def add_longer(records, record):
    """Records the trainings of lra-longer, short ones too: an accuracy for each, by its number of updates."""

    def make(rows, accuracies):
        for trial in LRA_LONGER_EXPERIMENT.plan(Options(methods=rows)):
            if trial.part in TASKS:
                times = trial.settings["recipe"]["training"]["steps"] // MINI[trial.part].steps
                records.add(record(trial, accuracy=accuracies[times]))

    return make


def test_longer_trainings(records, add_longer):
    nothing = LRA_LONGER_EXPERIMENT.conclude(Options(), records)
    assert (nothing.figure, nothing.tables[0].rows[1]) == (None, ("s4", "86.8", "", "", "94.2", "", ""))
    add_longer(("tnn",), {1: 59.0, 4: 70.0})
    assert about_longer(Options(), records) == ""  # S4 is missing
    add_longer(("s4",), {1: 71.0, 4: 72.0})
    found = LRA_LONGER_EXPERIMENT.conclude(Options(), records)
    assert found.tables[0].rows[0][2:4] == ("700 updates", "2,800 updates")
    assert found.tables[0].rows[2][2:4] == ("59.0", "70.0")
    assert [axes.get_title("left") for axes in found.figure().axes] == ["Text", "Pathfinder"]
    assert about_longer(Options(), records) == (
        "with 4 times the updates of lra-large (in brackets: with as many): s4 72.0 on Text (71.0), "
        "tnn 70.0 on Text (59.0), s4 72.0 on Pathfinder (71.0), tnn 70.0 on Pathfinder (59.0)."
    )
    assert LRA_LONGER_EXPERIMENT.plan(Options("paper")) == []


def test_longer_trainings_take_the_rates_of_the_shorter():
    plan = {
        (trial.experiment, trial.part): trial.settings
        for trial in LRA_LONGER_EXPERIMENT.plan(Options(methods=("tnn",)))
    }
    short, longer = plan["lra-large", "text"], plan["lra-longer", "text"]
    assert short["search"] == longer["search"]
    assert short["model"] == longer["model"]
    assert longer["recipe"]["training"]["warmup_steps"] == 4 * short["recipe"]["training"]["warmup_steps"]


def test_tables(findings):
    found = findings(tnn=[90, 50, 80, 70], flash=[64, 38, 70, None])
    table, places = accuracy_table(found), rank_table(found)
    assert table.rows[0][:3] == ("method", "Text, published", "ours")
    assert table.rows[1] == ("tnn", "86.39", "90.0", "47.33", "50.0", "73.89", "80.0", "77.84", "70.0", "71.36", "72.5")
    assert table.rows[-2][0] == "flash"  # it has no average
    assert table.rows[-2][-4:] == ("47.40", "", "55.11", "")
    assert places.rows[1][:3] == ("tnn", "1", "1")
    assert places.rows[1][-4:-2] == ("2", "1")
    figure = draw_lra(found)
    assert [axes.get_title("left") for axes in figure.axes] == ["Text", "ListOps", "Pathfinder", "Image", "average"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()][-1] == "tnn"


def test_a_training_that_failed_is_told(record):
    trial = Trial("lra", "tnn", {}, None, "text")
    found = Findings(("text",), {"tnn": {"text": [record(trial, learning_rate=0.01, failed="the loss is nan")]}}, {})
    assert accuracy_table(found).rows[1] == ("tnn", "", "0.0 (1 diverged)", "", "0.0")
