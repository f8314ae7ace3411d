"""The memory-saving loss against torch's, and how much it holds."""

import weakref

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from tnn.models import loss as loss_module
from tnn.models.loss import linear_cross_entropy


class LargeTensors(TorchDispatchMode):
    """The largest number of storages of at least `size` bytes that were alive at once."""

    def __init__(self, size):
        super().__init__()
        self.size = size
        self.most = 0
        self._alive = weakref.WeakSet()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().nbytes() >= self.size:
                self._alive.add(tensor)
        self.most = max(self.most, len({t.untyped_storage().data_ptr() for t in self._alive}))
        return out


@pytest.fixture
def _small_chunks(monkeypatch):
    monkeypatch.setattr(loss_module, "CHUNK_ELEMENTS", 300)


def both(rows, labels, head, extra, num_items=None):
    """(loss, gradients) of ours and of torch's, each with a term that uses the logits as well if `extra`."""
    results = []
    for ours in (True, False):
        hidden = rows.detach().requires_grad_()
        head.zero_grad()
        if ours:
            loss, logits = linear_cross_entropy(hidden, head, labels, num_items=num_items)
        else:
            logits = head(hidden)
            loss = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="sum")
            loss = loss / ((labels != -100).sum() if num_items is None else num_items)
        total = loss + extra * logits.square().sum()
        total.backward()
        results.append((total.detach(), [hidden.grad, *(p.grad.clone() for p in head.parameters())]))
    return results


@given(
    n=st.integers(1, 40),
    vocabulary=st.sampled_from([2, 3, 50, 700]),
    kept=st.sampled_from([0.1, 0.5, 0.95, 1.0]),
    bias=st.booleans(),
    extra=st.sampled_from([0.0, 0.1]),
    num_items=st.sampled_from([None, 7]),
)
@pytest.mark.usefixtures("_small_chunks")
def test_equals_torch(n, vocabulary, kept, bias, extra, num_items):
    torch.manual_seed(n)
    head = torch.nn.Linear(5, vocabulary, bias=bias).double()
    labels = torch.randint(0, vocabulary, (2, n))
    labels = labels.masked_fill(torch.rand(2, n) > kept, -100)
    labels[0, 0] = 0
    (ours, gradients), (expected, expected_gradients) = both(
        torch.randn(2, n, 5, dtype=torch.float64), labels, head, extra, num_items
    )
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)
    for a, b in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_holds_one_tensor_of_the_size_of_the_logits(monkeypatch):
    rows, vocabulary = 64, 500
    monkeypatch.setattr(loss_module, "CHUNK_ELEMENTS", rows * vocabulary // 4)
    head, hidden = torch.nn.Linear(8, vocabulary), torch.randn(rows, 8, requires_grad=True)
    labels = torch.randint(0, vocabulary, (rows,))
    counts = {}
    for name in ("ours", "torch's"):
        with LargeTensors(4 * rows * vocabulary) as large:
            loss = (
                linear_cross_entropy(hidden, head, labels)[0]
                if name == "ours"
                else F.cross_entropy(head(hidden), labels)
            )
            loss.backward()
        counts[name] = large.most
    assert counts == {"ours": 1, "torch's": 3}


def test_training_step_of_a_model_holds_one(tiny, monkeypatch):
    """With outputs kept alive, as in a training loop that reads them."""
    monkeypatch.setattr(loss_module, "CHUNK_ELEMENTS", 2048)
    model = tiny("causal", vocab_size=2000).train()
    ids = torch.randint(3, 2000, (4, 32))
    with LargeTensors(4 * ids.numel() * 2000) as large:
        outputs = model(ids, labels=ids)
        outputs.loss.backward()
    assert large.most == 1


def test_large_logits_do_not_overflow():
    head = torch.nn.Linear(2, 3, bias=False)
    hidden = torch.tensor([[1e4, -1e4]], requires_grad=True)
    loss, logits = linear_cross_entropy(hidden, head, torch.tensor([1]))
    loss.backward()
    torch.testing.assert_close(loss, F.cross_entropy(logits, torch.tensor([1])))
    assert hidden.grad.isfinite().all()


def test_nothing_counted_is_nan_as_in_torch():
    loss, _ = linear_cross_entropy(torch.randn(3, 4), torch.nn.Linear(4, 5), torch.full((3,), -100))
    assert loss.isnan()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_sums_in_float32(dtype):
    head = torch.nn.Linear(16, 4000).to(dtype)
    hidden, labels = torch.randn(200, 16, dtype=dtype), torch.randint(0, 4000, (200,))
    loss, logits = linear_cross_entropy(hidden, head, labels)
    assert logits.dtype == dtype
    torch.testing.assert_close(loss, F.cross_entropy(logits.float(), labels))


def test_evaluation_keeps_no_graph():
    with torch.no_grad():
        loss, logits = linear_cross_entropy(torch.randn(3, 4), torch.nn.Linear(4, 5), torch.tensor([1, 2, 3]))
    assert not loss.requires_grad
    assert not logits.requires_grad
