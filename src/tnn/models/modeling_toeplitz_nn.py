"""Toeplitz Neural Networks for transformers' `trust_remote_code`.

The classes are those of the Python package toeplitz-nn (import name tnn), which this file imports and no more. Every
folder that the package saves has a copy.
"""

try:
    from tnn import (
        TNNConfig,
        TNNForCausalLM,
        TNNForForecasting,
        TNNForImageClassification,
        TNNForMaskedLM,
        TNNForSequenceClassification,
        TNNForTokenClassification,
        TNNImageConfig,
        TNNImageModel,
        TNNModel,
        TNNSeriesConfig,
        TNNSeriesModel,
    )
except ImportError as error:
    if error.name != "tnn":
        raise
    raise ImportError("this model needs the package toeplitz-nn: pip install --upgrade toeplitz-nn") from None

__all__ = [
    "TNNConfig",
    "TNNForCausalLM",
    "TNNForForecasting",
    "TNNForImageClassification",
    "TNNForMaskedLM",
    "TNNForSequenceClassification",
    "TNNForTokenClassification",
    "TNNImageConfig",
    "TNNImageModel",
    "TNNModel",
    "TNNSeriesConfig",
    "TNNSeriesModel",
]
