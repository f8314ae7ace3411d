"""Conversion of the authors' checkpoints, against a forward pass written from their names alone."""

import os
import re
from argparse import Namespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

import tnn
from tnn import TNNForCausalLM, TNNForMaskedLM, load_preset
from tnn.models.reference import convert_reference, translate_reference

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "gtu_expansion": 2,
    "glu_expansion": 1.5,
    "rpe_size": 8,
    "rpe_num_layers": 2,
    "decay": 0.97,
}
IDS = torch.tensor([[0, 5, 6, 7, 8, 30, 31, 5, 5, 9, 2, 17]])

# Ours to theirs, by hand.
LAYER = [
    (r"token_mixer\.(mixer\.)?gate_proj", "self_attn.gtu.u_proj"),
    (r"token_mixer\.(mixer\.)?value_proj", "self_attn.gtu.v_proj"),
    (r"token_mixer\.(mixer\.)?out_proj", "self_attn.gtu.o"),
    (r"token_mixer\.(mixer\.)?operator\.rpe\.input", "self_attn.gtu.toep.rpe.pos_proj"),
    (r"token_mixer\.(mixer\.)?operator\.rpe\.hidden\.(\d+)", r"self_attn.gtu.toep.rpe.layers.\2.2"),
    (r"token_mixer\.(mixer\.)?operator\.rpe\.output", "self_attn.gtu.toep.rpe.out.2"),
    (r"channel_mixer\.gate_proj", "glu.l1"),
    (r"channel_mixer\.value_proj", "glu.l2"),
    (r"channel_mixer\.out_proj", "glu.l3"),
]
CAUSAL = [
    (r"^model\.(embed_tokens|layers)", r"decoder.\1"),
    (r"^model\.norm", "decoder.layer_norm"),
    (r"^lm_head", "decoder.output_projection"),
]
MASKED = [
    (r"^model\.(embed_tokens|layers)", r"encoder.sentence_encoder.\1"),
    (r"^model\.embed_norm", "encoder.sentence_encoder.layernorm_embedding"),
    (r"^lm_head\.norm", "encoder.lm_head.layer_norm"),
    (r"^lm_head\.dense", "encoder.lm_head.dense"),
    (r"^lm_head\.decoder", "encoder.lm_head"),
]


def tiny(kind="causal", **changes):
    preset = "wikitext103-alm" if kind == "causal" else "wikitext103-blm"
    model = (TNNForCausalLM if kind == "causal" else TNNForMaskedLM)(load_preset(preset, **SIZES | changes)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def reference_state(model):
    """The state dict of the authors' program for this model."""
    root = "decoder" if model.config.is_decoder else "encoder.sentence_encoder"
    state = {f"{root}.version": torch.tensor([3.0])}
    for name, tensor in model.state_dict().items():
        for ours, theirs in [*LAYER, *(CAUSAL if model.config.is_decoder else MASKED)]:
            name = re.sub(ours, theirs, name)
        state[name] = tensor.clone()
    if model.config.decay_mode == "fixed":
        channels = int(model.config.gtu_expansion * model.config.hidden_size)
        for n in range(model.config.num_hidden_layers):
            state[f"{root}.layers.{n}.self_attn.gtu.toep.gamma"] = torch.full((1, 1, channels), model.config.decay)
    return state


def write(path, state, **rest):
    torch.save({"model": state, "extra_state": {"epoch": 3}, **rest}, path)
    return path


# The authors' forward pass, on their names, with whole matrices.


def rms_norm(x):
    return x / (x.norm(dim=-1, keepdim=True) / x.shape[-1] ** 0.5 + 1e-8)


def linear(state, name, x):
    return F.linear(x, state[f"{name}.weight"], state[f"{name}.bias"])


def layer_norm(state, name, x):
    return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"])


def toeplitz(state, name, v, causal):
    n = v.shape[1]
    lags = torch.arange(n)[:, None] - torch.arange(n)
    z = linear(state, f"{name}.rpe.pos_proj", lags.reshape(-1, 1).double())
    i = 0
    while f"{name}.rpe.layers.{i}.2.weight" in state:
        z = linear(state, f"{name}.rpe.layers.{i}.2", F.relu(rms_norm(z)))
        i += 1
    matrix = linear(state, f"{name}.rpe.out.2", F.relu(rms_norm(z))).reshape(n, n, -1)
    if f"{name}.gamma" in state:
        matrix = matrix * state[f"{name}.gamma"] ** lags.abs()[..., None]
    if causal:
        matrix = matrix * (lags >= 0)[..., None]
    return torch.einsum("ijd,bjd->bid", matrix, v)


def gtu(state, name, x, causal, inner):
    y = rms_norm(x) if inner else x
    u, v = F.silu(linear(state, f"{name}.u_proj", y)), F.silu(linear(state, f"{name}.v_proj", y))
    y = linear(state, f"{name}.o", u * toeplitz(state, f"{name}.toep", v, causal))
    return y + x if inner else y


def glu(state, name, x):
    return linear(state, f"{name}.l3", F.silu(linear(state, f"{name}.l1", x)) * linear(state, f"{name}.l2", x))


def causal_logits(state, ids, inner=False, scale=True):
    state = {name: tensor.double() for name, tensor in state.items()}
    x = state["decoder.embed_tokens.weight"][ids]
    x = x * x.shape[-1] ** 0.5 if scale else x
    for n in range(SIZES["num_hidden_layers"]):
        x = x + gtu(state, f"decoder.layers.{n}.self_attn.gtu", rms_norm(x), causal=True, inner=inner)
        x = x + glu(state, f"decoder.layers.{n}.glu", rms_norm(x))
    return layer_norm(state, "decoder.layer_norm", x) @ state["decoder.output_projection.weight"].T


def masked_logits(state, ids, inner=False):
    state = {name: tensor.double() for name, tensor in state.items()}
    root = "encoder.sentence_encoder"
    x = layer_norm(state, f"{root}.layernorm_embedding", state[f"{root}.embed_tokens.weight"][ids])
    for n in range(SIZES["num_hidden_layers"]):
        x = rms_norm(x + gtu(state, f"{root}.layers.{n}.self_attn.gtu", x, causal=False, inner=inner))
        x = rms_norm(x + glu(state, f"{root}.layers.{n}.glu", x))
    x = layer_norm(state, "encoder.lm_head.layer_norm", F.gelu(linear(state, "encoder.lm_head.dense", x)))
    return linear(state, "encoder.lm_head", x)


def agree(model, expected):
    with torch.no_grad():
        found = model.double()(IDS).logits
    assert (found - expected).abs().max() < 1e-5 * expected.abs().max()


@pytest.mark.parametrize("decay", [{"decay": 0.97}, {"decay": 1.0}, {"decay_mode": "none"}])
@pytest.mark.parametrize(
    ("kind", "auto", "logits"),
    [("causal", AutoModelForCausalLM, causal_logits), ("masked", AutoModelForMaskedLM, masked_logits)],
)
def test_round_trip(tmp_path, kind, auto, logits, decay):
    original = tiny(kind, **decay)
    state = reference_state(original)
    converted = convert_reference(write(tmp_path / "model.pt", state), tmp_path / "out")
    loaded = auto.from_pretrained(tmp_path / "out")
    for model in (converted, loaded):
        assert type(model) is type(original)
        assert not model.training
        with torch.no_grad():
            assert torch.equal(model(IDS).logits, original(IDS).logits)
        for name in [*SIZES, "decay_mode", "tie_word_embeddings", "norm_position", "scale_embedding", "dropout"]:
            if name != "decay" or "decay" in decay:
                assert getattr(model.config, name) == getattr(original.config, name), name
        assert (model.config.bos_token_id, model.config.pad_token_id, model.config.eos_token_id) == (0, 1, 2)
    agree(loaded, logits(state, IDS))
    assert sorted(os.listdir(tmp_path)) == ["model.pt", "out"]


@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_output_matrix_of_its_own(tmp_path, kind):
    state = reference_state(tiny(kind))
    name = "decoder.output_projection.weight" if kind == "causal" else "encoder.lm_head.weight"
    state[name] = torch.randn_like(state[name])
    path = write(tmp_path / "model.pt", state)
    assert not convert_reference(path, tmp_path / "out").config.tie_word_embeddings
    auto = AutoModelForCausalLM if kind == "causal" else AutoModelForMaskedLM
    agree(auto.from_pretrained(tmp_path / "out"), (causal_logits if kind == "causal" else masked_logits)(state, IDS))


@pytest.mark.parametrize(("kind", "arch"), [("causal", "tnn_decay_99"), ("masked", "roberta_tnn_decay_99")])
def test_first_generation_has_a_residual_inside_the_gtu(tmp_path, kind, arch):
    state = reference_state(tiny(kind))
    path = write(tmp_path / "model.pt", state, args=Namespace(arch=arch))
    model = convert_reference(path, tmp_path / "out")
    assert model.config.inner_norm == "simple_rms"
    agree(model, (causal_logits if kind == "causal" else masked_logits)(state, IDS, inner=True))


@pytest.mark.parametrize("depth", [1, 4])
def test_depths_and_decay_are_read_off(depth):
    original = tiny(num_hidden_layers=depth + 1, rpe_num_layers=depth, rpe_size=5, decay=0.999, glu_expansion=3)
    config, weights = translate_reference(reference_state(original), {})
    assert (config.num_hidden_layers, config.rpe_num_layers, config.rpe_size) == (depth + 1, depth, 5)
    assert (config.decay, config.glu_expansion, config.gtu_expansion) == (0.999, 3, 2)
    assert {name: tensor.shape for name, tensor in weights.items()} == {
        name: tensor.shape for name, tensor in original.state_dict().items()
    }


GIVEN = {
    "arch": "tnn_v2_decay_99_pre",
    "dropout": 0.3,
    "no_scale_embedding": True,
    "act_fun": "gelu",
    "glu_act": "gelu",
    "rpe_act": "silu",
    "norm_type": "simplermsnorm",
    "use_norm": False,
    "causal": True,
    "fina_act": None,
    "adam_betas": [0.9, 0.98],
}


@pytest.mark.parametrize(
    "settings",
    [
        {"args": Namespace(**GIVEN)},
        {"args": GIVEN},
        {"args": None, "cfg": {"common": {"seed": 1}, "model": Namespace(**GIVEN)}},
        {"args": None, "cfg": {"_name": None, "model": GIVEN}},
        {"cfg": Namespace(model=GIVEN)},
    ],
    ids=["namespace", "dict", "namespace in cfg", "dict in cfg", "cfg namespace"],
)
def test_settings_are_honoured(tmp_path, settings):
    path = write(tmp_path / "model.pt", reference_state(tiny()), **settings)
    config = convert_reference(path, tmp_path / "out").config
    assert (config.dropout, config.scale_embedding) == (0.3, False)
    assert (config.hidden_act, config.rpe_activation, config.inner_norm) == ("gelu", "silu", None)


def test_unscaled_embedding(tmp_path):
    state = reference_state(tiny())
    path = write(tmp_path / "model.pt", state, args=Namespace(no_scale_embedding=True))
    agree(convert_reference(path, tmp_path / "out"), causal_logits(state, IDS, scale=False))


def test_scaled_embedding_of_an_encoder():
    config, _ = translate_reference(reference_state(tiny("masked")), {"no_scale_embedding": False})
    assert config.scale_embedding


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("causal", {"use_norm": True}, "use_norm=True of this checkpoint; only False"),
        ("causal", {"residual": True}, "residual=True"),
        ("causal", {"decoder_normalize_before": False}, "decoder_normalize_before=False"),
        ("causal", {"causal": False}, "causal=False"),
        ("masked", {"causal": True}, "causal=True"),
        ("masked", {"activation_fn": "relu"}, "activation_fn='relu' of this checkpoint; only 'gelu'"),
        ("causal", {"act_fun": "relu"}, "got act_fun='relu' and glu_act='silu'"),
        ("causal", {"act_fun": "exp", "glu_act": "exp"}, "hidden_act must be one of .* got 'exp'"),
        ("causal", {"dropout": "much"}, "dropout must be a number; got 'much'"),
        ("causal", {"dropout": 7}, "dropout must be in"),
    ],
)
def test_settings_refused(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        translate_reference(reference_state(tiny(kind)), settings)


FIRST = "decoder.layers.0"


def renamed(state, old, new):
    return {name.replace(old, new): tensor for name, tensor in state.items()}


def without(state, *names):
    return {name: tensor for name, tensor in state.items() if name not in names}


def graded(state):
    name = f"{FIRST}.self_attn.gtu.toep.gamma"
    return state | {name: torch.linspace(0.9, 0.99, 32).reshape(1, 1, 32)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s | {"decoder.extra": torch.zeros(1)}, r"unknown 1 key \(decoder.extra\)$"),
        (lambda s: without(s, f"{FIRST}.glu.l2.bias"), rf"missing 1 key \({FIRST}.glu.l2.bias\)$"),
        (
            lambda s: without(s, f"{FIRST}.self_attn.gtu.toep.gamma"),
            rf"missing 1 key \({FIRST}.self_attn.gtu.toep.gamma",
        ),
        (lambda s: without(s, "decoder.layer_norm.weight", "decoder.layer_norm.bias"), "missing 2 keys"),
        (lambda s: renamed(s, "glu.l", "ffn.l"), r"unknown 18 keys .*\.\.\.\); missing 18 keys .*\.\.\.\)$"),
        (lambda s: renamed(s, "decoder.layers.1", "decoder.layers.7"), "unknown 21 keys .*missing 21 keys"),
        (lambda s: renamed(s, "decoder.", "blocks."), r"not a TNN language model: .*got 68 keys \(blocks"),
        (lambda s: {}, r"got 0 keys"),
        (graded, "gamma must be one number in all layers and channels; got 0.9 to 0.99"),
        (lambda s: s | {f"{FIRST}.self_attn.gtu.toep.gamma": torch.full((1, 1, 32), 0.98)}, "got 0.97 to 0.98"),
        (lambda s: s | {f"{FIRST}.self_attn.gtu.toep.gamma": torch.full((1, 1, 32), torch.nan)}, "got nan"),
        (lambda s: {k: v * 2 if "gamma" in k else v for k, v in s.items()}, r"decay must be in \[0, 1\]; got 1.94"),
        (lambda s: s | {f"{FIRST}.glu.l3.weight": torch.ones(16, 5)}, r"shape \(16, 24\) to fit .* \(16, 5\)"),
        (lambda s: s | {"decoder.embed_tokens.weight": torch.ones(16)}, r"must be a matrix; got shape \(16,\)"),
        (lambda s: s | {"decoder.embed_tokens.weight": torch.ones(0, 16)}, "not empty"),
        (lambda s: s | {f"{FIRST}.glu.l1.bias": torch.ones(24, dtype=torch.int64)}, "of floating point"),
    ],
)
def test_tensors_refused(tmp_path, change, message):
    path = write(tmp_path / "model.pt", change(reference_state(tiny())))
    with pytest.raises(ValueError, match=message) as caught:
        convert_reference(path, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == ["model.pt"]


def test_image_model_is_refused():
    model = tnn.TNNForImageClassification(load_preset("mini-image"))
    with pytest.raises(ValueError, match=r"not a TNN language model: its tensors are under decoder.layers or encoder"):
        translate_reference(model.state_dict(), {})


def test_half_precision_becomes_float32(tmp_path):
    state = {name: tensor.bfloat16() for name, tensor in reference_state(tiny(decay=0.96875)).items()}
    model = convert_reference(write(tmp_path / "model.pt", state), tmp_path / "out")
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    agree(model, causal_logits(state, IDS))


def test_older_file_format_and_numbers_of_numpy(tmp_path):
    state = reference_state(tiny())
    whole = {"model": state, "args": Namespace(dropout=0.2), "extra_state": {"best": np.float64(3.5), "n": np.int64(2)}}
    torch.save(whole, tmp_path / "model.pt", _use_new_zipfile_serialization=False)
    assert convert_reference(tmp_path / "model.pt", tmp_path / "out").config.dropout == 0.2
    torch.save(whole, tmp_path / "model.pt")
    assert convert_reference(tmp_path / "model.pt", tmp_path / "again").config.dropout == 0.2


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def refused(tmp_path, message):
    with pytest.raises(ValueError, match=message) as caught:
        convert_reference(tmp_path / "model.pt", tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == ["model.pt"]


@pytest.mark.parametrize("zipped", [True, False])
def test_nothing_of_the_file_is_executed(tmp_path, zipped):
    whole = {"model": reference_state(tiny()), "args": Malicious(tmp_path / "executed")}
    torch.save(whole, tmp_path / "model.pt", _use_new_zipfile_serialization=zipped)
    refused(tmp_path, r"model.pt needs (posix|nt)\.mkdir")


def test_other_classes_are_refused(tmp_path):
    write(tmp_path / "model.pt", reference_state(tiny()), args=re.compile("x"))
    refused(tmp_path, r"model.pt needs re\._compile, and only tensors and plain settings are loaded")


@pytest.mark.parametrize("zipped", [True, False])
def test_damaged_files(tmp_path, zipped):
    path = tmp_path / "model.pt"
    torch.save({"model": reference_state(tiny())}, path, _use_new_zipfile_serialization=zipped)
    content = path.read_bytes()
    for size in (0, 1, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        refused(tmp_path, "is not a complete checkpoint of torch.save: .+")
    path.write_text("epoch,loss\n1,2.5\n")
    refused(tmp_path, "is not a complete checkpoint of torch.save: .+")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "must hold a dict with a state dict under 'model'"),
        ({"state_dict": {}}, "must hold a dict with a state dict under 'model'"),
        ({"model": {"decoder.layers.0": 1}}, "must hold tensors by name"),
    ],
)
def test_other_contents(tmp_path, content, message):
    torch.save(content, tmp_path / "model.pt")
    refused(tmp_path, message)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.pt"):
        convert_reference(tmp_path / "absent.pt", tmp_path / "out")
    assert os.listdir(tmp_path) == []


def test_out_must_be_free(tmp_path):
    path = write(tmp_path / "model.pt", reference_state(tiny()))
    with pytest.raises(FileExistsError, match="exists already"):
        convert_reference(path, path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        convert_reference(path, tmp_path / "absent" / "out")
    out = tmp_path / "out"
    out.mkdir()
    convert_reference(path, str(out))  # an empty folder will do
    with pytest.raises(FileExistsError, match="exists already"):
        convert_reference(path, out)
    assert sorted(os.listdir(tmp_path)) == ["model.pt", "out"]


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def half(self, folder):
        folder.mkdir()
        (folder / "config.json").write_text("{")
        raise OSError("no space left")

    path = write(tmp_path / "model.pt", reference_state(tiny()))
    monkeypatch.setattr(TNNForCausalLM, "save_pretrained", half)
    with pytest.raises(OSError, match="no space left"):
        convert_reference(path, tmp_path / "out")
    assert os.listdir(tmp_path) == ["model.pt"]
