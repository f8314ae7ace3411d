"""`python -m paper`, and `tnn reproduce`, which hands over to it in a clone and says so elsewhere."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import paper.__main__ as command
from paper.catalogue import EXPERIMENTS, STUDIES
from tnn.cli import app
from tnn.cli.reproduce import is_clone

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """The root of a clone, for what the commands read of it."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "paper").symlink_to(ROOT / "paper")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def tnn(*words):
    return CliRunner().invoke(app, ["reproduce", *words], prog_name="tnn")


@pytest.mark.slow
def test_python_m_paper():
    done = subprocess.run([sys.executable, "-m", "paper", "--list"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {line.split()[0] for line in done.stdout.splitlines()} == {*EXPERIMENTS, *STUDIES}


def test_both_commands_say_the_same(clone):
    """tnn hands all arguments over, help and mistakes included."""
    for words in (["--list"], ["--help"], [], ["alms"], ["alm", "--scale", "maxi"], ["alm", "--methods", "bert"]):
        ours, theirs = CliRunner().invoke(command.app, words, prog_name="tnn reproduce"), tnn(*words)
        assert (theirs.exit_code, theirs.output) == (ours.exit_code, ours.output)
        assert "Traceback" not in theirs.output
    assert "--data-dir" in tnn("--help").output
    assert tnn("alms").output == "error: no experiment 'alms'; did you mean 'alm'?\n"


def test_elsewhere_it_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (["alm"], ["--list"], ["report", "--out", "x"]):
        done = tnn(*words)
        assert done.exit_code == 1
        assert done.output.startswith("error: the reproduction of the paper is not part of the installed package")
        assert done.output.count("\n") == 1
    assert "python -m paper" in tnn("--help").output
    assert list(tmp_path.iterdir()) == []


def test_another_folder_named_paper_is_not_ours(clone):
    assert is_clone(clone)
    for text in ('[project]\nname = "other"', "[project]", "name = [", 'project = "toeplitz-nn"'):
        (clone / "pyproject.toml").write_text(text)
        assert not is_clone(clone)
        assert tnn("--list").exit_code == 1


def test_help_does_not_load_torch():
    code = (
        "import sys, paper.__main__; from typer.testing import CliRunner\n"
        "assert CliRunner().invoke(paper.__main__.app, ['--help']).exit_code == 0\n"
        "assert not {'torch', 'transformers', 'tnn.models'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
