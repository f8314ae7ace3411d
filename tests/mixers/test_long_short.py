"""Transformer-LS against dense attention with the pattern as a mask."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tnn import TNNConfig, TNNForCausalLM
from tnn.layers.sequences import Sequences
from tnn.mixers.long_short import LongShortAttention

D = 12


def mixer_of(causal, **options):
    torch.manual_seed(0)
    small = {"window": 6, "chunk": 4, "memory": 12} if causal else {"window": 4, "landmarks": 5}
    mixer = LongShortAttention(D, **{"num_heads": 3, "causal": causal, **small, **options}).double().eval()
    with torch.no_grad():
        for name, parameter in mixer.named_parameters():  # or every softmax is a mean, and biases are not seen
            parameter.add_(0.5 * torch.randn_like(parameter) if "norm" in name else torch.randn_like(parameter))
    return mixer


def heads_of(mixer, t):
    return t.reshape(len(t), mixer.num_heads, -1)  # (n, heads, head_size)


def sinusoid(lag, size):
    rate = [10_000 ** (-2 * k / size) for k in range(size // 2)]
    angle = lag * torch.tensor(rate, dtype=torch.float64)
    return torch.cat([angle.sin(), angle.cos()])


def dense_causal(mixer, x, memory=None):
    """Every pair of a query and a key or summary, one at a time. x (n, d); memory (m, d), tokens before x."""
    n, w, c = len(x), mixer.window, mixer.chunk
    size = D // mixer.num_heads
    q = heads_of(mixer, mixer.query_proj(x)) / size**0.5
    held = torch.zeros(0, D, dtype=x.dtype) if memory is None else memory[-w:]
    line = torch.cat([held, x])
    key = heads_of(mixer, mixer.near_norm(mixer.key_proj(line)))
    value = heads_of(mixer, mixer.near_norm(mixer.value_proj(line)))

    def summary(t, logits):
        """t (c, d), logits (c, heads): a mean of each head's channels."""
        weights = logits.softmax(0).repeat_interleave(size, 1)
        return (weights * t).sum(0)

    keys, values = [], []
    for first in range(0, 0 if memory is None else len(memory), c):
        part = memory[first : first + c]
        mean = summary(part, mixer.summary_proj(part))
        keys.append(mixer.key_proj(mean))
        values.append(mixer.value_proj(mean))
    old = len(keys)
    for first in range(0, n - c + 1, c):
        part = x[first : first + c]
        keys.append(summary(mixer.key_proj(part), mixer.summary_proj(part)))
        values.append(summary(mixer.value_proj(part), mixer.summary_proj(part)))
    y = torch.zeros(n, mixer.num_heads, size, dtype=x.dtype)
    for h in range(mixer.num_heads):
        part = slice(h * size, (h + 1) * size)
        for i in range(n):
            scores, seen_values = [], []
            for u in range(old + i // c):
                apart = mixer.far_position_proj(sinusoid(old + i // c - u - 1, D))[part]
                scores.append(q[i, h] @ mixer.far_norm(keys[u])[part] + q[i, h] @ apart)
                seen_values.append(mixer.far_norm(values[u])[part])
            for lag in range(w):
                j = i - lag + len(held)
                if j >= 0:
                    apart = mixer.near_position_proj(sinusoid(lag, D))[part]
                    content = (q[i, h] + mixer.content_bias[h, 0]) @ key[j, h]
                    scores.append(content + (q[i, h] + mixer.position_bias[h, 0]) @ apart)
                    seen_values.append(value[j, h])
            y[i, h] = torch.stack(scores).softmax(0) @ torch.stack(seen_values)
    return mixer.out_proj(y.flatten(1))


def dense_bidirectional(mixer, x):
    n, w = len(x), mixer.window
    size = D // mixer.num_heads
    q = heads_of(mixer, mixer.query_proj(x)) / size**0.5
    key = mixer.near_norm(mixer.key_proj(x))
    value = mixer.near_norm(mixer.value_proj(x))
    weights = mixer.summary_proj(x).reshape(n, mixer.num_heads, -1).softmax(0)
    summaries = []
    for t in (key, value):
        joined = torch.einsum("nhl,nhe->lhe", weights, heads_of(mixer, t)).flatten(1)
        summaries.append(heads_of(mixer, mixer.far_norm(joined)))
    group = torch.arange(n) // w
    place = torch.arange(n)
    first = group * w - w // 2
    pattern = (place >= first[:, None]) & (place < first[:, None] + 2 * w)  # (n, n)
    y = []
    for h in range(mixer.num_heads):
        near = (q[:, h] @ heads_of(mixer, key)[:, h].T).masked_fill(~pattern, -torch.inf)
        far = q[:, h] @ summaries[0][:, h].T
        probability = torch.cat([far, near], 1).softmax(1)
        y.append(probability @ torch.cat([summaries[1][:, h], heads_of(mixer, value)[:, h]]))
    return mixer.out_proj(torch.cat(y, 1))


def close(a, b, tolerance=1e-9):
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


@settings(max_examples=12)
@given(n=st.integers(1, 30), window=st.integers(1, 9), chunk=st.integers(1, 7), heads=st.sampled_from([1, 3]))
def test_causal_against_the_pattern(n, window, chunk, heads):
    mixer = mixer_of(True, window=window, chunk=chunk, num_heads=heads)
    x = torch.randn(n, D, dtype=torch.float64)
    close(mixer(x[None])[0], dense_causal(mixer, x))
    close(mixer(x), dense_causal(mixer, x))


@settings(max_examples=25)
@given(n=st.integers(1, 70), window=st.integers(1, 9), landmarks=st.integers(1, 6), heads=st.sampled_from([1, 3]))
def test_bidirectional_against_the_pattern(n, window, landmarks, heads):
    mixer = mixer_of(False, window=window, landmarks=landmarks, num_heads=heads)
    x = torch.randn(n, D, dtype=torch.float64)
    close(mixer(x[None])[0], dense_bidirectional(mixer, x))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 64, 513])
def test_lengths(causal, n):
    mixer = LongShortAttention(D, num_heads=3, causal=causal).eval()
    x = torch.randn(2, n, D)
    assert mixer(x).shape == x.shape
    assert torch.equal(mixer(x), mixer(x))


@pytest.mark.parametrize("causal", [False, True])
def test_padded_and_packed_sequences_are_alone(causal):
    mixer = mixer_of(causal)
    x = torch.randn(3, 40, D, dtype=torch.float64)
    mask = torch.ones(3, 40, dtype=torch.bool)
    mask[0, :17], mask[1, 11:14], mask[1, 35:], mask[2] = False, False, False, False
    y = mixer(x, mask)
    assert y.isfinite().all()
    for row in range(2):
        close(y[row, mask[row]], mixer(x[row, mask[row]]))
    ids = torch.tensor([[1] * 10 + [2] * 23 + [0] * 7, [1, 2] * 20, [1] * 40])
    y = mixer(x, Sequences(ids))
    for row in range(3):
        for document in ids[row].unique():
            if document:
                own = ids[row] == document
                close(y[row, own], mixer(x[row, own]))


def test_gradients_are_causal():
    mixer = mixer_of(True)
    with torch.enable_grad():
        x = torch.randn(1, 40, D, dtype=torch.float64, requires_grad=True)
        for i in (0, 3, 4, 5, 6, 23, 30):
            (gradient,) = torch.autograd.grad(mixer(x)[0, i].sum(), x)
            assert (gradient[0, i + 1 :] == 0).all()
            assert (gradient[0, : i + 1] != 0).any(-1).all()


def test_published_form_starts_with_its_memory():
    mixer = mixer_of(True, as_published=True)
    parts = torch.randn(30, D, dtype=torch.float64).split([7, 1, 14, 8])
    memory = torch.zeros(12, D, dtype=torch.float64)
    for part in parts:
        close(mixer(part[None])[0], dense_causal(mixer, part, memory))
        memory = torch.cat([memory, part])[-12:]
    mixer.reset_memory()
    close(mixer(parts[0][None])[0], dense_causal(mixer, parts[0], torch.zeros_like(memory)))


def test_memory_of_another_batch_is_cut_or_filled():
    mixer = mixer_of(True, as_published=True)
    first, second, third = (torch.randn(rows, 15, D, dtype=torch.float64) for rows in (2, 3, 1))
    mixer(first)
    y = mixer(second)
    for row in range(2):
        close(y[row], dense_causal(mixer, second[row], first[row, -12:]))
    close(y[2], dense_causal(mixer, second[2], torch.zeros(12, D, dtype=torch.float64)))
    close(mixer(third)[0], dense_causal(mixer, third[0], second[0, -12:]))


def test_memory_survives_inference_mode_and_is_not_trained_through():
    mixer = mixer_of(True, as_published=True)
    x = torch.randn(1, 15, D, dtype=torch.float64)
    with torch.inference_mode():
        mixer(x)
    with torch.enable_grad():
        x.requires_grad_()
        mixer(x).sum().backward()
        mixer(x.detach()).sum().backward()
    assert not mixer._remembered.requires_grad
    assert x.grad is not None


def test_the_default_keeps_no_memory():
    mixer = mixer_of(True)
    x = torch.randn(1, 15, D, dtype=torch.float64)
    assert torch.equal(mixer(x), mixer(x))
    assert mixer._remembered is None


def test_published_bidirectional_port_fills_up_with_zeros():
    mixer = mixer_of(False, as_published=True)
    x = torch.randn(1, 10, D, dtype=torch.float64)
    filled = torch.cat([x, torch.zeros(1, 2, D, dtype=torch.float64)], 1)
    close(mixer(x)[0], dense_bidirectional(mixer, filled[0])[:10])
    mask = torch.tensor([[True] * 8 + [False] * 2])
    close(mixer(x, mask), mixer(x * mask[..., None]))


@pytest.mark.parametrize("causal", [False, True])
def test_half_precision(causal):
    torch.manual_seed(0)
    mixer = LongShortAttention(D, num_heads=3, causal=causal).eval()
    x = torch.randn(2, 150, D)
    expected = mixer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (mixer(x).float() - expected).abs().max() < 0.05
    y = mixer.to(torch.bfloat16)(x.to(torch.bfloat16))
    assert y.dtype == torch.bfloat16
    close(y.float(), expected, 0.05)


@pytest.mark.parametrize("causal", [False, True])
def test_dropout_acts_in_training_only(causal):
    mixer = mixer_of(causal, attention_dropout=0.5)
    x = torch.randn(1, 20, D, dtype=torch.float64)
    assert torch.equal(mixer(x), mixer(x))
    assert not torch.equal(mixer.train()(x), mixer(x))


def test_start_of_the_causal_weights():
    mixer = LongShortAttention(256, num_heads=4, causal=True)
    for layer in (mixer.query_proj, mixer.out_proj, mixer.near_position_proj, mixer.summary_proj):
        assert layer.weight.std().item() == pytest.approx(0.02, rel=0.1)
        assert (layer.bias == 0).all()
    assert mixer.near_norm.weight.std().item() == pytest.approx(0.02, rel=0.2)
    assert mixer.position_bias.std().item() == pytest.approx(0.02, rel=0.2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 0}, "window must be at least 1; got 0"),
        ({"landmarks": 0}, "landmarks must be at least 1; got 0"),
        (
            {"as_published": True, "memory": 100},
            "memory must be a multiple of chunk 32, and not below window 64; got 100",
        ),
        (
            {"as_published": True, "memory": 32},
            "memory must be a multiple of chunk 32, and not below window 64; got 32",
        ),
        ({"num_heads": 5}, "must divide hidden_size 12; got 5"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        LongShortAttention(D, causal=True, **options)


def test_the_published_memory_and_the_two_modes():
    """Evaluation does not see what was trained on last, and checkpointing, which runs a layer twice, is refused."""
    options = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    options |= {"mixer": "transformer-ls", "mixer_options": {"as_published": True}}
    model = TNNForCausalLM(TNNConfig(**options))
    ids = torch.randint(3, 50, (1, 40))
    model.eval()
    first = model(ids).logits
    assert not torch.equal(model(ids).logits, first)
    model.train()(ids)
    assert torch.equal(model.eval()(ids).logits, first)
    model.train().gradient_checkpointing_enable()
    with pytest.raises(ValueError, match=r"keeps a memory, which gradient checkpointing would change twice"):
        model(ids, labels=ids)
