"""Classification of your own texts: tables with a column of texts and a column of labels."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeInt, model_validator
from torch import Tensor

from tnn import models
from tnn._files import write_text
from tnn.data.blocks import collate
from tnn.data.labelled_texts import (
    Columns,
    LabelledTexts,
    Part,
    TextEncoder,
    encode_texts,
    open_parts,
    open_whole,
    text_tokenizer,
)
from tnn.data.labels import Kind, Labels
from tnn.data.tables import open_tables
from tnn.data.tokenizers import load_tokenizer
from tnn.data.tokens import cache_folder
from tnn.models.loading import read_config
from tnn.training.fingerprints import fingerprint
from tnn.training.label_logits import label_logits
from tnn.training.label_prediction import class_names, predict_labels
from tnn.training.label_report import ScoredTexts, label_page, label_text
from tnn.training.naive_bayes import NaiveBayes
from tnn.training.schema import Recipe, Section
from tnn.training.scores import BASELINES, HEADLINES, METRIC_NAMES, Array, constant_predictions, decide, score
from tnn.training.tasks.classification import ClassificationTask
from tnn.training.tasks.language import load_with_tokenizer
from tnn.training.tasks.registry import register_task
from tnn.training.tasks.setup import TrainingSetup, checked_model_folder, new_model
from tnn.training.tasks.task import EvaluationOptions, Metrics, PredictionOptions, Row
from tnn.training.tasks.text_models import choose_tokenizer, text_preset

if TYPE_CHECKING:
    from transformers import EvalPrediction, PreTrainedModel

PROBLEM_TYPES: dict[Kind, str] = {
    "single": "single_label_classification",
    "several": "multi_label_classification",
    "regression": "regression",
}
FEW = 5  # names in a message
BATCH = 32  # texts that are scored at once


class TableData(Section):
    """Texts and their labels. docs/your-table.md says what `table` can be."""

    table: str
    text_column: str = "text"
    pair_column: str | None = None  # a second text: the label is about both
    label_column: str = "label"
    kind: Kind = "single"  # one class per text; "several" classes; or "regression": a number
    separator: str | None = Field(default=None, min_length=1)  # between several classes in one string
    class_weights: Literal["none", "balanced"] = "none"  # balanced: rare classes count as much as frequent ones
    length: int = Field(default=512, ge=8)  # tokens; longer texts are cut, unless tnn predict or evaluate has --whole
    tokenizer: str | None = None  # None: that of model.start_from, or bytes. bpe:SIZE is trained on the training texts
    split_seed: NonNegativeInt = 0  # which texts are for validation and test, if the table has no such splits

    @model_validator(mode="after")
    def _check(self) -> "TableData":
        if self.separator is not None and self.kind != "several":
            raise ValueError(f"separator is for several classes per text: give kind=several; got kind={self.kind}")
        if self.class_weights != "none" and self.kind == "regression":
            raise ValueError("class_weights are for classes, not for kind=regression")
        return self

    @property
    def columns(self) -> Columns:
        return Columns(self.text_column, self.pair_column, self.label_column, self.kind, self.separator)


class TableRecipe(Recipe):
    data: TableData


@register_task("classification")
class TableClassification(ClassificationTask[TableRecipe]):
    """Classification of texts, or of pairs of texts, from a table; or prediction of a number for each."""

    recipe_class = TableRecipe

    places = frozenset({"data.table"})
    source_key = "table"
    writes_page = True
    reads_whole = True

    @property
    def model_classes(self) -> tuple[type, ...]:
        return (models.TNNForSequenceClassification,)

    def build(self, recipe: TableRecipe) -> TrainingSetup:
        data, parts = recipe.data, open_parts(recipe.data.table, recipe.data.columns, recipe.data.split_seed)
        train = parts["train"]
        _warn_of_lone_classes(train)
        tokenizer = _make_tokenizer(recipe, train)
        encoder = TextEncoder(tokenizer)
        sets = {split: _encode(part, data.columns, encoder) for split, part in parts.items()}
        eval_sets = {"eval" if split == "validation" else split: sets[split] for split in sets if split != "train"}
        return TrainingSetup(
            lambda: _make_model(recipe, tokenizer, train.labels),
            sets["train"],
            eval_sets["eval"],
            collate(tokenizer.pad_token_id),
            processor=tokenizer,
            data_fingerprint=lambda: fingerprint([_content(dataset) for dataset in sets.values()]),
            data_summary=_summary(parts, encoder),
            metrics=_metrics(train.labels),
            metric="macro_f1" if data.class_weights == "balanced" else HEADLINES[data.kind],
            extra_eval_sets={name: dataset for name, dataset in eval_sets.items() if name != "eval"},
            majority_metrics=_baselines(train.labels, eval_sets),
        )

    def evaluate(self, folder: Path, model: Any, recipe: TableRecipe | None, options: EvaluationOptions) -> str:
        recipe = self.scored_recipe(folder, recipe, options)
        data, tokenizer = recipe.data, load_tokenizer(folder, model.config.vocab_size)
        parts, train = _parts_to_score(data, model, is_other=options.source is not None)
        counted = {} if train is None else _predict_by_counts(data.columns, train, parts)
        scored = []
        for split, part in parts.items():
            encoder = TextEncoder(tokenizer, whole=options.whole)
            dataset = _encode(part, data.columns, encoder)
            logits = _logits(model, dataset, encoder, options.chunk)
            baseline = constant_predictions(dataset.labels if train is None else train.labels, len(dataset))
            scored.append(ScoredTexts(split, part, dataset, logits, baseline, counted.get(split), encoder.summary()))
        if options.page is not None:
            options.page.parent.mkdir(parents=True, exist_ok=True)
            write_text(options.page, label_page(str(folder), scored, tokenizer))
        return "\n\n".join(map(label_text, scored))

    def predict(
        self, folder: Path, model: Any, recipe: TableRecipe | None, source: str, options: PredictionOptions
    ) -> Iterator[Row]:
        """The columns of the table and `prediction`; for classes also `probability` and `probabilities`."""
        if options.horizon is not None:
            raise ValueError("--horizon is for forecasts; this model predicts labels")
        columns = Columns() if recipe is None else recipe.data.columns
        return predict_labels(model, load_tokenizer(folder, model.config.vocab_size), columns, source, options)

    def describe(self, recipe: TableRecipe) -> dict[str, Any]:
        data = recipe.data
        texts = data.text_column if data.pair_column is None else f"{data.text_column} and {data.pair_column}"
        start = "bytes" if recipe.model.start_from is None else f"that of {recipe.model.start_from}"
        return {
            "data": f"{texts} -> {data.label_column} of {data.table}",
            "labels": {"single": "one class", "several": "several classes", "regression": "a number"}[data.kind],
            "class weights": data.class_weights,
            "tokenizer": data.tokenizer or start,
            "sequence length": data.length,
        }

    def format_result(self, metrics: Metrics) -> str:
        parts = []
        for key, name in {"eval": "validation", "test": "test"}.items():
            for kind, metric in HEADLINES.items():
                if (value := metrics.get(f"{key}_{metric}")) is not None:
                    baseline = f"{metrics[f'majority_{key}_{metric}']:.4f} by {BASELINES[kind]}"
                    parts.append(f"{name} {METRIC_NAMES[metric]} {value:.4f} ({baseline})")
        return ", ".join(parts)

    def tokens_per_example(self, recipe: TableRecipe, config: Any) -> int:
        return recipe.data.length


def _parts_to_score(data: TableData, model: Any, *, is_other: bool) -> tuple[dict[str, Part], Part | None]:
    """What the model was not trained on, and what it was; or all of another source."""
    names = () if data.kind == "regression" else tuple(class_names(model.config))
    if not is_other:
        parts = open_parts(data.table, data.columns, data.split_seed, names)
        return parts, parts.pop("train")
    tables = open_tables(data.table)
    return {split or table.name: open_whole(table, data.columns, names) for split, table in tables.items()}, None


def _predict_by_counts(columns: Columns, train: Part, parts: Mapping[str, Part]) -> dict[str, Array]:
    """The classes by naive Bayes on words, of each part; empty if the labels are not one class per text."""
    if train.labels.kind != "single":
        return {}
    bayes = NaiveBayes(map(" ".join, train.texts(columns)), train.labels.targets(), len(train.labels.names))
    return {split: bayes.predict(map(" ".join, part.texts(columns))) for split, part in parts.items()}


def _warn_of_lone_classes(train: Part) -> None:
    if train.labels.kind != "single":
        return
    lone = [repr(name) for name, count in zip(train.labels.names, train.labels.counts(), strict=True) if count == 1]
    if lone:
        shown = ", ".join(lone[:FEW]) + (", ..." if len(lone) > FEW else "")
        warnings.warn(f"labels with a single training example can hardly be learned: {shown}", stacklevel=2)


def _make_tokenizer(recipe: TableRecipe, train: Part) -> Any:
    texts = (text for texts in train.texts(recipe.data.columns) for text in texts)
    return text_tokenizer(choose_tokenizer(recipe.data.tokenizer, recipe.model.start_from, texts), recipe.data.length)


def _encode(part: Part, columns: Columns, encoder: TextEncoder) -> LabelledTexts:
    return LabelledTexts(encode_texts(part.texts(columns), encoder, cache_folder()), part.labels)


def _logits(model: Any, dataset: LabelledTexts, encoder: TextEncoder, chunk: int) -> Array:
    """(texts, labels)"""
    places = range(len(dataset))
    batches = (places[start : start + BATCH] for start in range(0, len(dataset), BATCH))
    texts = ([dataset.texts.row(place) for place in batch] for batch in batches)
    return np.concatenate([label_logits(model, batch, encoder, chunk).numpy() for batch in texts])


def _content(dataset: LabelledTexts) -> list[Any]:
    return [list(dataset.texts), list(dataset.labels.names), dataset.labels.values, dataset.labels.ends]


def _summary(parts: Mapping[str, Part], encoder: TextEncoder) -> str:
    counts = ", ".join(f"{len(part.rows):,} {split}" for split, part in parts.items())
    names = parts["train"].labels.names
    texts = f"{counts} texts" + (f" of {len(names):,} classes" if names else "")
    advice = "tnn predict and tnn evaluate read them to the end with --whole"
    return f"{texts}; {encoder.summary(advice)}" if encoder.longer else texts


def _metrics(labels: Labels) -> Callable[["EvalPrediction"], Metrics]:
    def metrics(prediction: "EvalPrediction") -> Metrics:
        predictions = decide(labels.kind, prediction.predictions)
        return score(labels.kind, predictions, prediction.label_ids, len(labels.names))

    return metrics


def _baselines(train: Labels, eval_sets: Mapping[str, LabelledTexts]) -> Metrics:
    """What a model that has learned nothing but the most frequent class, or the mean, would reach."""
    return {
        f"majority_{name}_{metric}": value
        for name, dataset in eval_sets.items()
        for metric, value in score(
            train.kind, constant_predictions(train, len(dataset)), dataset.labels.targets(), len(train.names)
        ).items()
    }


# --- the model


def _make_model(recipe: TableRecipe, tokenizer: Any, labels: Labels) -> "PreTrainedModel":
    section, head = recipe.model, models.TNNForSequenceClassification
    fields = _fields_of_labels(recipe, labels) | section.changes
    if section.start_from is not None:
        folder = checked_model_folder(section.start_from)
        model = load_with_tokenizer(head, folder, fields, tokenizer)
        has_numbers = read_config(folder).problem_type == PROBLEM_TYPES["regression"]
    else:
        model = new_model(head, text_preset(str(section.preset), tokenizer, fields))
        has_numbers = False
    if labels.kind == "regression" and not has_numbers:
        _start_from_mean(model, labels)
    if recipe.data.class_weights == "balanced":
        model.loss_function = _balanced_loss(labels)
    return model


def _fields_of_labels(recipe: TableRecipe, labels: Labels) -> dict[str, Any]:
    names = labels.names or (recipe.data.label_column,)
    fields = {
        "num_labels": len(names),
        "id2label": dict(enumerate(names)),
        "label2id": {name: number for number, name in enumerate(names)},
        "problem_type": PROBLEM_TYPES[labels.kind],
    }
    if given := sorted(fields.keys() & recipe.model.changes.keys()):
        raise ValueError(f"model.{given[0]} follows from the labels of the table: leave it out")
    return fields


def _start_from_mean(model: Any, labels: Labels) -> None:
    """The first predictions are as large as the labels: a price takes no longer to learn than a number of stars."""
    with torch.no_grad():
        model.classifier.out.weight.mul_(float(labels.values.std()))
        model.classifier.out.bias.fill_(float(labels.values.mean()))


def _balanced_loss(labels: Labels) -> Callable[..., Tensor]:
    """Every class counts as much as any other; of several classes per text, having one as much as not having it."""
    several, counts = labels.kind == "several", torch.from_numpy(labels.counts()).clamp(min=1)
    weights = (len(labels) - counts).clamp(min=1) / counts if several else len(labels) / (len(counts) * counts)

    def loss(logits: Tensor, labels: Tensor, **_: Any) -> Tensor:
        weight = weights.to(logits)
        if several:
            return F.binary_cross_entropy_with_logits(logits, labels, pos_weight=weight)
        return F.cross_entropy(logits, labels, weight, reduction="none").mean()

    return loss
