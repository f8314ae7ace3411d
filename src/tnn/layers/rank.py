"""How many dimensions the kernels of a layer span: of hundreds of channels, many may have one and the same memory."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tnn._checks import check_float, check_positive
from tnn.layers.mixer import Mixer
from tnn.layers.operator2d import ToeplitzOperator2d

TOLERANCES = (1e-1, 1e-2, 1e-3)
Ranks = tuple[int, int, int]  # at each of the tolerances


class LayerRanks(NamedTuple):
    """The ranks of the kernels of one layer, or of one axis of a grid; None if it has no kernel, as attention."""

    name: str
    channels: int | None = None
    rpe_size: int | None = None  # None: no encoder makes the coefficients
    all_lags: Ranks | None = None
    from_lag_16: Ranks | None = None
    from_lag_64: Ranks | None = None


def kernel_rank(kernel: Tensor) -> Ranks:
    """The numerical rank of a kernel matrix (lags, channels), at the tolerances 0.1, 0.01 and 0.001.

    At each tolerance e it is the smallest r for which s_{r+1}^2 + s_{r+2}^2 + ... <= e^2 (s_1^2 + s_2^2 + ...), where
    s_1 >= s_2 >= ... are the singular values, computed in float64 (as eigenvalues of the smaller Gram matrix, whose
    rounding is far below e^2). In other words: some r kernels exist whose combinations give all channels with an error
    of at most e, relative to the Frobenius norm of the matrix. A matrix of zeros, or without rows, has rank 0.

    >>> import torch
    >>> from tnn.layers import kernel_rank
    >>> kernel_rank(torch.diag(torch.tensor([1.0, 0.05, 0.005, 0.0])))
    (1, 2, 3)
    >>> lag = torch.arange(512)[:, None]
    >>> kernel_rank(0.99**lag * torch.randn(256))                              # one memory, shared by all channels
    (1, 1, 1)
    """
    check_float("kernel", kernel)
    if kernel.ndim != 2:
        raise ValueError(f"kernel must have shape (lags, channels); got {tuple(kernel.shape)}")
    if not kernel.isfinite().all():
        raise ValueError("kernel must be finite; got coefficients that are NaN or infinite")
    if not kernel.any():
        return 0, 0, 0
    matrix = kernel.detach().cpu().double()  # not every device has float64
    matrix = matrix / matrix.abs().max()
    gram = matrix.T @ matrix if len(matrix) > matrix.shape[1] else matrix @ matrix.T
    rest = torch.linalg.eigvalsh(gram).clamp_min(0).cumsum(0)  # sums of the smallest squares of singular values
    tenth, hundredth, thousandth = (int((rest > e**2 * rest[-1]).sum()) for e in TOLERANCES)
    return tenth, hundredth, thousandth


@torch.no_grad()
def layer_ranks(module: nn.Module, length: int = 512) -> list[LayerRanks]:
    """`kernel_rank` of every layer of a model, or of one operator: over all lags, from lag 16 on and from lag 64 on.

    Kernels are those for sequences of `length`, decay included: the lags 0, 1, ... up to `length - 1` at most, and of
    bidirectional ones the same in both directions (from lag 16 on are those with |lag| >= 16). Fewer lags count where
    a kernel ends earlier, by `max_lags` or by the bandwidth of its decay. A 2-D operator has one entry per axis. A
    layer without a kernel has an entry too, with None for its ranks.

    With one decay for all channels, an encoder of width `rpe_size` gives at most `rpe_size + 1` dimensions: its
    features, and the bias of its last layer.

    >>> import torch
    >>> from tnn.layers import ToeplitzOperator, layer_ranks
    >>> _ = torch.manual_seed(0)
    >>> options = {"causal": True, "rpe_size": 16, "rpe_num_layers": 3, "decay": 0.97}
    >>> layer_ranks(ToeplitzOperator(64, **options))[0].from_lag_16
    (1, 1, 2)
    >>> layer_ranks(ToeplitzOperator(64, **options, rpe_activation="sin"))[0].from_lag_16
    (15, 16, 16)
    """
    check_positive("length", length)
    return [_layer_ranks(name, part, length) for name, part in named_operators(module)]


def named_operators(module: Any) -> Iterator[tuple[str, Any]]:
    """Each operator of a model with the name of its layer, a grid's by axis; the mixer of a layer that has none.

    An operator alone is "kernel".
    """
    layers = getattr(getattr(module, "base_model", module), "layers", None)
    if layers is None:
        if not (axes := _axes("kernel", module)):
            raise TypeError(f"module must be a model, or an operator with a kernel; got {type(module).__name__}")
        yield from axes.items()
        return
    for number, layer in enumerate(layers, start=1):
        axes = _axes(f"layer {number}", layer.operator)
        yield from (axes or {f"layer {number}, {layer.mixer_name}": layer.mixer}).items()


def _axes(name: str, operator: Any) -> dict[str, Any]:
    """The operator, or both of a grid; empty if there is no kernel."""
    if isinstance(operator, ToeplitzOperator2d):
        return {f"{name}, along columns": operator.height, f"{name}, along rows": operator.width}
    return {name: operator} if hasattr(operator, "kernel") else {}


def _layer_ranks(name: str, operator: Any, length: int) -> LayerRanks:
    if isinstance(operator, Mixer):
        return LayerRanks(name)
    kernel = operator.kernel(length)
    if not kernel.isfinite().all():
        raise ValueError(f"{name} has coefficients that are NaN or infinite")
    zero = 0 if operator.causal else len(kernel) // 2
    distance = (torch.arange(len(kernel), device=kernel.device) - zero).abs()
    ranks = [kernel_rank(kernel[distance >= start]) for start in (0, 16, 64)]
    rpe = getattr(operator, "rpe", None)
    return LayerRanks(name, operator.channels, None if rpe is None else rpe.output.in_features, *ranks)
