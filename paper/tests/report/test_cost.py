"""The estimate follows from recipes and models."""

import pytest

from paper.harness.experiment import Experiment, Outcome
from paper.harness.trainings import Setup, training_trial
from paper.harness.trial import Trial
from paper.report.cost import estimate, experiment_costs, load_estimates, recipe_costs, training_cost
from tnn.training.recipe import load_recipe


@pytest.mark.parametrize(
    ("name", "parameters", "updates", "tokens"),
    [
        ("wikitext103-alm", 48_677_376 - 7 * 1536, 50_000, 128 * 512),  # as printed, without the fixed decays
        ("wikitext103-blm", 126_400_089 - 12 * 2304, 50_000, 512 * 512),
        ("imagenet-tiny", 6_408_232, 187_672, 2048 * 14 * 14),  # 300 epochs of 1,281,167 images
        ("lra-image", 70_794, 180_000, 50 * 1024),  # 200 epochs of 45,000 images
        ("lra-pathx-large", 459_650, 250_000, 64 * 128 * 128),
        ("lra-retrieval", 89_474, 183_858, 16 * 2 * 4000),  # both texts are read
    ],
)
def test_training(name, parameters, updates, tokens):
    cost = training_cost(load_recipe(name))
    assert cost.parameters == pytest.approx(parameters, rel=0.001)
    assert abs(cost.updates - updates) <= 1
    assert cost.tokens == tokens


def test_by_hand():
    """48.67M parameters, 3.28e9 tokens: 9.57e17 operations, at 7.8e12 a second 34 hours."""
    cost = training_cost(load_recipe("wikitext103-alm"))
    assert cost.operations == pytest.approx(9.569e17, rel=1e-3)
    assert cost.hours("fp32") == pytest.approx(34.08, rel=1e-3)
    assert cost.hours("fp32") / cost.hours("TF32") == pytest.approx(8)


def test_every_recipe_of_the_paper_that_begins_anew():
    names = set(recipe_costs())
    assert {"wikitext103-alm", "wikitext103-blm", "lra-text", "lra-pathx-large", "imagenet-small"} <= names
    assert not [name for name in names if name.startswith(("mini", "glue"))]


def test_an_experiment_counts_its_own_trainings_once():
    def plan(options):
        assert options.scale == "paper"
        own = training_trial("made", "tnn", Setup("lra-listops", ("training.epochs=null", "training.steps=10")), 0)
        borrowed = training_trial("other", "tnn", Setup("lra-text"), 0)
        tuned = Trial("made", "tnn", {"of": own.settings, "recipe": {"task": "glue"}}, lambda context: {})
        return [own, borrowed, tuned, own]

    costs = list(experiment_costs(Experiment("made", "", ("tnn",), plan, lambda options, records: Outcome(()))))
    assert [(cost.updates, cost.tokens) for cost in costs] == [(10, 32 * 2048)]


@pytest.mark.slow
def test_the_file_is_of_today():
    assert load_estimates() == estimate(), "python -m paper.report.cost writes it anew"
