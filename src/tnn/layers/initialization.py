"""How parameters start from given values."""

import torch
from torch import Tensor


@torch.no_grad()
def start_from(parameter: Tensor, values: Tensor) -> None:
    """Fill a parameter, unless transformers has loaded it from a checkpoint."""
    if not getattr(parameter, "_is_hf_initialized", False):
        parameter.copy_(values.expand(parameter.shape))
