import pytest

from paper.harness.records import Record, Records
from paper.harness.trial import TrialContext


@pytest.fixture(autouse=True)
def _few_threads(one_thread):
    pass


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TNN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "results" / "mini")


@pytest.fixture
def context(tmp_path, records):
    return TrialContext(tmp_path / "data", tmp_path / "runs", records)


@pytest.fixture
def record():
    """Makes the record of a trial, as if it had been run."""

    def make(trial, **metrics):
        names = (trial.experiment, trial.row, trial.part, trial.seed, trial.settings)
        return Record(*names, metrics, seconds=1.0, peak_memory_mb=700.0, machine={}, versions={})

    return make


@pytest.fixture
def wikitext(tmp_path, corpus):
    """The data directory with a small WikiText-2."""
    folder = tmp_path / "data" / "wikitext-2"
    folder.mkdir(parents=True)
    for split in ("train", "valid", "test"):
        text = (corpus / f"{split}.txt").read_text()
        (folder / f"wiki.{split}.tokens").write_text(text * 20)
    return folder.parent
