"""Complexity: how time and memory of one layer grow with the length, compared with theory."""

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
from paper.harness.trial import Metrics, Options, Scale, Trial, TrialContext
from tnn.layers import GatedToeplitzUnit
from tnn.mixers import find_mixer

FUSED = "fused attention"  # the same function, by a kernel that does not store the n x n matrix
THEORY = {**published.COMPLEXITY, FUSED: ("n^2 d", "n d")}  # time and space
LAYERS: dict[str, tuple[str, dict[str, Any]]] = {  # by row: its kind and options
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
STEPS = 9  # timed at each length, if they are fast
NEAR = 0.2  # tolerance of an exponent, for caches and noise


@dataclass(frozen=True)
class LayerScaleSettings:
    """The size of a trial at a scale."""

    channels: int
    limit: float  # seconds per layer, for all lengths


SCALES: dict[Scale, LayerScaleSettings] = {
    "mini": LayerScaleSettings(channels=64, limit=120),
    "paper": LayerScaleSettings(channels=512, limit=900),
}


class DepthwiseConvolution(nn.Module):
    """x (batch, n, channels): depthwise, as theory counts it."""

    def __init__(self, channels: int, kernel_size: int):
        super().__init__()
        self.convolution = nn.Conv1d(channels, channels, kernel_size, padding="same", groups=channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.convolution(x.transpose(1, 2)).transpose(1, 2)


class GRULayer(nn.GRU):
    """x (batch, n, channels)."""

    def __init__(self, channels: int):
        super().__init__(channels, channels, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x)[0]


def make_layer(row: str, channels: int, length: int) -> nn.Module:
    """A layer of the row's kind, bidirectional where it can be.

    >>> from paper.efficiency.complexity import make_layer
    >>> make_layer("rnn", channels=16, length=100)
    GRULayer(16, 16, batch_first=True)
    """
    name, options = LAYERS[row]
    if name == "Conv1d":
        return DepthwiseConvolution(channels, **options)
    if name == "GRU":
        return GRULayer(channels)
    if name == "tnn":
        return GatedToeplitzUnit(channels, **options)
    table: dict[str, Any] = {"max_length": length} if name == "gmlp" else {}
    return find_mixer(name).cls(channels, **options, **table)


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
    settings = {"lengths": list(LENGTHS), "steps": options.steps or STEPS, **asdict(SCALES[options.scale])}
    work = partial(_work, row=row, seed=seed, **settings)
    return Trial("complexity", row, settings | {"layer": list(LAYERS[row])}, work, seed=seed, cost=500.0)


def _work(context: TrialContext, row: str, channels: int, **settings: Any) -> Metrics:
    return asdict(measure_growth(partial(layer_step, row, channels), **settings))


def theoretical_exponent(formula: str, lengths: Sequence[int]) -> float | None:
    """The exponent of a formula over these lengths; n log n grows a little faster than n.

    >>> from paper.efficiency.complexity import theoretical_exponent
    >>> [round(theoretical_exponent(f, (4096, 16_384)), 2) for f in ("n d^2", "n d log n", "n^2 d")]
    [1.0, 1.11, 2.0]
    """
    power = 2 if "n^2" in formula else 1
    return exponent(lengths, [n**power * (log(n) if "log n" in formula else 1) for n in lengths])


class Exponents(NamedTuple):
    """Exponents of a layer's time, or of its memory."""

    theirs: float  # in theory
    ours: float
    steps: tuple[float, ...]  # ours, from one length to the next

    @property
    def agrees(self) -> bool:
        """Theory is an upper bound."""
        return self.ours <= self.theirs + NEAR

    @property
    def is_quadratic(self) -> bool:
        return self.ours >= 2 - NEAR


ExponentsByRow = Mapping[str, Exponents | None]  # None or no entry: not enough was measured


def find_exponents(formula: str, lengths: Sequence[int], values: Sequence[float]) -> Exponents | None:
    """Over the longer half of the lengths; None if there are too few."""
    half = len(lengths) // 2
    theirs, ours = theoretical_exponent(formula, lengths[half:]), exponent(lengths[half:], values[half:])
    steps = map(exponent, pairwise(lengths), pairwise(values))
    known = tuple(step for step in steps if step is not None)
    return None if theirs is None or ours is None else Exponents(theirs, ours, known)


def _conclude(options: Options, records: Records) -> Outcome:
    trials = _plan(options)
    growths = collect_growth(trials, records)
    times = {row: find_exponents(THEORY[row][0], growth.lengths, growth.seconds) for row, growth in growths.items()}
    spaces = {row: find_exponents(THEORY[row][1], growth.lengths, growth.megabytes) for row, growth in growths.items()}
    milliseconds = {row: [1e3 * seconds for seconds in growth.seconds] for row, growth in growths.items()}
    megabytes = {row: growth.megabytes for row, growth in growths.items()}
    tables = (
        _compared(growths, times, spaces),
        _all("Milliseconds at each length", growths, milliseconds),
        _all("MB at each length", growths, megabytes),
    )
    panels = [Panel("time", "milliseconds", milliseconds), Panel("memory", "MB", megabytes)]
    scale = SCALES[options.scale]
    notes = (
        f"A step is forward and backward of one layer for one sequence with {scale.channels} channels, in float32. "
        "Memory is the peak of the process above what it held before, including the layer's parameters.",
        "Exponents are slopes against log length, over the longer half of the lengths that a layer reached in "
        f"{scale.limit:,.0f} seconds; n log n has about 1.1 there.",
        "The layers: a depthwise convolution with 9 taps, a GRU, softmax attention with its matrix and with "
        "torch's fused kernel, 1+elu attention, gMLP, FNet, S4 with 16 states, and TNN's gated unit without decay, "
        "so that no lag is cut off.",
        f"Measured on {machines(trials, records) or 'no machine yet'}; nothing else may run at the same time.",
    )
    figure = partial(draw_panels, panels, LENGTHS) if growths else None
    return Outcome(tables, figure, _claims(times, spaces), notes)


def _compared(growths: dict[str, Growth], times: ExponentsByRow, spaces: ExponentsByRow) -> Table:
    lines: list[tuple[str, ...]] = [
        ("layer", "time in theory", "exponent", "ours", "space in theory", "exponent", "ours", "longest")
    ]
    for row, growth in growths.items():
        time, space = THEORY[row]
        lines.append((row, time, *_shown(times[row]), space, *_shown(spaces[row]), _longest(growth)))
    return Table("Growth of one layer, forward and backward", tuple(lines))


def _shown(numbers: Exponents | None) -> tuple[str, ...]:
    return ("", "") if numbers is None else (f"{numbers.theirs:.2f}", f"{numbers.ours:.2f}")


def _longest(growth: Growth) -> str:
    reached = f"{growth.lengths[-1]:,}" if growth.lengths else "none"
    return reached if growth.ended is None else f"{reached} ({growth.ended})"


def _all(title: str, growths: dict[str, Growth], values: Mapping[str, Sequence[float]]) -> Table:
    lines = [("layer", *(f"{n:,}" for n in LENGTHS))]
    for row, growth in growths.items():
        numbers = [f"{value:,.1f}" for value in values[row]]
        lines.append((row, *numbers, *[f"({growth.ended})"] * (len(LENGTHS) - len(numbers))))
    return Table(title, tuple(lines))


def _claims(times: ExponentsByRow, spaces: ExponentsByRow) -> tuple[Claim, ...]:
    tnn, quadratic = ("tnn",), ("attention", "mlp")
    return (
        Claim(
            f"TNN's time grows log-linearly or better (its exponent is at most that of n log n plus {NEAR}).",
            verdict_of(_agree(times, tnn)),
            _numbers(times, tnn),
        ),
        Claim(
            f"The time of attention and of an MLP grows quadratically (an exponent of at least {2 - NEAR}).",
            verdict_of(_are_quadratic(times, quadratic)),
            _numbers(times, (*quadratic, FUSED)),
        ),
        Claim(
            f"TNN's memory grows linearly (an exponent of at most {1 + NEAR}).",
            verdict_of(_agree(spaces, tnn)),
            _numbers(spaces, tnn),
        ),
        Claim(
            "The memory of attention and of an MLP grows quadratically; a fused kernel, not in the paper, needs less.",
            verdict_of(_are_quadratic(spaces, quadratic)),
            _numbers(spaces, (*quadratic, FUSED)),
            f"exponents from one length to the next: {steps}." if (steps := _steps(spaces, quadratic)) else "",
        ),
        Claim(
            f"No layer grows faster than in theory (exponents at most {NEAR} above it), in time and in memory.",
            verdict_of([*_agree(times, tuple(LAYERS)), *_agree(spaces, tuple(LAYERS))]),
            f"above it: in time {_show_above(times) or 'none'}; in memory {_show_above(spaces) or 'none'}",
            _about_steps(times, spaces),
        ),
    )


def _agree(exponents: ExponentsByRow, rows: tuple[str, ...]) -> list[bool | None]:
    return [None if (numbers := exponents.get(row)) is None else numbers.agrees for row in rows]


def _about_steps(times: ExponentsByRow, spaces: ExponentsByRow) -> str:
    if not (_above(times) or _above(spaces)):
        return ""
    return (
        "exponents from one length to the next, to tell growth from a jump where data outgrow a cache: "
        f"{_steps(times, _above(times)) or 'as in theory'} in time, "
        f"{_steps(spaces, _above(spaces)) or 'as in theory'} in memory."
    )


def _are_quadratic(exponents: ExponentsByRow, rows: tuple[str, ...]) -> list[bool | None]:
    return [None if (numbers := exponents.get(row)) is None else numbers.is_quadratic for row in rows]


def _numbers(exponents: ExponentsByRow, rows: tuple[str, ...]) -> str:
    known = [f"{row} {numbers.ours:.2f}" for row in rows if (numbers := exponents.get(row)) is not None]
    return "exponents: " + (", ".join(known) or "not measured")


def _steps(exponents: ExponentsByRow, rows: Iterable[str]) -> str:
    known = [(row, numbers.steps) for row in rows if (numbers := exponents.get(row)) is not None]
    return "; ".join(f"{row} " + ", ".join(f"{step:.2f}" for step in steps) for row, steps in known)


def _above(exponents: ExponentsByRow) -> dict[str, Exponents]:
    return {row: numbers for row, numbers in exponents.items() if numbers is not None and not numbers.agrees}


def _show_above(exponents: ExponentsByRow) -> str:
    above = _above(exponents).items()
    return ", ".join(f"{row} {numbers.ours:.2f} instead of {numbers.theirs:.2f}" for row, numbers in above)


COMPLEXITY_EXPERIMENT = Experiment(
    "complexity",
    "Time and memory of one layer against the length, compared with theory.",
    tuple(LAYERS),
    _plan,
    _conclude,
)
