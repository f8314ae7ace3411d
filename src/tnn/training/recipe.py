"""Recipes: all that decides an experiment, in one YAML file that is checked before any work is done.

A recipe names a model, its data and how it is trained. Files live in `recipes/`, one an experiment; any value can be
changed as `section.key=value`, on the command line or in `load_recipe`.
"""

import re
from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
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

Fraction = Annotated[float, Field(ge=0, le=1)]
DECIDED = {  # fields of TrainingArguments that follow from a recipe's own
    *("output_dir", "max_steps", "num_train_epochs", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("train_sampling_strategy", "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps"),
    *("optim", "optim_args", "adam_beta1", "adam_beta2", "adam_epsilon", "weight_decay", "max_grad_norm"),
    *("bf16", "fp16", "gradient_checkpointing", "torch_compile", "seed", "data_seed", "report_to", "disable_tqdm"),
    *("logging_steps", "logging_strategy", "eval_strategy", "eval_steps", "save_strategy", "save_steps"),
    *("save_total_limit", "load_best_model_at_end", "metric_for_best_model", "greater_is_better"),
    *("remove_unused_columns", "prediction_loss_only", "save_only_model", "resume_from_checkpoint"),
}


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSection(Section):
    """A preset, or a trained model to start from; and any field of its configuration, changed."""

    model_config = ConfigDict(extra="allow", frozen=True)

    preset: str | None = None
    start_from: str | None = None  # a folder with weights to begin with

    @property
    def changes(self) -> dict[str, Any]:
        return self.model_extra or {}

    @model_validator(mode="after")
    def _check(self) -> "ModelSection":
        if (self.preset is None) == (self.start_from is None):
            raise ValueError("give either preset or start_from")
        from tnn.models import TNNConfig, TNNImageConfig, load_preset

        kinds = [TNNConfig, TNNImageConfig] if self.preset is None else [type(load_preset(self.preset))]
        known = {field.name for kind in kinds for field in fields(kind)} | {"num_labels"}
        for key in self.changes:
            if key not in known:
                raise ValueError(_unknown(key, known))
        if self.preset is not None:
            try:
                load_preset(self.preset, **self.changes)
            except TypeError as error:
                raise ValueError(str(error)) from None
        return self


class TextData(Section):
    """Texts for language models. See docs/data.md for what `corpus` and `tokenizer` can be."""

    corpus: str
    train: str | None = None  # files in the place of the corpus' own
    validation: str | None = None
    test: str | None = None
    tokenizer: str = "bytes"
    length: PositiveInt = 512  # tokens of a block
    cache: str | None = None  # the folder for tokens; see tnn.data.tokens.cache_folder


class GlueData(Section):
    """Tasks of GLUE, one after the other."""

    glue: str  # the folder with CoLA, SST-2, ..., or hf:NAME
    tasks: tuple[str, ...] = Field(min_length=1)
    length: PositiveInt = 512  # longer inputs are cut

    @field_validator("tasks")
    @classmethod
    def _check(cls, tasks: tuple[str, ...]) -> tuple[str, ...]:
        from tnn.data.glue import find_glue_task

        for name in tasks:
            find_glue_task(name)
        return tasks


class LraData(Section):
    """A task of Long-Range Arena. See docs/lra.md for what `folder` can be."""

    task: str  # text, listops, retrieval, image, pathfinder or pathx
    folder: str
    flavour: Literal["tnn", "skyformer"] = "tnn"  # whose reading of the data
    length: PositiveInt | None = None  # tokens that longer texts are cut to; None: as published
    check_counts: bool = True  # as many examples as were published, or none

    @field_validator("task")
    @classmethod
    def _check(cls, task: str) -> str:
        from tnn.data.lra import find_lra_task

        find_lra_task(task)
        return task


class ImageData(Section):
    """Pictures of classes. See docs/images.md for what `images` can be, and for the augmentations."""

    images: str
    size: PositiveInt = 224
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)  # of each channel, black being 0 and white 1
    std: tuple[PositiveFloat, ...] = (0.229, 0.224, 0.225)
    crop: Fraction = 0.875  # of the shorter side, in evaluation
    augmentation: dict[str, Any] = {}  # fields of tnn.data.augmentation.Augmentation
    repeats: PositiveInt = 1  # times a picture follows itself, augmented anew

    @model_validator(mode="after")
    def _check(self) -> "ImageData":
        from tnn.data.augmentation import Augmentation

        known = {field.name for field in fields(Augmentation)}
        for key in self.augmentation:
            if key not in known:
                raise ValueError("augmentation: " + _unknown(key, known))
        try:
            Augmentation(**self.augmentation)
        except TypeError as error:
            raise ValueError(f"augmentation: {error}") from None
        if len(self.mean) != len(self.std):
            raise ValueError(f"mean and std must have a number for each channel; got {self.mean} and {self.std}")
        return self


class Training(Section):
    steps: PositiveInt | None = None  # updates
    epochs: PositiveFloat | None = None  # or passes over the data
    batch_size: PositiveInt  # sequences of an update, over all processes
    micro_batch_size: PositiveInt | None = None  # of them at once in a process; the rest are accumulated
    learning_rate: PositiveFloat
    schedule: Literal["inverse-sqrt", "polynomial", "cosine", "constant"]
    warmup_steps: NonNegativeInt | None = None
    warmup_ratio: Fraction | None = None  # of all steps, where their number is not known ahead
    warmup_from: NonNegativeFloat = 0.0  # learning rate of the first step
    final_learning_rate: NonNegativeFloat = 0.0  # polynomial and cosine end there
    schedule_steps: PositiveInt | None = None  # and after so many; None: with the run. A cosine rises again after it
    power: PositiveFloat = 1.0  # polynomial: 1 is a straight line
    betas: tuple[Fraction, Fraction] = (0.9, 0.98)
    epsilon: PositiveFloat = 1e-8
    weight_decay: NonNegativeFloat = 0.0  # decoupled, on every parameter
    clip: NonNegativeFloat = 0.0  # largest norm of the gradient; 0: any
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    gradient_checkpointing: bool = False
    compile: bool = False
    seed: NonNegativeInt = 0
    log_every: PositiveInt = 10
    evaluate_every: PositiveInt | None = None
    evaluate_examples: PositiveInt | None = None  # of each set, drawn once for all; None: all of them
    save_every: PositiveInt | None = None
    keep_checkpoints: PositiveInt = 2
    keep_best: bool = False  # end with the best evaluated weights, not with the last
    patience: PositiveInt | None = None  # stop after so many evaluations that did not improve
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
            found = f"got {self.batch_size} and {self.micro_batch_size}"
            raise ValueError(f"micro_batch_size must divide batch_size; {found}")
        if self.needs_evaluation and self.evaluate_every is None:
            raise ValueError("keep_best and patience need evaluate_every")
        if self.keep_best and self.save_every not in (None, self.evaluate_every):
            found = f"got {self.save_every} and {self.evaluate_every}"
            raise ValueError(f"save_every must be evaluate_every to keep the best; {found}")
        self._check_arguments()
        return self

    @property
    def needs_evaluation(self) -> bool:
        return self.keep_best or self.patience is not None

    def _check_arguments(self) -> None:
        if self.arguments:
            from transformers import TrainingArguments

            known = {field.name for field in fields(TrainingArguments)} - DECIDED
            for key in self.arguments:
                if key in DECIDED:
                    raise ValueError(f"arguments: {key} is decided by the other keys of training")
                if key not in known:
                    raise ValueError("arguments: " + _unknown(key, known))


class _Recipe(Section):
    name: str
    about: str = ""
    model: ModelSection
    training: Training


class CausalRecipe(_Recipe):
    """Autoregressive language modelling."""

    task: Literal["causal-lm"]
    data: TextData


class MaskedRecipe(_Recipe):
    """Bidirectional language modelling."""

    task: Literal["masked-lm"]
    data: TextData


class GlueRecipe(_Recipe):
    """Fine-tuning on sentences and pairs of them."""

    task: Literal["glue"]
    data: GlueData
    learning_rates: tuple[PositiveFloat, ...] = ()  # tried in turn in place of training.learning_rate; the best stays

    @model_validator(mode="after")
    def _check(self) -> "GlueRecipe":
        if self.model.start_from is None:
            raise ValueError(f"model.start_from must be the folder of a trained model; got preset {self.model.preset}")
        return self


class LraRecipe(_Recipe):
    """Classification of long sequences."""

    task: Literal["lra"]
    data: LraData


class ImageRecipe(_Recipe):
    """Classification of pictures."""

    task: Literal["image"]
    data: ImageData


Recipe = CausalRecipe | MaskedRecipe | GlueRecipe | LraRecipe | ImageRecipe
_ADAPTER: TypeAdapter[Recipe] = TypeAdapter(Annotated[Recipe, Field(discriminator="task")])
_SECTIONS: dict[str, list[type[Section]]] = {
    "": [CausalRecipe, MaskedRecipe, GlueRecipe, LraRecipe, ImageRecipe],
    "model": [ModelSection],
    "data": [TextData, GlueData, LraData, ImageData],
    "training": [Training],
}


def list_recipes() -> list[str]:
    """The names that `load_recipe` knows.

    >>> from tnn.training.recipe import list_recipes
    >>> "mini-alm" in list_recipes()
    True
    """
    return sorted(path.name.removesuffix(".yaml") for path in _FOLDER.iterdir() if path.name.endswith(".yaml"))


_FOLDER = files("tnn.training") / "recipes"


def load_recipe(name: str, changes: Iterable[str] = ()) -> Recipe:
    """A recipe by name, or from a YAML file, with changes as `section.key=value`.

    >>> from tnn.training.recipe import load_recipe
    >>> recipe = load_recipe("mini-alm", ["training.steps=20", "model.decay=1"])
    >>> recipe.training.steps, recipe.model.changes
    (20, {'decay': 1})
    """
    values = _read(name)
    for change in changes:
        _apply(values, change)
    return parse_recipe(values, name)


def _read(name: str) -> dict[str, Any]:
    path = Path(name) if name.endswith((".yaml", ".yml")) else None
    if path is None and name not in list_recipes():
        raise ValueError(f"no recipe {name!r}; {_nearest(name, list_recipes())}; or give a .yaml file")
    if path is not None and not path.is_file():
        raise FileNotFoundError(f"there is no recipe file {path}")
    try:
        values = read_yaml((path or _FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{name} is not YAML: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{name} must hold keys and values, as name, task, model, data and training")
    return {"name": path.stem, **values} if path else values


def _apply(values: dict[str, Any], change: str) -> None:
    """Set one value, given as `a.b=value`; the value is read as YAML."""
    path, equals, text = change.partition("=")
    *parents, key = path.split(".")
    if not equals or not key:
        raise ValueError(f"changes must be section.key=value; got {change!r}")
    if (
        not parents
        and key not in _keys("")
        and (homes := [s for s in ("model", "data", "training") if key in _keys(s)])
    ):
        raise ValueError(f"unknown key {key!r}; did you mean {homes[0]}.{key}?")
    for parent in parents:
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise ValueError(f"{parent} holds no keys, so {path} cannot be set")
    try:
        values[key] = read_yaml(text)
    except yaml.YAMLError:
        raise ValueError(f"{path}: {text!r} is not a YAML value; put it in quotes to make it a text") from None


class _Loader(yaml.SafeLoader):
    """With 1e-6 as a number, which YAML 1.1 takes for a text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+"), list("-+.0123456789")
)


def read_yaml(text: str) -> Any:
    """Plain values.

    >>> from tnn.training.recipe import read_yaml
    >>> read_yaml("{a: 1e-6, b: [bytes, 512]}")
    {'a': 1e-06, 'b': ['bytes', 512]}
    """
    return yaml.load(text, _Loader)  # a SafeLoader


def parse_recipe(values: dict[str, Any], name: str = "recipe") -> Recipe:
    """The checked recipe of plain values; the first thing wrong is told in one line."""
    try:
        return _ADAPTER.validate_python(values)
    except ValidationError as error:
        raise ValueError(f"{name}: {_first_problem(error)}") from None


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    tags = {"causal-lm", "masked-lm", "glue", "lra", "image"}
    place = [str(part) for number, part in enumerate(problem["loc"]) if number or part not in tags]
    path = ".".join(place)
    if problem["type"] == "extra_forbidden":
        section = ".".join(place[:-1])
        return _unknown(place[-1], _keys(section), section)
    if problem["type"] == "missing":
        return f"{path} is missing"
    if problem["type"] in ("union_tag_not_found", "union_tag_invalid"):
        return f"task must be one of {', '.join(sorted(tags))}; got {problem['input'].get('task')!r}"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return f"{path}: {message}" if path else message
    return f"{path}: {message[0].lower()}{message[1:]}; got {problem['input']!r}"


def _keys(section: str) -> list[str]:
    return [key for kind in _SECTIONS.get(section, []) for key in kind.model_fields]


def _unknown(key: str, known: Iterable[str], section: str = "") -> str:
    prefix = f"{section}." if section else ""
    return f"unknown key {prefix + key!r}; {_nearest(key, [prefix + k for k in known], prefix)}"


def _nearest(key: str, known: Iterable[str], prefix: str = "") -> str:
    names = sorted(set(known))
    close = get_close_matches(prefix + key, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"


def dump_recipe(recipe: Recipe) -> str:
    """YAML that `load_recipe` reads again.

    >>> from tnn.training.recipe import dump_recipe, load_recipe, parse_recipe
    >>> import yaml
    >>> recipe = load_recipe("mini-alm")
    >>> parse_recipe(yaml.safe_load(dump_recipe(recipe))) == recipe
    True
    """
    values = recipe.model_dump(mode="json", exclude_none=True)
    values["model"] |= recipe.model.changes  # where None means something
    return yaml.safe_dump(values, sort_keys=False, width=120)
