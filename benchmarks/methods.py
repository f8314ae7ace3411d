"""A training step of every method that the paper compares TNN with, at growing lengths: its time, its memory.

    python -m benchmarks.methods           writes results/methods.md and results/methods.png

The models are those of the paper's speed table, classifiers of characters with about 0.75 million parameters in their
blocks, all bidirectional. The paper steps 20 rows on a GPU; here it is one row on two cores. Each method runs in a
process of its own, from the shortest length to the longest, for as long as `--limit` allows.

    python -m benchmarks.methods --methods tnn,fnet --lengths 256,512 --limit 30
"""

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from benchmarks._timing import environment

from tnn import TNNConfig, TNNForSequenceClassification
from tnn.baselines import METHODS

LENGTHS = [1024, 2048, 3072, 4096, 5120]
BATCH = 1
REPEATS = 3  # fewer if a step is slow
PATIENCE = 4.0  # seconds that a length may take once it has been timed at all
RESULTS = Path(__file__).parent.parent / "results"

SHELL: dict[str, Any] = {
    "vocab_size": 135,
    "num_labels": 2,
    "hidden_size": 128,
    "num_hidden_layers": 6,
    "is_decoder": False,
    "scale_embedding": False,
    "position_embedding": "sinusoidal",
    "norm": "batch",
    "final_norm": "batch",
    "hidden_act": "gelu",
    "initializer": "torch",
}
TNN: dict[str, Any] = {
    "gtu_expansion": 1,
    "glu_expansion": 1.5,
    "rpe_size": 16,
    "rpe_num_layers": 2,
    "rpe_norm": "last_layer",
    "decay_mode": "none",  # no lag is cut off
    "hidden_act": "silu",
}
EIGHT: dict[str, Any] = {"num_attention_heads": 8, "glu_expansion": 2}
TWO: dict[str, Any] = {"num_attention_heads": 2, "glu_expansion": 2}
# Depth, width and heads of the speed table where it has them; the others are of about the same size.
MODELS: dict[str, dict[str, Any]] = {
    "tnn": TNN,
    "transformer": EIGHT,
    "alibi": EIGHT | {"position_embedding": "none"},
    "transformer-ls": EIGHT | {"glu_expansion": 1},
    "elu": EIGHT,
    "performer": TWO | {"mixer_options": {"features": 32}},
    "cosformer": EIGHT,
    "flash": {},
    "flash-quad": {},
    "gmlp": {"mixer_options": {"expansion": 5}},
    "synthesizer-dense": {"glu_expansion": 3.25},
    "synthesizer-random": {"glu_expansion": 3.75},
    "fnet": {"num_hidden_layers": 9, "glu_expansion": 2.5},
    "gfnet": {"glu_expansion": 3.75},
    "afno": {"glu_expansion": 3.5},
    "s4": {"num_hidden_layers": 5, "hidden_size": 256, "mixer_options": {"state_size": 16}},
    "dss": {"hidden_size": 256},
    "gss": {"num_hidden_layers": 4, "mixer_options": {"state_channels": 64, "state_size": 128}},
    "nystromformer": TWO | {"num_hidden_layers": 5, "glu_expansion": 2.5},
    "reformer": TWO | {"num_hidden_layers": 8, "glu_expansion": 1.5},
}
TABLES = ["flash-quad", "gmlp", "synthesizer-dense", "synthesizer-random", "gfnet", "linformer"]  # one row a position


class Cell(NamedTuple):
    """What was measured at a length."""

    length: int
    seconds: float
    megabytes: float  # at the peak, over what the process held before


class Row(NamedTuple):
    """What was measured of a method. `ended`: why it did not get to the last length."""

    method: str
    layers: int
    width: int
    parameters: int  # of the blocks; tables of positions have one place
    cells: list[Cell]
    ended: str | None

    @property
    def exponent(self) -> float | None:
        """The slope of log time against log length; 1 is linear, 2 quadratic."""
        if len(self.cells) < 2:
            return None
        x, y = [math.log(c.length) for c in self.cells], [math.log(c.seconds) for c in self.cells]
        return statistics.linear_regression(x, y).slope


def configuration(method: str, length: int) -> TNNConfig:
    fields = SHELL | MODELS.get(method, TWO)
    options = fields.pop("mixer_options", {})
    if method in TABLES:
        options = options | {"max_length": length}
    return TNNConfig(**fields, mixer=method, mixer_options=options or None)


# --- in the process of a method


def megabytes(name: str) -> float:
    return int(Path("/proc/self/status").read_text().split(name)[1].split()[0]) / 1024


def measure_method(method: str, lengths: list[int], memory: float) -> None:
    """Prints a cell a line, as soon as it is there; runs out of memory at `memory` MB, before the machine does."""
    _step(method, 32)  # libraries load, threads start
    before = megabytes("VmRSS:")
    limit = int((megabytes("VmSize:") + memory) * 2**20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for length in lengths:
        torch.manual_seed(0)
        seconds = _step(method, length)
        print(json.dumps(Cell(length, seconds, megabytes("VmHWM:") - before)), flush=True)


def _step(method: str, length: int) -> float:
    """Median seconds of forward, backward and AdamW."""
    model = TNNForSequenceClassification(configuration(method, length))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids, labels = torch.randint(3, 135, (BATCH, length)), torch.randint(0, 2, (BATCH,))
    times: list[float] = []
    while len(times) <= REPEATS and (len(times) < 2 or sum(times) < PATIENCE):
        start = time.perf_counter()
        optimizer.zero_grad()
        model(ids, labels=labels).loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])  # the first one plans and allocates


# --- in the process that compares them


def measure(method: str, lengths: list[int], limit: float) -> Row:
    available = int(Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0]) / 1024
    command = [sys.executable, "-m", "benchmarks.methods", "--worker", method, "--lengths", ",".join(map(str, lengths))]
    command += ["--memory", str(0.7 * available), "--threads", str(torch.get_num_threads())]
    ended = None
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=RESULTS.parent, timeout=limit)
        output = done.stdout
        if done.returncode:
            short = "memory" in done.stderr or "alloc" in done.stderr
            ended = "memory" if short else done.stderr.strip().splitlines()[-1]
    except subprocess.TimeoutExpired as late:
        output, ended = (late.stdout or b"").decode(), "time"
    cells = [Cell(*json.loads(line)) for line in output.splitlines() if line.endswith("]")]
    config = configuration(method, 1)
    with torch.device("meta"):
        parameters = sum(p.numel() for p in TNNForSequenceClassification(config).model.layers.parameters())
    return Row(method, config.num_hidden_layers, config.hidden_size, parameters, cells, ended)


def table(rows: list[Row], lengths: list[int], *, memory: bool) -> str:
    head = ["method", "layers", "width", "parameters", *(f"{n:,}" for n in lengths)] + ([] if memory else ["exponent"])
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in rows:
        cells = {c.length: f"{c.megabytes:,.0f}" if memory else f"{1e3 * c.seconds:,.0f}" for c in row.cells}
        line = [row.method, str(row.layers), str(row.width), f"{row.parameters:,}"]
        line += [cells.get(n, f"({row.ended})") for n in lengths]
        if not memory:
            line.append("" if row.exponent is None else f"**{row.exponent:.2f}**")
        lines.append("| " + " | ".join(line) + " |")
    return "\n".join(lines)


def report(rows: list[Row], lengths: list[int], arguments: str) -> str:
    return f"""# Training steps of the methods in comparison

`python -m benchmarks.methods{arguments}`, seed 0, {environment()}.
Classifiers of characters as in the paper's speed table, bidirectional, float32: forward, backward and AdamW of
{BATCH} row (the paper has 20, on a GPU), median of up to {REPEATS} steps. Parameters are those of the blocks; tables
with a place for every position ({", ".join(TABLES)}) come on top.
The paper's depths for tnn, transformer, transformer-ls, performer, cosformer, flash, nystromformer, reformer, fnet and
s4; the others are of about that size. In brackets: what a method ran out of.

## Milliseconds
The exponent is the slope of log time against log length: 1 is linear, 2 quadratic.

{table(rows, lengths, memory=False)}

## Peak memory, MB
Over what the process holds before the model is made.

{table(rows, lengths, memory=True)}

![time and memory against length](methods.png)
"""


def draw(rows: list[Row], lengths: list[int]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(13, 6.5), layout="constrained")
    colours = plt.get_cmap("tab20").colors
    for i, row in enumerate(rows):
        own = row.method == "tnn"
        style = {"color": "black", "linewidth": 2.5, "zorder": 3} if own else {"color": colours[i % 20]}
        style |= {"label": row.method, "marker": "os^vD"[i % 5], "markersize": 4, "linestyle": "-" if i < 20 else "--"}
        x = [c.length for c in row.cells]
        panels[0].plot(x, [1e3 * c.seconds for c in row.cells], **style)
        panels[1].plot(x, [c.megabytes for c in row.cells], **style)
    for axes, label in zip(panels, ("milliseconds a step", "peak memory, MB"), strict=True):
        axes.set(xscale="log", yscale="log", xlabel="length", ylabel=label)
        axes.set_xticks(lengths, [f"{n:,}" for n in lengths])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=9)
    figure.savefig(RESULTS / "methods.png", dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", help="names with commas between them; all of them if not given")
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--limit", type=float, default=60, help="seconds that a method may take")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--memory", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    lengths = sorted(int(n) for n in options.lengths.split(","))
    torch.set_num_threads(options.threads)
    if options.worker:
        measure_method(options.worker, lengths, options.memory)
        return
    methods = options.methods.split(",") if options.methods else ["tnn", *METHODS]
    if unknown := set(methods) - {"tnn", *METHODS}:
        parser.error(f"no method {', '.join(sorted(unknown))}; there are tnn, {', '.join(METHODS)}")
    rows = []
    for method in methods:
        rows.append(measure(method, lengths, options.limit))
        print(table(rows[-1:], lengths, memory=False).splitlines()[-1], flush=True)
    text = report(rows, lengths, "".join(f" {word}" for word in sys.argv[1:]))
    print(text)
    RESULTS.mkdir(exist_ok=True)
    draw(rows, lengths)
    (RESULTS / "methods.md").write_text(text)


if __name__ == "__main__":
    main()
