"""Commands on model folders that are damaged, and on places that cannot be written: one line before the work."""

import json
import os
import re
import shutil
import threading

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import tnn
from tnn.cli import app
from tnn.data import byte_tokenizer

PANICS = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}  # the tokenizers library does, at this normalizer


@pytest.fixture(autouse=True)
def _few_threads(one_thread):
    pass


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    sizes = {"vocab_size": 260, "hidden_size": 8, "num_hidden_layers": 2, "rpe_size": 4, "rpe_num_layers": 1}
    tnn.TNNForCausalLM(tnn.TNNConfig(**sizes, decay=0.9)).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def place(saved, tmp_path, monkeypatch):
    """The current folder, with a model and a text in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TNN_CACHE", str(tmp_path / "cache"))
    shutil.copytree(saved, "model")
    (tmp_path / "text").write_text("a text of some words\n" * 20)
    return tmp_path


def invoke(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], prog_name="tnn")


def assert_one_line(done, message):
    assert (done.exit_code, done.stdout) == (1, "")
    assert re.fullmatch(rf"error: .*{message}.*\n", done.stderr)


COMMANDS = {
    "generate": ("generate", "model", "--prompt", "a", "--max-new-tokens", 2),
    "evaluate": ("evaluate", "model", "text", "--length", 20),
    "extrapolate": ("extrapolate", "model", "text", "--lengths", 20),
    "show": ("show", "model", "--length", 4),
    "bench": ("bench", "model", "--contexts", 4, "--new-tokens", 1),
    "convert": ("convert", "state-space", "model", "out", "--tolerance", 0.1),
}


@pytest.mark.parametrize(
    ("command", "message"),
    [("generate", "the model gives NaN after 1 tokens"), ("evaluate", "the loss of model is nan")],
)
def test_weights_that_are_finite_and_too_large(command, message, place):
    weights = load_file("model/model.safetensors")
    for name in weights:
        if "token_mixer.value_proj" in name or "token_mixer.out_proj" in name:
            weights[name] *= 1e37
    save_file(weights, "model/model.safetensors", metadata={"format": "pt"})
    assert_one_line(invoke(*COMMANDS[command]), message)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights.pop("model.norm.bias"), r"do not fit the model: missing 1 key \(model\.norm\.bias\)"),
        (lambda weights: weights["model.norm.bias"].fill_(torch.nan), r"not finite, first in model\.norm\.bias"),
    ],
    ids=["missing", "NaN"],
)
def test_no_command_runs_with_other_weights(place, command, change, message):
    weights = load_file("model/model.safetensors")
    change(weights)
    save_file(weights, "model/model.safetensors", metadata={"format": "pt"})
    before = sorted(place.rglob("*"))
    assert_one_line(invoke(*command), message)
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_no_weights(place, command):
    (place / "model" / "model.safetensors").unlink()
    assert_one_line(
        invoke(*command), "there are no weights in model: model.safetensors is missing, which save_pretrained"
    )


HEADS = [
    name for name in tnn.models.__all__ if name.startswith("TNN") and not name.endswith(("Config", "PreTrainedModel"))
]


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADS)
def test_every_head_is_shown_and_exported(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    head = getattr(tnn.models, name)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "rpe_size": 4, "rpe_num_layers": 1}
    text = {"vocab_size": 20, "is_decoder": name == "TNNForCausalLM"}
    own = {tnn.TNNConfig: text, tnn.TNNImageConfig: {"image_size": 8, "patch_size": 4}, tnn.TNNSeriesConfig: {}}
    config = head.config_class(**sizes, **own[head.config_class])
    head(config).save_pretrained("model")
    assert invoke("show", "model", "--length", 2).stdout.splitlines()[-1] == "model/kernels.png"
    assert invoke("convert", "onnx", "model", "model.onnx").stdout.startswith(f"{name}, ")


def test_a_head_without_a_task(place):
    tnn.TNNModel(tnn.TNNConfig(vocab_size=260, hidden_size=8, num_hidden_layers=1)).save_pretrained("model")
    assert_one_line(invoke(*COMMANDS["evaluate"]), "a TNNModel belongs to no task")


@pytest.mark.slow
def test_no_training_starts_from_other_weights(place):
    weights = load_file("model/model.safetensors")
    del weights["model.norm.bias"]
    save_file(weights, "model/model.safetensors", metadata={"format": "pt"})
    (place / "text").write_text("some words\n" * 200)
    changes = ("model.preset=null", "model.start_from=model", "data.corpus=text", "data.length=8", "training.steps=1")
    assert_one_line(invoke("train", "mini-alm", *changes, "--out", "run"), r"missing 1 key \(model\.norm\.bias\)")


@pytest.mark.slow
def test_a_training_that_needs_more_memory_than_there_is(place):
    sizes = ("model.hidden_size=200000", "data.corpus=text", "data.length=8", "training.steps=1")
    assert_one_line(invoke("train", "mini-alm", *sizes, "--out", "run"), "the weights need .* GB, and this machine has")


TOKENIZER = {
    "cut": ("tokenizer.json", '{"version": "1.0", "trunc', "JSONDecodeError"),
    "empty": ("tokenizer.json", "", "JSONDecodeError"),
    "no tokens": ("tokenizer.json", "{}", "KeyError: 'added_tokens'"),
    "a list": ("tokenizer.json", "[]", ""),
    "deep": ("tokenizer.json", '{"a":' * 5000, "RecursionError"),
    "binary": ("tokenizer.json", "\udcff\udcfe", "can't decode"),
    "config cut": ("tokenizer_config.json", '{"eos_token": "</', "JSONDecodeError"),
    "config list": ("tokenizer_config.json", "[]", "'list' object"),
    "config number": ("tokenizer_config.json", '{"eos_token": 3}', "eos_token"),
    "config length": (
        "tokenizer_config.json",
        '{"model_max_length": "x"}',
        "model_max_length must be a number; got 'x'",
    ),
    "special": ("special_tokens_map.json", '{"eos_token": [3]}', ""),
    "special cut": ("special_tokens_map.json", '{"eos', "JSONDecodeError"),
    "added": ("added_tokens.json", "[]", "'list' object"),
    "code": (
        "tokenizer_config.json",
        '{"auto_map": {"AutoTokenizer": ["code.T", null]}, "tokenizer_class": "T"}',
        "it needs code of its own, and commands run none",
    ),
}


@pytest.mark.parametrize("command", ["generate", "evaluate"])
@pytest.mark.parametrize(("name", "content", "message"), TOKENIZER.values(), ids=TOKENIZER)
def test_a_damaged_tokenizer(place, monkeypatch, command, name, content, message):
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked on standard input"))
    (place / "model" / name).write_bytes(content.encode(errors="surrogateescape"))
    assert_one_line(invoke(*COMMANDS[command]), f"model does not hold a tokenizer: .*{message}")


@pytest.mark.parametrize("command", ["generate", "evaluate"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "tokenizer_config.json",
            "the tokenizer in model is not whole: tokenizer_config.json is missing; save_pretrained",
        ),
        (
            "tokenizer.json",
            "model does not hold a tokenizer: its tokenizer.json is missing, which save_pretrained writes",
        ),
    ],
)
def test_a_tokenizer_that_lacks_a_file(place, command, name, message):
    (place / "model" / name).unlink()
    assert_one_line(invoke(*COMMANDS[command]), message)


def test_a_model_of_bytes_needs_no_tokenizer_files(place):
    expected = invoke(*COMMANDS["generate"]).stdout
    for name in ("tokenizer_config.json", "tokenizer.json"):
        (place / "model" / name).unlink()
    assert invoke(*COMMANDS["generate"]).stdout == expected


def test_a_tokenizer_that_panics(place, capfd):
    path = place / "model" / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"normalizer": PANICS}))
    assert_one_line(invoke(*COMMANDS["generate"]), "model does not hold a tokenizer: PanicException: .*charsmap")
    assert capfd.readouterr().err == ""  # the backtrace of Rust


def test_a_tokenizer_of_another_model(place):
    byte_tokenizer(mask=True).save_pretrained("model")
    for command in ("generate", "evaluate"):
        assert_one_line(invoke(*COMMANDS[command]), "tokenizer in model has 261 tokens, and the model has only 260")


def test_only_the_options_decide_how_text_is_generated(place):
    """Not what else a generation_config.json asks for."""
    path = place / "model" / "generation_config.json"
    expected = invoke(*COMMANDS["generate"]).stdout
    odd = {
        "repetition_penalty": 1e-9,
        "bad_words_ids": 3,
        "no_repeat_ngram_size": "x",
        "max_time": "x",
        "min_length": 9,
    }
    path.write_text(json.dumps(json.loads(path.read_text()) | odd))
    done = invoke(*COMMANDS["generate"])
    assert (done.exit_code, done.stdout) == (0, expected)


OPTIONS = {
    "2**63 tokens": (
        ("generate", "model", "--prompt", "a", "--max-new-tokens", 2**63),
        "max_new_tokens must be at most",
    ),
    "top k": (("generate", "model", "--prompt", "a", "--temperature", 1, "--top-k", 2**40), "top_k must be at most"),
    "no top k": (("generate", "model", "--prompt", "a", "--temperature", 1, "--top-k", 0), "top_k must be at least 1"),
    "cold": (
        ("generate", "model", "--prompt", "a", "--temperature", 1e-45),
        "temperature must be 0, or at least 1e-06",
    ),
    "seed": (("generate", "model", "--prompt", "a", "--seed", 2**64), "seed must be a number of 64 bits"),
    "tolerance": (("convert", "state-space", "model", "out", "--tolerance", "nan"), "tolerance must be finite"),
    "length": (("evaluate", "model", "text", "--length", 2**63), "length must be at most 2,147,483,647"),
    "lengths": (("extrapolate", "model", "text", "--lengths", 10**20), "lengths must be at most 2,147,483,647"),
    "no lengths": (("extrapolate", "model", "text", "--lengths", ""), "lengths must be numbers .*got ''"),
    "max tokens": (
        ("extrapolate", "model", "text", "--lengths", 4, "--max-tokens", -1),
        "max_tokens must be at least 1",
    ),
    "contexts": (("bench", "model", "--contexts", f"4,{2**31}"), "contexts must be at most"),
    "no context": (("bench", "model", "--contexts", "4,0"), "contexts must be at least 1; got 0"),
    "positions": (("show", "model", "--length", 10**6), "length must be at most 4,096"),
    "no name": (("evaluate", "model", ""), "the name of the text is empty"),
    "nor there": (("extrapolate", "model", "", "--lengths", 4), "the name of the text is empty"),
    "a file": (("generate", "text", "--prompt", "a"), "there is no model in text"),
    "no mixer": (("--mixer", "os:path", "evaluate", "model"), "must be a subclass of tnn.mixers.Mixer"),
}


@pytest.mark.parametrize(("arguments", "message"), OPTIONS.values(), ids=OPTIONS)
def test_options(place, arguments, message):
    assert_one_line(invoke(*arguments), message)


OUT = {
    "a format": (("show", "model", "--out", "a.xyz"), r"a\.xyz must end in one of .*\.png"),
    "a folder": (("show", "model", "--out", "model"), "model is a folder; give the name of an image file"),
    "in a file": (("show", "model", "--out", "text/a.png"), "there is no folder text"),
    "refused": (("show", "model", "--out", "/proc/a.png"), r"/proc/a\.png cannot be written"),
    "into a file": (("extrapolate", "model", "text", "--lengths", 4, "--out", "text"), "text is not a folder"),
    "into /proc": (("extrapolate", "model", "text", "--lengths", 4, "--out", "/proc/a"), "/proc/a cannot be written"),
    "trained": (("train", "mini-alm", "--out", "text"), "text is not a folder"),
    "trained in a file": (("train", "mini-alm", "--out", "text/a"), "text/a cannot be written: text is not a folder"),
    "trained at no text": (("train", "mini-alm", "--out", "\udcff"), "cannot be written: its name is not valid UTF-8"),
    "demo": (("demo", "--out", "text"), "text is not a folder"),
    "demo at no text": (("demo", "--out", "\udcff"), "cannot be written: its name is not valid UTF-8"),
    "tokenizer": (("data", "tokenizer", "text", "\udcff"), "cannot be written: its name is not valid UTF-8"),
    "converted": (("convert", "state-space", "model", "/proc/a"), "/proc/a cannot be written"),
}


@pytest.mark.parametrize(("arguments", "message"), OUT.values(), ids=OUT)
def test_the_place_is_checked_before_the_work(place, monkeypatch, arguments, message):
    monkeypatch.setattr("tnn.training.evaluation.load_model", lambda *_: pytest.fail("work began"))
    assert_one_line(invoke(*arguments), message)


@pytest.mark.slow
def test_a_figure_for_a_fifo(place):
    os.mkfifo("pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((place / "pipe").read_bytes()))
    reader.start()
    assert invoke("show", "model", "--length", 4, "--out", "pipe").exit_code == 0
    reader.join(timeout=60)
    assert read[0].startswith(b"\x89PNG")
    assert (place / "pipe").is_fifo()
