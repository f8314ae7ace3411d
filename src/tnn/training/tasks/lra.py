"""Long-Range Arena: classification of long sequences."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import PositiveInt, field_validator

from tnn import models
from tnn.data.lra import LraSets, collate_lra, find_lra_task, load_lra
from tnn.data.lra.pixels import ImageFiles, PixelSet
from tnn.data.lra.texts import TextSet
from tnn.data.tokenizers import highest_id, load_tokenizer
from tnn.training.fingerprints import fingerprint
from tnn.training.schema import Recipe, Section
from tnn.training.tasks.classification import ClassificationTask, EvaluationSets, accuracy, majority_accuracy
from tnn.training.tasks.language import load_with_tokenizer
from tnn.training.tasks.registry import register_task
from tnn.training.tasks.setup import TrainingSetup, checked_model_folder, load_head, new_model, preset_config

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PAD = 0  # in all vocabularies of LRA


class LraData(Section):
    """A task of LRA. docs/lra.md says what `folder` can be."""

    task: str  # text, listops, retrieval, image, pathfinder or pathx
    folder: str
    flavour: Literal["tnn", "skyformer"] = "tnn"  # whose preprocessing of the data
    length: PositiveInt | None = None  # longer texts are truncated to it; None: the published length
    held_out: PositiveInt | None = None  # training examples of Text for validation, which is on its test set otherwise
    check_counts: bool = True  # refuse data whose number of examples is not the published one

    @field_validator("task")
    @classmethod
    def _check(cls, task: str) -> str:
        find_lra_task(task)
        return task


class LraRecipe(Recipe):
    data: LraData


@register_task("lra")
class Lra(ClassificationTask[LraRecipe]):
    """Classification of long sequences."""

    recipe_class = LraRecipe

    resumable_keys = frozenset({"data.check_counts"})
    places = frozenset({"data.folder"})
    source_key = "folder"

    @property
    def model_classes(self) -> tuple[type, ...]:
        return (
            models.TNNForSequenceClassification,
            models.TNNForSequencePairClassification,
            models.TNNForImageClassification,
        )

    def build(self, recipe: LraRecipe) -> TrainingSetup:
        data = _load(recipe)
        train, validation, test = (data.sets[split] for split in ("train", "validation", "test"))
        extra_eval_sets = {} if test is validation else {"test": test}  # Text is validated on its test set
        return TrainingSetup(
            lambda: self._make_model(recipe, data.tokenizer),
            train,
            validation,
            collate_lra(PAD),
            processor=data.tokenizer,
            data_fingerprint=lambda: fingerprint([_content(dataset) for dataset in (train, validation, test)]),
            data_summary=data.summary,
            metrics=accuracy,
            metric="accuracy",
            extra_eval_sets=extra_eval_sets,
            majority_metrics=majority_accuracy(train, {"eval": validation, **extra_eval_sets}),
        )

    def model_class(self, recipe: LraRecipe) -> Any:
        task = find_lra_task(recipe.data.task)
        if task.flavours[recipe.data.flavour].tokens == "numbers":
            return models.TNNForImageClassification
        return models.TNNForSequencePairClassification if task.kind == "pair" else models.TNNForSequenceClassification

    def _make_model(self, recipe: LraRecipe, tokenizer: Any) -> "PreTrainedModel":
        section, head = recipe.model, self.model_class(recipe)
        changes = {**_config_of_data(recipe, head, tokenizer), **section.changes}
        num_labels = find_lra_task(recipe.data.task).num_labels
        if changes["num_labels"] < num_labels:
            got = f"got {changes['num_labels']}"
            raise ValueError(f"model.num_labels must be at least {num_labels}, the number of classes; {got}")
        if section.start_from is not None:
            folder = checked_model_folder(section.start_from)
            if tokenizer is None:
                return load_head(head, folder, changes)
            return load_with_tokenizer(head, folder, changes, tokenizer)
        assert section.preset is not None
        kind = "an image" if head is models.TNNForImageClassification else "a text"
        wanted = f"{kind} model for {recipe.data.task} with flavour {recipe.data.flavour}"
        return new_model(head, preset_config(section.preset, head.config_class, wanted, changes))

    def evaluation_sets(self, folder: Path, model: Any, recipe: LraRecipe) -> EvaluationSets:
        is_text = find_lra_task(recipe.data.task).kind != "pixels"
        tokenizer = load_tokenizer(folder, model.config.vocab_size) if is_text else None
        sets = _load(recipe, tokenizer, ("validation", "test")).sets
        if sets["validation"] is sets["test"]:
            del sets["validation"]
        return EvaluationSets(sets, collate_lra(PAD), accuracy)

    def describe(self, recipe: LraRecipe) -> dict[str, Any]:
        data = recipe.data
        return {
            "data": f"{data.task} of Long-Range Arena in {data.folder}",
            "preprocessing": f"that of {data.flavour}",
            "sequence length": data.length or "as published",
        }

    def examples_per_epoch(self, recipe: LraRecipe) -> int | None:
        return find_lra_task(recipe.data.task).counts["train"]

    def tokens_per_example(self, recipe: LraRecipe, config: Any) -> int:
        task = find_lra_task(recipe.data.task)
        length = recipe.data.length or task.flavours[recipe.data.flavour].length
        return length * (2 if task.kind == "pair" else 1)


def _load(recipe: LraRecipe, tokenizer: Any = None, splits: Sequence[Any] = ("train", "validation", "test")) -> LraSets:
    """The examples of a recipe, with the tokenizer of a trained model if there is one."""
    data = recipe.data
    return load_lra(
        data.task,
        data.folder,
        flavour=data.flavour,
        splits=splits,
        length=data.length,
        tokenizer=tokenizer,
        check_counts=data.check_counts,
        held_out=data.held_out,
    )


def _content(dataset: TextSet | PixelSet) -> list[Any]:
    """What a data set holds; files that are read on access count by name, size and time."""
    if isinstance(dataset, TextSet):
        return [dataset.labels, dataset.ids, dataset.ends]
    if isinstance(dataset.images, ImageFiles):
        return [dataset.labels, *(dataset.images.folder / name for name in dataset.images.names)]
    return [dataset.labels, dataset.images]


def _config_of_data(recipe: LraRecipe, head: Any, tokenizer: Any) -> dict[str, Any]:
    """Fields of the configuration that follow from the data."""
    task = find_lra_task(recipe.data.task)
    values: dict[str, Any] = {"num_labels": task.num_labels}
    if head is not models.TNNForImageClassification:
        size = task.flavours[recipe.data.flavour].vocab_size or highest_id(tokenizer) + 1
        eos = None if tokenizer is None else tokenizer.eos_token_id
        values |= {"vocab_size": size, "pad_token_id": PAD, "bos_token_id": None, "eos_token_id": eos}
    return values
