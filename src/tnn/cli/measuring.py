"""Commands that measure a model or draw it."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from tnn.cli.common import TEXT_HELP, Model, load_causal, numbers, one_line_errors, quiet_transformers

Run = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a run, or of any model.")]
Text = Annotated[
    str | None, typer.Argument(metavar="[TEXT]", help=TEXT_HELP, show_default="what the model was trained on")
]
Split = Annotated[
    Literal["train", "validation", "test"] | None,
    typer.Option(help="The part of the text; a single file is taken whole.", show_default="test"),
]


def evaluate(
    model: Run,
    text: Text = None,
    split: Split = None,
    length: Annotated[
        int | None, typer.Option(help="Tokens of a block, which sees no other; by default that of the training.")
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="The text as one, with all context carried along.")] = False,
    chunk: Annotated[
        int, typer.Option(help="With --stream: tokens in work at a time. No effect on the result.")
    ] = 4096,
) -> None:
    """Perplexity of a language model, or the scores of a classifier."""
    with one_line_errors():
        from tnn.training.evaluation import evaluate as report

        quiet_transformers()
        typer.echo(report(model, text, split=split, length=length, stream=stream, chunk=chunk))


def extrapolate(
    model: Run,
    text: Text = None,
    split: Split = None,
    lengths: Annotated[
        str, typer.Option(metavar="A,B,...", help="Lengths of blocks.", show_default="the paper's 19, to 14,336")
    ] = "",
    max_tokens: Annotated[int | None, typer.Option(help="Read the beginning of the text only.")] = None,
    batch_tokens: Annotated[
        int, typer.Option(help="Tokens in work at a time, or one block if that is longer; fewer if memory is short.")
    ] = 16_384,
    out: Annotated[
        Path | None, typer.Option(help="The folder for the table, its JSON and the figure.", show_default="MODEL")
    ] = None,
) -> None:
    """Perplexity at lengths that the model was not trained on."""
    with one_line_errors():
        from tnn.training.evaluation import load_text
        from tnn.training.extrapolation import LENGTHS
        from tnn.training.extrapolation import extrapolate as measure
        from tnn.training.figures import new_figure

        new_figure(height=1)  # without matplotlib it fails here, not after the work
        chosen = numbers("lengths", lengths) if lengths else LENGTHS
        network = load_causal(model)
        found = load_text(model, network, text, split or "test")
        eos = found.tokenizer.eos_token_id
        result = measure(
            network, found.tokens, chosen, eos, found.length, batch_tokens=batch_tokens, max_tokens=max_tokens
        )
        result.save(out or model, name=model.name)
        typer.echo(result.to_table())


def show(
    model: Run,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The picture.", show_default="MODEL/kernels.png")
    ] = None,
    length: Annotated[int | None, typer.Option(help="Rows and columns of the matrices.")] = None,
) -> None:
    """Draw the Toeplitz matrix and the kernels of each layer."""
    with one_line_errors():
        from transformers import AutoModel

        from tnn.training.figures import draw_model, save_figure
        from tnn.training.tasks.setup import checked_model_folder

        quiet_transformers()
        path = out or checked_model_folder(model) / "kernels.png"
        _existing_folder(path.parent)
        save_figure(draw_model(AutoModel.from_pretrained(model).eval(), length), path)
        typer.echo(path)


def _existing_folder(folder: Path) -> Path:
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    return folder


def bench(
    model: Model,
    contexts: Annotated[str, typer.Option(metavar="A,B,...", help="Tokens before the measured ones.")] = "512,4096",
    new_tokens: Annotated[int, typer.Option(help="Tokens to measure at each context.")] = 64,
    tolerance: Annotated[float, typer.Option(help="Of the conversion to a state space.")] = 1e-3,
) -> None:
    """Tokens per second of the decoders, on this machine."""
    with one_line_errors():
        from tnn.training.speed import decoding_speed, to_table

        chosen, network = numbers("contexts", contexts), load_causal(model)
        config = network.config
        decays = config.mixer == "tnn" and config.decay_mode != "none" and config.decay < 1
        keeps = network.model.can_cache
        converted = network.to_state_space(tolerance) if keeps and decays and config.coefficients != "poles" else None
        typer.echo(to_table(decoding_speed(network, chosen, new_tokens, converted)))
        if not keeps:
            typer.echo("recompute only: this model has no cache, so nothing can be kept", err=True)
