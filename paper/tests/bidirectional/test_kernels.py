"""How near to the diagonal the weight of Toeplitz matrices is, from a record of them."""

import numpy as np
import pytest

from paper.bidirectional.kernels import KERNELS_EXPERIMENT
from paper.bidirectional.trials import pre_trainings
from paper.harness.trial import Options
from tnn import TNNConfig, TNNForMaskedLM
from tnn.training.figures import find_kernels


def save(context, change):
    """A bidirectional model with free coefficients, where the pre-trained one would be."""
    config = TNNConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=2,
        is_decoder=False,
        coefficients="free",
        max_lags=128,
        decay_mode="none",
    )
    model = TNNForMaskedLM(config)
    for operator in model.model.operators:
        lags = np.arange(len(operator.free)) - len(operator.free) // 2
        sizes = np.broadcast_to(np.array([change(abs(lag)) for lag in lags])[:, None], operator.free.shape)
        operator.free.data.copy_(operator.free.new_tensor(sizes.copy()))
    _, (of,) = pre_trainings("tnn", Options())
    model.save_pretrained(of.folder(context))
    return model


@pytest.fixture
def conclude(context, record):
    def go():
        trial = KERNELS_EXPERIMENT.plan(Options())[-1]
        context.records.add(record(trial, **trial.work(context)))
        return context.records.find(trial).metrics, KERNELS_EXPERIMENT.conclude(Options(), context.records)

    return go


def test_weight_on_the_diagonal(context, conclude):
    save(context, lambda distance: 1.0 if distance == 0 else 0.1 if distance <= 3 else 0.0)
    metrics, outcome = conclude()
    assert len(metrics["layers"]) == 2
    for layer in metrics["layers"]:
        assert (layer["half_within"], layer["most_within"], layer["largest_at"]) == (0, 3, 0)
        assert layer["share_of_diagonal"] == pytest.approx(1 / 1.6)
        assert layer["share_of_band"] == pytest.approx(1)
    assert outcome.claims[0].verdict == "holds"
    assert outcome.tables[0].rows[1][:6] == ("1", "0", "3", "62.5%", "100.0%", "0")


def test_weight_far_away(context, conclude):
    save(context, lambda distance: distance / 128)
    _, outcome = conclude()
    assert outcome.claims[0].verdict == "does not hold"
    assert "the first in 0 of 2 layers, the second in 0" in outcome.claims[0].evidence


def test_a_spike_and_a_plain(context, conclude):
    save(context, lambda distance: 2.0 if distance == 0 else 1.0)
    claim = conclude()[1].claims[0]
    assert claim.verdict == "holds in part"
    assert claim.checked.count("from ") == claim.checked.count(" to ") == 2


def test_the_figure_is_that_of_the_model(context, conclude):
    model = save(context, lambda distance: 0.9**distance)
    metrics, outcome = conclude()
    for kernel, drawn, axes in zip(
        find_kernels(model, 128), metrics["drawn"], outcome.figure().axes[::3], strict=False
    ):
        np.testing.assert_allclose(drawn["mean_size"], kernel.mean_size, rtol=1e-3)
        assert axes.get_title(loc="left") == f"{kernel.name}: mean |t|"


def test_nothing_is_measured(records):
    outcome = KERNELS_EXPERIMENT.conclude(Options(), records)
    assert outcome.figure is None
    assert outcome.claims[0].verdict == "not measured"


@pytest.mark.parametrize(("scale", "trials"), [("mini", 5), ("paper", 2)])
def test_the_plan_begins_with_the_pre_training(scale, trials):
    plan = KERNELS_EXPERIMENT.plan(Options(scale=scale))
    assert len(plan) == trials
    assert {trial.experiment for trial in plan[:-1]} == {"glue"}
    assert (plan[-1].experiment, plan[-1].row) == ("kernels", "tnn")
