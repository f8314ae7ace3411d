"""How the cost of a Toeplitz operator in evaluation grows with the length, with and without the bandwidth cut.

python -m benchmarks.growth > results/growth.md
"""

from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from benchmarks._timing import environment, interleaved_medians
from tnn.layers import ToeplitzOperator

CHANNELS = 256
LENGTHS = (2048, 4096, 8192, 16_384, 32_768)


def measure(inputs: dict[int, Tensor], **options: Any) -> list[float]:
    """Median seconds at each length. Each length has a separate operator, so that coefficients stay cached."""
    operators = {n: ToeplitzOperator(CHANNELS, **options).eval() for n in inputs}
    with torch.no_grad():
        seconds = interleaved_medians({str(n): partial(operators[n], x) for n, x in inputs.items()}, repeats=15)
    return list(seconds.values())


def main() -> None:
    torch.set_num_threads(2)
    torch.manual_seed(0)
    print("# Growth with the length\n")
    print(f"`python -m benchmarks.growth`, seed 0, {environment()}.")
    print(f"Evaluation of a ToeplitzOperator, {CHANNELS} channels, decay 0.99, float32, one row; milliseconds")
    print("(median, lengths interleaved) and ratio to half the length.\n")
    print("| operator | " + " | ".join(f"n = {n}" for n in LENGTHS) + " |")
    print("|---" * (1 + len(LENGTHS)) + "|")
    inputs = {n: torch.randn(1, n, CHANNELS) for n in LENGTHS}
    for causal in (True, False):
        for tolerance in (1e-6, 0.0):
            seconds = measure(inputs, causal=causal, bandwidth_tolerance=tolerance)
            ratios = ["", *(f" (x{b / a:.2f})" for a, b in pairwise(seconds))]
            kind = f"{'causal' if causal else 'bidirectional'}, {'default cut' if tolerance else 'no cut'}"
            print(f"| {kind} | " + " | ".join(f"{1e3 * t:.1f}{r}" for t, r in zip(seconds, ratios, strict=True)) + " |")


if __name__ == "__main__":
    main()
