"""Transformers models: configurations, the backbone, heads for text and images, presets, checkpoint conversion."""

from typing import TYPE_CHECKING

from tnn._lazy import lazy_attributes

if TYPE_CHECKING:
    from tnn.models.backbone import TNNModel, TNNPreTrainedModel
    from tnn.models.configuration import TNNConfig, TNNImageConfig
    from tnn.models.heads import (
        TNNForCausalLM,
        TNNForMaskedLM,
        TNNForSequenceClassification,
        TNNForSequencePairClassification,
        TNNForTokenClassification,
    )
    from tnn.models.image import TNNForImageClassification, TNNImageModel
    from tnn.models.presets import list_presets, load_preset
    from tnn.models.reference import convert_reference

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
    "TNNPreTrainedModel",
    "convert_reference",
    "list_presets",
    "load_preset",
]

# Lazy, for a configuration must load without the models: transformers asks for it while it is itself being imported.
HOMES = {
    "TNNConfig": "tnn.models.configuration",
    "TNNForCausalLM": "tnn.models.heads",
    "TNNForImageClassification": "tnn.models.image",
    "TNNForMaskedLM": "tnn.models.heads",
    "TNNForSequenceClassification": "tnn.models.heads",
    "TNNForSequencePairClassification": "tnn.models.heads",
    "TNNForTokenClassification": "tnn.models.heads",
    "TNNImageConfig": "tnn.models.configuration",
    "TNNImageModel": "tnn.models.image",
    "TNNModel": "tnn.models.backbone",
    "TNNPreTrainedModel": "tnn.models.backbone",
    "convert_reference": "tnn.models.reference",
    "list_presets": "tnn.models.presets",
    "load_preset": "tnn.models.presets",
}
__getattr__ = lazy_attributes(__name__, HOMES)
