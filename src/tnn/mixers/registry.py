"""All token mixers, by name. `@register_mixer("name")` above a class makes it known to models, recipes and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, TypeVar, overload

from tnn._names import did_you_mean
from tnn.layers.mixer import Mixer
from tnn.mixers.presets import Preset

ChannelMixer = Literal["glu", "ffn"]
MixerClass = TypeVar("MixerClass", bound=type[Mixer])

_ENTRIES: dict[str, MixerEntry] = {}
# Of TNNBlock itself.
_BLOCK_OPTIONS = ("mixer", "glu_expansion", "glu_dropout", "norm", "norm_position", "inner_norm", "dropout")


@dataclass(frozen=True)
class MixerEntry:
    """A registered mixer, and what stands around it in a block."""

    name: str
    cls: type[Mixer]
    channel_mixer: ChannelMixer | None = "glu"
    presets: tuple[Preset, ...] = field(default=(), repr=False)
    small_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def check(self, hidden_size: int, *, causal: bool, **options: Any) -> None:
        """Check the options of the mixer, names and values, without building it."""
        if causal and not self.cls.has_causal_form:
            raise ValueError(f"mixer {self.name!r} has no causal form: it is bidirectional only")
        known = self.cls.option_names()
        for name in options:
            if name not in known:
                raise ValueError(f"mixer {self.name!r} has no option {name!r}; {did_you_mean(name, known)}")
        self.cls.check_options(hidden_size, causal=causal, **options)


@overload
def register_mixer(
    name: str,
    *,
    channel_mixer: ChannelMixer | None = ...,
    presets: Iterable[Preset] = ...,
    small_options: Mapping[str, Any] | None = ...,
) -> Callable[[MixerClass], MixerClass]: ...


@overload
def register_mixer(
    name: str,
    cls: MixerClass,
    *,
    channel_mixer: ChannelMixer | None = ...,
    presets: Iterable[Preset] = ...,
    small_options: Mapping[str, Any] | None = ...,
) -> MixerClass: ...


def register_mixer(
    name: str,
    cls: Any = None,
    *,
    channel_mixer: ChannelMixer | None = "glu",
    presets: Iterable[Preset] = (),
    small_options: Mapping[str, Any] | None = None,
) -> Any:
    """Make a subclass of `Mixer` known as `TNNConfig(mixer=name)`, in recipes and in the tables of the paper.

    Call it with the class, or use it as a decorator: `@register_mixer("name")`.

    Args:
        name: what `mixer` is set to in a configuration.
        cls: the class; None to decorate one.
        channel_mixer: what follows in a block: "glu" (TNN's), "ffn" (a Transformer's) or None.
        presets: configurations that only this mixer has; see tnn.mixers.presets.
        small_options: options for tests on short sequences.

    >>> from tnn import TNNConfig, TNNModel
    >>> from tnn.mixers import Mixer, register_mixer, unregister_mixer
    >>> @register_mixer("running-mean")
    ... class RunningMean(Mixer):
    ...     def mix(self, x):
    ...         return x.cumsum(-2) / torch.arange(1, x.shape[-2] + 1)[:, None]
    >>> model = TNNModel(TNNConfig(vocab_size=10, hidden_size=4, num_hidden_layers=1, mixer="running-mean"))
    >>> unregister_mixer("running-mean")
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"the name of a mixer must be a string; got {name!r}")

    def register(cls: Any) -> Any:
        if not (isinstance(cls, type) and issubclass(cls, Mixer)):
            raise TypeError(f"mixer {name!r} must be a subclass of tnn.mixers.Mixer; got {cls!r}")
        if name in _ENTRIES:
            owner = _ENTRIES[name].cls
            raise ValueError(f"mixer {name!r} is registered already, as {owner.__module__}.{owner.__qualname__}")
        if clash := [option for option in cls.option_names() if option in _BLOCK_OPTIONS]:
            raise ValueError(f"mixer {name!r} must not have an option {clash[0]!r}: the block around it has one")
        if channel_mixer not in ("glu", "ffn", None):
            raise ValueError(f"channel_mixer must be 'glu', 'ffn' or None; got {channel_mixer!r}")
        own = tuple(preset._replace(name=preset.name.replace("{mixer}", name)) for preset in presets)
        taken = {preset.name: entry.name for entry in _ENTRIES.values() for preset in entry.presets}
        for preset in own:
            if preset.name in taken:
                raise ValueError(f"preset {preset.name!r} is registered already, by mixer {taken[preset.name]!r}")
        _ENTRIES[name] = MixerEntry(name, cls, channel_mixer, own, dict(small_options or {}))
        return cls

    return register if cls is None else register(cls)


def unregister_mixer(name: str) -> None:
    """Forget a mixer, for instance to register a new version of its class in a notebook."""
    find_mixer(name)
    del _ENTRIES[name]


def list_mixers() -> list[str]:
    """The names of all registered mixers.

    >>> from tnn.mixers import list_mixers
    >>> {"tnn", "transformer", "s4"} <= set(list_mixers())
    True
    """
    return list(_ENTRIES)


def find_mixer(name: str) -> MixerEntry:
    """A registered mixer by its name.

    >>> from tnn.mixers import find_mixer
    >>> find_mixer("fnet").cls.has_causal_form
    False
    """
    if not isinstance(name, str):
        raise TypeError(f"mixer must be the name of a registered mixer; got {name!r}")
    if name in _ENTRIES:
        return _ENTRIES[name]
    if ":" in name:  # never imported here: a configuration file must not decide what code runs
        how = f"call tnn.mixers.load_mixer({name!r}), or run tnn --mixer {name}"
        raise ValueError(f"mixer {name!r} is not registered: {how}")
    raise ValueError(f"no mixer {name!r}; {did_you_mean(name, _ENTRIES)}")


def load_mixer(path: str) -> MixerEntry:
    """Import the class at `package.module:Class` and register it under that name, once.

    >>> from tnn.mixers import load_mixer, unregister_mixer
    >>> load_mixer("tnn.mixers.fnet:FourierMixer").name
    'tnn.mixers.fnet:FourierMixer'
    >>> unregister_mixer("tnn.mixers.fnet:FourierMixer")
    """
    if path in _ENTRIES:
        return _ENTRIES[path]
    module_name, colon, class_name = path.partition(":")
    if not (module_name and colon and class_name):
        raise ValueError(f"a mixer's path must be package.module:Class; got {path!r}")
    try:
        module = import_module(module_name)
    except Exception as error:  # whatever the module raises while it is imported
        raise ValueError(f"mixer {path!r}: module {module_name!r} cannot be imported: {error}") from error
    if not hasattr(module, class_name):
        raise ValueError(f"mixer {path!r}: module {module_name!r} has no class {class_name!r}")
    cls = getattr(module, class_name)
    register_mixer(path, cls, channel_mixer=_registered_channel_mixer(cls))
    return _ENTRIES[path]


def _registered_channel_mixer(cls: Any) -> ChannelMixer | None:
    """That of the class' own registration, if its module has one."""
    return next((entry.channel_mixer for entry in _ENTRIES.values() if entry.cls is cls), "glu")
