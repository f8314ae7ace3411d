"""The product against the code of the paper's authors (rfft / irfft of length 2n along the sequence axis).

    python -m benchmarks.operator          writes results/operator.md and results/operator.png

Both get the same input and precomputed coefficients, in turn, in one run; times are medians. Ours uses the lags that
the default bandwidth cut keeps; theirs uses all lags. The floor is a copy of x into new memory.
"""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks._timing import environment, interleaved_medians
from tnn.ops import backends, effective_bandwidth, toeplitz_matmul

CHANNELS = 1536
RESULTS = Path(__file__).parent.parent / "results"


class Case(NamedTuple):
    rows: int
    n: int
    causal: bool = True
    decay: float = 0.99
    wanted: tuple[float, float] = (0.0, 0.0)  # ratios to reach: forward, forward + backward

    def __str__(self) -> str:
        kind = "" if self.causal else ", bidirectional"
        return f"{self.rows} x {self.n:,}{kind}{'' if self.decay < 1 else ', no cut'}"


CASES = [
    Case(8, 128, wanted=(2.5, 2)),
    Case(4, 512, wanted=(3, 2.5)),
    Case(1, 2048, wanted=(4, 3)),
    Case(1, 4096, wanted=(10, 6)),
    Case(1, 14_336, wanted=(12, 7)),
    Case(4, 512, causal=False, wanted=(2.5, 2)),
    Case(4, 512, decay=1, wanted=(3, 0)),
    Case(1, 8192, decay=1, wanted=(4, 0)),
]


def paper_form(x: Tensor, circulant: Tensor) -> Tensor:
    """Circulant column (2n, d), transforms along the sequence axis of x (b, n, d)."""
    n = x.shape[1]
    spectrum = torch.fft.rfft(x, 2 * n, dim=1) * torch.fft.rfft(circulant, 2 * n, dim=0)
    return torch.fft.irfft(spectrum, 2 * n, dim=1)[:, :n]


def inputs_of(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """x, our coefficients and the paper's column of the same operator."""
    n = case.n
    distance = torch.arange(n)[:, None]
    past, future = (torch.randn(n, CHANNELS) * case.decay**distance for _ in range(2))
    x = torch.randn(case.rows, n, CHANNELS)
    lags = min(n, effective_bandwidth(case.decay, causal=case.causal).lags or n)
    if case.causal:
        return x, past[:lags].clone(), torch.cat([past, torch.zeros(n, CHANNELS)])
    column = torch.cat([past, past[:1], future[1:].flip(0)])
    return x, torch.cat([future[1:lags].flip(0), past[:lags]]), column


def with_backward(function: Callable[[Tensor, Tensor], Tensor], x: Tensor, k: Tensor, gradient: Tensor) -> None:
    x, k = x.detach().requires_grad_(), k.detach().requires_grad_()
    torch.autograd.grad(function(x, k), (x, k), gradient)


def measure(case: Case) -> dict[str, float]:
    x, k, column = inputs_of(case)
    ours = partial(toeplitz_matmul, causal=case.causal)
    error = (ours(x, k) - paper_form(x, column)).abs().max() / x.abs().max()
    assert error < 1e-3, f"the two forms disagree by {error:.1e}"
    gradient = torch.randn_like(x)
    forward = {
        "paper": lambda: paper_form(x, column),
        "ours": lambda: ours(x, k),
        "copy": lambda: x.clone(),
    }
    training = {
        "paper training": lambda: with_backward(paper_form, x, column, gradient),
        "ours training": lambda: with_backward(ours, x, k, gradient),
    }
    return interleaved_medians(forward, repeats=15) | interleaved_medians(training, repeats=7)


def growth() -> float:
    """Seconds for 1 x 28,672 over those for 1 x 14,336, forward."""
    inputs = {n: inputs_of(Case(1, n))[:2] for n in (14_336, 28_672)}
    seconds = interleaved_medians({str(n): partial(toeplitz_matmul, *i, causal=True) for n, i in inputs.items()}, 15)
    return seconds["28672"] / seconds["14336"]


def extra_memory(n: int) -> float:
    """MB that one forward adds to the peak of a fresh process, without its output."""
    command = [sys.executable, "-m", "benchmarks.operator", "--memory", str(n)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=RESULTS.parent)
    return float(done.stdout)


def report_memory(n: int) -> None:
    def peak() -> int:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) // 1024

    x, k = torch.randn(1, n, CHANNELS), torch.randn(1833, CHANNELS)
    toeplitz_matmul(x[:, :100], k, causal=True)  # what is loaded once
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak to what is in use
    before = peak()
    y = toeplitz_matmul(x, k, causal=True)
    print(peak() - before - y.nbytes / 2**20)


def table(results: dict[Case, dict[str, float]]) -> str:
    lines = [
        "| b x n | paper, forward | ours | ratio (wanted) | paper, forward + backward | ours | ratio (wanted) | copy "
        "| ours / copy |",
        "|---" * 9 + "|",
    ]
    for case, t in results.items():
        ratios = [t["paper"] / t["ours"], t["paper training"] / t["ours training"]]
        shown = [f"**{r:.1f}**" + (f" ({w:g})" if w else "") for r, w in zip(ratios, case.wanted, strict=True)]
        ms = {name: f"{1e3 * seconds:.1f}" for name, seconds in t.items()}
        lines.append(
            f"| {case} | {ms['paper']} | {ms['ours']} | {shown[0]} | {ms['paper training']} | {ms['ours training']} "
            f"| {shown[1]} | {ms['copy']} | {t['ours'] / t['copy']:.1f} |"
        )
    return "\n".join(lines)


def draw(results: dict[Case, dict[str, float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = [str(case) for case in results]
    figure, axis = plt.subplots(figsize=(9, 4.5), layout="constrained")
    for offset, key, label in ((-0.2, "", "forward"), (0.2, " training", "forward + backward")):
        ratios = [t[f"paper{key}"] / t[f"ours{key}"] for t in results.values()]
        bars = axis.barh([i + offset for i in range(len(names))], ratios, height=0.38, label=label)
        axis.bar_label(bars, fmt="%.1f", padding=3, fontsize=8)
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.set_xlabel("times as fast as the paper's FFT form")
    axis.set_title(f"Toeplitz product, {CHANNELS:,} channels, float32, {torch.get_num_threads()} threads", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=120)


def main() -> None:
    torch.set_num_threads(2)
    torch.manual_seed(0)
    results = {}
    for case in CASES:
        results[case] = measure(case)
        print(table({case: results[case]}).splitlines()[-1], flush=True)
    memory = ", ".join(f"{extra_memory(n):.0f} MB at n = {n:,}" for n in (4096, 14_336, 57_344))
    report = f"""# The product against the paper's form

`python -m benchmarks.operator`, seed 0, {environment()}, native kernel {backends()["native"]}.
{CHANNELS} channels, float32, decay 0.99 with the default bandwidth cut; milliseconds, medians, all interleaved.

{table(results)}

![ratios](operator.png)

- Growth: 1 x 28,672 takes {growth():.2f} times as long as 1 x 14,336, forward.
- Peak memory of one forward in a fresh process, output aside: {memory}.
"""
    (RESULTS / "operator.md").write_text(report)
    draw(results, RESULTS / "operator.png")
    print(report.split("![ratios]")[1].split(")", 1)[1].strip())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory"]:
        report_memory(int(sys.argv[2]))
    else:
        main()
