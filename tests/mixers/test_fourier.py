"""FNet, GFNet and AFNO against explicit matrices of the discrete Fourier transform."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tnn.layers import count_parameters
from tnn.layers.sequences import Sequences
from tnn.mixers.afno import AdaptiveFourier
from tnn.mixers.block import TNNBlock
from tnn.mixers.fnet import FourierMixer
from tnn.mixers.gfnet import GlobalFilter

D = 6
MAKERS = {
    "fnet": lambda **options: FourierMixer(D, **options),
    "gfnet": lambda **options: GlobalFilter(D, max_length=20, **options),
    "afno": lambda **options: AdaptiveFourier(D, blocks=3, **options),
}
methods = pytest.mark.parametrize("method", MAKERS)


def make(method, **options):
    mixer = MAKERS[method](**options).double().eval()
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.normal_(std=0.5)
    return mixer


def dft(n):
    """F_jk = exp(-2 pi i j k / n)."""
    step = torch.arange(n, dtype=torch.float64)
    angle = -2 * math.pi * (step[:, None] * step % n) / n
    return torch.polar(torch.ones_like(angle), angle)


def back(spectrum, n):
    """The real sequence whose frequencies 0 to n // 2 are given, by the inverse orthonormal transform."""
    count = torch.full((n // 2 + 1,), 2.0, dtype=torch.float64)  # each stands for its conjugate as well
    count[0] = 1
    if n % 2 == 0:
        count[-1] = 1
    inverse = dft(n).conj()[:, : n // 2 + 1] / math.sqrt(n)
    return (inverse @ (count[:, None] * spectrum)).real


def forth(x):
    return dft(len(x))[: len(x) // 2 + 1] @ x.to(torch.complex128) / math.sqrt(len(x))


def slow_fnet(mixer, x):
    return (dft(len(x)) @ x.to(torch.complex128) @ dft(D)).real


def slow_gfnet(mixer, x):
    spectrum = forth(x)
    filtered = torch.zeros_like(spectrum)
    for k in range(min(len(spectrum), 11)):
        filtered[k] = spectrum[k] * torch.complex(mixer.filter[k, :, 0], mixer.filter[k, :, 1])
    return back(filtered, len(x))


def slow_afno(mixer, x):
    def part(values, function):
        return torch.complex(function(values.real), function(values.imag))

    def shrink(values):
        return values.sign() * (values.abs() - 0.01).clamp_min(0)

    w1, b1, w2, b2 = (
        torch.complex(p[..., 0], p[..., 1]) for p in (mixer.in_weight, mixer.in_bias, mixer.out_weight, mixer.out_bias)
    )
    spectrum, size = forth(x), D // 3
    out = torch.zeros_like(spectrum)
    for k in range(len(spectrum)):
        for block in range(3):
            channels = slice(block * size, (block + 1) * size)
            hidden = part(w1[block].T @ spectrum[k, channels] + b1[block], lambda v: v.clamp_min(0))
            out[k, channels] = part(w2[block].T @ hidden + b2[block], shrink)
    return x + back(out, len(x))


SLOW = {"fnet": slow_fnet, "gfnet": slow_gfnet, "afno": slow_afno}


def close(a, b, tolerance=1e-9):
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


@methods
@settings(max_examples=20)
@given(n=st.integers(1, 40))
def test_the_formula(method, n):
    with torch.no_grad():
        mixer, x = make(method), torch.randn(n, D, dtype=torch.float64)
        close(mixer(x), SLOW[method](mixer, x))
        several = torch.randn(2, 3, n, D, dtype=torch.float64)
        close(mixer(several)[1, 2], mixer(several[1, 2]))


@methods
def test_each_sequence_is_mixed_alone(method):
    mixer, x = make(method), torch.randn(4, 19, D, dtype=torch.float64)
    mask = torch.ones(4, 19, dtype=torch.bool)
    mask[0, :7] = mask[1, 12:] = mask[2, 3:5] = False
    x[~mask] = math.nan
    with torch.no_grad():
        y = mixer(x, mask)
        for row in range(4):
            close(y[row, mask[row]], mixer(x[row, mask[row]]))
        z = torch.randn(1, 19, D, dtype=torch.float64)
        y = mixer(z, Sequences(torch.tensor([[1] * 7 + [2] * 9 + [0] * 3])))
        close(y[0, :7], mixer(z[0, :7]))
        close(y[0, 7:16], mixer(z[0, 7:16]))


@methods
def test_the_published_form_takes_padding_for_tokens(method):
    mixer, x = make(method, as_published=True), torch.randn(2, 9, D, dtype=torch.float64)
    mask = torch.ones(2, 9)
    mask[0, 5:] = 0
    with torch.no_grad():
        close(mixer(x, mask), mixer(x * mask[..., None]))


@methods
def test_gradients(method):
    mixer = make(method)
    x = torch.randn(5, D, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(mixer, x)
    mixer(x).square().sum().backward()
    assert all((p.grad != 0).any() for p in mixer.parameters())


@methods
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(method, dtype):
    mixer, x = MAKERS[method](), torch.randn(2, 50, D)
    with torch.no_grad():
        exact = mixer(x)
        y = mixer.to(dtype)(x.to(dtype))
        with torch.autocast("cpu", torch.bfloat16):
            mixed = mixer.float()(x)
    assert (y.dtype, mixed.dtype) == (dtype, torch.float32)
    torch.testing.assert_close(y.float(), exact, atol=0.2 if method == "fnet" else 2e-2, rtol=2e-2)
    torch.testing.assert_close(mixed, exact, atol=2e-2, rtol=2e-2)


def test_filters_start_small():
    for parameter in (*GlobalFilter(64).parameters(), *AdaptiveFourier(256).parameters()):
        assert parameter.std().item() == pytest.approx(0.02, rel=0.1)


def test_published_parameter_counts():
    def count(mixer):
        return count_parameters(TNNBlock(768, mixer=mixer, glu_expansion=4, norm="layer", norm_position="post")).trained

    assert count("fnet") == 4_725_504
    assert count("gfnet") == 5_120_256
    assert count("afno") == 5_023_488


def test_there_is_no_causal_form():
    for mixer in MAKERS:
        with pytest.raises(ValueError, match="bidirectional only"):
            TNNBlock(16, mixer=mixer, causal=True)


def test_options_are_checked():
    with pytest.raises(ValueError, match="blocks must divide hidden_size 12"):
        AdaptiveFourier(12)
    with pytest.raises(ValueError, match="max_length must be at least 1"):
        GlobalFilter(8, max_length=0)
