"""FNet: a Fourier transform along tokens and channels, without parameters."""

import torch
from torch import Tensor

from tnn._precision import compute_dtype
from tnn.layers.mixer import Mixer
from tnn.mixers.presets import EMBEDDING_DROPOUT, masked_lm, mini_lra, mini_masked_lm, sizes
from tnn.mixers.registry import register_mixer


@register_mixer(
    "fnet",
    channel_mixer="ffn",
    presets=[
        masked_lm(EMBEDDING_DROPOUT, sizes(18, 768)),
        mini_masked_lm(num_hidden_layers=6, glu_expansion=3.125),
        mini_lra(glu_expansion=4.25),
    ],
)
class FourierMixer(Mixer):
    """y = Re F_n x F_d: the unscaled discrete Fourier transforms along tokens and channels.

    Bidirectional only. Outputs depend on the length; in a padded batch each sequence is transformed at its own length.
    `as_published`: padding is treated as tokens. (Lee-Thorp, Ainslie, Eckstein and Ontañón, 2022.)

    >>> import torch
    >>> from tnn.mixers.fnet import FourierMixer
    >>> FourierMixer(2)(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[10., -2.],
            [-4.,  0.]])
    """

    has_causal_form = False

    def mix(self, x: Tensor) -> Tensor:
        return torch.fft.fft2(x.to(compute_dtype(x))).real.to(x.dtype)
