"""FNet: tokens and channels mixed by a Fourier transform, without parameters."""

import torch
from torch import Tensor

from tnn._precision import compute_dtype
from tnn.layers.mixer import Mixer
from tnn.mixers.registry import register_mixer


@register_mixer("fnet", channel_mixer="ffn")
class FourierMixer(Mixer):
    """y = Re F_n x F_d: the discrete Fourier transforms along tokens and channels, neither of them scaled.

    Bidirectional only, and outputs depend on the length: every sequence is transformed at its own.
    `as_published`: padding counts as tokens. (Lee-Thorp, Ainslie, Eckstein and Ontañón, 2022.)

    >>> import torch
    >>> from tnn.mixers.fnet import FourierMixer
    >>> FourierMixer(2)(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[10., -2.],
            [-4.,  0.]])
    """

    has_causal_form = False

    def mix(self, x: Tensor) -> Tensor:
        return torch.fft.fft2(x.to(compute_dtype(x))).real.to(x.dtype)
