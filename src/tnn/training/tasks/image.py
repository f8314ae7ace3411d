"""Classification of images."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch.utils.data import default_collate

from tnn import models
from tnn.data.augmentation import Augmentation, EvaluationImages, TrainingImages, mixing_collate
from tnn.data.images import ImageSet, open_images
from tnn.training.fingerprints import fingerprint, sample_examples
from tnn.training.schema import Fraction, Recipe, Section, check_known_keys
from tnn.training.tasks.classification import ClassificationTask, EvaluationSets, accuracy, majority_accuracy
from tnn.training.tasks.registry import register_task
from tnn.training.tasks.setup import TrainingSetup, checked_model_folder, load_head, new_model, preset_config

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PIL_BICUBIC = 3
SIZE_SAMPLES = 16  # images that are opened to find out whether all have one size


class ImageData(Section):
    """Images with classes. docs/images.md says what `images` can be, and describes the augmentations."""

    images: str
    size: PositiveInt = 224
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)  # per channel, for values between 0 (black) and 1 (white)
    std: tuple[PositiveFloat, ...] = (0.229, 0.224, 0.225)
    crop: Fraction = 0.875  # of the shorter side, in evaluation
    augmentation: dict[str, Any] = Field(default={})  # fields of tnn.data.augmentation.Augmentation
    repeats: PositiveInt = 1  # how often an image is used in a row, each time with another augmentation

    @model_validator(mode="after")
    def _check(self) -> "ImageData":
        check_known_keys(self.augmentation, {field.name for field in fields(Augmentation)}, "augmentation: ")
        try:
            Augmentation(**self.augmentation)
        except TypeError as error:
            raise ValueError(f"augmentation: {error}") from None
        if len(self.mean) != len(self.std):
            raise ValueError(f"mean and std must have one number per channel; got {self.mean} and {self.std}")
        return self


class ImageRecipe(Recipe):
    data: ImageData


@register_task("image")
class ImageClassification(ClassificationTask[ImageRecipe]):
    """Classification of images."""

    recipe_class = ImageRecipe

    places = frozenset({"data.images"})
    source_key = "images"

    @property
    def model_classes(self) -> tuple[type, ...]:
        return (models.TNNForImageClassification,)

    def build(self, recipe: ImageRecipe) -> TrainingSetup:
        data, sets = recipe.data, open_images(recipe.data.images)
        augmentation = Augmentation(**data.augmentation)
        classes = sets["train"].classes
        raw_eval_sets = {split: images for split, images in sets.items() if split != "train"}
        eval_sets = {split: _evaluation_images(recipe, images) for split, images in raw_eval_sets.items()}
        counts = ", ".join(f"{len(images):,} {split}" for split, images in sets.items())
        changes = _config_of_data(recipe, classes)
        return TrainingSetup(
            lambda: _make_model(recipe, changes),
            TrainingImages(
                sets["train"],
                data.size,
                data.mean,
                data.std,
                augmentation,
                recipe.training.seed,
                len(data.mean),
                data.crop,
            ),
            eval_sets["validation"],
            mixing_collate(augmentation, int(changes["num_labels"]), recipe.training.seed),
            processor=_processor(recipe, sets["validation"]),
            data_fingerprint=lambda: fingerprint([images.labels for images in sets.values()], _content(recipe, sets)),
            data_summary=f"{counts} images of {len(classes)} classes",
            repeats=data.repeats,
            metrics=accuracy,
            metric="accuracy",
            extra_eval_sets={split: images for split, images in eval_sets.items() if split != "validation"},
            majority_metrics=majority_accuracy(
                sets["train"],
                {"eval" if split == "validation" else split: images for split, images in raw_eval_sets.items()},
            ),
        )

    def mixes_examples(self, recipe: ImageRecipe) -> bool:
        augmentation = Augmentation(**recipe.data.augmentation)
        return bool(augmentation.mixup or augmentation.cutmix)

    def evaluation_sets(self, folder: Path, model: Any, recipe: ImageRecipe) -> EvaluationSets:
        sets = open_images(recipe.data.images)
        _check_classes(recipe.data.images, list(sets["train"].classes), list(model.config.id2label.values()))
        eval_sets = {split: _evaluation_images(recipe, images) for split, images in sets.items() if split != "train"}
        return EvaluationSets(eval_sets, default_collate, accuracy)

    def describe(self, recipe: ImageRecipe) -> dict[str, Any]:
        data = recipe.data
        augmentation = ", ".join(f"{key} {value}" for key, value in data.augmentation.items())
        return {"data": f"images in {data.images}", "image size": data.size, "augmentation": augmentation or "none"}

    def tokens_per_example(self, recipe: ImageRecipe, config: Any) -> int:
        return (recipe.data.size // config.patch_size) ** 2


def _config_of_data(recipe: ImageRecipe, classes: Any) -> dict[str, Any]:
    """Fields of the configuration that follow from the data, and those that the recipe sets."""
    changes = {
        "num_labels": len(classes),
        "num_channels": len(recipe.data.mean),
        "image_size": recipe.data.size,
        "id2label": dict(enumerate(classes)),
        "label2id": {name: number for number, name in enumerate(classes)},
        "problem_type": "single_label_classification",
        **recipe.model.changes,
    }
    num_labels = int(changes["num_labels"])
    if num_labels != len(classes):
        for key in ("id2label", "label2id"):
            changes.pop(key)
    if num_labels < len(classes):
        raise ValueError(f"model.num_labels must be at least {len(classes)}, the number of classes; got {num_labels}")
    return changes


def _make_model(recipe: ImageRecipe, changes: dict[str, Any]) -> "PreTrainedModel":
    if recipe.model.start_from is not None:
        return load_head(models.TNNForImageClassification, checked_model_folder(recipe.model.start_from), changes)
    assert recipe.model.preset is not None
    config = preset_config(recipe.model.preset, models.TNNImageConfig, "an image model", changes)
    return new_model(models.TNNForImageClassification, config)


def _content(recipe: ImageRecipe, sets: Mapping[str, ImageSet]) -> list[Any]:
    """The files of a folder, which count by name, size and time; otherwise some images."""
    folder = Path(recipe.data.images)
    if folder.is_dir():
        return sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return [sample_examples(images) for images in sets.values()]


def _check_classes(source: str, classes: list[str], known: list[str]) -> None:
    """Those of the data must be those that the model was trained on, if it has their names."""
    if classes != known[: len(classes)] and not all(name.startswith("LABEL_") for name in known):
        unknown = [name for name in classes if name not in known]
        difference = repr(unknown[0]) if unknown else "their order"
        raise ValueError(f"{source} has other classes than the model was trained on: {difference} differs")


def _evaluation_images(recipe: ImageRecipe, images: ImageSet) -> EvaluationImages:
    data = recipe.data
    return EvaluationImages(images, data.size, data.mean, data.std, len(data.mean), data.crop)


def _processor(recipe: ImageRecipe, images: ImageSet) -> Any:
    """For pipelines: it prepares an image as `EvaluationImages` does. Pipelines support RGB only."""
    from transformers import BitImageProcessorPil

    data = recipe.data
    if len(data.mean) != 3:
        return None
    crop = 1.0 if _have_size(images, data.size) else data.crop
    return BitImageProcessorPil(
        size={"shortest_edge": round(data.size / crop)},
        crop_size={"height": data.size, "width": data.size},
        image_mean=list(data.mean),
        image_std=list(data.std),
        resample=PIL_BICUBIC,
    )


def _have_size(images: ImageSet, size: int) -> bool:
    """Whether images are not cropped in an evaluation. Only some are opened: a million files would take too long."""
    indices = range(0, len(images), max(1, len(images) // SIZE_SAMPLES))
    return all(images[index].shape[1:] == (size, size) for index in indices)
