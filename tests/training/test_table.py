"""Your own texts and labels: from a table to a model, its scores and its predictions."""

import csv
import datetime
import json
import random
import re
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForSequenceClassification, pipeline
from typer.testing import CliRunner

from tnn.cli import app
from tnn.data import byte_tokenizer, train_bpe
from tnn.data.labelled_texts import Columns, LabelledTexts, TextEncoder, encode_texts, open_whole, text_tokenizer
from tnn.data.labels import read_labels
from tnn.data.tables import open_tables
from tnn.models import TNNConfig, TNNForCausalLM, TNNForMaskedLM, TNNForSequenceClassification
from tnn.training import evaluate, find_task, load_recipe, predict, train
from tnn.training.label_report import ScoredTexts, label_page, label_text
from tnn.training.tasks.table import _balanced_loss

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "rpe_size": 8}
TINY = [f"model.{name}={size}" for name, size in SIZES.items()]
TINY += ["model.dropout=0", "training.batch_size=8", "training.learning_rate=0.01", "training.warmup_steps=0"]
TINY += ["training.log_every=10", "training.evaluate_every=null", "training.keep_best=false", "training.patience=null"]
ODD = ["a good film", "<s> poor </s> <pad>", "é 😀\r\n\t", "x" * 3000, "good " * 200, "0"]


def quiet(text):
    pass


def reviews(count, seed=0):
    """One word tells; the rows have a number."""
    rng = random.Random(seed)
    for number in range(count):
        label = rng.choice(["bad", "good"])
        word = {"bad": "poor", "good": "fine"}[label]
        yield {"id": number, "text": " ".join(rng.choices(["a", "film", "<b>", "é", word], k=20)), "label": label}


def write(path, rows):
    rows = list(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        if path.suffix == ".jsonl":
            file.writelines(json.dumps(row) + "\n" for row in rows)
            return path
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def recipe_of(table, *changes):
    return load_recipe("text-classifier", [f"data.table={table}", "data.tokenizer=bytes", *TINY, *changes])


def build(recipe):
    return find_task(recipe.task).build(recipe)


def invoke(*arguments, text=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=text)


@pytest.fixture(scope="module")
def run(tmp_path_factory, one_thread):
    """A classifier with two classes, trained by a command; `reviews.csv` is beside it."""
    folder = tmp_path_factory.mktemp("reviews")
    table = write(folder / "reviews.csv", reviews(200))
    changes = ["data.tokenizer=bpe:300", "data.length=128", "training.steps=60", *TINY]
    done = invoke("train", "text-classifier", f"data.table={table}", *changes, "--out", folder / "run")
    assert done.exit_code == 0, done.output
    return folder / "run"


@pytest.mark.slow
def test_two_commands_from_a_table_to_predictions(run, tmp_path):
    new = write(tmp_path / "new.csv", reviews(70, seed=1))
    done = invoke("predict", run, new, "--out", tmp_path / "predicted.csv")
    assert (done.exit_code, done.output) == (0, "")
    with (tmp_path / "predicted.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    probabilities = ["probabilities.bad", "probabilities.good"]
    assert list(rows[0]) == ["id", "text", "label", "prediction", "probability", *probabilities]
    assert [row["id"] for row in rows] == [str(number) for number in range(70)]
    assert np.mean([row["prediction"] == row["label"] for row in rows]) > 0.95
    assert all(float(row["probability"]) == max(float(row[name]) for name in probabilities) for row in rows)


@pytest.mark.slow
def test_a_pipeline_gives_the_same_answers(run, tmp_path):
    classify = pipeline("text-classification", model=str(run), truncation=True)
    table = write(tmp_path / "odd.jsonl", [{"text": text} for text in ODD])
    with pytest.warns(UserWarning, match="2 of 6 texts are longer than 128 tokens, and were cut"):
        together, two = (list(predict(run, str(table), batch_size=size)) for size in (32, 2))
    for text, row, other in zip(ODD, together, two, strict=True):
        with warnings.catch_warnings(action="ignore"):
            (alone,) = predict(run, str(write(tmp_path / "one.jsonl", [{"text": text}])))
        assert row["text"] == text
        for given in (other, alone):
            assert given["probabilities"] == pytest.approx(row["probabilities"], abs=2e-6)
        (answer,) = classify(text)
        assert (answer["label"], answer["score"]) == (row["prediction"], pytest.approx(row["probability"], abs=1e-5))
        scores = {answer["label"]: answer["score"] for answer in classify(text, top_k=None)}
        assert scores == pytest.approx(row["probabilities"], abs=1e-5)


@pytest.mark.slow
def test_scores_and_the_page(run, tmp_path):
    done = invoke("evaluate", run, "--page", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    measured = json.loads((run / "measured.json").read_text())
    for split, key in (("validation", "eval"), ("test", "test")):
        accuracy, baseline = measured[f"{key}_accuracy"], measured[f"majority_{key}_accuracy"]
        line = f"accuracy       {accuracy:.4f} on {split}, 20 examples; {baseline:.4f} by the most frequent class"
        assert f"{line}, 1.0000 by naive Bayes on words" in done.output  # one word tells
    assert re.search(r"^class +examples +precision +recall +F1$", done.output, re.MULTILINE)
    assert re.search(r"^class / predicted +bad +good$", done.output, re.MULTILINE)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Confusion matrix" in page
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert page.count("<h3>The hardest texts</h3>") == 2


@pytest.mark.slow
def test_scores_on_another_table(run, tmp_path):
    table = write(tmp_path / "other.csv", reviews(30, seed=2))
    assert f" on {table}, 30 examples; " in evaluate(run, str(table))
    write(table, [{"text": "a", "label": "god"}])
    with pytest.raises(
        ValueError, match=r"other.csv, row 1: the label 'god' is not in the training table; did you mean 'g"
    ):
        evaluate(run, str(table))


@pytest.mark.slow
def test_lines_of_standard_input(run):
    done = invoke("predict", run, "-", text="a fine fine film\r\na poor film")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["text"] for row in rows] == ["a fine fine film", "a poor film"]
    assert [row["prediction"] for row in rows] == ["good", "bad"]
    (row,) = predict(run, "a fine fine film")
    assert row == rows[0]


@pytest.mark.slow
def test_predictions_are_made_as_rows_are_read(run, tmp_path):
    table = write(tmp_path / "a.jsonl", [{"text": "fine", "more": [1]}, {"text": "poor"}, {"text": ""}])
    rows = predict(run, str(table), batch_size=1)
    assert next(rows)["more"] == [1]
    assert next(rows)["more"] is None
    with pytest.raises(ValueError, match=r"a.jsonl, row 3, column 'text': the text is empty$"):
        next(rows)
    done = invoke("predict", run, table, "--out", tmp_path / "out.jsonl")
    assert (done.exit_code, len(done.stderr.splitlines())) == (1, 1)
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.slow
def test_other_columns_may_hold_anything(run, tmp_path):
    values = ["\ud800", {"a": 1}, {"a": "b"}, [1], None, "x,\n", "é"]
    rows = [{"text": "fine", "value": value} for value in values]
    table = write(tmp_path / "a.jsonl", rows)
    for out in ("out.jsonl", "out.csv"):
        done = invoke("predict", run, table, "--out", tmp_path / out)
        assert (done.exit_code, done.output) == (0, "")
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["value"] for line in lines] == values
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        cells = [row["value"] for row in csv.DictReader(file)]
    assert cells == ["\\ud800", '{"a": 1}', '{"a": "b"}', "[1]", "", "x,\n", "é"]


@pytest.mark.slow
def test_dates_of_a_parquet_file(run, tmp_path):
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    rows = [{"text": "fine", "day": datetime.date(2020, 1, 31)}]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    done = invoke("predict", run, tmp_path / "a.parquet")
    assert json.loads(done.stdout)["day"] == "2020-01-31"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("new.csv", r"there is no file new.csv; a text that looks like a path can be given by -"),
        ("my new reviews.csv", r"there is no file my new reviews.csv"),
        ("data/new", r"there is no file data/new"),
        ("new.txt", r"there is no file new.txt"),
        ("notes.txt", r"notes.txt is not a table: its name must end in .csv"),
        ("other.csv", r"data.text_column: other.csv has no column 'text'; did you mean 'texts'\?"),
        (" ", r"the command line: the text is empty"),
        ("", r"the command line: the text is empty"),
        ("-", r"line 2 of standard input: the text is empty"),
    ],
)
def test_inputs_that_cannot_be_predicted(run, tmp_path, monkeypatch, source, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("a text")
    write(tmp_path / "other.csv", [{"texts": "a"}])
    done = invoke("predict", run, source, text="fine\n\nfilm\n")
    assert done.exit_code == 1
    assert re.fullmatch(rf"error: {message}.*\n", done.stderr)


@pytest.mark.slow
def test_options_of_other_models(run, tmp_path):
    done = invoke("predict", run, "fine", "--horizon", "3")
    assert "--horizon is for forecasts; this model predicts labels" in done.stderr
    TNNForCausalLM(TNNConfig(vocab_size=260, **SIZES)).save_pretrained(tmp_path / "lm")
    done = invoke("predict", tmp_path / "lm", "fine")
    assert re.fullmatch(r"error: \S+lm makes no predictions: tnn predict is for classifiers.*\n", done.stderr)
    done = invoke("evaluate", tmp_path / "lm", "fine", "--page", tmp_path / "page.html")
    assert re.fullmatch(r"error: there is no page about \S+lm: --page is for classifiers of texts.*\n", done.stderr)


# --- long texts


def closing_words(count, seed=0):
    """The last word tells."""
    rng = random.Random(seed)
    for number in range(count):
        label, word = rng.choice([("bad", "poor"), ("good", "fine")])
        yield {"text": f"{number} {rng.choice(['a', 'one'])} film, all in all {word}", "label": label}


def long_reviews():
    """Two long ones that begin alike, between short ones."""
    long = "some words about a film, " * 100
    rows = [{"text": f"{long}all in all {word}", "label": label} for label, word in (("bad", "poor"), ("good", "fine"))]
    return [*closing_words(3, seed=1), rows[0], *closing_words(40, seed=2), rows[1]]


@pytest.fixture(scope="module")
def last_word(tmp_path_factory, one_thread):
    """A causal classifier that knows by the last word, trained on short texts and a long one."""
    folder = tmp_path_factory.mktemp("last-word")
    table = write(folder / "reviews.csv", [*closing_words(150), {"text": "x " * 200 + "fine", "label": "good"}])
    changes = ["data.length=64", "model.is_decoder=true", "model.pooling=last", "training.steps=80"]
    lines = []
    train(recipe_of(table, *changes), folder / "run", log=lines.append)
    (told,) = [line for text in lines for line in text.splitlines() if line.startswith("examples ")]
    assert "; 1 of 151 texts are longer than 64 tokens, and were cut; tnn predict and tnn evaluate read them" in told
    return folder / "run"


@pytest.mark.slow
def test_the_last_word_of_a_long_text(last_word, tmp_path):
    table = write(tmp_path / "long.csv", long_reviews())
    with pytest.warns(UserWarning, match="^2 of 45 texts are longer than 64 tokens, and were cut; --whole reads them"):
        cut = list(predict(last_word, str(table)))
    whole = list(predict(last_word, str(table), whole=True, batch_size=4, chunk=100))
    labels = [row["label"] for row in whole]
    assert [row["prediction"] for row in whole] == labels
    assert cut[3]["probabilities"] == pytest.approx(cut[-1]["probabilities"], abs=2e-6)  # so that one is wrong
    assert [row["prediction"] for number, row in enumerate(cut) if number not in (3, 44)] == labels[:3] + labels[4:-1]
    classify = pipeline("text-classification", model=str(last_word))  # truncation=False
    for row in whole:
        (answer,) = classify(row["text"])
        assert (answer["label"], answer["score"]) == (row["prediction"], pytest.approx(row["probability"], abs=1e-5))
    cut_by_pipeline = classify(cut[3]["text"], truncation=True)[0]["score"]
    assert cut_by_pipeline == pytest.approx(cut[3]["probability"], abs=1e-5)


@pytest.mark.slow
def test_scores_of_whole_texts(last_word, tmp_path):
    table = write(tmp_path / "long.csv", long_reviews())
    cut = invoke("evaluate", last_word, table)
    assert f"accuracy       0.9778 on {table}, 45 examples" in cut.stdout
    assert "2 of 45 texts are longer than 64 tokens, and were cut; --whole reads them to the end\n" in cut.stdout
    whole = invoke("evaluate", last_word, table, "--whole", "--chunk", "100", "--page", tmp_path / "page.html")
    assert f"accuracy       1.0000 on {table}, 45 examples" in whole.stdout
    note = "2 of 45 texts are longer than 64 tokens, and were read whole"
    assert f"{note}\n" in whole.stdout
    assert f"<p>{note}</p>" in (tmp_path / "page.html").read_text()


@pytest.mark.slow
def test_the_command_tells_of_cut_texts_once(last_word, tmp_path):
    table = write(tmp_path / "long.csv", long_reviews())
    with warnings.catch_warnings(action="default"):
        done = invoke("predict", last_word, table, "--out", tmp_path / "out.csv")
    counts = "2 of 45 texts are longer than 64 tokens, and were cut"
    assert (done.exit_code, done.stderr) == (0, f"warning: {counts}; --whole reads them to the end\n")
    done = invoke("predict", last_word, table, "--whole", "--out", tmp_path / "out.csv")
    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.slow
def test_long_texts_that_cannot_be_read_in_chunks(tmp_path):
    tokenizer, config = byte_tokenizer(), TNNConfig(vocab_size=260, mixer="attention", is_decoder=False, **SIZES)
    TNNForSequenceClassification(config).save_pretrained(tmp_path / "attention")
    text_tokenizer(tokenizer, 16).save_pretrained(tmp_path / "attention")
    for number, (text, code) in enumerate((("short", 0), ("x" * 100, 1))):
        done = invoke("predict", tmp_path / "attention", text, "--whole")
        assert done.exit_code == code, number
    assert done.stderr == "error: mixer 'attention' cannot run in chunks: it needs the whole text\n"
    TNNForCausalLM(TNNConfig(vocab_size=260, **SIZES)).save_pretrained(tmp_path / "lm")
    for command in ("predict", "evaluate"):
        done = invoke(command, tmp_path / "lm", "some text", "--whole")
        assert re.fullmatch(
            r"error: --whole is for classifiers of texts in a table; \S+lm is of another task\n", done.stderr
        )


KINDS = {
    "pairs": (["data.pair_column=b"], {"b": "y " * 90}, str),
    "several": (["data.kind=several"], {}, lambda k: ["x", "y"][:k]),
    "regression": (["data.kind=regression"], {}, float),
}


@pytest.mark.slow
@pytest.mark.parametrize(("changes", "more", "label"), KINDS.values(), ids=KINDS)
def test_whole_texts_of_every_kind(changes, more, label, tmp_path):
    """What is printed is that of one pass over the whole."""
    rows = [{"text": f"text {k} {'x' * k}", "label": label(k % 3), **more} for k in range(40)]
    table = write(tmp_path / "a.jsonl", rows)
    train(recipe_of(table, "data.length=16", "training.steps=2", *changes), tmp_path / "run", log=quiet)
    new = write(tmp_path / "new.jsonl", [{"text": "a", **dict.fromkeys(more, "c")}, {"text": "z " * 80, **more}])
    classify = pipeline("text-classification", model=str(tmp_path / "run"))
    for row in predict(tmp_path / "run", str(new), whole=True, chunk=30):
        answers = classify([{"text": row["text"], **({"text_pair": row["b"]} if more else {})}], top_k=None)[0]
        scores = {answer["label"]: answer["score"] for answer in answers}
        assert scores == pytest.approx(row.get("probabilities", {"label": row["prediction"]}), abs=1e-5)
    output = evaluate(tmp_path / "run", whole=True, chunk=30, page=tmp_path / "page.html")
    assert "are longer than 16 tokens, and were read whole" in output


# --- other kinds of labels


@pytest.mark.slow
def test_several_labels(tmp_path):
    rng = random.Random(0)
    tags = [[tag for tag in ("sea", "war") if rng.random() < 0.5] for _ in range(200)]
    rows = [{"text": " ".join([str(k), "of the", *own, "and so on"]), "label": own} for k, own in enumerate(tags)]
    table = write(tmp_path / "films.jsonl", rows)
    recipe = recipe_of(table, "data.kind=several", "data.class_weights=balanced", "training.steps=100")
    metrics = train(recipe, tmp_path / "run", log=quiet)
    assert metrics["test_micro_f1"] > 0.9 > metrics["majority_test_micro_f1"]
    new = write(tmp_path / "new.jsonl", [{"text": "of the sea war and so on"}, {"text": "of the and so on"}])
    both, none = predict(tmp_path / "run", str(new))
    assert (both["prediction"], none["prediction"]) == (["sea", "war"], [])
    answers = pipeline("text-classification", model=str(tmp_path / "run"))(both["text"], top_k=None)
    assert {answer["label"]: answer["score"] for answer in answers} == pytest.approx(both["probabilities"], abs=1e-5)
    output = evaluate(tmp_path / "run", page=tmp_path / "page.html")
    assert re.search(
        r"^micro F1 +[\d.]+ on test, \d+ examples; [\d.]+ by the most frequent class$", output, re.MULTILINE
    )
    assert "Confusion" not in (tmp_path / "page.html").read_text()


@pytest.mark.slow
def test_numbers_of_any_size(tmp_path):
    rng = random.Random(0)
    counts = [rng.randrange(8) for _ in range(300)]
    rows = [{"text": f"{k} " + "!" * n + "." * (8 - n), "price": 5000 + 1000 * n} for k, n in enumerate(counts)]
    table = write(tmp_path / "prices.csv", rows)
    recipe = recipe_of(table, "data.kind=regression", "data.label_column=price", "training.steps=150")
    metrics = train(recipe, tmp_path / "run", log=quiet)
    assert metrics["test_r2"] > 0.7
    assert metrics["majority_test_r2"] < 0.1
    row, *_ = predict(tmp_path / "run", str(table))
    assert abs(row["prediction"] - rows[0]["price"]) < 2000
    (answer,) = pipeline("text-classification", model=str(tmp_path / "run"))(row["text"])
    assert answer == {"label": "price", "score": pytest.approx(row["prediction"])}
    assert re.search(r"^R2 .* by the mean$", evaluate(tmp_path / "run"), re.MULTILINE)


@pytest.mark.slow
def test_pairs(tmp_path):
    rng = random.Random(0)
    words = ["sea", "war"]
    pairs = [(rng.choice(words), rng.choice(words)) for _ in range(200)]
    rows = [{"a": f"{x} {k}", "b": f"{y} {k}", "same": x == y} for k, (x, y) in enumerate(pairs)]
    table = write(tmp_path / "pairs.jsonl", rows)
    changes = ["data.text_column=a", "data.pair_column=b", "data.label_column=same", "training.steps=5"]
    train(recipe_of(table, *changes), tmp_path / "run", log=quiet)
    row, *_ = predict(tmp_path / "run", str(table))
    classify = pipeline("text-classification", model=str(tmp_path / "run"))
    answer = classify({"text": row["a"], "text_pair": row["b"]})
    assert (answer["label"], answer["score"]) == (row["prediction"], pytest.approx(row["probability"], abs=1e-5))
    assert row["prediction"] in ("false", "true")
    evaluate(tmp_path / "run", page=tmp_path / "page.html")
    assert re.search(r"sea \d+ \| (sea|war) \d+", (tmp_path / "page.html").read_text())
    with pytest.raises(ValueError, match=r"the model reads pairs of texts: give a table with columns a, b"):
        next(predict(tmp_path / "run", "a text"))


# --- where a training starts


@pytest.mark.slow
@pytest.mark.parametrize("head", [TNNForCausalLM, TNNForMaskedLM])
@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_from_a_language_model(head, kind, tmp_path):
    masked = head is TNNForMaskedLM
    tokenizer = byte_tokenizer(masked) if kind == "bytes" else train_bpe(["a fine film"] * 3, 270, masked)
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    config = TNNConfig(vocab_size=len(tokenizer), is_decoder=not masked, **ids, **SIZES)
    language_model = head(config)
    language_model.save_pretrained(tmp_path / "lm")
    tokenizer.save_pretrained(tmp_path / "lm")
    table = write(tmp_path / "reviews.csv", reviews(40))
    recipe = load_recipe("text-classifier-from", [f"data.table={table}", f"model.start_from={tmp_path / 'lm'}"])
    setup = build(recipe)
    model = setup.make_model()
    assert torch.equal(model.model.embed_tokens.weight, language_model.model.embed_tokens.weight)
    assert model.config.is_decoder is not masked
    assert model.config.id2label == {0: "bad", 1: "good"}
    assert setup.processor.get_vocab() == tokenizer.get_vocab()
    assert setup.train[0]["input_ids"][0] == 0
    other = recipe.data.model_copy(update={"tokenizer": "bpe:265"})
    with pytest.raises(ValueError, match="was trained with another one"):
        build(recipe.model_copy(update={"data": other})).make_model()


def test_from_a_classifier(tmp_path):
    """One of numbers goes on from its own numbers; the first one starts at the mean of the labels."""
    table = write(tmp_path / "a.csv", [{"text": f"text {k}", "label": 100 + k} for k in range(20)])
    first = build(recipe_of(table, "data.kind=regression")).make_model()
    assert first.classifier.out.bias.item() == pytest.approx(109.5, abs=2)
    with torch.no_grad():
        first.classifier.out.bias.fill_(7)
    first.save_pretrained(tmp_path / "first")
    byte_tokenizer().save_pretrained(tmp_path / "first")
    start = ["model.preset=null", f"model.start_from={tmp_path / 'first'}"]
    changes = [f"data.table={table}", "data.kind=regression", "data.tokenizer=null", *start]
    second = build(load_recipe("text-classifier", changes)).make_model()
    assert second.classifier.out.bias.item() == 7


def test_from_a_classifier_with_other_labels(tmp_path):
    first = build(recipe_of(write(tmp_path / "a.csv", reviews(20)))).make_model()
    first.save_pretrained(tmp_path / "first")
    byte_tokenizer().save_pretrained(tmp_path / "first")
    table = write(tmp_path / "b.csv", [{"text": f"text {k}", "label": "abc"[k % 3]} for k in range(30)])
    changes = [f"data.table={table}", f"model.start_from={tmp_path / 'first'}"]
    second = build(load_recipe("text-classifier-from", changes)).make_model()
    assert second.config.id2label == {0: "a", 1: "b", 2: "c"}
    assert second.classifier.out.out_features == 3
    assert torch.equal(second.model.embed_tokens.weight, first.model.embed_tokens.weight)


def test_the_names_of_labels_are_in_the_model(tmp_path):
    names = [str(number) for number in range(12)]
    table = write(tmp_path / "a.csv", [{"text": f"text {k}", "label": k % 12} for k in range(120)])
    model = build(recipe_of(table)).make_model()
    model.save_pretrained(tmp_path / "model")
    config = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").config
    assert [config.id2label[k] for k in range(12)] == names
    assert config.problem_type == "single_label_classification"


# --- weights


def test_balanced_classes_count_alike():
    labels = read_labels(["a"] * 6 + ["b"] * 2, "a.csv")
    logits = torch.randn(8, 2, generator=torch.Generator().manual_seed(0))
    losses = F.cross_entropy(logits, (targets := torch.tensor(labels.values).long()), reduction="none")
    expected = (losses[:6].mean() + losses[6:].mean()) / 2
    assert _balanced_loss(labels)(logits=logits, labels=targets, config=None) == pytest.approx(expected)


def test_balanced_classes_of_several():
    labels = read_labels([["a"], [], [], ["a", "b"]], "a.jsonl", "several")
    logits, targets = torch.randn(4, 2), torch.tensor(labels.targets())
    losses = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    expected = (losses * torch.where(targets > 0, torch.tensor([1.0, 3.0]), 1.0)).mean()
    assert _balanced_loss(labels)(logits=logits, labels=targets) == pytest.approx(expected)


def test_a_recipe_with_weights_trains_with_them(tmp_path):
    rows = [{"text": f"text {k}", "label": "rare" if k < 10 else "frequent"} for k in range(100)]
    table = write(tmp_path / "a.csv", rows)
    losses = []
    for weights in ("none", "balanced"):
        setup = build(recipe_of(table, f"data.class_weights={weights}"))
        torch.manual_seed(0)
        model = setup.make_model().eval()
        losses.append(model(**setup.collate([setup.train[k] for k in range(len(setup.train))])).loss.item())
        assert setup.metric == {"none": "accuracy", "balanced": "macro_f1"}[weights]
    assert losses[0] != pytest.approx(losses[1], rel=1e-4)


# --- mistakes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["data.kind=multiple"], r"data.kind: input should be 'single', 'several' or 'regression'; got 'multiple'"),
        (
            ['data.separator=";"'],
            r"data: separator is for several classes per text: give kind=several; got kind=single",
        ),
        (
            ["data.kind=regression", "data.class_weights=balanced"],
            r"data: class_weights are for classes, not for kind=r",
        ),
        (["data.length=4"], r"data.length: input should be greater than or equal to 8; got 4"),
        (["data.text_colum=body"], r"unknown key 'data.text_colum'; did you mean 'data.text_column'\?"),
    ],
)
def test_mistakes_in_recipes(changes, message):
    with pytest.raises(ValueError, match=message):
        load_recipe("text-classifier", changes)


def test_mistakes_about_the_model(tmp_path):
    table = write(tmp_path / "a.csv", reviews(20))
    for change, message in (
        ("model.num_labels=3", r"model.num_labels follows from the labels of the table: leave it out"),
        ("model.vocab_size=100", r"its vocabulary is 100, and the tokenizer has 260 tokens"),
        ("data.tokenizer=bpe:many", r"data.tokenizer must be bpe:SIZE, such as bpe:8000; got 'bpe:many'"),
    ):
        with pytest.raises(ValueError, match=message):
            build(recipe_of(table, change)).make_model()


def test_a_label_that_is_only_in_the_validation(tmp_path):
    write(tmp_path / "train.csv", reviews(20))
    write(tmp_path / "valid.csv", [{"text": "a", "label": "goods"}])
    with pytest.raises(
        ValueError, match=r"valid.csv, row 1: the label 'goods' is not in the training table; did you mean"
    ):
        build(recipe_of(tmp_path))


def test_a_class_with_a_single_example(tmp_path):
    table = write(tmp_path / "a.csv", [*reviews(20), {"id": 20, "text": "so so", "label": "fair"}])
    with pytest.warns(UserWarning, match="labels with a single training example can hardly be learned: 'fair'"):
        setup = build(recipe_of(table))
    assert 1 in {setup.train[k]["labels"].item() for k in range(len(setup.train))}


def test_a_changed_table_is_found(tmp_path):
    table = write(tmp_path / "a.csv", reviews(20))
    before = build(recipe_of(table)).fingerprints()
    assert build(recipe_of(table)).fingerprints() == before
    table = write(tmp_path / "moved.csv", reviews(20))
    assert build(recipe_of(table)).fingerprints() == before
    write(table, reviews(21))
    assert build(recipe_of(table)).fingerprints()["data"] != before["data"]


def test_a_model_without_a_recipe_predicts(tmp_path):
    config = TNNConfig(vocab_size=260, is_decoder=False, num_labels=3, **SIZES)
    TNNForSequenceClassification(config).save_pretrained(tmp_path)
    (row,) = predict(tmp_path, "a text")
    assert list(row["probabilities"]) == ["LABEL_0", "LABEL_1", "LABEL_2"]
    assert sum(row["probabilities"].values()) == pytest.approx(1, abs=1e-5)


@pytest.mark.slow
def test_a_run_is_resumed(tmp_path):
    """With a tokenizer that is trained anew: it comes out the same."""
    table = write(tmp_path / "a.csv", reviews(60))
    recipe = recipe_of(
        table, "data.tokenizer=bpe:280", "model.dropout=0.1", "training.steps=6", "training.save_every=3"
    )
    complete = train(recipe, tmp_path / "complete", log=quiet)
    train(recipe, tmp_path / "parts", log=quiet)
    for name in ("config.json", "model.safetensors", "measured.json"):
        (tmp_path / "parts" / name).unlink()
    (tmp_path / "parts" / "checkpoints" / "checkpoint-6").rename(tmp_path / "gone")
    assert train(recipe, tmp_path / "parts", resume=True, log=quiet) == complete


def test_the_page_shows_names_and_texts_as_they_are(tmp_path):
    """Nothing in a table becomes a part of the page."""
    text, name = "<script>alert(1)</script> & \x1b[2J", '"><img src=x>'
    write(tmp_path / "a.csv", [{"text": text, "label": name}, {"text": "b" * 2000, "label": "\n\nodd\n"}])
    columns, tokenizer = Columns(), text_tokenizer(byte_tokenizer(), 1024)
    part = open_whole(open_tables(tmp_path / "a.csv")[""], columns, (name, "odd"))
    encoder = TextEncoder(tokenizer)
    dataset = LabelledTexts(encode_texts(part.texts(columns), encoder, tmp_path), part.labels)
    logits = np.array([[0.0, 3.0], [0.0, 1.0]])
    scored = ScoredTexts("<i>", part, dataset, logits, np.array([0, 0]), cut=encoder.summary())
    page = label_page("<u>", [scored], tokenizer)
    assert not re.search(r"<(script|img|i|u)\b", page)
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; \N{REPLACEMENT CHARACTER}[2J" in page
    assert f"{'b' * 600}..." in page
    assert page.index("<td>3.049</td>") < page.index("<td>0.313</td>")  # the hardest first
    assert "accuracy       0.5000 on <i>, 2 examples; 0.5000 by the most frequent class" in label_text(scored)
    note = "1 of 2 texts are longer than 1,024 tokens, and were cut; --whole reads them to the end"
    assert label_text(scored).count(note) == page.count(note) == 1
