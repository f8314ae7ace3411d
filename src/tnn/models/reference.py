"""Checkpoints of the TNN authors' language models (fairseq), converted to ours.

Sizes, depths, decay and tying are read off the tensors. What leaves no trace in them is read off the settings that the
checkpoint carries, and is as in the published models where those are silent: activations (silu, and relu in the RPE),
the scale of the embedding, dropout. Settings that this library has no model for are refused.
"""

import pickle
import re
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tnn._names import listed
from tnn.models.backbone import TNNPreTrainedModel
from tnn.models.configuration import TNNConfig
from tnn.models.heads import TNNForCausalLM, TNNForMaskedLM
from tnn.models.presets import load_preset
from tnn.models.saving import check_free, save_atomically

# Modules of a layer, theirs and ours, each with a weight and a bias; {i} counts the hidden layers of the RPE.
LAYER = {
    "self_attn.gtu.u_proj": "{gtu}.gate_proj",
    "self_attn.gtu.v_proj": "{gtu}.value_proj",
    "self_attn.gtu.o": "{gtu}.out_proj",
    "self_attn.gtu.toep.rpe.pos_proj": "{gtu}.operator.rpe.input",
    "self_attn.gtu.toep.rpe.layers.{i}.2": "{gtu}.operator.rpe.hidden.{i}",
    "self_attn.gtu.toep.rpe.out.2": "{gtu}.operator.rpe.output",
    "glu.l1": "channel_mixer.gate_proj",
    "glu.l2": "channel_mixer.value_proj",
    "glu.l3": "channel_mixer.out_proj",
}
GAMMA = "self_attn.gtu.toep.gamma"  # the decay: a tensor there, a number of the configuration here
RPE_LAYER = re.compile(r"\.toep\.rpe\.layers\.(\d+)\.")

# Settings that change the arithmetic but leave no trace in the tensors, with the only value that our blocks compute.
FIXED: dict[str, bool | int | str] = {
    "norm_type": "simplermsnorm",
    "use_norm": False,  # a norm before the output projection of the GTU
    "normalize": False,  # division by the row sums of the Toeplitz matrix
    "act_type": "none",  # an activation on the coefficients
    "par_type": 1,  # lags as integers
    "residual": False,  # skips inside the RPE
    "use_multi_decay": False,  # gamma is the parameter of a learned decay
    "fina_act": "None",  # an activation after the GLU
}

# Architectures of the first generation, whose GTU has its own norm and skip connection.
INNER_RESIDUAL = ("tnn_no_decay", "tnn_decay_99", "roberta_tnn_decay_99")


class CheckpointLayout(NamedTuple):
    """What stands around the layers in one kind of model."""

    model: type[TNNForCausalLM] | type[TNNForMaskedLM]
    preset: str  # the published model of this kind
    root: str
    embedding: str
    output: str  # the matrix that may be tied to the embedding
    names: dict[str, str]  # theirs to ours
    fixed: dict[str, bool | int | str]


LAYOUTS = (
    CheckpointLayout(
        model=TNNForCausalLM,
        preset="wikitext103-alm",
        root="decoder",
        embedding="decoder.embed_tokens.weight",
        output="decoder.output_projection.weight",
        names={
            "decoder.embed_tokens.weight": "model.embed_tokens.weight",
            "decoder.layer_norm.weight": "model.norm.weight",
            "decoder.layer_norm.bias": "model.norm.bias",
            "decoder.output_projection.weight": "lm_head.weight",
        },
        fixed=FIXED | {"causal": True, "decoder_normalize_before": True},
    ),
    CheckpointLayout(
        model=TNNForMaskedLM,
        preset="wikitext103-blm",
        root="encoder.sentence_encoder",
        embedding="encoder.sentence_encoder.embed_tokens.weight",
        output="encoder.lm_head.weight",
        names={
            "encoder.sentence_encoder.embed_tokens.weight": "model.embed_tokens.weight",
            "encoder.sentence_encoder.layernorm_embedding.weight": "model.embed_norm.weight",
            "encoder.sentence_encoder.layernorm_embedding.bias": "model.embed_norm.bias",
            "encoder.lm_head.dense.weight": "lm_head.dense.weight",
            "encoder.lm_head.dense.bias": "lm_head.dense.bias",
            "encoder.lm_head.layer_norm.weight": "lm_head.norm.weight",
            "encoder.lm_head.layer_norm.bias": "lm_head.norm.bias",
            "encoder.lm_head.weight": "lm_head.decoder.weight",
            "encoder.lm_head.bias": "lm_head.decoder.bias",
        },
        fixed=FIXED | {"causal": False, "encoder_normalize_before": False, "activation_fn": "gelu"},
    ),
)


def convert_reference(checkpoint: Path | str, out: Path | str) -> TNNPreTrainedModel:
    """Convert a fairseq checkpoint of a causal or masked TNN into the folder `out`, and return the model.

    Nothing of the file is executed: it is read with `weights_only=True`. `out` must not exist, or be an empty folder;
    it appears when all is written. Weights are stored in float32.

    >>> from transformers import AutoModelForCausalLM
    >>> from tnn.models.reference import convert_reference
    >>> convert_reference("checkpoint_best.pt", "tnn-alm")  # doctest: +SKIP
    >>> model = AutoModelForCausalLM.from_pretrained("tnn-alm")  # doctest: +SKIP
    """
    out = Path(out)
    check_free(out)
    state, settings = _load(Path(checkpoint))
    config, weights = translate_reference(state, settings)
    model = _find_layout(state).model(config)
    model.load_state_dict(weights)
    model.eval()
    save_atomically(model, out)
    return model


def translate_reference(
    state: Mapping[str, Tensor], settings: Mapping[str, Any]
) -> tuple[TNNConfig, dict[str, Tensor]]:
    """The authors' state dict and settings -> our configuration and our state dict."""
    layout = _find_layout(state)
    _check_settings(settings, layout.fixed)
    inner_norm = "simple_rms" if settings.get("arch", settings.get("_name")) in INNER_RESIDUAL else None
    depth = _count(state, re.compile(rf"{re.escape(layout.root)}\.layers\.(\d+)\."))
    rpe_depth = _count(state, RPE_LAYER)

    names = layout.names | _layer_names(layout, depth, rpe_depth, "token_mixer.mixer" if inner_norm else "token_mixer")
    gammas = [f"{layout.root}.layers.{n}.{GAMMA}" for n in range(depth)]
    if state.keys().isdisjoint(gammas):
        gammas = []
    _check_keys(state, [*names, *gammas], ignored=f"{layout.root}.version")  # fairseq's format version

    vocabulary, hidden = _matrix(state, layout.embedding)
    first = f"{layout.root}.layers.0"
    config = load_preset(
        layout.preset,
        vocab_size=vocabulary,  # in which fairseq's dictionary has bos at 0, pad at 1 and eos at 2, as our default
        hidden_size=hidden,
        num_hidden_layers=depth,
        gtu_expansion=_ratio(_matrix(state, f"{first}.self_attn.gtu.u_proj.weight")[0], hidden),
        glu_expansion=_ratio(_matrix(state, f"{first}.glu.l1.weight")[0], hidden),
        rpe_size=_matrix(state, f"{first}.self_attn.gtu.toep.rpe.pos_proj.weight")[0],
        rpe_num_layers=rpe_depth,
        tie_word_embeddings=_same(state[layout.embedding], state[layout.output]),
        inner_norm=inner_norm,
        **_decay([state[name] for name in gammas]),
        **_options(settings),
    )
    assert isinstance(config, TNNConfig)
    _check_shapes(state, names, layout.model, config)
    return config, {ours: state[theirs] for theirs, ours in names.items()}


def _find_layout(state: Mapping[str, Tensor]) -> CheckpointLayout:
    for layout in LAYOUTS:
        if any(name.startswith(f"{layout.root}.layers.") for name in state):
            return layout
    expected = " or ".join(f"{layout.root}.layers" for layout in LAYOUTS)
    raise ValueError(f"not a TNN language model: its tensors are under {expected}; got {listed(state)}")


def _layer_names(layout: CheckpointLayout, depth: int, rpe_depth: int, gtu: str) -> dict[str, str]:
    return {
        f"{layout.root}.layers.{n}.{theirs.format(i=i)}.{kind}": f"model.layers.{n}.{ours.format(i=i, gtu=gtu)}.{kind}"
        for n in range(depth)
        for theirs, ours in LAYER.items()
        for i in range(rpe_depth if "{i}" in theirs else 1)
        for kind in ("weight", "bias")
    }


def _options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the tensors do not tell; the preset has the rest."""
    act = settings.get("act_fun", "silu")
    if (glu_act := settings.get("glu_act", "silu")) != act:
        raise ValueError(f"GTU and GLU must have the same activation; got act_fun={act!r} and glu_act={glu_act!r}")
    options = {"hidden_act": act, "rpe_activation": settings.get("rpe_act", "relu")}
    if "no_scale_embedding" in settings:
        options["scale_embedding"] = not settings["no_scale_embedding"]
    if "dropout" in settings:
        options["dropout"] = _number("dropout", settings["dropout"])
    return options


def _decay(gammas: list[Tensor]) -> dict[str, Any]:
    if not gammas:
        return {"decay_mode": "none"}
    values = torch.cat([gamma.double().flatten() for gamma in gammas])
    low, high = values.min().item(), values.max().item()
    if not high - low <= torch.finfo(torch.float32).eps:  # so that NaN is refused as well
        raise ValueError(f"gamma must be one number in all layers and channels; got {low:.7g} to {high:.7g}")
    return {"decay_mode": "fixed", "decay": float(f"{high:.7g}")}  # 0.99, not the float32 next to it


def _check_settings(settings: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
    for name, value in fixed.items():
        if (came := settings.get(name, value)) != value:
            raise ValueError(f"no model here for the setting {name}={came!r} of this checkpoint; only {value!r}")


def _check_keys(state: Mapping[str, Tensor], expected: list[str], ignored: str) -> None:
    known = {*expected, ignored}
    unknown = [name for name in state if name not in known]
    missing = [name for name in expected if name not in state]
    problems = [f"{kind} {listed(names)}" for kind, names in (("unknown", unknown), ("missing", missing)) if names]
    if problems:
        raise ValueError(f"not the tensors of a TNN language model: {'; '.join(problems)}")
    if others := [name for name in expected if not state[name].is_floating_point() or state[name].numel() == 0]:
        raise ValueError(f"tensors must be of floating point and not empty; got others in {listed(others)}")


def _check_shapes(
    state: Mapping[str, Tensor], names: Mapping[str, str], model: type[TNNPreTrainedModel], config: TNNConfig
) -> None:
    with torch.device("meta"):
        expected = model(config).state_dict()
    for theirs, ours in names.items():
        if state[theirs].shape != expected[ours].shape:
            shape = tuple(expected[ours].shape)
            raise ValueError(f"{theirs} must have shape {shape} to fit the others; got {tuple(state[theirs].shape)}")


def _count(state: Mapping[str, Tensor], numbered: re.Pattern[str]) -> int:
    return len({match[1] for name in state if (match := numbered.search(name))})


def _matrix(state: Mapping[str, Tensor], name: str) -> tuple[int, int]:
    shape = tuple(state[name].shape)
    if len(shape) != 2:
        raise ValueError(f"{name} must be a matrix; got shape {shape}")
    return shape


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a, b)


def _ratio(size: int, hidden: int) -> float:
    return size / hidden if size % hidden else size // hidden


def _number(name: str, value: Any) -> float:
    if not isinstance(value, int | float):
        raise ValueError(f"the setting {name} must be a number; got {value!r}")
    return float(value)


class _Dropped:
    """Stands for any value that is not needed."""

    def __init__(self, *args: Any) -> None: ...

    def __setstate__(self, state: Any) -> None: ...


# numpy's scalars occur in the training log; they are passed over, so that numpy's own readers are not reached.
_NUMPY = ("numpy.dtype", "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar")
_ALLOWED: list[Any] = [Namespace, *((_Dropped, name) for name in _NUMPY)]


def _load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """(state dict, settings) of a checkpoint."""
    checkpoint = _unpickle(path)
    if not isinstance(checkpoint, dict) or not isinstance(state := checkpoint.get("model"), dict):
        raise ValueError(f"{path} must hold a dict with a state dict under 'model', as fairseq writes it")
    if not all(isinstance(name, str) and isinstance(value, Tensor) for name, value in state.items()):
        raise ValueError(f"the state dict of {path} must hold tensors by name, and nothing else")
    return state, _settings(checkpoint)


def _unpickle(path: Path) -> Any:
    with path.open("rb") as file, torch.serialization.safe_globals(_ALLOWED):
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged file can fail anywhere in the reader
            if isinstance(error, pickle.UnpicklingError) and (match := re.search(r"GLOBAL (\S+)", str(error))):
                raise ValueError(f"{path} needs {match[1]}, and only tensors and plain settings are loaded") from None
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise ValueError(f"{path} is not a complete checkpoint of torch.save: {reason}") from error


def _settings(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Under "args" or "cfg", there with those of the model in a part of their own. None is a setting not made."""
    outer = _as_dict(checkpoint.get("args")) or _as_dict(checkpoint.get("cfg"))
    merged = outer | _as_dict(outer.get("model"))
    return {name: value for name, value in merged.items() if isinstance(value, bool | int | float | str)}


def _as_dict(settings: Any) -> dict[str, Any]:
    if isinstance(settings, Namespace):
        return vars(settings)
    return settings if isinstance(settings, dict) else {}
