"""transformers' own tests, taken from a checkout of it; nothing of them is in this repository.

The package `tests` of the checkout is imported under another name, as ours is called so too. The source distribution
of transformers leaves folders out: a mixin that is not there is replaced by an empty one, and `missing` names it.
"""

import importlib
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import transformers

PACKAGE = "transformers_tests"
VARIABLE = "TRANSFORMERS_TESTS"
CAN_BE_MISSING = {
    "exporters.test_export": {"ExportTesterMixin": type("ExportTesterMixin", (), {})},
    "generation.test_utils": {"GenerationTesterMixin": type("GenerationTesterMixin", (), {})},
    "utils.test_configuration_utils": {"config_common_kwargs": {}},
}


def tests_folder() -> Path | None:
    """`tests` of the checkout that the variable names (itself or its parent); None if it is not set."""
    if not os.environ.get(VARIABLE):
        return None
    given = Path(os.environ[VARIABLE]).expanduser().resolve()
    for folder in (given, given / "tests"):
        if (folder / "test_modeling_common.py").is_file():
            _check_version(folder.parent / "src" / "transformers" / "__init__.py")
            return folder
    raise FileNotFoundError(
        f"{VARIABLE} must be a checkout of transformers; {given} has no tests/test_modeling_common.py"
    )


def _check_version(file: Path) -> None:
    """Tests of another version import what the installed one may not have."""
    found = re.search(r'^__version__ = "(.*)"', file.read_text(), re.MULTILINE) if file.is_file() else None
    if found and found[1] != transformers.__version__:
        raise ValueError(f"{VARIABLE} holds transformers {found[1]}; check out v{transformers.__version__}")


def missing(folder: Path) -> list[str]:
    """The modules that the checkout should have, and does not."""
    return [name for name in CAN_BE_MISSING if not (folder / name.replace(".", "/")).with_suffix(".py").is_file()]


def load(folder: Path, name: str) -> ModuleType:
    """The module `name` of the checkout's tests."""
    if PACKAGE not in sys.modules:
        _add_package(PACKAGE, folder)
        for absent in missing(folder):
            parent = absent.split(".")[0]
            if not (folder / parent).is_dir():
                _add_package(f"{PACKAGE}.{parent}", folder / parent)
            stand_in = sys.modules[f"{PACKAGE}.{absent}"] = ModuleType(f"{PACKAGE}.{absent}")
            vars(stand_in).update(CAN_BE_MISSING[absent])
    # A module of the suite loads `transformers` from the folder above it; what is tested is the installed one.
    with patch("transformers.utils.direct_transformers_import", return_value=transformers):
        return importlib.import_module(f"{PACKAGE}.{name}")


def _add_package(name: str, folder: Path) -> None:
    package = sys.modules[name] = ModuleType(name)
    package.__path__ = [str(folder)]
