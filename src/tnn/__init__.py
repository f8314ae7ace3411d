"""The Toeplitz Neural Network: exact, fast Toeplitz operators, the layers built on them, and transformers models.

`import tnn` is light: torch and transformers load on first use. It makes the models known to the Auto classes.
"""

from typing import TYPE_CHECKING

from tnn._auto import register_auto_classes
from tnn._lazy import lazy_attributes

if TYPE_CHECKING:
    from tnn import layers, models, ops
    from tnn.models import (
        TNNConfig,
        TNNForCausalLM,
        TNNForImageClassification,
        TNNForMaskedLM,
        TNNForSequenceClassification,
        TNNForSequencePairClassification,
        TNNForTokenClassification,
        TNNImageConfig,
        TNNImageModel,
        TNNModel,
        list_presets,
        load_preset,
    )

__version__ = "0.1.0.dev0"

__all__ = [
    "TNNConfig",
    "TNNForCausalLM",
    "TNNForImageClassification",
    "TNNForMaskedLM",
    "TNNForSequenceClassification",
    "TNNForSequencePairClassification",
    "TNNForTokenClassification",
    "TNNImageConfig",
    "TNNImageModel",
    "TNNModel",
    "layers",
    "list_presets",
    "load_preset",
    "models",
    "ops",
]

_SUBMODULES = ("layers", "models", "ops")
__getattr__ = lazy_attributes(__name__, {name: "" if name in _SUBMODULES else "tnn.models" for name in __all__})


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


register_auto_classes()
