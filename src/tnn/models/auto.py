"""Our models in transformers' Auto classes; importing this module registers them."""

from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTimeSeriesPrediction,
    AutoModelForTokenClassification,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import is_vision_available

from tnn.models.backbone import TNNModel
from tnn.models.configuration import TNNConfig, TNNImageConfig, TNNSeriesConfig
from tnn.models.heads import (
    TNNForCausalLM,
    TNNForMaskedLM,
    TNNForSequenceClassification,
    TNNForTokenClassification,
)
from tnn.models.image import TNNForImageClassification, TNNImageModel
from tnn.models.series import TNNForForecasting, TNNSeriesModel

AutoModel.register(TNNConfig, TNNModel, exist_ok=True)
AutoModelForCausalLM.register(TNNConfig, TNNForCausalLM, exist_ok=True)
AutoModelForMaskedLM.register(TNNConfig, TNNForMaskedLM, exist_ok=True)
AutoModelForSequenceClassification.register(TNNConfig, TNNForSequenceClassification, exist_ok=True)
AutoModelForTokenClassification.register(TNNConfig, TNNForTokenClassification, exist_ok=True)

# What Trainer's label smoothing looks into to know that labels must be shifted.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[TNNConfig.model_type] = TNNForCausalLM.__name__

AutoModel.register(TNNImageConfig, TNNImageModel, exist_ok=True)
AutoModelForImageClassification.register(TNNImageConfig, TNNForImageClassification, exist_ok=True)
if is_vision_available():  # with pillow, which text models do without
    from transformers import AutoImageProcessor, ViTImageProcessorPil

    AutoImageProcessor.register(TNNImageConfig, image_processor_classes={"pil": ViTImageProcessorPil}, exist_ok=True)

AutoModel.register(TNNSeriesConfig, TNNSeriesModel, exist_ok=True)
AutoModelForTimeSeriesPrediction.register(TNNSeriesConfig, TNNForForecasting, exist_ok=True)
