"""Where arithmetic must not be half precision: transforms and position encoders, in any model, under any autocast."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def compute_dtype(*tensors: Tensor) -> torch.dtype:
    """float64 if any of the tensors is, else float32."""
    return torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32


def no_autocast(device: torch.device) -> AbstractContextManager[object]:
    if device.type == "meta":
        return nullcontext()  # shapes only, and torch.autocast does not know it
    return torch.autocast(device.type, enabled=False)
