"""Scores of spans, by the definition of seqeval, written out; and the floor."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnn.data.marked_texts import MarkedText, joined
from tnn.data.spans import Span, spans_of_tags
from tnn.training.span_scores import WordTags, score_spans, score_token_labels

NAMES = ["X", "Y"]
TAGS = ["O", "B-X", "I-X", "B-Y", "I-Y"]
pairs = st.lists(st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(TAGS)), min_size=1, max_size=6), min_size=1)


def of_words(tags):
    text, places = joined(f"w{k}" for k in range(len(tags)))
    spans = tuple(Span(places[s.start][0], places[s.end - 1][1], s.label) for s in spans_of_tags(tags))
    return MarkedText(text, spans, places, "")


@pytest.mark.slow
@given(pairs)
def test_scores_of_spans(sentences):
    actual, found = ([of_words([pair[k] for pair in sentence]) for sentence in sentences] for k in (0, 1))
    scores = score_spans(actual, [text.spans for text in found], "spans", NAMES)
    true, predicted = ({(k, *span) for k, text in enumerate(x) for span in text.spans} for x in (actual, found))
    right = len(true & predicted)
    precision, recall = right / max(1, len(predicted)), right / max(1, len(true))
    f1 = 2 * precision * recall / (precision + recall) if right else 0
    assert scores["precision"] == pytest.approx(precision)
    assert scores["recall"] == pytest.approx(recall)
    assert scores["micro_f1"] == pytest.approx(f1)
    labels, predictions = (
        np.array([[TAGS.index(pair[k]) for pair in sentence] + [-100] * (6 - len(sentence)) for sentence in sentences])
        for k in (0, 1)
    )
    by_tokens = score_token_labels(np.maximum(predictions, 0), labels, "spans", NAMES, TAGS)
    assert by_tokens == {name: pytest.approx(scores[name]) for name in by_tokens}


def test_accuracy_is_that_of_words():
    text = MarkedText("in New York", (Span(3, 11, "X"),), None, "")
    assert score_spans([text], [[Span(3, 6, "X")]], "spans", NAMES)["accuracy"] == pytest.approx(2 / 3)
    words = MarkedText("a b", (Span(0, 1, "X"), Span(2, 3, "Y")), ((0, 1), (2, 3)), "")
    found = [Span(0, 1, "X"), Span(2, 3, "X")]
    assert score_spans([words], [found], "words", NAMES) == {"accuracy": 0.5, "macro_f1": pytest.approx(1 / 3)}


def test_the_floor_has_the_commonest_tag_of_each_word():
    texts = [of_words(tags) for tags in (["B-X", "I-X"], ["B-X", "O"], ["O", "O"])]
    tags = WordTags(texts, "spans")
    assert tags.predict(of_words(["O", "O"])) == [Span(0, 2, "X")]
    assert tags.predict(MarkedText("new w1 w0", (), None, "")) == [Span(7, 9, "X")]
    words = [MarkedText("a b c", (Span(0, 1, "X"), Span(2, 3, "Y"), Span(4, 5, "Y")), ((0, 1), (2, 3), (4, 5)), "")]
    assert WordTags(words, "words").predict(MarkedText("a d", (), None, "")) == [Span(0, 1, "X"), Span(2, 3, "Y")]
