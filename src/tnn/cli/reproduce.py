"""`tnn reproduce`: hands over to the reproduction of the paper, which a clone has beside the package."""

import sys
import tomllib
from pathlib import Path

import typer

ELSEWHERE = (
    "the reproduction of the paper is not part of the installed package: clone the repository of toeplitz-nn, "
    "and run this command in its root folder"
)


def reproduce(context: typer.Context) -> None:
    """Reproduce a table of the paper, in a clone of the repository; the same as python -m paper."""
    folder = Path.cwd()
    if not is_clone(folder):
        if "--help" in context.args:
            typer.echo(context.get_help())
            return
        raise FileNotFoundError(ELSEWHERE)
    sys.path.insert(0, str(folder))
    from paper.__main__ import app

    app(args=context.args, prog_name="reproduce", parent=context.parent)  # for its --debug


def is_clone(folder: Path) -> bool:
    """Whether `folder` is the root of a clone of this project, with the reproduction in it."""
    project = folder / "pyproject.toml"
    if not (folder / "paper" / "__main__.py").is_file() or not project.is_file():
        return False
    try:
        return bool(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["name"] == "toeplitz-nn")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, LookupError, TypeError):
        return False
