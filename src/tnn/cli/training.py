"""Commands that train: by a recipe, or for the demo. After Ctrl-C they can be resumed."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from tnn.cli.common import TEXT_HELP, import_from_current_folder, quiet_transformers


def train(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE|TEXT|RUN",
            help="A name (--list shows them) or a YAML file; or a text file or folder, for the recommended model; or, "
            "with --resume, the folder of a run.",
        ),
    ] = "",
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes, for example training.steps=100.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the run.", show_default="runs/RECIPE")] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue from the last checkpoint in that folder, perhaps with more steps."),
    ] = False,
    allow_changed_data: Annotated[
        bool, typer.Option("--allow-changed-data", help="With --resume: go on although the data or tokenizer changed.")
    ] = False,
    list_names: Annotated[bool, typer.Option("--list", help="Print all recipes, and what they are for.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Print the recipe, with its comments.")] = False,
    init: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a recipe for --data, sized to it and to this machine.")
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="TEXT", help=f"With --init: {TEXT_HELP}")] = None,
) -> None:
    """Train a model by a recipe. Ctrl-C saves a checkpoint and stops. For several processes see docs/distributed.md."""
    from tnn.training.recipe import list_recipes, recipe_text, summarize_recipes

    words = [recipe, *(changes or ())] if recipe else []
    if list_names:
        width = max(map(len, list_recipes()))
        typer.echo("\n".join(f"{name:{width}}  {about}" for name, about in summarize_recipes().items()))
    elif init is not None or data is not None:
        _write_recipe(init, data, words)
    elif not recipe:
        raise ValueError(f"give a recipe: {', '.join(list_recipes())}, or a YAML file, or a text file or folder")
    elif show:
        if changes:
            raise ValueError(f"--show prints a recipe as it is: leave out {shlex.join(changes)}")
        typer.echo(recipe_text(recipe).rstrip("\n"))
    else:
        _train(words, out, resume, allow_changed_data)


def _write_recipe(path: Path | None, source: str | None, words: list[str]) -> None:
    from tnn._files import check_writable, write_text

    if path is None:
        raise ValueError(f"--data is for --init; to train on {source}, give data.corpus={source}")
    if source is None:
        raise ValueError("--init writes a recipe for a text: give it with --data")
    if path.suffix not in (".yaml", ".yml"):
        raise ValueError(f"--init must be the name of a .yaml file; got {path}")
    if path.exists():
        raise FileExistsError(f"{path} exists already")
    check_writable(path)
    from tnn.training.new_recipe import new_recipe

    text = new_recipe(source, **_reading(words))
    write_text(path, text)
    about = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")]
    typer.echo("\n".join([*about, f"train it with: {shlex.join(['tnn', 'train', str(path)])}"]))


def _reading(words: list[str]) -> dict[str, str]:
    """How a text is read, from words such as data.text_column=NAME."""
    from tnn.training.new_recipe import READING

    known = {f"data.{name}": name for name in READING}
    changes = {word: word.partition("=") for word in words}
    if wrong := [word for word, (key, equals, _) in changes.items() if not equals or key not in known]:
        allowed = ", ".join(known)
        raise ValueError(
            f"--init writes a recipe, and trains nothing: leave out {shlex.join(wrong)}; only {allowed} apply"
        )
    return {known[key]: value for key, _, value in changes.values()}


def _train(words: list[str], out: Path | None, resume: bool, allow_changed_data: bool) -> None:
    from tnn.training.choice import choose

    import_from_current_folder()  # for a mixer of the user
    chosen = choose(words[0], words[1:], resume=resume)
    out = out or chosen.out
    from tnn.training.run_recipe import Interrupted
    from tnn.training.run_recipe import train as run

    quiet_transformers()
    is_main = os.environ.get("RANK", "0") == "0"  # only the main process prints
    if chosen.note and is_main:
        typer.echo(chosen.note, err=True)
    try:
        run(chosen.recipe, out, resume=resume, allow_changed_data=allow_changed_data)
    except Interrupted as stopped:
        again = shlex.join(["tnn", "train", *words, "--out", str(out), "--resume"])
        launched = int(os.environ.get("WORLD_SIZE", 1)) > 1
        if is_main:
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
