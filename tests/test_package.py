"""The package as a user gets it: built, installed into an empty environment, imported; and its documents, executed."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

WORKS = """
import sys, tnn
assert not {"torch", "transformers"} & set(sys.modules), "import tnn must stay light"
from importlib.metadata import version
assert version("toeplitz-nn") == tnn.__version__
import torch
from tnn.layers import TNNBlock
y = TNNBlock(8, causal=True)(torch.randn(2, 5, 8))
assert y.shape == (2, 5, 8)
from tnn.ops import backends
assert backends()["native"].startswith("available"), backends()
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_config(tnn.load_preset("mini-alm"))
assert model(torch.tensor([[5, 6, 7]])).logits.shape == (1, 3, 260)
print(tnn.__file__)
"""


def run(*command, cwd, **environment):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build_wheel(folder, **environment):
    folder.mkdir()
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder, **environment)
    (wheel,) = folder.glob("toeplitz_nn-*.whl")
    return wheel, set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.slow
def test_wheel_works_in_an_empty_environment(tmp_path):
    wheel, names = build_wheel(tmp_path / "wheel")
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "tnn").rglob("*.py")}
    assert len(sources) > 20
    assert sources | {"tnn/py.typed", "tnn/ops/libtoeplitz.so", "tnn/training/recipes/mini-alm.yaml"} <= names
    assert not [name for name in names if name.startswith(("tests/", "paper/"))]
    assert not [name for name in names if "reproduction" in name or name.startswith("tnn/experiments")]

    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=tmp_path)
    python = environment / "bin" / "python"
    options = (
        "--quiet",
        "--no-compile",
        "--constraint",
        ROOT / "constraints.txt",
    )  # bytecode of all of torch takes long
    run(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel, cwd=tmp_path)
    where = run(python, "-W", "error", "-c", WORKS, cwd=tmp_path)
    assert str(environment) in where
    assert "convert" in run(environment / "bin" / "tnn", "--help", cwd=tmp_path)


@pytest.mark.slow
def test_install_succeeds_without_a_compiler(tmp_path):
    wheel, names = build_wheel(tmp_path / "wheel", CXX="false")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert "tnn/ops/native.py" in names
    assert not [name for name in names if "libtoeplitz" in name]


def test_lazy_attributes():
    import tnn

    assert {"ops", "layers", "models", "TNNConfig", "load_preset"} <= set(dir(tnn))
    assert tnn.ops.toeplitz_matmul is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tnn.nothing
