"""The methods that TNN is compared with, by name."""

from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Method:
    """Where a method is written, and in what kind of model it can stand."""

    home: str  # module of tnn.mixers
    mixer: str  # class in it
    causal: bool = True  # has a causal form
    feed_forward: bool = True  # a feed-forward layer follows in its block
    heads: bool = True

    def load(self) -> Any:
        return getattr(import_module(f"tnn.mixers.{self.home}"), self.mixer)


METHODS: dict[str, Method] = {
    "transformer": Method("softmax", "SoftmaxAttention"),
    "alibi": Method("alibi", "AlibiAttention"),
    "transformer-ls": Method("long_short", "LongShortAttention"),
    "elu": Method("elu", "EluAttention"),
    "performer": Method("performer", "PerformerAttention"),
    "cosformer": Method("cosformer", "CosformerAttention"),
    "flash": Method("flash", "FlashLinear", feed_forward=False, heads=False),
    "flash-quad": Method("flash", "FlashQuad", feed_forward=False, heads=False),
    "gmlp": Method("gmlp", "SpatialGating", feed_forward=False, heads=False),
    "synthesizer-dense": Method("synthesizer", "DenseSynthesizer", heads=False),
    "synthesizer-random": Method("synthesizer", "RandomSynthesizer", heads=False),
    "fnet": Method("fnet", "FourierMixer", causal=False, heads=False),
    "gfnet": Method("gfnet", "GlobalFilter", causal=False, heads=False),
    "afno": Method("afno", "AdaptiveFourier", causal=False, heads=False),
    "s4": Method("s4", "S4", feed_forward=False, heads=False),
    "dss": Method("dss", "DSS", feed_forward=False, heads=False),
    "gss": Method("gss", "GatedStateSpace", feed_forward=False, heads=False),
    "kernelized": Method("kernelized", "KernelizedAttention", causal=False),
    "skyformer": Method("skyformer", "SkyformerAttention", causal=False),
    "nystromformer": Method("nystromformer", "NystromAttention", causal=False),
    "linformer": Method("linformer", "LinformerAttention", causal=False),
    "informer": Method("informer", "InformerAttention", causal=False),
    "reformer": Method("reformer", "ReformerAttention", causal=False),
    "bigbird": Method("bigbird", "BigBirdAttention", causal=False),
}


def find_method(name: str) -> Method:
    """A method by its name, which is that of `mixer` in a configuration.

    >>> from tnn.mixers import find_method
    >>> find_method("fnet").causal
    False
    """
    if not isinstance(name, str):
        raise TypeError(f"mixer must be the name of a method; got {name!r}")
    if name in METHODS:
        return METHODS[name]
    close = get_close_matches(name, METHODS, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are 'tnn', {', '.join(map(repr, METHODS))}"
    raise ValueError(f"no mixer {name!r}; {hint}")
