"""The rates that a learned decay ends at: whether training prefers a long memory or a short one."""

from functools import partial
from pathlib import Path
from statistics import mean

import torch
from torch import Tensor, nn

from paper.harness.records import Records
from paper.harness.trainings import measure_trained
from paper.harness.trial import Metrics, Options, Trial, TrialContext
from paper.language.trials import variant_trials
from tnn.layers.decay import Decay
from tnn.training.evaluation import load_model

SHARES = (0.25, 0.5, 0.75)  # quantiles over channels


def rate_trials(options: Options) -> list[Trial]:
    """One trial per training with a learned decay."""
    if options.methods is not None and "learned" not in options.methods:
        return []
    return [_trial(of) for of in variant_trials("ablation-decay", "learned", options)]


def _trial(of: Trial) -> Trial:
    settings = {"of": of.settings, "shares": list(SHARES)}
    return Trial(of.experiment, of.row, settings, partial(_work, of=of), "rates", of.seed, cost=100.0)


def _work(context: TrialContext, of: Trial) -> Metrics:
    return measure_trained(of, context, partial(_measure, seed=of.seed))


def _measure(folder: Path, seed: int) -> Metrics:
    model = load_model(folder)
    torch.manual_seed(seed)
    return {"before": _quantiles(type(model)(model.config)), "after": _quantiles(model)}


@torch.no_grad()
def _quantiles(model: nn.Module) -> list[float]:
    """Quantiles of the rates of all channels in all layers."""
    one = torch.ones(1)  # at a lag of 1 the decay equals its rate
    rates = torch.cat([module(one).flatten() for module in model.modules() if isinstance(module, Decay)])  # (channels,)
    quantiles: Tensor = rates.double().quantile(torch.tensor(SHARES, dtype=torch.float64))
    return [round(value, 4) for value in quantiles.tolist()]


def about_rates(options: Options, records: Records) -> str:
    """A sentence; empty if nothing was measured."""
    measured = [record.metrics for trial in rate_trials(options) if (record := records.find(trial))]
    known = [metrics for metrics in measured if "after" in metrics]
    if not known:
        return ""
    before, after = (_middle_half([metrics[when] for metrics in known]) for when in ("before", "after"))
    return f"the middle half of the learned rates is {after}; it was {before} before training."


def _middle_half(quantiles: list[list[float]]) -> str:
    """The mean over seeds."""
    low, _, high = map(mean, zip(*quantiles, strict=True))
    return f"{low:.2f} to {high:.2f}"
