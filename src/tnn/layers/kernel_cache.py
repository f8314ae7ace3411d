"""A kernel that is computed once and kept, for as long as nothing that it is made from has changed."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn


class _Kept(NamedTuple):
    made_from: list[Tensor]  # copies of the parameters
    made_for: int | None  # the length, if coefficients depend on it
    lags: int
    kernel: Tensor


class KernelCache:
    """The last kernel of one module: kept in evaluation without gradients, until a parameter changes by value.

    Copied or pickled with its module, it is empty again.
    """

    def __init__(self) -> None:
        self._kept: _Kept | None = None

    def get(
        self, module: nn.Module, lags: int, compute: Callable[[], Tensor], *, causal: bool, made_for: int | None
    ) -> Tensor:
        """compute(), or the same of an earlier call: the coefficients of `module` at the lags below `lags`."""
        if not _may_keep(module):
            return compute()
        kept, parameters = self._kept, list(module.parameters())
        if kept is None or kept.lags < lags or kept.made_for != made_for or not _same(kept.made_from, parameters):
            kept = self._kept = _Kept([p.detach().clone() for p in parameters], made_for, lags, compute())
        return first_lags(kept.kernel, lags, causal=causal)

    def __reduce__(self) -> tuple[type["KernelCache"], tuple[()]]:
        return KernelCache, ()


def first_lags(kernel: Tensor, lags: int, *, causal: bool) -> Tensor:
    """Of a kernel with at least that many lags, those below `lags` in each direction."""
    zero = 0 if causal else len(kernel) // 2
    return kernel[zero if causal else zero - lags + 1 : zero + lags]


def _may_keep(module: nn.Module) -> bool:
    """Only where nothing is recorded or traced, and where the coefficients come from our parameters alone."""
    if module.training or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    if not all(_is_plain(part) for part in module.modules()):
        return False
    parameters = list(module.parameters())  # none in a replica of DataParallel
    return bool(parameters) and all(isinstance(p, nn.Parameter) and not p.is_meta for p in parameters)


def _is_plain(module: nn.Module) -> bool:
    """Its output follows from its parameters: no hook, parametrization or adapter, which can be switched on and off."""
    kind = type(module)
    known = kind in (nn.Linear, nn.LayerNorm, nn.ModuleList) or kind.__module__.startswith("tnn.")
    return known and not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


def _same(old: Sequence[Tensor], new: Sequence[Tensor]) -> bool:
    """By value, not by version counter: an edit through `.data` does not count up."""
    return len(old) == len(new) and all(
        a.dtype == b.dtype and a.device == b.device and torch.equal(a, b) for a, b in zip(old, new, strict=True)
    )
