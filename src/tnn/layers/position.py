"""The relative position encoder (RPE): a small MLP from a lag to one Toeplitz coefficient per channel."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tnn._checks import check_choice, check_positive
from tnn._precision import compute_dtype, no_autocast
from tnn.layers.activation import ACTIVATIONS as HIDDEN_ACTIVATIONS
from tnn.layers.norm import simple_rms_norm

INPUTS = ("integer", "normalized", "sincos")
NORMS = ("simple_rms", "last_layer")
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {**HIDDEN_ACTIVATIONS, "sin": torch.sin}
SINCOS_FREQUENCIES = 10


class RelativePositionEncoder(nn.Module):
    """Lin(1, width), then `num_layers` x [norm, activation, Lin(width, width)], then [norm, activation, Lin(width, d)].

    `inputs`: "integer" (the lag), "normalized" (lag / length) or "sincos" (sines and cosines of the lag at 10
    frequencies). `norm`: "simple_rms" before every activation (the paper's language models), or "last_layer", one
    LayerNorm before the last activation only (its Long-Range Arena models). Computed in float32 at least, under
    autocast and for half-precision weights too: bfloat16 cannot tell lag 1,000 from lag 1,001.

    `activation="sin"` has no norms and starts from weights of its own (see `SineLinear`), so that the kernels of the
    channels differ: behind a norm all features tend to constants as the lag grows, and so do all kernels.

    >>> import torch
    >>> from tnn.layers import RelativePositionEncoder
    >>> rpe = RelativePositionEncoder(channels=1536)
    >>> rpe(torch.arange(-3, 4)).shape
    torch.Size([7, 1536])
    """

    def __init__(
        self,
        channels: int,
        width: int = 64,
        num_layers: int = 6,
        *,
        activation: str = "relu",
        inputs: str = "integer",
        norm: str = "simple_rms",
    ):
        super().__init__()
        check_positive("channels", channels)
        check_positive("width", width)
        check_positive("num_layers", num_layers)
        check_choice("inputs", inputs, INPUTS)
        check_choice("norm", norm, NORMS)
        check_choice("activation", activation, ACTIVATIONS)
        self.activation = activation
        self.inputs = inputs
        self.norm = None if activation == "sin" else norm
        self._activation = ACTIVATIONS[activation]
        features = 2 * SINCOS_FREQUENCIES if inputs == "sincos" else 1
        self.input = self._layer("input", features, width)
        self.hidden = nn.ModuleList(self._layer("hidden", width, width) for _ in range(num_layers))
        self.output_norm = nn.LayerNorm(width) if self.norm == "last_layer" else None
        self.output = self._layer("output", width, channels)

    def _layer(self, role: str, in_features: int, out_features: int) -> nn.Linear:
        sine = self.activation == "sin"
        return SineLinear(role, in_features, out_features) if sine else nn.Linear(in_features, out_features)

    @property
    def depends_on_length(self) -> bool:
        return self.inputs == "normalized"

    def forward(self, lags: Tensor, length: int | None = None) -> Tensor:
        """lags (m,), whole numbers -> coefficients (m, channels). `length` is needed by "normalized" inputs only."""
        if not isinstance(lags, Tensor) or lags.ndim != 1 or lags.is_complex():
            got = tuple(lags.shape) if isinstance(lags, Tensor) else type(lags).__name__
            raise ValueError(f"lags must be a tensor of real numbers with one axis; got {got}")
        if length is not None:
            check_positive("length", length)
        dtype = compute_dtype(self.output.weight)
        with no_autocast(lags.device):
            norm = simple_rms_norm if self.norm == "simple_rms" else _identity
            z = _linear(self.input, self._features(lags.to(dtype), length))  # (m, width)
            for layer in self.hidden:
                z = _linear(layer, self._activation(norm(z)))
            z = norm(z) if self.output_norm is None else _layer_norm(self.output_norm, z)
            return _linear(self.output, self._activation(z))

    def _features(self, lags: Tensor, length: int | None) -> Tensor:
        if self.inputs == "integer":
            return lags[:, None]
        if self.inputs == "normalized":
            if length is None:
                raise ValueError('length must be given when inputs="normalized"')
            return lags[:, None] / length
        exponent = torch.arange(SINCOS_FREQUENCIES, dtype=lags.dtype, device=lags.device) / SINCOS_FREQUENCIES
        angle = lags[:, None] * 10_000**-exponent
        return torch.cat([angle.sin(), angle.cos()], dim=-1)

    @torch.no_grad()
    def coefficient_bound(self) -> Tensor:
        """M (channels,) with |coefficient at any lag, however large| <= M.

        After the last norm a feature vector is no longer than sqrt(width) (times the gain, plus the bias, of a
        LayerNorm), the activation only shrinks it, and Cauchy-Schwarz bounds its product with a row of the output.
        Sines are at most 1 each, so their product with a row is at most the sum of its absolute values.

        >>> import torch
        >>> from tnn.layers import RelativePositionEncoder
        >>> rpe = RelativePositionEncoder(channels=3)
        >>> bool((rpe(torch.arange(10_000)).abs() <= rpe.coefficient_bound()).all())
        True
        """
        weight, bias = _weight_and_bias(self.output)
        if self.activation == "sin":
            return weight.abs().sum(1) + bias.abs()
        radius = torch.tensor(weight.shape[1] ** 0.5, dtype=torch.float64)
        if self.output_norm is not None:
            radius = radius * self.output_norm.weight.double().abs().max() + self.output_norm.bias.double().norm()
        return radius.to(weight.device) * weight.norm(dim=1) + bias.abs()


class SineLinear(nn.Linear):
    """A dense layer of a network of sines, with the start for its role: "input", "hidden" or "output".

    The first layer starts with frequencies up to 2 radians per lag and any phase, the others with weights that keep the
    sum of a row's squares: features oscillate at many frequencies, and channels have coefficients of size 1.
    """

    def __init__(self, role: str, in_features: int, out_features: int):
        self.role = role  # before the constructor of Linear, which draws the weights
        super().__init__(in_features, out_features)

    def parameter_settings(self) -> dict[str, dict[str, float]]:
        """Weight decay would draw all frequencies to zero, and with them the kernels to one curve."""
        return {"weight": {"weight_decay": 0.0}, "bias": {"weight_decay": 0.0}}

    def reset_parameters(self) -> None:
        if self.role == "input":
            nn.init.uniform_(self.weight, -2, 2)
            nn.init.uniform_(self.bias, -math.pi, math.pi)
        elif self.role == "hidden":
            nn.init.normal_(self.weight, std=1.5 * math.sqrt(2 / self.in_features))
            nn.init.uniform_(self.bias, -1, 1)
        else:
            nn.init.normal_(self.weight, std=self.in_features**-0.5)
            nn.init.zeros_(self.bias)


def _identity(x: Tensor) -> Tensor:
    return x


# The weights follow the dtype of the features, whatever the model was cast to.


def _linear(layer: nn.Module, x: Tensor) -> Tensor:
    weight = getattr(layer, "weight", None)
    if weight is None or weight.dtype == x.dtype:
        return layer(x)  # with its hooks, which bring the weights of an offloaded model, or as the adapter it became
    if not _is_plain(layer):  # lags would have to be rounded to its type
        raise ValueError(f"a position encoder with an adapter must be in float32; got {weight.dtype}")
    weight, bias = (t.to(x.dtype) for t in layer.parameters())
    return F.linear(x, weight, bias)


def _is_plain(layer: nn.Module) -> bool:
    """Not an adapter."""
    return type(layer) in (nn.Linear, SineLinear)


def _weight_and_bias(layer: nn.Linear) -> tuple[Tensor, Tensor]:
    """In double precision, (out, in) and (out,); of a layer that became an adapter, what all of it amounts to."""
    if _is_plain(layer):
        return layer.weight.double(), layer.bias.double()
    unit = torch.eye(layer.in_features, dtype=layer.weight.dtype, device=layer.weight.device)
    bias = layer(torch.zeros_like(unit[:1])).double()  # (1, out)
    return (layer(unit).double() - bias).T, bias[0]


def _layer_norm(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    if norm.weight.dtype == x.dtype:
        return norm(x)
    return F.layer_norm(x, norm.normalized_shape, norm.weight.to(x.dtype), norm.bias.to(x.dtype), norm.eps)
