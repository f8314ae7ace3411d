"""GLUE: fine-tuning of a masked language model on sentences and pairs of sentences."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, PositiveFloat, PositiveInt, field_validator, model_validator

from tnn import models
from tnn.data.blocks import collate
from tnn.data.glue import GlueDataset, find_glue_task, load_glue, majority_score, score
from tnn.data.tokenizers import load_tokenizer
from tnn.models.loading import read_config
from tnn.training.fingerprints import fingerprint
from tnn.training.schema import Recipe, Section
from tnn.training.tasks.classification import ClassificationTask, EvaluationSets
from tnn.training.tasks.language import load_with_tokenizer
from tnn.training.tasks.registry import register_task
from tnn.training.tasks.setup import TrainingSetup, checked_model_folder
from tnn.training.tasks.task import Metrics, SubTraining

if TYPE_CHECKING:
    from transformers import EvalPrediction


class GlueData(Section):
    """Tasks of GLUE, trained one after the other."""

    glue: str  # the folder with CoLA, SST-2, ..., or hf:NAME
    tasks: tuple[str, ...] = Field(min_length=1)
    length: PositiveInt = 512  # longer inputs are truncated

    @field_validator("tasks")
    @classmethod
    def _check(cls, tasks: tuple[str, ...]) -> tuple[str, ...]:
        for name in tasks:
            find_glue_task(name)
        return tasks


class GlueRecipe(Recipe):
    data: GlueData
    learning_rates: tuple[
        PositiveFloat, ...
    ] = ()  # tried one by one instead of training.learning_rate; the best counts

    @model_validator(mode="after")
    def _check(self) -> "GlueRecipe":
        if self.model.start_from is None:
            raise ValueError(f"model.start_from must be the folder of a trained model; got preset {self.model.preset}")
        return self


@register_task("glue")
class Glue(ClassificationTask[GlueRecipe]):
    """Fine-tuning on tasks of GLUE: one training per task and learning rate; the best on the validation set counts."""

    recipe_class = GlueRecipe

    places = frozenset({"data.glue"})
    source_key = "glue"

    @property
    def model_classes(self) -> tuple[type, ...]:
        return (models.TNNForSequenceClassification,)

    def build(self, recipe: GlueRecipe) -> TrainingSetup:
        """Of the first task of the recipe."""
        name = recipe.data.tasks[0]
        assert recipe.model.start_from is not None
        folder = checked_model_folder(recipe.model.start_from)
        tokenizer = load_tokenizer(folder, read_config(folder).vocab_size)
        train = _load_sets(recipe, tokenizer, ["train"])["train"]
        (_, validation), *extra = _load_sets(recipe, tokenizer, find_glue_task(name).validations).items()
        others = [dataset for _, dataset in extra]
        extra_eval_sets = {f"eval_{split.rpartition('_')[2]}": dataset for split, dataset in extra}
        train_labels = [label for label in train.labels if label is not None]
        changes = {"num_labels": find_glue_task(name).num_labels, **recipe.model.changes}
        return TrainingSetup(
            lambda: load_with_tokenizer(self.model_class(recipe), folder, changes, tokenizer),
            train=train,
            validation=validation,
            collate=collate(tokenizer.pad_token_id),
            processor=tokenizer,
            data_fingerprint=lambda: fingerprint([(part.rows, part.labels) for part in (train, validation, *others)]),
            metrics=_metrics(name),
            metric=find_glue_task(name).metrics[0],
            extra_eval_sets=extra_eval_sets,
            majority_metrics={
                f"majority_{prefix}_{metric}": value
                for prefix, dataset in {"eval": validation, **extra_eval_sets}.items()
                for metric, value in majority_score(
                    name, [x for x in dataset.labels if x is not None], train_labels
                ).items()
            },
        )

    def learning_rates(self, recipe: GlueRecipe) -> Sequence[float]:
        return recipe.learning_rates or super().learning_rates(recipe)

    def trainings(self, recipe: GlueRecipe) -> Mapping[str, Sequence[SubTraining]]:
        search = bool(recipe.learning_rates)
        return {
            name: [
                SubTraining(f"{name}/lr-{rate:g}" if search else name, _single(recipe, name, rate), may_diverge=search)
                for rate in self.learning_rates(recipe)
            ]
            for name in recipe.data.tasks
        }

    def best(self, results: Sequence[tuple[SubTraining, Metrics | None]]) -> Metrics:
        """The highest score. A training that diverged has a score of 0, as in the paper."""
        scores = []
        for training, metrics in results:
            rate, name = training.recipe.training.learning_rate, training.recipe.data.tasks[0]
            if metrics is None:
                scores.append({"score": 0.0, "learning_rate": rate})
            else:
                scores.append(
                    {"score": metrics[f"eval_{find_glue_task(name).metrics[0]}"], "learning_rate": rate, **metrics}
                )
        return max(scores, key=lambda result: result["score"])

    def score_table(self, scores: Mapping[str, Metrics]) -> str:
        """One metric per line, with that of the most frequent class.

        >>> from tnn.training.tasks.glue import Glue
        >>> metrics = {"learning_rate": 1e-4, "eval_accuracy": 0.81, "majority_eval_accuracy": 0.51}
        >>> print(Glue().score_table({"sst2": metrics}))
        task  metric                score  majority  learning rate
        sst2  accuracy             0.8100    0.5100         0.0001
        """
        lines = ["task  metric                score  majority  learning rate"]
        for name, metrics in scores.items():
            for key in [key.removeprefix("majority_") for key in metrics if key.startswith("majority_")]:
                metric = key.removeprefix("eval_").replace("_", " ")
                values = f"{metrics[key]:.4f}    {metrics[f'majority_{key}']:.4f}"
                lines.append(f"{name:4}  {metric:19}  {values}  {metrics['learning_rate']:13g}")
        return "\n".join(lines)

    def evaluation_sets(self, folder: Path, model: Any, recipe: GlueRecipe) -> EvaluationSets:
        name = recipe.data.tasks[0]
        tokenizer = load_tokenizer(folder, model.config.vocab_size)
        sets = _load_sets(recipe, tokenizer, find_glue_task(name).validations)
        return EvaluationSets(sets, collate(tokenizer.pad_token_id), _metrics(name))

    def describe(self, recipe: GlueRecipe) -> dict[str, Any]:
        data = recipe.data
        return {"data": f"{', '.join(data.tasks)} in {data.glue}", "sequence length": data.length}

    def tokens_per_example(self, recipe: GlueRecipe, config: Any) -> int:
        return recipe.data.length


def _single(recipe: GlueRecipe, name: str, rate: float) -> GlueRecipe:
    """The recipe of one task and one learning rate."""
    training = recipe.training.model_copy(update={"learning_rate": rate})
    data = recipe.data.model_copy(update={"tasks": (name,)})
    return recipe.model_copy(update={"training": training, "data": data, "learning_rates": ()})


def _load_sets(recipe: GlueRecipe, tokenizer: Any, splits: Sequence[str]) -> dict[str, GlueDataset]:
    """Splits of the recipe's first task, in tokens."""
    rows = load_glue(recipe.data.tasks[0], recipe.data.glue, splits)
    return {split: GlueDataset(rows[split], tokenizer, recipe.data.length) for split in splits}


def _metrics(name: str) -> Callable[["EvalPrediction"], Metrics]:
    def metrics(prediction: "EvalPrediction") -> Metrics:
        outputs = prediction.predictions
        predicted = outputs.argmax(-1) if find_glue_task(name).classes else outputs.squeeze(-1)
        return score(name, predicted, prediction.label_ids)

    return metrics
