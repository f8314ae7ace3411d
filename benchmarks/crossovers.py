"""Where each backend of the Toeplitz product is fastest; the thresholds in tnn/ops/product.py come from here.

python -m benchmarks.crossovers > results/crossovers.md
"""

import statistics
import sys
from functools import partial
from types import ModuleType

import torch
from torch import Tensor

from benchmarks._timing import environment, interleaved_medians
from tnn.ops import banded, dense, direct, fft, native
from tnn.ops.tiles import tiles

CHANNELS = 512
ROWS = 4
DENSE_MAX_LENGTH, DIRECT_MAX_LAGS = 128, 512  # beyond these they are too slow to measure


def convolve(module: ModuleType, x: Tensor, kernel: Tensor, future: int) -> None:
    if module is native:
        native.convolve(x, kernel, future)
        return
    y = torch.empty_like(x)
    for row, channel in tiles(x):
        y[row, :, channel] = module.convolve(x[row, :, channel], kernel[:, channel], future)


def correlate(module: ModuleType, x: Tensor, g: Tensor, lags: int, future: int) -> None:
    if module is native:
        native.correlate(x, g, lags, future)
        return
    c = x.new_zeros(lags, x.shape[-1])
    for row, channel in tiles(x):
        c[:, channel] += module.correlate(x[row, :, channel], g[row, :, channel], lags, future)


def measure(n: int, lags: int, future: int) -> dict[str, float]:
    x, g = torch.randn(ROWS, n, CHANNELS), torch.randn(ROWS, n, CHANNELS)
    kernel = torch.randn(lags, CHANNELS)
    modules = {"fft": fft, "banded": banded, "native": native}
    candidates = {f"{name} gradient": partial(correlate, m, x, g, lags, future) for name, m in modules.items()}
    if n <= DENSE_MAX_LENGTH:
        modules["dense"] = dense
    if lags <= DIRECT_MAX_LAGS:
        modules["direct"] = direct
    candidates |= {name: partial(convolve, m, x, kernel, future) for name, m in modules.items()}
    return interleaved_medians(candidates)


def main() -> None:
    torch.set_num_threads(2)
    torch.manual_seed(0)
    columns = ["dense", "direct", "fft", "banded", "native"]
    columns += ["fft gradient", "banded gradient", "native gradient"]
    print("# Crossovers of the backends\n")
    print(f"`python -m benchmarks.crossovers`, seed 0, {environment()}. {ROWS} rows, {CHANNELS} channels, float32,")
    print("milliseconds (median, candidates interleaved); fastest product and fastest gradient of a row in bold.")
    print(f"Native kernel: {native.load()[1]}.\n")
    print("| n | lags | future | " + " | ".join(columns) + " |")
    print("|---" * (3 + len(columns)) + "|")
    leads = []
    for n in (1, 4, 16, 64, 128, 256, 512, 1024, 4096, 8192):
        shapes = [(w, 0) for w in (1, 2, 4, 16, 32, 64, 128, 256, 512, 1024, 1833, 4096, 8192) if w <= n]
        shapes += [(2 * n - 1, n - 1)] * (n > 1) + [(2 * w - 1, w - 1) for w in (512, 1902) if w < n]
        for lags, future in shapes:
            seconds = measure(n, lags, future)
            gradients = {name: t for name, t in seconds.items() if name.endswith("gradient")}
            products = {name: t for name, t in seconds.items() if name not in gradients}
            best = {min(group, key=group.__getitem__) for group in (products, gradients)}
            for group, name in ((products, "native"), (gradients, "native gradient")):
                leads.append(min(t for other, t in group.items() if other != name) / group[name])
            cells = [f"{1e3 * seconds[c]:.2f}" if c in seconds else "" for c in columns]
            cells = [f"**{cell}**" if c in best else cell for c, cell in zip(columns, cells, strict=True)]
            print(f"| {n} | {lags} | {future} | " + " | ".join(cells) + " |")
            sys.stdout.flush()
    print(f"\nThe next best took {min(leads):.1f} to {max(leads):.1f} times as long as the native kernel, ", end="")
    print(f"{statistics.median(leads):.1f} times in the median.")


if __name__ == "__main__":
    main()
