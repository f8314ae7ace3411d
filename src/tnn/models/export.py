"""One decoding step of a state space as a module of plain tensor operations, for torch.export and ONNX."""

from __future__ import annotations

import copy
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tnn._checks import check_positive
from tnn.layers import ToeplitzOperator
from tnn.layers.sequences import Sequences
from tnn.models.cache import TNNCache
from tnn.models.heads import TNNForCausalLM
from tnn.models.onnx_file import check_target, onnx_program, save
from tnn.streaming import Recurrence, State
from tnn.streaming.recurrence import StepConstants, step, step_constants


class DecodingStep(nn.Module):
    """The next token and the states so far -> logits of the token after it, and the new states.

    A copy of the model, in float32 and without gradients. States are two tensors per layer, as `tensors` of its
    Recurrence holds them: `initial_states` starts a sequence, and the cache of a model that has read a prompt continues
    it, with `states_of(cache)`. A short convolution has one more in front of them, its newest inputs.

    >>> import torch
    >>> from tnn import TNNConfig, TNNForCausalLM
    >>> from tnn.models.export import DecodingStep
    >>> config = TNNConfig(vocab_size=100, hidden_size=16, num_hidden_layers=2, decay=0.9)
    >>> step = DecodingStep(TNNForCausalLM(config).to_state_space(tolerance=1e-2))
    >>> logits, *states = step(torch.tensor([[5], [6]]), *step.initial_states(2))
    >>> logits.shape, len(states)
    (torch.Size([2, 100]), 4)
    """

    def __init__(self, model: TNNForCausalLM):
        super().__init__()
        _check_exportable(model)
        model = copy.deepcopy(model).float().eval().requires_grad_(False)
        self.scale = model.config.hidden_size**0.5 if model.config.scale_embedding else None
        self.embed_tokens = model.model.embed_tokens
        self.embed_proj = model.model.embed_proj
        self.embed_norm = model.model.embed_norm
        self.layers = nn.ModuleList(_LayerStep(layer) for layer in model.model.layers)
        self.norm = model.model.norm
        self.head_proj = model.head_proj
        self.lm_head = model.lm_head
        self.eval()

    def forward(self, input_ids: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        """input_ids (batch, 1) -> logits (batch, vocab_size), then as many states as came."""
        if input_ids.ndim != 2 or input_ids.shape[1] != 1:
            raise ValueError(f"input_ids must be (batch, 1), one token per row; got shape {tuple(input_ids.shape)}")
        if len(states) != len(self.state_names):
            raise ValueError(f"states must be {len(self.state_names)} tensors; got {len(states)}")
        x = self.embed_tokens(input_ids)
        if self.scale is not None:
            x = x * self.scale
        if self.embed_proj is not None:
            x = self.embed_proj(x)
        if self.embed_norm is not None:
            x = self.embed_norm(x)
        new: list[Tensor] = []
        rest = iter(states)
        for layer in self._steps():
            x, *after = layer(x, *islice(rest, len(layer.initial)))
            new += after
        if self.norm is not None:
            x = self.norm(x)
        if self.head_proj is not None:
            x = self.head_proj(x)
        return self.lm_head(x).squeeze(1), *new

    def initial_states(self, batch: int) -> tuple[Tensor, ...]:
        """The states of `batch` sequences before their first token: zeros."""
        check_positive("batch", batch)
        device = self.get_parameter("embed_tokens.weight").device
        shapes = [shape for layer in self._steps() for shape in layer.initial.values()]
        return tuple(torch.zeros(batch, *shape, device=device) for shape in shapes)

    @property
    def state_names(self) -> list[str]:
        """Of the states, in their order."""
        return [f"{name}_{i}" for i, layer in enumerate(self._steps()) for name in layer.initial]

    def states_of(self, cache: TNNCache) -> tuple[Tensor, ...]:
        """The states after the tokens that a cache of the model has seen."""
        return tuple(t for state in cache.states for t in _tensors(state))

    def _steps(self) -> list[_LayerStep]:
        return list(self.layers)  # type: ignore[arg-type]


class _LayerStep(nn.Module):
    """A block of the model, with a step of the recurrence in its operator's place."""

    taps: Tensor

    def __init__(self, layer: Any):
        super().__init__()
        operator = layer.operator
        assert isinstance(operator, ToeplitzOperator)
        assert operator.poles is not None
        self.layer = layer
        constants = step_constants(operator.poles)
        for name, value in constants._asdict().items():
            self.register_buffer(name, value)
        self.initial = {"state": constants.weights.shape, "recent": constants.direct.shape}  # like what they multiply
        convolution = layer.mixer.convolution
        if convolution is not None:
            self.register_buffer("taps", convolution.free.detach().flip(0))  # the largest lag first
            self.initial = {"inputs": self.taps.shape, **self.initial}

    def forward(self, x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        *inputs, state, recent = states
        constants = StepConstants(*map(self.get_buffer, StepConstants._fields))

        def convolve(value: Tensor, sequences: Sequences | None) -> Tensor:
            inputs[0] = torch.cat([inputs[0][:, 1:], value], 1)
            return (inputs[0] * self.taps).sum(1, keepdim=True)

        def mix(value: Tensor, sequences: Sequences | None) -> Tensor:
            nonlocal state, recent
            y, state, recent = step(value, state, recent, constants)
            return y

        y = self.layer(x, None, (convolve, mix) if inputs else mix)
        return y, *inputs, state, recent


def _tensors(state: State) -> tuple[Tensor, ...]:
    if isinstance(state, Recurrence):
        return state.tensors or ()
    taps = state.owner.max_lags
    past = state.content()["_past"][:, -taps:]
    return (F.pad(past, (0, 0, taps - past.shape[1], 0)),)


def export_step(model: TNNForCausalLM, path: str | PathLike[str]) -> None:
    """Write the decoding step of a state space as an ONNX file, for any batch size.

    Inputs are input_ids (batch, 1), state_0, recent_0, state_1, ...; outputs logits (batch, vocab_size), new_state_0,
    new_recent_0, ...; with short convolutions there is inputs_0 before state_0, and so on.

    Weights beyond what one ONNX file can hold (2 GB) go to a second file, `path` with ".data" added.

    >>> from tempfile import TemporaryDirectory
    >>> from tnn import TNNConfig, TNNForCausalLM
    >>> from tnn.models.export import export_step
    >>> config = TNNConfig(vocab_size=100, hidden_size=16, num_hidden_layers=1, decay=0.9)
    >>> with TemporaryDirectory() as folder:
    ...     export_step(TNNForCausalLM(config).to_state_space(tolerance=1e-2), f"{folder}/step.onnx")
    """
    path = Path(path)
    check_target(path)
    module = DecodingStep(model)
    states = module.initial_states(2)
    ids = torch.zeros(2, 1, dtype=torch.long, device=states[0].device)
    names = module.state_names
    rows = {0: torch.export.Dim("batch", min=1)}
    program = onnx_program(
        module,
        (ids, *states),
        input_names=["input_ids", *names],
        output_names=["logits", *(f"new_{name}" for name in names)],
        dynamic_shapes={"input_ids": rows, "states": (rows,) * len(states)},
    )
    save(program, path)


def _check_exportable(model: TNNForCausalLM) -> None:
    if not isinstance(model, TNNForCausalLM):
        raise TypeError(f"model must be a TNNForCausalLM; got {type(model).__name__}")
    config = model.config
    if config.coefficients != "poles":
        raise ValueError("model is not a state space: convert it with to_state_space() first")
    for mixer, report in zip(config.layer_mixers, config.state_space or (), strict=True):
        if report is None:
            raise ValueError(f"every layer must be a state space to export a step; mixer {mixer!r} is not")
    if config.position_embedding != "none":
        got = config.position_embedding
        raise ValueError(f"position_embedding must be 'none', as a step does not know its position; got {got!r}")
    if config.max_lags is not None:
        raise ValueError(f"a step does not count tokens, and this state space is wrong after {config.max_lags} of them")
