"""Commands that train: by a recipe, or for the demo. After Ctrl-C they can be resumed."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from tnn.cli.common import import_from_current_folder, quiet_transformers


def train(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A name (--list shows them) or a YAML file.")] = "",
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes, for example training.steps=100.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the run.", show_default="runs/RECIPE")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the last checkpoint in that folder.")] = False,
    allow_changed_data: Annotated[
        bool, typer.Option("--allow-changed-data", help="With --resume: go on although the data or tokenizer changed.")
    ] = False,
    list_names: Annotated[bool, typer.Option("--list", help="Print all recipes.")] = False,
) -> None:
    """Train a model by a recipe. Ctrl-C saves a checkpoint and stops. For several processes see docs/distributed.md."""
    from tnn.training.recipe import list_recipes, load_recipe

    if list_names:
        typer.echo("\n".join(list_recipes()))
        return
    if not recipe:
        raise ValueError(f"give a recipe: {', '.join(list_recipes())}, or a YAML file")
    import_from_current_folder()  # for a mixer of the user
    loaded = load_recipe(recipe, changes or ())
    out = out or Path("runs") / loaded.name
    from tnn.training.run_recipe import Interrupted
    from tnn.training.run_recipe import train as run

    quiet_transformers()
    try:
        run(loaded, out, resume=resume, allow_changed_data=allow_changed_data)
    except Interrupted as stopped:
        again = shlex.join(["tnn", "train", recipe, *(changes or ()), "--out", str(out), "--resume"])
        launched = int(os.environ.get("WORLD_SIZE", 1)) > 1
        if os.environ.get("RANK", "0") == "0":  # only the main process prints
            typer.echo(f"{stopped}; continue with: {'the same command and --resume' if launched else again}", err=True)
        raise typer.Exit(130) from None


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the model and the page.")] = Path("runs/demo"),
) -> None:
    """Train a small model on Python's standard library and write a page about it; takes some minutes."""
    from tnn.training.demo import demo as run
    from tnn.training.run_recipe import Interrupted

    quiet_transformers()
    try:
        run(out, log=typer.echo)
    except Interrupted as stopped:
        typer.echo(f"{stopped}; continue with: {shlex.join(['tnn', 'demo', '--out', str(out)])}", err=True)
        raise typer.Exit(130) from None
