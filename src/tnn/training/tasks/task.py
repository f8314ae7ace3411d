"""What a trainer needs, whatever is learnt."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset, Subset
from transformers import PreTrainedModel


@dataclass(frozen=True)
class Task:
    """Examples are dictionaries of tensors; `collate` makes a batch of them."""

    make_model: Callable[[], PreTrainedModel]  # with random weights where they are not given
    train: Dataset[Any]
    validation: Dataset[Any]
    collate: Callable[[list[Any]], dict[str, Any]]
    processor: Any = None  # saved with the model: a tokenizer, or what prepares pictures
    found: str = ""  # what the data are, in a line
    repeats: int = 1  # times an example follows itself
    metrics: Callable[[Any], dict[str, float]] | None = None  # of predictions; None: the loss alone
    metric: str = "loss"  # the one that decides what is best
    others: Mapping[str, Dataset[Any]] = field(default_factory=dict)  # to judge the final model on as well
    to_beat: Mapping[str, float] = field(default_factory=dict)  # "majority_" and a metric: of one that learns nothing

    @property
    def evaluations(self) -> dict[str, Dataset[Any]]:
        return {"eval": self.validation, **self.others}

    def judged_by(self, examples: int | None) -> "Task":
        """With no more than so many examples in each set that the model is judged on; the same ones in every run."""
        if examples is None:
            return self
        few = {name: _some(dataset, examples) for name, dataset in self.evaluations.items()}
        return replace(self, validation=few.pop("eval"), others=few)


def _some(dataset: Any, count: int) -> Dataset[Any]:
    if len(dataset) <= count:
        return dataset
    chosen = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0))[:count]
    return Subset(dataset, sorted(chosen.tolist()))


def load_head(head: Any, folder: Path, changes: Mapping[str, Any]) -> PreTrainedModel:
    """A trained model to go on with: its encoder whole; a head that is new, or has other labels, begins anew."""
    model, found = head.from_pretrained(folder, **changes, ignore_mismatched_sizes=True, output_loading_info=True)
    shapes = sorted(key for key, *_ in found["mismatched_keys"] if not key.startswith("classifier.out."))
    missing, unused = (sorted(filter(_is_of_encoder, found[f"{kind}_keys"])) for kind in ("missing", "unexpected"))
    wrong = [
        *(f"{key} has another shape there" for key in shapes),
        *(f"{key} is not there" for key in missing),
        *(f"{key} is there, and would not be used" for key in unused),
    ]
    if wrong:
        raise ValueError(f"the changes of model do not fit the weights in {folder}: {wrong[0]}")
    return model


def _is_of_encoder(key: str) -> bool:
    return key.startswith("model.")


def checked_model_folder(folder: str | Path) -> Path:
    """With a model in it, or a FileNotFoundError."""
    if not (Path(folder) / "config.json").is_file():
        raise FileNotFoundError(f"there is no model in {folder}: it must be a folder with a config.json")
    return Path(folder)
