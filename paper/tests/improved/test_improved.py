"""The studies of a better TNN: all rows have the same budget and size, and verdicts follow from the records."""

import json
import lzma
from math import log

import pytest
import torch

from paper.catalogue import EXPERIMENTS, STUDIES, find_experiment
from paper.harness.trial import Options
from paper.improved import enwik8, lra
from paper.improved.enwik8 import ENWIK8_STUDY, FLOOR
from paper.improved.ideas import BASE, IDEAS, IDEAS_STUDY, idea_trials
from paper.improved.lra import LRA_STUDY, TASKS
from paper.improved.rows import RECOMMENDED, RIVALS, ROWS
from paper.improved.state_space import state_space_trial
from tnn import models
from tnn.layers import count_parameters
from tnn.training.parameter_groups import parameter_groups


def configuration(setup):
    section = setup.load().model
    return models.load_preset(section.preset, **section.changes)


def test_studies_are_found_by_name_and_are_no_part_of_the_report():
    assert find_experiment("improved-enwik8") is ENWIK8_STUDY
    assert not set(STUDIES) & set(EXPERIMENTS)


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_plans_name_only_what_is_there(study):
    trials = study.plan(Options())
    assert {trial.row for trial in trials} <= {*study.rows, FLOOR}
    json.dumps([trial.settings for trial in trials])
    assert study.plan(Options(scale="paper")) == []


def test_all_rows_have_the_same_budget_and_size_on_enwik8():
    finals = {row: enwik8.row_trials(row, Options())[1] for row in ROWS}
    reference = finals["tnn"][0].settings
    assert reference["recipe"]["training"]["steps"] * 8 * 512 >= 20_000_000
    sizes = {}
    for row, trials in finals.items():
        assert [trial.seed for trial in trials] == [0, 1, 2]
        assert trials[0].settings["search"]["steps"] == reference["search"]["steps"]
        assert set(reference["search"]["rates"]) <= set(trials[0].settings["search"]["rates"])
        assert trials[0].settings["recipe"]["training"] == reference["recipe"]["training"]
        assert trials[0].settings["recipe"]["data"] == reference["recipe"]["data"]
        sizes[row] = count_parameters(models.TNNForCausalLM(configuration(enwik8._setup(row, Options())))).trained
    assert all(size == pytest.approx(sizes["tnn"], rel=0.05) for size in sizes.values()), sizes


@pytest.mark.parametrize("task", TASKS)
def test_all_rows_have_the_same_budget_and_size_on_lra(task):
    head = models.TNNForSequenceClassification if task == "text" else models.TNNForImageClassification
    reference = lra.row_trials("tnn", task, Options())[1][0].settings
    sizes = {}
    for row in ROWS:
        settings = lra.row_trials(row, task, Options())[1][0].settings
        assert settings["search"] == reference["search"]
        assert settings["recipe"]["training"] == reference["recipe"]["training"]
        assert settings["recipe"]["data"] == reference["recipe"]["data"]
        sizes[row] = count_parameters(head(configuration(lra._setup(row, task, Options())))).trained
    assert all(size == pytest.approx(sizes["tnn"], rel=0.05) for size in sizes.values()), sizes


def add_enwik8(records, record, bits):
    """Records of all rows: `bits` by row, one list of pairs (near, far)."""
    for row, seeds in bits.items():
        searches, finals = enwik8.row_trials(row, Options())
        for trial in searches:
            records.add(record(trial, eval_loss=1.5, learning_rate=0.006))
        for trial, pair in zip(finals, seeds, strict=False):
            losses = [value * log(2) for value in pair]
            metrics = {"eval_loss": losses[0], "test_losses": losses, "learning_rate": 0.006, "parameters": 674_176}
            metrics |= {"learning_curve": [[100, 2.0], [200, 1.5]], "kernel_ranks": [[[1, 4, 7], [1, 1, 2]]] * 2}
            records.add(record(trial, **metrics))


def test_the_verdicts_on_enwik8_need_every_seed(records, record):
    good = {row: [(2.0, 2.0)] * 3 for row in ROWS} | {RECOMMENDED: [(1.9, 1.89), (1.91, 1.9), (1.92, 1.92)]}
    add_enwik8(records, record, good)
    records.add(record(enwik8.floor_trial(Options()), test_losses=[3.0, 1.5, 1.6]))
    states = [state_space_trial(trial) for trial in enwik8.row_trials(RECOMMENDED, Options())[1]]
    numbers = {"states": [20, 30], "history": [131, 570], "bound": [0.01, 0.02], "losses": [1.4, 1.41]}
    records.add(record(states[0], **numbers))
    records.add(record(states[1], refused="the exact history is smaller"))
    outcome = ENWIK8_STUDY.conclude(Options(), records)
    assert outcome.tables[1].rows[1] == ("tnn", "1/4/7, 1/4/7", "1/1/2, 1/1/2")
    assert outcome.tables[2].rows[1:] == (
        ("0", "20, 30", "131, 570", "0.01, 0.02", f"{1.4 / log(2):.4f}", f"{0.01 / log(2):+.5f}"),
        ("1", "the exact history is smaller", "", "", "", ""),
    )
    assert len(outcome.tables) == 4  # without that of lower rates
    lower = enwik8.lower_rate_trials(Options())
    assert [trial.settings["recipe"]["training"]["learning_rate"] for trial in lower] == [0.012, 0.012]
    records.add(record(lower[0], test_losses=[1.95 * log(2), 1.9 * log(2)]))
    again = ENWIK8_STUDY.conclude(Options(), records)
    assert again.tables[4].rows[1:] == ((RIVALS[0], "0.012", "1.9500", "1.9000", "2.0000, 2.0000"),)
    assert [claim.verdict for claim in outcome.claims] == ["holds", "holds"]
    table = outcome.tables[0].to_markdown()
    assert outcome.tables[0].rows[1][0] == RECOMMENDED
    assert "1.9100 ± 0.0100" in table
    assert "2-gram counts" in table
    assert f"{1.5 / log(2):.4f}" in table
    outcome.figure()


def test_one_seed_behind_is_not_ahead(records, record):
    bits = {row: [(2.0, 2.0)] * 3 for row in ROWS} | {RECOMMENDED: [(1.9, 1.9), (1.9, 1.95), (2.01, 2.0)]}
    add_enwik8(records, record, bits)
    assert [claim.verdict for claim in ENWIK8_STUDY.conclude(Options(), records).claims] == [
        "holds in part",
        "does not hold",
    ]


def test_nothing_is_claimed_before_all_seeds_have_run(records, record):
    add_enwik8(records, record, {row: [(2.0, 2.0)] * 2 for row in ROWS})
    assert {claim.verdict for claim in ENWIK8_STUDY.conclude(Options(), records).claims} == {"not measured"}


def test_a_failed_training_is_a_row_behind(records, record):
    add_enwik8(records, record, {row: [(2.0, 2.0)] * 3 for row in ROWS if row != "s4"})
    for trial in enwik8.row_trials("s4", Options())[1]:
        records.add(record(trial, failed="the loss is nan at step 7"))
    outcome = ENWIK8_STUDY.conclude(Options(), records)
    assert "diverged" in outcome.tables[0].to_markdown()


def test_the_floor_wants_the_whole_file(context):
    (context.data / "enwik8").mkdir(parents=True)
    with lzma.open(context.data / enwik8.FILE, "wb") as file:
        file.write(b"too short")
    with pytest.raises(ValueError, match="enwik8 must have 100,000,000 bytes; got 9"):
        enwik8.floor_trial(Options()).work(context)


def test_the_verdict_on_text(records, record):
    for task in TASKS:
        for row in lra.ALL_ROWS:
            for trial in lra.row_trials(row, task, Options())[1]:
                accuracy = 70.0 + (row == RECOMMENDED) + trial.seed / 10
                metrics = {"accuracy": accuracy, "most_frequent_class": 50.0, "learning_rate": 0.003}
                records.add(record(trial, parameters=20_000, **metrics))
    outcome = LRA_STUDY.conclude(Options(), records)
    assert [claim.verdict for claim in outcome.claims] == ["holds"]
    assert set(RIVALS) <= {row[0] for row in outcome.tables[0].rows}
    assert outcome.tables[0].rows[1][0] == RECOMMENDED
    assert outcome.tables[0].rows[-1][:2] == ("most frequent class", "50.00")
    outcome.figure()


def test_rivals_are_as_deep_as_the_recommended_tnn_and_no_smaller():
    sizes = {}
    for row in (RECOMMENDED, lra.DEEPER_RIVAL, "s4"):
        config = configuration(lra._setup(row, "text", Options()))
        with torch.device("meta"):
            model = models.TNNForSequenceClassification(config)
        sizes[row] = config.num_hidden_layers, count_parameters(model).trained
    layers, parameters = sizes.pop(RECOMMENDED)
    for row, (depth, count) in sizes.items():
        assert depth >= layers
        assert count == pytest.approx(parameters, rel=0.02), row


def test_ideas_are_compared_with_their_base(records, record):
    for row, loss in ((BASE, 1.5), ("deeper", 1.49), ("wider-encoder", 1.51)):
        for trial in idea_trials(row, Options()):
            records.add(record(trial, eval_loss=loss + trial.seed / 100, learning_rate=0.006))
    records.add(record(idea_trials("shallower", Options())[0], failed="the loss is nan at step 7"))
    rows = IDEAS_STUDY.conclude(Options(), records).tables[0].rows[1:]
    assert [row[0] for row in rows] == ["deeper", BASE, "wider-encoder", "shallower"]
    assert rows[0][2:] == (f"{-0.01 / log(2):+.4f}", "3")
    assert rows[1][1] == f"{1.51 / log(2):.4f} ± {0.01 / log(2):.4f}"
    IDEAS_STUDY.conclude(Options(), records).figure()


@pytest.mark.parametrize("row", [row for row in IDEAS if row != "wider-encoder"])
def test_ideas_have_the_same_size(row):
    sizes = []
    for each in (BASE, row):
        config = models.TNNConfig(**idea_trials(each, Options())[0].settings["model"])
        sizes.append(count_parameters(models.TNNForCausalLM(config)).trained)
    assert sizes[1] == pytest.approx(sizes[0], rel=0.05)


@pytest.mark.parametrize(("row", "decay"), [(BASE, 0.0), ("encoder-weight-decay", 0.1), ("slow-encoder", 0.0)])
def test_the_weight_decay_of_the_encoder(row, decay):
    model = models.TNNForCausalLM(models.TNNConfig(**idea_trials(row, Options())[0].settings["model"]))
    groups = parameter_groups(model, learning_rate=6e-3, weight_decay=0.1)
    decays = {id(parameter): group.get("weight_decay", 0.1) for group in groups for parameter in group["params"]}
    encoder = [parameter for name, parameter in model.named_parameters() if ".rpe." in name]
    assert encoder
    assert {decays[id(parameter)] for parameter in encoder} == {decay}
