"""TNN against DeiT: what is planned, that it runs, and what is concluded."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from paper import images
from paper.__main__ import app
from paper.harness.trainings import Search
from paper.harness.trial import Options
from paper.images import IMAGE_EXPERIMENT, MODELS, ROWS, SIZES
from tnn.layers import count_parameters
from tnn.models import TNNForImageClassification, load_preset
from tnn.training.recipe import read_yaml


def test_both_have_the_same_budget():
    trials = IMAGE_EXPERIMENT.plan(Options())
    reference = {trial.part: trial.settings for trial in trials if trial.row == "tnn"}
    assert {trial.part for trial in trials if "search" in trial.settings} == set(SIZES)
    for trial in trials:
        assert trial.settings.get("search") == reference[trial.part].get("search")
        for section in ("training", "data"):
            assert trial.settings["recipe"][section] == reference[trial.part]["recipe"][section]


@pytest.mark.parametrize("size", SIZES)
def test_both_are_of_one_size(size):
    sizes = []
    for row in ROWS:
        fields = read_yaml(MODELS[row, size])
        with torch.device("meta"):
            model = TNNForImageClassification(load_preset(fields.pop("preset"), **fields))
        sizes.append(count_parameters(model).trained)
    assert sizes[0] == pytest.approx(sizes[1], rel=0.05)


def test_the_papers_plan():
    trials = IMAGE_EXPERIMENT.plan(Options(scale="paper"))
    presets = [trial.settings["recipe"]["model"]["preset"] for trial in trials]
    sizes = ("imagenet-tiny", "imagenet-small")
    assert sorted(presets) == sorted([*sizes, *(f"{size}-transformer" for size in sizes)])
    assert {trial.settings["recipe"]["training"]["epochs"] for trial in trials} == {300}
    assert {
        t.settings["recipe"]["training"]["steps"] for t in IMAGE_EXPERIMENT.plan(Options(scale="paper", steps=9))
    } == {9}


@pytest.mark.slow
def test_image_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "SEARCH", Search(rates=(1e-3,), steps=500))
    folder = tmp_path / "data" / "cifar10-gray"
    folder.mkdir(parents=True)
    for split, count in (("train", 40), ("test", 20)):
        np.save(folder / f"x_{split}.npy", np.random.default_rng(0).integers(0, 256, (count, 32, 32), np.uint8))
        np.save(folder / f"y_{split}.npy", np.arange(count) % 10)
    folders = ["--data-dir", folder.parent, "--out", tmp_path / "results", "--models", tmp_path / "runs"]
    found = CliRunner().invoke(app, ["image", "--steps", "2", *map(str, folders)], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    lines = (tmp_path / "results/mini/image.jsonl").read_text().splitlines()
    assert str(tmp_path) not in "".join(lines)
    entries = {(e["row"], e["part"]): e["metrics"] for e in map(json.loads, lines)}
    assert len(entries) == len(lines) == 8
    table = (tmp_path / "results/mini/image.md").read_text()
    for row in ROWS:
        for size in SIZES:
            measured = entries[row, size]
            assert measured["accuracy"] == 100 * measured["test_accuracy"]
            assert f"{measured['parameters']:,}" in table
    assert (tmp_path / "results/mini/image.png").stat().st_size > 5_000


@pytest.mark.parametrize(
    ("tnn", "verdicts"), [((61, 69.5), ["holds", "holds"]), ((59, 68), ["does not hold", "does not hold"])]
)
def test_claims_follow_the_numbers(records, record, tnn, verdicts):
    scores = {("tnn", size): score for size, score in zip(SIZES, tnn, strict=True)}
    scores |= {("transformer", "tiny"): 60, ("transformer", "small"): 70}
    for trial in IMAGE_EXPERIMENT.plan(Options()):
        if "search" in trial.settings:
            score = scores[trial.row, trial.part]
            records.add(record(trial, accuracy=score, parameters=200_000, learning_rate=1e-3))
    outcome = IMAGE_EXPERIMENT.conclude(Options(), records)
    assert [claim.verdict for claim in outcome.claims] == verdicts
    assert outcome.claims[1].evidence == f"DeiT 70.0, TNN {tnn[1]:.1f}"
    assert outcome.tables[0].rows[2][:6] == ("TNN", "72.29", f"{tnn[0]:.1f}", "6.4M", "200,000", "0.001")


def test_nothing_measured(records):
    outcome = IMAGE_EXPERIMENT.conclude(Options(), records)
    assert outcome.figure is None
    assert {claim.verdict for claim in outcome.claims} == {"not measured"}


def test_a_training_that_failed_counts_0(records, record):
    for trial in IMAGE_EXPERIMENT.plan(Options()):
        if "search" in trial.settings:
            failed = trial.row == "transformer" and trial.part == "small"
            found = {"failed": "the loss is nan"} if failed else {"accuracy": 60.0, "parameters": 200_000}
            records.add(record(trial, learning_rate=4e-3, **found))
    outcome = IMAGE_EXPERIMENT.conclude(Options(), records)
    assert outcome.figure().axes
    assert outcome.claims[1].evidence == "DeiT 0.0, TNN 60.0"
    assert any("At the edge of the search, in some size: TNN, DeiT." in note for note in outcome.notes)
