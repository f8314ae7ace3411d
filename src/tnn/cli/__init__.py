"""The command line: `tnn`, or `python -m tnn`. A command imports what it needs when it runs: help must come at once."""

from typing import Annotated

import typer

import tnn
from tnn.cli.conversion import convert_commands
from tnn.cli.data import data_commands
from tnn.cli.generation import generate
from tnn.cli.measuring import bench, evaluate, extrapolate, show
from tnn.cli.reproduce import reproduce
from tnn.cli.training import demo, train

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
for command in (train, generate, evaluate, extrapolate, show, demo, bench):
    app.command()(command)
hand_over = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
app.command(context_settings=hand_over)(reproduce)
app.add_typer(data_commands, name="data")
app.add_typer(convert_commands, name="convert")


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
