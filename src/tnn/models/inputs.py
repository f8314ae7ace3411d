"""What callers give to a model: checked, and turned into the sequences that its layers mix."""

import torch
from torch import Tensor

from tnn.layers.sequences import Sequences, checked_mask


def check_ids(name: str, ids: Tensor, size: int, *, ignored: int | None = None) -> None:
    """Whole numbers in [0, size); read on the CPU only, where that costs nothing."""
    if not isinstance(ids, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor; got {type(ids).__name__}")
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise TypeError(f"{name} must hold integers; got {ids.dtype}")
    if torch.compiler.is_compiling() or ids.device.type != "cpu" or ids.numel() == 0:
        return
    wrong = (ids < 0) | (ids >= size)
    if ignored is not None:
        wrong &= ids != ignored
    if wrong.any():
        allowed = f"0 .. {size - 1}" + ("" if ignored is None else f" or {ignored}")
        raise ValueError(f"{name} must be in {allowed}; got {int(ids[wrong][0])}")


def find_sequences(
    x: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None, cu_seqlens: Tensor | None, seen: int = 0
) -> tuple[Sequences | None, Tensor | None]:
    """Which positions of x (batch, n, d) form sequences (None: each row is one), and where in its own each stands.

    After `seen` earlier tokens, the mask may be that of all of them; and must be if there was padding among them and
    the model has position embeddings, for otherwise all of them count.
    """
    if attention_mask is not None and not isinstance(attention_mask, Tensor):
        raise TypeError(f"attention_mask must be a torch.Tensor; got {type(attention_mask).__name__}")
    n = x.shape[1]
    counted = None if attention_mask is None or position_ids is not None else attention_mask.long().cumsum(-1) - 1
    if counted is not None and counted.shape[-1] == n:
        counted = counted + seen
    if attention_mask is not None:
        total = seen + n if isinstance(seen, int) else None  # a tensor in a graph, which cannot compare it
        if attention_mask.ndim == 2 and attention_mask.shape[1] != n and total in (None, attention_mask.shape[1]):
            attention_mask = attention_mask[:, -n:]
        attention_mask = checked_mask(attention_mask, x, "attention_mask")
        readable = not (torch.compiler.is_compiling() or attention_mask.is_meta)
        if readable and bool(attention_mask.all()):
            attention_mask = None
    if cu_seqlens is not None:
        position_ids = _positions_from_offsets(cu_seqlens, x)
    elif position_ids is not None:
        if position_ids.shape not in {x.shape[:2], (1, x.shape[1])}:
            raise ValueError(f"position_ids must have shape {tuple(x.shape[:2])}; got {tuple(position_ids.shape)}")
        position_ids = position_ids.expand(x.shape[:2])
    documents = None if position_ids is None else _documents(position_ids, attention_mask)
    if position_ids is None and counted is not None:
        position_ids = counted[:, -n:].clamp_min(0)
    elif position_ids is None and (not isinstance(seen, int) or seen > 0):
        position_ids = (torch.arange(n, device=x.device) + seen).unsqueeze(0)
    if documents is not None:
        return Sequences(documents), position_ids
    return None if attention_mask is None else Sequences(attention_mask), position_ids


def refuse_packed(mask: Tensor | None, position_ids: Tensor | None, **kwargs: Tensor) -> None:
    """For heads that give one answer per row."""
    packed = any(kwargs.get(name) is not None for name in ("cu_seqlens", "cu_seq_lens_q", "seq_idx"))
    if packed or (
        position_ids is not None and _documents(position_ids, None if mask is None else mask == 1) is not None
    ):
        raise ValueError("one answer per row: documents cannot be packed into a row; give each its own row")


def positions_in_documents(seq_idx: Tensor) -> Tensor:
    """(batch, n): positions that restart where the number of the document changes."""
    step = torch.arange(seq_idx.shape[1], device=seq_idx.device).expand_as(seq_idx)
    begins = torch.ones_like(seq_idx, dtype=torch.bool)
    begins[:, 1:] = seq_idx[:, 1:] != seq_idx[:, :-1]
    return step - torch.where(begins, step, 0).cummax(-1).values


@torch.compiler.disable
def _positions_from_offsets(cu_seqlens: Tensor, x: Tensor) -> Tensor:
    """cu_seqlens (documents + 1,): where each begins, and the end of the last."""
    n = x.shape[1]
    offsets = cu_seqlens.to(x.device).long()
    if x.shape[0] != 1:
        raise ValueError(f"cu_seqlens needs a batch of one row that holds all documents; got {x.shape[0]} rows")
    if offsets.ndim != 1 or offsets[0] != 0 or offsets[-1] != n or (offsets.diff() < 1).any():
        raise ValueError(f"cu_seqlens must rise from 0 to the length {n}; got {cu_seqlens.tolist()}")
    starts = offsets[:-1].repeat_interleave(offsets.diff())
    return (torch.arange(n, device=x.device) - starts).unsqueeze(0)


@torch.compiler.disable
def _documents(position_ids: Tensor, mask: Tensor | None) -> Tensor | None:
    """Ids 1, 2, ... of the documents in each row, 0 at padding; None if no row has two.

    A document begins where positions do not grow by one. With a mask, it begins where they do not grow: masked
    positions may have been counted.
    """
    if mask is None:
        starts = position_ids.diff() != 1
        real = torch.ones_like(position_ids, dtype=torch.bool)
    else:
        n = position_ids.shape[1]
        index = torch.arange(n, device=mask.device).expand_as(mask)
        last_real = torch.where(mask, index, -1).cummax(-1).values[:, :-1]
        previous = torch.where(last_real < 0, -1, position_ids.gather(-1, last_real.clamp_min(0)))
        starts = (position_ids[:, 1:] <= previous) & mask[:, 1:]
        real = mask
    if not starts.any():
        return None
    return torch.cat([torch.ones_like(position_ids[:, :1]), 1 + starts.cumsum(-1)], dim=-1) * real
