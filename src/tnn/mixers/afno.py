"""AFNO: a small network that mixes the channels of each frequency of the sequence."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tnn._checks import check_positive
from tnn._precision import compute_dtype, no_autocast
from tnn.layers.mixer import Mixer
from tnn.mixers.presets import masked_lm, mini_lra, mini_masked_lm, sizes
from tnn.mixers.registry import register_mixer

SPARSITY = 0.01  # smaller numbers in a spectrum become 0


@register_mixer(
    "afno",
    channel_mixer="ffn",
    small_options={"blocks": 4},
    presets=[
        masked_lm(sizes(18, 768)),
        mini_masked_lm(num_hidden_layers=6, glu_expansion=2.875),
        mini_lra(glu_expansion=4),
    ],
)
class AdaptiveFourier(Mixer):
    """y = x + F^-1 shrink(W2 relu(W1 F x + b1) + b2): one complex network, the same for all frequencies.

    F is the orthonormal Fourier transform of the real sequence. The channels are split into `blocks`, each with its own
    W1, W2, b1, b2; their real and imaginary parts start from N(0, 0.02). relu and the soft threshold act on real and
    imaginary parts separately. The residual connection is part of the method; the block around it has another one. Any
    length; bidirectional only.
    `as_published`: padding is treated as tokens. (Guibas, Mardani, Li, Tao, Anandkumar and Catanzaro, 2022.)

    >>> import torch
    >>> from tnn.mixers.afno import AdaptiveFourier
    >>> AdaptiveFourier(16, blocks=4)(torch.randn(2, 20, 16)).shape
    torch.Size([2, 20, 16])
    """

    has_causal_form = False

    def __init__(self, hidden_size: int, *, causal: bool = False, as_published: bool = False, blocks: int = 8):
        AdaptiveFourier.check_options(hidden_size, blocks=blocks)
        super().__init__(hidden_size, causal=causal, as_published=as_published)
        self.blocks = blocks
        size = hidden_size // blocks
        self.in_weight = nn.Parameter(torch.empty(blocks, size, size, 2))  # real and imaginary part
        self.in_bias = nn.Parameter(torch.empty(blocks, size, 2))
        self.out_weight = nn.Parameter(torch.empty(blocks, size, size, 2))
        self.out_bias = nn.Parameter(torch.empty(blocks, size, 2))
        self.reset_parameters()

    @classmethod
    def check_options(cls, hidden_size: int, *, blocks: int = 8, **options: Any) -> None:
        super().check_options(hidden_size, **options)
        check_positive("blocks", blocks)
        if hidden_size % blocks:
            raise ValueError(f"blocks must divide hidden_size {hidden_size}; got {blocks}")

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)

    def mix(self, x: Tensor) -> Tensor:
        dtype = compute_dtype(x, self.in_weight)
        with no_autocast(x.device):
            spectrum = torch.fft.rfft(x.to(dtype), dim=-2, norm="ortho")  # (..., frequencies, hidden_size)
            hidden = _dense(spectrum.unflatten(-1, (self.blocks, -1)), self.in_weight, self.in_bias)
            out = _dense(torch.view_as_complex(F.relu(hidden)), self.out_weight, self.out_bias)
            mixed = torch.view_as_complex(F.softshrink(out, SPARSITY)).flatten(-2)
            y = torch.fft.irfft(mixed, x.shape[-2], dim=-2, norm="ortho")
        return x + y.to(x.dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, blocks={self.blocks}"


def _dense(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x (..., blocks, size) complex -> (..., blocks, size, 2): each block times its complex matrix."""
    dtype = x.real.dtype
    matrix = torch.view_as_complex(weight.to(dtype).contiguous())  # (blocks, size in, size out)
    y = torch.einsum("...bi,bio->...bo", x, matrix)
    return torch.view_as_real(y) + bias.to(dtype)
