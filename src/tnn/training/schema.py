"""The sections that recipes of all tasks share. The keys of a single task are in `tnn.training.tasks`."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from tnn._names import did_you_mean

SEPARATORS = "/\\"  # of the parts of a path
LONGEST_NAME = 200  # that every file system allows
Fraction = Annotated[float, Field(ge=0, le=1)]
MANAGED_ARGS = {  # fields of TrainingArguments that are set from other keys of a recipe
    *("output_dir", "max_steps", "num_train_epochs", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("train_sampling_strategy", "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps"),
    *("optim", "optim_args", "adam_beta1", "adam_beta2", "adam_epsilon", "weight_decay", "max_grad_norm"),
    *("bf16", "fp16", "gradient_checkpointing", "torch_compile", "seed", "data_seed", "report_to", "disable_tqdm"),
    *("logging_steps", "logging_strategy", "eval_strategy", "eval_steps", "save_strategy", "save_steps"),
    *("save_total_limit", "load_best_model_at_end", "metric_for_best_model", "greater_is_better"),
    *("remove_unused_columns", "prediction_loss_only", "save_only_model", "resume_from_checkpoint"),
}


class Section(BaseModel):
    """A group of keys. Unknown keys are refused; values do not change after the check."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSection(Section):
    """A preset, or a trained model to start from. All other keys change fields of its configuration."""

    model_config = ConfigDict(extra="allow", frozen=True)

    preset: str | None = None
    start_from: str | None = None  # the folder of a trained model

    @property
    def changes(self) -> dict[str, Any]:
        """The fields of the configuration that the recipe sets."""
        return self.model_extra or {}

    @model_validator(mode="after")
    def _check(self) -> "ModelSection":
        if (self.preset is None) == (self.start_from is None):
            raise ValueError("give either preset or start_from")
        from tnn.models import TNNConfig, TNNImageConfig, TNNSeriesConfig, load_preset

        every = [TNNConfig, TNNImageConfig, TNNSeriesConfig]
        configs = every if self.preset is None else [type(load_preset(self.preset))]
        check_known_keys(self.changes, {field.name for config in configs for field in fields(config)} | {"num_labels"})
        if self.preset is not None:
            try:
                load_preset(self.preset, **self.changes)
            except (TypeError, AttributeError, OverflowError, MemoryError) as error:
                raise ValueError(f"the values do not fit preset {self.preset}: {error}") from None
        return self


class Training(Section):
    """How a model is trained, whatever the task."""

    steps: PositiveInt | None = None  # updates
    epochs: PositiveFloat | None = None  # or passes over the data
    batch_size: PositiveInt  # sequences per update, over all processes
    micro_batch_size: PositiveInt | None = None  # sequences per process at once; gradients of the rest are accumulated
    learning_rate: PositiveFloat
    schedule: Literal["inverse-sqrt", "polynomial", "cosine", "constant"]
    warmup_steps: NonNegativeInt | None = None
    warmup_ratio: Fraction | None = None  # of all steps, if their number is not known in advance
    warmup_from: NonNegativeFloat = 0.0  # learning rate of the first step
    final_learning_rate: NonNegativeFloat = 0.0  # where polynomial and cosine end
    schedule_steps: PositiveInt | None = None  # when they end; None: with the run. After it, a cosine rises again
    power: PositiveFloat = 1.0  # of the polynomial; 1 is a straight line
    betas: tuple[Fraction, Fraction] = (0.9, 0.98)
    epsilon: PositiveFloat = 1e-8
    weight_decay: NonNegativeFloat = 0.0  # decoupled; not on parameters that ask for none
    clip: NonNegativeFloat = 0.0  # largest norm of the gradient; 0: no clipping
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    gradient_checkpointing: bool = False
    compile: bool = False
    seed: NonNegativeInt = 0
    log_every: PositiveInt = 10
    evaluate_every: PositiveInt | None = None
    evaluate_examples: PositiveInt | None = None  # of each evaluation set, a fixed random choice; None: all
    save_every: PositiveInt | None = None
    keep_checkpoints: PositiveInt = 2
    keep_best: bool = False  # the final model has the best evaluated weights, not the last ones
    patience: PositiveInt | None = None  # stop after this many evaluations without improvement
    report_to: tuple[str, ...] = ()  # "tensorboard", "wandb", ...
    arguments: dict[str, Any] = {}  # any other field of transformers' TrainingArguments

    @model_validator(mode="after")
    def _check(self) -> "Training":
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give either steps or epochs")
        if self.warmup_steps is not None and self.warmup_ratio is not None:
            raise ValueError("give warmup_steps or warmup_ratio, not both")
        if self.schedule == "inverse-sqrt" and not self.warmup_steps:
            raise ValueError("schedule 'inverse-sqrt' needs warmup_steps of at least 1: it falls from there")
        if self.micro_batch_size and self.batch_size % self.micro_batch_size:
            got = f"got {self.batch_size} and {self.micro_batch_size}"
            raise ValueError(f"micro_batch_size must divide batch_size; {got}")
        if self.needs_evaluation and self.evaluate_every is None:
            raise ValueError("keep_best and patience need evaluate_every")
        if self.keep_best and self.save_every not in (None, self.evaluate_every):
            got = f"got {self.save_every} and {self.evaluate_every}"
            raise ValueError(f"save_every must be equal to evaluate_every with keep_best; {got}")
        self._check_arguments()
        return self

    @property
    def needs_evaluation(self) -> bool:
        return self.keep_best or self.patience is not None

    def _check_arguments(self) -> None:
        if self.arguments:
            from transformers import TrainingArguments

            for key in self.arguments:
                if key in MANAGED_ARGS:
                    raise ValueError(f"arguments: {key} is set by the other keys of training")
            known = {field.name for field in fields(TrainingArguments)} - MANAGED_ARGS
            check_known_keys(self.arguments, known, "arguments: ")
            _check_numbers(self.arguments, get_type_hints(TrainingArguments))


def _check_numbers(arguments: dict[str, Any], types: dict[str, Any]) -> None:
    """Those that must be a number, true or false. Other fields take more than their annotations say."""
    for key, value in arguments.items():
        if {*(get_args(types[key]) or [types[key]])} <= {int, float, bool, type(None)}:
            try:
                TypeAdapter(types[key], config=ConfigDict(strict=True)).validate_python(value)
            except ValidationError as error:
                raise ValueError(f"arguments: {key}: {error.errors()[0]['msg'].lower()}; got {value!r}") from None


class Recipe(Section):
    """Everything that decides an experiment. Each task has a subclass with its own `data`; see `tnn.training.tasks`."""

    name: str  # of the folder in runs/
    about: str = ""
    model: ModelSection
    training: Training
    task: str
    data: Any

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name in ("", ".", "..") or not name.isprintable() or set(name) & set(SEPARATORS) or len(name) > LONGEST_NAME:
            raise ValueError(f"must be the name of a folder, without / and \\; got {name[:LONGEST_NAME]!r}")
        return name


def check_known_keys(keys: Iterable[str], known: Iterable[str], prefix: str = "") -> None:
    """Raises a ValueError with the nearest known name if one of the keys is unknown.

    >>> from tnn.training.schema import check_known_keys
    >>> check_known_keys(["flop"], ["flip", "shift"])
    Traceback (most recent call last):
    ValueError: unknown key 'flop'; did you mean 'flip'?
    """
    known = sorted(known)
    for key in keys:
        if key not in known:
            raise ValueError(f"{prefix}unknown key {key!r}; {did_you_mean(key, known)}")
