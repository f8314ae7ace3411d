"""The public names of each package: what `__all__` declares, what `dir()` shows, what attribute access gives."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import tnn

SOURCE = Path(tnn.__file__).parent
FOLDERS = sorted(path.parent for path in SOURCE.rglob("__init__.py"))
AFTER_A_BARE_IMPORT = """
import sys
import tnn
assert not {"torch", "transformers", "numpy"} & set(sys.modules), "import tnn must stay light"
assert tnn.streaming.History.__module__ == "tnn.streaming.history"
assert tnn.data.glue.load_glue and tnn.mixers and tnn.training and tnn.cli.main
"""


def packages():
    """All but those that hold only a docstring, which are namespaces for their modules."""
    for folder in FOLDERS:
        if len(ast.parse((folder / "__init__.py").read_text()).body) > 1:
            yield ".".join(folder.relative_to(SOURCE.parent).parts)


@pytest.mark.parametrize("package", [*packages()])
def test_public_names(package):
    module = importlib.import_module(package)
    shown = [name for name in dir(module) if not name.startswith("__")]
    assert shown == sorted(module.__all__)
    assert len({*shown}) == len(shown)
    assert all(hasattr(module, name) for name in dir(module))
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        _ = module.nothing


def test_subpackages():
    folders = {folder.name for folder in FOLDERS if folder.parent == SOURCE}
    assert folders == {name for name in tnn.__all__ if (SOURCE / name).is_dir()}
    assert "__version__" in dir(tnn)


@pytest.mark.slow
def test_bare_import():
    subprocess.run([sys.executable, "-c", AFTER_A_BARE_IMPORT], check=True)
