"""The demo: a small model is trained, evaluated far beyond its training length, sampled, timed, and shown on a page."""

import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

import tnn
from tnn._files import check_folder, check_name, write_text
from tnn.layers import count_parameters
from tnn.ops import backends
from tnn.training import runs
from tnn.training.evaluation import load_model, load_text
from tnn.training.extrapolation import draw_extrapolation, extrapolate
from tnn.training.figures import draw_model, draw_training, new_figure
from tnn.training.recipe import load_recipe
from tnn.training.report import DemoResults, format_time, page, printable
from tnn.training.run_lock import locked
from tnn.training.run_recipe import train
from tnn.training.schema import Recipe
from tnn.training.settings import describe
from tnn.training.speed import decoding_speed, to_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODEL, PAGE = "model", "report.html"
PROMPT, TEMPERATURE, SEED = "class Queue:\n    def ", 0.8, 0
Log = Callable[[str], None]


@dataclass(frozen=True)
class Scale:
    """How much is done. The default takes two cores less than five minutes."""

    changes: tuple[str, ...] = (  # to the recipe mini-alm
        "training.steps=1250",
        "training.batch_size=4",  # in such a short time, many small steps are better than a few large ones
        "training.warmup_steps=100",
        "training.log_every=25",
        "training.evaluate_every=625",
        "training.save_every=125",
    )
    lengths: tuple[int, ...] = (512, 1024, 2048, 4096, 8192, 14_336)
    contexts: tuple[int, ...] = (512, 4096, 14_336)
    new_tokens: int = 400  # per sample


FULL = Scale()


def demo(out: Path, scale: Scale = FULL, log: Log = print) -> Path:
    """Write `out`/report.html and return its path.

    The model is kept beside the page. A finished model is used again, and a training that was stopped continues.

    Args:
        out: the folder for the model and the page.
        scale: how much is done.
        log: called with the progress.

    >>> from pathlib import Path
    >>> from tnn.training.demo import demo
    >>> demo(Path("runs/demo"))  # doctest: +SKIP
    PosixPath('runs/demo/report.html')
    """
    start = perf_counter()
    new_figure(height=1)  # without matplotlib it fails here, not after the training
    check_name(out)
    check_folder(out)
    recipe = load_recipe(
        "mini-alm", ["name=demo", "data.lines=separate", *scale.changes]
    )  # of bytes: the text as it is
    _train(recipe, out / MODEL, log)
    results = _measure(recipe, out, scale, log)
    write_text(out / PAGE, page(results))
    log("\n".join(f"{value:>12}  {name}" for name, value in results.headlines().items()))
    log(f"{out / PAGE} has all results, after {format_time(perf_counter() - start)}")
    return out / PAGE


def _train(recipe: Recipe, folder: Path, log: Log) -> None:
    """From the start or from the last checkpoint, unless the model is finished."""
    known = runs.load_run_recipe(folder)
    if known is not None and known.name == recipe.name and known != recipe:
        log(f"removing {folder}, which was trained with other settings")
        with locked(folder):  # no other process is training there
            shutil.rmtree(folder)
        known = None
    if known is not None and runs.is_finished(folder):
        log(f"using the model in {folder} again; remove it to train a new one")
        return
    done = runs.step_of(runs.last_checkpoint(folder))
    steps = recipe.training.steps or 0
    log(f"training on Python's standard library, steps {done + 1:,} to {steps:,}")
    start = perf_counter()
    train(recipe, folder, resume=known is not None, log=_no_log)
    runs.RunLog(folder).add(steps, {"seconds_per_step": (perf_counter() - start) / max(1, steps - done)})


def _no_log(text: str) -> None:
    """The settings are on the page."""


def _measure(recipe: Any, out: Path, scale: Scale, log: Log) -> DemoResults:
    folder = out / MODEL
    model = load_model(folder)
    text = load_text(folder, model, None, "test")

    log(f"reading the test text in blocks of {scale.lengths[0]:,} to {scale.lengths[-1]:,} tokens")
    lengths = extrapolate(model, text.tokens, scale.lengths, text.tokenizer.eos_token_id, text.length)
    log(lengths.to_table())

    log("generating text, with the exact decoder and in constant time")
    state_space = model.to_state_space()
    decoders = {"exact": model, "state-space": state_space}
    samples = {name: _generate(network, text.tokenizer, scale.new_tokens) for name, network in decoders.items()}
    log(PROMPT + printable(samples["exact"]))

    log("timing the decoders, in tokens/s")
    speeds = decoding_speed(model, list(scale.contexts), state_space=state_space)
    log(to_table(speeds))

    entries = list(runs.RunLog(folder).entries())
    times = [entry["seconds_per_step"] for entry in entries if "seconds_per_step" in entry]
    steps = recipe.training.steps
    return DemoResults(
        facts=_facts(recipe, out),
        settings=describe(recipe, model, vocabulary=len(text.tokenizer)),
        parameters=sum(count_parameters(model)),
        steps=steps,
        tokens_per_step=recipe.training.batch_size * recipe.data.length,
        seconds=times[-1] * steps if times else None,  # unknown if the demo was stopped just after the training
        extrapolation=lengths,
        temperature=TEMPERATURE,
        prompt=PROMPT,
        samples=samples,
        speeds=speeds,
        state_space=state_space.config.state_space,
        training_figure=_png(draw_training(entries)),
        extrapolation_figure=_png(draw_extrapolation({"TNN": lengths})),
        kernels_figure=_png(draw_model(model)),
    )


def _generate(model: Any, tokenizer: Any, new_tokens: int) -> str:
    """The text that the model generates after the prompt."""
    ids = torch.tensor([tokenizer(PROMPT, add_special_tokens=False)["input_ids"]], device=model.device)
    options = {"max_new_tokens": new_tokens, "do_sample": True, "temperature": TEMPERATURE, "top_k": 0}
    torch.manual_seed(SEED)
    generated = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
    return tokenizer.decode(generated[0, ids.shape[1] :], skip_special_tokens=True)


def _facts(recipe: Recipe, out: Path) -> list[str]:
    """What a reader needs to reproduce the page."""
    threads = torch.get_num_threads()
    return [
        f"{datetime.now():%d %B %Y}",
        f"{threads} CPU thread{'s' * (threads > 1)}, native kernel {backends()['native']}",
        f"Python {platform.python_version()}, torch {torch.__version__}, toeplitz-nn {tnn.__version__}",
        f"seed {recipe.training.seed}",
        f"tnn demo --out {out}",
    ]


def _png(figure: "Figure") -> bytes:
    file = BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()
