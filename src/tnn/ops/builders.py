"""Other sequence operators as Toeplitz coefficients (section 3.4 of the paper)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from tnn._checks import check_float, check_positive
from tnn._precision import compute_dtype, no_autocast


def from_conv1d(weight: Tensor, *, causal: bool = False) -> Tensor:
    """Coefficients of a depthwise convolution, from the weight (d, 1, k) of a torch.nn.Conv1d with groups=d.

    Causal: the layer that pads k - 1 zeros on the left, as coefficients (k, d). Otherwise: the layer with
    padding="same", as coefficients (2w-1, d).

    >>> import torch
    >>> from tnn.ops import from_conv1d, toeplitz_matmul
    >>> layer = torch.nn.Conv1d(4, 4, kernel_size=3, padding="same", groups=4, bias=False)
    >>> x = torch.randn(2, 10, 4)
    >>> y = toeplitz_matmul(x, from_conv1d(layer.weight))
    >>> torch.allclose(y, layer(x.mT).mT, atol=1e-5)
    True
    """
    check_float("weight", weight)
    if weight.ndim != 3 or weight.shape[1] != 1 or weight.shape[2] == 0:
        raise ValueError(
            "weight must have the shape (channels, 1, kernel_size) of a depthwise convolution (groups=channels); "
            f"got {tuple(weight.shape)}"
        )
    lags = weight.squeeze(1).flip(-1).T  # (k, d) by ascending lag: in conv1d the largest lag comes first
    if causal:
        return lags
    size = lags.shape[0]
    past = (size - 1) // 2  # padding="same" adds one more zero on the right for even kernels: one more future lag
    future = size - 1 - past
    return F.pad(lags, (0, 0, 0, future - past))


def from_state_space(A: Tensor, B: Tensor, C: Tensor, length: int) -> Tensor:
    """Causal coefficients k_i = C A^i B, i < length, of u_i = A u_{i-1} + B x_i, y_i = C u_i; shape (length, d).

    A (d, h, h), B (d, h, 1), C (d, 1, h): one system per channel; without the leading axis, a single channel. The
    result is computed and returned in float32, or in float64 if an input is.

    >>> import torch
    >>> from tnn.ops import from_state_space
    >>> from_state_space(torch.tensor([[0.5]]), torch.tensor([[1.0]]), torch.tensor([[4.0]]), length=4).T
    tensor([[4.0000, 2.0000, 1.0000, 0.5000]])
    """
    for name, value in (("A", A), ("B", B), ("C", C)):
        check_float(name, value)
        if value.ndim not in (2, 3):
            raise ValueError(f"{name} must be a matrix, or one matrix per channel; got shape {tuple(value.shape)}")
    check_positive("length", length)
    h = A.shape[-1]
    if A.shape[-2] != h or B.shape[-2:] != (h, 1) or C.shape[-2:] != (1, h):
        raise ValueError(
            "A, B, C must end in (h, h), (h, 1), (1, h) for one state size h; "
            f"got {tuple(A.shape)}, {tuple(B.shape)}, {tuple(C.shape)}"
        )
    if len({A.shape[:-2], B.shape[:-2], C.shape[:-2]}) > 1:
        counts = ", ".join(str(m.shape[0] if m.ndim == 3 else "none") for m in (A, B, C))
        raise ValueError(f"A, B, C must have the same number of channels; got {counts}")
    if len({A.device, B.device, C.device}) > 1:
        raise ValueError(f"A, B, C must share a device; got {A.device}, {B.device}, {C.device}")
    A, B, C = (m.to(compute_dtype(A, B, C)) for m in (A, B, C))
    # Columns A^i B by doubling: [B, AB, ..., A^{m-1}B] and A^m give the next m columns at once.
    columns, power = B, A  # (..., h, m), A^m
    with no_autocast(A.device):
        while columns.shape[-1] < length:
            columns = torch.cat([columns, power @ columns], dim=-1)[..., :length]
            if columns.shape[-1] < length:
                power = power @ power
        return (C @ columns).reshape(-1, length).T
