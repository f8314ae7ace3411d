"""Wrong options of a mixer: the same error from a configuration, from the registry and from the constructor."""

from inspect import signature

import pytest
import torch
from torch import nn

from tnn import TNNConfig
from tnn.mixers import find_mixer, list_mixers, register_mixer, unregister_mixer
from tnn.mixers.attention import Attention

SIZE = 16
COUNTS = [0, -1, "8", 2.5, True]  # bad values of a number of things
EVEN_COUNTS = [*COUNTS, 7]
FRACTIONS = [-0.1, 1.5, float("nan"), "0.1", False]
EXPANSIONS = [0, -1, 0.3, float("inf"), "2", True]
STEPS = [0.0, -1.0, float("nan"), float("inf"), "0.1", True]
HEADS = {"num_heads": [0, -1, 3, 32]}
DROPOUT = {"attention_dropout": FRACTIONS}
OPERATOR = {  # of TNN: fields of the configuration
    "coefficients": ["x"],
    "max_lags": [0, -1],
    "decay": [-0.5, 1.5],
    "decay_mode": ["x"],
    "rpe_size": [0, -1],
    "rpe_num_layers": [0, -1],
    "rpe_input": ["x"],
    "rpe_activation": ["x"],
    "rpe_norm": ["x"],
    "bandwidth_tolerance": [-1.0],
    "backend": ["x"],
    "expansion": [0, -1.0, 0.3],
    "operator_dropout": FRACTIONS,
    "input_gate": [1, "x"],
    "operator_norm": [1, "x"],
    "short_convolution": [0, -1],
}
STATE_SPACE = {"dt_min": [*STEPS, 0.2], "dt_max": [*STEPS, 1e-4], "inner_dropout": FRACTIONS}
BAD_OPTIONS = {
    "tnn": OPERATOR,
    "gtu": OPERATOR,
    "transformer": HEADS | DROPOUT,
    "attention": HEADS | DROPOUT,
    "alibi": HEADS | DROPOUT,
    "transformer-ls": HEADS | DROPOUT | dict.fromkeys(("window", "chunk", "memory", "landmarks"), COUNTS),
    "elu": HEADS,
    "performer": HEADS | {"features": COUNTS},
    "cosformer": HEADS,
    "flash": {"expansion": EXPANSIONS, "key_size": EVEN_COUNTS, "max_length": COUNTS, "chunk": COUNTS},
    "flash-quad": {"expansion": EXPANSIONS, "key_size": EVEN_COUNTS, "max_length": COUNTS},
    "gmlp": {"expansion": [*EXPANSIONS, 15 / 16], "max_length": COUNTS},
    "synthesizer-dense": {"max_length": COUNTS},
    "synthesizer-random": {"max_length": COUNTS},
    "fnet": {},
    "gfnet": {"max_length": COUNTS},
    "afno": {"blocks": [*COUNTS, 3, 32]},
    "s4": STATE_SPACE | {"state_size": EVEN_COUNTS, "n_ssm": [*COUNTS, 3]},
    "dss": STATE_SPACE | {"state_size": COUNTS},
    "gss": {"expansion": EXPANSIONS, "state_channels": COUNTS, "state_size": COUNTS},
    "kernelized": HEADS | DROPOUT,
    "skyformer": HEADS | {"landmarks": EVEN_COUNTS, "regularization": [-1.0, "1"], "iterations": COUNTS},
    "nystromformer": HEADS | {"landmarks": COUNTS, "iterations": COUNTS},
    "linformer": HEADS | DROPOUT | {"projected": COUNTS, "max_length": COUNTS},
    "informer": HEADS | DROPOUT | {"factor": COUNTS},
    "reformer": HEADS | {"hashes": COUNTS, "chunk": COUNTS},
    "bigbird": HEADS | DROPOUT | {"block": COUNTS, "random_blocks": COUNTS, "seed": [-1, "0"]},
}
# Options that depend on each other.
BAD_PAIRS = [
    ("flash", False, {"as_published": True, "chunk": 64, "max_length": 32}),
    ("transformer-ls", True, {"as_published": True, "memory": 100}),
    ("transformer-ls", True, {"as_published": True, "memory": 32}),
    ("s4", True, {"dt_min": 0.2, "dt_max": 0.1}),
]
UNCHECKED = {"as_published", "redraw", "hidden_act", "dims", "form", "initializer_range", "num_poles"}

CASES = [
    pytest.param(name, option, value, id=f"{name}-{option}-{value}")
    for name, options in BAD_OPTIONS.items()
    for option, values in options.items()
    for value in values
]


def fields_for(name, options):
    """The fields of TNNConfig that set these options."""
    names = {"num_heads": "num_attention_heads"}
    if name in ("tnn", "gtu"):
        names |= {option: option for option in OPERATOR} | {"expansion": "gtu_expansion"}
    fields = {names[option]: value for option, value in options.items() if option in names}
    return fields | {"mixer_options": {option: value for option, value in options.items() if option not in names}}


def error_of(call):
    with pytest.raises((ValueError, TypeError)) as error:
        call()
    assert "\n" not in str(error.value)
    return type(error.value), str(error.value)


def errors_of(name, causal, options):
    entry = find_mixer(name)
    constructor = error_of(lambda: entry.cls(SIZE, causal=causal, **options))
    registry = error_of(lambda: entry.check(SIZE, causal=causal, **options))
    fields = {"hidden_size": SIZE, "is_decoder": causal, "mixer": name, **fields_for(name, options)}
    config = error_of(lambda: TNNConfig(**fields))
    return constructor, registry, config


def test_every_option_of_every_mixer_is_in_the_table():
    assert set(BAD_OPTIONS) == set(list_mixers())
    for name, options in BAD_OPTIONS.items():
        assert set(options) == set(find_mixer(name).cls.option_names()) - UNCHECKED


@pytest.mark.parametrize(("name", "option", "value"), CASES)
def test_a_bad_value_is_one_error_everywhere(name, option, value):
    constructor, registry, config = errors_of(name, False, {option: value})
    assert registry == constructor
    renamed = {"num_heads": "num_attention_heads"}
    renamed |= {"expansion": "gtu_expansion"} if name in ("tnn", "gtu") else {}
    kind, message = constructor
    assert config == (kind, message.replace(option, renamed.get(option, option)))
    assert option in message


@pytest.mark.parametrize(("name", "causal", "options"), BAD_PAIRS)
def test_a_bad_pair_is_one_error_everywhere(name, causal, options):
    constructor, registry, config = errors_of(name, causal, options)
    assert constructor == registry == config


@pytest.mark.parametrize("name", list_mixers())
def test_hidden_size_and_direction_are_checked(name):
    entry = find_mixer(name)
    for size in (0, -1, "16"):
        constructor = error_of(lambda size=size: entry.cls(size))
        assert constructor == error_of(lambda size=size: entry.cls.check_options(size))
        assert "hidden_size" in constructor[1]
    if not entry.cls.has_causal_form:
        constructor = error_of(lambda: entry.cls(SIZE, causal=True))
        assert constructor == error_of(lambda: entry.cls.check_options(SIZE, causal=True))
        assert constructor == (ValueError, f"{entry.cls.__name__} is bidirectional only; got causal=True")


@pytest.mark.parametrize("name", list_mixers())
def test_checking_builds_nothing(name, monkeypatch):
    """Neither a module nor a parameter: a configuration costs less than a millisecond."""
    TNNConfig()  # imports what it needs

    def refuse(*args, **options):
        raise AssertionError("a configuration must not build anything")

    monkeypatch.setattr(nn.Module, "__init__", refuse)
    monkeypatch.setattr(nn.Parameter, "__new__", refuse)
    monkeypatch.setattr(torch, "empty", refuse)
    entry = find_mixer(name)
    options = dict(entry.small_options)
    TNNConfig(hidden_size=SIZE, is_decoder=entry.cls.has_causal_form, mixer=name, **fields_for(name, options))
    entry.check(SIZE, causal=False, **options)
    with pytest.raises(AssertionError, match="must not build"):
        entry.cls(SIZE, **options)


@pytest.mark.parametrize("name", list_mixers())
def test_checks_have_the_defaults_of_the_constructor(name):
    cls = find_mixer(name).cls
    constructor = signature(cls).parameters
    for base in cls.__mro__:
        if "check_options" in vars(base):
            for option, parameter in signature(base.check_options).parameters.items():
                if option in constructor and parameter.default is not parameter.empty:
                    assert parameter.default == constructor[option].default


class Shift(Attention):
    """A mixer of a user's own, without checks of its own."""

    def __init__(self, hidden_size, *, causal=False, num_heads=1, steps=1):
        super().__init__(hidden_size, causal=causal, num_heads=num_heads)
        self.steps = steps

    def mix(self, x):
        return self.out_proj(x.roll(self.steps, -2))


class CheckedShift(Shift):
    """One that checks its option, which has no default."""

    def __init__(self, hidden_size, *, steps, causal=False, num_heads=1):
        CheckedShift.check_options(hidden_size, steps=steps)
        super().__init__(hidden_size, causal=causal, num_heads=num_heads, steps=steps)

    @classmethod
    def check_options(cls, hidden_size, *, steps, **options):
        super().check_options(hidden_size, **options)
        if steps < 1:
            raise ValueError(f"steps must be at least 1; got {steps}")


@pytest.fixture
def shift():
    for name, cls in (("shift", Shift), ("checked-shift", CheckedShift)):
        register_mixer(name, cls)
    yield
    for name in ("shift", "checked-shift"):
        unregister_mixer(name)


@pytest.mark.usefixtures("shift")
def test_a_mixer_without_checks_works_and_keeps_those_of_its_base():
    TNNConfig(hidden_size=SIZE, mixer="shift", mixer_options={"steps": 2})
    with pytest.raises(ValueError, match=r"^num_attention_heads must divide hidden_size 16; got 3$"):
        TNNConfig(hidden_size=SIZE, mixer="shift", num_attention_heads=3)
    with pytest.raises(ValueError, match=r"^num_heads must divide hidden_size 16; got 3$"):
        Shift(SIZE, num_heads=3)


@pytest.mark.usefixtures("shift")
def test_a_mixer_adds_checks_to_those_of_its_base():
    assert CheckedShift(SIZE, steps=2)(torch.randn(1, 5, SIZE)).shape == (1, 5, SIZE)
    for call in (
        lambda: CheckedShift(SIZE, steps=0),
        lambda: find_mixer("checked-shift").check(SIZE, causal=True, steps=0),
        lambda: TNNConfig(hidden_size=SIZE, mixer="checked-shift", mixer_options={"steps": 0}),
    ):
        assert error_of(call) == (ValueError, "steps must be at least 1; got 0")
    assert error_of(lambda: CheckedShift(SIZE, steps=1, num_heads=3))[1].startswith("num_heads must divide")
