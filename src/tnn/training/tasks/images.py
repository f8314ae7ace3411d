"""Classification of pictures."""

from typing import Any

from transformers import PreTrainedModel

from tnn.data.augmentation import Augmentation, EvaluationImages, TrainingImages, mixing_collate
from tnn.data.images import ImageSet, open_images
from tnn.models import TNNForImageClassification, TNNImageConfig, load_preset
from tnn.training.recipe import ImageRecipe
from tnn.training.tasks.classes import accuracy, majority_accuracy
from tnn.training.tasks.task import Task, checked_model_folder, load_head

PIL_BICUBIC = 3
LOOKS = 16  # at pictures, to know the size of all


def image_task(recipe: ImageRecipe) -> Task:
    data, sets = recipe.data, open_images(recipe.data.images)
    augmentation = Augmentation(**data.augmentation)
    classes = sets["train"].classes
    judged = {split: images for split, images in sets.items() if split != "train"}
    evaluations = {split: evaluation_images(recipe, images) for split, images in judged.items()}
    counts = ", ".join(f"{len(images):,} {split}" for split, images in sets.items())
    changes = {
        "num_labels": len(classes),
        "num_channels": len(data.mean),
        "image_size": data.size,
        "id2label": dict(enumerate(classes)),
        "label2id": {name: number for number, name in enumerate(classes)},
        "problem_type": "single_label_classification",
        **recipe.model.changes,
    }
    model_labels = int(changes["num_labels"])
    if model_labels != len(classes):
        for key in ("id2label", "label2id"):
            changes.pop(key)
    if model_labels < len(classes):
        raise ValueError(f"model.num_labels must be at least {len(classes)}, the classes there are; got {model_labels}")
    return Task(
        lambda: _model(recipe, changes),
        TrainingImages(
            sets["train"], data.size, data.mean, data.std, augmentation, recipe.training.seed, len(data.mean), data.crop
        ),
        evaluations["validation"],
        mixing_collate(augmentation, model_labels, recipe.training.seed),
        processor=_processor(recipe, sets["validation"]),
        found=f"{counts} pictures of {len(classes)} classes",
        repeats=data.repeats,
        metrics=accuracy,
        metric="accuracy",
        others={split: images for split, images in evaluations.items() if split != "validation"},
        to_beat=majority_accuracy(
            sets["train"], {"eval" if split == "validation" else split: images for split, images in judged.items()}
        ),
    )


def evaluation_images(recipe: ImageRecipe, images: ImageSet) -> EvaluationImages:
    data = recipe.data
    return EvaluationImages(images, data.size, data.mean, data.std, len(data.mean), data.crop)


def _model(recipe: ImageRecipe, changes: dict[str, Any]) -> PreTrainedModel:
    if recipe.model.start_from is not None:
        return load_head(TNNForImageClassification, checked_model_folder(recipe.model.start_from), changes)
    assert recipe.model.preset is not None
    config = load_preset(recipe.model.preset, **changes)
    if not isinstance(config, TNNImageConfig):
        raise ValueError(f"model.preset must be of a picture model; got {recipe.model.preset!r}")
    return TNNForImageClassification(config)


def _processor(recipe: ImageRecipe, images: ImageSet) -> Any:
    """For pipelines: it prepares a picture as `EvaluationImages` does those given. Pipelines know RGB only."""
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
    """Whether pictures stay whole in an evaluation, by a look at some of them: a million files take too long."""
    places = range(0, len(images), max(1, len(images) // LOOKS))
    return all(images[place].shape[1:] == (size, size) for place in places)
