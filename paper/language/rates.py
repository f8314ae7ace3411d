"""The rates that learned decays come to: whether training itself asks for a long memory or a short one."""

from functools import partial
from pathlib import Path
from statistics import mean

import torch
from torch import Tensor, nn

from paper.harness.records import Records
from paper.harness.trainings import measure_trained
from paper.harness.trial import Metrics, Options, Place, Trial
from paper.language.trials import variant_trials
from tnn.layers.decay import Decay
from tnn.training.evaluation import load_model

SHARES = (0.25, 0.5, 0.75)  # of the channels that have a rate below


def rate_trials(options: Options) -> list[Trial]:
    """One for each training with learned decays."""
    if options.methods is not None and "learned" not in options.methods:
        return []
    return [_trial(of) for of in variant_trials("ablation-decay", "learned", options)]


def _trial(of: Trial) -> Trial:
    settings = {"of": of.settings, "shares": list(SHARES)}
    return Trial(of.experiment, of.row, settings, partial(_work, of=of), "rates", of.seed, cost=100.0)


def _work(place: Place, of: Trial) -> Metrics:
    return measure_trained(of, place, partial(_measure, seed=of.seed))


def _measure(folder: Path, seed: int) -> Metrics:
    model = load_model(folder)
    torch.manual_seed(seed)
    return {"before": _quantiles(type(model)(model.config)), "after": _quantiles(model)}


@torch.no_grad()
def _quantiles(model: nn.Module) -> list[float]:
    """Of the rates of all channels in all layers."""
    one = torch.ones(1)  # a lag, at which the decay is its rate
    rates = torch.cat([module(one).flatten() for module in model.modules() if isinstance(module, Decay)])  # (channels,)
    found: Tensor = rates.double().quantile(torch.tensor(SHARES, dtype=torch.float64))
    return [round(value, 4) for value in found.tolist()]


def about_rates(options: Options, records: Records) -> str:
    """In a sentence; nothing if none was measured."""
    found = [record.metrics for trial in rate_trials(options) if (record := records.find(trial))]
    known = [metrics for metrics in found if "after" in metrics]
    if not known:
        return ""
    before, after = (_middle_half([metrics[when] for metrics in known]) for when in ("before", "after"))
    return f"half of the learned rates lie in {after}; they began in {before}."


def _middle_half(quantiles: list[list[float]]) -> str:
    """The mean over seeds."""
    low, _, high = map(mean, zip(*quantiles, strict=True))
    return f"{low:.2f} to {high:.2f}"
