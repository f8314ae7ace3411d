"""README and documents: every example in Python and every command is run, the trainings at a small size.

Commands run in the order in which a reader meets them, because later ones use what earlier ones made: those of the
README in an empty folder that holds nothing but texts, those of the other documents in one folder.
What an example prints is compared with the ```text block that follows it.
"""

import importlib.util
import io
import json
import re
import shlex
import shutil
import sysconfig
from contextlib import redirect_stdout
from doctest import ELLIPSIS, OutputChecker
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from paper.__main__ import app as paper_app
from paper.catalogue import EXPERIMENTS
from paper.harness.trial import Options
from tnn.cli import app
from tnn.data.tokenizers import _byte_characters
from tnn.layers import kernel_rank
from tnn.mixers import registry
from tnn.training.choice import choose
from tnn.training.ranks import rank_table
from tnn.training.recipe import load_recipe
from tnn.training.tasks.setup import model_at_start

ROOT = Path(__file__).parent.parent
FORM = "model-card.md"  # to be filled in
DOCUMENTS = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md") if path.name != FORM)]
TUTORIAL = "docs/your-text.md"
ORDER = [
    "docs/training.md",
    "docs/your-table.md",
    "docs/your-labels.md",
    "docs/distributed.md",
    "docs/data.md",
    "docs/evaluation.md",
    "docs/kernels.md",
    "docs/generation.md",
    "docs/models.md",
    "docs/lra.md",
    "docs/images.md",
    "docs/your-series.md",
    "docs/reproduction.md",
]
ELSEWHERE = {  # what other tests run
    "make": "continuous integration runs make test; test_demo runs what make demo runs",
    "pip": "test_package installs",
}
LAUNCHERS = ("torchrun", "accelerate")  # test_distributed runs those that two processes on one machine can
TINY = ["training.log_every=1", "training.evaluate_every=2", "training.save_every=2", "training.batch_size=4"]
TINY += ["training.evaluate_examples=8"]
TINY_MODEL = ["model.hidden_size=16", "model.num_hidden_layers=1", "model.rpe_size=8", "model.decay=0.9"]
TINY_STEPS = ["training.steps=2", "training.warmup_steps=1", "training.micro_batch_size=2"]
FEW = {"listops": ["--train", "8", "--val", "4", "--test", "4"], "pathfinder": ["--count", "20"]}  # the last counts


def blocks(document, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


def commands(document):
    lines = "\n".join(blocks(document, "sh")).replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def examples(document):
    """The Python examples in order, each with what it prints as the document shows it; None if it does not."""
    return re.findall(r"```python\n(.*?)```\n(?:```text\n(.*?)```)?", (ROOT / document).read_text(), re.DOTALL)


@pytest.mark.slow
@pytest.mark.usefixtures("_own_registrations")
@pytest.mark.parametrize("document", [document for document in DOCUMENTS if blocks(document, "python")])
def test_python(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "document"}
    for code, shown in examples(document):
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(code, document, "exec"), names)
        if shown:
            same = OutputChecker().check_output(shown, printed.getvalue(), ELLIPSIS)
            assert same, f"{document} shows\n{shown}but its example prints\n{printed.getvalue()}"


def test_readme_shows_what_its_example_prints():
    assert [bool(shown) for _, shown in examples("README.md")] == [True]


@pytest.fixture
def _own_registrations(monkeypatch):
    """What an example registers is forgotten after it: other tests share the process."""
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))


@pytest.fixture
def empty_folder(tmp_path, monkeypatch, one_thread):
    """An empty folder, with a cache of its own and, as the standard library, some of its modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TNN_CACHE", str(tmp_path / "cache"))
    modules = tmp_path / "stdlib"
    modules.mkdir()
    for name in ("argparse", "ast", "datetime", "inspect", "tarfile", "typing"):  # about 500,000 bytes
        shutil.copy(Path(sysconfig.get_path("stdlib")) / f"{name}.py", modules)
    monkeypatch.setattr("tnn.data.corpus.sysconfig", SimpleNamespace(get_path=lambda name: str(modules)))
    return tmp_path


@pytest.fixture
def home(empty_folder):
    """A folder with small data under the names that the documents use."""
    line = " the diagonal of a matrix , and all the lines beside it , say everything . \n"
    for folder, kind in (("wikitext-2", "tokens"), ("wikitext-103", "raw")):
        Path(folder).mkdir()
        for split, count in (("train", 100), ("valid", 20), ("test", 100)):
            Path(folder, f"wiki.{split}.{kind}").write_text(line * count)
    shutil.copytree("wikitext-2", "data/wikitext-2")
    Path("letter.txt").write_text(line)
    shutil.copytree("stdlib", "my-texts")
    Path("gpt2-bpe").mkdir()
    tokens = ", ".join(f'"{_escape(c)}": {i}' for i, c in enumerate(_byte_characters()))
    Path("gpt2-bpe", "encoder.json").write_text(f'{{{tokens}, "<|endoftext|>": 256}}', encoding="utf-8")
    Path("gpt2-bpe", "vocab.bpe").write_text("#version: 0.2\n")
    rows = [(f"sentence number {i}", i % 2) for i in range(8)]
    columns = {
        "CoLA": ("", "x\t{1}\t\t{0}\n"),
        "SST-2": ("sentence\tlabel\n", "{0}\t{1}\n"),
        "MRPC": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n", "{1}\t1\t2\t{0}\t{0}\n"),
    }
    for folder, (header, row) in columns.items():
        Path("glue", folder).mkdir(parents=True)
        for split in ("train", "dev"):
            Path("glue", folder, f"{split}.tsv").write_text(header + "".join(row.format(*r) for r in rows))
    Path("mnist").mkdir()
    for split, count in (("train", 20), ("test", 5)):
        np.save(f"mnist/x_{split}.npy", np.arange(count * 784, dtype=np.uint8).reshape(count, 28, 28))
        np.save(f"mnist/y_{split}.npy", np.arange(count) % 10 if count == 20 else np.arange(count))
    _write_tables()
    Path("my-recipe.yaml").write_text(blocks("docs/training.md", "yaml")[0])
    torch.save({"model": _checkpoint()}, "checkpoint_best.pt")
    tables: dict[str, object] = {}
    for code in blocks("docs/your-series.md", "python")[:2]:  # it makes the tables that its commands read
        exec(code, tables)
    return empty_folder


def _write_tables():
    """Of texts with labels, and of words."""
    reviews = [f'"film {k}, {("long", "dull")[k % 2]}",{("good", "bad")[k % 2]}' for k in range(40)]
    for name in ("reviews.csv", "new.csv", "other.csv"):
        Path(name).write_text("\n".join(["text,label", *reviews]))
    films = [{"text": f"film {k}", "genres": ["war", "sea"][: k % 3], "stars": k % 5} for k in range(40)]
    Path("films.jsonl").write_text("\n".join(map(json.dumps, films)))
    sentences = "\n".join(f"film{k} O\nin O\nNew B-LOC\nYork I-LOC\n" for k in range(40))
    for name in ("names.conll", "new.conll", "other.conll"):
        Path(name).write_text(sentences)
    marked = [{"body": f"film {k}", "spans": [{"start": 0, "end": 4, "label": "X"}][: k % 2]} for k in range(40)]
    Path("marked.jsonl").write_text("\n".join(map(json.dumps, marked)))
    words = [{"tokens": ["film", str(k)], "pos": ["NOUN", "NUM"]} for k in range(40)]
    Path("words.jsonl").write_text("\n".join(map(json.dumps, words)))
    Path("new.jsonl").write_text("\n".join(json.dumps({"text": f"film {k}"}) for k in range(3)))


def _escape(character):
    return {'"': '\\"', "\\": "\\\\"}.get(character, character)


def _checkpoint():
    """As fairseq would have saved a causal model of one layer."""
    layer = {"self_attn.gtu.u_proj": (16, 8), "self_attn.gtu.v_proj": (16, 8), "self_attn.gtu.o": (8, 16)}
    layer |= {"self_attn.gtu.toep.rpe.pos_proj": (4, 1), "self_attn.gtu.toep.rpe.out.2": (16, 4)}
    layer |= {"self_attn.gtu.toep.rpe.layers.0.2": (4, 4), "glu.l1": (8, 8), "glu.l2": (8, 8), "glu.l3": (8, 8)}
    state = {"decoder.embed_tokens.weight": torch.randn(30, 8), "decoder.output_projection.weight": torch.randn(30, 8)}
    state |= {"decoder.layer_norm.weight": torch.ones(8), "decoder.layer_norm.bias": torch.zeros(8)}
    for name, (rows, columns) in layer.items():
        state[f"decoder.layers.0.{name}.weight"] = torch.randn(rows, columns)
        state[f"decoder.layers.0.{name}.bias"] = torch.randn(rows)
    return state | {"decoder.layers.0.self_attn.gtu.toep.gamma": torch.full((1, 1, 16), 0.95)}


def shrunk(words):
    """The same command, with a small model and few steps where it trains, and few examples where it makes them."""
    if words[1:3] == ["data", "generate"]:
        return [*words, *FEW[words[3]]]
    if words[1:3] == ["-m", "paper"]:
        return [*words, "--steps", "2", "--seeds", "1"] if "--methods" in words else words
    if words[1] != "train" or {"--list", "--show", "--init"} & {*words}:
        return words
    if Path(words[2], "recipe.yaml").is_file():  # a run, which is small already
        return ["training.steps=4" if word.startswith("training.steps=") else word for word in words]
    recipe = choose(words[2]).recipe
    task, sizes = recipe.task, [] if recipe.model.start_from else TINY_MODEL
    changes = [*TINY, "training.epochs=1"] if task == "glue" else [*TINY, *sizes, *TINY_STEPS]
    if task in ("causal-lm", "masked-lm"):
        changes.append("data.length=64")
    last = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
    return [*words[:last], *changes, *words[last:]]


def script(name):
    """A script of docs/, as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(document, words):
    """One command, at a small size; returns what it printed."""
    done = CliRunner().invoke(app, shrunk(words)[1:])
    assert done.exit_code == 0, f"{document}: {shlex.join(shrunk(words))}: {done.output} {done.exception}"
    return done.stdout


@pytest.mark.slow
def test_commands_of_the_readme(empty_folder):
    """In an empty folder, from a folder of texts to generated text."""
    Path("my-texts").mkdir()
    for path in (empty_folder / "stdlib").iterdir():
        shutil.copy(path, Path("my-texts", f"{path.stem}.txt"))
    printed = [run("README.md", words) for words in commands("README.md") if words[0] not in ELSEWHERE]
    count, trained, evaluated, extrapolated, generated = printed
    assert [line.split()[0] for line in count.splitlines()] == ["train", "validation", "test"]
    assert "runs/mine" in trained
    assert re.search(r"^perplexity +[\d.]+ per token$", evaluated, re.MULTILINE)
    assert re.findall(r"^\| +(\d+) \|", extrapolated, re.MULTILINE) == ["512", "2048", "4096"]
    assert Path("runs/mine/extrapolation.png").stat().st_size > 10_000
    assert generated.strip()


@pytest.mark.slow
def test_commands_of_your_text(empty_folder):
    """From the first to the last, in a folder that holds nothing but texts and a table."""
    shutil.copytree("stdlib", "my-texts")
    rows = [f'{i},"I liked it.\nIt has {i} pages, and ""a"" title."\n' for i in range(2000)]
    Path("reviews.csv").write_text("id,review\n" + "".join(rows))
    printed = [run(TUTORIAL, words) for words in commands(TUTORIAL)]
    counts = [[line.split()[0] for line in text.splitlines()] for text in (printed[0], printed[4], printed[7])]
    assert counts == [["train", "validation", "test"]] * 3
    assert "runs/mine" in printed[1]
    assert re.search(r"^perplexity +[\d.]+ per token$", printed[2], re.MULTILINE)
    assert printed[3].strip()
    assert printed[6].strip()


@pytest.mark.slow
def test_commands(home, monkeypatch):
    for module in ("paper.catalogue", "paper.report.summary"):  # tests of their own plan the other experiments
        monkeypatch.setattr(f"{module}.EXPERIMENTS", {"alm": EXPERIMENTS["alm"]})
    with_commands = {document for document in DOCUMENTS if any(words[0] == "tnn" for words in commands(document))}
    assert with_commands <= {"README.md", TUTORIAL, *ORDER}
    for document in ORDER:
        for words in commands(document):
            if words[0] in ELSEWHERE:
                continue
            if words[0] in LAUNCHERS:
                recipe, *changes = [
                    word for word in words[words.index("train") + 1 :] if not word.startswith(("-", "/"))
                ]
                load_recipe(recipe, changes)
                continue
            if words[:3] == ["python", "-m", "paper"]:
                if "paper" in words[3:]:  # the scale: a matter of days
                    assert EXPERIMENTS[words[3]].plan(Options(scale="paper"))
                    continue
                done = CliRunner().invoke(paper_app, shrunk(words)[3:])
                assert done.exit_code == 0, f"{document}: {shlex.join(words)}: {done.output} {done.exception}"
                continue
            if words[:2] == ["python", "docs/draw_kernels.py"]:
                script("draw_kernels").main(words[2:])
                continue
            assert words[0] == "tnn", f"{document}: nothing runs {shlex.join(words)}"
            if words[1] == "train" and not {"--resume", "--out"} & set(words):
                shutil.rmtree(Path("runs", words[2]), ignore_errors=True)  # of another document
            run(document, words)
    assert {path.name for path in (home / "runs").iterdir()} >= {
        "mini-alm",
        "wikitext103-alm",
        "glue-cola",
        "mini-glue",
        "mini-listops",
        "mini-pathfinder",
        "mini-mnist",
    }


def test_links_lead_somewhere():
    for document in DOCUMENTS:
        text = (ROOT / document).read_text()
        for target in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", text):
            assert ((ROOT / document).parent / target).exists(), f"{document} points to {target}"


def test_picture_shows_the_records():
    """The picture of the README: its script draws the numbers of the table, and what it drew is committed and small."""
    table = (ROOT / "results" / "mini" / "extrapolation.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")]
    head, first, last = (next(row for row in rows if row[0] == name) for name in ("length", "512", "14,336"))
    lines = script("draw_extrapolation").draw().axes[0].lines
    for line, method in zip(lines, ("transformer", "tnn"), strict=False):
        shown = [float(row[head.index(method)]) for row in (first, last)]
        assert line.get_ydata()[[0, -1]] == pytest.approx(shown, rel=5e-3)
        assert [line.get_xdata()[i] for i in (0, -1)] == [512, 14336]
    assert 10_000 < (ROOT / "docs" / "extrapolation.png").stat().st_size < 100_000


@pytest.mark.slow
def test_kernels_shows_what_its_commands_print():
    text, drawing = (ROOT / "docs" / "kernels.md").read_text(), script("draw_kernels")
    assert rank_table(model_at_start("mini-alm")) in text
    assert drawing.table() in text
    drawn = [drawing.at_start(name) for name in drawing.DRAWN]
    axes = drawing.draw(drawn).axes
    for panel, start in zip(axes[-3:], (0, 16, 64), strict=True):
        for line, kernels in zip(panel.lines, drawn, strict=False):
            left_out = line.get_ydata()
            ranks = tuple(int((left_out > tolerance).sum()) for tolerance in (1e-1, 1e-2, 1e-3))
            assert ranks == kernel_rank(kernels.matrix[start:])
    assert 10_000 < (ROOT / "docs" / "kernels.png").stat().st_size < 200_000
