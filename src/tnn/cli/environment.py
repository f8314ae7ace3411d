"""The command that describes this machine: `tnn env`."""

import json
from typing import Annotated

import typer


def env(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Versions, machine, backends and extras: what a bug report needs. Nothing in it is personal."""
    from tnn.training.environment import describe_environment, to_text

    report = describe_environment()
    typer.echo(json.dumps(report, indent=2) if as_json else to_text(report))
