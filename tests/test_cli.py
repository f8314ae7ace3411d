"""The command line."""

import re
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

import tnn
from tnn.cli import app

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
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    for arguments in (["--help"], ["convert", "--help"], ["convert", "reference", "--help"]):
        assert invoke(*arguments).exit_code == 0


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
        ("text", "out", "is no whole checkpoint"),
    ],
)
def test_a_mistake_is_one_line(checkpoint, tmp_path, source, target, message):
    (tmp_path / "text").write_text("no tensors")
    done = invoke("convert", "reference", tmp_path / source, tmp_path / target)
    assert (done.exit_code, done.stdout) == (1, "")
    assert re.fullmatch(rf"error: .*{message}.*\n", done.stderr)
    assert not (tmp_path / "out").exists()


def test_as_a_program(tmp_path):
    command = [sys.executable, "-m", "tnn", "convert", "reference", "absent.pt", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"error: .*absent\.pt.*\n", done.stderr)
    assert not list(tmp_path.iterdir())
