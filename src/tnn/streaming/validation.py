"""What every state asks of the next part of a sequence."""

from torch import Tensor

from tnn._checks import check_sequence
from tnn.layers.sequences import Mask, Sequences, resolve_mask


def next_part(x: Tensor, mask: Mask, channels: int, batch_size: int | None) -> tuple[Tensor, Sequences | None]:
    """x (batch, n, channels) and its padding, checked; `batch_size` is None before the first part."""
    check_sequence("x", x, channels)
    if x.ndim != 3:
        raise ValueError(f"x must have shape (batch, length, channels); got {tuple(x.shape)}")
    if batch_size not in (None, x.shape[0]):
        raise ValueError(f"the state holds {batch_size} sequences; got inputs for {x.shape[0]}")
    x, sequences = resolve_mask(x, mask)
    if sequences is not None and sequences.packed:
        raise ValueError("a state holds one sequence per row; got packed documents: give each its own row")
    return x, sequences
