"""A convolution over the nearest few positions, each channel alone: a Toeplitz operator with few free coefficients."""

from torch import nn

from tnn.layers.operator import ToeplitzOperator


class ShortConvolution(ToeplitzOperator):
    """y_i = sum over m < taps of c_m x_{i-m}; bidirectional also over the taps - 1 positions after.

    Padding, packed documents and states are those of the operator. It starts as torch's depthwise Conv1d does, and is
    trained without weight decay.

    >>> import torch
    >>> from tnn.layers.short_convolution import ShortConvolution
    >>> ShortConvolution(8, taps=4, causal=True)(torch.randn(2, 10, 8)).shape
    torch.Size([2, 10, 8])
    """

    def __init__(self, channels: int, *, taps: int, causal: bool, backend: str = "auto"):
        super().__init__(
            channels, causal=causal, coefficients="free", max_lags=taps, decay_mode="none", backend=backend
        )

    def reset_parameters(self) -> None:
        assert self.free is not None
        bound = len(self.free) ** -0.5
        nn.init.uniform_(self.free, -bound, bound)

    def parameter_settings(self) -> dict[str, dict[str, float]]:
        return {"free": {"weight_decay": 0.0}}
