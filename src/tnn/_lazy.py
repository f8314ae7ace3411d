"""Packages that load their attributes on first use, and whose `dir()` lists their public names."""

import importlib
import sys
from collections.abc import Callable
from typing import Any


def lazy_attributes(package: str, homes: dict[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package that loads the names in `homes` on first use.

    `homes` maps each name to the module that defines it, or to "" if the name is itself a module of the package.
    """

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not homes[name]:
            return importlib.import_module(f"{package}.{name}")
        return getattr(importlib.import_module(homes[name]), name)

    return __getattr__


def public_names(package: str) -> Callable[[], list[str]]:
    """The `__dir__` of a package: the names in its `__all__`, and its dunder names.

    >>> import tnn
    >>> [name for name in dir(tnn.ops) if not name.startswith("_")][:2]
    ['Bandwidth', 'backends']
    """

    def __dir__() -> list[str]:
        attributes = vars(sys.modules[package])
        return [*attributes["__all__"], *(name for name in attributes if name.startswith("__"))]

    return __dir__
