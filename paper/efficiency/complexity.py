"""Complexity: how the time and the memory of one layer grow with the length, against what theory says."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from math import log
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from paper import published
from paper.efficiency.growth import Growth, collect_growth, exponent, machines, measure_growth
from paper.efficiency.panels import Panel, draw_panels
from paper.harness.experiment import Claim, Experiment, Outcome, Table
from paper.harness.judging import verdict_of
from paper.harness.records import Records
from paper.harness.trial import Metrics, Options, Place, Scale, Trial
from tnn.layers import GatedToeplitzUnit
from tnn.mixers import find_method

FUSED = "fused attention"  # the same function, by a kernel that keeps no matrix of n times n
THEORY = {**published.COMPLEXITY, FUSED: ("n^2 d", "n d")}  # time and space
LAYERS: dict[str, tuple[str, dict[str, Any]]] = {  # of each row: what it is, and its options
    "cnn": ("Conv1d", {"kernel_size": 9}),
    "rnn": ("GRU", {}),
    "attention": ("transformer", {}),
    FUSED: ("transformer", {}),
    "linear attention": ("elu", {}),
    "mlp": ("gmlp", {"expansion": 2}),
    "fft": ("fnet", {}),
    "state space": ("s4", {"state_size": 16}),
    "tnn": ("tnn", {"expansion": 1, "rpe_size": 16, "rpe_num_layers": 2, "decay_mode": "none"}),
}
LENGTHS = (512, 1024, 2048, 4096, 8192, 16_384)
STEPS = 9  # that are timed at each length, if they are quick
NEAR = 0.2  # of an exponent: what caches and noise may add, or small parts take away


@dataclass(frozen=True)
class Extent:
    """What a trial takes on at a scale."""

    channels: int
    limit: float  # seconds of a layer, for all of its lengths


EXTENTS: dict[Scale, Extent] = {"mini": Extent(channels=64, limit=120), "paper": Extent(channels=512, limit=900)}


class DepthwiseConvolution(nn.Module):
    """x (batch, n, channels): each channel alone, as the theory counts."""

    def __init__(self, channels: int, kernel_size: int):
        super().__init__()
        self.convolution = nn.Conv1d(channels, channels, kernel_size, padding="same", groups=channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.convolution(x.transpose(1, 2)).transpose(1, 2)


class Recurrence(nn.GRU):
    """x (batch, n, channels)."""

    def __init__(self, channels: int):
        super().__init__(channels, channels, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x)[0]


def make_layer(row: str, channels: int, length: int) -> nn.Module:
    """A layer of the row's kind, bidirectional where it can be.

    >>> from paper.efficiency.complexity import make_layer
    >>> make_layer("rnn", channels=16, length=100)
    Recurrence(16, 16, batch_first=True)
    """
    name, options = LAYERS[row]
    if name == "Conv1d":
        return DepthwiseConvolution(channels, **options)
    if name == "GRU":
        return Recurrence(channels)
    if name == "tnn":
        return GatedToeplitzUnit(channels, **options)
    table = {"max_length": length} if name == "gmlp" else {}
    return find_method(name).load()(channels, **options, **table)


def layer_step(row: str, channels: int, length: int) -> Callable[[], None]:
    """Forward and backward of one sequence."""
    layer = make_layer(row, channels, length)
    x, gradient = torch.randn(1, length, channels, requires_grad=True), torch.randn(1, length, channels)

    def step() -> None:
        layer.zero_grad()
        x.grad = None
        with sdpa_kernel(SDPBackend.MATH) if row == "attention" else nullcontext():
            layer(x).backward(gradient)

    return step


def _plan(options: Options) -> list[Trial]:
    seeds = range(options.seeds or 1)
    return [_trial(row, seed, options) for row in options.methods or tuple(LAYERS) for seed in seeds]


def _trial(row: str, seed: int, options: Options) -> Trial:
    settings = {"lengths": list(LENGTHS), "steps": options.steps or STEPS, **asdict(EXTENTS[options.scale])}
    work = partial(_work, row=row, seed=seed, **settings)
    return Trial("complexity", row, settings | {"layer": list(LAYERS[row])}, work, seed=seed, cost=500.0)


def _work(place: Place, row: str, channels: int, **settings: Any) -> Metrics:
    return asdict(measure_growth(partial(layer_step, row, channels), **settings))


def theoretical_exponent(formula: str, lengths: Sequence[int]) -> float | None:
    """Over these lengths; n log n grows a little faster than n.

    >>> from paper.efficiency.complexity import theoretical_exponent
    >>> [round(theoretical_exponent(f, (4096, 16_384)), 2) for f in ("n d^2", "n d log n", "n^2 d")]
    [1.0, 1.11, 2.0]
    """
    power = 2 if "n^2" in formula else 1
    return exponent(lengths, [n**power * (log(n) if "log n" in formula else 1) for n in lengths])


class Exponents(NamedTuple):
    """Of a layer's time, or of its memory."""

    theirs: float  # in theory
    ours: float
    steps: tuple[float, ...]  # ours, from each length to the next

    @property
    def agrees(self) -> bool:
        """Theory is a bound: less is no contradiction."""
        return self.ours <= self.theirs + NEAR

    @property
    def is_quadratic(self) -> bool:
        return self.ours >= 2 - NEAR


Found = Mapping[str, Exponents | None]  # by row; None, or no row: not enough was measured


def find_exponents(formula: str, lengths: Sequence[int], values: Sequence[float]) -> Exponents | None:
    """Over the longer half of the lengths; None if there are too few to tell."""
    half = len(lengths) // 2
    theirs, ours = theoretical_exponent(formula, lengths[half:]), exponent(lengths[half:], values[half:])
    steps = map(exponent, pairwise(lengths), pairwise(values))
    known = tuple(step for step in steps if step is not None)
    return None if theirs is None or ours is None else Exponents(theirs, ours, known)


def _conclude(options: Options, records: Records) -> Outcome:
    trials = _plan(options)
    found = collect_growth(trials, records)
    times = {row: find_exponents(THEORY[row][0], growth.lengths, growth.seconds) for row, growth in found.items()}
    spaces = {row: find_exponents(THEORY[row][1], growth.lengths, growth.megabytes) for row, growth in found.items()}
    milliseconds = {row: [1e3 * seconds for seconds in growth.seconds] for row, growth in found.items()}
    megabytes = {row: growth.megabytes for row, growth in found.items()}
    tables = (
        _compared(found, times, spaces),
        _all("Milliseconds at each length", found, milliseconds),
        _all("MB at each length", found, megabytes),
    )
    panels = [Panel("time", "milliseconds", milliseconds), Panel("memory", "MB", megabytes)]
    extent = EXTENTS[options.scale]
    notes = (
        f"A step is forward and backward of one layer for one sequence with {extent.channels} channels, in float32. "
        "Memory is the peak of the process over what it held before, with the layer's parameters.",
        "Exponents are slopes against log length, over the longer half of the lengths that a layer got to in "
        f"{extent.limit:,.0f} seconds; n log n comes to about 1.1 there.",
        "Rows by their layers: a depthwise convolution of 9 taps, a GRU, softmax attention with its matrix and by "
        "torch's fused kernel, 1+elu attention, gMLP, FNet, S4 with 16 states, and TNN's gated unit without decay, "
        "which therefore keeps all lags.",
        f"Measured on {machines(trials, records) or 'no machine yet'}; nothing else may run there meanwhile.",
    )
    figure = partial(draw_panels, panels, LENGTHS) if found else None
    return Outcome(tables, figure, _claims(times, spaces), notes)


def _compared(found: dict[str, Growth], times: Found, spaces: Found) -> Table:
    lines: list[tuple[str, ...]] = [
        ("layer", "time in theory", "exponent", "ours", "space in theory", "exponent", "ours", "longest")
    ]
    for row, growth in found.items():
        time, space = THEORY[row]
        lines.append((row, time, *_shown(times[row]), space, *_shown(spaces[row]), _longest(growth)))
    return Table("Growth of one layer, forward and backward", tuple(lines))


def _shown(numbers: Exponents | None) -> tuple[str, ...]:
    return ("", "") if numbers is None else (f"{numbers.theirs:.2f}", f"{numbers.ours:.2f}")


def _longest(growth: Growth) -> str:
    reached = f"{growth.lengths[-1]:,}" if growth.lengths else "none"
    return reached if growth.ended is None else f"{reached} ({growth.ended})"


def _all(title: str, found: dict[str, Growth], values: Mapping[str, Sequence[float]]) -> Table:
    lines = [("layer", *(f"{n:,}" for n in LENGTHS))]
    for row, growth in found.items():
        numbers = [f"{value:,.1f}" for value in values[row]]
        lines.append((row, *numbers, *[f"({growth.ended})"] * (len(LENGTHS) - len(numbers))))
    return Table(title, tuple(lines))


def _claims(times: Found, spaces: Found) -> tuple[Claim, ...]:
    tnn, others = ("tnn",), ("attention", "mlp")
    return (
        Claim(
            f"TNN's time grows log-linearly or better (an exponent of at most that of n log n, and {NEAR}).",
            verdict_of(_agree(times, tnn)),
            _numbers(times, tnn),
        ),
        Claim(
            f"That of attention and of an MLP grows quadratically (an exponent of at least {2 - NEAR}).",
            verdict_of(_are_quadratic(times, others)),
            _numbers(times, (*others, FUSED)),
        ),
        Claim(
            f"TNN's memory grows linearly (an exponent of at most {1 + NEAR}).",
            verdict_of(_agree(spaces, tnn)),
            _numbers(spaces, tnn),
        ),
        Claim(
            "That of attention and of an MLP grows quadratically; a fused kernel, which the paper has not, needs less.",
            verdict_of(_are_quadratic(spaces, others)),
            _numbers(spaces, (*others, FUSED)),
            f"exponents from each length to the next: {steps}." if (steps := _steps(spaces, others)) else "",
        ),
        Claim(
            f"No layer grows faster than its theory (exponents at most {NEAR} above it), in time and in memory.",
            verdict_of([*_agree(times, tuple(LAYERS)), *_agree(spaces, tuple(LAYERS))]),
            f"above it: in time {_show_above(times) or 'none'}; in memory {_show_above(spaces) or 'none'}",
            _about_steps(times, spaces),
        ),
    )


def _agree(found: Found, rows: tuple[str, ...]) -> list[bool | None]:
    return [None if (numbers := found.get(row)) is None else numbers.agrees for row in rows]


def _about_steps(times: Found, spaces: Found) -> str:
    if not (_above(times) or _above(spaces)):
        return ""
    return (
        "exponents from each length to the next, to tell growth from a step where data outgrow a cache: "
        f"{_steps(times, _above(times)) or 'as in theory'} in time, "
        f"{_steps(spaces, _above(spaces)) or 'as in theory'} in memory."
    )


def _are_quadratic(found: Found, rows: tuple[str, ...]) -> list[bool | None]:
    return [None if (numbers := found.get(row)) is None else numbers.is_quadratic for row in rows]


def _numbers(found: Found, rows: tuple[str, ...]) -> str:
    known = [f"{row} {numbers.ours:.2f}" for row in rows if (numbers := found.get(row)) is not None]
    return "exponents: " + (", ".join(known) or "not measured")


def _steps(found: Found, rows: Iterable[str]) -> str:
    known = [(row, numbers.steps) for row in rows if (numbers := found.get(row)) is not None]
    return "; ".join(f"{row} " + ", ".join(f"{step:.2f}" for step in steps) for row, steps in known)


def _above(found: Found) -> dict[str, Exponents]:
    return {row: numbers for row, numbers in found.items() if numbers is not None and not numbers.agrees}


def _show_above(found: Found) -> str:
    above = _above(found).items()
    return ", ".join(f"{row} {numbers.ours:.2f} for {numbers.theirs:.2f}" for row, numbers in above)


COMPLEXITY = Experiment(
    "complexity", "Time and memory of one layer against its length, and the theory.", tuple(LAYERS), _plan, _conclude
)
