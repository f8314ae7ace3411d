"""Weights that are NaN or infinite."""

from torch import nn
from torch.distributed.tensor import DTensor


def find_non_finite(model: nn.Module) -> str | None:
    """The name of the first tensor of a model with a value that is NaN or infinite; of FSDP, in this process.

    >>> import torch
    >>> from tnn.models.finite import find_non_finite
    >>> layer = torch.nn.Linear(2, 2)
    >>> find_non_finite(layer)
    >>> _ = torch.nn.init.constant_(layer.bias, float("nan"))
    >>> find_non_finite(layer)
    'bias'
    """
    for name, value in model.state_dict().items():
        local = value.to_local() if isinstance(value, DTensor) else value
        if not local.isfinite().all():
            return str(name)
    return None
