"""The Toeplitz Neural Network: exact, fast Toeplitz operators and the layers built on them.

`import tnn` is light: `tnn.ops` and `tnn.layers` (which bring in torch) load on first use.
"""

import importlib
from types import ModuleType

__version__ = "0.1.0.dev0"

_SUBMODULES = ("layers", "ops")


def __getattr__(name: str) -> ModuleType:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_SUBMODULES])
