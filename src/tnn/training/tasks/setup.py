"""What the trainer needs, whatever the task: data sets, a model, and how the model is evaluated."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Dataset, Subset

from tnn._names import did_you_mean
from tnn.models import TNNImageModel, TNNModel, TNNSeriesModel, list_presets, load_preset
from tnn.models.loading import CONFIG, architecture_of, check_memory, load_strictly, read_config
from tnn.training.fingerprints import fingerprint, sample_examples, tokenizer_fingerprint

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class TrainingSetup:
    """Examples are dictionaries of tensors; `collate` makes a batch of them."""

    make_model: Callable[[], "PreTrainedModel"]  # new weights are drawn from torch's global generator
    train: Dataset[Any]
    validation: Dataset[Any]
    collate: Callable[[list[Any]], dict[str, Any]]
    processor: Any = None  # saved with the model: a tokenizer or an image processor
    data_summary: str = ""  # number and kind of the examples, in one line
    repeats: int = 1  # how often each example is used in a row
    metrics: Callable[[Any], dict[str, float]] | None = None  # of an EvalPrediction; None: only the loss
    metric: str = "loss"  # the one that decides which weights are best
    extra_eval_sets: Mapping[str, Dataset[Any]] = field(default_factory=dict)  # for the final model, by metric prefix
    majority_metrics: Mapping[str, float] = field(default_factory=dict)  # those of the most frequent class
    data_fingerprint: Callable[[], str] | None = None  # None: of some examples

    @property
    def eval_sets(self) -> dict[str, Dataset[Any]]:
        """All sets that the final model is evaluated on, by the prefix of their metrics."""
        return {"eval": self.validation, **self.extra_eval_sets}

    def fingerprints(self) -> dict[str, str | None]:
        """What a run is trained on, to recognise it when the run is resumed."""
        data = self.data_fingerprint or (lambda: fingerprint(*map(sample_examples, (self.train, self.validation))))
        return {"data": data(), "tokenizer": tokenizer_fingerprint(self.processor)}

    def limit_eval(self, examples: int | None) -> "TrainingSetup":
        """With at most this many examples in each evaluation set; the same ones in every run."""
        if examples is None:
            return self
        limited = {name: _random_subset(dataset, examples) for name, dataset in self.eval_sets.items()}
        return replace(self, validation=limited.pop("eval"), extra_eval_sets=limited)


def _random_subset(dataset: Any, count: int) -> Dataset[Any]:
    if len(dataset) <= count:
        return dataset
    chosen = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0))[:count]
    return Subset(dataset, sorted(chosen.tolist()))


def new_model(head: Any, config: Any) -> "PreTrainedModel":
    """A model with new weights, if they fit into the memory of this machine."""
    check_memory(head, config, "model")
    return head(config)


def load_head(head: Any, folder: Path, changes: Mapping[str, Any]) -> "PreTrainedModel":
    """A trained model to start from. Its encoder is used whole; another head, or one with new labels, is drawn."""
    saved, config = read_config(folder), read_config(folder, **changes)
    if architecture_of(saved, folder) != head.__name__:
        return load_strictly(head, folder, config, lambda name: not name.startswith("model."))
    new_labels = config.num_labels != saved.num_labels
    return load_strictly(head, folder, config, lambda name: new_labels and name.startswith("classifier.out."))


def checked_model_folder(folder: str | Path) -> Path:
    """The folder, if there is a model in it; otherwise a FileNotFoundError."""
    if not (Path(folder) / CONFIG).is_file():
        raise FileNotFoundError(f"there is no model in {folder}: it must be a folder with a {CONFIG}")
    return Path(folder)


def is_preset(name: Path) -> bool:
    """Whether a name is that of a preset; a folder with a model comes first. A FileNotFoundError if it is neither."""
    if (name / CONFIG).is_file():
        return False
    if str(name) in (presets := list_presets()):
        return True
    hint = did_you_mean(str(name), presets, others="tnn.list_presets()")
    raise FileNotFoundError(f"there is no model in {name}: it must be a folder with a {CONFIG}, or a preset; {hint}")


def model_at_start(preset: str) -> Any:
    """The model of a preset, without a head, with weights that a training could start from: those of seed 0.

    >>> from tnn.training.tasks.setup import model_at_start
    >>> len(model_at_start("mini-alm").layers)
    4
    """
    config = load_preset(preset)
    heads: tuple[Any, ...] = (TNNModel, TNNImageModel, TNNSeriesModel)
    head = next(head for head in heads if head.config_class is type(config))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return new_model(head, config).eval()


def preset_config(name: str, kind: type, wanted: str, fields: dict[str, Any]) -> Any:
    """The configuration of a preset with some fields changed; the preset must be of the `kind` that a task needs."""
    if not isinstance(load_preset(name), kind):
        raise ValueError(f"model.preset must be {wanted}; got {name!r}")
    return load_preset(name, **fields)
