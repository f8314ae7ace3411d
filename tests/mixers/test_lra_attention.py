"""The attentions of the Long-Range Arena comparison, each against its formula over all pairs of tokens."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tnn.layers import count_parameters
from tnn.layers.sequences import Sequences
from tnn.mixers import find_mixer
from tnn.mixers.bigbird import BigBirdAttention
from tnn.mixers.block import TNNBlock
from tnn.mixers.informer import InformerAttention
from tnn.mixers.landmarks import iterative_inverse, segments
from tnn.mixers.skyformer import SkyformerAttention

SMALL = {  # options with which 70 tokens are many
    "kernelized": {},
    "skyformer": {"landmarks": 8},
    "nystromformer": {"landmarks": 5},
    "linformer": {"projected": 6, "max_length": 80},
    "informer": {"factor": 9},
    "reformer": {"chunk": 4},
    "bigbird": {"block": 3, "random_blocks": 2},
}
DRAWING = ("skyformer", "informer", "reformer")
SIZE = 8

pytestmark = pytest.mark.usefixtures("one_thread")
lengths = st.integers(1, 70)
heads = st.sampled_from([1, 2, 4])
few = settings(max_examples=20)


def make(name, num_heads=2, **options):
    torch.manual_seed(1)
    mixer = find_mixer(name).cls(SIZE, num_heads=num_heads, **{**SMALL[name], **options})
    return mixer.double().eval()


def tokens(*shape, scale=2.0):
    return scale * torch.randn(*shape, SIZE, dtype=torch.float64)


def project(mixer, x):
    """Lists of q, k, v, one for each head: (n, p)."""
    p = SIZE // mixer.num_heads
    rows = [x @ layer.weight.T + layer.bias for layer in (mixer.query_proj, mixer.key_proj, mixer.value_proj)]
    return [[row[:, a * p : (a + 1) * p] for a in range(mixer.num_heads)] for row in rows]


def output(mixer, y):
    return torch.cat(y, dim=-1) @ mixer.out_proj.weight.T + mixer.out_proj.bias


def softmax_matrix(q, k):
    return torch.softmax(q @ k.T / math.sqrt(q.shape[-1]), dim=-1)


def kernel(x, y):
    distance = (x[:, None] - y[None]).square().sum(-1)
    return torch.exp(-distance / (2 * math.sqrt(x.shape[-1])))


# Gaussian kernel


@few
@given(st.integers(1, 20), heads, st.booleans())
@torch.no_grad()
def test_kernelized_is_the_sum(n, num_heads, as_published):
    mixer, x = make("kernelized", num_heads, as_published=as_published), tokens(n)
    expected = []
    for q, k, v in zip(*project(mixer, x), strict=True):
        y = torch.zeros_like(v)
        for i in range(n):
            for j in range(n):
                distance = sum((float(a) - float(b)) ** 2 for a, b in zip(q[i], k[j], strict=True))
                y[i] += math.exp(-distance / (2 * math.sqrt(q.shape[-1]))) * v[j]
        expected.append(y)
    assert torch.allclose(mixer(x), output(mixer, expected), atol=1e-12)


# Landmarks


@given(st.integers(1, 70), st.integers(1, 70))
def test_segments_cover_a_sequence_evenly(n, count):
    start, end, used = segments(torch.tensor(n), count)
    parts = min(n, count)
    assert used.tolist() == [True] * parts + [False] * (count - parts)
    covered = [p for a, b in zip(start[:parts], end[:parts], strict=True) for p in range(a, b)]
    assert covered == list(range(n))
    sizes = (end - start)[:parts]
    assert sizes.max() - sizes.min() <= 1


def test_iterative_inverse():
    matrix = torch.softmax(torch.eye(6, dtype=torch.float64) * 4 + torch.randn(3, 6, 6, dtype=torch.float64), dim=-1)
    assert torch.allclose(iterative_inverse(matrix, 12) @ matrix, torch.eye(6, dtype=torch.float64), atol=1e-10)
    alone = torch.stack([iterative_inverse(one, 2) for one in matrix])
    assert torch.allclose(iterative_inverse(matrix, 2), alone, atol=1e-12)
    assert not torch.allclose(iterative_inverse(matrix, 2, whole_batch=True), alone, atol=1e-3)


def mean_matrix(n, count):
    """One row a landmark, by the rule in integers."""
    parts = min(n, count)
    matrix = torch.zeros(parts, n, dtype=torch.float64)
    for j in range(parts):
        start, end = j * n // parts, (j + 1) * n // parts
        matrix[j, start:end] = 1 / (end - start)
    return matrix


def nystrom(q, k, v, means, iterations):
    q_mean, k_mean = means @ q, means @ k
    inverse = iterative_inverse(softmax_matrix(q_mean, k_mean), iterations)
    return softmax_matrix(q, k_mean) @ inverse @ softmax_matrix(q_mean, k) @ v


@few
@given(lengths, heads, st.sampled_from([1, 2, 5, 16]))
def test_nystromformer_is_the_formula(n, num_heads, landmarks):
    mixer, x = make("nystromformer", num_heads, landmarks=landmarks), tokens(n)
    means = mean_matrix(n, landmarks)
    expected = output(mixer, [nystrom(*qkv, means, 6) for qkv in zip(*project(mixer, x), strict=True)])
    assert torch.allclose(mixer(x), expected, atol=1e-10)


@few
@given(st.integers(1, 40), heads)
def test_nystromformer_with_all_tokens_is_softmax_attention(n, num_heads):
    x = tokens(n)
    exact = {}
    for iterations in (6, 40):
        mixer = make("nystromformer", num_heads, landmarks=64, iterations=iterations)
        expected = output(mixer, [softmax_matrix(q, k) @ v for q, k, v in zip(*project(mixer, x), strict=True)])
        exact[iterations] = (mixer(x) - expected).norm() / expected.norm()
    assert exact[40] < 1e-6
    assert exact[6] < 0.05  # what six iterations, the published number, leave of nearly singular matrices


def skyformer(q, k, v, index, regularization):
    sample = torch.cat([q[index[0]], k[index[1]]])
    middle = kernel(sample, sample) + regularization * torch.eye(len(sample), dtype=torch.float64)
    return kernel(q, sample) @ torch.linalg.solve(middle, kernel(k, sample).T @ v)


@few
@given(st.integers(1, 24), heads, st.sampled_from([2, 8, 64]), st.booleans())
def test_skyformer_is_the_formula(n, num_heads, landmarks, as_published):
    mixer = make("skyformer", num_heads, landmarks=landmarks, iterations=14, as_published=as_published)
    x = tokens(n)
    index, used = mixer._sample(torch.tensor(n), n)
    assert used.all()
    assert index.shape == (2, landmarks // 2 if as_published else min(landmarks // 2, n))
    expected = output(mixer, [skyformer(*qkv, index, 0.1) for qkv in zip(*project(mixer, x), strict=True)])
    assert torch.allclose(mixer(x), expected, atol=1e-8)


@few
@given(st.integers(1, 20), heads)
def test_skyformer_with_all_tokens_is_kernelized_attention(n, num_heads):
    """But for what the regularisation takes; and for the inverse, here iterated to the end."""
    x, errors = tokens(n), []
    for regularization in (1e-1, 1e-4, 1e-7):
        mixer = make("skyformer", num_heads, landmarks=64, regularization=regularization, iterations=40)
        kernelized = make("kernelized", num_heads)
        kernelized.load_state_dict(mixer.state_dict())
        errors.append((mixer(x) - kernelized(x)).norm() / kernelized(x).norm())
    assert errors[2] < 1e-4
    assert errors[2] <= errors[1] <= errors[0] < 0.3


def test_six_iterations_of_skyformer():
    """The published number leaves a percent or two, with the published regularisation."""
    x = tokens(60)
    six, many = (make("skyformer", landmarks=64, iterations=count)(x) for count in (6, 40))
    assert (six - many).norm() < 0.03 * many.norm()


@given(st.integers(1, 70), st.integers(1, 40))
def test_skyformer_draws_one_landmark_of_each_stretch(n, half):
    mixer = SkyformerAttention(SIZE, landmarks=2 * half).train()
    index, _ = mixer._sample(torch.tensor(n), n)
    start, end, _ = segments(torch.tensor(n), min(half, n))
    assert ((start <= index) & (index < end)).all()


def test_a_published_inverse_depends_on_the_batch():
    for name in ("skyformer", "nystromformer"):
        x = tokens(3, 30, scale=1.0)
        for as_published in (False, True):
            mixer = make(name, as_published=as_published, iterations=2)
            alone = torch.stack([mixer(row) for row in x])
            assert torch.allclose(mixer(x), alone, atol=1e-12) != as_published


# Linformer


@few
@given(lengths, heads)
def test_linformer_is_the_formula(n, num_heads):
    mixer, x = make("linformer", num_heads), tokens(n)
    expected = []
    for mix, q, k, v in zip(mixer.projection[..., :n], *project(mixer, x), strict=True):
        expected.append(softmax_matrix(q, mix @ k) @ mix @ v)
    assert torch.allclose(mixer(x), output(mixer, expected), atol=1e-12)


def test_linformer_refuses_longer_sequences():
    mixer = make("linformer", max_length=20)
    with pytest.raises(ValueError, match=r"max_length = 20 positions; got 21"):
        mixer(tokens(1, 21))
    mask = torch.arange(30)[None] >= torch.tensor([[10], [12]])
    assert mixer(tokens(2, 30), mask).shape == (2, 30, SIZE)  # 20 of them are tokens
    with pytest.raises(ValueError, match="got 21"):
        mixer(tokens(2, 30), torch.arange(30)[None].repeat(2, 1) >= 9)


def test_linformer_trains_its_projection_unless_published():
    assert make("linformer").projection.requires_grad
    mixer = make("linformer", as_published=True)
    assert "projection" not in dict(mixer.named_parameters())
    assert "projection" in mixer.state_dict()
    assert torch.allclose(mixer.projection.std(), torch.tensor(0.02, dtype=torch.float64), rtol=0.2)


# Informer


@few
@given(lengths, heads, st.sampled_from([1, 3, 9, 128]), st.booleans())
@torch.no_grad()
def test_informer_is_exact_for_chosen_queries_and_else_the_mean(n, num_heads, factor, as_published):
    mixer, x = make("informer", num_heads, factor=factor, as_published=as_published), tokens(n)
    count = n if n == 1 else min(n, math.ceil(factor / math.log(n)) * math.ceil(math.log(n)))
    samples = mixer._samples(n, count, x.device)
    assert samples.shape == (n, count)
    expected = []
    for q, k, v in zip(*project(mixer, x), strict=True):
        sparsity = []
        for i in range(n):
            scores = [float(q[i] @ k[j]) for j in samples[i]]
            sparsity.append(max(scores) - sum(scores) / (n if as_published else count))
        chosen = sorted(range(n), key=lambda i: -sparsity[i])[:count]
        y = v.mean(0).repeat(n, 1)
        y[chosen] = (softmax_matrix(q, k) @ v)[chosen]
        expected.append(y)
    assert torch.allclose(mixer(x), output(mixer, expected), atol=1e-12)


def test_informer_counts():
    mixer = InformerAttention(SIZE)
    assert [mixer._count(n) for n in (1, 2, 100, 1024, 2048, 4096)] == [1, 2, 100, 133, 136, 144]


# Reformer


def reformer_counts(buckets, chunk, together):
    """How often query i sees key j, by the rules: (n, n) of hashes (rounds, n); `together`: rounds in a row."""
    n = buckets.shape[-1]
    chunks = []
    for row in buckets.tolist():
        order = sorted(range(n), key=lambda i: (row[i], i))
        chunks.append([order[start : start + chunk] for start in range(0, n, chunk)])
    counts = torch.zeros(n, n, dtype=torch.float64)
    for r, row in enumerate(chunks):
        for c, members in enumerate(row):
            before = row[c - 1] if c or not together else chunks[r - 1][-1]
            for i in members:
                for j in members + before:
                    counts[i, j] += 1
    return counts


def reformer(mixer, x, real=None):
    n, p = len(x), SIZE // mixer.num_heads
    q, v = (x @ layer.weight.T for layer in (mixer.query_proj, mixer.value_proj))
    y = []
    for a in range(mixer.num_heads):
        part = slice(a * p, (a + 1) * p)
        key = q[:, part] / (q[:, part].square().mean(-1, keepdim=True) + 1e-6).sqrt() / math.sqrt(p)
        scores = q[:, part] @ key.T
        scores[range(n), range(n)] = -1e5
        if real is not None:
            scores[:, ~real] = -1e9
        if n > mixer.chunk:
            every_head = q.unflatten(-1, (mixer.num_heads, p)).transpose(0, 1)
            counts = reformer_counts(mixer._buckets(every_head, real)[a], mixer.chunk, mixer.as_published)
            scores = scores + counts.log()
        y.append(torch.softmax(scores, dim=-1) @ v[:, part])
    return output(mixer, y)


@few
@given(lengths, heads, st.integers(1, 3), st.sampled_from([1, 4, 16]), st.booleans())
def test_reformer_is_dense_attention_with_the_pattern(n, num_heads, hashes, chunk, as_published):
    mixer, x = make("reformer", num_heads, hashes=hashes, chunk=chunk, as_published=as_published), tokens(n)
    assert torch.allclose(mixer(x), reformer(mixer, x), atol=1e-10)


@pytest.mark.parametrize("n", [1, 2, 30, 64, 65, 100, 128])
def test_reformer_of_up_to_two_chunks_is_full_attention(n):
    mixer, x = make("reformer", chunk=64), tokens(n)
    q, v = (layer(x).unflatten(-1, (2, 4)).transpose(0, 1) for layer in (mixer.query_proj, mixer.value_proj))
    scores = q @ (q / q.norm(dim=-1, keepdim=True)).mT
    scores = scores.masked_fill(torch.eye(n, dtype=torch.bool), -1e5)
    expected = output(mixer, list(torch.softmax(scores, dim=-1) @ v))
    assert torch.allclose(mixer(x), expected, atol=1e-5)  # but for the 1e-6 in the norm of keys


def test_reformer_hashes():
    mixer = make("reformer", chunk=64)
    for n, count in ((65, 2), (127, 2), (128, 4), (1024, 32), (1500, 32), (2048, 64)):
        buckets = mixer._buckets(torch.randn(2, n, 4, dtype=torch.float64), None)
        assert buckets.shape == (2, 2, n)
        assert 0 <= buckets.min() <= buckets.max() < count
        assert len(buckets.unique()) > count / 2
    q = torch.randn(2, 300, 4, dtype=torch.float64)
    assert torch.equal(mixer._buckets(q, None), mixer._buckets(3 * q, None))
    half = mixer._buckets(torch.cat([q, -q], dim=1), None)
    assert torch.equal(half[..., :300], (half[..., 300:] + 8) % 16)


def test_reformer_has_only_the_parameters_it_uses():
    names = set(dict(make("reformer").named_parameters()))
    assert names == {"query_proj.weight", "value_proj.weight", "out_proj.weight", "out_proj.bias"}
    assert sum(p.numel() for p in make("reformer", as_published=True).parameters()) == 4 * (SIZE**2 + SIZE)


# BigBird


def bigbird_counts(mixer, n):
    """How often query i sees key j: (heads, n, n), by the rules."""
    size, blocks = mixer.block, -(-n // mixer.block)
    counts = torch.zeros(mixer.num_heads, n, n, dtype=torch.float64)
    everything = blocks <= mixer.random_blocks + 4
    random, drawn = (None, None) if everything else mixer._random_blocks(blocks)
    for a in range(mixer.num_heads):
        for i in range(blocks):
            if everything or i in (0, blocks - 1):
                seen = list(range(blocks))
            else:
                seen = list({0, blocks - 1, i - 1, i, i + 1})
                seen += [int(b) for b, there in zip(random[a, i - 1], drawn[a, i - 1], strict=True) if there]
            for b in seen:
                counts[a, i * size : (i + 1) * size, b * size : (b + 1) * size] += 1
    return counts


def dense(mixer, x, counts, real=None):
    y = []
    for count, q, k, v in zip(counts, *project(mixer, x), strict=True):
        scores = q @ k.T / math.sqrt(q.shape[-1]) + count.log()
        if real is not None:
            scores[:, ~real] = -torch.inf
        y.append(torch.softmax(scores, dim=-1) @ v)
    return output(mixer, y)


@few
@given(lengths, heads, st.integers(1, 3), st.sampled_from([1, 3, 8]), st.booleans())
def test_bigbird_is_dense_attention_with_the_pattern(n, num_heads, random_blocks, block, as_published):
    options = {"block": block, "random_blocks": random_blocks, "as_published": as_published}
    mixer, x = make("bigbird", num_heads, **options), tokens(n)
    assert torch.allclose(mixer(x), dense(mixer, x, bigbird_counts(mixer, n)), atol=1e-12)


@given(st.integers(1, 5), st.integers(0, 40))
def test_bigbird_draws_blocks_not_seen_otherwise(random_blocks, more):
    blocks = random_blocks + 5 + more
    mixer = BigBirdAttention(SIZE, num_heads=2, random_blocks=random_blocks)
    random, drawn = mixer._random_blocks(blocks)
    assert random.shape == (2, blocks - 2, random_blocks)
    for a in range(2):
        for i in range(1, blocks - 1):
            chosen = random[a, i - 1][drawn[a, i - 1]].tolist()
            available = blocks - len({0, blocks - 1, i - 1, i, i + 1})
            assert len(set(chosen)) == len(chosen) == min(random_blocks, available)
            assert not set(chosen) & {0, blocks - 1, i - 1, i, i + 1}


@pytest.mark.parametrize(("n", "last"), [(1024, 14), (4096, 15), (2048, 9)])
def test_published_bigbird_draws_from_the_beginning(n, last):
    mixer = BigBirdAttention(64, num_heads=2, as_published=True)
    candidates = [mixer._candidates(row, n // 64) for row in range(1, n // 64 - 1)]
    assert max(map(max, candidates)) == last
    assert min(map(min, candidates)) == 1
    for row, allowed in enumerate(candidates[:-2], start=1):
        assert not set(allowed) & {row - 1, row, row + 1}
    if n == 4096:
        assert candidates[0] == list(range(3, 16))
        assert candidates[1] == list(range(4, 16))
        assert candidates[2] == [1, *range(5, 16)]
        assert candidates[13] == list(range(1, 13))
        assert candidates[30] == list(range(1, 16))
    if n == 1024:
        assert candidates[-1] == candidates[-2] == list(range(1, 15))  # among them the block itself
    if n == 2048:
        assert candidates[0] == [3, 4, 5, 6, 7, 8]
        assert candidates[8] == [2, 3, 4, 5, 6, 7]
        assert candidates[20] == list(range(1, 10))
    random, drawn = mixer._random_blocks(n // 64)
    assert drawn.all()
    assert all(int(b) in allowed for head in random for row, allowed in zip(head, candidates, strict=True) for b in row)


def test_published_bigbird_at_the_published_length():
    mixer, x = make("bigbird", block=64, random_blocks=3, as_published=True), tokens(1024)
    counts = bigbird_counts(mixer, 1024)
    assert counts.max() == 2
    assert torch.allclose(mixer(x), dense(mixer, x, counts), atol=1e-12)


# All of them


@pytest.mark.parametrize("name", SMALL)
@settings(max_examples=10)
@given(st.data())
def test_padded_is_as_if_alone(name, data):
    n = data.draw(lengths)
    rows = st.lists(st.integers(0, 3), min_size=n, max_size=n)
    ids = torch.tensor(data.draw(st.lists(rows, min_size=3, max_size=3))).sort(dim=-1).values
    mask = torch.tensor(data.draw(st.lists(rows, min_size=3, max_size=3))) > 0
    mixer, x = make(name), tokens(3, n)
    for sequences in (mask, Sequences(ids)):
        y = mixer(x, sequences)
        row_ids = sequences.ids if isinstance(sequences, Sequences) else sequences.long()
        for b in range(3):
            assert (y[b, row_ids[b] == 0] == 0).all()
            for i in row_ids[b].unique().tolist():
                if i:
                    member = row_ids[b] == i
                    assert torch.allclose(y[b, member], mixer(x[b, member]), atol=1e-9)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("as_published", [False, True])
def test_a_row_of_padding_is_harmless(name, as_published):
    mixer = make(name, as_published=as_published)
    x = tokens(2, 50).requires_grad_()
    mask = torch.zeros(2, 50, dtype=torch.bool)
    mask[0, 3:20] = True
    y = mixer(x, mask)
    assert as_published or (y[1] == 0).all()
    y.sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("name", ["linformer", "kernelized"])
def test_published_masks_that_lose_nothing(name):
    mixer, x = make(name, as_published=True), tokens(2, 40)
    mask = torch.arange(40) < torch.tensor([[17], [40]])
    assert torch.allclose(mixer(x, mask)[0, :17], mixer(x[0, :17]), atol=1e-12)


def test_published_masks_as_published():
    x, real = tokens(50), torch.rand(50) > 0.3
    x[~real] = 0

    mixer = make("nystromformer", as_published=True, landmarks=5)
    y = []
    for q, k, v in zip(*project(mixer, x), strict=True):
        q, k = q * real[:, None], k * real[:, None]
        q_mean, k_mean = (t.reshape(5, 10, -1).mean(1) for t in (q, k))
        scores = q_mean @ k.T / math.sqrt(q.shape[-1]) - 1e9 * (~real)
        middle = [softmax_matrix(q_mean, k_mean), torch.softmax(scores, dim=-1) @ v]
        y.append((softmax_matrix(q, k_mean), *middle))
    # the largest column sum is that of all heads
    inverses = iterative_inverse(torch.stack([middle for _, middle, _ in y]), 6, whole_batch=True)
    expected = output(mixer, [left @ inverse @ right for (left, _, right), inverse in zip(y, inverses, strict=True)])
    assert torch.allclose(mixer(x, real)[real], expected[real], atol=1e-10)

    mixer = make("reformer", as_published=True)
    assert torch.allclose(mixer(x, real)[real], reformer(mixer, x, real)[real], atol=1e-10)

    mixer = make("bigbird", as_published=True)
    expected = dense(mixer, x, bigbird_counts(mixer, 50), real)
    assert torch.allclose(mixer(x, real)[real], expected[real], atol=1e-12)

    mixer = make("informer", as_published=True)
    assert torch.equal(mixer(x, real), mixer(x))

    mixer = make("skyformer", as_published=True, iterations=20)
    index, _ = mixer._sample(real.sum(), 50)
    assert index.max() < real.sum()  # as if padding came last
    heads = [[t * real[:, None] for t in qkv] for qkv in zip(*project(mixer, x), strict=True)]
    expected = output(mixer, [skyformer(*qkv, index, 0.1) for qkv in heads])
    assert torch.allclose(mixer(x, real)[real], expected[real], atol=1e-8)


@pytest.mark.parametrize("name", SMALL)
def test_draws(name):
    """The same in evaluation; decided by the seed in training."""
    mixer, x = make(name), tokens(2, 60)
    assert torch.equal(mixer(x), mixer(x))
    mixer.train()
    first, second = mixer(x), mixer(x)
    assert torch.equal(first, second) == (name not in DRAWING)
    seeded = []
    for _ in range(2):
        torch.manual_seed(5)
        seeded.append(mixer(x))
    assert torch.equal(*seeded)


def test_bigbird_seed():
    x = tokens(60)
    first, again, other = (make("bigbird", seed=seed)(x) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize("name", SMALL)
def test_published_options_at_any_length(name, as_published):
    options = {"max_length": 513} if name == "linformer" else {}
    mixer = find_mixer(name).cls(16, num_heads=2, as_published=as_published, **options)
    for n in (1, 2, 3, 7, 64, 513):
        x = torch.randn(2, n, 16, requires_grad=True)
        y = mixer(x)
        assert y.shape == x.shape
        y.square().sum().backward()
        assert x.grad.isfinite().all()
        assert mixer(x[0]).shape == (n, 16)
        assert torch.allclose(mixer.eval()(x[None]), mixer(x)[None], atol=1e-5)
        mixer.train()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", SMALL)
def test_half_precision(name, dtype):
    mixer, x = make(name), tokens(2, 33, scale=1.0)
    expected = mixer(x)
    with torch.autocast("cpu", dtype):
        assert mixer.float()(x.float()).isfinite().all()
    y = mixer.to(dtype)(x.to(dtype))
    assert y.dtype == dtype
    if name not in ("informer", "reformer"):  # which choose by comparing rounded scores
        assert torch.allclose(y.double(), expected, atol=0.1)
    assert y.isfinite().all()


@pytest.mark.parametrize("name", ["kernelized", "linformer", "informer", "bigbird"])
def test_attention_dropout(name):
    mixer, x = make(name, attention_dropout=0.5), tokens(2, 40)
    torch.manual_seed(3)
    dropped = mixer.train()(x)
    torch.manual_seed(3)
    mixer.attention_dropout = 0.0
    assert not torch.allclose(dropped, mixer(x))
    mixer.attention_dropout = 1.0
    if name != "informer":
        assert torch.allclose(mixer(x), mixer.out_proj.bias.expand(x.shape))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("skyformer", {"landmarks": 7}, "landmarks must be even"),
        ("skyformer", {"regularization": -1.0}, "regularization"),
        ("nystromformer", {"landmarks": 0}, "landmarks"),
        ("linformer", {"max_length": 0}, "max_length"),
        ("linformer", {"attention_dropout": 2.0}, "attention_dropout"),
        ("informer", {"factor": 0}, "factor"),
        ("reformer", {"hashes": 0}, "hashes"),
        ("reformer", {"num_heads": 3}, "num_heads must divide"),
        ("bigbird", {"random_blocks": 0}, "random_blocks"),
        ("bigbird", {"causal": True}, "BigBirdAttention is bidirectional only"),
    ],
)
def test_wrong_options(name, options, message):
    with pytest.raises(ValueError, match=message):
        find_mixer(name).cls(SIZE, **options)


@pytest.mark.parametrize("name", SMALL)
def test_parameters_of_a_layer(name):
    """d = 64, two heads, a feed-forward layer of 128: 33,472 in the harness of Skyformer."""
    extra = {"linformer": 2 * 128 * 512, "reformer": -(64**2 + 3 * 64)}.get(name, 0)
    block = TNNBlock(64, mixer=name, num_heads=2, glu_expansion=2, norm="layer")
    assert count_parameters(block).trained == 33_472 + extra
    block = TNNBlock(64, mixer=name, num_heads=2, glu_expansion=2, norm="layer", as_published=True)
    assert count_parameters(block).trained == 33_472
