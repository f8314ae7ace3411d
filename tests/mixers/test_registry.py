"""Registering mixers: what a user's own mixer can do, and what is refused."""

import pytest
import torch

import tnn
from tnn import TNNConfig, TNNForCausalLM
from tnn.mixers import Mixer, find_mixer, list_mixers, load_mixer, register_mixer, unregister_mixer


class Shift(Mixer):
    def __init__(self, hidden_size, *, causal=False, by=1):
        super().__init__(hidden_size, causal=causal)
        self.by = by

    def mix(self, x):
        return x.roll(self.by, -2)


@pytest.fixture
def shift():
    register_mixer("shift", Shift)
    yield
    unregister_mixer("shift")


def test_registered_by_a_call_or_a_decorator():
    assert register_mixer("a-shift", Shift) is Shift
    assert register_mixer("b-shift")(Shift) is Shift
    assert [find_mixer(name).cls for name in ("a-shift", "b-shift")] == [Shift, Shift]
    assert {"a-shift", "b-shift"} <= set(list_mixers())
    for name in ("a-shift", "b-shift"):
        unregister_mixer(name)
    assert not {"a-shift", "b-shift"} & set(list_mixers())


@pytest.mark.parametrize(
    ("register", "error", "message"),
    [
        (
            lambda: register_mixer("tnn", Shift),
            ValueError,
            "mixer 'tnn' is registered already, as tnn.layers.gated.Gat",
        ),
        (lambda: register_mixer("shift", Shift), ValueError, "mixer 'shift' is registered already, as .*Shift$"),
        (lambda: register_mixer("", Shift), TypeError, "the name of a mixer must be a string; got ''"),
        (lambda: register_mixer("x", torch.nn.Linear), TypeError, "mixer 'x' must be a subclass of tnn.mixers.Mixer"),
        (lambda: register_mixer("x", Shift, channel_mixer="mlp"), ValueError, "channel_mixer must be 'glu', 'ffn' or"),
        (lambda: unregister_mixer("nothing"), ValueError, "no mixer 'nothing'; "),
        (lambda: load_mixer("my_shift"), ValueError, "a mixer's path must be package.module:Class; got 'my_shift'"),
        (
            lambda: load_mixer("no_such_module:Mine"),
            ValueError,
            "module 'no_such_module' cannot be imported: No module",
        ),
        (lambda: load_mixer("tnn.mixers:Mine"), ValueError, "module 'tnn.mixers' has no class 'Mine'"),
        (lambda: load_mixer("tnn.ops:dense"), ValueError, "module 'tnn.ops' has no class|must be a subclass"),
        (lambda: TNNConfig(mixer="shift", mixer_options={"bye": 2}), ValueError, "no option 'bye'; did you mean 'by'?"),
    ],
)
def test_bad_input_is_one_line(shift, register, error, message):
    with pytest.raises((error, TypeError), match=message) as told:
        register()
    assert "\n" not in str(told.value)


def test_a_module_that_fails_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "broken_mixers.py").write_text("raise RuntimeError('not today')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"^mixer 'broken_mixers:Mine': module 'broken_mixers' cannot be imp"):
        load_mixer("broken_mixers:Mine")


def test_options_of_the_block_are_not_for_mixers():
    class Wrong(Mixer):
        def __init__(self, hidden_size, *, causal=False, dropout=0.1):
            super().__init__(hidden_size, causal=causal)

    with pytest.raises(ValueError, match=r"^mixer 'wrong' must not have an option 'dropout': the block"):
        register_mixer("wrong", Wrong)


def test_loaded_by_its_path(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from tnn.mixers import Mixer\n"
        "class Mean(Mixer):\n"
        "    def mix(self, x):\n"
        "        return x.mean(-2, keepdim=True).expand_as(x)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    entry = load_mixer("mine:Mean")
    assert load_mixer("mine:Mean") is entry
    config = TNNConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, is_decoder=False, mixer="mine:Mean")
    model = tnn.TNNForMaskedLM(config).eval()
    assert model(torch.tensor([[5, 6, 7]])).logits.shape == (1, 3, 20)
    unregister_mixer("mine:Mean")


def test_a_saved_model_loads_when_its_mixer_is_registered_again(tmp_path, shift):
    config = TNNConfig(vocab_size=20, hidden_size=8, num_hidden_layers=2, mixer="shift", mixer_options={"by": 2})
    model = TNNForCausalLM(config).eval()
    model.save_pretrained(tmp_path)
    unregister_mixer("shift")
    with pytest.raises(ValueError, match=r"^no mixer 'shift'; "):
        TNNForCausalLM.from_pretrained(tmp_path)
    register_mixer("shift", Shift)
    loaded = TNNForCausalLM.from_pretrained(tmp_path)
    ids = torch.tensor([[5, 6, 7, 8]])
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert loaded.model.layers[0].mixer.by == 2


def test_the_registry_has_what_each_file_registers():
    for name in list_mixers():
        entry = find_mixer(name)
        assert entry.name == name
        assert issubclass(entry.cls, Mixer)
        assert entry.cls.__doc__
