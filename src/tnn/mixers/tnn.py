"""TNN: the gated Toeplitz unit as a mixer, with the paper's channel mixer or, as an ablation, alone."""

from tnn.layers.gated import GatedToeplitzUnit
from tnn.mixers.presets import LRA_TASKS, Fields, Preset
from tnn.mixers.registry import register_mixer

SMALL_OPTIONS = {"rpe_size": 8, "rpe_num_layers": 1}


def _sizes(layers: int, width: int, gtu: float, glu: float) -> Fields:
    return {"num_hidden_layers": layers, "hidden_size": width, "gtu_expansion": gtu, "glu_expansion": glu}


def _dropout(rate: float, operator: float = 0.0) -> Fields:
    """In Long-Range Arena, the rate of a block is also that of the gate in its GLU."""
    return {"dropout": rate, "glu_dropout": rate, "operator_dropout": operator}


MASKED_LM: Fields = {
    "is_decoder": False,
    "norm_position": "post",
    "final_norm": None,
    "embedding_norm": True,
    "scale_embedding": False,
    "initializer": "normal",
    "classifier_act": "tanh",
}
# Long-Range Arena: absolute positions, batch norm, and other settings of the network that makes the coefficients.
LRA: Fields = {
    "rpe_size": 16,
    "rpe_num_layers": 2,
    "rpe_norm": "last_layer",
    "norm": "batch",
    "inner_norm": "layer",
    "final_norm": "batch",
    "position_embedding": "interleaved",
    "embedding_dropout": 0.1,
    "initializer": "gtu",
}
LRA_TEXT: Fields = LRA | {"is_decoder": False, "scale_embedding": False}
LRA_IMAGE: Fields = LRA | {"patch_size": 1, "num_channels": 1, "pool_norm": None}
TEXT, LISTOPS, RETRIEVAL, PATHFINDER, IMAGE = LRA_TASKS.values()

SMALL = _sizes(2, 64, 1, 1.5)
TRUNCATED: Fields = {"max_lags": 1024}
SMALL_TEXT = LRA_TEXT | SMALL | TRUNCATED
SMALL_IMAGE = LRA_IMAGE | SMALL
# The released code came after the paper's main table: its inner norm is counted, and nothing is computed with it.
LARGE_TEXT = LRA_TEXT | {"inner_norm": "unused"}
LARGE_IMAGE = LRA_IMAGE | {"inner_norm": "unused", "form": "product"}
LARGE_RPE: Fields = {"rpe_size": 32}
MINI_RPE: Fields = {"rpe_size": 32, "rpe_num_layers": 3}
MINI_LRA: Fields = _sizes(2, 32, 1, 1.5) | {"position_embedding": "sinusoidal"}

# The TNN that we recommend where the paper's is not needed; docs/kernels.md says why.
RECOMMENDED_FIELDS: Fields = {
    "rpe_activation": "sin",
    "decay": [0.5, 0.97],
    "decay_mode": "learned",
    "operator_norm": True,
    "short_convolution": 4,
    "initializer": "torch",
}

TEXT_PRESETS: dict[str, Fields] = {
    "wikitext103-alm": {"vocab_size": 50_264, "dropout": 0.1, "initializer": "torch"},
    "wikitext103-blm": MASKED_LM | _sizes(12, 768, 3, 1) | {"vocab_size": 50_265, "dropout": 0.1},
    "lra-text": SMALL_TEXT | TEXT | {"decay_mode": "none"},
    "lra-listops": SMALL_TEXT | LISTOPS | {"decay": 0.95},
    "lra-retrieval": SMALL_TEXT | RETRIEVAL | {"decay": 0.95},
    "lra-text-large": LARGE_TEXT | _sizes(4, 128, 1, 2) | TEXT | LARGE_RPE | {"decay": 0.9} | _dropout(0.1),
    "lra-listops-large": LARGE_TEXT | _sizes(4, 128, 1, 1) | LISTOPS | LARGE_RPE | TRUNCATED | {"decay_mode": "none"},
    "lra-retrieval-large": LARGE_TEXT | SMALL | RETRIEVAL | {"decay": 0.6},
    "tnn-mini": RECOMMENDED_FIELDS | _sizes(4, 128, 2, 1) | MINI_RPE | {"vocab_size": 260},
    "tnn-small": RECOMMENDED_FIELDS | _sizes(6, 256, 2, 1) | MINI_RPE | {"vocab_size": 8000},
    "tnn-base": RECOMMENDED_FIELDS | _sizes(7, 512, 3, 1) | {"rpe_num_layers": 3, "vocab_size": 50_264, "dropout": 0.1},
    "mini-alm": _sizes(4, 128, 2, 1) | MINI_RPE | {"vocab_size": 260},
    "mini-blm": MASKED_LM | _sizes(4, 128, 2, 1) | MINI_RPE | {"vocab_size": 261},
    "mini-lra": LRA_TEXT | MINI_LRA | LISTOPS | {"decay": 0.95},
}
IMAGE_PRESETS: dict[str, Fields] = {
    "imagenet-tiny": {"hidden_size": 192, "num_labels": 1000},
    "imagenet-small": {"hidden_size": 384, "num_labels": 1000},
    "lra-pathfinder": SMALL_IMAGE | PATHFINDER | {"decay_mode": "none"},
    "lra-image": SMALL_IMAGE | IMAGE | {"decay_mode": "none"} | _dropout(0.2),
    "lra-pathfinder-large": LARGE_IMAGE | _sizes(6, 64, 3, 2.5) | PATHFINDER | {"decay_mode": "none"},
    "lra-pathx-large": LARGE_IMAGE | _sizes(6, 64, 3, 2.5) | PATHFINDER | {"image_size": 128, "decay": 0.999},
    "lra-image-large": LARGE_IMAGE | _sizes(12, 128, 2, 3) | IMAGE | {"decay": 0.7} | _dropout(0.1, operator=0.1),
    "mini-lra-image": LRA_IMAGE | MINI_LRA | IMAGE | {"decay_mode": "none"},
    "mini-image": _sizes(4, 64, 2, 1) | {"image_size": 28, "patch_size": 4, "num_channels": 1, "num_labels": 10},
}
SERIES_PRESETS: dict[str, Fields] = {"mini-forecast": {}}  # the defaults of TNNSeriesConfig
PRESETS = [Preset(name, fields) for name, fields in TEXT_PRESETS.items()]
PRESETS += [Preset(name, fields, image=True) for name, fields in IMAGE_PRESETS.items()]
PRESETS += [Preset(name, fields, series=True) for name, fields in SERIES_PRESETS.items()]

register_mixer("tnn", GatedToeplitzUnit, presets=PRESETS, small_options=SMALL_OPTIONS)
register_mixer("gtu", GatedToeplitzUnit, channel_mixer=None, small_options=SMALL_OPTIONS)
