"""Models saved by version 0.1 load, and give what they gave."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import tnn

FOLDER = Path(__file__).parent / "saved_by_0_1"


@pytest.mark.parametrize("name", sorted(folder.name for folder in FOLDER.iterdir()))
def test_outputs_are_the_same(name, one_thread):
    """Bit for bit on a CPU with the instructions of the one that saved them; elsewhere sums are rounded otherwise."""
    folder = FOLDER / name
    (architecture,) = json.loads((folder / "config.json").read_text())["architectures"]
    model = getattr(tnn, architecture).from_pretrained(folder).eval()
    example = load_file(folder / "example.safetensors")
    expected = example.pop("expected")
    with torch.no_grad():
        outputs = model(**example)
    result = outputs.logits if "logits" in outputs else outputs.last_hidden_state
    with safe_open(folder / "example.safetensors", "pt") as file:
        same_cpu = file.metadata()["cpu"] == torch.backends.cpu.get_cpu_capability()
    if same_cpu and _vendor() == "AuthenticAMD":
        assert torch.equal(result, expected)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)


def test_every_head_is_here():
    heads = {json.loads((folder / "config.json").read_text())["architectures"][0] for folder in FOLDER.iterdir()}
    assert heads == {name for name in dir(tnn) if name.startswith("TNN") and not name.endswith("Config")}


def _vendor():
    """Of the CPU, where Linux tells: libraries choose their kernels by it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("vendor_id")), "")
