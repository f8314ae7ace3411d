"""The recommended TNN as a state space: how many states, what is proven, and what it costs in bits per byte."""

from functools import partial
from math import log
from pathlib import Path

from paper.harness.experiment import Table
from paper.harness.records import Records
from paper.harness.trainings import measure_trained
from paper.harness.trial import Metrics, Trial, TrialContext
from tnn.models.state_space import LargerStateSpace
from tnn.training.evaluation import load_model, load_text
from tnn.training.perplexity import block_perplexity

TOLERANCE = 1e-3
TEST_BYTES = 2**18


def state_space_trial(of: Trial) -> Trial:
    """Of the model that another trial trains."""
    settings = {"of": of.settings, "tolerance": TOLERANCE, "test_bytes": TEST_BYTES}
    return Trial(of.experiment, of.row, settings, partial(_convert, of=of), "state space", of.seed, cost=200.0)


def _convert(context: TrialContext, of: Trial) -> Metrics:
    return measure_trained(of, context, _measure)


def _measure(folder: Path) -> Metrics:
    """States and bounds per layer, and nats per byte of the test text before and after."""
    model = load_model(folder)
    try:
        converted = model.to_state_space(TOLERANCE)
    except LargerStateSpace as error:
        return {"refused": str(error)}
    text = load_text(folder, model, None, "test")
    losses = [
        block_perplexity(each, text.tokens, text.length, text.tokenizer.eos_token_id, max_tokens=TEST_BYTES).loss
        for each in (model, converted)
    ]
    layers = converted.config.state_space
    return {name: [layer[name] for layer in layers] for name in ("states", "history", "bound")} | {"losses": losses}


def state_space_table(trials: list[Trial], records: Records) -> Table:
    """One row per seed."""
    head = ("seed", "states per layer", "inputs of the exact history", "proven bound", "bits per byte", "change")
    lines: list[tuple[str, ...]] = [head]
    for trial in trials:
        if (record := records.find(trial)) is None:
            continue
        metrics = record.metrics
        if "losses" not in metrics:
            lines.append((str(trial.seed), metrics.get("refused", "the training failed"), *[""] * 4))
            continue
        exact, converted = (loss / log(2) for loss in metrics["losses"])
        numbers = (_list(metrics[name]) for name in ("states", "history"))
        bounds = ", ".join(f"{bound:.2g}" for bound in metrics["bound"])
        lines.append((str(trial.seed), *numbers, bounds, f"{exact:.4f}", f"{converted - exact:+.5f}"))
    title = f"The recommended TNN as a state space, to_state_space({TOLERANCE:g})"
    return Table(title, tuple(lines))


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
