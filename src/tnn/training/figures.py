"""Figures of the Toeplitz matrices of a model and of the losses of a training, in one style."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from tnn._checks import check_positive
from tnn._files import atomic_path, check_writable
from tnn.layers.mixer import Mixer
from tnn.layers.rank import named_operators
from tnn.ops import toeplitz_matrix

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#2f5d9b", "#d1633b", "#4b8f6a", "#8a5aa3", "#b8902c", "#5f6b76")
INK, FAINT = "#30363d", "#d5d9de"
WIDTH, DOTS = 8.0, 150  # inches, and pixels per inch
KERNELS = 5  # drawn per operator
DARKEST = 1e-3  # times the largest entry of a matrix: all below is black
MOST_POSITIONS = 4096  # rows and columns of a drawn matrix
TINY = 1e-30  # replaces zeros in divisions and logarithms
FAR = 50  # lags; if there are more, their axis is logarithmic
FEW = 6  # lines; with more, the legend is beside the axes


def new_figure(height: float) -> "Figure":
    """An empty figure of the common width, without a window and without global state.

    >>> from tnn.training.figures import new_figure
    >>> new_figure(height=3).get_size_inches()
    array([8., 3.])
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'toeplitz-nn[plot]'") from error
    return Figure(figsize=(WIDTH, height), dpi=DOTS, layout="constrained")


def tidy(axes: "Axes", title: str = "", x: str = "", y: str = "", grid: bool = True) -> None:
    """Apply the style of all figures. Call it after everything has been drawn."""
    axes.set_title(title, loc="left", fontsize=9, color=INK)
    axes.set_xlabel(x, fontsize=8, color=INK)
    axes.set_ylabel(y, fontsize=8, color=INK)
    axes.tick_params(which="both", labelsize=7, labelcolor=INK, color=FAINT, length=2)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(color=FAINT, linewidth=0.5, alpha=0.7)
    if entries := axes.get_legend_handles_labels()[1]:
        beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1)}
        axes.legend(frameon=False, fontsize=8, labelcolor=INK, **(beside if len(entries) > FEW else {}))


def check_figure(path: Path) -> None:
    """Called before the work: an error if `save_figure` could not write to this path, or not in this format."""
    known = new_figure(height=1).canvas.get_supported_filetypes()
    if path.suffix and path.suffix[1:].lower() not in known:
        raise ValueError(f"{path} must end in one of .{', .'.join(sorted(known))}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of an image file")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}")
    check_writable(path)


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure in the format that the name ends in, by default PNG. The file is complete or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:] or "png")


class Kernel(NamedTuple):
    """What is drawn of a layer: statistics of |t| over all channels, and the kernels of some channels.

    A mixer without a Toeplitz operator is drawn by its derivatives instead, over output positions: see `influence`.
    """

    name: str
    lags: np.ndarray  # (w,)
    mean_size: np.ndarray  # (w,)
    low: np.ndarray  # (w,), the 10% quantile over channels
    high: np.ndarray  # (w,), the 90% quantile
    examples: np.ndarray  # (w, number of examples), each divided by its largest size
    channels: int
    matrix: np.ndarray | None = None  # (n, n); None: the Toeplitz matrix of mean_size

    def share_within(self, distance: int) -> float:
        """The share of lags up to a distance in the sum of all sizes."""
        by_distance = self._by_distance()
        return float(by_distance[min(distance, len(by_distance) - 1)] / max(by_distance[-1], TINY))

    def distance_of(self, share: float) -> int:
        """The smallest distance within which the sizes reach this share of their sum."""
        by_distance = self._by_distance()
        return int(np.searchsorted(by_distance, share * by_distance[-1]))

    def _by_distance(self) -> np.ndarray:
        return np.bincount(np.abs(self.lags), weights=self.mean_size).cumsum()


def draw_model(model: Any, length: int | None = None) -> "Figure":
    """One row per layer of a model: its Toeplitz matrix, some kernels, and the size of coefficients at each lag.

    A layer without a Toeplitz operator is drawn by how much each input changes each output.

    `length` is the number of positions. By default it is 256 for a text model, and one side of the image for an image
    model. docs/evaluation.md explains the figure.

    >>> from tnn import TNNConfig, TNNForCausalLM
    >>> from tnn.training.figures import draw_model
    >>> model = TNNForCausalLM(TNNConfig(vocab_size=100, hidden_size=16, num_hidden_layers=2))
    >>> len(draw_model(model, length=64).axes)  # two rows of three, and one colorbar each
    8
    """
    length = _default_length(model.config) if length is None else length
    return draw_kernels(find_kernels(model, length), length)


def draw_kernels(kernels: Sequence[Kernel], length: int) -> "Figure":
    """The figure of `draw_model`, from its kernels."""
    figure = new_figure(height=0.3 + 1.9 * len(kernels))
    rows = figure.subplots(len(kernels), 3, squeeze=False, width_ratios=(1, 1.2, 1.2))
    for kernel, (left, middle, right) in zip(kernels, rows, strict=True):
        _draw_matrix(left, kernel, length)
        _draw_examples(middle, kernel)
        _draw_sizes(right, kernel)
    for axes, label in zip(rows[-1], ("input position j", "lag i − j", "lag i − j"), strict=True):
        axes.set_xlabel(label)
    return figure


def draw_training(log: Iterable[Mapping[str, float]]) -> "Figure":
    """Training loss and evaluation loss of a run against its steps, from the entries of its log.

    >>> from tnn.training.figures import draw_training
    >>> draw_training([{"step": 1, "loss": 5.6}, {"step": 2, "loss": 5.1}]).axes[0].get_xlabel()
    'step'
    """
    entries = list(log)
    steps, losses = _series(entries, "loss")
    eval_steps, eval_losses = _series(entries, "eval_loss")
    if not len(losses) + len(eval_losses):
        raise ValueError("the log of this run has no losses yet: nothing to draw")
    figure = new_figure(height=4)
    axes = figure.subplots()
    if len(losses):
        axes.plot(steps, losses, color=COLORS[0], alpha=0.25, linewidth=0.8)
        axes.plot(steps, _smooth(losses), color=COLORS[0], linewidth=1.6, label="training, smoothed")
    if len(eval_losses):
        axes.plot(eval_steps, eval_losses, "o-", color=COLORS[1], markersize=3.5, linewidth=1.2, label="evaluation")
    axes.set_ylim(*_limits_without_start(losses, eval_losses))
    axes.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
    tidy(axes, x="step", y="loss, nats per token")
    return figure


def _default_length(config: Any) -> int:
    side = getattr(config, "image_size", None)
    return 256 if side is None else side // config.patch_size


def find_kernels(model: Any, length: int) -> list[Kernel]:
    """The kernels of all layers of a model, for a number of positions. A 2-D operator has one per axis.

    >>> from tnn import TNNConfig, TNNForCausalLM
    >>> from tnn.training.figures import find_kernels
    >>> model = TNNForCausalLM(TNNConfig(vocab_size=100, hidden_size=16, num_hidden_layers=2))
    >>> [kernel.name for kernel in find_kernels(model, length=64)]
    ['layer 1', 'layer 2']
    """
    check_positive("length", length, at_most=MOST_POSITIONS)
    return [
        _influence_kernel(name, part, length) if isinstance(part, Mixer) else _kernel(name, part, length)
        for name, part in named_operators(model)
    ]


def influence(mixer: Any, length: int) -> np.ndarray:
    """(length, length): how much input j changes output i of a mixer, at one random input.

    The mean of |d y_i / d x_j| over input channels, for a random combination of output channels.

    >>> from tnn.mixers.softmax import SoftmaxAttention
    >>> from tnn.training.figures import influence
    >>> matrix = influence(SoftmaxAttention(8, causal=True).eval(), length=4)
    >>> bool(matrix[3, 0] > 0), bool(matrix[0, 3] > 0)
    (True, False)
    """
    generator = torch.Generator().manual_seed(0)
    like = next(mixer.parameters(), torch.empty(0))
    x, signs = torch.randn(2, 1, length, mixer.hidden_size, generator=generator).to(like)
    y = (mixer(x.requires_grad_()) * signs.sign()).sum((0, 2))  # (length,)
    rows = [torch.autograd.grad(y[i], x, retain_graph=True)[0].abs().mean((0, 2)) for i in range(length)]
    return torch.stack(rows).double().cpu().numpy()


def _influence_kernel(name: str, mixer: Any, length: int) -> Kernel:
    matrix = influence(mixer, length)
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} has derivatives that are NaN or infinite: nothing to draw")
    lags = np.arange(0 if mixer.causal else 1 - length, length)
    by_lag = [np.diagonal(matrix, -lag) for lag in lags]  # over the positions that have an input at this lag
    low, high = np.array([np.quantile(sizes, [0.1, 0.9]) for sizes in by_lag]).T
    positions = np.linspace(0, length - 1, min(KERNELS, length)).round().astype(int)
    examples = np.full((len(lags), len(positions)), np.nan)
    for column, i in enumerate(positions):
        inside = (i - lags >= 0) & (i - lags < length)
        row = matrix[i, i - lags[inside]]
        examples[inside, column] = row / max(row.max(), TINY)
    return Kernel(name, lags, np.array([sizes.mean() for sizes in by_lag]), low, high, examples, length, matrix)


def _kernel(name: str, operator: Any, length: int) -> Kernel:
    coefficients = operator.kernel(length).detach().double().cpu().numpy()
    if not np.isfinite(coefficients).all():
        raise ValueError(f"{name} has coefficients that are NaN or infinite: nothing to draw")
    first = 0 if operator.causal else -(len(coefficients) // 2)
    lags, size = np.arange(first, first + len(coefficients)), np.abs(coefficients)
    low, high = np.quantile(size, [0.1, 0.9], axis=1)
    chosen = coefficients[:, _example_channels(lags, size)]
    examples = chosen / np.maximum(np.abs(chosen).max(0), TINY)
    return Kernel(name, lags, size.mean(1), low, high, examples, channels=size.shape[1])


def _example_channels(lags: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Channels from the smallest to the largest mean distance."""
    distances = (np.abs(lags)[:, None] * size).sum(0) / np.maximum(size.sum(0), TINY)
    ranks = np.linspace(0, len(distances) - 1, min(KERNELS, len(distances))).round().astype(int)
    return np.argsort(distances)[ranks]


def _draw_matrix(axes: "Axes", kernel: Kernel, length: int) -> None:
    from matplotlib.colors import LogNorm

    matrix, symbol = kernel.matrix, "|dy/dx|"
    if matrix is None:
        mean = torch.from_numpy(kernel.mean_size)[:, None]
        matrix, symbol = toeplitz_matrix(mean, length, causal=kernel.lags[0] == 0)[0].numpy(), "|t|"
    largest = max(matrix.max(), TINY)
    smallest = max(matrix.min(), DARKEST * largest)
    image = axes.imshow(matrix.clip(smallest), cmap="magma", norm=LogNorm(smallest, largest), interpolation="nearest")
    tidy(axes, f"{kernel.name}: mean {symbol}", y="output position i", grid=False)
    ticks = np.geomspace(smallest, largest, 4)
    bar = axes.figure.colorbar(image, ax=axes, ticks=ticks, format="%.2g", pad=0.02)
    bar.ax.tick_params(which="both", labelsize=7, labelcolor=INK, length=0)
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)


def _draw_examples(axes: "Axes", kernel: Kernel) -> None:
    for t, color in zip(kernel.examples.T, COLORS, strict=False):
        axes.plot(kernel.lags, t, color=color, linewidth=1.2)
    _scale_lags(axes, kernel.lags)
    if kernel.matrix is None:
        tidy(axes, f"{kernel.examples.shape[1]} of {kernel.channels:,} kernels", y="t / max |t|")
    else:
        tidy(axes, f"{kernel.examples.shape[1]} of {kernel.channels:,} outputs", y="|dy/dx| / max")


def _draw_sizes(axes: "Axes", kernel: Kernel) -> None:
    """The mean of |t| over channels, and the range of 80% of the channels."""
    axes.fill_between(kernel.lags, kernel.low, kernel.high, color=COLORS[0], alpha=0.2, linewidth=0)
    axes.plot(kernel.lags, kernel.mean_size, color=COLORS[0], linewidth=1.6)
    if _scale_lags(axes, kernel.lags):
        axes.set_yscale("log")
        axes.set_ylim(bottom=max(kernel.low.min(), DARKEST * kernel.high.max(), TINY) / 2)
    half, most = kernel.distance_of(0.5), kernel.distance_of(0.9)
    tidy(axes, f"50% up to lag {half}, 90% up to {most}", y="|t|" if kernel.matrix is None else "|dy/dx|")


def _scale_lags(axes: "Axes", lags: np.ndarray) -> bool:
    """Use a logarithmic scale that includes 0, if there are many lags. Returns whether there are."""
    far = bool(lags[-1] > FAR)
    if far:
        axes.set_xscale("symlog", linthresh=1, linscale=0.5)
    axes.xaxis.set_major_formatter(lambda lag, _: f"{lag:.0f}")
    return far


def _series(entries: list[Mapping[str, float]], key: str) -> tuple[np.ndarray, np.ndarray]:
    """(steps, values) of the entries that have the key."""
    pairs = [(entry["step"], entry[key]) for entry in entries if key in entry]
    return np.array([step for step, _ in pairs]), np.array([value for _, value in pairs])


def _smooth(values: np.ndarray) -> np.ndarray:
    """The mean over 5% of the run around each step, over less at the ends."""
    window = np.ones(2 * (len(values) // 40) + 1)
    return np.convolve(values, window, "same") / np.convolve(np.ones(len(values)), window, "same")


def _limits_without_start(*series: np.ndarray) -> tuple[float, float]:
    """Limits without the high values of the first steps, so that differences later on are visible."""
    values = np.concatenate(series)
    values = values[np.isfinite(values)]
    low, high = np.quantile(values, [0, 0.97]) if len(values) else (0, 1)
    margin = 0.05 * (high - low) or 0.1
    return low - margin, high + margin
