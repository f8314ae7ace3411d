"""The command that lists runs: `tnn runs`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def runs(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="A folder of runs, or one run.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List runs: state, steps, model, data, validation score and time of training. Nothing is changed."""
    from tnn.training.overview import list_runs, to_table

    found = list_runs(folder)
    if as_json:
        typer.echo(json.dumps([asdict(run) for run in found], indent=2))
    elif found:
        typer.echo(to_table(found))
    else:
        typer.echo(f"there are no runs in {folder}", err=True)
