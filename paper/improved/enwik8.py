"""Bytes of enwik8: variants of TNN and its rivals at equal size, each at its best learning rate."""

from pathlib import Path

from paper.harness.trainings import Search, Setup, search_trials, training_trial
from paper.harness.trial import Metrics, Options, Trial
from paper.improved.rows import model_changes
from tnn.layers import count_parameters
from tnn.training.evaluation import load_model, load_text
from tnn.training.extrapolation import extrapolate
from tnn.training.recipe import Recipe

EXPERIMENT = "improved-enwik8"
SEEDS = 3
STEPS = 5000  # of 8 x 512 bytes: 20.5 MB
SEARCH = Search(rates=(3e-3, 6e-3, 1.2e-2, 2.4e-2), steps=1000)
LENGTHS = (512, 28 * 512)
TEST_TOKENS = 64 * LENGTHS[-1]
TRAINING = (
    "data.corpus=enwik8/enwik8.xz",
    "data.length=512",
    "training.batch_size=8",
    "training.log_every=100",
    "training.evaluate_every=null",
    "training.evaluate_examples=1024",
    "training.save_every=1000",
)


def row_trials(row: str, options: Options) -> tuple[list[Trial], list[Trial]]:
    """The trials of the search, and one training per seed."""
    setup, search = _setup(row, options), SEARCH
    if options.steps is not None:
        search = Search(search.rates, max(1, options.steps // 5))
    searches = search_trials(EXPERIMENT, row, setup, search)
    seeds = range(options.seeds or SEEDS)
    return searches, [training_trial(EXPERIMENT, row, setup, s, searches=searches, measure=_measure) for s in seeds]


def _setup(row: str, options: Options) -> Setup:
    steps = options.steps or STEPS
    length = (f"training.steps={steps}", f"training.warmup_steps={max(1, steps // 10)}")
    return Setup("mini-alm", (*TRAINING, *model_changes(row, "mini-alm"), *length))


def _measure(folder: Path, recipe: Recipe) -> Metrics:
    """Nats per byte of the test text at each length, over the same bytes."""
    model = load_model(folder)
    text = load_text(folder, model, None, "test")
    run = extrapolate(model, text.tokens, LENGTHS, text.tokenizer.eos_token_id, text.length, max_tokens=TEST_TOKENS)
    return {
        "test_losses": [perplexity.loss for perplexity in run.perplexities],
        "test_tokens": run.perplexities[0].tokens,
        "parameters": count_parameters(model).trained,
    }
