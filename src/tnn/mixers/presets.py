"""Presets: complete configurations by name. Each mixer registers its own, built from the families in this file.

A family has a function that makes its preset: the fields that all mixers share, then those of one mixer.
"""

from typing import Any, NamedTuple

Fields = dict[str, Any]


class Preset(NamedTuple):
    """A configuration of the mixer that registers it.

    >>> from tnn.mixers.presets import mini_causal_lm
    >>> mini_causal_lm(num_hidden_layers=4).name
    'mini-alm-{mixer}'
    """

    name: str  # "{mixer}" in it stands for the name of the mixer
    fields: Fields  # of TNNConfig, or of TNNImageConfig, or of TNNSeriesConfig
    image: bool = False
    series: bool = False


def sizes(num_hidden_layers: int, hidden_size: int, **more: Any) -> Fields:
    return {"num_hidden_layers": num_hidden_layers, "hidden_size": hidden_size, **more}


def merge(*groups: Fields) -> Fields:
    """Later groups replace fields of earlier ones; `mixer_options` is one field."""
    return {name: value for group in groups for name, value in group.items()}


NO_POSITIONS: Fields = {"position_embedding": "none", "max_position_embeddings": None}
# For mixers that were published as a complete block, without dropout inside.
EMBEDDING_DROPOUT: Fields = {"dropout": 0.0, "embedding_dropout": 0.1}
# The published S4 and DSS have no norm. This one has no parameters, so the counts are the published ones.
STATE_SPACE: Fields = EMBEDDING_DROPOUT | {"norm": "simple_rms"}

# --- Causal language models on WikiText-103: the norm is first, positions are sinusoidal.

CAUSAL_LM: Fields = {
    "norm": "layer",
    "hidden_act": "relu",
    "glu_expansion": 4,
    "position_embedding": "sinusoidal",
    "initializer": "torch",
    "dropout": 0.1,
    "vocab_size": 50_264,
}
CAUSAL_ATTENTION: Fields = sizes(6, 512, num_attention_heads=8)


def causal_lm(*groups: Fields, **fields: Any) -> Preset:
    return Preset("wikitext103-alm-{mixer}", merge(CAUSAL_LM, *groups, fields))


# --- Masked language models on WikiText-103: the norm is last, positions are learned.

MASKED_LM: Fields = {
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
MASKED_ATTENTION: Fields = sizes(12, 768, num_attention_heads=12)


def masked_lm(*groups: Fields, **fields: Any) -> Preset:
    return Preset("wikitext103-blm-{mixer}", merge(MASKED_LM, *groups, fields))


# --- Long-Range Arena: what the tasks need from a model, in the harness of the paper's authors.

LRA_TASKS: dict[str, Fields] = {
    "text": {"vocab_size": 135, "num_labels": 2},
    "listops": {"vocab_size": 18, "num_labels": 10},
    "retrieval": {"vocab_size": 98, "num_labels": 2},
    "pathfinder": {"image_size": 32, "num_labels": 2, "pooling": "last"},
    "image": {"image_size": 32, "num_labels": 10},
}
LRA_IMAGE_TASKS = ("pathfinder", "image")
LRA_LENGTHS = {"text": 4096, "listops": 2048, "retrieval": 4000, "pathfinder": 1024, "image": 1024}

# The harness of the paper's authors: pixels are numbers.
LRA: Fields = {
    "norm": "batch",
    "final_norm": "batch",
    "hidden_act": "gelu",
    "position_embedding": "interleaved",
    "embedding_dropout": 0.1,
    "initializer": "torch",
}
LRA_TEXT: Fields = LRA | {
    "is_decoder": False,
    "scale_embedding": False,
    "initializer_range": 1.0,  # of embeddings: as large as the sinusoids that are added to them
}
LRA_IMAGE: Fields = LRA | {"dims": 1, "patch_size": 1, "num_channels": 1, "pool_norm": None}


def lra(task: str, *groups: Fields, **fields: Any) -> Preset:
    image = task in LRA_IMAGE_TASKS
    harness = LRA_IMAGE if image else LRA_TEXT
    return Preset(f"lra-{task}-{{mixer}}", merge(harness, LRA_TASKS[task], *groups, fields), image)


# The harness of Skyformer: all inputs are token ids, and 0 is padding, or a black pixel.
SKYFORMER_LRA: Fields = {
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
    **sizes(2, 64, num_attention_heads=2),
}
SKYFORMER_LRA_TASKS: dict[str, Fields] = {
    "text": {"vocab_size": 512, "num_labels": 2, "max_position_embeddings": 4096},
    "listops": {"vocab_size": 32, "num_labels": 10, "max_position_embeddings": 2048},
    "retrieval": {"vocab_size": 512, "num_labels": 2, "max_position_embeddings": 4096},
    "pathfinder": {"vocab_size": 512, "num_labels": 2, "max_position_embeddings": 1024},
    "image": {"vocab_size": 256, "num_labels": 10, "max_position_embeddings": 1024},
}


def skyformer_lra(task: str, **mixer_options: Any) -> Preset:
    fields = merge(SKYFORMER_LRA, SKYFORMER_LRA_TASKS[task], {"mixer_options": mixer_options})
    return Preset(f"lra-{task}-{{mixer}}", fields)


# --- Small models. Each has about as many parameters as that of TNN in the same family.

MINI_CAUSAL_LM: Fields = CAUSAL_LM | {"hidden_size": 128, "vocab_size": 260, "dropout": 0.0}
MINI_ATTENTION: Fields = {"num_hidden_layers": 4, "num_attention_heads": 4, "glu_expansion": 2.75}


def mini_causal_lm(*groups: Fields, **fields: Any) -> Preset:
    return Preset("mini-alm-{mixer}", merge(MINI_CAUSAL_LM, *groups, fields))


# Sizes are equal with a vocabulary of 8,000. Depths have the published ratio to TNN's depth; inner sizes follow.
MINI_MASKED_LM: Fields = MASKED_LM | {
    "hidden_size": 128,
    "vocab_size": 261,
    "max_position_embeddings": 128,
    "dropout": 0.0,
    "embedding_dropout": 0.0,
}


def mini_masked_lm(*groups: Fields, **fields: Any) -> Preset:
    return Preset("mini-blm-{mixer}", merge(MINI_MASKED_LM, *groups, fields))


MINI_POSITIONS: Fields = {"position_embedding": "sinusoidal"}  # as in the language models
# Tables of positions, which must cover the 2,048 tokens of the task, are not counted in these sizes.
MINI_LRA: Fields = LRA_TEXT | LRA_TASKS["listops"] | sizes(2, 32) | MINI_POSITIONS
MINI_LRA_ATTENTION: Fields = {"num_attention_heads": 2, "glu_expansion": 2.25}


def mini_lra(*groups: Fields, **fields: Any) -> Preset:
    return Preset("mini-lra-{mixer}", merge(MINI_LRA, *groups, fields))


MINI_LRA_IMAGE: Fields = LRA_IMAGE | LRA_TASKS["image"] | sizes(2, 32) | MINI_POSITIONS
MINI_LRA_IMAGE_ATTENTION: Fields = {"num_attention_heads": 2, "glu_expansion": 3}


def mini_lra_image(*groups: Fields, **fields: Any) -> Preset:
    return Preset("mini-lra-image-{mixer}", merge(MINI_LRA_IMAGE, *groups, fields), image=True)
