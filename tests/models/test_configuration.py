"""Configurations: what is refused, and the presets with the paper's parameter counts."""

import pytest
import torch
from transformers import AutoConfig

import tnn
from tnn import TNNConfig, TNNImageConfig, TNNSeriesConfig
from tnn.layers import count_parameters
from tnn.mixers import list_mixers
from tnn.models import configuration


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm": "group"}, "norm must be one of 'simple_rms', 'layer', 'rms', 'scale', 'batch'; got 'group'"),
        ({"final_norm": "group"}, "final_norm must be one of"),
        ({"inner_norm": "group"}, "inner_norm must be one of"),
        ({"glu_dropout": 1.5}, "glu_dropout must be in"),
        ({"structure": "glu"}, "structure must be one of 'gtu\\+glu', 'gtu', 'attention\\+glu'; got 'glu'"),
        ({"decay": 1.5}, r"decay must be in \[0, 1\]; got 1.5"),
        ({"decay_mode": "maybe"}, "decay_mode must be one of"),
        ({"rpe_input": "float"}, "rpe_input must be one of"),
        ({"rpe_activation": "swish"}, "rpe_activation must be one of"),
        ({"hidden_act": "swish"}, "hidden_act must be one of"),
        ({"coefficients": "free"}, "max_lags must be given"),
        ({"coefficients": "fixed"}, "coefficients must be one of"),
        ({"norm_position": "both"}, "norm_position must be one of 'pre', 'post'; got 'both'"),
        ({"position_embedding": "rope"}, "position_embedding must be one of 'none', 'sinusoidal', 'interleaved', 'l"),
        ({"position_embedding": "learned"}, "max_position_embeddings must be given"),
        ({"pooling": "max"}, "pooling must be one of 'mean', 'first', 'last'; got 'max'"),
        ({"initializer": "zeros"}, "initializer must be one of"),
        ({"backend": "cuda"}, "backend must be one of"),
        ({"mixer": "rnn"}, "no mixer 'rnn'; "),
        ({"mixer_options": {"heads": 2}}, "^mixer 'tnn' has no option 'heads'; "),
        ({"mixer_options": {"decay": 0.5}}, "^mixer_options must not have 'decay': the configuration has a field"),
        ({"hidden_size": 0}, "hidden_size must be at least 1; got 0"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be at least 1; got 0"),
        ({"vocab_size": 0}, "vocab_size must be at least 1; got 0"),
        ({"pad_token_id": 70, "vocab_size": 64}, "pad_token_id must be below vocab_size 64; got 70"),
        ({"gtu_expansion": 0.3}, "gtu_expansion must make"),
        ({"dropout": 2.0}, r"dropout must be in \[0, 1\]; got 2.0"),
        ({"embedding_dropout": -1.0}, r"embedding_dropout must be in \[0, 1\]; got -1.0"),
        ({"bandwidth_tolerance": -1.0}, "bandwidth_tolerance must be finite and 0 or more; got -1.0"),
        ({"mixer": "attention", "num_attention_heads": 7}, "^num_attention_heads must divide hidden_size 512"),
        ({"mixer": "transformer", "num_attention_heads": 7}, "^num_attention_heads must divide hidden_size 512; got 7"),
        ({"mixer": "transformer", "glu_expansion": 0.3}, "^glu_expansion must make 512 .* a whole number"),
        ({"hiden_size": 64}, "^TNNConfig has no argument 'hiden_size'; did you mean 'hidden_size'\\?$"),
        ({"n_layers": 3}, "^TNNConfig has no argument 'n_layers'; "),
        ({"zzz": 3}, "^TNNConfig has no argument 'zzz'; choose from the fields that its documentation lists$"),
        ({"mixer": ["tnn"] * 3}, "^mixer must have one entry per layer .* got 3 for num_hidden_layers=7$"),
        ({"mixer": ["tnn"] * 6 + ["fnet"]}, "^mixer 'fnet' has no causal form: it is bidirectional only$"),
        ({"mixer": ["tnn"] * 6 + ["fnt"]}, "^no mixer 'fnt'; did you mean 'fnet'\\?$"),
        ({"mixer": ["tnn"] * 7, "mixer_options": {"max_length": 9}}, "^mixer_options of a list .* got 'max_length'$"),
        ({"mixer": "my.module:Mine"}, "^mixer 'my.module:Mine' is not registered: call tnn"),
    ],
)
def test_unknown_values_are_told(changes, message):
    with pytest.raises(ValueError, match=message) as error:
        TNNConfig(**changes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_size": 225}, "image_size must be a multiple of patch_size 16; got 225"),
        ({"dims": 3}, r"dims must be 1 \(a sequence\) or 2 \(a grid\); got 3"),
        ({"form": "difference"}, "form must be one of 'sum', 'product'; got 'difference'"),
        ({"pool_norm": "group"}, "pool_norm must be one of"),
        ({"mixer": "attention"}, "needs dims=1"),
        ({"num_hidden_layers": 2, "mixer": ["tnn", "transformer"]}, "mixer 'transformer' needs dims=1"),
        ({"is_decoder": True}, "TNNImageConfig has no argument 'is_decoder'"),
    ],
)
def test_unknown_image_values_are_told(changes, message):
    with pytest.raises(ValueError, match=message):
        TNNImageConfig(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": 0}, "horizon must be at least 1; got 0"),
        ({"targets": []}, "targets must name at least one column"),
        ({"targets": "load"}, "targets must be a list of names of columns; got 'load'"),
        ({"targets": ["a", "b", "a"]}, "targets must name each column once; it has 'a' twice"),
        ({"quantiles": [0.1, 0.9]}, r"with 0.5 among them; got \[0.1, 0.9\]"),
        ({"quantiles": [0.5, 0.1]}, "quantiles must ascend from above 0 to below 1"),
        ({"quantiles": [0.5, 1]}, "quantiles must ascend from above 0 to below 1"),
        ({"quantiles": [True]}, "quantiles must be a list of finite numbers"),
        ({"known": ["hour"], "known_mean": [1, 2]}, "known_mean must have 1 numbers, one per known column"),
        ({"known": ["hour"], "known_std": [0]}, r"known_std must be above 0; got \[0\]"),
    ],
)
def test_unknown_values_for_series_are_told(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        TNNSeriesConfig(**changes)


def test_values_are_checked_without_building_a_module(monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("a configuration builds no module")

    monkeypatch.setattr(torch.nn.Module, "__init__", fail)
    for name in tnn.list_presets():
        tnn.load_preset(name)


def test_an_unknown_field_of_a_preset_is_refused():
    with pytest.raises(ValueError, match=r"^TNNConfig has no argument 'hidden_layers'; did you mean 'num_hidden_lay"):
        tnn.load_preset("mini-alm", hidden_layers=3)


def test_keys_that_other_tools_add_to_a_saved_configuration_are_kept_with_a_warning(monkeypatch):
    warnings = []
    monkeypatch.setattr(configuration.logger, "warning", lambda text, *values: warnings.append(text % values))
    fields = TNNConfig(hidden_size=32).to_dict()
    config = TNNConfig.from_dict(fields | {"zz_version": "2", "unused": 3})
    assert (config.zz_version, config.unused, config.hidden_size) == ("2", 3, 32)
    assert warnings == ["keys of the configuration that TNNConfig does not know: zz_version, unused"]
    with pytest.raises(ValueError, match=r"^TNNConfig has no argument 'hiden_size'; did you mean 'hidden_size'"):
        TNNConfig.from_dict(fields | {"hiden_size": 8})


def test_what_generic_code_reads_is_there():
    config = TNNConfig()
    for name in ("use_cache", "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "is_decoder"):
        assert hasattr(config, name)
    assert TNNConfig(use_cache=False).use_cache is False
    ids = torch.tensor([[5, 6, 7]])
    sizes = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1}
    for use_cache in (None, False, True):
        model = tnn.TNNForCausalLM(TNNConfig(**sizes, use_cache=use_cache)).eval()
        assert (model(ids).past_key_values is not None) == (use_cache is not False)  # None: as 0.1 has saved it
        assert model.generate(ids, max_new_tokens=2, do_sample=False, eos_token_id=None).shape == (1, 5)


def test_names_of_the_first_version():
    assert TNNConfig(structure="gtu").mixer == "gtu"
    assert TNNConfig(structure="gtu+glu").mixer == "tnn"
    assert TNNConfig(structure="attention+glu", num_attention_heads=2).mixer == "attention"
    assert TNNConfig(structure="gtu+glu", mixer="s4").mixer == "s4"
    assert TNNConfig(mixer="s4", mixer_options={"faithful": True}).mixer_options == {"as_published": True}
    assert "structure" not in TNNConfig(structure="gtu").to_dict()


def test_an_image_configuration_with_what_transformers_sets_on_any_loads_again(tmp_path):
    config = TNNImageConfig()
    config.tie_word_embeddings = False
    config.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).tie_word_embeddings is False


def test_round_trip_through_json(tmp_path):
    config = TNNConfig(hidden_size=32, decay=0.5, max_lags=100, mixer_options={}, id2label={0: "a", 1: "b", 2: "c"})
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert loaded.to_diff_dict() == config.to_diff_dict()
    assert loaded.num_labels == 3


# --- presets: trained parameters, fixed decays as the paper counts them, and the encoder of Long-Range Arena models

SIZES = {
    "wikitext103-alm": (48_666_624, 48_677_376),
    "wikitext103-blm": (126_372_441, 126_400_089),
    "imagenet-tiny": (6_408_232, 6_422_056),
    "imagenet-small": (23_373_544, None),
}
RECOMMENDED = {"tnn-mini": 677_248, "tnn-small": 5_729_728, "tnn-base": 48_604_352}
ENCODERS = {
    "lra-text": 66_624,
    "lra-listops": 66_624,
    "lra-retrieval": 66_624,
    "lra-pathfinder": 70_016,
    "lra-image": 70_016,
    "lra-text-large": 623_104,
    "lra-listops-large": 425_472,
    "lra-retrieval-large": 66_624,
    "lra-pathfinder-large": 459_392,
    "lra-pathx-large": 459_392,
    "lra-image-large": 3_096_064,
}
MINIS = ["mini-alm", "mini-blm", "mini-lra", "mini-lra-image", "mini-image", "mini-forecast"]


def model_of(name):
    config = tnn.load_preset(name)
    if isinstance(config, TNNImageConfig):
        return tnn.TNNForImageClassification(config)
    if isinstance(config, TNNSeriesConfig):
        return tnn.TNNForForecasting(config)
    if config.is_decoder:
        return tnn.TNNForCausalLM(config)
    return (tnn.TNNForMaskedLM if name.endswith("blm") else tnn.TNNForSequenceClassification)(config)


def test_the_tables_name_every_preset():
    """Those of other mixers are in tests/mixers/test_counts.py."""
    others = tuple(f"-{name}" for name in list_mixers())
    own = [name for name in tnn.list_presets() if not name.endswith(others)]
    assert {*SIZES, *RECOMMENDED, *ENCODERS, *MINIS} == set(own)


@pytest.mark.parametrize("name", RECOMMENDED)
def test_sizes_of_the_recommended_presets(name):
    assert model_of(name).num_parameters() == RECOMMENDED[name]


@pytest.mark.parametrize("name", SIZES)
def test_presets_have_the_papers_counts(name):
    trained, with_decays = SIZES[name]
    with torch.device("meta"):
        count = count_parameters(model_of(name))
    assert count.trained == trained
    if with_decays is not None:
        assert sum(count) == with_decays


def test_the_language_model_starts_from_torchs_default():
    model = tnn.TNNForCausalLM(tnn.load_preset("wikitext103-alm", vocab_size=1000, num_hidden_layers=1))
    gtu = model.model.layers[0].token_mixer
    for layer in (gtu.gate_proj, gtu.value_proj, gtu.out_proj):
        assert layer.weight.abs().max().item() == pytest.approx(layer.in_features**-0.5, rel=0.01)
    assert model.model.embed_tokens.weight.std().item() == pytest.approx(512**-0.5, rel=0.01)


@pytest.mark.parametrize("name", ENCODERS)
def test_long_range_arena_encoders_have_the_papers_counts(name):
    with torch.device("meta"):
        model = model_of(name).model
    assert sum(count_parameters(part).trained for part in (model.layers, model.norm)) == ENCODERS[name]


@pytest.mark.parametrize("name", MINIS)
def test_mini_presets_run(name):
    model = model_of(name).eval()
    if isinstance(model.config, TNNImageConfig):
        side = model.config.image_size
        assert model(torch.randn(1, 1, side, side)).logits.shape == (1, 10)
    elif isinstance(model.config, TNNSeriesConfig):
        assert model(torch.randn(1, 50, 1)).quantiles.shape == (1, 1, 24, 1, 7)
    else:
        assert model(torch.randint(3, 18, (1, 50))).logits.isfinite().all()
    assert sum(p.numel() for p in model.parameters()) < 1_000_000


def test_presets_can_be_changed_and_unknown_ones_are_told():
    assert tnn.load_preset("wikitext103-alm", decay=0.5).decay == 0.5
    with pytest.raises(ValueError, match=r"no preset 'wikitext103-aml'; did you mean 'wikitext103-alm'\?"):
        tnn.load_preset("wikitext103-aml")
    with pytest.raises(ValueError, match="no preset 'x'; choose from wikitext103-alm, "):
        tnn.load_preset("x")
