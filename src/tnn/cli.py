"""The command line: `tnn`, or `python -m tnn`. A command imports what it needs when it runs: help must come at once."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

import tnn

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
convert = typer.Typer(no_args_is_help=True)
app.add_typer(convert, name="convert", help="Convert checkpoints of other programs.")


def main() -> None:
    app(prog_name="tnn")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"toeplitz-nn {tnn.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """The Toeplitz Neural Network."""


@convert.command()
def reference(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="A file that fairseq wrote.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to make, for from_pretrained to load.")],
) -> None:
    """Convert a checkpoint of the TNN authors' language models."""
    with _one_line_errors():
        from transformers.utils.logging import disable_progress_bar

        from tnn.layers import count_parameters
        from tnn.models.reference import convert_reference

        disable_progress_bar()  # for one file, and among the lines of a script
        model = convert_reference(checkpoint, out)
        config = model.config
        decay = "no decay" if config.decay_mode == "none" else f"decay {config.decay:g}"
        size = f"{sum(count_parameters(model)):,} parameters in {config.num_hidden_layers} layers"
        typer.echo(f"{type(model).__name__}, {size}, {decay}: {out}")


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """A user's mistake is one line and exit code 1; anything else is ours, and keeps its traceback."""
    try:
        yield
    except (ValueError, OSError, pickle.UnpicklingError) as error:
        typer.echo(f"error: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(1) from None
