"""Presets of the methods that TNN is compared with: the paper's tables, Long-Range Arena, and small ones of equal size.

The tables say what is particular to a method; the names and the rest come from loops at the end.
"""

from typing import Any

from tnn.mixers import list_mixers
from tnn.models.arena import IMAGE, LISTOPS, PATHFINDER, RETRIEVAL, TEXT

Fields = dict[str, Any]


def _sizes(layers: int, width: int, **more: Any) -> Fields:
    return {"num_hidden_layers": layers, "hidden_size": width, **more}


def _options(**options: Any) -> Fields:
    return {"mixer_options": options}


# A method with a block of its own has no dropout inside; that of the embedding stays.
_OWN: Fields = {"dropout": 0.0, "embedding_dropout": 0.1}
# A norm without parameters: the published S4 and DSS have none, and the same number of parameters.
_STATE_SPACE: Fields = _OWN | {"norm": "simple_rms"}
_UNPLACED: Fields = {"position_embedding": "none", "max_position_embeddings": None}

# --- Autoregressive language models: the norms come first, positions are sinusoids.

_CAUSAL: Fields = {
    "norm": "layer",
    "hidden_act": "relu",
    "glu_expansion": 4,
    "position_embedding": "sinusoidal",
    "initializer": "torch",
    "dropout": 0.1,
    "vocab_size": 50_264,
}
_CAUSAL_ATTENTION = _CAUSAL | _sizes(6, 512, num_attention_heads=8)
_CAUSAL_FLASH = (
    _CAUSAL | _OWN | _sizes(10, 512, norm="scale") | _options(as_published=True)
)  # which has the unused tensors
_LONG_SHORT: Fields = {
    "norm_position": "post",
    "final_norm": None,
    "embedding_dropout": 0.0,
    "initializer": "normal",
    "lm_head_bias": True,
}
CAUSAL: dict[str, Fields] = {
    "transformer": _CAUSAL_ATTENTION,
    "alibi": _CAUSAL_ATTENTION | _UNPLACED,
    "elu": _CAUSAL_ATTENTION,
    "performer": _CAUSAL_ATTENTION,
    "cosformer": _CAUSAL_ATTENTION,
    "transformer-ls": _CAUSAL_ATTENTION | _UNPLACED | _LONG_SHORT,
    "flash": _CAUSAL_FLASH,
    "flash-quad": _CAUSAL_FLASH,
    "synthesizer-dense": _CAUSAL | _sizes(8, 512),
    "synthesizer-random": _CAUSAL | _sizes(8, 512),
    "gmlp": _CAUSAL | _OWN | _sizes(12, 512),
    "s4": _CAUSAL | _STATE_SPACE | _sizes(8, 1024, embedding_size=512),
    "dss": _CAUSAL | _STATE_SPACE | _UNPLACED | _sizes(16, 1024, embedding_size=512),
    "gss": _CAUSAL | _OWN | _UNPLACED | _sizes(6, 512),
}

# --- Bidirectional language models: the norms come last, positions are learned.

_MASKED: Fields = {
    "is_decoder": False,
    "norm": "layer",
    "norm_position": "post",
    "final_norm": None,
    "embedding_norm": True,
    "scale_embedding": False,
    "hidden_act": "gelu",
    "glu_expansion": 4,
    "position_embedding": "learned",
    "max_position_embeddings": 512,
    "initializer": "normal",
    "classifier_act": "tanh",
    "pooling": "first",
    "dropout": 0.1,
    "vocab_size": 50_265,
}
_MASKED_ATTENTION = _MASKED | _sizes(12, 768, num_attention_heads=12)
_MASKED_OWN = _MASKED | _OWN | {"norm_position": "pre"}
_MASKED_STATE_SPACE = _MASKED_OWN | _STATE_SPACE | _UNPLACED | _options(inner_dropout=0.1)
MASKED: dict[str, Fields] = {
    "transformer": _MASKED_ATTENTION | _options(attention_dropout=0.1),
    "elu": _MASKED_ATTENTION,
    "performer": _MASKED_ATTENTION,
    "cosformer": _MASKED_ATTENTION,
    "transformer-ls": _MASKED_ATTENTION | _options(attention_dropout=0.1),
    "flash": _MASKED_OWN | _sizes(24, 768) | _options(as_published=True),
    "synthesizer-dense": _MASKED | _sizes(16, 768),
    "synthesizer-random": _MASKED | _sizes(18, 768),
    "gmlp": _MASKED_OWN | _sizes(24, 768),
    "fnet": _MASKED | _OWN | _sizes(18, 768),
    "gfnet": _MASKED | _sizes(16, 768),
    "afno": _MASKED | _sizes(18, 768),
    "s4": _MASKED_STATE_SPACE | _sizes(10, 1536),
    "dss": _MASKED_STATE_SPACE | _sizes(16, 1536),
    "gss": _MASKED_OWN | _UNPLACED | _sizes(14, 768),
}

# --- Long-Range Arena, the harness of Skyformer: all inputs are token ids (0: padding, or a black pixel).

_SKYFORMER: Fields = {
    "is_decoder": False,
    "norm": "layer",
    "scale_embedding": False,
    "hidden_act": "gelu",
    "glu_expansion": 2,
    "position_embedding": "learned",
    "initializer": "torch",
    "classifier_act": "relu",
    "classifier_size": 128,
    "dropout": 0.1,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
    **_sizes(2, 64, num_attention_heads=2),
}
_SKYFORMER_TASKS: dict[str, Fields] = {
    "text": {"vocab_size": 512, "num_labels": 2, "max_position_embeddings": 4096},
    "listops": {"vocab_size": 32, "num_labels": 10, "max_position_embeddings": 2048},
    "retrieval": {"vocab_size": 512, "num_labels": 2, "max_position_embeddings": 4096},
    "pathfinder": {"vocab_size": 512, "num_labels": 2, "max_position_embeddings": 1024},
    "image": {"vocab_size": 256, "num_labels": 10, "max_position_embeddings": 1024},
}
_DROPS: Fields = {"attention_dropout": 0.1}
_SKYFORMER_OPTIONS: dict[str, Fields] = {
    "transformer": _DROPS,
    "kernelized": _DROPS,
    "skyformer": {},
    "nystromformer": {},
    "linformer": _DROPS,
    "informer": _DROPS,
    "performer": {"features": 128, "redraw": False},
    "reformer": {},
    "bigbird": _DROPS,
}

# --- Long-Range Arena, the harness of the paper's authors: pixels are numbers.

_AUTHORS: Fields = {
    "norm": "batch",
    "final_norm": "batch",
    "hidden_act": "gelu",
    "position_embedding": "sinusoidal",
    "embedding_dropout": 0.1,
    "initializer": "torch",
}
_AUTHORS_TEXT: Fields = _AUTHORS | {
    "is_decoder": False,
    "scale_embedding": False,
    "initializer_range": 1.0,  # of embeddings: as large as the sinusoids that are added to them
}
_AUTHORS_IMAGE: Fields = _AUTHORS | {"dims": 1, "patch_size": 1, "num_channels": 1, "pool_norm": None}
_AUTHORS_TASKS: dict[str, Fields] = {
    "text": _AUTHORS_TEXT | TEXT,
    "listops": _AUTHORS_TEXT | LISTOPS,
    "retrieval": _AUTHORS_TEXT | RETRIEVAL,
    "pathfinder": _AUTHORS_IMAGE | PATHFINDER,
    "image": _AUTHORS_IMAGE | IMAGE,
}
_LENGTHS = {"text": 4096, "listops": 2048, "retrieval": 4000, "pathfinder": 1024, "image": 1024}
_ARENA_S4 = _UNPLACED | {"embedding_dropout": 0.0} | _sizes(6, 64) | _options(state_size=8, n_ssm=64)
_AUTHORS_METHODS: dict[str, Fields] = {
    "transformer-ls": _sizes(2, 64, num_attention_heads=2, glu_expansion=1),
    "flash": _sizes(2, 64),
    "flash-quad": _sizes(2, 64),
    "cosformer": _sizes(2, 64, num_attention_heads=8, glu_expansion=2),
    "s4": _ARENA_S4,
}
_AUTHORS_CHANGES: dict[tuple[str, str], Fields] = {
    ("text", "transformer-ls"): {"num_hidden_layers": 4},
    ("text", "flash"): {"num_hidden_layers": 5},
    ("text", "flash-quad"): {"num_hidden_layers": 5},
    ("text", "cosformer"): {"num_hidden_layers": 12},
    ("listops", "s4"): {"norm_position": "post"},
    ("image", "s4"): {"num_hidden_layers": 4, "norm": "layer", "norm_position": "post", "dropout": 0.1}
    | _options(state_size=64, n_ssm=2),
}

# --- Small ones, each with about as many parameters as mini-alm.

_MINI_CAUSAL: Fields = _CAUSAL | {"hidden_size": 128, "vocab_size": 260, "dropout": 0.0}
_MINI_ATTENTION: Fields = {"num_hidden_layers": 4, "num_attention_heads": 4, "glu_expansion": 2.75}
_MINI_CAUSAL_METHODS: dict[str, Fields] = {
    "transformer": _MINI_ATTENTION,
    "alibi": _MINI_ATTENTION | _UNPLACED,
    "elu": _MINI_ATTENTION,
    "performer": _MINI_ATTENTION,
    "cosformer": _MINI_ATTENTION,
    "transformer-ls": _MINI_ATTENTION | _UNPLACED | {"glu_expansion": 1.75},
    "flash": {"num_hidden_layers": 5} | _options(expansion=2.25),
    "flash-quad": {"num_hidden_layers": 5} | _options(expansion=2.25),
    "synthesizer-dense": {"num_hidden_layers": 4, "glu_expansion": 2.25},
    "synthesizer-random": {"num_hidden_layers": 2, "glu_expansion": 1.75},
    "gmlp": {"num_hidden_layers": 2} | _options(expansion=2.25),
    # Twice as wide as the others, as published; kernels of 64 states would cost more than all else.
    "s4": _sizes(4, 256, embedding_size=128) | _options(state_size=16),
    "dss": _UNPLACED | _sizes(8, 256, embedding_size=128) | _options(state_size=16),
    "gss": _UNPLACED | {"num_hidden_layers": 4} | _options(expansion=3.25, state_channels=64, state_size=128),
}

# --- And as mini-blm with a vocabulary of 8,000. Depths are to that of TNN as published, widths inside then follow.

_MINI_MASKED: Fields = {
    "hidden_size": 128,
    "vocab_size": 261,
    "max_position_embeddings": 128,
    "dropout": 0.0,
    "embedding_dropout": 0.0,
}
_MINI_TABLE: Fields = {"max_length": 128}
_MINI_STATE_SPACE = _UNPLACED | _options(state_size=16)  # kernels of 64 states would cost more than all else
_MINI_MASKED_METHODS: dict[str, Fields] = {
    "transformer": _MINI_ATTENTION | _options(),
    "elu": _MINI_ATTENTION,
    "performer": _MINI_ATTENTION,
    "cosformer": _MINI_ATTENTION,
    "transformer-ls": _MINI_ATTENTION | {"glu_expansion": 2.25} | _options(),
    "flash": {"num_hidden_layers": 8} | _options(expansion=1.375, key_size=64),
    "synthesizer-dense": {"num_hidden_layers": 5, "glu_expansion": 2.875} | _options(**_MINI_TABLE),
    "synthesizer-random": {"num_hidden_layers": 6, "glu_expansion": 2.625} | _options(**_MINI_TABLE),
    "gmlp": {"num_hidden_layers": 8} | _options(expansion=2.5, **_MINI_TABLE),
    "fnet": {"num_hidden_layers": 6, "glu_expansion": 3.125},
    "gfnet": {"num_hidden_layers": 5, "glu_expansion": 3.375} | _options(**_MINI_TABLE),
    "afno": {"num_hidden_layers": 6, "glu_expansion": 2.875},
    # Wider than the others, as published, but not twice: the output matrix is the embedding, and would be all there is.
    "s4": _MINI_STATE_SPACE | _sizes(5, 168),
    "dss": _MINI_STATE_SPACE | _sizes(8, 168),
    "gss": _UNPLACED | {"num_hidden_layers": 5} | _options(expansion=2.875, state_channels=48, state_size=96),
}

# --- And as mini-lra; tables of positions, which must reach the task's 2,048, come on top.

_MINI_ARENA: Fields = _AUTHORS_TEXT | LISTOPS | _sizes(2, 32)
_MINI_ARENA_ATTENTION: Fields = {"num_attention_heads": 2, "glu_expansion": 2.25}
_TABLE: Fields = {"max_length": 2048}
_MINI_ARENA_METHODS: dict[str, Fields] = {
    "alibi": _MINI_ARENA_ATTENTION | _UNPLACED,
    "transformer-ls": _MINI_ARENA_ATTENTION | {"glu_expansion": 1.25},
    "flash": _options(expansion=2.5, key_size=32),
    "flash-quad": _options(expansion=1.25, key_size=32, **_TABLE),
    "gmlp": _options(expansion=5.75, **_TABLE),
    "synthesizer-dense": {"glu_expansion": 3.75} | _options(**_TABLE),
    "synthesizer-random": {"glu_expansion": 4.25} | _options(**_TABLE),
    "fnet": {"glu_expansion": 4.25},
    "gfnet": {"glu_expansion": 4.25} | _options(**_TABLE),
    "afno": {"glu_expansion": 4},
    "s4": _UNPLACED | {"num_hidden_layers": 4} | _options(state_size=16),
    "dss": _UNPLACED,
    "gss": _UNPLACED | _options(expansion=3, state_channels=16, state_size=32),
    "linformer": _MINI_ARENA_ATTENTION | _options(**_TABLE),
    "reformer": _MINI_ARENA_ATTENTION | {"glu_expansion": 2.75},
}

# --- And as mini-lra-image, which reads pixels one by one: the methods of the paper's table.

_MINI_PIXELS: Fields = _AUTHORS_IMAGE | IMAGE | _sizes(2, 32)
_MINI_PIXELS_ATTENTION: Fields = {"num_attention_heads": 2, "glu_expansion": 3}
_MINI_PIXELS_METHODS: dict[str, Fields] = {
    **dict.fromkeys((*_SKYFORMER_OPTIONS, "cosformer"), _MINI_PIXELS_ATTENTION),
    "transformer-ls": _MINI_PIXELS_ATTENTION | {"glu_expansion": 1.75},
    "flash": _options(expansion=2.75, key_size=32),
    "s4": _UNPLACED | {"num_hidden_layers": 4} | _options(state_size=18),
    "linformer": _MINI_PIXELS_ATTENTION | _options(max_length=1024),
    "reformer": _MINI_PIXELS_ATTENTION | {"glu_expansion": 3.5},
}

# --- DeiT: learned positions; the mean over all patches is classified, where the published one has a token for it.

_DEIT: Fields = {
    "mixer": "transformer",
    "dims": 1,
    "norm": "layer",
    "final_norm": "layer",
    "pool_norm": None,
    "hidden_act": "gelu",
    "glu_expansion": 4,
    "position_embedding": "learned",
    "initializer": "normal",
}
_IMAGENET: Fields = {"max_position_embeddings": 196, "num_labels": 1000}
_PICTURES: dict[str, Fields] = {
    "imagenet-tiny-transformer": _DEIT | _IMAGENET | _sizes(12, 192, num_attention_heads=3),
    "imagenet-small-transformer": _DEIT | _IMAGENET | _sizes(12, 384, num_attention_heads=6),
    "mini-image-transformer": _DEIT
    | _sizes(4, 64, num_attention_heads=4, glu_expansion=4.5)
    | {"image_size": 28, "patch_size": 4, "num_channels": 1, "num_labels": 10, "max_position_embeddings": 64},
}


def _skyformer(task: str, method: str) -> Fields:
    fields, options = _SKYFORMER_TASKS[task], _SKYFORMER_OPTIONS[method]
    if method == "linformer":
        options = options | {"max_length": fields["max_position_embeddings"]}
    return _SKYFORMER | fields | _options(**options)


def _authors(task: str, method: str) -> Fields:
    fields = _AUTHORS_TASKS[task] | _AUTHORS_METHODS[method] | _AUTHORS_CHANGES.get((task, method), {})
    if method in ("flash", "flash-quad"):
        fields |= _options(key_size=64, max_length=_LENGTHS[task])
    return fields


def _named(pattern: str, table: dict[str, Fields]) -> dict[str, Fields]:
    """The table's entries by the names of presets, each with its method."""
    return {pattern.format(method): fields | {"mixer": method} for method, fields in table.items()}


TEXT_PRESETS: dict[str, Fields] = _named("wikitext103-alm-{}", CAUSAL) | _named("wikitext103-blm-{}", MASKED)
IMAGE_PRESETS: dict[str, Fields] = dict(_PICTURES)
for _task in _SKYFORMER_TASKS:
    TEXT_PRESETS |= _named(f"lra-{_task}-{{}}", {method: _skyformer(_task, method) for method in _SKYFORMER_OPTIONS})
    _presets = _named(f"lra-{_task}-{{}}", {method: _authors(_task, method) for method in _AUTHORS_METHODS})
    if _task in ("pathfinder", "image"):
        IMAGE_PRESETS |= _presets
    else:
        TEXT_PRESETS |= _presets
TEXT_PRESETS |= _named("mini-alm-{}", {method: _MINI_CAUSAL | own for method, own in _MINI_CAUSAL_METHODS.items()})
IMAGE_PRESETS |= _named("mini-lra-image-{}", {m: _MINI_PIXELS | own for m, own in _MINI_PIXELS_METHODS.items()})
TEXT_PRESETS |= _named(
    "mini-blm-{}", {method: MASKED[method] | _MINI_MASKED | own for method, own in _MINI_MASKED_METHODS.items()}
)
TEXT_PRESETS |= _named(
    "mini-lra-{}",
    {
        method: _MINI_ARENA | _MINI_ARENA_METHODS.get(method, _MINI_ARENA_ATTENTION)
        for method in list_mixers()
        if method not in ("tnn", "gtu", "attention")
    },
)
