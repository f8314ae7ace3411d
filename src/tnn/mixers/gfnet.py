"""GFNet: a learned filter in the frequencies of the sequence."""

import torch
from torch import Tensor, nn

from tnn._checks import check_positive
from tnn._precision import compute_dtype, no_autocast
from tnn.layers.mixer import Mixer
from tnn.mixers.registry import register_mixer


@register_mixer("gfnet", channel_mixer="ffn", small_options={"max_length": 32})
class GlobalFilter(Mixer):
    """y = F^-1 (G * F x): a circular convolution of each channel, by one complex number a frequency and channel.

    F is the orthonormal Fourier transform of the real sequence, n // 2 + 1 frequencies, and G (max_length // 2 + 1,
    hidden_size) the filter: a shorter sequence uses its first rows, and what a longer one has beyond them is 0.
    G starts from 0.02 N(0, 1) in both parts. Bidirectional only.
    `as_published`: padding counts as tokens. (Rao, Zhao, Zhu, Lu and Zhou, 2021.)

    >>> import torch
    >>> from tnn.mixers.gfnet import GlobalFilter
    >>> GlobalFilter(16, max_length=32)(torch.randn(2, 20, 16)).shape
    torch.Size([2, 20, 16])
    """

    has_causal_form = False

    def __init__(self, hidden_size: int, *, causal: bool = False, as_published: bool = False, max_length: int = 512):
        super().__init__(hidden_size, causal=causal, as_published=as_published)
        check_positive("max_length", max_length)
        self.max_length = max_length
        self.filter = nn.Parameter(torch.empty(max_length // 2 + 1, hidden_size, 2))  # real and imaginary part
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.filter, std=0.02)

    def mix(self, x: Tensor) -> Tensor:
        n, dtype = x.shape[-2], compute_dtype(x, self.filter)
        with no_autocast(x.device):
            spectrum = torch.fft.rfft(x.to(dtype), dim=-2, norm="ortho")  # (..., n // 2 + 1, hidden_size)
            kept = min(spectrum.shape[-2], len(self.filter))
            filtered = spectrum[..., :kept, :] * torch.view_as_complex(self.filter[:kept].to(dtype).contiguous())
            y = torch.fft.irfft(filtered, n, dim=-2, norm="ortho")  # frequencies that were cut count as 0
        return y.to(x.dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, max_length={self.max_length}"
