"""Presets come from the registry: each mixer brings its own, a user's mixer too."""

import pytest

import tnn
from tnn import TNNConfig, TNNImageConfig, TNNSeriesConfig
from tnn.mixers import Mixer, find_mixer, list_mixers, register_mixer, unregister_mixer
from tnn.mixers.presets import LRA_TASKS, Preset, lra, mini_causal_lm, mini_lra_image


class Copy(Mixer):
    def mix(self, x):
        return x


@pytest.fixture
def copy_mixer():
    presets = [
        mini_causal_lm(num_hidden_layers=1, hidden_size=8),
        mini_lra_image(),
        *[lra(task, num_hidden_layers=1, hidden_size=8) for task in LRA_TASKS],
        Preset("my-own-name", {"vocab_size": 11}),
    ]
    register_mixer("copy", Copy, presets=presets)
    yield
    unregister_mixer("copy")


def test_names_are_unique_and_those_of_tnn_are_first():
    names = tnn.list_presets()
    assert len(set(names)) == len(names) == 193
    own = [preset.name for preset in find_mixer("tnn").presets]
    assert names[: len(own)] == own
    assert "wikitext103-alm" in own


def test_every_preset_loads_with_the_mixer_that_registers_it():
    for mixer in list_mixers():
        for preset in find_mixer(mixer).presets:
            config = tnn.load_preset(preset.name)
            assert config.mixer == mixer
            kind = TNNSeriesConfig if preset.series else TNNImageConfig if preset.image else TNNConfig
            assert type(config) is kind


def test_every_mixer_of_the_comparison_has_a_small_preset():
    for mixer in set(list_mixers()) - {"tnn", "gtu", "attention"}:
        assert f"mini-lra-{mixer}" in [preset.name for preset in find_mixer(mixer).presets]


@pytest.mark.usefixtures("copy_mixer")
def test_presets_of_a_users_mixer():
    assert tnn.list_presets()[-1] == "my-own-name"
    config = tnn.load_preset("mini-alm-copy", dropout=0.3)
    assert (config.mixer, config.hidden_size, config.vocab_size, config.dropout) == ("copy", 8, 260, 0.3)
    assert tnn.load_preset("my-own-name").vocab_size == 11
    assert isinstance(tnn.load_preset("mini-lra-image-copy"), TNNImageConfig)
    assert isinstance(tnn.load_preset("lra-pathfinder-copy"), TNNImageConfig)
    assert tnn.load_preset("lra-listops-copy").num_labels == 10
    unregister_mixer("copy")
    assert len(tnn.list_presets()) == 193
    register_mixer("copy", Copy)  # for the fixture


def test_a_name_that_is_taken_is_refused():
    with pytest.raises(ValueError, match=r"^preset 'mini-alm' is registered already, by mixer 'tnn'$"):
        register_mixer("copy", Copy, presets=[Preset("mini-alm", {})])
    assert "copy" not in list_mixers()


def test_a_loaded_preset_can_be_changed_without_changing_the_preset():
    config = tnn.load_preset("mini-alm-gss")
    config.mixer_options["expansion"] = 1
    assert tnn.load_preset("mini-alm-gss").mixer_options["expansion"] == 3.25


def test_mistakes_are_one_line():
    for name, changes, message in (
        ("mini-alm", {"n_layers": 3}, r"TNNConfig has no argument 'n_layers'; did you mean '\w*num_\w*layers'\?"),
        ("mini-alp", {}, r"no preset 'mini-alp'; did you mean 'mini-alm'\?"),
        ("x", {}, r"no preset 'x'; choose from wikitext103-alm, .*, and more in tnn\.list_presets\(\)"),
    ):
        with pytest.raises(ValueError, match=f"^{message}$"):
            tnn.load_preset(name, **changes)
