"""Registration with transformers' Auto classes, without importing transformers before somebody else does."""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

AUTO_CONFIG = "transformers.models.auto.configuration_auto"


def register_auto_classes() -> None:
    """Now, if transformers' AutoConfig is loaded; otherwise when it is."""
    if AUTO_CONFIG in sys.modules:
        _register_configurations()
    else:
        sys.meta_path.insert(0, _AfterImport(AUTO_CONFIG, _register_configurations))


def _register_configurations() -> None:
    """Configurations only; the first one that is made registers the models, which all of Auto's ways begin with."""
    from transformers.models.auto.configuration_auto import AutoConfig

    from tnn.models.configuration import TNNConfig, TNNImageConfig

    for config in (TNNConfig, TNNImageConfig):
        AutoConfig.register(config.model_type, config, exist_ok=True)


class _AfterImport(MetaPathFinder, Loader):
    """Calls a function once, right after a module has been imported."""

    def __init__(self, module: str, call: Callable[[], None]):
        self._module = module
        self._call = call
        self._loader: Loader
        self._asking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module or self._asking:
            return None
        self._asking = True  # the others, that is
        try:
            spec = find_spec(fullname)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        module.__loader__ = spec.loader = self._loader
        self._loader.exec_module(module)
        sys.meta_path.remove(self)  # not before it has worked
        self._call()
