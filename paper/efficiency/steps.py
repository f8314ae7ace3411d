"""A training step of every method, in the models of the paper's speed table: character classifiers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from paper.efficiency.growth import Growth, measure_growth
from paper.harness.mixers import is_own_mixer, load_own_mixer
from tnn import models

COMMON: dict[str, Any] = {
    "vocab_size": 135,
    "num_labels": 2,
    "hidden_size": 128,
    "num_hidden_layers": 6,
    "is_decoder": False,
    "scale_embedding": False,
    "position_embedding": "sinusoidal",
    "norm": "batch",
    "final_norm": "batch",
    "hidden_act": "gelu",
    "initializer": "torch",
}
TNN: dict[str, Any] = {
    "gtu_expansion": 1,
    "glu_expansion": 1.5,
    "rpe_size": 16,
    "rpe_num_layers": 2,
    "rpe_norm": "last_layer",
    "decay_mode": "none",  # no lag is cut off
    "hidden_act": "silu",
}
EIGHT: dict[str, Any] = {"num_attention_heads": 8, "glu_expansion": 2}
TWO: dict[str, Any] = {"num_attention_heads": 2, "glu_expansion": 2}
# Depth, width and heads as in the speed table; methods that are not in it have about the same size.
MODELS: dict[str, dict[str, Any]] = {
    "tnn": TNN,
    "transformer": EIGHT,
    "alibi": EIGHT | {"position_embedding": "none"},
    "transformer-ls": EIGHT | {"glu_expansion": 1},
    "elu": EIGHT,
    "performer": TWO | {"mixer_options": {"features": 32}},
    "cosformer": EIGHT,
    "flash": {},
    "flash-quad": {},
    "gmlp": {"mixer_options": {"expansion": 5}},
    "synthesizer-dense": {"glu_expansion": 3.25},
    "synthesizer-random": {"glu_expansion": 3.75},
    "fnet": {"num_hidden_layers": 9, "glu_expansion": 2.5},
    "gfnet": {"glu_expansion": 3.75},
    "afno": {"glu_expansion": 3.5},
    "s4": {"num_hidden_layers": 5, "hidden_size": 256, "mixer_options": {"state_size": 16}},
    "dss": {"hidden_size": 256},
    "gss": {"num_hidden_layers": 4, "mixer_options": {"state_channels": 64, "state_size": 128}},
    "nystromformer": TWO | {"num_hidden_layers": 5, "glu_expansion": 2.5},
    "reformer": TWO | {"num_hidden_layers": 8, "glu_expansion": 1.5},
}
TABLES = (
    "flash-quad",
    "gmlp",
    "synthesizer-dense",
    "synthesizer-random",
    "gfnet",
    "linformer",
)  # with one row per position


def model_fields(method: str) -> dict[str, Any]:
    """Fields of the configuration that differ from the defaults."""
    return COMMON | MODELS.get(method, TWO)


def configuration(method: str, length: int) -> models.TNNConfig:
    """The model of a method; tables of positions, if it has any, have `length` rows.

    >>> from paper.efficiency.steps import configuration
    >>> configuration("s4", 1024).hidden_size
    256
    """
    if is_own_mixer(method):
        load_own_mixer(method)  # a step is measured in another process
    fields = model_fields(method)
    options = fields.pop("mixer_options", {})
    if method in TABLES:
        options = options | {"max_length": length}
    return models.TNNConfig(**fields, mixer=method, mixer_options=options or None)


def block_parameters(method: str) -> int:
    """Parameters of the blocks; tables of positions have one row."""
    with torch.device("meta"):
        model = models.TNNForSequenceClassification(configuration(method, 1))
    return sum(p.numel() for p in model.model.layers.parameters())


def training_step(method: str, batch: int, length: int) -> Callable[[], None]:
    """Forward, backward and AdamW of a batch."""
    model = models.TNNForSequenceClassification(configuration(method, length))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids, labels = torch.randint(3, COMMON["vocab_size"], (batch, length)), torch.randint(0, 2, (batch,))

    def step() -> None:
        optimizer.zero_grad()
        model(ids, labels=labels).loss.backward()
        optimizer.step()

    return step


def measure_steps(method: str, lengths: list[int], *, batch: int, steps: int, limit: float, seed: int = 0) -> Growth:
    """Seconds per step and memory of the process, at each length."""
    return measure_growth(partial(training_step, method, batch), lengths, steps=steps, limit=limit, seed=seed)
