"""Extrapolation: a model that was trained on short blocks is evaluated on longer ones."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tnn._checks import check_positive
from tnn._files import write_text
from tnn.training.figures import COLORS, INK, new_figure, save_figure, tidy
from tnn.training.perplexity import Perplexity, block_perplexity, format_ppl

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tnn.data.tokens import Tokens

LENGTHS = (*range(512, 2048, 256), *range(2048, 14_337, 1024))  # the paper's 19
MARKERS, LINES = "o^s", ("-", "--", ":")  # if there are more runs than colours
STEEP = 3.0  # the axis is logarithmic if the largest perplexity is this many times the smallest
HIGHEST = 100.0  # times the smallest perplexity: the upper end of a logarithmic axis


@dataclass(frozen=True)
class Extrapolation:
    """The perplexities of a model at increasing lengths. It was trained at `train_length`.

    >>> from math import log
    >>> from tnn.training.extrapolation import Extrapolation
    >>> from tnn.training.perplexity import Perplexity
    >>> run = Extrapolation(512, (Perplexity(512, log(24.0), 9000), Perplexity(1024, log(23.0), 9000)))
    >>> round(run.average, 6), [round(ratio, 3) for ratio in run.ratios]
    (23.5, [1.0, 0.958])
    >>> print(run.to_table())
    | length | perplexity | of that at 512 |
    |-------:|-----------:|---------------:|
    |    512 |    24.0000 |          1.000 |
    |   1024 |    23.0000 |          0.958 |
    |    Avg |    23.5000 |          0.979 |
    """

    train_length: int
    perplexities: tuple[Perplexity, ...]

    @property
    def lengths(self) -> list[int]:
        return [perplexity.length for perplexity in self.perplexities if perplexity.length is not None]

    @property
    def average(self) -> float:
        """The mean over the lengths of the perplexity per token: "Avg" in the paper's table."""
        return sum(perplexity.per_token for perplexity in self.perplexities) / len(self.perplexities)

    @property
    def reference_length(self) -> int:
        """The length that ratios refer to: that of the training, or the shortest if that one was not evaluated."""
        return self.train_length if self.train_length in self.lengths else self.lengths[0]

    @property
    def ratios(self) -> list[float]:
        return [perplexity.per_token / self._reference for perplexity in self.perplexities]

    @property
    def _reference(self) -> float:
        return self.perplexities[self.lengths.index(self.reference_length)].per_token

    def to_table(self) -> str:
        """A Markdown table."""
        rows = [["length", "perplexity", f"of that at {self.reference_length}"]]
        for perplexity, ratio in zip(self.perplexities, self.ratios, strict=True):
            rows.append([str(perplexity.length), format_ppl(perplexity.per_token), format_ppl(ratio, 3)])
        rows.append(["Avg", format_ppl(self.average), format_ppl(self.average / self._reference, 3)])
        return _table(rows)

    def to_json(self) -> str:
        """All values, for `from_json`. NaN and infinite numbers are null: JSON has none."""
        content = {
            "train_length": self.train_length,
            "average": _finite(self.average),
            "perplexities": [
                asdict(p) | {"loss": _finite(p.loss), "perplexity": _finite(p.per_token)} for p in self.perplexities
            ],
        }
        return json.dumps(content, indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Extrapolation":
        content = json.loads(text)
        perplexities = []
        for entry in content["perplexities"]:
            del entry["perplexity"]
            perplexities.append(Perplexity(**entry | {"loss": math.nan if entry["loss"] is None else entry["loss"]}))
        return cls(content["train_length"], tuple(perplexities))

    def save(self, folder: Path, name: str = "TNN") -> None:
        """Write extrapolation.json, .md and .png; `name` is the label in the figure."""
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "extrapolation.json", self.to_json())
        write_text(folder / "extrapolation.md", self.to_table() + "\n")
        save_figure(draw_extrapolation({name: self}), folder / "extrapolation.png")


def extrapolate(
    model: Any,
    tokens: "Tokens",
    lengths: Sequence[int],
    eos: int,
    train_length: int,
    *,
    batch_tokens: int = 16_384,
    max_tokens: int | None = None,
) -> Extrapolation:
    """`block_perplexity` at several lengths, over the same text.

    Args:
        model: any causal language model of transformers, in evaluation mode.
        tokens: the text.
        lengths: tokens per block.
        eos: the token that stands before the text.
        train_length: that of the training, for the ratios.
        batch_tokens: how many tokens are computed at once, but at least one block. The result does not depend on it.
        max_tokens: read only the beginning of the text.

    >>> from tnn.training.extrapolation import LENGTHS, extrapolate
    >>> print(extrapolate(model, tokens, LENGTHS, eos=2, train_length=512).to_table())  # doctest: +SKIP
    """
    check_positive("train_length", train_length)
    if max_tokens is not None:
        check_positive("max_tokens", max_tokens)
    lengths = check_lengths(lengths, len(tokens.ids) if max_tokens is None else min(len(tokens.ids), max_tokens))
    perplexities = [
        block_perplexity(model, tokens, length, eos, batch_tokens=batch_tokens, max_tokens=max_tokens)
        for length in lengths
    ]
    return Extrapolation(train_length, tuple(perplexities))


def check_lengths(lengths: Sequence[int], tokens: int) -> list[int]:
    """Sorted and without duplicates. None may be longer than the text.

    >>> from tnn.training.extrapolation import check_lengths
    >>> check_lengths([1024, 512, 512], tokens=2000)
    [512, 1024]
    """
    if not lengths:
        raise ValueError("lengths must have at least one length, like 512,1024")
    for length in lengths:
        check_positive("lengths", length)
    if max(lengths) > tokens:
        raise ValueError(f"lengths must be at most the length of the text, {tokens:,} tokens; got {max(lengths):,}")
    return sorted(set(lengths))


def comparison_table(runs: Mapping[str, Extrapolation]) -> str:
    """Perplexities of several runs, one per column, as in the paper's table. Missing lengths are left empty.

    >>> from tnn.training.extrapolation import Extrapolation, comparison_table
    >>> from tnn.training.perplexity import Perplexity
    >>> print(comparison_table({"TNN": Extrapolation(512, (Perplexity(512, 3.0, 9000),))}))
    | length |   TNN |
    |-------:|------:|
    |    512 | 20.09 |
    |    Avg | 20.09 |
    """
    columns = [{p.length: format_ppl(p.per_token, 2) for p in run.perplexities} for run in runs.values()]
    rows = [["length", *runs]]
    for length in sorted({length for run in runs.values() for length in run.lengths}):
        rows.append([str(length), *(column.get(length, "") for column in columns)])
    return _table([*rows, ["Avg", *(format_ppl(run.average, 2) for run in runs.values())]])


def draw_extrapolation(runs: Mapping[str, Extrapolation]) -> "Figure":
    """Perplexity against length, one line per run. A dotted line marks the length of training.

    >>> from tnn.training.extrapolation import Extrapolation, draw_extrapolation
    >>> from tnn.training.perplexity import Perplexity
    >>> run = Extrapolation(512, (Perplexity(512, 3.0, 9000), Perplexity(1024, 2.9, 9000)))
    >>> draw_extrapolation({"TNN": run}).axes[0].get_xlabel()
    'tokens per block'
    """
    figure = new_figure(height=4)
    axes = figure.subplots()
    from_top = sorted(runs.items(), key=lambda named: -named[1].average)  # the legend has the order of the lines
    for i, (name, run) in enumerate(from_top):
        values, (again, hue) = [p.per_token for p in run.perplexities], divmod(i, len(COLORS))
        marks = f"{MARKERS[again % len(MARKERS)]}{LINES[again % len(LINES)]}"
        label = f"{name}: {format_ppl(run.average, 2)} on average"
        axes.plot(run.lengths, values, marks, color=COLORS[hue], markersize=3.5, linewidth=1.4, label=label)
    axes.set_xscale("log", base=2)
    for length in {run.train_length for run in runs.values()}:
        axes.axvline(length, color=INK, linewidth=0.8, linestyle=":")
        style: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "fontsize": 8, "color": INK}
        axes.annotate(f" trained at {length:,}", (length, 0.96), **style)
    _scale(axes, [p.per_token for run in runs.values() for p in run.perplexities])
    axes.xaxis.set_major_formatter(lambda length, _: f"{length:,.0f}")
    tidy(axes, x="tokens per block", y="perplexity per token")
    return figure


def _scale(axes: Any, values: list[float]) -> None:
    """Flat curves get a wide range, so that noise does not look like a trend."""
    from matplotlib.ticker import LogFormatter

    finite = [value for value in values if math.isfinite(value)] or [1.0]
    low, high = min(finite), max(finite)
    if high > STEEP * low:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(LogFormatter())
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.6)))
        axes.set_ylim(0.8 * low, min(1.25 * high, HIGHEST * low))
    else:
        axes.set_ylim(0.9 * low, high + 0.1 * low)


def _table(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (w + 1) + ":" for w in widths) + "|")
    return "\n".join(lines)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
