"""`tnn generate`: prompts from files and standard input, stop strings, several samples, JSON, models in training."""

import json
import re
import shutil

import pytest
from typer.testing import CliRunner

import tnn
from tnn.cli import app, generation, prompts
from tnn.data import byte_tokenizer
from tnn.training import runs
from tnn.training.checkpoints import checkpoint_path, publish
from tnn.training.recipe import dump_recipe, load_recipe

PROMPT = "Öl, und\r\n"


@pytest.fixture(autouse=True)
def _few_threads(one_thread):
    pass


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    sizes = {"vocab_size": 260, "hidden_size": 16, "num_hidden_layers": 2, "rpe_size": 8, "rpe_num_layers": 2}
    tnn.TNNForCausalLM(tnn.TNNConfig(**sizes, decay=0.9, initializer="torch", eos_token_id=None)).save_pretrained(
        folder
    )
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def model(saved, tmp_path, monkeypatch):
    """A model in the current folder."""
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(saved, tmp_path / "model").name


def invoke(*arguments, stdin=None):
    return CliRunner().invoke(app, ["generate", *(str(a) for a in arguments)], input=stdin)


def good(done):
    assert done.exit_code == 0, done.output
    return done.stdout


def assert_one_line(done, message):
    assert (done.exit_code, done.stdout) == (1, "")
    assert re.fullmatch(rf"error: .*{message}.*\n", done.stderr)


@pytest.mark.slow
def test_the_places_of_a_prompt(model, tmp_path):
    (tmp_path / "prompt").write_bytes(PROMPT.encode())
    text = good(invoke(model, "--prompt", PROMPT))
    assert good(invoke(model, "--prompt-file", "prompt")) == text
    assert good(invoke(model, "--prompt", "-", stdin=PROMPT.encode())) == text
    assert good(invoke(model, "--prompt", PROMPT.strip())) != text  # the line end is a part of it


@pytest.mark.slow
def test_a_long_prompt_is_read_in_pieces(model, monkeypatch):
    text = good(invoke(model, "--prompt", PROMPT * 9))
    given = []
    original = tnn.TNNForCausalLM.forward
    monkeypatch.setattr(generation, "CHUNK", 10)
    monkeypatch.setattr(
        tnn.TNNForCausalLM, "forward", lambda *a, **k: given.append(k["input_ids"].shape[1]) or original(*a, **k)
    )
    assert good(invoke(model, "--prompt", PROMPT * 9)) == text
    assert given[:9] == [10] * 9
    assert good(invoke(model, "--prompt", PROMPT * 9, "--decoder", "recompute")) == text


@pytest.mark.slow
def test_stop_strings(model):
    text = good(invoke(model, "--prompt", PROMPT))[:-1]
    stop = text[20:23]
    place = text.index(stop)
    done = invoke(model, "--prompt", PROMPT, "--stop", stop)
    assert (done.exit_code, done.stdout) == (0, text[:place] + "\n")
    assert int(done.stderr.split()[0]) < 200
    assert good(invoke(model, "--prompt", PROMPT, "--stop", stop, "--stop", "never")) == text[:place] + "\n"
    assert good(invoke(model, "--prompt", PROMPT, "--stop", PROMPT)) == text + "\n"  # the prompt itself stops nothing


@pytest.mark.slow
def test_samples_have_seeds_of_their_own(model):
    options = ("--prompt", "a", "--temperature", 1, "--max-new-tokens", 8)
    single = [good(invoke(model, *options, "--seed", seed)) for seed in (5, 6, 7)]
    several = good(invoke(model, *options, "--seed", 5, "--samples", 3))
    assert several == "".join(f"--- {i + 1} of 3, seed {5 + i}\n{text}" for i, text in enumerate(single))
    assert len(set(single)) == 3


@pytest.mark.slow
def test_json(model):
    options = ("--prompt", PROMPT, "--temperature", 1, "--max-new-tokens", 8, "--samples", 2)
    first, second = (json.loads(line) for line in good(invoke(model, *options, "--json")).splitlines())
    assert first.keys() == {"prompt", "text", "seed", "tokens", "seconds", "finished"}
    assert (first["prompt"], first["seed"], second["seed"]) == (PROMPT, 0, 1)
    assert (first["tokens"], first["finished"]) == (8, "length")
    assert 0 < first["seconds"] < 100
    assert good(invoke(model, *options[:-2])) == first["text"] + "\n"
    stopped = json.loads(good(invoke(model, *options[:-2], "--json", "--stop", first["text"][2])))
    assert stopped["finished"] == "stop"
    assert first["text"].startswith(stopped["text"])


def test_an_end_token(model, tmp_path):
    """Whatever comes first is the end token."""
    first = json.loads(good(invoke(model, "--prompt", "a", "--max-new-tokens", 1, "--json")))["text"]
    settings = json.loads((tmp_path / "model" / "generation_config.json").read_text())
    token = byte_tokenizer()(first)["input_ids"][0]
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps(settings | {"eos_token_id": token}))
    ended = json.loads(good(invoke(model, "--prompt", "a", "--json")))
    assert (ended["tokens"], ended["finished"]) == (1, "eos")


BAD = {
    "no prompt": ((), "give a prompt: --prompt TEXT, --prompt - for standard input, or --prompt-file FILE"),
    "two prompts": (("--prompt", "a", "--prompt-file", "text"), "give either --prompt or --prompt-file, not both"),
    "an empty file": (("--prompt-file", "empty"), "prompt must have at least one token; got ''"),
    "no file": (("--prompt-file", "absent"), "No such file or directory: 'absent'"),
    "a folder": (("--prompt-file", "model"), "Is a directory: 'model'"),
    "not a text": (("--prompt-file", "latin"), "latin is not a UTF-8 text: see byte 3"),
    "too long": (("--prompt-file", "text"), "text is too long for a prompt: this machine has memory for 0 MB"),
    "an empty stop": (("--prompt", "a", "--stop", ""), "stop must have at least one character; got ''"),
    "no samples": (("--prompt", "a", "--samples", 0), "samples must be at least 1; got 0"),
    "samples alike": (("--prompt", "a", "--samples", 2), "samples needs a temperature above 0: .*; got 2"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input(model, tmp_path, monkeypatch, arguments, message):
    (tmp_path / "text").write_text("a text")
    (tmp_path / "empty").touch()
    (tmp_path / "latin").write_bytes(b"abc\xff")
    monkeypatch.setattr(prompts, "physical_memory", lambda: 5 * prompts.MEMORY)
    assert_one_line(invoke(model, *arguments), message)


def test_standard_input_that_is_not_text(model):
    assert_one_line(invoke(model, "--prompt", "-", stdin=b"\xff"), "standard input is not a UTF-8 text: see byte 0")
    assert_one_line(invoke(model, "--prompt", "-", stdin=b""), "prompt must have at least one token")


# --- runs that are not finished


@pytest.fixture
def run(saved, tmp_path, monkeypatch):
    """A run with two checkpoints, without its end."""
    monkeypatch.chdir(tmp_path)
    for step in (5, 10):
        shutil.copytree(saved, tmp_path / f"run/checkpoints/.unfinished/checkpoint-{step}")
        publish(tmp_path / f"run/checkpoints/.unfinished/checkpoint-{step}", tmp_path / "run")
    (tmp_path / "run" / runs.RECIPE).write_text(dump_recipe(load_recipe("mini-alm")))
    return tmp_path / "run"


@pytest.mark.slow
def test_the_newest_whole_checkpoint(saved, run):
    text = good(invoke(saved, "--prompt", "a"))
    done = invoke("run", "--prompt", "a")
    assert (done.exit_code, done.stdout) == (0, text)
    assert done.stderr.splitlines()[0] == "run is not finished: using checkpoint-10"
    (checkpoint_path(run, 10) / "model.safetensors").write_bytes(b"")
    assert invoke("run", "--prompt", "a").stderr.splitlines()[0] == "run is not finished: using checkpoint-5"
    assert good(invoke("run/checkpoints/checkpoint-5", "--prompt", "a")) == text
    damaged = "checkpoint-10 is damaged: model.safetensors has 0 bytes, not"
    assert_one_line(invoke("run/checkpoints/checkpoint-10", "--prompt", "a"), damaged)


def test_a_run_without_a_checkpoint(run):
    shutil.rmtree(run / "checkpoints")
    assert_one_line(invoke("run", "--prompt", "a"), "there is no model in run yet: it has no whole checkpoint")


def test_a_checkpoint_whose_best_one_is_gone(saved, tmp_path):
    """A run needs it at its end; to try a checkpoint, its own files are enough."""
    shutil.copytree(saved, tmp_path / "run/checkpoints/.unfinished/checkpoint-5")
    path = publish(tmp_path / "run/checkpoints/.unfinished/checkpoint-5", tmp_path / "run", best=2)
    assert good(invoke(path, "--prompt", "a"))


def test_a_checkpoint_without_its_tokenizer(run, tmp_path):
    config = json.loads((checkpoint_path(run, 5) / "config.json").read_text())
    tnn.TNNForCausalLM(tnn.TNNConfig(**{**config, "vocab_size": 300})).save_pretrained(tmp_path / "bare")
    assert_one_line(
        invoke("bare", "--prompt", "a"), "bare has no tokenizer files; the byte tokenizer is used only with"
    )
