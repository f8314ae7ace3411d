"""The README.md of a finished run: what the Hub reads, examples that run, and pages that are left alone."""

import json
import math
import os
import re
import shlex
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard
from typer.testing import CliRunner

from tnn import (
    TNNForCausalLM,
    TNNForForecasting,
    TNNForSequenceClassification,
    TNNForSequencePairClassification,
    TNNForTokenClassification,
    load_preset,
)
from tnn.cli import app
from tnn.training import load_recipe
from tnn.training.model_card import model_card, write_card
from tnn.training.run_recipe import train


def card_of(folder):
    text = (folder / "README.md").read_text()
    return yaml.safe_load(text.split("---\n")[1]), text


@pytest.fixture
def run(recipe, tmp_path, monkeypatch):
    """run(task, **training): the metrics of a finished run in the current folder."""
    monkeypatch.chdir(tmp_path)
    return lambda task="causal-lm", **training: train(recipe(task, **training), Path("my run"), log=lambda text: None)


@pytest.mark.slow
def test_a_causal_model(run, tmp_path, capsys):
    measured = run(steps=3)
    front, text = card_of(Path("my run"))
    assert front | {"model-index": None} == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "license": "unknown",
        "tags": ["toeplitz-nn", "tnn"],
        "metrics": ["perplexity"],
        "model-index": None,
    }
    (result,) = ModelCard(text).data.eval_results  # as the Hub reads it
    assert (result.task_type, result.dataset_name, result.dataset_split) == ("text-generation", "corpus", "validation")
    assert result.metric_value == pytest.approx(math.exp(measured["eval_loss"]), rel=1e-5)
    assert f"| validation loss | {measured['eval_loss']:.4f} |" in text
    assert "- 3 updates of 4 examples, each of at most 32 tokens; seed 0\n" in text
    assert str(tmp_path) not in text  # where the data are is nobody else's business
    exec(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], {})
    assert capsys.readouterr().out.startswith("A text")
    for line in re.search(r"```sh\n(.*?)```", text, re.DOTALL)[1].splitlines()[1:]:
        done = CliRunner().invoke(app, shlex.split(line)[1:])
        assert done.exit_code == 0, done.output


@pytest.mark.slow
def test_a_masked_model(run, capsys):
    run("masked-lm", steps=2)
    front, text = card_of(Path("my run"))
    assert front["pipeline_tag"] == "fill-mask"
    exec(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], {})
    assert capsys.readouterr().out.startswith("tensor(")


@pytest.mark.slow
def test_a_page_that_was_changed_is_left_alone(run, recipe):
    constant = {"schedule": "constant", "warmup_steps": 0}
    run(steps=2, **constant)
    _, first = card_of(Path("my run"))
    train(recipe(steps=3, **constant), Path("my run"), resume=True, log=lambda text: None)
    _, second = card_of(Path("my run"))
    assert ("- 2 updates" in first, "- 3 updates" in second) == (True, True)
    (Path("my run") / "README.md").write_text(second.replace("unknown", "mit"))
    train(recipe(steps=4, **constant), Path("my run"), resume=True, log=lambda text: None)
    assert card_of(Path("my run"))[1] == second.replace("unknown", "mit")


def test_pages_of_others(tmp_path):
    for content in (b"mine\n", b"\xff", b""):
        (tmp_path / "README.md").write_bytes(content)
        write_card(tmp_path, "new\n")
        assert (tmp_path / "README.md").read_bytes() == content
    (tmp_path / "README.md").unlink()
    write_card(tmp_path, "new\n")
    written = (tmp_path / "README.md").read_text()
    (tmp_path / "README.md").write_text(written + "more\n")
    write_card(tmp_path, "newer\n")
    assert (tmp_path / "README.md").read_text() == written + "more\n"
    assert os.listdir(tmp_path) == ["README.md"]


def test_scores_of_a_classifier():
    recipe = load_recipe("lra-retrieval")
    model = TNNForSequencePairClassification(load_preset("mini-lra", vocab_size=9, num_labels=2))
    metrics = {"eval_loss": 0.5, "eval_accuracy": 0.75, "majority_eval_accuracy": 0.5}
    text = model_card("pairs", recipe, model, metrics, steps=3)
    front = yaml.safe_load(text.split("---\n")[1])
    assert "pipeline_tag" not in front  # the Hub knows no such task
    assert front["metrics"] == ["accuracy"]
    assert "| validation accuracy of the most frequent class | 0.5000 |" in text
    assert "from tnn.models import TNNForSequencePairClassification\n" in text
    assert "AutoTokenizer" not in text


@pytest.mark.parametrize(
    ("name", "model", "task"),
    [
        ("text-classifier", lambda: TNNForSequenceClassification(load_preset("mini-lra")), "text-classification"),
        ("token-classifier", lambda: TNNForTokenClassification(load_preset("mini-lra")), "token-classification"),
        ("mini-forecast", lambda: TNNForForecasting(load_preset("mini-forecast")), "time-series-forecasting"),
    ],
)
def test_models_that_predict_say_how(name, model, task):
    text = model_card("mine", load_recipe(name, ["data.table=mine.csv"]), model(), {"eval_loss": 0.5}, steps=3)
    assert yaml.safe_load(text.split("---\n")[1])["pipeline_tag"] == task
    assert "\ntnn predict mine FILE\n" in text
    exec(re.search(r"from transformers import \w+\n", text)[0], {})
    assert "tnn predict" not in model_card("mine", load_recipe("mini-alm"), model(), {"eval_loss": 0.5}, steps=3)


@pytest.mark.parametrize("name", ["it's: [", 'a "name"', "\N{GRINNING FACE}", "- x"])
def test_odd_names(name):
    recipe = load_recipe("mini-alm", [f"data.corpus={json.dumps('hf:someone/texts:part')}"])
    text = model_card(name, recipe, TNNForCausalLM(load_preset("mini-alm")), {"eval_loss": 1.0}, steps=1)
    front = yaml.safe_load(text.split("---\n")[1])
    assert front["model-index"][0]["name"] == name
    assert front["datasets"] == ["someone/texts"]
    compile(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], "card", "exec")
