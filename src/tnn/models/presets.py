"""The paper's models by name, each with its published size, and small ones of each family for two CPU cores.

Those of the methods that TNN is compared with are in baseline_presets.py.
"""

from typing import Any

from tnn._names import did_you_mean
from tnn.models import baseline_presets
from tnn.models.arena import IMAGE, LISTOPS, PATHFINDER, RETRIEVAL, TEXT
from tnn.models.configuration import TNNBlockConfig, TNNConfig, TNNImageConfig

_BLM: dict[str, Any] = {
    "is_decoder": False,
    "norm_position": "post",
    "final_norm": None,
    "embedding_norm": True,
    "scale_embedding": False,
    "initializer": "normal",
    "classifier_act": "tanh",
}

# Long-Range Arena: absolute positions, batch norm, and a network of its own for the coefficients.
_LRA: dict[str, Any] = {
    "rpe_size": 16,
    "rpe_num_layers": 2,
    "rpe_norm": "last_layer",
    "norm": "batch",
    "inner_norm": "layer",
    "final_norm": "batch",
    "position_embedding": "sinusoidal",
    "embedding_dropout": 0.1,
    "initializer": "gtu",
}
_LRA_TEXT: dict[str, Any] = _LRA | {"is_decoder": False, "scale_embedding": False}
_LRA_IMAGE: dict[str, Any] = _LRA | {"patch_size": 1, "num_channels": 1, "pool_norm": None}


def _sizes(layers: int, width: int, gtu: float, glu: float) -> dict[str, Any]:
    return {"num_hidden_layers": layers, "hidden_size": width, "gtu_expansion": gtu, "glu_expansion": glu}


_SMALL = _sizes(2, 64, 1, 1.5)
_SMALL_TEXT = _LRA_TEXT | _SMALL | {"max_lags": 1024}
_SMALL_IMAGE = _LRA_IMAGE | _SMALL
_LARGE_IMAGE = _LRA_IMAGE | {"form": "product"}

_TEXT_PRESETS: dict[str, dict[str, Any]] = {
    "wikitext103-alm": {"vocab_size": 50_264, "dropout": 0.1},
    "wikitext103-blm": _BLM | _sizes(12, 768, 3, 1) | {"vocab_size": 50_265, "dropout": 0.1},
    "lra-text": _SMALL_TEXT | TEXT | {"decay_mode": "none"},
    "lra-listops": _SMALL_TEXT | LISTOPS | {"decay": 0.95},
    "lra-retrieval": _SMALL_TEXT | RETRIEVAL | {"decay": 0.95},
    "lra-text-large": _LRA_TEXT | _sizes(4, 128, 1, 2) | TEXT | {"rpe_size": 32, "decay": 0.9, "dropout": 0.1},
    "lra-listops-large": _LRA_TEXT | _sizes(4, 128, 1, 1) | LISTOPS | {"rpe_size": 32, "decay_mode": "none"},
    "lra-retrieval-large": _LRA_TEXT | _sizes(2, 64, 1, 1.5) | RETRIEVAL | {"decay": 0.6},
    "mini-alm": _sizes(4, 128, 2, 1) | {"vocab_size": 260, "rpe_size": 32, "rpe_num_layers": 3},
    "mini-blm": _BLM | _sizes(4, 128, 2, 1) | {"vocab_size": 261, "rpe_size": 32, "rpe_num_layers": 3},
    "mini-lra": _LRA_TEXT | _sizes(2, 32, 1, 1.5) | LISTOPS | {"decay": 0.95},
}
_IMAGE_PRESETS: dict[str, dict[str, Any]] = {
    "imagenet-tiny": {"hidden_size": 192, "num_labels": 1000},
    "imagenet-small": {"hidden_size": 384, "num_labels": 1000},
    "lra-pathfinder": _SMALL_IMAGE | PATHFINDER | {"decay_mode": "none"},
    "lra-image": _SMALL_IMAGE | IMAGE | {"decay_mode": "none", "dropout": 0.2},
    "lra-pathfinder-large": _LARGE_IMAGE | _sizes(6, 64, 3, 2.5) | PATHFINDER | {"decay_mode": "none"},
    "lra-pathx-large": _LARGE_IMAGE | _sizes(6, 64, 3, 2.5) | PATHFINDER | {"image_size": 128, "decay": 0.999},
    "lra-image-large": _LARGE_IMAGE | _sizes(12, 128, 2, 3) | IMAGE | {"decay": 0.7, "dropout": 0.1},
    "mini-lra-image": _LRA_IMAGE | _sizes(2, 32, 1, 1.5) | IMAGE | {"decay_mode": "none"},
    "mini-image": _sizes(4, 64, 2, 1) | {"image_size": 28, "patch_size": 4, "num_channels": 1, "num_labels": 10},
}
_TEXTS = _TEXT_PRESETS | baseline_presets.TEXT_PRESETS
_IMAGES = _IMAGE_PRESETS | baseline_presets.IMAGE_PRESETS


def list_presets() -> list[str]:
    """The names that `load_preset` knows: first those of TNN.

    >>> import tnn
    >>> "wikitext103-alm" in tnn.list_presets()
    True
    """
    own = [*_TEXT_PRESETS, *_IMAGE_PRESETS]
    return own + [name for name in (*_TEXTS, *_IMAGES) if name not in own]


def load_preset(name: str, **changes: Any) -> TNNBlockConfig:
    """A configuration by name, with any of its fields changed.

    >>> import tnn
    >>> config = tnn.load_preset("wikitext103-alm", decay=0.999)
    >>> config.num_hidden_layers, config.decay
    (7, 0.999)
    """
    if name in _TEXTS:
        return TNNConfig(**(_TEXTS[name] | changes))
    if name in _IMAGES:
        return TNNImageConfig(**(_IMAGES[name] | changes))
    own = ", ".join([*_TEXT_PRESETS, *_IMAGE_PRESETS])
    hint = did_you_mean(name, list_presets(), others=f"{own}, and more in tnn.list_presets()")
    raise ValueError(f"no preset {name!r}; {hint}")
