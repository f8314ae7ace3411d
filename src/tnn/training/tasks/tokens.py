"""Labels for the words or spans of your own texts: names, terms, parts of speech."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt

from tnn import models
from tnn._files import write_text
from tnn.data.blocks import IGNORED, collate
from tnn.data.marked_texts import MarkedColumns, MarkedText, names_of, open_marked, open_sources, open_whole
from tnn.data.spans import Span, SpanKind
from tnn.data.token_labels import (
    EncodedText,
    LabelledTokens,
    count_widened,
    encode_with_places,
    label_names,
    label_tokens,
    span_names,
    token_tokenizer,
)
from tnn.data.tokenizers import load_tokenizer
from tnn.training.fingerprints import fingerprint
from tnn.training.schema import Recipe, Section
from tnn.training.scores import losses
from tnn.training.span_prediction import TextOutput, compute, find_spans, predict_spans
from tnn.training.span_report import ScoredSpans, span_page, span_text
from tnn.training.span_scores import (
    FLOOR,
    HEADLINES,
    METRIC_NAMES,
    WordTags,
    count_spans,
    score_token_labels,
    scores_of_counts,
)
from tnn.training.tasks.classification import ClassificationTask
from tnn.training.tasks.language import load_with_tokenizer
from tnn.training.tasks.registry import register_task
from tnn.training.tasks.setup import TrainingSetup, checked_model_folder, new_model
from tnn.training.tasks.task import EvaluationOptions, Metrics, PredictionOptions, Row
from tnn.training.tasks.text_models import choose_tokenizer, text_preset

if TYPE_CHECKING:
    from transformers import EvalPrediction, PreTrainedModel

WORD_TAGS = "word_tags"  # in front of the metrics of the floor
LabelledText = tuple[EncodedText, NDArray[np.int64]]  # the tokens of a text, and their labels


class TokenData(Section):
    """Texts whose words or spans have labels. docs/your-labels.md says what `table` can be."""

    table: str
    kind: SpanKind = "spans"  # of one or more words; or "words": a tag for each word, such as its part of speech
    word_column: int = 1  # in files of tagged words: the number of a column, from the last one on if below 0
    tag_column: int = -1
    text_column: str = "text"  # in tables: the names of columns
    spans_column: str | None = "spans"
    words_column: str = "tokens"
    tags_column: str | None = "tags"
    length: int = Field(default=512, ge=8)  # tokens; longer texts are trained in pieces, and never cut elsewhere
    tokenizer: str | None = None  # None: that of model.start_from, or bytes. bpe:SIZE is trained on the training texts
    split_seed: NonNegativeInt = 0  # which texts are for validation and test, if the table has no such splits

    @property
    def columns(self) -> MarkedColumns:
        names = (self.text_column, self.spans_column, self.words_column, self.tags_column)
        return MarkedColumns(self.kind, *names, self.word_column, self.tag_column)


class TokenRecipe(Recipe):
    data: TokenData


@register_task("token-classification")
class TokenClassification(ClassificationTask[TokenRecipe]):
    """Labels of spans or words, from files of tagged words or tables."""

    recipe_class = TokenRecipe

    places = frozenset({"data.table"})
    source_key = "table"
    writes_page = True

    @property
    def model_classes(self) -> tuple[type, ...]:
        return (models.TNNForTokenClassification,)

    def build(self, recipe: TokenRecipe) -> TrainingSetup:
        data = recipe.data
        texts = open_marked(data.table, data.columns, data.split_seed)
        names = names_of(texts["train"])
        tags = label_names(data.kind, names)
        train = (marked.text for marked in texts["train"])
        tokenizer = token_tokenizer(choose_tokenizer(data.tokenizer, recipe.model.start_from, train))
        labelled = {split: _label(part, tokenizer, data.kind, tags) for split, part in texts.items()}
        _warn_of_widened(texts["train"], labelled["train"], data.kind, tags)
        sets = {"eval" if split == "validation" else split: _examples(labelled[split], data.length) for split in texts}
        return TrainingSetup(
            lambda: _make_model(recipe, tokenizer, tags),
            sets.pop("train"),
            sets["eval"],
            collate(tokenizer.pad_token_id),
            processor=tokenizer,
            data_fingerprint=lambda: fingerprint(list(tags), [_content(some) for some in labelled.values()]),
            data_summary=_summary(texts, names, data.kind),
            metrics=_metrics(data.kind, names, tags),
            metric=HEADLINES[data.kind],
            extra_eval_sets={name: dataset for name, dataset in sets.items() if name != "eval"},
            majority_metrics=_floors(texts, data.kind, names),
        )

    def evaluate(self, folder: Path, model: Any, recipe: TokenRecipe | None, options: EvaluationOptions) -> str:
        scored_recipe = self.scored_recipe(folder, recipe, options)
        data, tokenizer = scored_recipe.data, load_tokenizer(folder, model.config.vocab_size)
        parts, train = _parts_to_score(recipe, data, model, is_other=options.source is not None)
        floor = None if train is None else WordTags(train, data.kind)
        scored = [_score(model, tokenizer, data.kind, split, part, floor) for split, part in parts.items()]
        if options.page is not None:
            options.page.parent.mkdir(parents=True, exist_ok=True)
            write_text(options.page, span_page(str(folder), scored))
        return "\n\n".join(map(span_text, scored))

    def predict(
        self, folder: Path, model: Any, recipe: TokenRecipe | None, source: str, options: PredictionOptions
    ) -> Iterator[Row]:
        """The columns of the table, or `text`, and `spans`."""
        if options.horizon is not None:
            raise ValueError("--horizon is for forecasts; this model predicts labels")
        kind = _names(model)[0] if recipe is None else recipe.data.kind
        columns = MarkedColumns(kind) if recipe is None else recipe.data.columns
        tokenizer = load_tokenizer(folder, model.config.vocab_size)
        return predict_spans(model, tokenizer, kind, columns, source, options.batch_size)

    def describe(self, recipe: TokenRecipe) -> dict[str, Any]:
        data = recipe.data
        start = "bytes" if recipe.model.start_from is None else f"that of {recipe.model.start_from}"
        return {
            "data": data.table,
            "labels": {"spans": "of spans", "words": "one for each word"}[data.kind],
            "tokenizer": data.tokenizer or start,
            "sequence length": data.length,
        }

    def format_result(self, metrics: Metrics) -> str:
        parts = []
        for key, name in {"eval": "validation", "test": "test"}.items():
            for metric in HEADLINES.values():
                if (floor := metrics.get(f"{WORD_TAGS}_{key}_{metric}")) is not None:
                    value = metrics[f"{key}_{metric}"]
                    parts.append(f"{name} {METRIC_NAMES[metric]} {value:.4f} ({floor:.4f} by {FLOOR})")
        return ", ".join(parts)

    def tokens_per_example(self, recipe: TokenRecipe, config: Any) -> int:
        return recipe.data.length


def _names(model: Any) -> tuple[SpanKind, tuple[str, ...]]:
    """The kind of labels that a model has, and their names."""
    return span_names([model.config.id2label[number] for number in range(model.config.num_labels)])


# --- training


def _label(texts: Sequence[MarkedText], tokenizer: Any, kind: SpanKind, tags: Sequence[str]) -> list[LabelledText]:
    numbers = {tag: number for number, tag in enumerate(tags)}
    encoded = encode_with_places((marked.text for marked in texts), tokenizer)
    return [(one, label_tokens(one, marked.spans, kind, numbers)) for one, marked in zip(encoded, texts, strict=True)]


def _examples(labelled: Sequence[LabelledText], length: int) -> LabelledTokens:
    return LabelledTokens([(encoded.ids, labels) for encoded, labels in labelled], length)


def _content(labelled: Sequence[LabelledText]) -> list[Any]:
    return [[encoded.ids, labels] for encoded, labels in labelled]


def _warn_of_widened(
    texts: Sequence[MarkedText], labelled: Sequence[LabelledText], kind: SpanKind, tags: Sequence[str]
) -> None:
    pairs = zip(texts, labelled, strict=True)
    widened = sum(count_widened(encoded, marked, labels, kind, tags) for marked, (encoded, labels) in pairs)
    if widened:
        of = f"{widened:,} of {sum(len(marked.spans) for marked in texts):,} training spans"
        learned = "they are learned as whole tokens; data.tokenizer=bytes has none that is too long"
        warnings.warn(f"{of} begin or end inside a token: {learned}", stacklevel=2)


def _summary(texts: Mapping[str, Sequence[MarkedText]], names: Sequence[str], kind: SpanKind) -> str:
    counts = ", ".join(f"{len(part):,} {split}" for split, part in texts.items())
    spans = sum(len(marked.spans) for part in texts.values() for marked in part)
    labels = "1 label" if len(names) == 1 else f"{len(names):,} labels"
    return f"{counts} texts with {spans:,} {kind} of {labels}"


def _metrics(kind: SpanKind, names: Sequence[str], tags: Sequence[str]) -> Callable[["EvalPrediction"], Metrics]:
    def metrics(prediction: "EvalPrediction") -> Metrics:
        return score_token_labels(prediction.predictions.argmax(-1), prediction.label_ids, kind, names, tags)

    return metrics


def _floors(texts: Mapping[str, Sequence[MarkedText]], kind: SpanKind, names: Sequence[str]) -> Metrics:
    """What is reached without a neural network."""
    floor = WordTags(texts["train"], kind)
    metrics: Metrics = {}
    for split, key in {"validation": "eval", "test": "test"}.items():
        if split in texts:
            found, actual = map(floor.predict, texts[split]), [marked.spans for marked in texts[split]]
            scores = scores_of_counts(count_spans(list(found), actual, names), kind)
            metrics |= {f"{WORD_TAGS}_{key}_{metric}": value for metric, value in scores.items()}
    return metrics


# --- evaluation


def _parts_to_score(
    recipe: TokenRecipe | None, data: TokenData, model: Any, *, is_other: bool
) -> tuple[dict[str, list[MarkedText]], list[MarkedText] | None]:
    """What the model was not trained on, or all of another source; and what it was trained on, if it is still there."""
    if not is_other:
        parts = open_marked(data.table, data.columns, data.split_seed)
        return parts, parts.pop("train")
    names = _names(model)[1]
    sources = open_sources(data.table)
    others = {split or source.name: open_whole(source, data.columns, names) for split, source in sources.items()}
    if recipe is None or not os.path.exists(recipe.data.table):
        return others, None
    return others, open_marked(recipe.data.table, recipe.data.columns, recipe.data.split_seed)["train"]


def _score(
    model: Any, tokenizer: Any, kind: SpanKind, split: str, texts: list[MarkedText], floor: WordTags | None
) -> ScoredSpans:
    _, names = _names(model)
    tags = [model.config.id2label[number] for number in range(model.config.num_labels)]
    numbers = {tag: number for number, tag in enumerate(tags)}
    found: list[Sequence[Span]] = []
    highest = []
    for output in compute(model, tokenizer, texts):
        found.append([one.span for one in find_spans(output, kind, tags)])
        highest.append(_highest_loss(output, label_tokens(output.encoded, output.marked.spans, kind, numbers)))
    floored = None if floor is None else [floor.predict(text) for text in texts]
    return ScoredSpans(split, kind, names, texts, found, highest, floored)


def _highest_loss(output: TextOutput, labels: NDArray[np.int64]) -> float:
    """The cross-entropy of the token that the model is most wrong about."""
    scored = labels != IGNORED
    return float(losses("single", output.logits[scored], labels[scored]).max(initial=0))


# --- the model


def _make_model(recipe: TokenRecipe, tokenizer: Any, tags: Sequence[str]) -> "PreTrainedModel":
    section, head = recipe.model, models.TNNForTokenClassification
    fields = {
        "num_labels": len(tags),
        "id2label": dict(enumerate(tags)),
        "label2id": {tag: number for number, tag in enumerate(tags)},
    }
    if given := sorted(fields.keys() & section.changes.keys()):
        raise ValueError(f"model.{given[0]} follows from the labels of the table: leave it out")
    fields |= section.changes
    if section.start_from is None:
        return _warned(new_model(head, text_preset(str(section.preset), tokenizer, fields)))
    return _warned(load_with_tokenizer(head, checked_model_folder(section.start_from), fields, tokenizer))


def _warned(model: Any) -> Any:
    if model.config.is_decoder:
        why = "a token gets its label before the model has read what comes after it"
        warnings.warn(f"the model is causal: {why}; model.is_decoder=false lets it", stacklevel=2)
    return model
