"""What fewer passes over memory save: norm and short product of the native kernel, batch norm of padded rows.

    python -m benchmarks.passes        writes results/passes.md

Forward and backward of each; all take turns in one run, and times are medians.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks._timing import environment, interleaved_medians
from tnn.layers.norm import BatchNorm, _by_steps, simple_rms_norm
from tnn.layers.sequences import Sequences
from tnn.ops import fft, native, toeplitz_matmul

ROWS, LENGTH, CHANNELS, TAPS = 8, 512, 256, 4  # the size of the enwik8 study, inside a GTU
EPS = 1e-8
RESULTS = Path(__file__).parent.parent / "results"


def forward_and_backward(run: Callable[..., Tensor], *inputs: Tensor) -> Callable[[], None]:
    leaves = [each.clone().requires_grad_() for each in inputs]
    grad = torch.randn(ROWS, LENGTH, CHANNELS)

    def step() -> None:
        torch.autograd.grad(run(*leaves), leaves, grad)

    return step


def candidates() -> dict[str, tuple[Callable[[], None], Callable[[], None]]]:
    """By name: as the package computes it, and in steps."""
    torch.manual_seed(0)
    x, gate = torch.randn(2, ROWS, LENGTH, CHANNELS)
    taps = torch.randn(TAPS, CHANNELS)
    mask = torch.arange(LENGTH) < torch.linspace(0.6, 1, ROWS)[:, None] * LENGTH  # (rows, n): a fifth is padding
    batch_norm, padded = BatchNorm(CHANNELS), Sequences(mask)
    return {
        "norm": (
            forward_and_backward(simple_rms_norm, x),
            forward_and_backward(lambda x: _by_steps(x, EPS), x),
        ),
        "norm times a gate": (
            forward_and_backward(lambda x, gate: simple_rms_norm(x, gate=gate), x, gate),
            forward_and_backward(lambda x, gate: _by_steps(x, EPS) * gate, x, gate),
        ),
        "batch norm of padded rows, against sums over all positions": (
            forward_and_backward(lambda x: batch_norm(x, padded), x),
            forward_and_backward(lambda x: batch_norm._by_sums(x, padded), x),
        ),
        f"product of {TAPS} lags, against shifted copies": (
            forward_and_backward(lambda x, taps: toeplitz_matmul(x, taps, causal=True), x, taps),
            forward_and_backward(_shifted, x, taps),
        ),
        f"product of {TAPS} lags, against the FFT form": (
            forward_and_backward(lambda x, taps: toeplitz_matmul(x, taps, causal=True), x, taps),
            forward_and_backward(lambda x, taps: fft.convolve(x, taps, 0), x, taps),
        ),
    }


def _shifted(x: Tensor, taps: Tensor) -> Tensor:
    """x (rows, n, d), taps (m, d)."""
    padded = torch.nn.functional.pad(x, (0, 0, TAPS - 1, 0))
    return sum((padded[:, TAPS - 1 - m : TAPS - 1 - m + LENGTH] * taps[m] for m in range(TAPS)), torch.zeros(()))


def main() -> None:
    pairs = candidates()
    runs = {f"{name} {part}": run for name, pair in pairs.items() for part, run in zip("ab", pair, strict=True)}
    times = interleaved_medians(runs, repeats=41)
    lines = ["| forward and backward | as it is, ms | in steps, ms | ratio |", "|---|---:|---:|---:|"]
    for name in pairs:
        one, steps = 1e3 * times[f"{name} a"], 1e3 * times[f"{name} b"]
        lines.append(f"| {name} | {one:.2f} | {steps:.2f} | {steps / one:.1f} |")
    text = "\n".join(
        [
            "# Few passes over memory, or several steps",
            "",
            f"`python -m benchmarks.passes`, seed 0, {environment()}.",
            f"{ROWS} x {LENGTH} x {CHANNELS}, float32; native kernel: {native.load()[1]}.",
            "",
            *lines,
            "",
        ]
    )
    (RESULTS / "passes.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
