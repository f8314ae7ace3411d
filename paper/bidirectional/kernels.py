"""Kernels: the Toeplitz matrices of the bidirectional TNN, and how close to the diagonal their weight is."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from paper.bidirectional.trials import pre_trainings
from paper.harness.experiment import Claim, Experiment, Outcome, Table
from paper.harness.judging import verdict_of
from paper.harness.records import Records
from paper.harness.trainings import measure_trained
from paper.harness.trial import Metrics, Options, Trial, TrialContext
from tnn.training.evaluation import load_model
from tnn.training.figures import Kernel, draw_kernels, find_kernels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTHS = {"mini": 128, "paper": 512}  # of the pre-training
BAND = 4  # diagonals on each side of the main one
NEAR = 8  # half of the weight within 1/8 of the length counts as concentrated


def _plan(options: Options) -> list[Trial]:
    searches, trainings = pre_trainings("tnn", options)
    return [*searches, *trainings, *_trials(trainings, options)]


def _trials(trainings: list[Trial], options: Options) -> list[Trial]:
    return [_trial(of, LENGTHS[options.scale]) for of in trainings]


def _trial(of: Trial, length: int) -> Trial:
    settings = {"of": of.settings, "length": length, "band": BAND}
    return Trial("kernels", of.row, settings, partial(_work, of=of, length=length), seed=of.seed)


def _work(context: TrialContext, of: Trial, length: int) -> Metrics:
    return measure_trained(of, context, partial(_measure, seed=of.seed, length=length))


def _measure(folder: Path, seed: int, length: int) -> Metrics:
    model = load_model(folder)
    torch.manual_seed(seed)
    untrained = type(model)(model.config)
    kernels = find_kernels(model, length)
    return {
        "layers": [_distances(kernel) for kernel in kernels],
        "untrained_layers": [_distances(kernel) for kernel in find_kernels(untrained, length)],
        "drawn": [_to_json(kernel) for kernel in kernels],
    }


def _distances(kernel: Kernel) -> Metrics:
    return {
        "half_within": kernel.distance_of(0.5),
        "most_within": kernel.distance_of(0.9),
        "share_of_diagonal": kernel.share_within(0),
        "share_of_band": kernel.share_within(BAND),
        "largest_at": abs(int(kernel.lags[kernel.mean_size.argmax()])),
    }


def _to_json(kernel: Kernel) -> Metrics:
    """Everything that is drawn, rounded to four digits."""
    arrays = {name: value for name, value in kernel._asdict().items() if isinstance(value, np.ndarray)}
    return {**kernel._asdict(), **{name: _rounded(value).tolist() for name, value in arrays.items()}}


def _rounded(values: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda value: float(f"{value:.4g}"), otypes=[values.dtype])(values)


def _from_json(values: dict[str, Any]) -> Kernel:
    fields: dict[str, Any] = {k: np.array(value) if isinstance(value, list) else value for k, value in values.items()}
    return Kernel(**fields)


def _conclude(options: Options, records: Records) -> Outcome:
    length = LENGTHS[options.scale]
    trials = _trials(pre_trainings("tnn", options)[1], options)
    known = [record for trial in trials if (record := records.find(trial)) and "layers" in record.metrics]
    metrics = [record.metrics for record in known]
    head = ("layer", "50% of the weight within", "90% within", "on the diagonal", f"within {BAND}", "largest at")
    rows: list[tuple[str, ...]] = [(*head, "untrained: 50% within", "90% within")]
    for record in known:
        for number, (after, before) in enumerate(_pairs(record.metrics), start=1):
            rows.append((f"{number}, seed {record.seed}" if len(known) > 1 else str(number), *_cells(after, before)))
    table = Table(f"Distances from the diagonal in matrices of {length} by {length}", tuple(rows))
    figure = partial(_draw, metrics[0], length) if metrics else None
    notes = (
        "The weight is the mean of |t| over all channels. If it were equal at all lags, 50% of it would be within "
        f"{length // 2}; the decay alone brings it closer, as the untrained model shows.",
    )
    return Outcome((table,), figure, (_claim(metrics, length),), notes)


def _draw(metrics: Metrics, length: int) -> "Figure":
    return draw_kernels([_from_json(values) for values in metrics["drawn"]], length)


def _pairs(metrics: Metrics) -> list[tuple[Metrics, Metrics]]:
    return list(zip(metrics["layers"], metrics["untrained_layers"], strict=True))


def _cells(after: Metrics, before: Metrics) -> tuple[str, ...]:
    return (
        *(str(after[name]) for name in ("half_within", "most_within")),
        *(f"{after[name]:.1%}" for name in ("share_of_diagonal", "share_of_band")),
        str(after["largest_at"]),
        *(str(before[name]) for name in ("half_within", "most_within")),
    )


def _claim(models: list[Metrics], length: int) -> Claim:
    layers, untrained = (
        [layer for metrics in models for layer in metrics[key]] for key in ("layers", "untrained_layers")
    )
    near = length // NEAR
    text = (
        "Most of the weight is concentrated at the diagonal "
        f"(in each layer the largest mean |t| is on it or next to it, and half of the weight is within {near})."
    )
    if not layers:
        return Claim(text, "not measured", "no model has been trained")
    largest = [layer["largest_at"] <= 1 for layer in layers]
    half = [layer["half_within"] <= near for layer in layers]
    after, before = (", ".join(str(layer["half_within"]) for layer in several) for several in (layers, untrained))
    evidence = (
        f"the first in {sum(largest)} of {len(layers)} layers, the second in {sum(half)}; "
        f"half of the weight is within {after}, and was within {before} before training"
    )
    gains = [
        f"from {before['share_of_band']:.1%} to {after['share_of_band']:.1%}"
        for after, before in zip(layers, untrained, strict=True)
    ]
    checked = f"change of the weight within {BAND} of the diagonal by training, layer by layer: {', '.join(gains)}."
    return Claim(text, verdict_of([*largest, *half]), evidence, checked)


KERNELS_EXPERIMENT = Experiment(
    "kernels", "The Toeplitz matrices of the bidirectional TNN, layer by layer.", ("tnn",), _plan, _conclude
)
