"""`tnn env`: what a bug report needs, and nothing personal."""

import json
import platform
import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import tnn
from tnn.cli import app
from tnn.ops import backends
from tnn.training import environment


@pytest.fixture
def report():
    done = CliRunner().invoke(app, ["env", "--json"])
    assert (done.exit_code, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_what_it_reports(report):
    assert report["versions"]["toeplitz-nn"] == tnn.__version__
    assert report["versions"]["torch"] == torch.__version__
    assert report["machine"]["threads of torch"] == torch.get_num_threads()
    assert report["backends"] == backends()
    assert report["extras"]["plot"].startswith("matplotlib ")
    assert set(report["extras"]) == {"plot", "datasets", "onnx", "vision", "serve"}


def test_the_text_has_the_same_values(report):
    lines = CliRunner().invoke(app, ["env"]).stdout.splitlines()
    values = dict(re.split(r" {2,}", line.strip(), maxsplit=1) for line in lines[1 : 1 + len(report["versions"])])
    assert values == report["versions"]
    assert [line for line in lines if not line.startswith(" ")] == list(report)


def test_nothing_personal(monkeypatch):
    monkeypatch.setenv("TNN_CACHE", "/home/somebody/cache")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    text = environment.to_text(environment.describe_environment())
    private = (platform.node(), str(Path.home()), "somebody", "/home")
    assert not [name for name in private if len(name) > 3 and name in text]
    assert re.search(r"TNN_CACHE +\(set\)\n", text + "\n")
    assert re.search(r"OMP_NUM_THREADS +3\n", text)


def test_why_a_backend_does_not_serve(monkeypatch):
    status = {"native": "could not be loaded: /home/somebody/libtoeplitz.so: invalid ELF header"}
    monkeypatch.setattr("tnn.ops.backends", lambda: status)
    found = environment.describe_environment()["backends"]["native"]
    assert found == "could not be loaded: libtoeplitz.so: invalid ELF header"


def test_how_to_install_what_is_missing(monkeypatch):
    version = environment._version
    monkeypatch.setattr(environment, "_version", lambda name: None if name == "kornia" else version(name))
    assert environment._extras()["vision"] == "missing kornia: pip install 'toeplitz-nn[vision]'"
