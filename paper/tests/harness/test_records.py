"""Records are read once per change of their file, and found by their settings, in the old names or the new ones."""

from dataclasses import replace
from math import inf, nan
from pathlib import Path

import pytest

from paper.harness import records as module
from paper.harness.migration import migrate
from paper.harness.records import Records
from paper.harness.trial import Trial

RESULTS = Path(__file__).parents[3] / "results" / "mini"


def trial(settings, **fields):
    return Trial("made", "tnn", settings, lambda context: {}, **fields)


@pytest.fixture
def parsed(monkeypatch):
    """Counts the files that are parsed."""
    paths, parse = [], module._parse
    monkeypatch.setattr(module, "_parse", lambda path: (paths.append(path), parse(path))[1])
    return paths


def test_a_file_is_read_once_per_change(records, record, parsed):
    trials = [trial({"steps": 10}, seed=seed) for seed in range(5)]
    for each in trials:
        records.add(record(each, score=float(each.seed)))
    assert [records.find(each).metrics["score"] for each in trials * 3] == [0.0, 1.0, 2.0, 3.0, 4.0] * 3
    assert len(parsed) == 1
    Records(records.folder).add(record(trial({"steps": 10}, seed=5), score=5.0))  # as another process would
    assert records.find(trial({"steps": 10}, seed=5)).metrics["score"] == 5.0
    assert len(parsed) == 2
    (records.folder / "made.jsonl").unlink()
    assert records.find(trials[0]) is None


def test_the_last_record_of_a_trial_counts(records, record):
    records.add(record(trial({"steps": 10}), score=1.0))
    records.add(record(trial({"steps": 10}), score=2.0))
    assert records.find(trial({"steps": 10})).metrics["score"] == 2.0
    assert len(list(records.read("made"))) == 2


@pytest.mark.parametrize(
    "other",
    [{"settings": {"steps": 11}}, {"settings": {}}, {"seed": 1}, {"part": "text"}, {"row": "s4"}, {"experiment": "x"}],
)
def test_every_part_of_the_key_counts(records, record, other):
    own = trial({"steps": 10})
    records.add(record(own))
    assert records.find(own) is not None
    assert records.find(replace(own, **other)) is None


@pytest.mark.parametrize(
    ("settings", "same"),
    [
        ({"rates": (0.001, 2)}, {"rates": [0.001, 2.0]}),
        ({"limit": inf, "range": nan}, {"limit": None, "range": None}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 2, "b": 1}}),
    ],
)
def test_settings_are_compared_as_json(records, record, settings, same):
    records.add(record(trial(settings)))
    assert records.find(trial(same)) is not None
    assert records.find(trial(settings)) is not None


GTU_OLD, GTU_NEW = {"structure": "gtu", "num_hidden_layers": 6}, {"mixer": "gtu", "num_hidden_layers": 6}
S4_OLD, S4_NEW = (
    {"mixer": "s4", "mixer_options": {name: True, "state_size": 16}} for name in ("faithful", "as_published")
)
NAMES = [
    ({"model": GTU_OLD}, {"model": GTU_NEW}),
    ({"recipe": {"model": GTU_OLD}}, {"recipe": {"model": GTU_NEW}}),
    ({"model": {"structure": "attention+glu"}}, {"model": {"mixer": "attention"}}),
    ({"model": {"structure": "gtu+glu", "decay": 0.9}}, {"model": {"decay": 0.9}}),
    ({"model": S4_OLD}, {"model": S4_NEW}),
    ({"recipe": {"model": S4_OLD}, "model": S4_OLD}, {"recipe": {"model": S4_NEW}, "model": S4_NEW}),
    (
        {"of": {"model": GTU_OLD, "recipe": {"model": GTU_OLD}}},
        {"of": {"model": GTU_NEW, "recipe": {"model": GTU_NEW}}},
    ),
]


@pytest.mark.parametrize(("old", "new"), NAMES)
def test_old_names_become_new_ones(old, new):
    assert migrate(old) == new
    assert migrate(new) == new


@pytest.mark.parametrize(("old", "new"), NAMES)
def test_a_trial_finds_its_record_in_either_names(records, record, old, new):
    for written, wanted in ((old, new), (new, old)):
        records.add(record(trial(written)))
        assert records.find(trial(wanted)) is not None
        assert next(records.read("made")).settings == new
        (records.folder / "made.jsonl").unlink()


def test_settings_are_not_changed_in_place():
    settings = {"model": dict(GTU_OLD)}
    migrate(settings)
    assert settings == {"model": GTU_OLD}


def test_committed_records_have_todays_names():
    """The files keep the old ones."""
    assert '"structure": "gtu"' in (RESULTS / "ablation-structure.jsonl").read_text(encoding="utf-8")
    models = {record.row: record.settings["model"] for record in Records(RESULTS).read("ablation-structure")}
    assert {row: model["mixer"] for row, model in models.items()} == {"gtu": "gtu", "attention+glu": "attention"}
    assert not any("structure" in model for model in models.values())
