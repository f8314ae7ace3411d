"""For arithmetic that must not run in half precision, even under autocast: FFTs and position encoders."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def compute_dtype(*tensors: Tensor) -> torch.dtype:
    """float64 if any of the tensors is, else float32."""
    return torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32


def no_autocast(device: torch.device) -> AbstractContextManager[object]:
    if device.type == "meta":
        return nullcontext()  # torch.autocast does not support it, and only shapes are computed
    return torch.autocast(device.type, enabled=False)
