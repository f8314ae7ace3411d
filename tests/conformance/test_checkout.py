"""How the suite of a checkout is found and imported, with a checkout of three lines."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance import checkout

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tests" / "generation").mkdir(parents=True)
    (tmp_path / "tests" / "generation" / "test_utils.py").write_text("class GenerationTesterMixin:\n    real = True\n")
    mixins = ("exporters.test_export import ExportTesterMixin", "generation.test_utils import GenerationTesterMixin")
    (tmp_path / "tests" / "test_modeling_common.py").write_text("".join(f"from .{mixin}\n" for mixin in mixins))
    return tmp_path / "tests"


def test_the_checkout_or_its_tests_may_be_given(folder, monkeypatch):
    for given in (folder, folder.parent):
        monkeypatch.setenv(checkout.VARIABLE, str(given))
        assert checkout.tests_folder() == folder
    monkeypatch.setenv(checkout.VARIABLE, str(folder / "generation"))
    with pytest.raises(FileNotFoundError, match="TRANSFORMERS_TESTS must be a checkout"):
        checkout.tests_folder()
    monkeypatch.delenv(checkout.VARIABLE)
    assert checkout.tests_folder() is None


def test_another_version_is_refused(folder, monkeypatch):
    monkeypatch.setenv(checkout.VARIABLE, str(folder))
    source = folder.parent / "src" / "transformers" / "__init__.py"
    source.parent.mkdir(parents=True)
    source.write_text('__version__ = "4.0.0"\n')
    with pytest.raises(ValueError, match=r"^TRANSFORMERS_TESTS holds transformers 4\.0\.0; check out v5\."):
        checkout.tests_folder()


def test_what_is_missing_is_named(folder):
    assert checkout.missing(folder) == ["exporters.test_export", "utils.test_configuration_utils"]


@pytest.mark.slow
def test_only_what_is_missing_is_replaced(folder):
    code = f"""
from pathlib import Path
from tests.conformance.checkout import load
module = load(Path({str(folder)!r}), "test_modeling_common")
assert module.GenerationTesterMixin.real
assert not hasattr(module.ExportTesterMixin, "real")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
