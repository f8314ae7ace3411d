"""Your own texts with labelled words or spans: from a file to a model, its scores and its predictions."""

import csv
import json
import random
import re

import pytest
import torch
from transformers import pipeline
from typer.testing import CliRunner

from tnn.cli import app
from tnn.data import byte_tokenizer, train_bpe
from tnn.data.marked_texts import MarkedText
from tnn.data.spans import Span
from tnn.data.token_labels import label_names, token_tokenizer
from tnn.models import TNNConfig, TNNForCausalLM, TNNForMaskedLM, TNNForTokenClassification
from tnn.training import evaluate, find_task, load_recipe, predict, train
from tnn.training.span_prediction import MOST_TOKENS, compute
from tnn.training.span_report import ScoredSpans, span_page, span_text

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "rpe_size": 8}
TINY = [f"model.{name}={size}" for name, size in SIZES.items()]
TINY += ["training.batch_size=8", "training.learning_rate=0.01", "training.warmup_steps=0", "training.log_every=20"]
TINY += ["training.evaluate_every=null", "training.keep_best=false", "training.patience=null"]
SENTENCE = "Alan Turing leaves San Juan ."
ODD = [SENTENCE, "<s> Ada </s>", "é 😀\r\n\t Łódź.", "Ada " * 300, "x" * 3000, "New York, Rome"]
PLACES = ["Rome", "New York", "Oslo", "San Juan", "Łódź"]


def quiet(text):
    pass


def sentences(count, seed=0):
    """Two tagged columns: who does what where."""
    rng = random.Random(seed)
    for _ in range(count):
        parts = [(rng.choice(["Ada", "Alan Turing", "Bo"]), "PER"), (rng.choice(["visits", "leaves"]), "")]
        parts += [(rng.choice(PLACES), "LOC"), (f"{rng.randrange(100)} .", "")]
        words = [(word, label, k) for part, label in parts for k, word in enumerate(part.split())]
        yield "".join(f"{w} {'O' if not label else ('I' if k else 'B') + '-' + label}\n" for w, label, k in words)


def conll(path, count, seed=0):
    path.write_text("\n".join(sentences(count, seed)), encoding="utf-8")
    return path


def recipe_of(table, *changes, name="token-classifier"):
    sizes = [] if name.endswith("from") else [*TINY[:3], "model.dropout=0", "data.tokenizer=bytes"]
    return load_recipe(name, [f"data.table={table}", *sizes, *TINY[3:], *changes])


def build(recipe):
    return find_task(recipe.task).build(recipe)


def invoke(*arguments, text=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=text)


def places_of(rows):
    return [[(span["start"], span["end"], span["label"]) for span in row["spans"]] for row in rows]


@pytest.fixture(scope="module")
def run(tmp_path_factory, one_thread):
    """A classifier of two labels, trained by a command."""
    folder = tmp_path_factory.mktemp("names")
    table = conll(folder / "names.conll", 200)
    changes = ["data.tokenizer=bpe:300", "training.steps=60", "model.dropout=0", *TINY]
    done = invoke("train", "token-classifier", f"data.table={table}", *changes, "--out", folder / "run")
    assert done.exit_code == 0, done.output
    assert re.search(r"test micro F1 [\d.]+ \([\d.]+ by each word's most frequent tag\)", done.output)
    return folder / "run"


@pytest.fixture
def untrained(tmp_path):
    """Random labels, which do not fit each other; by tokenizer."""

    def make(name):
        tokenizer = token_tokenizer({"bytes": byte_tokenizer, "bpe": lambda: train_bpe(ODD, 300)}[name]())
        names = label_names("spans", ["X", "Y"])
        config = TNNConfig(vocab_size=len(tokenizer), is_decoder=False, id2label=dict(enumerate(names)), **SIZES)
        torch.manual_seed(0)
        model = TNNForTokenClassification(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.5)
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        return tmp_path / name

    return make


# --- predictions


@pytest.mark.slow
def test_two_commands_from_tagged_words_to_predictions(run, tmp_path):
    new = conll(tmp_path / "new.conll", 40, seed=1)
    done = invoke("predict", run, new, "--out", tmp_path / "found.jsonl")
    assert (done.exit_code, done.output) == (0, "")
    rows = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 40
    for row in rows:
        assert list(row) == ["text", "spans"]
        for span in row["spans"]:
            assert list(span) == ["start", "end", "label", "text", "probability"]
            assert row["text"][span["start"] : span["end"]] == span["text"]
    assert json.loads(invoke("predict", run, SENTENCE).stdout)["spans"][0]["text"] == "Alan Turing"
    scores = evaluate(run, str(tmp_path / "found.jsonl"))  # what is written can be read
    assert re.search(r"^micro F1 +1\.0000 on \S+found.jsonl, 80 spans in 40 texts; 1\.0", scores, re.MULTILINE)


@pytest.mark.slow
def test_rows_of_a_csv_file_stay_rows(run, tmp_path):
    (tmp_path / "new.csv").write_text(f"id,text\n7,{SENTENCE}\n8,no\n")
    done = invoke("predict", run, tmp_path / "new.csv", "--out", tmp_path / "found.csv")
    assert (done.exit_code, done.output) == (0, "")
    with (tmp_path / "found.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "text", "spans"]
    assert [span["label"] for span in json.loads(rows[0]["spans"])] == ["PER", "LOC"]


@pytest.mark.slow
@pytest.mark.parametrize("text", [SENTENCE, "Bo visits Łódź 7 .", "New York", "<s> Ada </s>"])
def test_a_pipeline_finds_the_same_spans(run, text):
    (row,) = predict(run, text)
    found = pipeline("token-classification", model=str(run), aggregation_strategy="simple")(text)
    assert [(one["start"], one["end"], one["entity_group"]) for one in found] == places_of([row])[0]
    assert [one["score"] for one in found] == pytest.approx([s["probability"] for s in row["spans"]], abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", ["bytes", "bpe"])
def test_how_a_pipeline_may_differ(untrained, tokenizer):
    """With random labels: white space at the ends of its spans, and spans that share a character of several tokens."""
    folder, count = untrained(tokenizer), 0
    classify = pipeline("token-classification", model=str(folder), aggregation_strategy="simple")
    for text in ODD:
        (row,) = predict(folder, text)
        found, last = [], 0
        for one in classify(text):
            start = max(one["start"], last)
            part = text[start : one["end"]]
            if part.strip():
                start += len(part) - len(part.lstrip())
                last = start + len(part.strip())
                found.append((start, last, one["entity_group"]))
        assert found == places_of([row])[0]
        count += len(found)
    assert count > 20


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", ["bytes", "bpe"])
def test_a_padded_batch_equals_its_rows_alone(untrained, tokenizer, tmp_path):
    folder = untrained(tokenizer)
    (tmp_path / "odd.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ODD))
    together, alone = (list(predict(folder, str(tmp_path / "odd.jsonl"), batch_size=size)) for size in (6, 1))
    assert places_of(together) == places_of(alone)
    for one, other in zip(together, alone, strict=True):
        probabilities = [[span["probability"] for span in row["spans"]] for row in (one, other)]
        assert probabilities[0] == pytest.approx(probabilities[1], abs=2e-5)
    for row in together:  # it can be read as labelled texts: no two overlap
        ends = [0, *(span["end"] for span in row["spans"])]
        assert all(span["start"] >= end for span, end in zip(row["spans"], ends, strict=False))


def test_very_long_texts_are_computed_alone():
    sizes = []

    class Model(TNNForTokenClassification):
        def forward(self, input_ids, **options):
            sizes.append(tuple(input_ids.shape))
            return super().forward(input_ids[:, :8], **options | {"attention_mask": None})

    model = Model(TNNConfig(vocab_size=260, is_decoder=False, num_labels=3, hidden_size=8, num_hidden_layers=1))
    texts = [MarkedText(text, (), None, "") for text in ("a", "b", "c" * (MOST_TOKENS // 2), "d", "e")]
    assert len(list(compute(model.eval(), byte_tokenizer(), texts))) == 5
    assert sizes == [(2, 1), (2, MOST_TOKENS // 2), (1, 1)]


@pytest.mark.slow
def test_lines_of_standard_input(run):
    done = invoke("predict", run, "-", text=f"{SENTENCE}\r\nRome\n")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["text"] for row in rows] == [SENTENCE, "Rome"]
    assert rows[:1] == list(predict(run, SENTENCE))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("new.conll", r"there is no file new.conll; a text that looks like a path can be given by -"),
        ("notes.txt", r"notes.txt must have the same number of columns on each line; line 2 has 3, and line 1 has 2"),
        ("notes.md", r"notes.md is neither tagged words \(.*\) nor a table"),
        ("other.jsonl", r"data.text_column: other.jsonl has no column 'text'; did you mean 'texts'\?"),
        (" ", r"the command line: the text is empty"),
        ("-", r"line 2 of standard input: the text is empty"),
    ],
)
def test_inputs_that_cannot_be_predicted(run, tmp_path, monkeypatch, source, message):
    monkeypatch.chdir(tmp_path)
    for name in ("notes.txt", "notes.md"):
        (tmp_path / name).write_text("A text\nof two lines\n")
    (tmp_path / "other.jsonl").write_text('{"texts": "a"}\n')
    done = invoke("predict", run, source, text="fine\n\nfilm\n")
    assert done.exit_code == 1
    assert re.fullmatch(rf"error: {message}.*\n", done.stderr)


def test_a_model_without_a_recipe_predicts(untrained, tmp_path):
    assert next(predict(untrained("bytes"), "a text")).keys() == {"text", "spans"}
    TNNForTokenClassification(TNNConfig(vocab_size=260, is_decoder=False, num_labels=3, **SIZES)).save_pretrained(
        tmp_path / "words"
    )
    (row,) = predict(tmp_path / "words", "two words.")
    assert [span["text"] for span in row["spans"]] == ["two", "words", "."]
    with pytest.raises(ValueError, match="--horizon is for forecasts"):
        predict(tmp_path / "words", "a text", horizon=3)
    with pytest.raises(ValueError, match="has no recipe of a classification task"):
        evaluate(tmp_path / "words")


# --- scores


@pytest.mark.slow
def test_scores_and_the_page(run, tmp_path):
    done = invoke("evaluate", run, "--page", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    measured = json.loads((run / "measured.json").read_text())
    for split, key in (
        ("validation", "eval"),
        ("test", "test"),
    ):  # of tokens: the same, if all is found
        for metric, name in (("micro_f1", "micro F1"), ("recall", "recall"), ("macro_f1", "macro F1")):
            own, floor = measured[f"{key}_{metric}"], measured[f"word_tags_{key}_{metric}"]
            line = rf"{name:13}  {own:.4f} on {split}, \d+ spans in \d+ texts; {floor:.4f} by each word's most"
            assert re.search(line, done.output)
    assert re.search(r"^label +spans +precision +recall +F1$", done.output, re.MULTILINE)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<h3>The hardest texts</h3>") == 2
    assert re.search(r'labels: <mark class="good">[\w ]+<small>PER</small></mark>', page)


@pytest.mark.slow
def test_scores_on_another_file(run, tmp_path):
    path = conll(tmp_path / "other.conll", 10, seed=3)
    assert f" on {path}, 20 spans in 10 texts; " in evaluate(run, str(path))
    path.write_text("Rome B-LOK\n")
    with pytest.raises(ValueError, match=r"line 1: the label 'LOK', of 'Rome', .*; did you mean 'LOC'\?"):
        evaluate(run, str(path))


def test_the_page_shows_texts_as_they_are_and_marks_what_differs():
    text = "<b>Rome</b> & \x1b Oslo" + " x" * 400 + " Bo" + " y" * 400
    spans = [Span(3, 7, "LOC"), Span(16, 20, "<i>"), Span(text.index("Bo"), text.index("Bo") + 2, "PER")]
    found = [spans[0], Span(14, 20, "<i>"), spans[2]]
    scored = ScoredSpans(
        "<u>", "spans", ["<i>", "LOC", "PER"], [MarkedText(text, tuple(spans), None, "w")], [found], [2.5]
    )
    page = span_page("<s>", [scored])
    assert not re.search(r"<(b|i|u|s)>", page)
    assert (
        'labels: &lt;b&gt;<mark class="good">Rome<small>LOC</small></mark>&lt;/b&gt; &amp; \N{REPLACEMENT CHARACTER}'
        in page
    )
    assert '<mark class="bad">Oslo<small>&lt;i&gt;</small></mark>' in page
    assert "highest loss of a token 2.500" in page
    assert page.count(" x...</p>") == 2  # a long text is cut
    assert "micro F1       0.6667 on <u>, 3 spans in 1 texts\n" in span_text(scored)
    late = ScoredSpans("u", "spans", scored.names, scored.texts, [[*spans[:2], spans[2]._replace(label="LOC")]], [1.0])
    assert span_page("", [late]).count("<p>labels: ...x x") == 1  # it begins before the first error


# --- other data


@pytest.mark.slow
def test_parts_of_speech(tmp_path):
    rng = random.Random(0)
    words = {"runs": "VERB", "sees": "VERB", "cat": "NOUN", "dog": "NOUN", "a": "DET", "the": "DET"}
    kinds = {tag: [word for word in words if words[word] == tag] for tag in words.values()}
    lines = []
    for number in range(150):
        tags = ["DET", "NOUN", "VERB", "DET", "NOUN"]
        lines += [f"{rng.choice(kinds[tag])} x {tag}" for tag in tags] + [f"{number} x NUM", ""]
    (tmp_path / "a.iob").write_text("\n".join(lines))
    changes = ["data.kind=words", "data.tokenizer=bpe:280", "training.steps=60"]
    metrics = train(recipe_of(tmp_path / "a.iob", *changes), tmp_path / "run", log=quiet)
    assert metrics["test_accuracy"] > 0.95
    assert 0.8 < metrics["word_tags_test_accuracy"] < 0.9  # no number was seen: they have the commonest tag
    output = evaluate(tmp_path / "run", page=tmp_path / "page.html")
    expected = f"accuracy       {metrics['test_accuracy']:.4f} on test, 90 words in 15 texts; "
    assert f"{expected}{metrics['word_tags_test_accuracy']:.4f} by each word's most frequent tag\n" in output
    (row,) = predict(tmp_path / "run", "the dog sees,a cat")
    assert [span["text"] for span in row["spans"]] == ["the", "dog", "sees", ",", "a", "cat"]
    tokens = pipeline("token-classification", model=str(tmp_path / "run"))("the dog sees a cat")
    (row,) = predict(tmp_path / "run", "the dog sees a cat")
    for span in row["spans"]:  # the first token of each word
        token = next(token for token in tokens if token["end"] > span["start"])
        assert (token["entity"], token["score"]) == (span["label"], pytest.approx(span["probability"], abs=1e-5))


@pytest.mark.slow
def test_long_texts_are_trained_in_windows_and_predicted_whole(tmp_path):
    """With `length=8`: no label is lost at the ends of windows, nor in the eighth thousand of characters."""
    text = "".join(f"x {word} " for word in ["ab", "cd"] * 200)
    starts = range(4, len(text) + 2, 10)
    spans = [{"start": start, "end": start + 2, "label": "AB"} for start in starts]
    rows = [{"text": f"{number} {text}", "spans": spans} for number in range(10)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = recipe_of(tmp_path / "a.jsonl", "data.length=8", "training.steps=60", "training.batch_size=32")
    setup = build(recipe)
    assert sum(len(setup.train[k]["input_ids"]) for k in range(len(setup.train))) == 8 * (len(text) + 4)
    train(recipe, tmp_path / "run", log=quiet)
    (row,) = predict(tmp_path / "run", f"0 {text}" * 4)
    assert row["spans"][-1]["end"] > 4 * len(text) - 10
    assert len(row["spans"]) >= 0.95 * 800


@pytest.mark.slow
@pytest.mark.parametrize("head", [TNNForMaskedLM, TNNForCausalLM])
def test_a_language_model_to_start_from(tmp_path, head):
    tokenizer = train_bpe(sentences(50), 290)
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    language_model = head(TNNConfig(vocab_size=290, is_decoder=head is TNNForCausalLM, **ids, **SIZES))
    language_model.save_pretrained(tmp_path / "lm")
    tokenizer.save_pretrained(tmp_path / "lm")
    table = conll(tmp_path / "names.conll", 60)
    recipe = recipe_of(table, f"model.start_from={tmp_path / 'lm'}", "training.steps=2", name="token-classifier-from")
    setup = build(recipe)
    model = setup.make_model()
    assert len(setup.processor) == len(tokenizer)
    assert torch.equal(model.model.embed_tokens.weight, language_model.model.embed_tokens.weight)
    assert not model.config.is_decoder
    assert list(model.config.id2label.values()) == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    train(recipe, tmp_path / "run", log=quiet)
    assert next(predict(tmp_path / "run", SENTENCE))["text"] == SENTENCE
    again = recipe_of(table, f"model.start_from={tmp_path / 'run'}", name="token-classifier-from")
    assert torch.equal(build(again).make_model().classifier.out.weight, _weights(tmp_path / "run"))
    with pytest.warns(UserWarning, match=r"the model is causal: .*; model.is_decoder=false lets it"):
        build(recipe_of(table, "model.is_decoder=true")).make_model()


def _weights(folder):
    return TNNForTokenClassification.from_pretrained(folder).classifier.out.weight


@pytest.mark.slow
def test_a_run_is_resumed(tmp_path):
    """With a tokenizer that is trained anew: it comes out the same."""
    recipe = recipe_of(
        conll(tmp_path / "a.conll", 40), "data.tokenizer=bpe:280", "training.steps=6", "training.save_every=3"
    )
    complete = train(recipe, tmp_path / "complete", log=quiet)
    train(recipe, tmp_path / "parts", log=quiet)
    for name in ("config.json", "model.safetensors", "measured.json"):
        (tmp_path / "parts" / name).unlink()
    (tmp_path / "parts" / "checkpoints" / "checkpoint-6").rename(tmp_path / "gone")
    assert train(recipe, tmp_path / "parts", resume=True, log=quiet) == complete


# --- mistakes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["data.kind=tags"], r"data.kind: input should be 'spans' or 'words'; got 'tags'"),
        (["data.tag_colum=2"], r"unknown key 'data.tag_colum'; did you mean 'data.tag_column'\?"),
        (["data.length=4"], r"data.length: input should be greater than or equal to 8; got 4"),
    ],
)
def test_mistakes_in_recipes(changes, message):
    with pytest.raises(ValueError, match=message):
        load_recipe("token-classifier", changes)


def test_mistakes_about_the_model(tmp_path):
    table = conll(tmp_path / "a.conll", 20)
    for change, message in (
        ("model.num_labels=3", r"model.num_labels follows from the labels of the table: leave it out"),
        ("data.tokenizer=bpe:many", r"data.tokenizer must be bpe:SIZE, such as bpe:8000; got 'bpe:many'"),
    ):
        with pytest.raises(ValueError, match=message):
            build(recipe_of(table, change)).make_model()


def test_spans_inside_of_tokens_are_counted_and_told_once(tmp_path):
    rows = [{"text": f"the cathedral {k}", "spans": [{"start": 4, "end": 7, "label": "X"}]} for k in range(40)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.warns(UserWarning, match=r"^32 of 32 training spans begin or end inside a token: they are") as told:
        setup = build(recipe_of(tmp_path / "a.jsonl", "data.tokenizer=bpe:300"))
    assert len(told) == 1
    assert setup.data_summary == "32 train, 4 validation, 4 test texts with 40 spans of 1 label"
    build(recipe_of(tmp_path / "a.jsonl"))  # bytes: no warning


def test_a_changed_file_is_found(tmp_path):
    table = conll(tmp_path / "a.conll", 20)
    before = build(recipe_of(table)).fingerprints()
    assert build(recipe_of(table)).fingerprints() == before
    table.write_text(table.read_text().replace("B-LOC", "B-PER", 1))
    assert build(recipe_of(table)).fingerprints()["data"] != before["data"]
