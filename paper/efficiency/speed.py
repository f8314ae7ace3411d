"""Speed: training steps a second of every method, at growing lengths."""

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
from paper.harness.trial import Metrics, Options, Place, Scale, Trial
from tnn.mixers import METHODS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = (*published.SPEED, *(method for method in METHODS if method not in published.SPEED))
LENGTHS = (1024, 2048, 3072, 4096, 5120)
STEPS = 3  # that are timed at each length
NEAR = 0.1  # of an exponent: what noise may add
QUADRATIC = 1.5  # an exponent from which on growth is nearer to quadratic than to linear


@dataclass(frozen=True)
class Extent:
    """What a trial takes on at a scale."""

    batch: int
    limit: float  # seconds of a method, for all of its lengths


EXTENTS: dict[Scale, Extent] = {"mini": Extent(batch=1, limit=150), "paper": Extent(batch=20, limit=3600)}


def _plan(options: Options) -> list[Trial]:
    seeds = range(options.seeds or 1)
    return [_trial(row, seed, options) for row in options.methods or ROWS for seed in seeds]


def _trial(row: str, seed: int, options: Options) -> Trial:
    settings = {"lengths": list(LENGTHS), "steps": options.steps or STEPS, **asdict(EXTENTS[options.scale])}
    work = partial(_work, method=row, seed=seed, **settings)
    return Trial("speed", row, settings | {"model": model_fields(row)}, work, seed=seed, cost=500.0)


def _work(place: Place, method: str, **settings: Any) -> Metrics:
    found = measure_steps(method, **settings)
    return {**asdict(found), "exponent": found.exponent, "parameters": block_parameters(method)}


def _conclude(options: Options, records: Records) -> Outcome:
    trials = _plan(options)
    found, parameters = collect_growth(trials, records), means(collect(trials, records, "parameters"))
    rows = [row for row in options.methods or ROWS if row in found]
    tables = (_speeds(rows, found), _growths(rows, found, parameters), _memory(rows, found))
    extent = EXTENTS[options.scale]
    notes = (
        f"A step is forward, backward and AdamW of a classifier of characters in float32, with {extent.batch} "
        f"row{'s' if extent.batch > 1 else ''}; the paper has 20, on an A6000. A method has a process of its own and "
        f"{extent.limit:,.0f} seconds; in brackets is what it ran out of, and a dash is what ran out of memory in the "
        "paper. Exponents are slopes of log time against log length. Parameters are those of the blocks, within 9% of "
        "TNN's; tables with a place for every position come on top.",
        f"Measured on {machines(trials, records) or 'no machine yet'}; nothing else may run there meanwhile. Times are "
        "medians over a few steps, good to a tenth or so.",
        "The Transformer attends by torch's fused kernel, which keeps no matrix of n times n; the paper's did.",
    )
    return Outcome(tables, partial(_draw, found) if found else None, _claims(found), notes)


def _speeds(rows: list[str], found: dict[str, Growth]) -> Table:
    lines = [("method", *(f"published, {n:,}" for n in LENGTHS), *(f"ours, {n:,}" for n in LENGTHS))]
    for row in rows:
        theirs = ["-" if number is None else f"{number:.2f}" for number in published.SPEED.get(row, ())]
        ours = _cells(found[row], [f"{1 / seconds:.2f}" for seconds in found[row].seconds])
        lines.append((row, *(theirs or [""] * len(LENGTHS)), *ours))
    return Table("Training steps a second, higher is better", tuple(lines))


def _cells(growth: Growth, values: list[str]) -> list[str]:
    return [*values, *[f"({growth.ended})"] * (len(LENGTHS) - len(values))]


def _growths(rows: list[str], found: dict[str, Growth], parameters: dict[str, float]) -> Table:
    theirs = {row: _published(row) for row in published.SPEED}
    places = [ranks(_rates(growths), high=True) for growths in (theirs, _of_the_paper(found))]
    head = ("method", "published, time at 5,120 to 1,024", "ours", "published exponent", "ours")
    lines: list[tuple[str, ...]] = [(*head, "published rank", "ours", "parameters")]
    for row in rows:
        pair = [theirs.get(row), found[row]]
        cells = (*map(_ratio, pair), *map(_exponent, pair), *(str(place.get(row, "")) for place in places))
        lines.append((row, *cells, f"{parameters[row]:,.0f}"))
    return Table("Growth with the length, and ranks at 5,120", tuple(lines))


def _published(row: str) -> Growth:
    """Without memory, which the paper shows in a figure only."""
    seconds = tuple(1 / number for number in published.SPEED[row] if number is not None)
    return Growth(LENGTHS[: len(seconds)], seconds, (nan,) * len(seconds))


def _of_the_paper(found: dict[str, Growth]) -> dict[str, Growth]:
    return {row: found[row] for row in published.SPEED if row in found}


def _ratio(growth: Growth | None) -> str:
    if growth is None or len(growth.lengths) < len(LENGTHS):
        return ""
    return f"{growth.seconds[-1] / growth.seconds[0]:.2f}"


def _exponent(growth: Growth | None) -> str:
    return "" if growth is None or growth.exponent is None else f"{growth.exponent:.2f}"


def _rates(growths: dict[str, Growth], length: int = LENGTHS[-1]) -> dict[str, float]:
    """Steps a second; what did not get to a length is the slowest there."""
    cells = {row: growth.at(length) for row, growth in growths.items()}
    return {row: 0.0 if cell is None else 1 / cell.seconds for row, cell in cells.items()}


def _memory(rows: list[str], found: dict[str, Growth]) -> Table:
    lines = [("method", *(f"{n:,}" for n in LENGTHS))]
    lines += [(row, *_cells(found[row], [f"{size:,.0f}" for size in found[row].megabytes])) for row in rows]
    return Table("Peak memory in MB, over what the process holds before there is a model", tuple(lines))


def _claims(found: dict[str, Growth]) -> tuple[Claim, ...]:
    log_linear = exponent(LENGTHS, [n * log(n) for n in LENGTHS])
    assert log_linear is not None
    tnn, attention = (found[row].exponent if row in found else None for row in ("tnn", "transformer"))
    return (
        Claim(
            f"TNN's time grows log-linearly or better (an exponent of at most {log_linear:.2f}, and {NEAR} for noise).",
            verdict_of([None if tnn is None else tnn <= log_linear + NEAR]),
            f"exponent {_exponent(found.get('tnn')) or 'not measured'}",
        ),
        Claim(
            f"The Transformer's grows quadratically (an exponent of at least {QUADRATIC}: nearer to 2 than to 1).",
            verdict_of([None if attention is None else attention >= QUADRATIC]),
            f"exponent {_exponent(found.get('transformer')) or 'not measured'}",
        ),
        _against_the_transformer(found),
        *_order(_of_the_paper(found)),
    )


def _against_the_transformer(found: dict[str, Growth]) -> Claim:
    text = "TNN is faster than the Transformer at every length."
    if "tnn" not in found or "transformer" not in found:
        return Claim(text, "not measured", "it takes both")
    numbers, conditions = [], []
    for length in LENGTHS:
        rates = _rates(found, length)
        conditions.append(rates["tnn"] > rates["transformer"])
        if rates["tnn"] and rates["transformer"]:
            numbers.append(f"{rates['tnn'] / rates['transformer']:.1f} times as fast at {length:,}")
        else:
            alone = [row for row in ("tnn", "transformer") if rates[row]]
            numbers.append(f"{alone[0] if alone else 'none'} alone at {length:,}")
    return Claim(text, verdict_of(conditions), ", ".join(numbers))


def _order(found: dict[str, Growth]) -> tuple[Claim, ...]:
    """At the longest length, where the Transformer of the paper is the last: it ran out of memory."""
    theirs, ours = _rates({row: _published(row) for row in found}), _rates(found)
    same = same_order(theirs, ours)
    whole = len(found) == len(published.SPEED)
    place = ranks(ours, high=True).get("tnn")
    return (
        Claim(
            "TNN is among the faster methods at 5,120: fifth of 11 in the paper.",
            verdict_of([place <= 5]) if whole and place else "not measured",
            f"number {place} of {len(found)} measured" if place else "TNN was not measured",
        ),
        Claim(
            "The 11 methods stand in the order of the paper at 5,120 (in part: more than half of their pairs do).",
            verdict_of([all(same), 2 * sum(same) > len(same)]) if whole else "not measured",
            order_agreement(theirs, ours),
            _about_places(theirs, ours) if whole else "",
        ),
    )


def _about_places(theirs: dict[str, float], ours: dict[str, float]) -> str:
    """Who is not where the paper has it."""
    before, after = (ranks(rates, high=True) for rates in (theirs, ours))
    moved = [f"{row} number {after[row]} ({before[row]})" for row in before if abs(after[row] - before[row]) > 1]
    return f"more than a place away from that in the paper: {', '.join(moved)}." if moved else ""


def _draw(found: dict[str, Growth]) -> "Figure":
    """The methods that the paper has not are faint, and ours alone."""
    theirs = {row: [1 / seconds for seconds in _published(row).seconds] for row in _of_the_paper(found)}
    ours = {row: [1 / seconds for seconds in growth.seconds] for row, growth in found.items()}
    panels = [Panel("published", "steps a second", theirs), Panel("ours", "steps a second", ours)]
    return draw_panels(panels, LENGTHS, faint=[row for row in ours if row not in theirs])


SPEED = Experiment(
    "speed",
    "Training steps per second of every method, at lengths up to 5,120.",
    ROWS,
    _plan,
    _conclude,
    takes_mixers=True,
)
