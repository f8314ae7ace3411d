"""One decoding step of a state space as a module of plain tensor operations, for torch.export and ONNX."""

from __future__ import annotations

import copy
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor, nn

from tnn._checks import check_positive
from tnn.layers import ToeplitzOperator
from tnn.layers.sequences import Sequences
from tnn.models.heads import TNNForCausalLM
from tnn.models.onnx_file import check_target, onnx_program, save
from tnn.streaming.recurrence import StepConstants, step, step_constants


class DecodingStep(nn.Module):
    """The next token and the states so far -> logits of the token after it, and the new states.

    A copy of the model, in float32 and without gradients. States are two tensors per layer, as `tensors` of its
    Recurrence holds them: `initial_states` starts a sequence, and the cache of a model that has read a prompt continues
    it, with `[t for layer in cache.layers for t in layer.state.tensors]`.

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
        if len(states) != 2 * len(self.layers):
            raise ValueError(f"states must be {2 * len(self.layers)} tensors, two per layer; got {len(states)}")
        x = self.embed_tokens(input_ids)
        if self.scale is not None:
            x = x * self.scale
        if self.embed_proj is not None:
            x = self.embed_proj(x)
        if self.embed_norm is not None:
            x = self.embed_norm(x)
        new: list[Tensor] = []
        for layer, state, recent in zip(self.layers, states[::2], states[1::2], strict=True):
            x, *after = layer(x, state, recent)
            new += after
        if self.norm is not None:
            x = self.norm(x)
        if self.head_proj is not None:
            x = self.head_proj(x)
        return self.lm_head(x).squeeze(1), *new

    def initial_states(self, batch: int) -> tuple[Tensor, ...]:
        """The states of `batch` sequences before their first token: zeros."""
        check_positive("batch", batch)
        return tuple(
            part.new_zeros(batch, *part.shape)
            for layer in self.layers
            for part in (layer.get_buffer("weights"), layer.get_buffer("direct"))  # shaped like what they multiply
        )


class _LayerStep(nn.Module):
    """A block of the model, with a step of the recurrence in its operator's place."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        operator = layer.operator
        assert isinstance(operator, ToeplitzOperator)
        assert operator.poles is not None
        self.layer = layer
        for name, value in step_constants(operator.poles)._asdict().items():
            self.register_buffer(name, value)

    def forward(self, x: Tensor, state: Tensor, recent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        constants = StepConstants(*map(self.get_buffer, StepConstants._fields))

        def mix(value: Tensor, sequences: Sequences | None) -> Tensor:
            nonlocal state, recent
            y, state, recent = step(value, state, recent, constants)
            return y

        y = self.layer(x, None, mix)
        return y, state, recent


def export_step(model: TNNForCausalLM, path: str | PathLike[str]) -> None:
    """Write the decoding step of a state space as an ONNX file, for any batch size.

    Inputs are input_ids (batch, 1), state_0, recent_0, state_1, ...; outputs logits (batch, vocab_size), new_state_0,
    new_recent_0, ... Weights beyond what one ONNX file can hold (2 GB) go to a second file, `path` with ".data" added.

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
    names = [f"{kind}_{i}" for i in range(len(module.layers)) for kind in ("state", "recent")]
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
