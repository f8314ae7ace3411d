"""Ideas for the kernels of a TNN that are no options of the package: mixers of their own, for the study of ideas."""

import math
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from tnn.layers import GatedToeplitzUnit, RelativePositionEncoder, ToeplitzOperator
from tnn.layers.position import SineLinear


class _ChangedUnit(GatedToeplitzUnit):
    """A gated Toeplitz unit whose operator is changed after it was made."""

    __signature__ = signature(GatedToeplitzUnit)  # by which a model knows the options

    def __init__(self, hidden_size: int, *args: Any, **options: Any):
        super().__init__(hidden_size, *args, **options)
        assert isinstance(self.operator, ToeplitzOperator)
        assert self.operator.rpe is not None
        self.change(self.operator, self.operator.rpe, options)

    def change(self, operator: ToeplitzOperator, encoder: RelativePositionEncoder, options: dict[str, Any]) -> None:
        raise NotImplementedError


class LogLags(_ChangedUnit):
    """The encoder reads the logarithm of the lag beside the lag."""

    def change(self, operator: ToeplitzOperator, encoder: RelativePositionEncoder, options: dict[str, Any]) -> None:
        operator.rpe = _LogLagEncoder(operator.channels, encoder.output.in_features, len(encoder.hidden))


class EvenFrequencies(_ChangedUnit):
    """The first layer of the encoder starts from evenly spaced frequencies in place of random ones."""

    def change(self, operator: ToeplitzOperator, encoder: RelativePositionEncoder, options: dict[str, Any]) -> None:
        encoder.input = _EvenLinear(encoder.input.in_features, encoder.input.out_features)


class SlowEncoder(_ChangedUnit):
    """The encoder learns at a tenth of the rate."""

    def change(self, operator: ToeplitzOperator, encoder: RelativePositionEncoder, options: dict[str, Any]) -> None:
        self._slow = [f"operator.rpe.{name}" for name, _ in encoder.named_parameters()]

    def parameter_settings(self) -> dict[str, dict[str, float]]:
        return {name: {"learning_rate": 6e-4, "weight_decay": 0.0} for name in self._slow}


class DecayedEncoder(_ChangedUnit):
    """The encoder has weight decay, as the dense layers have."""

    def change(self, operator: ToeplitzOperator, encoder: RelativePositionEncoder, options: dict[str, Any]) -> None:
        self._decayed = [f"operator.rpe.{name}" for name, _ in encoder.named_parameters()]

    def parameter_settings(self) -> dict[str, dict[str, float]]:
        return {name: {"weight_decay": 0.1} for name in self._decayed}


class UnitGain(_ChangedUnit):
    """Each channel's kernel is divided by its norm, and has a learned gain that starts from one."""

    def change(self, operator: ToeplitzOperator, encoder: RelativePositionEncoder, options: dict[str, Any]) -> None:
        names = ("decay", "decay_mode", "rpe_size", "rpe_num_layers", "rpe_activation")
        kept = {name: options[name] for name in names}
        self.operator = _UnitGainOperator(operator.channels, causal=operator.causal, **kept)


class _LogLagEncoder(RelativePositionEncoder):
    def __init__(self, channels: int, width: int, num_layers: int):
        super().__init__(channels, width, num_layers, activation="sin")
        self.input = self._layer("input", 2, width)

    def _features(self, lags: Tensor, length: int | None) -> Tensor:
        return torch.stack([lags, lags.sign() * lags.abs().log1p()], dim=-1)


class _EvenLinear(SineLinear):
    def __init__(self, in_features: int, out_features: int):
        super().__init__("input", in_features, out_features)

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.weight.copy_(torch.linspace(0, 2, self.out_features)[:, None].expand_as(self.weight))
        nn.init.uniform_(self.bias, -math.pi, math.pi)


class _UnitGainOperator(ToeplitzOperator):
    def __init__(self, channels: int, **options: Any):
        super().__init__(channels, **options)
        self.gain = nn.Parameter(torch.ones(channels))

    def reset_parameters(self) -> None:
        if hasattr(self, "gain"):
            nn.init.ones_(self.gain)

    def _compute_kernel(self, length: int, lags: int, device: torch.device) -> Tensor:
        kernel = super()._compute_kernel(length, lags, device)
        return kernel / kernel.norm(dim=0) * self.gain
