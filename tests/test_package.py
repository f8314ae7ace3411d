"""The package as a user gets it: built, installed into an empty environment, imported; and its documents, executed."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

WORKS = """
import sys, tnn
assert "torch" not in sys.modules, "import tnn must stay light"
from importlib.metadata import version
assert version("toeplitz-nn") == tnn.__version__
import torch
from tnn.layers import TNNBlock
y = TNNBlock(8, causal=True)(torch.randn(2, 5, 8))
assert y.shape == (2, 5, 8)
print(tnn.__file__)
"""


def run(*command, cwd):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_wheel_works_in_an_empty_environment(tmp_path):
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("toeplitz_nn-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "tnn").rglob("*.py")}
    assert len(sources) > 20
    assert sources | {"tnn/py.typed"} <= names
    assert not [name for name in names if name.startswith("tests/")]

    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=tmp_path)
    python = environment / "bin" / "python"
    constraints = ("--constraint", ROOT / "constraints.txt")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *constraints, wheel, cwd=tmp_path)
    where = run(python, "-W", "error", "-c", WORKS, cwd=tmp_path)
    assert str(environment) in where


@pytest.mark.parametrize("document", ["README.md", "docs/operator.md"])
def test_documents_run(document):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    assert blocks
    exec(compile("\n".join(blocks), document, "exec"), {})


def test_lazy_attributes():
    import tnn

    assert {"ops", "layers"} <= set(dir(tnn))
    assert tnn.ops.toeplitz_matmul is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tnn.nothing
