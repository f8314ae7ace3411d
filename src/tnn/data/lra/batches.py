"""Batches of examples of Long-Range Arena."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from tnn.data.blocks import collate

Example = Mapping[str, Tensor]


def collate_lra(pad_id: int | None) -> Callable[[list[Example]], dict[str, Tensor]]:
    """A collate function: pads texts on the right, stacks images, which need no `pad_id`.

    There is an attention mask if anything is padded; the two texts of pairs have separate masks.

    >>> import torch
    >>> from tnn.data.lra import collate_lra
    >>> short, long, label = torch.tensor([5, 2]), torch.tensor([6, 7, 2]), torch.tensor(1)
    >>> batch = collate_lra(pad_id=0)([{"input_ids": short, "labels": label}, {"input_ids": long, "labels": label}])
    >>> batch["input_ids"].tolist(), batch["attention_mask"].tolist()
    ([[5, 2, 0], [6, 7, 2]], [[1, 1, 0], [1, 1, 1]])
    """
    return partial(_collate, pad_id)


def _collate(pad_id: int | None, examples: list[Example]) -> dict[str, Tensor]:
    if {"pixel_values", "attention_mask"} & examples[0].keys():  # all of one length
        return {key: torch.stack([example[key] for example in examples]) for key in examples[0]}
    if pad_id is None:
        raise ValueError("pad_id must be the id of padding for texts; got None")
    batch = collate(pad_id)(list(examples))
    if "pair_input_ids" in examples[0]:
        seconds = [{"input_ids": example["pair_input_ids"], "labels": example["labels"]} for example in examples]
        batch |= {f"pair_{key}": value for key, value in collate(pad_id)(list(seconds)).items() if key != "labels"}
    return batch
