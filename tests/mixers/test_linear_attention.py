"""Linear attentions against their n x n form, their states, and Performer against what it estimates."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tnn.layers.sequences import Sequences
from tnn.mixers.cosformer import CosformerAttention
from tnn.mixers.elu import EluAttention
from tnn.mixers.linear_attention import causal_sums
from tnn.mixers.performer import PerformerAttention

METHODS = {
    "elu": (EluAttention, {}),
    "cosformer": (CosformerAttention, {}),
    "performer": (PerformerAttention, {"features": 24}),
    "published performer": (PerformerAttention, {"features": 24, "as_published": True}),
    "lra performer": (PerformerAttention, {"features": 24, "as_published": True, "redraw": False}),
}
methods = pytest.mark.parametrize("name", METHODS)
correct = pytest.mark.parametrize("name", ["elu", "cosformer", "performer"])
with_state = pytest.mark.parametrize("name", ["elu", "performer"])
D = 12


def mixer_of(name, **options):
    torch.manual_seed(0)
    method, defaults = METHODS[name]
    mixer = method(D, **{"num_heads": 3, **defaults, **options}).double().eval()
    with torch.no_grad():
        mixer.query_proj.weight.mul_(3)
        mixer.key_proj.weight.mul_(3)
    return mixer


def close(a, b, tolerance=1e-9):
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


def naive(name, mixer, x):
    """By the n x n matrix of each head. x (n, d)."""
    q, k, v = mixer.query_proj(x), mixer.key_proj(x), mixer.value_proj(x)
    size, y = D // mixer.num_heads, []
    for h in range(mixer.num_heads):
        part = slice(h * size, (h + 1) * size)
        rows = mixer.directions[h] if "performer" in name else None
        weights, floor = WEIGHTS[name](q[:, part], k[:, part], rows)
        if mixer.causal:
            weights = weights.tril()
        y.append(weights @ v[:, part] / weights.sum(1, keepdim=True).clamp_min(floor))
    return mixer.out_proj(torch.cat(y, 1))


def elu_weights(q, k, rows):
    f, g = 1 + torch.nn.functional.elu(q), 1 + torch.nn.functional.elu(k)
    return f @ g.T, 1e-6


def cosformer_weights(q, k, rows):
    n = len(q)
    cosine = [[math.cos(math.pi * (i - j) / (2 * n)) for j in range(n)] for i in range(n)]
    return q.relu() @ k.relu().T * torch.tensor(cosine, dtype=q.dtype), 1e-4


def performer_weights(q, k, rows):
    q, k = q / q.shape[1] ** 0.25, k / k.shape[1] ** 0.25
    f = torch.exp(q @ rows.T - q.square().sum(1, keepdim=True) / 2)
    f = f / f.amax(1, keepdim=True)
    g = torch.exp(k @ rows.T - k.square().sum(1, keepdim=True) / 2) + 1e-6
    return f @ g.T, 0


def published_weights(q, k, rows):
    size, m = q.shape[1], len(rows)
    along_q, along_k = q @ rows.T / size**0.25, k @ rows.T / size**0.25
    norm_q, norm_k = (t.square().sum(1, keepdim=True) / (2 * size**0.5) for t in (q, k))
    f = m**-0.5 * torch.exp(along_q - norm_q - along_q.amax(1, keepdim=True)) + 1e-4
    g = m**-0.5 * torch.exp(along_k - norm_k - along_k.max()) + 1e-4
    return f @ g.T, 1e-2


WEIGHTS = {
    "elu": elu_weights,
    "cosformer": cosformer_weights,
    "performer": performer_weights,
    "published performer": published_weights,
}


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


@pytest.mark.slow
@settings(max_examples=40)
@given(
    name=st.sampled_from(sorted(WEIGHTS)),
    n=st.integers(1, 140),
    heads=st.sampled_from([1, 3, 6]),
    causal=st.booleans(),
)
def test_against_the_matrix(name, n, heads, causal):
    mixer = mixer_of(name, num_heads=heads, causal=causal)
    x = torch.randn(n, D, dtype=torch.float64)
    close(mixer(x[None])[0], naive(name, mixer, x))
    close(mixer(x), naive(name, mixer, x))


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 200])
def test_causal_sums(n):
    q, k, v = (torch.randn(2, n, size, dtype=torch.float64) for size in (5, 5, 3))
    before = torch.randn(2, 5, 3, dtype=torch.float64)
    y, sums = causal_sums(q, k, v, before)
    for i in range(n):
        before = before + k[:, i, :, None] * v[:, i, None, :]
        close(y[:, i], (q[:, i, None] @ before)[:, 0])
    close(sums, before)


@correct
@pytest.mark.parametrize("causal", [False, True])
def test_padded_and_packed_sequences_are_alone(name, causal):
    mixer = mixer_of(name, causal=causal)
    x = torch.randn(3, 150, D, dtype=torch.float64)
    mask = torch.ones(3, 150, dtype=torch.bool)
    mask[0, :70], mask[1, 11:14], mask[1, 125:], mask[2] = False, False, False, False
    y = mixer(x, mask)
    assert y.isfinite().all()
    for row in range(2):
        close(y[row, mask[row]], mixer(x[row, mask[row]]))
    ids = torch.tensor([[1] * 50 + [2] * 93 + [0] * 7, [1, 2] * 75, [3] * 150])
    y = mixer(x, Sequences(ids))
    for row in range(3):
        for document in ids[row].unique():
            if document:
                own = ids[row] == document
                close(y[row, own], mixer(x[row, own]))


@pytest.mark.parametrize("method", [EluAttention, CosformerAttention, PerformerAttention])
def test_published_ports_take_padding_for_tokens(method):
    mixer = method(D, num_heads=3, as_published=True).eval()
    x = torch.randn(1, 9, D)
    mask = torch.tensor([[True] * 6 + [False] * 3])
    assert torch.equal(mixer(x, mask), mixer(x * mask[..., None]))


def test_the_state_of_a_published_port_does_so_too():
    mixer = mixer_of("elu", causal=True, as_published=True)
    x = torch.randn(2, 9, D, dtype=torch.float64)
    mask = torch.tensor([[False] * 3 + [True] * 6, [True] * 9])
    state = mixer.new_state()
    parts = mixer(x[:, :5], Sequences(mask[:, :5]), state), mixer(x[:, 5:], state=state)
    close(torch.cat(parts, 1), mixer(x, Sequences(mask)))


@methods
@pytest.mark.parametrize("training", [False, True])
def test_gradients_are_causal(name, training):
    mixer = mixer_of(name, causal=True).train(training)
    with torch.enable_grad():
        x = torch.randn(1, 150, D, dtype=torch.float64, requires_grad=True)
        for i in (0, 63, 64, 100):
            (gradient,) = torch.autograd.grad(mixer(x)[0, i].sum(), x)
            assert (gradient[0, i + 1 :] == 0).all()
        assert (gradient[0, :101] != 0).any(-1).float().mean() > 0.9


@correct
def test_later_tokens_change_nothing(name):
    mixer = mixer_of(name, causal=True)
    x = torch.randn(1, 100, D, dtype=torch.float64)
    other = x.clone()
    other[:, 60:] = 30 * torch.randn(1, 40, D, dtype=torch.float64)
    close(mixer(x)[:, :60], mixer(other)[:, :60], 1e-13)


@with_state
@settings(max_examples=15)
@given(parts=st.lists(st.integers(1, 90), min_size=1, max_size=6))
def test_parts_equal_the_whole(name, parts):
    mixer = mixer_of(name, causal=True)
    x = torch.randn(2, sum(parts), D, dtype=torch.float64)
    state = mixer.new_state()
    close(torch.cat([state(part) for part in x.split(parts, 1)], 1), mixer(x))
    assert state.seen == sum(parts)
    assert state.batch_size == 2


@with_state
def test_padding_is_left_out_of_the_state(name):
    mixer = mixer_of(name, causal=True)
    x = torch.randn(3, 130, D, dtype=torch.float64)
    mask = torch.ones(3, 130, dtype=torch.bool)
    mask[0, :80], mask[1, 20:25], mask[2, 60:90] = False, False, False
    state = mixer.new_state()
    parts = [state(x[:, a:b], Sequences(mask[:, a:b])) for a, b in ((0, 70), (70, 100))]
    y = torch.cat([*parts, *(state(x[:, i : i + 1]) for i in range(100, 130))], 1)
    assert y.isfinite().all()
    for row in range(3):
        close(y[row, mask[row]], mixer(x[row, mask[row]]))


@with_state
def test_state_can_be_selected_copied_and_reset(name):
    mixer = mixer_of(name, causal=True)
    x = torch.randn(2, 90, D, dtype=torch.float64)
    state = mixer.new_state()
    state(x[:, :70])
    twin = copy.deepcopy(state)
    assert twin.owner is mixer
    twin(torch.randn(2, 3, D, dtype=torch.float64))
    order = torch.tensor([1, 0, 1])
    state.select(order)
    close(state(x[order, 70:]), mixer(x[order])[:, 70:])
    assert not state.croppable
    with pytest.raises(ValueError, match="cannot remove tokens"):
        state.crop(1)
    with pytest.raises(ValueError, match="holds 3 sequences; got inputs for 2"):
        state(x)
    state.reset()
    assert (state.seen, state.batch_size) == (0, None)
    close(state(x[:1]), mixer(x[:1]))


@with_state
def test_gradients_flow_through_the_state(name):
    mixer = mixer_of(name, causal=True)
    with torch.enable_grad():
        x = torch.randn(1, 90, D, dtype=torch.float64, requires_grad=True)
        state = mixer.new_state()
        y = torch.cat([state(x[:, :70]), state(x[:, 70:71]), state(x[:, 71:])], 1)
        (gradient,) = torch.autograd.grad(y.square().sum(), x)
        (expected,) = torch.autograd.grad(mixer(x).square().sum(), x)
    close(gradient, expected)


def test_who_has_a_state():
    assert mixer_of("elu").state_owner is None
    assert mixer_of("cosformer", causal=True).state_owner is None
    assert mixer_of("published performer", causal=True).state_owner is None
    performer = mixer_of("performer", causal=True)
    assert performer.state_owner is performer
    assert performer.train().state_owner is None
    fixed = mixer_of("performer", causal=True, redraw=False).train()
    assert fixed.state_owner is fixed


# --- Performer


def softmax_of(mixer, x):
    q, k, v = mixer.project(x)
    return mixer.output(torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=mixer.causal))


@pytest.mark.parametrize("causal", [False, True])
def test_performer_comes_close_to_softmax_as_features_grow(causal):
    errors = []
    for features in (16, 256, 4096):
        torch.manual_seed(0)
        mixer = PerformerAttention(D, num_heads=3, causal=causal, features=features).double()  # a new draw each call
        x = torch.randn(1, 60, D, dtype=torch.float64)
        exact = softmax_of(mixer, x)
        errors.append(torch.stack([(mixer(x) - exact).norm() / exact.norm() for _ in range(8)]).mean().item())
    assert errors[0] > 2 * errors[1] > 4 * errors[2]  # 4 times a step, if the error falls as 1 / sqrt(features)
    assert errors[2] < 0.05


def test_performer_estimates_the_exponential_without_bias():
    mixer = PerformerAttention(8, num_heads=1, features=8).double().train()
    q, k = 0.4 * torch.randn(2, 5, 8, dtype=torch.float64)  # short: the variance grows as exp(|q + k|^2)
    rows = torch.cat([mixer._orthogonal(q)[0] for _ in range(2000)]) / 8**0.25
    f, g = (torch.exp(t @ rows.T - t.square().sum(-1, keepdim=True) / (2 * 8**0.5)) for t in (q, k))
    close(f @ g.T / len(rows), (q @ k.T / 8**0.5).exp(), 0.03)


def test_rows_of_performer_are_orthogonal():
    rows = PerformerAttention(16, num_heads=2, features=20).directions  # heads of 8: two blocks and a half
    for head in rows:
        for block in head.split(8):
            gram = block @ block.T
            close(gram, gram.diagonal().diag(), 1e-4)
    lengths = PerformerAttention(64, num_heads=1, features=512).directions.norm(dim=-1)
    assert lengths.square().mean().item() == pytest.approx(64, rel=0.05)
    assert lengths.std() > 0.5


def test_performer_in_training_and_evaluation():
    mixer, x = PerformerAttention(D, num_heads=3), torch.randn(1, 20, D)
    torch.manual_seed(5)
    first, second = mixer(x), mixer(x)
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    assert torch.equal(mixer(x), first)
    assert torch.equal(mixer.eval()(x), mixer(x))
    fixed = PerformerAttention(D, num_heads=3, redraw=False)
    assert torch.equal(fixed(x), fixed(x))


def test_saved_performer_keeps_its_rows():
    mixer, x = PerformerAttention(D, num_heads=3).eval(), torch.randn(1, 20, D)
    twin = PerformerAttention(D, num_heads=3).eval()
    assert not torch.equal(twin(x), mixer(x))
    twin.load_state_dict(mixer.state_dict())
    assert torch.equal(twin(x), mixer(x))


@pytest.mark.parametrize("scale", [0.0, 1e-3, 10.0, 100.0, 1e4])
@pytest.mark.parametrize("size", [8, 256])
def test_performer_stays_finite(scale, size):
    mixer = PerformerAttention(size, causal=True).eval()
    with torch.enable_grad():
        x = (scale * torch.randn(1, 100, size)).requires_grad_()
        y = mixer(x)
        (gradient,) = torch.autograd.grad(y.sum(), x)
    assert y.isfinite().all()
    assert gradient.isfinite().all()


def test_lra_performer():
    """Scaled twice: it comes close to another kernel; and padding counts in the divisor as a key of zeros."""
    mixer = mixer_of("lra performer", features=20_000)
    with torch.no_grad():
        mixer.key_proj.weight.mul_(0.3)  # short vectors, for the small constant beside the features
        mixer.query_proj.weight.mul_(0.3)
    x = torch.randn(1, 30, D, dtype=torch.float64)
    mask = torch.arange(30) < 20
    q, k, v = mixer.project(x)
    weights = (q @ (k * mask[:, None]).mT / 4).exp()
    expected = mixer.output(weights / weights.sum(-1, keepdim=True) @ (v * mask[:, None]))
    y = mixer(x, mask[None])
    masked = mixer(x.masked_fill(~mask[:, None], 0), mask[None])
    close(y[:, :20], masked[:, :20], 1e-12)
    assert (y - expected)[:, :20].norm() < 0.03 * expected[:, :20].norm()
    assert torch.equal(mixer.train()(x), mixer(x))


# --- what they share


@correct
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(name, dtype):
    mixer = mixer_of(name, causal=True).float()
    x = torch.randn(2, 150, D)
    expected = mixer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (mixer(x).float() - expected).abs().max() < 0.1
    y = mixer.to(dtype)(x.to(dtype))
    assert y.dtype == dtype
    close(y.float(), expected, 0.1)


def test_cosformer_changes_with_the_length():
    mixer = mixer_of("cosformer", causal=True)
    x = torch.randn(1, 40, D, dtype=torch.float64)
    assert (mixer(x)[:, :20] - mixer(x[:, :20])).abs().max() > 1e-3


def test_options_are_checked():
    with pytest.raises(ValueError, match="features must be at least 1; got 0"):
        PerformerAttention(D, features=0)
    with pytest.raises(ValueError, match="must divide hidden_size 12; got 5"):
        EluAttention(D, num_heads=5)
