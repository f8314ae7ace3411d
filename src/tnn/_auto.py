"""Registration with the Auto classes of transformers, without importing transformers."""

import importlib
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

AUTO_CONFIG = "transformers.models.auto.configuration_auto"
AUTO_MODELS = ("transformers.models.auto.modeling_auto", "transformers.models.auto.image_processing_auto")
LAYERS = "transformers.modeling_layers"  # our models need it, and it loads AUTO_MODELS before it is complete
LAST_NAMES = {
    LAYERS: "GradientCheckpointingLayer",
    "tnn.models.backbone": "XavierMap",
    "tnn.models.heads": "TNNForTokenClassification",
    "tnn.models.image": "TNNForImageClassification",
    "tnn.models.series": "TNNForForecasting",
}


def register_auto_classes() -> None:
    """Register now if AutoConfig is already loaded, otherwise as soon as it is."""
    if AUTO_CONFIG in sys.modules:
        _register_configurations()
    else:
        sys.meta_path.insert(0, _AfterImport(AUTO_CONFIG, _register_configurations))


def _register_configurations() -> None:
    """Configurations only: every Auto class needs a configuration first, and creating one calls `register_models`."""
    from transformers.models.auto.configuration_auto import AutoConfig

    from tnn.models.configuration import TNNConfig, TNNImageConfig, TNNSeriesConfig

    for config in (TNNConfig, TNNImageConfig, TNNSeriesConfig):
        AutoConfig.register(config.model_type, config, exist_ok=True)


@cache
def register_models() -> None:
    """Register now if Auto classes for models are loaded, otherwise as soon as they are. Models load slowly."""
    if not sys.modules.keys().isdisjoint(AUTO_MODELS):
        _load_models()
        return
    for module in (*AUTO_MODELS, LAYERS):
        sys.meta_path.insert(0, _AfterImport(module, _load_models))


def complete_registration() -> None:
    """Called at the end of each module of models: a registration that came while it was being imported had to wait."""
    if not sys.modules.keys().isdisjoint(AUTO_MODELS):
        _load_models()


def _load_models() -> None:
    """Import all models, which registers them; unless one of the modules is being imported, and lacks its last name."""
    modules = [(sys.modules.get(name), last) for name, last in LAST_NAMES.items()]
    if all(module is None or hasattr(module, last) for module, last in modules):
        importlib.import_module("tnn.models.auto")


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
        self._asking = True  # find_spec below asks this finder again: let the next ones answer
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
        sys.meta_path.remove(self)  # only after the import has succeeded
        self._call()
