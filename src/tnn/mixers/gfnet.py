"""GFNet: a learned filter on the frequencies of the sequence."""

from typing import Any

import torch
from torch import Tensor, nn

from tnn._checks import check_positive
from tnn._precision import compute_dtype, no_autocast
from tnn.layers.mixer import Mixer
from tnn.mixers.presets import masked_lm, mini_lra, mini_masked_lm, sizes
from tnn.mixers.registry import register_mixer


@register_mixer(
    "gfnet",
    channel_mixer="ffn",
    small_options={"max_length": 32},
    presets=[
        masked_lm(sizes(16, 768)),
        mini_masked_lm(num_hidden_layers=5, glu_expansion=3.375, mixer_options={"max_length": 128}),
        mini_lra(glu_expansion=4.25, mixer_options={"max_length": 2048}),
    ],
)
class GlobalFilter(Mixer):
    """y = F^-1 (G * F x): a circular convolution, with one complex factor per frequency and channel.

    F is the orthonormal Fourier transform of the real sequence, with n // 2 + 1 frequencies, and G the filter,
    (max_length // 2 + 1, hidden_size). A shorter sequence uses the first rows of G; the higher frequencies of a longer
    one become 0. Real and imaginary parts of G start from N(0, 0.02). Bidirectional only.
    `as_published`: padding is treated as tokens. (Rao, Zhao, Zhu, Lu and Zhou, 2021.)

    >>> import torch
    >>> from tnn.mixers.gfnet import GlobalFilter
    >>> GlobalFilter(16, max_length=32)(torch.randn(2, 20, 16)).shape
    torch.Size([2, 20, 16])
    """

    has_causal_form = False

    def __init__(self, hidden_size: int, *, causal: bool = False, as_published: bool = False, max_length: int = 512):
        GlobalFilter.check_options(hidden_size, max_length=max_length)
        super().__init__(hidden_size, causal=causal, as_published=as_published)
        self.max_length = max_length
        self.filter = nn.Parameter(torch.empty(max_length // 2 + 1, hidden_size, 2))  # real and imaginary part
        self.reset_parameters()

    @classmethod
    def check_options(cls, hidden_size: int, *, max_length: int = 512, **options: Any) -> None:
        super().check_options(hidden_size, **options)
        check_positive("max_length", max_length)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.filter, std=0.02)

    def mix(self, x: Tensor) -> Tensor:
        n, dtype = x.shape[-2], compute_dtype(x, self.filter)
        with no_autocast(x.device):
            spectrum = torch.fft.rfft(x.to(dtype), dim=-2, norm="ortho")  # (..., n // 2 + 1, hidden_size)
            kept = min(spectrum.shape[-2], len(self.filter))
            filtered = spectrum[..., :kept, :] * torch.view_as_complex(self.filter[:kept].to(dtype).contiguous())
            y = torch.fft.irfft(filtered, n, dim=-2, norm="ortho")  # the frequencies that were cut are 0
        return y.to(x.dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, max_length={self.max_length}"
