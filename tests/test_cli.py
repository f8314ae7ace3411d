"""The command line."""

import math
import re
import subprocess
import sys

import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from typer.testing import CliRunner

import tnn
from tnn.cli import app
from tnn.data import byte_tokenizer
from tnn.data.tokenizers import train_bpe
from tnn.training.evaluation import load_model
from tnn.training.ranks import rank_table
from tnn.training.recipe import list_recipes

CAUSAL = {
    "decoder.embed_tokens.weight": (30, 8),
    "decoder.output_projection.weight": (30, 8),
    "decoder.layer_norm.weight": (8,),
    "decoder.layer_norm.bias": (8,),
}
LAYER = {
    "self_attn.gtu.u_proj": (16, 8),
    "self_attn.gtu.v_proj": (16, 8),
    "self_attn.gtu.o": (8, 16),
    "self_attn.gtu.toep.rpe.pos_proj": (4, 1),
    "self_attn.gtu.toep.rpe.layers.0.2": (4, 4),
    "self_attn.gtu.toep.rpe.out.2": (16, 4),
    "glu.l1": (8, 8),
    "glu.l2": (8, 8),
    "glu.l3": (8, 8),
}
TRAINED = 30 * 8 + 30 * 8 + 2 * 8 + 2 * sum(rows * columns + rows for rows, columns in LAYER.values())


@pytest.fixture(autouse=True)
def _few_threads(one_thread):
    pass


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TNN_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def checkpoint(tmp_path):
    """A causal model with two layers and an output matrix of its own."""
    state = {name: torch.randn(shape) for name, shape in CAUSAL.items()}
    for n in range(2):
        for name, (rows, columns) in LAYER.items():
            state[f"decoder.layers.{n}.{name}.weight"] = torch.randn(rows, columns)
            state[f"decoder.layers.{n}.{name}.bias"] = torch.randn(rows)
        state[f"decoder.layers.{n}.self_attn.gtu.toep.gamma"] = torch.full((1, 1, 16), 0.95)
    torch.save({"model": state}, tmp_path / "model.pt")
    return tmp_path / "model.pt"


def invoke(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_version():
    done = invoke("--version")
    assert (done.exit_code, done.output) == (0, f"toeplitz-nn {tnn.__version__}\n")


def test_help_is_light():
    code = "import sys, tnn.cli; assert not {'torch', 'transformers', 'tnn.models'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
    groups = {"": ("train", "evaluate", "extrapolate", "generate", "show", "bench", "convert", "data")}
    groups |= {"convert": ("reference", "state-space", "onnx"), "data": ("prepare", "tokenizer")}
    for group, commands in groups.items():
        for command in ("", *commands):
            assert invoke(*filter(None, (group, command)), "--help").exit_code == 0


def test_convert_says_what_it_did(checkpoint, tmp_path):
    out = tmp_path / "out"
    done = invoke("convert", "reference", checkpoint, out)
    counted = TRAINED + 2 * 16  # the paper counts the fixed decay, one value a channel
    assert done.stdout == f"TNNForCausalLM, {counted:,} parameters in 2 layers, decay 0.95: {out}\n"
    assert (done.exit_code, done.stderr) == (0, "")
    assert AutoModelForCausalLM.from_pretrained(out).config.decay == 0.95


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("absent.pt", "out", "No such file or directory: .*absent.pt"),
        ("model.pt", ".", "exists already"),
        ("text", "out", "is not a complete checkpoint"),
    ],
)
def test_a_mistake_is_one_line(checkpoint, tmp_path, source, target, message):
    (tmp_path / "text").write_text("no tensors")
    done = invoke("convert", "reference", tmp_path / source, tmp_path / target)
    assert (done.exit_code, done.stdout) == (1, "")
    assert re.fullmatch(rf"error: .*{message}.*\n", done.stderr)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_as_a_program(tmp_path):
    command = [sys.executable, "-m", "tnn", "convert", "reference", "absent.pt", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"error: .*absent\.pt.*\n", done.stderr)
    assert not list(tmp_path.iterdir())


TEXT = "Das Öl, <s> und\r\nmehr. " * 20


@pytest.fixture
def folder(tmp_path):
    """folder(**changes): where a small causal model of bytes is saved."""

    def make(head=tnn.TNNForCausalLM, **changes):
        sizes = {"vocab_size": 260, "hidden_size": 16, "num_hidden_layers": 2, "rpe_size": 8, "rpe_num_layers": 2}
        options = {"decay": 0.9, "initializer": "torch", "eos_token_id": None}
        model = head(tnn.TNNConfig(**(sizes | options | changes))).eval()
        model.save_pretrained(tmp_path / "model")
        return tmp_path / "model"

    return make


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text").write_bytes(TEXT.encode())
    return tmp_path / "text"


def save_words(folder):
    """A tokenizer of words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    backend = Tokenizer(models.WordLevel({"<unk>": 0, "Das": 1, "und": 2, "</s>": 3}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", eos_token="</s>").save_pretrained(folder)


def greedy(folder, prompt, count):
    """What the model says, by one pass a token."""
    model, ids = AutoModelForCausalLM.from_pretrained(folder), byte_tokenizer()(prompt)["input_ids"]
    with torch.no_grad():
        for _ in range(count):
            ids.append(model(torch.tensor([ids])).logits[0, -1].argmax().item())
    return byte_tokenizer().decode(ids[-count:], skip_special_tokens=True)


@pytest.mark.parametrize("decoder", ["exact", "recompute"])
def test_generate(folder, decoder):
    model = folder()
    done = invoke("generate", model, "--prompt", "Öl", "--max-new-tokens", 30, "--decoder", decoder)
    assert (done.exit_code, done.stdout) == (0, greedy(model, "Öl", 30) + "\n")
    assert re.fullmatch(r"30 tokens, [\d.]+ tokens/s\n", done.stderr)


def test_generate_with_a_state_space(folder, tmp_path):
    model = folder()
    report = r"30 tokens, [\d.]+ tokens/s; \d+, \d+ states per layer, residual at most \d\.\de-\d\d\n"
    arguments = ("--prompt", "Öl", "--max-new-tokens", 30, "--decoder", "state-space", "--tolerance", 1e-3)
    done = invoke("generate", model, *arguments)
    assert (done.exit_code, done.stdout) == (0, greedy(model, "Öl", 30) + "\n")
    assert re.fullmatch(report, done.stderr)
    invoke("convert", "state-space", model, tmp_path / "out", "--tolerance", 1e-3)
    again = invoke("generate", tmp_path / "out", *arguments)
    assert again.stdout == done.stdout
    assert re.fullmatch(report, again.stderr)


def test_generate_draws(folder):
    def draw(*arguments):
        done = invoke("generate", model, "--prompt", "a", "--max-new-tokens", 20, *arguments)
        assert done.exit_code == 0
        return done.stdout

    model = folder()
    assert draw("--temperature", 1) == draw("--temperature", 1, "--seed", 0) != draw("--temperature", 1, "--seed", 1)
    assert draw("--temperature", 1, "--top-k", 1) == draw()


def test_generate_with_the_tokenizer_of_the_model(folder):
    model = folder(vocab_size=4, pad_token_id=None, bos_token_id=None)
    save_words(model)
    done = invoke("generate", model, "--prompt", "Das und Das", "--max-new-tokens", 1, "--temperature", 1)
    assert (done.exit_code, done.stderr) == (0, "1 token\n")
    assert done.stdout.strip() in ("", "Das", "und")  # <unk> is not text


def evaluated(done):
    assert (done.exit_code, done.stderr) == (0, "")
    return dict(re.split(r" {2,}", line, maxsplit=1) for line in done.stdout.splitlines() if line[0] != " ")


def mean_loss(folder, ids):
    with torch.no_grad():
        return F.cross_entropy(AutoModelForCausalLM.from_pretrained(folder)(ids[None]).logits[0, :-1], ids[1:]).item()


def test_evaluate(folder, text):
    """A single file is one split; the first token of a block is predicted from the last of the block before."""
    model, ids = folder(), torch.tensor([2, *(byte + 4 for byte in TEXT.encode()[:300])])
    blocks = [mean_loss(model, ids[i : i + 101]) for i in (0, 100, 200)]
    text.write_bytes(TEXT.encode()[:300])
    values = evaluated(invoke("evaluate", model, text, "--length", 100))
    assert values["tokens"] == "300 predicted"
    assert values["loss"] == f"{sum(blocks) / 3:.4f} nats per token"
    assert values["protocol"].startswith("blocks of 100 tokens")


@pytest.mark.parametrize("chunk", [7, 4096])
def test_evaluate_a_stream(folder, text, chunk):
    model, ids = folder(), torch.tensor([2, *(byte + 4 for byte in TEXT.encode())])
    values = evaluated(invoke("evaluate", model, text, "--stream", "--chunk", chunk))
    loss = mean_loss(model, ids)
    assert values["tokens"] == f"{len(ids) - 1} predicted"
    assert float(values["loss"].split()[0]) == pytest.approx(loss, abs=1e-4)
    assert float(values["perplexity"].split()[0]) == pytest.approx(math.exp(loss), rel=1e-4)
    assert float(values["bits per byte"]) == pytest.approx(loss / math.log(2), abs=1e-4)
    assert values["protocol"].startswith(f"one text in chunks of {chunk} tokens")


def test_evaluate_with_the_tokenizer_of_the_model(folder, text):
    model = folder(vocab_size=4, pad_token_id=None, bos_token_id=None)
    save_words(model)
    values = evaluated(invoke("evaluate", model, text, "--stream"))
    tokens = len(TEXT.split())  # this tokenizer drops line ends
    assert values["tokens"] == f"{tokens} predicted"
    bits = float(values["loss"].split()[0]) / math.log(2) * tokens / len(TEXT.encode())
    assert float(values["bits per byte"]) == pytest.approx(bits, abs=1e-4)


@pytest.mark.slow
def test_evaluate_a_file_of_wikitext(folder, tmp_path):
    """The same tokens as from its folder."""
    model, source = folder(vocab_size=270), tmp_path / "wikitext"
    train_bpe(["a few words and more\n"] * 20, 270).save_pretrained(model)
    source.mkdir()
    (source / "wiki.test.tokens").write_text(" a few words \n and more \n" * 20)
    complete = evaluated(invoke("evaluate", model, source, "--length", 50))
    assert evaluated(invoke("evaluate", model, source / "wiki.test.tokens", "--length", 50)) == complete


def test_evaluate_a_masked_model(folder, text):
    model = folder(tnn.TNNForMaskedLM, is_decoder=False, vocab_size=261)
    byte_tokenizer(mask=True).save_pretrained(model)
    values = evaluated(invoke("evaluate", model, text, "--length", 50))
    assert values["protocol"].startswith("15% of the tokens of blocks of 50")
    assert float(values["perplexity"].split()[0]) > 1
    assert_one_line(invoke("evaluate", model, text, "--stream"), "masked language models .* --stream does not apply")


def test_extrapolate(folder, text, tmp_path):
    model, out = folder(), tmp_path / "out"
    done = invoke("extrapolate", model, text, "--lengths", "50,100", "--out", out)
    assert done.exit_code == 0
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()]
    assert [row[0] for row in rows[2:]] == ["50", "100", "Avg"]
    single = evaluated(invoke("evaluate", model, text, "--length", 50))
    assert rows[2][1] == single["perplexity"].split()[0]
    assert sorted(path.name for path in out.iterdir()) == [f"extrapolation.{kind}" for kind in ("json", "md", "png")]


@pytest.mark.slow
def test_show(folder, tmp_path):
    model = folder()
    *table, path = invoke("show", model).stdout.splitlines()
    assert path == str(model / "kernels.png")
    assert (model / "kernels.png").read_bytes().startswith(b"\x89PNG")
    assert table == rank_table(load_model(model)).splitlines()
    assert [line.split()[:2] for line in table[1:-1]] == [["layer", "1"], ["layer", "2"]]
    assert invoke("show", model, "--out", tmp_path / "other.png", "--length", 20).exit_code == 0
    assert (tmp_path / "other.png").is_file()


@pytest.mark.slow
def test_show_a_hybrid(folder):
    first, second, meaning = invoke("show", folder(mixer=["tnn", "transformer"]), "--length", 8).stdout.splitlines()[
        1:4
    ]
    assert re.fullmatch(r"layer 1 +\d+ +\d+( +\d/\d/\d) +0/0/0 +0/0/0", first)
    assert re.fullmatch("layer 2, transformer +no Toeplitz kernel", second)
    assert meaning.endswith("; lags up to 7")


@pytest.mark.slow
def test_show_a_preset(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke("show", "mini-lra", "--length", 20)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.endswith("mini-lra-kernels.png\n")
    assert (tmp_path / "mini-lra-kernels.png").is_file()
    assert invoke("show", "mini-lra", "--length", 20).stdout == done.stdout  # the same weights again
    folder().rename("mini-lra")  # a folder comes first
    assert invoke("show", "mini-lra", "--length", 20).stdout.endswith("mini-lra/kernels.png\n")


@pytest.mark.parametrize("decay", [0.9, [0.5, 0.9]], ids=["one decay", "a spread"])
def test_bench(folder, decay):
    done = invoke("bench", folder(decay=decay), "--contexts", "8,20", "--new-tokens", 3)
    header, *rows = [line.split() for line in done.stdout.splitlines()]
    assert header == ["context", "exact", "state-space", "recompute"]
    assert [row[0] for row in rows] == ["8", "20"]
    assert all(float(value) > 0 for row in rows for value in row[1:])


def test_bench_leaves_out_what_does_not_apply(folder, tmp_path):
    invoke("convert", "state-space", folder(), tmp_path / "states", "--tolerance", 1e-2)
    for model, decoders in ((tmp_path / "states", ["state-space"]), (folder(decay=1.0), ["exact"])):
        done = invoke("bench", model, "--contexts", "8", "--new-tokens", 2)
        assert done.stdout.splitlines()[0].split() == ["context", *decoders, "recompute"]
    done = invoke("bench", folder(rpe_input="normalized"), "--contexts", "8", "--new-tokens", 2)
    assert done.stdout.splitlines()[0].split() == ["context", "recompute"]
    assert done.stderr == "recompute only: this model has no cache\n"


def test_data_prepare_and_tokenizer(text, tmp_path):
    done = invoke("data", "tokenizer", text, tmp_path / "bpe", "--size", 270)
    assert (done.exit_code, done.stdout) == (0, f"270 tokens: {tmp_path / 'bpe'}\n")
    done = invoke("data", "prepare", text, "--tokenizer", tmp_path / "bpe", "--cache", tmp_path / "cache")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["train", "validation", "test"]
    assert sum(int(line.split()[5].replace(",", "")) for line in done.stdout.splitlines()) == len(TEXT.encode())
    assert invoke("data", "tokenizer", text, tmp_path / "bpe").exit_code == 1


@pytest.mark.slow
def test_train_then_evaluate_what_was_trained(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text.write_bytes(TEXT.encode() * 20)
    small = ["model.hidden_size=16", "model.num_hidden_layers=1", "data.length=32", "training.batch_size=2"]
    changes = [f"data.corpus={text}", *small, "training.steps=3", "training.log_every=1", "model.decay=0.9"]
    done = invoke("train", "mini-alm", *changes, "--out", "run")
    assert done.exit_code == 0, done.stderr
    assert "updates          3\n" in done.stdout
    assert evaluated(invoke("evaluate", "run"))["protocol"].startswith("blocks of 32 tokens")
    assert evaluated(invoke("evaluate", "run", "--split", "validation"))
    assert invoke("extrapolate", "run", "--lengths", "32,64").exit_code == 0
    assert (tmp_path / "run" / "extrapolation.png").is_file()
    assert invoke("generate", "run", "--prompt", "a").exit_code == 0
    assert_one_line(invoke("train", "mini-alm", *changes, "--out", "run"), "exists already: continue it with --resume")
    assert invoke("train", "mini-alm", *changes, "--out", "run", "--resume").stdout == "run is finished already\n"


def test_train_names_its_recipes():
    names = [line.split()[0] for line in invoke("train", "--list").stdout.splitlines()]
    assert names == list_recipes()
    assert_one_line(invoke("train"), "give a recipe: .*mini-alm")


def test_convert_to_a_state_space(folder, tmp_path):
    model, out = folder(), tmp_path / "out"
    byte_tokenizer().save_pretrained(model)
    done = invoke("convert", "state-space", model, out, "--tolerance", 1e-2)
    assert (done.exit_code, done.stderr) == (0, "")
    header, *rows = [line.split() for line in done.stdout.splitlines()]
    assert header == ["layer", "states", "history", "residual", "bound"]
    config = AutoModelForCausalLM.from_pretrained(out).config
    assert [[int(r[0]), int(r[1])] for r in rows] == [[x["layer"], x["states"]] for x in config.state_space]
    assert all(int(r[1]) < int(r[2]) and float(r[3]) <= 1e-2 for r in rows)
    assert len(AutoTokenizer.from_pretrained(out)) == 260
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "out"]


def test_a_state_space_larger_than_the_history_is_not_made(folder, tmp_path):
    model = folder(decay=0.3, rpe_activation="sin", rpe_size=64)
    byte_tokenizer().save_pretrained(model)
    made = invoke("convert", "state-space", model, tmp_path / "out", "--tolerance", 1e-6)
    assert_one_line(made, r"layer 0: the exact history has \d+ inputs, and the best of .* decode exactly, or allow")
    assert not (tmp_path / "out").exists()
    options = ("--prompt", "a", "--max-new-tokens", 5)
    exact = invoke("generate", model, *options)
    done = invoke("generate", model, *options, "--decoder", "state-space", "--tolerance", 1e-6)
    assert (done.exit_code, done.stdout) == (0, exact.stdout)
    assert "decoding exactly" in done.stderr.splitlines()[0]


def test_hybrids_are_converted_where_they_can_be(folder, tmp_path):
    model = folder(decay=0.9, mixer=["tnn", "attention"], num_hidden_layers=2)
    byte_tokenizer().save_pretrained(model)
    done = invoke("convert", "state-space", model, tmp_path / "out", "--tolerance", 1e-2)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["layer", "0"]
    assert "states per layer" in invoke("generate", tmp_path / "out", "--prompt", "a").stderr


@pytest.mark.slow
def test_convert_to_onnx(folder, tmp_path):
    model, out = folder(tnn.TNNForMaskedLM, is_decoder=False), tmp_path / "model.onnx"
    done = invoke("convert", "onnx", model, out, "--no-mask", "--length", 12)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"TNNForMaskedLM, {out.stat().st_size / 1e6:.1f} MB: {out}\n"
    inputs = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"]).get_inputs()
    assert [(value.name, value.shape) for value in inputs] == [("input_ids", ["batch", 12])]


BYTES = ("--prompt", "a")
MISTAKES = {
    "no folder": ({}, ("generate", "absent", *BYTES), "there is no model in .*absent"),
    "no tokenizer": ({"vocab_size": 300}, ("generate", "model", *BYTES), "no tokenizer files; .* this model has 300"),
    "no prompt": ({}, ("generate", "model", "--prompt", ""), "prompt must have at least one token"),
    "bad prompt": ({}, ("generate", "model", "--prompt", "\udcff"), "can't encode"),
    "tokens": ({}, ("generate", "model", *BYTES, "--max-new-tokens", 0), "max_new_tokens must be at least 1; got 0"),
    "temperature": ({}, ("generate", "model", *BYTES, "--temperature", -1), "temperature must be .* 0 or more"),
    "top k": ({}, ("generate", "model", *BYTES, "--top-k", 5), "top_k needs a temperature above 0"),
    "cache": ({"rpe_input": "normalized"}, ("generate", "model", *BYTES), "use --decoder recompute"),
    "no states": (
        {"decay": 1.0},
        ("generate", "model", *BYTES, "--decoder", "state-space"),
        "decay must be below 1",
    ),
    "no text": ({}, ("evaluate", "model", "absent"), "no text at absent"),
    "nothing given": ({}, ("evaluate", "model"), "give a text: model has no recipe that names one"),
    "empty": ({}, ("evaluate", "model", "empty"), "empty"),
    "no UTF-8": ({}, ("evaluate", "model", "latin", "--stream"), "latin is not a UTF-8 text"),
    "chunk": ({}, ("evaluate", "model", "text", "--stream", "--chunk", 0), "chunk must be at least 1; got 0"),
    "length": ({}, ("evaluate", "model", "text", "--length", 0), "length must be at least 1; got 0"),
    "lengths": ({}, ("extrapolate", "model", "text", "--lengths", "a"), "lengths must be numbers .*got 'a'"),
    "long": ({}, ("extrapolate", "model", "text"), "lengths must be at most the length of the text"),
    "no place": ({}, ("show", "model", "--out", "absent/a.png"), "there is no folder absent"),
    "nothing to show": ({}, ("show", "absent"), r"there is no model in absent: .*, or a preset; choose from tnn\."),
    "nearly a preset": ({}, ("show", "mini-aml"), "there is no model in mini-aml: .* did you mean 'mini-alm'"),
    "no corpus": ({}, ("data", "prepare", "absent"), "no text at absent"),
    "no recipe": ({}, ("train", "mini-al"), "no recipe 'mini-al', and no .yaml file, .*; did you mean 'mini-alm'"),
    "no chunks": (
        {"rpe_input": "normalized"},
        ("evaluate", "model", "text", "--stream"),
        "cannot run in chunks",
    ),
    "tolerance": ({}, ("convert", "state-space", "model", "out", "--tolerance", -1), "tolerance must be .*got -1"),
    "few states": (
        {},
        ("convert", "state-space", "model", "out", "--tolerance", 1e-9, "--max-states", 2),
        "up to 2 states",
    ),
    "no decay": ({"decay": 1.0}, ("convert", "state-space", "model", "out"), "decay must be below 1"),
    "no source": ({}, ("convert", "state-space", "absent", "out"), "there is no model in .*absent"),
    "exists": ({}, ("convert", "state-space", "model", "text"), "exists already"),
    "no place for a file": (
        {},
        ("convert", "onnx", "absent", "absent/out"),
        "there is no folder absent to put out into",
    ),
    "no onnx": (
        {"rpe_input": "normalized"},
        ("convert", "onnx", "model", "out"),
        "cannot be exported .* without a mask",
    ),
}


@pytest.mark.parametrize(("changes", "arguments", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(folder, text, tmp_path, monkeypatch, changes, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").touch()
    (tmp_path / "latin").write_bytes(b"abc\xff")
    folder(**changes)
    assert_one_line(invoke(*arguments), message)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    [("generate", "model", *BYTES), ("extrapolate", "model", "text"), ("convert", "state-space", "model", "out")],
    ids=lambda arguments: arguments[0],
)
def test_a_model_that_is_not_causal(folder, text, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    folder(tnn.TNNForMaskedLM, is_decoder=False)
    assert_one_line(invoke(*arguments), "must hold a causal language model; got a TNNForMaskedLM")


def test_a_configuration_of_the_wrong_type(folder):
    path = folder() / "config.json"
    path.write_text(re.sub(r'"hidden_size": \d+', '"hidden_size": "16"', path.read_text()))
    assert_one_line(invoke("generate", path.parent, *BYTES), r"config\.json: .*hidden_size.* integer; got '16'")


def assert_one_line(done, message):
    assert (done.exit_code, done.stdout) == (1, "")
    assert re.fullmatch(rf"error: .*{message}.*\n", done.stderr)
