"""The Toeplitz Neural Network: exact, fast Toeplitz operators, the layers built on them, and transformers models.

`import tnn` is light: torch, transformers and the subpackages load on first use. It also registers the models with the
Auto classes of transformers.
"""

from typing import TYPE_CHECKING

from tnn._auto import register_auto_classes
from tnn._lazy import lazy_attributes, public_names

if TYPE_CHECKING:
    from tnn import cli, data, layers, mixers, models, ops, serving, streaming, training
    from tnn.models import (
        TNNConfig,
        TNNForCausalLM,
        TNNForForecasting,
        TNNForImageClassification,
        TNNForMaskedLM,
        TNNForSequenceClassification,
        TNNForSequencePairClassification,
        TNNForTokenClassification,
        TNNImageConfig,
        TNNImageModel,
        TNNModel,
        TNNSeriesConfig,
        TNNSeriesModel,
        list_presets,
        load_preset,
    )

__version__ = "0.1.0.dev0"

__all__ = [
    "TNNConfig",
    "TNNForCausalLM",
    "TNNForForecasting",
    "TNNForImageClassification",
    "TNNForMaskedLM",
    "TNNForSequenceClassification",
    "TNNForSequencePairClassification",
    "TNNForTokenClassification",
    "TNNImageConfig",
    "TNNImageModel",
    "TNNModel",
    "TNNSeriesConfig",
    "TNNSeriesModel",
    "cli",
    "data",
    "layers",
    "list_presets",
    "load_preset",
    "mixers",
    "models",
    "ops",
    "serving",
    "streaming",
    "training",
]

_SUBPACKAGES = ("cli", "data", "layers", "mixers", "models", "ops", "serving", "streaming", "training")
_HOMES = {name: "" if name in _SUBPACKAGES else "tnn.models" for name in __all__}
__getattr__ = lazy_attributes(__name__, _HOMES)
__dir__ = public_names(__name__)

register_auto_classes()
