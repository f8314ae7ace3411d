"""One training step of the recommended TNN, of its rivals and of TNN as published, at the size of the enwik8 study.

    python -m benchmarks.variants        writes results/variants.md

All take turns in one run; times are medians. Ratios are to TNN as published.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks._timing import environment, interleaved_medians
from tnn import TNNForCausalLM, load_preset

BATCH, LENGTH = 8, 512
RESULTS = Path(__file__).parent.parent / "results"
PUBLISHED = "TNN as published"
SINE = {"rpe_activation": "sin"}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    PUBLISHED: ("mini-alm", {}),
    "sine encoder, decay 0.9": ("mini-alm", {**SINE, "decay": 0.9}),
    "sine encoder, learned decays": ("mini-alm", {**SINE, "decay": [0.5, 0.97], "decay_mode": "learned"}),
    "short convolution of 4 positions": ("mini-alm", {"short_convolution": 4}),
    "norm after the operator": ("mini-alm", {"operator_norm": True}),
    "input gate": ("mini-alm", {"input_gate": True, "gtu_expansion": 1.5}),
    "recommended (tnn-mini)": ("tnn-mini", {}),
    "gss": ("mini-alm-gss", {}),
    "s4": ("mini-alm-s4", {}),
}


def make_step(preset: str, changes: dict[str, Any]) -> Callable[[], None]:
    """Forward, backward and AdamW of a batch."""
    torch.manual_seed(0)
    model = TNNForCausalLM(load_preset(preset, **{"initializer": "torch", **changes}))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(4, model.config.vocab_size, (BATCH, LENGTH))

    def step() -> None:
        optimizer.zero_grad()
        model(ids, labels=ids).loss.backward()
        optimizer.step()

    return step


def main() -> None:
    steps = {name: make_step(*model) for name, model in MODELS.items()}
    times = interleaved_medians(steps)
    lines = ["| model | ms per step | relative to TNN as published |", "|---|---:|---:|"]
    lines += [f"| {name} | {1e3 * time:.0f} | {time / times[PUBLISHED]:.2f} |" for name, time in times.items()]
    text = "\n".join(
        [
            "# A training step of each variant",
            "",
            f"`python -m benchmarks.variants`, {environment()}.",
            f"Forward, backward and AdamW of a batch of {BATCH} x {LENGTH} bytes, about 0.7M parameters each;",
            "medians of steps that take turns.",
            "",
            *lines,
            "",
        ]
    )
    (RESULTS / "variants.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
