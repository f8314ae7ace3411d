"""Cross-entropy over a large vocabulary without a second tensor of the size of the logits."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tnn._precision import compute_dtype

IGNORED = -100  # the label of positions without a target
CHUNK_ELEMENTS = 2**24  # logits in work at a time: 64 MB in float32


def linear_cross_entropy(
    hidden: Tensor,
    head: nn.Linear,
    labels: Tensor,
    *,
    num_items: Tensor | int | None = None,
    ignore_index: int = -100,
) -> tuple[Tensor, Tensor]:
    """(loss, logits) of a language model: logits = head(hidden), and their mean cross-entropy with the labels.

    hidden (..., d), labels (...). The mean is over labels other than `ignore_index`, or the sum is divided by
    `num_items` (of all micro-batches of a step). Softmax and gradients are made a few rows at a time, so that the
    logits are the only full tensor of their size, in the forward and the backward pass.

    >>> import torch
    >>> from tnn.models.loss import linear_cross_entropy
    >>> head, hidden, labels = torch.nn.Linear(8, 100), torch.randn(3, 8), torch.tensor([1, 2, -100])
    >>> loss, logits = linear_cross_entropy(hidden, head, labels)
    >>> torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits, labels))
    """
    rows, flat = hidden.reshape(-1, hidden.shape[-1]), labels.reshape(-1).to(hidden.device)
    total, logits = _LinearCrossEntropy.apply(rows, head.weight, head.bias, flat, ignore_index)
    count = (flat != ignore_index).sum() if num_items is None else num_items
    if isinstance(count, Tensor):
        count = count.to(total.device)
    return total / count, logits.reshape(*hidden.shape[:-1], logits.shape[-1])


class _LinearCrossEntropy(torch.autograd.Function):
    """Sum of the cross-entropies, and the logits. Rows whose label is ignored weigh 0."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, ignore_index: int
    ) -> tuple[Tensor, Tensor]:
        logits = F.linear(hidden, weight, bias)  # (rows, vocabulary), in the dtype of the model or of autocast
        counted = labels != ignore_index
        work = _workspace(logits)
        normalizer = work.new_zeros(len(labels))
        for rows in _chunks(counted, logits):
            z = logits[rows]
            largest = z.amax(-1, keepdim=True).to(work.dtype)
            p = torch.sub(z, largest, out=work[: len(z)]).exp_()
            normalizer[rows] = p.sum(-1).log_() + largest.squeeze(-1)
        target = labels.where(counted, 0)
        chosen = logits.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(hidden, weight, bias, logits, target, counted, normalizer)
        return torch.where(counted, normalizer - chosen, 0).sum(), logits

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor | None, grad_logits: Tensor | None) -> tuple[Tensor | None, ...]:
        """d total / d logits = softmax - one-hot, a few rows at a time, straight into the products with it."""
        hidden, weight, bias, logits, target, counted, normalizer = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: derivatives of derivatives come from the plain formula
            return _differentiable_backward(ctx, hidden, weight, bias, target, counted, grad_total, grad_logits)
        dtype = logits.dtype
        hidden_cast, weight_cast = hidden.to(dtype), weight.to(dtype)
        needs_weight = ctx.needs_input_grad[1]
        # Sums over many rows: in float32 at least, for any dtype of the model.
        grad_hidden = torch.zeros_like(hidden_cast)
        grad_weight, grad_bias = normalizer.new_zeros(weight.shape), normalizer.new_zeros(len(weight))
        if grad_logits is not None:
            grad_hidden += grad_logits @ weight_cast
            if needs_weight:
                grad_weight += grad_logits.T @ hidden_cast
            grad_bias += grad_logits.sum(0, dtype=grad_bias.dtype)
        if grad_total is not None:
            scale = (grad_total * counted).unsqueeze(-1)  # on the narrow side of the products
            work = _workspace(logits)
            for rows in _chunks(counted, logits):
                p = torch.sub(logits[rows], normalizer[rows, None], out=work[: len(target[rows])]).exp_()
                p.scatter_add_(-1, target[rows, None], torch.full_like(target[rows, None], -1, dtype=p.dtype))
                g, s = p.to(dtype), scale[rows].to(dtype)
                grad_hidden[rows] += (g @ weight_cast) * s
                if not needs_weight:
                    pass
                elif dtype == grad_weight.dtype:
                    grad_weight.addmm_(g.T, hidden_cast[rows] * s)  # without a product to add
                else:
                    grad_weight += g.T @ (hidden_cast[rows] * s)
                if bias is not None:
                    grad_bias += torch.mv(p.T, scale[rows].squeeze(-1))
        grads = (grad_hidden.to(hidden.dtype), grad_weight.to(weight.dtype))
        return *grads, None if bias is None else grad_bias.to(bias.dtype), None, None


def _differentiable_backward(
    ctx: Any,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    counted: Tensor,
    grad_total: Tensor | None,
    grad_logits: Tensor | None,
) -> tuple[Tensor | None, ...]:
    logits = F.linear(hidden, weight, bias)
    losses = F.cross_entropy(logits.to(compute_dtype(logits)), target, reduction="none")
    parts = [((losses * counted).sum(), grad_total), (logits, grad_logits)]
    outputs, grads = zip(*[(output, grad) for output, grad in parts if grad is not None], strict=True)
    inputs = [t if need else None for t, need in zip((hidden, weight, bias), ctx.needs_input_grad, strict=False)]
    gradients = iter(torch.autograd.grad(outputs, [t for t in inputs if t is not None], grads, create_graph=True))
    return *(None if t is None else next(gradients) for t in inputs), None, None


def _chunks(counted: Tensor, logits: Tensor) -> Iterator[slice | Tensor]:
    """Rows in groups that fit the work space: all of them in a row, or only those counted if they are few."""
    size = _rows_at_a_time(logits)
    if counted.is_meta or 2 * counted.sum() >= len(counted):
        yield from (slice(i, i + size) for i in range(0, len(counted), size))
    else:
        yield from counted.nonzero().squeeze(1).split(size)


def _rows_at_a_time(logits: Tensor) -> int:
    return max(1, min(len(logits), CHUNK_ELEMENTS // logits.shape[1]))


def _workspace(logits: Tensor) -> Tensor:
    return logits.new_empty(_rows_at_a_time(logits), logits.shape[1], dtype=compute_dtype(logits))
