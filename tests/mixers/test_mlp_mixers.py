"""Synthesizers and gMLP: mixing by positions, against loops over them."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tnn.layers import count_parameters
from tnn.layers.sequences import Sequences
from tnn.mixers.block import TNNBlock
from tnn.mixers.gmlp import SpatialGating
from tnn.mixers.synthesizer import DenseSynthesizer, RandomSynthesizer

D, LIMIT = 6, 24
KINDS = [DenseSynthesizer, RandomSynthesizer, SpatialGating]
kinds = pytest.mark.parametrize("kind", KINDS)
both = pytest.mark.parametrize("causal", [True, False])


def make(kind, **options):
    mixer = kind(D, max_length=LIMIT, **options).double().eval()
    if kind is SpatialGating:
        with torch.no_grad():
            mixer.spatial.weight.normal_()
            mixer.spatial.bias.normal_()
            mixer.norm.weight.normal_()
            mixer.norm.bias.normal_()
    return mixer


def by_loops(mixer, x):
    return looped_gate(mixer, x) if isinstance(mixer, SpatialGating) else looped_average(mixer, x)


def looped_average(mixer, x):
    y, seen = torch.zeros_like(x), min(len(x), LIMIT)
    for i in range(seen):
        last = i + 1 if mixer.causal else seen
        if isinstance(mixer, DenseSynthesizer):
            scores = mixer.score_proj(mixer.in_proj(x[i]).clamp_min(0))
        else:
            scores = mixer.scores[i]
        weights = [math.exp(scores[j].item()) for j in range(last)]
        y[i] = sum(w * x[j] for j, w in enumerate(weights)) / sum(weights)
    return y


def looped_gate(mixer, x):
    hidden = mixer.in_proj(x)
    hidden = hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2
    half, seen = hidden.shape[-1] // 2, min(len(x), LIMIT)
    u, v = hidden[:, :half], hidden[:, half:]
    centred = v - v.mean(-1, keepdim=True)
    v = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * mixer.norm.weight + mixer.norm.bias
    gate = torch.zeros_like(u)
    for i in range(seen):
        for j in range(i + 1 if mixer.causal else seen):
            gate[i] += mixer.spatial.weight[i, j] * v[j]
        if not mixer.as_published:
            gate[i] += mixer.spatial.bias[i]
    return (u * gate) @ mixer.out_proj.weight.T + mixer.out_proj.bias


def close(a, b, tolerance=1e-10):
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


@kinds
@settings(max_examples=15)
@given(n=st.integers(1, 35), causal=st.booleans(), as_published=st.booleans())
def test_the_formula(kind, n, causal, as_published):
    with torch.no_grad():
        mixer = make(kind, causal=causal, as_published=as_published)
        x = torch.randn(n, D, dtype=torch.float64)
        close(mixer(x), by_loops(mixer, x))


@kinds
@both
def test_beyond_the_last_position_there_is_nothing(kind, causal):
    mixer, x = make(kind, causal=causal), torch.randn(2, LIMIT + 9, D, dtype=torch.float64)
    with torch.no_grad():
        y = mixer(x)
        nothing = mixer.out_proj.bias if kind is SpatialGating else torch.zeros(D, dtype=torch.float64)
        assert torch.equal(y[:, LIMIT:], nothing.expand(2, 9, D))
        close(y[:, :LIMIT], mixer(x[:, :LIMIT]))


@kinds
def test_nothing_comes_from_later_tokens(kind):
    mixer, x = make(kind, causal=True), torch.randn(1, LIMIT + 3, D, dtype=torch.float64, requires_grad=True)
    y = mixer(x)
    for i in range(LIMIT + 3):
        (gradient,) = torch.autograd.grad(y[0, i].sum(), x, retain_graph=True)
        assert (gradient[0, i + 1 :] == 0).all()
        assert (gradient[0, i] != 0).any() == (i < LIMIT)


@kinds
@both
def test_each_sequence_is_mixed_alone(kind, causal):
    n = LIMIT + 6
    mixer, x = make(kind, causal=causal), torch.randn(4, n, D, dtype=torch.float64)
    mask = torch.ones(4, n, dtype=torch.bool)
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
        assert mixer(z, torch.zeros(1, 19)).isfinite().all()


@kinds
def test_the_published_form_takes_padding_for_tokens(kind):
    mixer, x = make(kind, as_published=True), torch.randn(2, 9, D, dtype=torch.float64)
    mask = torch.ones(2, 9)
    mask[0, 5:] = 0
    with torch.no_grad():
        close(mixer(x, mask), mixer(x * mask[..., None]))
        causal = make(kind, as_published=True, causal=True)
        state = causal.new_state()
        y = [causal(x[:, :6], mask[:, :6], state), causal(x[:, 6:], mask[:, 6:], state)]
        close(torch.cat(y, 1), causal(x * mask[..., None]))


@kinds
@settings(max_examples=15)
@given(sizes=st.lists(st.integers(1, 15), min_size=1, max_size=6), seed=st.integers(0, 1000), padded=st.booleans())
def test_parts_equal_the_whole(kind, sizes, seed, padded):
    torch.manual_seed(seed)
    with torch.no_grad():
        mixer = make(kind, causal=True)
        n = sum(sizes)
        x = torch.randn(3, n + 5, D, dtype=torch.float64)
        mask = torch.rand(3, n + 5) < (torch.tensor([[0.3], [0.6], [0.9]]) if padded else 2)
        mask[:, n:] = True  # then tokens one by one, of rows at different places
        state = mixer.new_state()
        split = zip(x[:, :n].split(sizes, 1), mask[:, :n].split(sizes, 1), strict=True)
        y = [mixer(part, Sequences(there) if padded else None, state) for part, there in split]
        y = torch.cat([*y, *(mixer(part, state=state) for part in x[:, n:].split(1, 1))], 1)
        for row in range(3):
            close(y[row, mask[row]], mixer(x[row, mask[row]]))
        assert state.seen == n + 5
        assert state._memory.v.shape[1] <= LIMIT


@kinds
def test_rows_are_selected_states_copied_and_tokens_taken_back(kind):
    mixer, x = make(kind, causal=True), torch.randn(3, LIMIT + 4, D, dtype=torch.float64)
    order = torch.tensor([2, 0, 0, 1])
    with torch.no_grad():
        state = mixer.new_state()
        assert state.batch_size is None
        state(x[:, :11])
        twin = copy.deepcopy(state)
        assert twin.owner is mixer
        twin(torch.randn(3, 9, D, dtype=torch.float64))
        state(torch.randn(3, LIMIT, D, dtype=torch.float64))
        state.crop(LIMIT + 2)
        assert state.seen == 9
        state.select(order)
        assert state.batch_size == 4
        close(state(x[order, 9:]), mixer(x[order])[:, 9:])
    with pytest.raises(ValueError, match="only"):
        state.crop(1000)
    state.reset()
    assert (state.seen, state.batch_size) == (0, None)
    state.crop(0)
    state(x, Sequences(torch.ones(3, LIMIT + 4, dtype=torch.bool)))
    state.crop(1)
    assert state.seen == LIMIT + 3


@kinds
def test_only_causal_forms_have_a_state(kind):
    assert make(kind).state_owner is None
    mixer = make(kind, causal=True)
    assert mixer.state_owner is mixer


@kinds
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(kind, dtype):
    mixer = kind(32, causal=True, max_length=128)
    x = torch.randn(2, 100, 32)
    with torch.no_grad():
        exact = mixer(x)
        y = mixer.to(dtype)(x.to(dtype))
        state = mixer.new_state()
        parts = torch.cat([mixer(part, state=state) for part in x.to(dtype).split([60, 1, 39], 1)], 1)
    assert y.dtype == parts.dtype == dtype
    torch.testing.assert_close(y.float(), exact, atol=3e-2, rtol=3e-2)
    torch.testing.assert_close(parts.float(), exact, atol=3e-2, rtol=3e-2)


def test_a_gate_starts_open():
    mixer, x = SpatialGating(16, causal=True), torch.randn(2, 40, 16)
    u = F.gelu(mixer.in_proj(x))[..., :32]
    torch.testing.assert_close(mixer(x), mixer.out_proj(u), atol=1e-4, rtol=1e-4)
    published = SpatialGating(16, as_published=True)
    assert published.spatial.weight.abs().max().item() == pytest.approx(1 / math.sqrt(512), rel=0.01)
    assert not published.spatial.bias.requires_grad
    assert not published.requires_grad_(True).train().spatial.bias.requires_grad
    assert mixer.train().spatial.bias.requires_grad
    before = published(x)
    with torch.no_grad():
        published.spatial.bias.add_(1)
    assert torch.equal(published(x), before)


def test_the_random_synthesizer_starts_from_a_normal_distribution():
    scores = RandomSynthesizer(8).scores
    assert scores.std().item() == pytest.approx(1, rel=0.01)


def test_published_parameter_counts():
    def count(mixer, size, **options):
        return count_parameters(TNNBlock(size, mixer=mixer, glu_expansion=4, norm="layer", **options)).trained

    causal = {"causal": True, "norm_position": "pre"}
    post = {"norm_position": "post"}
    assert count("synthesizer-dense", 512, **causal) == 2_627_072
    assert count("synthesizer-dense", 768, **post) == 5_709_824
    assert count("synthesizer-random", 512, **causal) == 2_363_904
    assert count("synthesizer-random", 768, **post) == 4_987_648
    for as_published in (True, False):
        assert count("gmlp", 512, **causal, as_published=as_published) == 1_841_152
        assert count("gmlp", 768, as_published=as_published) == 3_810_048


def test_options_are_checked():
    with pytest.raises(ValueError, match="max_length must be at least 1"):
        RandomSynthesizer(8, max_length=0)
    with pytest.raises(ValueError, match="even number of channels"):
        SpatialGating(5, expansion=1)
