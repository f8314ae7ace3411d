"""The command line: `tnn`, or `python -m tnn`. Commands import what they need when they run, so that help is fast."""

import atexit
import io
import os
import sys
import traceback
from typing import Annotated, Any

import typer

import tnn
from tnn._lazy import public_names
from tnn.cli.common import import_from_current_folder
from tnn.cli.conversion import convert_commands
from tnn.cli.data import data_commands
from tnn.cli.environment import env
from tnn.cli.errors import OneLineGroup, flush_output
from tnn.cli.generation import generate
from tnn.cli.measuring import bench, evaluate, extrapolate, show
from tnn.cli.overview import runs
from tnn.cli.prediction import predict
from tnn.cli.reproduce import reproduce
from tnn.cli.serving import serve
from tnn.cli.training import demo, train

__all__ = ["app", "main"]

__dir__ = public_names(__name__)

app = typer.Typer(
    cls=OneLineGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (train, runs, generate, predict, serve, evaluate, extrapolate, show, demo, bench, env):
    app.command()(command)
hand_over = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
app.command(context_settings=hand_over)(reproduce)
app.add_typer(data_commands, name="data")
app.add_typer(convert_commands, name="convert")


def main() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name of a file may have bytes that are not text
    if os.environ.get("WORLD_SIZE", "1") != "1":
        _run_as_one_of_several()
    try:
        app(prog_name="tnn")
    finally:
        flush_output()


def _run_as_one_of_several() -> None:
    """End without the teardown of the interpreter, during which threads of closed connections can abort the process."""
    code: Any = 1
    try:
        app(prog_name="tnn")
    except SystemExit as stop:
        code = stop.code
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()  # those of the libraries too: a logger may still have to send its last entries
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"toeplitz-nn {tnn.__version__}")
        raise typer.Exit


def _load_mixers(paths: list[str]) -> None:
    if paths:
        from tnn.mixers import load_mixer

        import_from_current_folder()
        for path in paths:
            try:
                load_mixer(path)
            except TypeError as error:  # it names something else than a mixer
                raise ValueError(error) from None


@app.callback()
def options(
    mixer: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:CLASS", help="Register a mixer of your own; may be repeated. See docs/mixers.md."),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", envvar="TNN_DEBUG", help="Show where an error was raised.")] = False,
) -> None:
    """The Toeplitz Neural Network."""
    _load_mixers(mixer or [])
