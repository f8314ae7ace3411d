"""Sentences of GLUE, for a model that has been trained on texts."""

from collections.abc import Callable, Sequence
from typing import Any

from transformers import AutoConfig

from tnn.data.blocks import collate
from tnn.data.glue import GlueDataset, find_glue_task, load_glue, majority_score, score
from tnn.data.tokenizers import load_tokenizer
from tnn.models import TNNForSequenceClassification
from tnn.training.recipe import GlueRecipe
from tnn.training.tasks.language import load_with_tokenizer
from tnn.training.tasks.task import Task, checked_model_folder


def glue_task(recipe: GlueRecipe) -> Task:
    """Sentences of the first of its tasks, on a model that has been trained on texts."""
    name = recipe.data.tasks[0]
    assert recipe.model.start_from is not None
    folder = checked_model_folder(recipe.model.start_from)
    tokenizer = load_tokenizer(folder, AutoConfig.from_pretrained(folder).vocab_size)
    train = glue_sets(recipe, tokenizer, ["train"])["train"]
    validation, *others = glue_sets(recipe, tokenizer, find_glue_task(name).validations).items()
    evaluations = {"eval": validation[1], **{f"eval_{split.rpartition('_')[2]}": found for split, found in others}}
    seen = [label for label in train.labels if label is not None]
    changes = {"num_labels": find_glue_task(name).num_labels, **recipe.model.changes}
    return Task(
        lambda: load_with_tokenizer(TNNForSequenceClassification, folder, changes, tokenizer),
        train=train,
        validation=validation[1],
        collate=collate(tokenizer.pad_token_id),
        processor=tokenizer,
        metrics=glue_metrics(name),
        metric=find_glue_task(name).metrics[0],
        others={prefix: found for prefix, found in evaluations.items() if prefix != "eval"},
        to_beat={
            f"majority_{prefix}_{metric}": value
            for prefix, found in evaluations.items()
            for metric, value in majority_score(name, [x for x in found.labels if x is not None], seen).items()
        },
    )


def glue_sets(recipe: GlueRecipe, tokenizer: Any, splits: Sequence[str]) -> dict[str, GlueDataset]:
    """Splits of the recipe's first task, as a model reads them."""
    rows = load_glue(recipe.data.tasks[0], recipe.data.glue, splits)
    return {split: GlueDataset(rows[split], tokenizer, recipe.data.length) for split in splits}


def glue_metrics(name: str) -> Callable[[Any], dict[str, float]]:
    """Of what a model puts out, in the form of transformers' EvalPrediction."""

    def metrics(found: Any) -> dict[str, float]:
        outputs = found.predictions
        return score(name, outputs.argmax(-1) if find_glue_task(name).classes else outputs.squeeze(-1), found.label_ids)

    return metrics
