"""Models saved by version 0.1 load, and give what they gave."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import tnn

FOLDER = Path(__file__).parent / "saved_by_0_1"
SAVED_ON = "AuthenticAMD 26 2"  # vendor, family and model of the CPU: libraries choose their kernels by these


@pytest.mark.parametrize("name", sorted(folder.name for folder in FOLDER.iterdir()))
def test_outputs_are_the_same(name, one_thread):
    """Bit for bit on a CPU of the model that saved them; on others, sums may be rounded differently."""
    folder = FOLDER / name
    (architecture,) = json.loads((folder / "config.json").read_text())["architectures"]
    model = getattr(tnn, architecture).from_pretrained(folder).eval()
    example = load_file(folder / "example.safetensors")
    expected = example.pop("expected")
    with torch.no_grad():
        outputs = model(**example)
    result = outputs.logits if "logits" in outputs else outputs.last_hidden_state
    if cpu() == SAVED_ON:
        assert torch.equal(result, expected)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)


def test_every_head_is_here():
    heads = {json.loads((folder / "config.json").read_text())["architectures"][0] for folder in FOLDER.iterdir()}
    assert heads == {name for name in dir(tnn) if name.startswith("TNN") and not name.endswith("Config")}


def cpu():
    """As in SAVED_ON, where Linux tells it."""
    path = Path("/proc/cpuinfo")
    lines = [line.split(":") for line in path.read_text().splitlines()] if path.exists() else []
    facts = {key.strip(): value.strip() for key, *(value, *_) in (line for line in lines if len(line) > 1)}
    return " ".join(facts.get(key, "") for key in ("vendor_id", "cpu family", "model"))
