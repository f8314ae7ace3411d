"""Transformers models: configurations, the backbone, heads, presets, checkpoint conversion."""

from typing import TYPE_CHECKING

from tnn._lazy import lazy_attributes, public_names

if TYPE_CHECKING:
    from tnn.models.backbone import TNNModel, TNNPreTrainedModel
    from tnn.models.chunks import iterate_hidden_states, iterate_logits, stream_class_logits, stream_loss
    from tnn.models.configuration import TNNConfig, TNNImageConfig, TNNSeriesConfig
    from tnn.models.export import DecodingStep, export_step
    from tnn.models.export_model import export_onnx
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
    from tnn.models.series import TNNForForecasting, TNNSeriesModel

__all__ = [
    "DecodingStep",
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
    "TNNPreTrainedModel",
    "TNNSeriesConfig",
    "TNNSeriesModel",
    "convert_reference",
    "export_onnx",
    "export_step",
    "iterate_hidden_states",
    "iterate_logits",
    "list_presets",
    "load_preset",
    "stream_class_logits",
    "stream_loss",
]

# Lazy, for a configuration must load without the models: transformers asks for it while it is itself being imported.
_HOMES = {
    "DecodingStep": "tnn.models.export",
    "TNNConfig": "tnn.models.configuration",
    "TNNForCausalLM": "tnn.models.heads",
    "TNNForForecasting": "tnn.models.series",
    "TNNForImageClassification": "tnn.models.image",
    "TNNForMaskedLM": "tnn.models.heads",
    "TNNForSequenceClassification": "tnn.models.heads",
    "TNNForSequencePairClassification": "tnn.models.heads",
    "TNNForTokenClassification": "tnn.models.heads",
    "TNNImageConfig": "tnn.models.configuration",
    "TNNImageModel": "tnn.models.image",
    "TNNModel": "tnn.models.backbone",
    "TNNPreTrainedModel": "tnn.models.backbone",
    "TNNSeriesConfig": "tnn.models.configuration",
    "TNNSeriesModel": "tnn.models.series",
    "convert_reference": "tnn.models.reference",
    "export_onnx": "tnn.models.export_model",
    "export_step": "tnn.models.export",
    "iterate_hidden_states": "tnn.models.chunks",
    "iterate_logits": "tnn.models.chunks",
    "list_presets": "tnn.models.presets",
    "load_preset": "tnn.models.presets",
    "stream_class_logits": "tnn.models.chunks",
    "stream_loss": "tnn.models.chunks",
}
__getattr__ = lazy_attributes(__name__, _HOMES)
__dir__ = public_names(__name__)
