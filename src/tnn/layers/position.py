"""The relative position encoder (RPE): a small MLP from a lag to one Toeplitz coefficient per channel."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tnn._checks import check_choice, check_positive
from tnn._precision import compute_dtype, no_autocast
from tnn.layers.activation import activation as activation_function
from tnn.layers.norm import simple_rms_norm

INPUTS = ("integer", "normalized", "sincos")
NORMS = ("simple_rms", "last_layer")
SINCOS_FREQUENCIES = 10


class RelativePositionEncoder(nn.Module):
    """Lin(1, width), then `num_layers` x [norm, activation, Lin(width, width)], then [norm, activation, Lin(width, d)].

    `inputs`: "integer" (the lag), "normalized" (lag / length) or "sincos" (sines and cosines of the lag at 10
    frequencies). `norm`: "simple_rms" before every activation (the paper's language models), or "last_layer", one
    LayerNorm before the last activation only (its Long-Range Arena models). Computed in float32 at least, under
    autocast and for half-precision weights too: bfloat16 cannot tell lag 1,000 from lag 1,001.

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
        self.activation = activation
        self.inputs = inputs
        self.norm = norm
        self._activation = activation_function("activation", activation)
        features = 2 * SINCOS_FREQUENCIES if inputs == "sincos" else 1
        self.input = nn.Linear(features, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(num_layers))
        self.output_norm = nn.LayerNorm(width) if norm == "last_layer" else None
        self.output = nn.Linear(width, channels)

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
            z = _linear(self.input, self._features(lags.to(dtype), length))  # (m, width)
            for layer in self.hidden:
                z = _linear(layer, self._activation(simple_rms_norm(z) if self.output_norm is None else z))
            z = simple_rms_norm(z) if self.output_norm is None else _layer_norm(self.output_norm, z)
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

        >>> import torch
        >>> from tnn.layers import RelativePositionEncoder
        >>> rpe = RelativePositionEncoder(channels=3)
        >>> bool((rpe(torch.arange(10_000)).abs() <= rpe.coefficient_bound()).all())
        True
        """
        weight, bias = _weight_and_bias(self.output)
        radius = torch.tensor(weight.shape[1] ** 0.5, dtype=torch.float64)
        if self.output_norm is not None:
            radius = radius * self.output_norm.weight.double().abs().max() + self.output_norm.bias.double().norm()
        return radius.to(weight.device) * weight.norm(dim=1) + bias.abs()


# The weights follow the dtype of the features, whatever the model was cast to.


def _linear(layer: nn.Module, x: Tensor) -> Tensor:
    weight = getattr(layer, "weight", None)
    if weight is None or weight.dtype == x.dtype:
        return layer(x)  # with its hooks, which bring the weights of an offloaded model, or as the adapter it became
    if type(layer) is not nn.Linear:  # lags would have to be rounded to its type
        raise ValueError(f"a position encoder with an adapter must be in float32; got {weight.dtype}")
    return F.linear(x, weight.to(x.dtype), layer.bias.to(x.dtype))


def _weight_and_bias(layer: nn.Linear) -> tuple[Tensor, Tensor]:
    """In double precision, (out, in) and (out,); of a layer that became an adapter, what all of it amounts to."""
    if type(layer) is nn.Linear:
        return layer.weight.double(), layer.bias.double()
    unit = torch.eye(layer.in_features, dtype=layer.weight.dtype, device=layer.weight.device)
    bias = layer(torch.zeros_like(unit[:1])).double()  # (1, out)
    return (layer(unit).double() - bias).T, bias[0]


def _layer_norm(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    if norm.weight.dtype == x.dtype:
        return norm(x)
    return F.layer_norm(x, norm.normalized_shape, norm.weight.to(x.dtype), norm.bias.to(x.dtype), norm.eps)
