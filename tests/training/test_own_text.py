"""Training on a text of one's own: its lines, its tables, its files that are no text; and runs of earlier versions."""

import json
import random

import pytest
import yaml
from transformers import AutoTokenizer
from typer.testing import CliRunner

from tnn.cli import app
from tnn.training import runs
from tnn.training.checkpoints import list_checkpoints
from tnn.training.recipe import load_recipe
from tnn.training.run_recipe import train

LINES = ["def f(x):\n", "    return x\n", "\n", "class A:\n", "    x = 1\n"]


@pytest.fixture
def sources(tmp_path):
    generator, folder = random.Random(0), tmp_path / "sources"
    folder.mkdir()
    for i in range(30):
        (folder / f"{i}.py").write_text("".join(generator.choices(LINES, k=80)))
    return folder


def tnn(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, f"{words}: {done.output} {done.exception}"
    return done.stdout


def saved_data(run):
    return yaml.safe_load((run / "recipe.yaml").read_text())["data"]


@pytest.mark.slow
def test_a_model_of_a_bpe_writes_lines(recipe_file, sources, tmp_path):
    path, run = recipe_file(data={"tokenizer": "bpe:280"}, steps=60, batch_size=8, save_every=60), tmp_path / "run"
    tnn("train", path, f"data.corpus={sources}", "--out", run)
    assert saved_data(run)["lines"] == "keep"
    options = ("--max-new-tokens", 400, "--temperature", 1)
    text = tnn("generate", run, "--prompt", "def f(x):\n", *options)
    assert text.count("\n") > 20
    assert len([line for line in text.splitlines() if line.strip()]) > 10


def prompt_ids(model):
    """The tokens of a prompt of two lines."""
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tnn.models.TNNForCausalLM.generate", lambda self, ids, **options: seen.extend(ids[0].tolist()))
        tnn("generate", model, "--prompt", "few\nso")
    return seen


@pytest.mark.slow
def test_a_run_of_an_earlier_version(recipe_file, recipe, corpus, tmp_path):
    """Its recipe does not say that lines are separate. It is evaluated, continued and resumed as it was begun."""
    changes = {"tokenizer": "bpe:280"}
    old, whole = tmp_path / "old", tmp_path / "whole"
    for out in (old, whole):
        train(recipe(data={**changes, "lines": "separate"}), out, log=print)
    values = yaml.safe_load((old / "recipe.yaml").read_text())
    for key in ("lines", "bad_files"):
        del values["data"][key]
    (old / "recipe.yaml").write_text(yaml.safe_dump(values))
    assert tnn("evaluate", old) == tnn("evaluate", whole)
    other = tmp_path / "other.txt"
    other.write_text("so few\nso few\n")
    assert tnn("evaluate", old, other) == tnn("evaluate", whole, other)
    assert "tokens         6 predicted" not in tnn("evaluate", old, other)

    tokenizer = AutoTokenizer.from_pretrained(old)
    prompt = [*tokenizer("few")["input_ids"], tokenizer.eos_token_id, *tokenizer("so")["input_ids"]]
    assert prompt_ids(old) == prompt
    for name in ("config.json", "model.safetensors", "measured.json"):
        (old / name).unlink()
    assert list_checkpoints(old)
    assert prompt_ids(old) == prompt_ids(list_checkpoints(old)[0]) == prompt
    train(recipe(data=changes), old, resume=True, log=print)  # says no more about lines than at the beginning
    assert saved_data(old)["lines"] == "separate"
    assert (old / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "lines"), [("{}.txt", "keep"), ("wiki.{}.tokens", "separate")])
def test_the_rule_of_a_corpus_is_saved(recipe, corpus, tmp_path, name, lines):
    for path in [*corpus.iterdir()]:
        path.rename(corpus / name.format(path.stem))
    out = tmp_path / "run"
    train(recipe(steps=1, warmup_steps=0), out, log=print)
    assert saved_data(out)["lines"] == runs.load_run_recipe(out).data.lines == lines


@pytest.mark.slow
@pytest.mark.parametrize("task", ["causal-lm", "masked-lm"])
def test_a_table_trains_a_model(recipe_file, sources, tmp_path, task):
    table, run = tmp_path / "records.jsonl", tmp_path / "run"
    records = [{"id": i, "code": "".join(random.Random(i).choices(LINES, k=10))} for i in range(60)]
    table.write_text("".join(json.dumps(record) + "\n" for record in records))
    counts = tnn("data", "prepare", table, "--text-column", "code", "--tokenizer", "bpe:280")
    sizes = [int(line.split()[5].replace(",", "")) for line in counts.splitlines()]
    assert sum(sizes) == sum(len(record["code"]) for record in records)
    path = recipe_file(task, steps=2, warmup_steps=0)
    tnn("train", path, f"data.corpus={table}", "data.text_column=code", "data.tokenizer=bpe:280", "--out", run)
    assert "perplexity" in tnn("evaluate", run)
    assert "perplexity" in tnn("evaluate", run, table)
    assert "perplexity" in tnn("evaluate", run, sources)  # the column is for tables only


@pytest.mark.slow
def test_files_that_are_skipped_are_counted(recipe_file, sources, tmp_path):
    (sources / "image.png").write_bytes(b"\x89PNG")
    (sources / "other.png").write_bytes(b"\x89PNG")
    path, run = recipe_file(steps=1, warmup_steps=0), tmp_path / "run"
    done = CliRunner().invoke(app, ["train", str(path), f"data.corpus={sources}", "--out", str(run)])
    assert done.exit_code == 1
    assert done.stderr.endswith(
        "image.png is not a UTF-8 text: see byte 0; data.bad_files=skip leaves such files out\n"
    )
    assert not run.exists()
    out = tnn("train", path, f"data.corpus={sources}", "data.bad_files=skip", "--out", run)
    assert f"all but 2 files not in UTF-8, such as {sources / 'image.png'}" in out
    done = CliRunner().invoke(app, ["data", "prepare", str(sources), "--bad-files", "skip"])
    assert [line for line in done.stderr.splitlines() if "image.png" in line] == [
        f"skipped, as it is not UTF-8 text: {sources / 'image.png'}"
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("data.lines=kept", "data.lines: input should be 'auto', 'keep' or 'separate'; got 'kept'"),
        ("data.bad_files=no", "data.bad_files: input should be 'refuse' or 'skip'; got False"),
        ("data.column=text", "unknown key 'data.column'"),
    ],
)
def test_wrong_values(change, message):
    with pytest.raises(ValueError, match=message):
        load_recipe("mini-alm", [change])
