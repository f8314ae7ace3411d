"""The two halves of a TNN block: the gated Toeplitz unit mixes tokens, the gated linear unit mixes channels."""

import math
from numbers import Real
from typing import Any, Unpack

from torch import Tensor, nn

from tnn._checks import check_fraction, check_positive, check_sequence
from tnn.layers.activation import ACTIVATIONS, activation, gated
from tnn.layers.mixer import Mixer
from tnn.layers.norm import SimpleRMSNorm
from tnn.layers.operator import OperatorOptions, ToeplitzOperator
from tnn.layers.operator2d import ToeplitzOperator2d
from tnn.layers.sequences import Mask, resolve_mask
from tnn.layers.short_convolution import ShortConvolution
from tnn.layers.state import States


def inner_size(name: str, hidden_size: int, expansion: float) -> int:
    check_positive("hidden_size", hidden_size)
    if isinstance(expansion, bool) or not isinstance(expansion, Real):
        raise TypeError(f"{name} must be a number; got {expansion!r}")
    size = hidden_size * expansion
    if not (1 <= size < math.inf and math.isclose(size, round(size), rel_tol=1e-9)):  # 11 * (15 / 11) is not quite 15
        raise ValueError(f"{name} must make {hidden_size} * {name} a whole number, 1 or more; got {expansion}")
    return round(size)


class Projection(nn.Linear):
    """A dense layer whose weights and biases start from N(0, std), or from torch's default if that is None."""

    def __init__(self, in_features: int, out_features: int, std: float | None):
        self.std = std  # before the constructor of Linear, which draws the weights
        super().__init__(in_features, out_features)

    def reset_parameters(self) -> None:
        if self.std is None:
            super().reset_parameters()
        else:
            nn.init.normal_(self.weight, std=self.std)
            nn.init.normal_(self.bias, std=self.std)


class GatedToeplitzUnit(Mixer):
    """o( act(u x) * T act(v x) ): a gate, and a value mixed along the sequence by a Toeplitz operator.

    With `input_gate` it is o( u x * T (k x * v x) ): a second gate in front of the operator, and no activation. With
    `short_convolution` the projections read a convolution over that many positions instead of x.

    Args:
        hidden_size: channels of the input and the output.
        expansion: the unit works on `expansion * hidden_size` channels inside.
        causal: an output depends on inputs up to its own position only.
        hidden_act: the activation of gate and value.
        input_gate: gate the input of the operator too.
        short_convolution: how many positions, the own one included, a convolution in front of the projections covers,
            and, unless causal, one less after it. None: no convolution. Needs dims=1.
        dims: 1 mixes a sequence (..., n, hidden_size), 2 a grid (..., height, width, hidden_size).
        form: with dims=2, "sum" or "product"; see ToeplitzOperator2d.
        initializer_range: weights and biases of u, v, o start from N(0, initializer_range); None: torch's default.
        operator_norm: divide what the operator has mixed by its root mean square over the channels, before the gate.
        operator_dropout: of what the operator has mixed, before the gate.
        options: the other keyword arguments of ToeplitzOperator (decay, rpe_size, max_lags, backend, ...).

    >>> import torch
    >>> from tnn.layers import GatedToeplitzUnit
    >>> gtu = GatedToeplitzUnit(16, causal=True, decay=0.95)
    >>> gtu(torch.randn(2, 10, 16), mask=torch.tensor([[True] * 10, [False] * 4 + [True] * 6])).shape
    torch.Size([2, 10, 16])
    """

    takes_grids = True

    def __init__(
        self,
        hidden_size: int,
        expansion: float = 3,
        *,
        causal: bool = False,
        hidden_act: str = "silu",
        input_gate: bool = False,
        short_convolution: int | None = None,
        dims: int = 1,
        form: str = "sum",
        initializer_range: float | None = 0.02,
        operator_norm: bool = False,
        operator_dropout: float = 0.0,
        **options: Unpack[OperatorOptions],
    ):
        self.check_options(
            hidden_size,
            expansion,
            causal=causal,
            hidden_act=hidden_act,
            input_gate=input_gate,
            short_convolution=short_convolution,
            dims=dims,
            form=form,
            operator_norm=operator_norm,
            operator_dropout=operator_dropout,
            **options,
        )
        super().__init__(hidden_size, causal=causal)
        inner = inner_size("expansion", hidden_size, expansion)
        self.hidden_act = hidden_act
        self._activation = activation("hidden_act", hidden_act)
        self._axes = "length" if dims == 1 else "height, width"
        self.convolution: ShortConvolution | None = None
        if short_convolution is not None:
            backend = options.get("backend", "auto")
            self.convolution = ShortConvolution(hidden_size, taps=short_convolution, causal=causal, backend=backend)
        self.key_proj = Projection(hidden_size, inner, initializer_range) if input_gate else None
        self.gate_proj = Projection(hidden_size, inner, initializer_range)
        self.value_proj = Projection(hidden_size, inner, initializer_range)
        self.out_proj = Projection(inner, hidden_size, initializer_range)
        self.operator: ToeplitzOperator | ToeplitzOperator2d
        if dims == 1:
            self.operator = ToeplitzOperator(inner, causal=causal, **options)
        else:
            self.operator = ToeplitzOperator2d(inner, form=form, causal=causal, **options)
        self.operator_norm = SimpleRMSNorm() if operator_norm else None
        self.dropout = nn.Dropout(operator_dropout)

    @classmethod
    def check_options(
        cls,
        hidden_size: int,
        expansion: float = 3,
        *,
        causal: bool = False,
        hidden_act: str = "silu",
        input_gate: bool = False,
        short_convolution: int | None = None,
        dims: int = 1,
        form: str = "sum",
        initializer_range: float | None = 0.02,
        operator_norm: bool = False,
        operator_dropout: float = 0.0,
        **options: Unpack[OperatorOptions],
    ) -> None:
        inner = inner_size("expansion", hidden_size, expansion)
        activation("hidden_act", hidden_act)
        check_fraction("operator_dropout", operator_dropout)
        if dims not in (1, 2):
            raise ValueError(f"dims must be 1 (a sequence) or 2 (a grid); got {dims!r}")
        for name, value in {"input_gate": input_gate, "operator_norm": operator_norm}.items():
            if not isinstance(value, bool):
                raise TypeError(f"{name} must be true or false; got {value!r}")
        if short_convolution is not None:
            check_positive("short_convolution", short_convolution)
            if dims == 2:
                raise ValueError("short_convolution needs dims=1: it covers the nearest positions of a sequence")
        if dims == 1:
            ToeplitzOperator.check_options(inner, causal=causal, **options)
        else:
            ToeplitzOperator2d.check_options(inner, form=form, causal=causal, **options)

    @classmethod
    def option_names(cls) -> list[str]:
        own = [name for name in super().option_names() if name != "options"]
        return own + list(OperatorOptions.__annotations__)

    @classmethod
    def config_options(cls, config: Any, layer: int) -> dict[str, Any]:
        inner_size("gtu_expansion", config.hidden_size, config.gtu_expansion)  # its name here is another
        fields = set(OperatorOptions.__annotations__) - {"num_poles"}
        return {
            "expansion": config.gtu_expansion,
            "input_gate": config.input_gate,
            "short_convolution": config.short_convolution,
            "dims": getattr(config, "dims", 1),
            "form": getattr(config, "form", "sum"),
            "initializer_range": config.initializer_range if config.initializer == "gtu" else None,
            "operator_norm": config.operator_norm,
            "operator_dropout": config.operator_dropout,
            "num_poles": (config.state_space[layer] or {}).get("poles") if config.state_space else None,
            **{name: getattr(config, name) for name in fields},
        }

    @property
    def state_owner(self) -> ToeplitzOperator | None:
        operator = self.operator
        if not isinstance(operator, ToeplitzOperator) or not operator.causal or operator.depends_on_length:
            return None
        if operator.poles is not None and operator.poles.weights.is_meta:
            return None  # on a disk: poles come in for a whole kernel, but not for a step
        return operator

    @property
    def state_owners(self) -> list[Any]:
        return [self.state_owner] if self.convolution is None else [self.convolution, self.state_owner]

    def forward(self, x: Tensor, mask: Mask = None, state: States = None) -> Tensor:
        """x (..., n, hidden_size) and mask (..., n), or (..., h, w, hidden_size) and (..., h, w).

        With a `state` of the operator, x is the next part of a sequence (see tnn.streaming). With a convolution, it is
        a pair: its state and that of the operator.
        """
        check_sequence("x", x, self.hidden_size, axes=self._axes)
        x, sequences = resolve_mask(x, mask)
        if self.convolution is not None:
            if state is not None and not isinstance(state, tuple):
                raise ValueError("state must be a pair: that of the convolution, that of the operator; got one state")
            near, state = state or (None, None)
            x = self.convolution(x, sequences, near)
        gate, value = self.gate_proj(x), self.value_proj(x)
        value = self._activation(value) if self.key_proj is None else self.key_proj(x) * value
        # The value is not zero at padded positions: the operator masks it.
        mixed = self.operator(value, sequences) if state is None else self.operator(value, sequences, state)
        return self.out_proj(self.dropout(self._gated(gate, mixed)))

    def _gated(self, gate: Tensor, mixed: Tensor) -> Tensor:
        act = self.hidden_act if self.key_proj is None else "identity"
        if self.operator_norm is None:
            return gated(act, gate, mixed)
        if act == "silu":
            return self.operator_norm(mixed, gate=gate, silu=True)
        return self.operator_norm(mixed, gate=ACTIVATIONS[act](gate))

    def extra_repr(self) -> str:
        return f"hidden_act={self.hidden_act}"


class GatedLinearUnit(nn.Module):
    """w3( act(w1 x) * w2 x ): channel mixing, each position alone; `dropout` is of the gate act(w1 x).

    >>> import torch
    >>> from tnn.layers import GatedLinearUnit
    >>> GatedLinearUnit(16, expansion=1.5)(torch.randn(2, 10, 16)).shape
    torch.Size([2, 10, 16])
    """

    def __init__(self, hidden_size: int, expansion: float = 1, *, hidden_act: str = "silu", dropout: float = 0.0):
        super().__init__()
        inner = inner_size("expansion", hidden_size, expansion)
        self.hidden_size = hidden_size
        self.hidden_act = hidden_act
        activation("hidden_act", hidden_act)
        self.gate_proj = nn.Linear(hidden_size, inner)
        self.value_proj = nn.Linear(hidden_size, inner)
        self.out_proj = nn.Linear(inner, hidden_size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        """x (..., hidden_size), mask (...). Each position is mapped alone: padding is only kept from the gradients."""
        check_sequence("x", x, self.hidden_size)
        x, _ = resolve_mask(x, mask)
        gate, value = self.gate_proj(x), self.value_proj(x)
        if self.training and self.dropout.p > 0:
            return self.out_proj(self.dropout(ACTIVATIONS[self.hidden_act](gate)) * value)
        return self.out_proj(gated(self.hidden_act, gate, value))

    def extra_repr(self) -> str:
        return f"hidden_act={self.hidden_act}"
