"""Every way to mix tokens, TNN's among them: one file per mixer, one registry, open to mixers of your own."""

from importlib import import_module

from tnn._lazy import public_names
from tnn.layers.mixer import Mixer
from tnn.mixers.registry import MixerEntry, find_mixer, list_mixers, load_mixer, register_mixer, unregister_mixer

__all__ = ["Mixer", "MixerEntry", "find_mixer", "list_mixers", "load_mixer", "register_mixer", "unregister_mixer"]

_MODULES = (  # each registers its mixers; tables and lists keep this order
    *("tnn", "softmax", "alibi", "long_short", "elu", "performer", "cosformer", "flash", "gmlp", "synthesizer"),
    *("fnet", "gfnet", "afno", "s4", "dss", "gss", "kernelized", "skyformer", "nystromformer", "linformer"),
    *("informer", "reformer", "bigbird"),
)
for _module in _MODULES:
    import_module(f"tnn.mixers.{_module}")

__dir__ = public_names(__name__)
