"""The command line of the reproduction: `python -m paper`, in the root of a clone."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tnn.cli.common import quiet_transformers
from tnn.cli.errors import OneLineCommand

if TYPE_CHECKING:
    from paper.harness.trial import Options

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(cls=OneLineCommand)
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="An experiment (see --list), `report` for the pages of all results, or `all` for both.",
        ),
    ] = "",
    scale: Annotated[Literal["mini", "paper"], typer.Option(help="For two CPU cores, or as published.")] = "mini",
    methods: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="Rows of the table. package.module:Class is a mixer of your own.",
            show_default="all rows of the paper",
        ),
    ] = "",
    seeds: Annotated[
        int | None, typer.Option(help="Seeds per row.", show_default="three for some rows, else one")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Updates per training.", show_default="as the scale defines")
    ] = None,
    data_dir: Annotated[Path, typer.Option(help="The folder with the data sets; see docs/reproduction.md.")] = Path(
        "data"
    ),
    out: Annotated[Path, typer.Option(help="The folder for records, tables and figures.")] = Path("results"),
    models: Annotated[Path, typer.Option(help="The folder for trained models.")] = Path("runs/reproduce"),
    list_names: Annotated[bool, typer.Option("--list", help="Print the names of the experiments.")] = False,
) -> None:
    """Reproduce a table and a figure of the paper. Trials that have a record are not run again."""
    with _collector_paused() if name == "report" else nullcontext():
        from paper.catalogue import EXPERIMENTS, STUDIES
        from paper.harness.trial import Options

        if list_names:
            typer.echo("\n".join(f"{key:20} {experiment.about}" for key, experiment in (EXPERIMENTS | STUDIES).items()))
            return
        if not name:
            raise ValueError(f"give an experiment: {', '.join(EXPERIMENTS)}; or report, or all")
        if methods and name in ("report", "all"):
            raise ValueError(f"--methods chooses rows of one experiment; {name} is of all")
        rows = tuple(word.strip() for word in methods.split(",")) if methods else None
        options = Options(scale, rows, seeds, steps)
        for experiment in {"all": list(EXPERIMENTS), "report": []}.get(name, [name]):
            _run(experiment, options, data_dir, out, models, again=name)
        if name in ("report", "all"):
            from paper.report.pages import write_report

            write_report(options, out, log=typer.echo)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Imports and records make no garbage, but the collector would search them for half a second."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _run(experiment: str, options: "Options", data: Path, out: Path, models: Path, again: str) -> None:
    """Ctrl-C ends it with the command that continues."""
    from paper.running import reproduce
    from tnn.training.run_recipe import Interrupted

    quiet_transformers()
    try:
        reproduce(experiment, options, data=data, out=out, models=models, log=typer.echo)
    except Interrupted as stopped:
        typer.echo(f"{stopped}; continue with: {options.command(again)} and the same folders", err=True)
        raise typer.Exit(130) from None


if __name__ == "__main__":
    app(prog_name="python -m paper")
