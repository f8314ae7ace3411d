"""Configurations by name: the paper's models in their published sizes, and small ones for two CPU cores.

Each mixer registers its own presets, beside its class in tnn.mixers.
"""

from typing import Any

from tnn._names import did_you_mean
from tnn.mixers import find_mixer, list_mixers
from tnn.mixers.presets import Preset
from tnn.models.configuration import TNNBlockConfig, TNNConfig, TNNImageConfig, TNNSeriesConfig


def list_presets() -> list[str]:
    """The names that `load_preset` knows, by mixer; those of TNN are first.

    >>> import tnn
    >>> "wikitext103-alm" in tnn.list_presets()
    True
    """
    return [preset.name for mixer in list_mixers() for preset in find_mixer(mixer).presets]


def load_preset(name: str, **changes: Any) -> TNNBlockConfig:
    """A configuration by name, with any of its fields changed.

    >>> import tnn
    >>> config = tnn.load_preset("wikitext103-alm", decay=0.999)
    >>> config.num_hidden_layers, config.decay
    (7, 0.999)
    """
    for mixer in list_mixers():
        for preset in find_mixer(mixer).presets:
            if preset.name == name:
                return _config_class(preset)(**({"mixer": mixer} | preset.fields | changes))
    first = ", ".join(preset.name for mixer in list_mixers()[:1] for preset in find_mixer(mixer).presets)
    hint = did_you_mean(name, list_presets(), others=f"{first}, and more in tnn.list_presets()")
    raise ValueError(f"no preset {name!r}; {hint}")


def _config_class(preset: Preset) -> type[TNNBlockConfig]:
    if preset.series:
        return TNNSeriesConfig
    return TNNImageConfig if preset.image else TNNConfig
