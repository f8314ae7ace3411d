"""Trials of autoregressive language models: a method or a variant of TNN is trained, then evaluated on text."""

from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path

from paper.harness.mixers import is_own_mixer
from paper.harness.records import Record
from paper.harness.trainings import Search, Setup, measure_trained, search_trials, training_trial
from paper.harness.trial import Metrics, Options, Scale, Trial, TrialContext
from paper.language.variants import VARIANTS
from tnn.layers import count_parameters
from tnn.training import runs
from tnn.training.evaluation import load_model, load_text
from tnn.training.extrapolation import LENGTHS, Extrapolation, extrapolate
from tnn.training.perplexity import Perplexity, block_perplexity, from_loss
from tnn.training.recipe import Recipe

ALM_METHODS = (
    *("transformer", "alibi", "transformer-ls", "flash", "flash-quad", "elu", "performer", "cosformer"),
    *("synthesizer-dense", "synthesizer-random", "gmlp", "s4", "dss", "gss", "tnn"),
)
MANY_SEEDS = ("tnn", "transformer", "alibi", "gss")  # three seeds by default; GSS because it comes so close to TNN


@dataclass(frozen=True)
class AlmScaleSettings:
    """What is trained and measured at a scale."""

    recipe: str  # of TNN; RECIPE-METHOD is the preset of a method
    changes: tuple[str, ...]
    method_changes: tuple[str, ...]  # for all methods except TNN
    paths: tuple[str, ...]
    search: Search | None
    test_tokens: int | None  # of the test text that perplexity is measured on; None: all
    long_tokens: int | None  # the same, for each length of extrapolation


SCALES: dict[Scale, AlmScaleSettings] = {
    "mini": AlmScaleSettings(
        recipe="mini-alm",
        changes=(
            "data.corpus=wikitext-2",
            "training.steps=5000",
            "training.batch_size=1",  # in a short time, many small updates learn more than a few large ones
            "training.warmup_steps=500",
            "training.log_every=100",
            "training.evaluate_every=null",
            "training.evaluate_examples=256",
            "training.save_every=1000",
        ),
        method_changes=(),
        paths=("data.corpus",),
        search=Search(rates=(1e-3, 3e-3, 9e-3), steps=1000),
        test_tokens=2**18,
        long_tokens=4 * LENGTHS[-1],
    ),
    "paper": AlmScaleSettings(
        recipe="wikitext103-alm",
        changes=(),
        method_changes=("training.weight_decay=0.1",),
        paths=("data.corpus", "data.tokenizer"),
        search=None,
        test_tokens=None,
        long_tokens=None,
    ),
}


def search_of(method: str, options: Options) -> list[Trial]:
    """The trials that choose the learning rate of a method."""
    search = SCALES[options.scale].search
    if search is not None and options.steps is not None:
        search = Search(search.rates, max(1, options.steps // 5))
    return search_trials("alm", method, _setup(method, options), search)


def method_trials(method: str, options: Options) -> list[Trial]:
    """The trainings of a method, one per seed."""
    seeds = options.seeds or (3 if method in MANY_SEEDS and options.scale == "mini" else 1)
    setup, searches = _setup(method, options), search_of(method, options)
    return [_final("alm", method, setup, seed, searches, options) for seed in range(seeds)]


def variant_trials(experiment: str, row: str, options: Options) -> list[Trial]:
    """The trainings of a row of an ablation, at the best learning rate of TNN."""
    changes = VARIANTS[experiment][options.scale][row]
    if not changes:
        return method_trials("tnn", options)
    seeds = options.seeds or (3 if options.scale == "mini" else 1)
    setup, searches = _setup("tnn", options, changes), search_of("tnn", options)
    return [_final(experiment, row, setup, seed, searches, options) for seed in range(seeds)]


def longer_trial(of: Trial, times: int, options: Options) -> Trial:
    """The training of a trial with `times` as many updates, at the learning rate of the shorter training."""
    ablated = of.experiment in VARIANTS
    method, changes = ("tnn", VARIANTS[of.experiment][options.scale][of.row]) if ablated else (of.row, ())
    steps = of.settings["recipe"]["training"]["steps"]
    setup = _setup(method, replace(options, steps=times * steps), changes)
    return _final("alm-longer", of.row, setup, of.seed, search_of(method, options), options)


def _setup(method: str, options: Options, changes: tuple[str, ...] = ()) -> Setup:
    scale = SCALES[options.scale]
    own: tuple[str, ...] = ()
    if method != "tnn":
        change = f"model.mixer={method}" if is_own_mixer(method) else f"model.preset={scale.recipe}-{method}"
        own = (change, *scale.method_changes)
    steps: tuple[str, ...] = ()
    if options.steps is not None:
        steps = (f"training.steps={options.steps}", f"training.warmup_steps={max(1, options.steps // 10)}")
    return Setup(scale.recipe, (*scale.changes, *own, *changes, *steps), scale.paths)


def _final(experiment: str, row: str, setup: Setup, seed: int, searches: list[Trial], options: Options) -> Trial:
    measure = partial(_measure, test_tokens=SCALES[options.scale].test_tokens)
    return training_trial(experiment, row, setup, seed, searches=searches, measure=measure)


def _measure(folder: Path, recipe: Recipe, test_tokens: int | None) -> Metrics:
    """Perplexities per token as in the paper, and the parameters as it counts them."""
    model = load_model(folder)
    text = load_text(folder, model, None, "test")
    perplexity = block_perplexity(model, text.tokens, text.length, text.tokenizer.eos_token_id, max_tokens=test_tokens)
    return {
        "validation_perplexity": from_loss(runs.load_measured(folder)["eval_loss"]),
        "test_loss": perplexity.loss,
        "test_perplexity": perplexity.per_token,
        "test_tokens": perplexity.tokens,
        "parameters": sum(count_parameters(model)),
    }


def lengths_trial(of: Trial, options: Options, experiment: str = "extrapolation") -> Trial:
    """The perplexities of a trained model at the paper's 19 lengths."""
    tokens = SCALES[options.scale].long_tokens
    settings = {"of": of.settings, "lengths": list(LENGTHS), "tokens": tokens}
    return Trial(experiment, of.row, settings, partial(_lengths, of=of, tokens=tokens), "lengths", of.seed, cost=1000.0)


def _lengths(context: TrialContext, of: Trial, tokens: int | None) -> Metrics:
    return measure_trained(of, context, partial(_measure_lengths, tokens=tokens))


def _measure_lengths(folder: Path, tokens: int | None) -> Metrics:
    model = load_model(folder)
    text = load_text(folder, model, None, "test")
    run = extrapolate(model, text.tokens, LENGTHS, text.tokenizer.eos_token_id, text.length, max_tokens=tokens)
    return {
        "train_length": run.train_length,
        "losses": [perplexity.loss for perplexity in run.perplexities],
        "tokens": run.perplexities[0].tokens,
        "average": run.average,
        "longest_to_trained": run.ratios[-1],
    }


def extrapolation_of(record: Record) -> Extrapolation:
    """As it was measured; a loss that was NaN counts as infinite."""
    metrics, lengths = record.metrics, record.settings["lengths"]
    losses = [inf if loss is None else loss for loss in metrics["losses"]]
    perplexities = [Perplexity(n, loss, metrics["tokens"]) for n, loss in zip(lengths, losses, strict=True)]
    return Extrapolation(metrics["train_length"], tuple(perplexities))
