"""Models saved by version 0.1 load, and give what they gave."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import tnn

FOLDER = Path(__file__).parent / "saved_by_0_1"
LATER = {"TNNForForecasting", "TNNSeriesModel"}  # heads that 0.1 does not have


@pytest.mark.parametrize("name", sorted(folder.name for folder in FOLDER.iterdir()))
def test_outputs_are_the_same(name, one_thread):
    """But for the rounding of sums, which depends on the CPU and on how they are computed."""
    folder = FOLDER / name
    (architecture,) = json.loads((folder / "config.json").read_text())["architectures"]
    model = getattr(tnn, architecture).from_pretrained(folder).eval()
    example = load_file(folder / "example.safetensors")
    expected = example.pop("expected")
    with torch.no_grad():
        outputs = model(**example)
    result = outputs.logits if "logits" in outputs else outputs.last_hidden_state
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)


def test_every_head_is_here():
    heads = {json.loads((folder / "config.json").read_text())["architectures"][0] for folder in FOLDER.iterdir()}
    assert heads | LATER == {name for name in dir(tnn) if name.startswith("TNN") and not name.endswith("Config")}
