"""Speed: training steps per second of every method, at growing lengths."""

from dataclasses import asdict, dataclass
from functools import partial
from math import log, nan
from typing import TYPE_CHECKING, Any

from paper import published
from paper.efficiency.growth import Growth, collect_growth, exponent, machines
from paper.efficiency.panels import Panel, draw_panels
from paper.efficiency.steps import block_parameters, measure_steps, model_fields
from paper.harness.experiment import Claim, Experiment, Outcome, Table
from paper.harness.judging import collect, means, order_agreement, ranks, same_order, verdict_of
from paper.harness.records import Records
from paper.harness.trial import Metrics, Options, Scale, Trial, TrialContext

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = (
    *published.SPEED,
    *("alibi", "elu", "flash-quad", "gmlp", "synthesizer-dense", "synthesizer-random", "gfnet", "afno", "dss", "gss"),
    *("kernelized", "skyformer", "informer", "bigbird"),  # these are not in the paper's table
)
LENGTHS = (1024, 2048, 3072, 4096, 5120)
STEPS = 3  # timed at each length
NEAR = 0.1  # tolerance of an exponent, for noise
QUADRATIC = 1.5  # from this exponent on, growth is closer to quadratic than to linear


@dataclass(frozen=True)
class SpeedScaleSettings:
    """The size of a trial at a scale."""

    batch: int
    limit: float  # seconds per method, for all lengths


SCALES: dict[Scale, SpeedScaleSettings] = {
    "mini": SpeedScaleSettings(batch=1, limit=150),
    "paper": SpeedScaleSettings(batch=20, limit=3600),
}


def _plan(options: Options) -> list[Trial]:
    seeds = range(options.seeds or 1)
    return [_trial(row, seed, options) for row in options.methods or ROWS for seed in seeds]


def _trial(row: str, seed: int, options: Options) -> Trial:
    settings = {"lengths": list(LENGTHS), "steps": options.steps or STEPS, **asdict(SCALES[options.scale])}
    work = partial(_work, method=row, seed=seed, **settings)
    return Trial("speed", row, settings | {"model": model_fields(row)}, work, seed=seed, cost=500.0)


def _work(context: TrialContext, method: str, **settings: Any) -> Metrics:
    growth = measure_steps(method, **settings)
    return {**asdict(growth), "exponent": growth.exponent, "parameters": block_parameters(method)}


def _conclude(options: Options, records: Records) -> Outcome:
    trials = _plan(options)
    growths, parameters = collect_growth(trials, records), means(collect(trials, records, "parameters"))
    rows = [row for row in options.methods or ROWS if row in growths]
    tables = (_speeds(rows, growths), _growths(rows, growths, parameters), _memory(rows, growths))
    scale = SCALES[options.scale]
    notes = (
        f"A step is forward, backward and AdamW of a character classifier in float32, with a batch of {scale.batch}; "
        "the paper has 20, on an A6000. Each method runs in its own process for up to "
        f"{scale.limit:,.0f} seconds; brackets show what it ran out of, and a dash is out of memory in the "
        "paper. Exponents are slopes of log time against log length. Parameters are those of the blocks, within 9% of "
        "TNN's, without tables that have an entry per position.",
        f"Measured on {machines(trials, records) or 'no machine yet'}; nothing else may run at the same time. "
        "Times are medians over a few steps, accurate to about a tenth.",
        "The Transformer uses torch's fused attention kernel, which does not store the n x n matrix; the paper's did.",
    )
    return Outcome(tables, partial(_draw, growths) if growths else None, _claims(growths), notes)


def _speeds(rows: list[str], growths: dict[str, Growth]) -> Table:
    lines = [("method", *(f"published, {n:,}" for n in LENGTHS), *(f"ours, {n:,}" for n in LENGTHS))]
    for row in rows:
        theirs = ["-" if number is None else f"{number:.2f}" for number in published.SPEED.get(row, ())]
        ours = _cells(growths[row], [f"{1 / seconds:.2f}" for seconds in growths[row].seconds])
        lines.append((row, *(theirs or [""] * len(LENGTHS)), *ours))
    return Table("Training steps per second, higher is better", tuple(lines))


def _cells(growth: Growth, values: list[str]) -> list[str]:
    return [*values, *[f"({growth.ended})"] * (len(LENGTHS) - len(values))]


def _growths(rows: list[str], growths: dict[str, Growth], parameters: dict[str, float]) -> Table:
    theirs = {row: _published(row) for row in published.SPEED}
    both = [ranks(_rates(growths), high=True) for growths in (theirs, _of_the_paper(growths))]
    head = ("method", "published, time at 5,120 to 1,024", "ours", "published exponent", "ours")
    lines: list[tuple[str, ...]] = [(*head, "published rank", "ours", "parameters")]
    for row in rows:
        pair = [theirs.get(row), growths[row]]
        cells = (*map(_ratio, pair), *map(_exponent, pair), *(str(column.get(row, "")) for column in both))
        lines.append((row, *cells, f"{parameters[row]:,.0f}"))
    return Table("Growth with the length, and ranks at 5,120", tuple(lines))


def _published(row: str) -> Growth:
    """Without memory, which the paper shows only in a figure."""
    seconds = tuple(1 / number for number in published.SPEED[row] if number is not None)
    return Growth(LENGTHS[: len(seconds)], seconds, (nan,) * len(seconds))


def _of_the_paper(growths: dict[str, Growth]) -> dict[str, Growth]:
    return {row: growths[row] for row in published.SPEED if row in growths}


def _ratio(growth: Growth | None) -> str:
    if growth is None or len(growth.lengths) < len(LENGTHS):
        return ""
    return f"{growth.seconds[-1] / growth.seconds[0]:.2f}"


def _exponent(growth: Growth | None) -> str:
    return "" if growth is None or growth.exponent is None else f"{growth.exponent:.2f}"


def _rates(growths: dict[str, Growth], length: int = LENGTHS[-1]) -> dict[str, float]:
    """Steps per second; 0 for a method that did not reach the length."""
    cells = {row: growth.at(length) for row, growth in growths.items()}
    return {row: 0.0 if cell is None else 1 / cell.seconds for row, cell in cells.items()}


def _memory(rows: list[str], growths: dict[str, Growth]) -> Table:
    lines = [("method", *(f"{n:,}" for n in LENGTHS))]
    lines += [(row, *_cells(growths[row], [f"{size:,.0f}" for size in growths[row].megabytes])) for row in rows]
    return Table("Peak memory in MB, above what the process holds before the model is made", tuple(lines))


def _claims(growths: dict[str, Growth]) -> tuple[Claim, ...]:
    log_linear = exponent(LENGTHS, [n * log(n) for n in LENGTHS])
    assert log_linear is not None
    tnn, attention = (growths[row].exponent if row in growths else None for row in ("tnn", "transformer"))
    return (
        Claim(
            f"TNN's time grows log-linearly or better (an exponent up to {log_linear:.2f}, plus {NEAR} for noise).",
            verdict_of([None if tnn is None else tnn <= log_linear + NEAR]),
            f"exponent {_exponent(growths.get('tnn')) or 'not measured'}",
        ),
        Claim(
            f"The Transformer's time grows quadratically (an exponent of at least {QUADRATIC}: closer to 2 than to 1).",
            verdict_of([None if attention is None else attention >= QUADRATIC]),
            f"exponent {_exponent(growths.get('transformer')) or 'not measured'}",
        ),
        _against_the_transformer(growths),
        *_order(_of_the_paper(growths)),
    )


def _against_the_transformer(growths: dict[str, Growth]) -> Claim:
    text = "TNN is faster than the Transformer at every length."
    if "tnn" not in growths or "transformer" not in growths:
        return Claim(text, "not measured", "needs both")
    numbers, conditions = [], []
    for length in LENGTHS:
        rates = _rates(growths, length)
        conditions.append(rates["tnn"] > rates["transformer"])
        if rates["tnn"] and rates["transformer"]:
            numbers.append(f"{rates['tnn'] / rates['transformer']:.1f} times as fast at {length:,}")
        else:
            alone = [row for row in ("tnn", "transformer") if rates[row]]
            numbers.append(f"{alone[0] if alone else 'none'} alone at {length:,}")
    return Claim(text, verdict_of(conditions), ", ".join(numbers))


def _order(growths: dict[str, Growth]) -> tuple[Claim, ...]:
    """At the longest length, where the paper's Transformer is last: it ran out of memory."""
    theirs, ours = _rates({row: _published(row) for row in growths}), _rates(growths)
    same = same_order(theirs, ours)
    complete = len(growths) == len(published.SPEED)
    rank = ranks(ours, high=True).get("tnn")
    return (
        Claim(
            "TNN is among the faster methods at 5,120: fifth of 11 in the paper.",
            verdict_of([rank <= 5]) if complete and rank else "not measured",
            f"number {rank} of {len(growths)} measured" if rank else "TNN was not measured",
        ),
        Claim(
            "The 11 methods are in the order of the paper at 5,120 (in part: more than half of their pairs are).",
            verdict_of([all(same), 2 * sum(same) > len(same)]) if complete else "not measured",
            order_agreement(theirs, ours),
            _about_places(theirs, ours) if complete else "",
        ),
    )


def _about_places(theirs: dict[str, float], ours: dict[str, float]) -> str:
    """The methods whose rank differs from the paper's."""
    before, after = (ranks(rates, high=True) for rates in (theirs, ours))
    moved = [f"{row} number {after[row]} ({before[row]})" for row in before if abs(after[row] - before[row]) > 1]
    return f"more than one rank away from the paper's: {', '.join(moved)}." if moved else ""


def _draw(growths: dict[str, Growth]) -> "Figure":
    """Methods that are not in the paper's table are faint, and only in our panel."""
    theirs = {row: [1 / seconds for seconds in _published(row).seconds] for row in _of_the_paper(growths)}
    ours = {row: [1 / seconds for seconds in growth.seconds] for row, growth in growths.items()}
    panels = [Panel("published", "steps per second", theirs), Panel("ours", "steps per second", ours)]
    return draw_panels(panels, LENGTHS, faint=[row for row in ours if row not in theirs])


SPEED_EXPERIMENT = Experiment(
    "speed",
    "Training steps per second of every method, at lengths up to 5,120.",
    ROWS,
    _plan,
    _conclude,
    takes_mixers=True,
)
