"""What a kind of task is: the part of the package that differs between language models, GLUE, LRA and images."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tnn.training.schema import Recipe
from tnn.training.tasks.setup import TrainingSetup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RecipeType = TypeVar("RecipeType", bound=Recipe)
Metrics = dict[str, float]
Row = dict[str, Any]


@dataclass(frozen=True)
class EvaluationOptions:
    """What a user may ask of an evaluation; see `tnn.training.evaluate`."""

    source: str | None = None
    split: str | None = None
    length: int | None = None
    stream: bool = False
    chunk: int = 4096
    page: Path | None = None  # a file for a page about the result, if the task writes one
    whole: bool = False  # read texts to their end that are longer than those of the training, if the task can


@dataclass(frozen=True)
class PredictionOptions:
    """What a user may ask of a prediction; see `tnn.training.predict`."""

    batch_size: int = 32
    horizon: int | None = None  # steps ahead, of a forecast; None: as in training
    whole: bool = False  # read texts to their end that are longer than those of the training, if the task can
    chunk: int = 4096  # tokens of such a text that are computed at once


@dataclass(frozen=True)
class SubTraining:
    """One of several trainings that a recipe asks for."""

    folder: str  # inside the folder of the run
    recipe: Recipe  # of this training alone
    may_diverge: bool = False  # a loss that is NaN or infinite is a result, not an error


class Task(Generic[RecipeType]):
    """A kind of task. Subclasses give its recipe, its data and model, and its evaluation.

    Register a subclass with `@register_task("name")`. Recipes with `task: name` are then checked by its `recipe_class`,
    trained on what `build` returns, and evaluated by `evaluate`. A task has no state: one instance serves all recipes.

    >>> from tnn.training import load_recipe
    >>> from tnn.training.tasks.registry import find_task
    >>> recipe = load_recipe("mini-alm")
    >>> find_task(recipe.task).describe(recipe)["sequence length"]
    512
    """

    recipe_class: type[RecipeType]  # a subclass of Recipe with the section `data` and any other keys of the task
    resumable_keys: frozenset[str] = frozenset()  # keys with no effect on the weights: they may change with --resume
    places: frozenset[str] = frozenset()  # keys that say where the data are: they may change if the data are the same
    former_data: Mapping[str, Any] = {}  # what saved recipes mean whose section `data` has not yet these keys
    writes_page: bool = False  # whether `evaluate` knows the option `page`
    reads_whole: bool = False  # whether `evaluate` and `predict` know the option `whole`

    @property
    def model_classes(self) -> tuple[type, ...]:
        """The models that `evaluate` takes. Looked up when needed: a recipe can be read without loading any model."""
        raise NotImplementedError

    # --- training

    def resolve(self, recipe: RecipeType, saved: Recipe | None) -> RecipeType:
        """A recipe with everything said that it leaves open. `saved`: that of the run that is resumed."""
        return recipe

    def build(self, recipe: RecipeType) -> TrainingSetup:
        """Data sets and model for training."""
        raise NotImplementedError

    def model_class(self, recipe: RecipeType) -> Any:
        """The class of the model that a recipe trains."""
        return self.model_classes[0]

    def learning_rates(self, recipe: RecipeType) -> Sequence[float]:
        """All learning rates that a recipe tries."""
        return (recipe.training.learning_rate,)

    def trainings(self, recipe: RecipeType) -> Mapping[str, Sequence[SubTraining]]:
        """Where one recipe is several trainings: groups of them by name. Those of a group train on the same data.

        Empty: the recipe is one training, in the folder of the run.
        """
        return {}

    def best(self, results: Sequence[tuple[SubTraining, Metrics | None]]) -> Metrics:
        """The result of a group of `trainings`, with its "score"; the metrics of a training that diverged are None."""
        raise NotImplementedError

    def score_table(self, scores: Mapping[str, Metrics]) -> str:
        """The results of all groups, for the user."""
        raise NotImplementedError

    def mixes_examples(self, recipe: RecipeType) -> bool:
        """Whether examples of a batch have an effect on each other in training, apart from batch norm."""
        return False

    # --- evaluation

    def evaluate(self, folder: Path, model: Any, recipe: RecipeType | None, options: EvaluationOptions) -> str:
        """The metrics of a trained model, one per line. The recipe is None if the model was not trained by one."""
        raise NotImplementedError

    # --- prediction

    def predict(
        self, folder: Path, model: Any, recipe: RecipeType | None, source: str, options: PredictionOptions
    ) -> Iterator[Row]:
        """What a trained model says about new inputs: rows of a table, made as they are read.

        `source` is a file, the input itself, or "-" for standard input.
        """
        raise ValueError(f"{folder} makes no predictions: tnn predict is for classifiers of texts, and for forecasts")

    def draw_predictions(self, rows: Sequence[Row]) -> "Figure":
        """A figure of what `predict` returned."""
        raise ValueError("these predictions have no figure: --figure is for forecasts")

    # --- description

    def describe(self, recipe: RecipeType) -> dict[str, Any]:
        """The rows about the data in the table of settings."""
        raise NotImplementedError

    def format_result(self, metrics: Metrics) -> str:
        """The last line of a training."""
        return f"validation loss {metrics['eval_loss']:.4f}"

    def speed_unit(self, recipe: RecipeType) -> tuple[int, str]:
        """What the speed of training counts: how many per example, and their name."""
        return 1, "sequences"

    # --- for estimates of the cost

    def examples_per_epoch(self, recipe: RecipeType) -> int | None:
        """If it is known without the data."""
        return None

    def tokens_per_example(self, recipe: RecipeType, config: Any) -> int:
        """At most: sequences may be shorter. `config` is that of the model."""
        raise NotImplementedError
