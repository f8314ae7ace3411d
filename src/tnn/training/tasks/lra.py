"""Tasks of Long-Range Arena."""

from typing import Any

from transformers import PreTrainedModel

from tnn.data.lra import LraSets, collate_lra, find_lra_task, load_lra
from tnn.data.tokenizers import highest_id
from tnn.models import (
    TNNForImageClassification,
    TNNForSequenceClassification,
    TNNForSequencePairClassification,
    load_preset,
)
from tnn.training.recipe import LraRecipe
from tnn.training.tasks.classes import accuracy, majority_accuracy
from tnn.training.tasks.language import load_with_tokenizer
from tnn.training.tasks.task import Task, checked_model_folder, load_head

PAD = 0  # in every vocabulary of the arena


def lra_task(recipe: LraRecipe) -> Task:
    found = load_arena(recipe)
    train, validation, test = (found.sets[split] for split in ("train", "validation", "test"))
    others = {} if test is validation else {"test": test}  # Text has no validation set of its own
    return Task(
        lambda: _model(recipe, found.tokenizer),
        train,
        validation,
        collate_lra(PAD),
        processor=found.tokenizer,
        found=found.summary,
        metrics=accuracy,
        metric="accuracy",
        others=others,
        to_beat=majority_accuracy(train, {"eval": validation, **others}),
    )


def load_arena(recipe: LraRecipe, tokenizer: Any = None, splits: Any = ("train", "validation", "test")) -> LraSets:
    """The examples that a recipe asks for; with the tokenizer of a trained model, if there is one."""
    data = recipe.data
    return load_lra(
        data.task,
        data.folder,
        flavour=data.flavour,
        splits=splits,
        length=data.length,
        tokenizer=tokenizer,
        check_counts=data.check_counts,
    )


def _model(recipe: LraRecipe, tokenizer: Any) -> PreTrainedModel:
    section, task = recipe.model, find_lra_task(recipe.data.task)
    flavour = task.flavours[recipe.data.flavour]
    head: Any = TNNForImageClassification
    given: dict[str, Any] = {"num_labels": task.num_labels}
    if flavour.tokens != "numbers":
        head = TNNForSequencePairClassification if task.kind == "pair" else TNNForSequenceClassification
        size = flavour.vocab_size or highest_id(tokenizer) + 1
        eos = None if tokenizer is None else tokenizer.eos_token_id
        given |= {"vocab_size": size, "pad_token_id": PAD, "bos_token_id": None, "eos_token_id": eos}
    changes = {**given, **section.changes}
    if changes["num_labels"] < task.num_labels:
        found = f"got {changes['num_labels']}"
        raise ValueError(f"model.num_labels must be at least {task.num_labels}, the classes there are; {found}")
    if section.start_from is not None:
        folder = checked_model_folder(section.start_from)
        if tokenizer is None:
            return load_head(head, folder, changes)
        return load_with_tokenizer(head, folder, changes, tokenizer)
    assert section.preset is not None
    config = load_preset(section.preset, **changes)
    if not isinstance(config, head.config_class):
        kind = "picture" if head is TNNForImageClassification else "text"
        wanted = f"of a {kind} model for {recipe.data.task} as {recipe.data.flavour} reads it"
        raise ValueError(f"model.preset must be {wanted}; got {section.preset!r}")
    return head(config)
