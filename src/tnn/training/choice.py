"""What the first word of `tnn train` stands for: a recipe, the folder of a run, or a text."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tnn._names import did_you_mean
from tnn.training.recipe import list_recipes, load_recipe, load_saved_recipe, quoted
from tnn.training.run_files import RECIPE
from tnn.training.schema import Recipe

RECOMMENDED = "tnn-mini"  # the recipe for a text


class Choice(NamedTuple):
    """What is trained, where, and what the user should know of it; the note may be empty."""

    recipe: Recipe
    out: Path
    note: str = ""


def choose(word: str, changes: Sequence[str] = (), *, resume: bool = False) -> Choice:
    """The training that a word stands for, with changes as `section.key=value`.

    The name of a recipe comes first, then a YAML file, then the folder of a run that is resumed, then any other folder
    or file: a text, for the recommended model.

    >>> from tnn.training.choice import choose
    >>> choose("mini-alm", ["training.steps=100"]).out
    PosixPath('runs/mini-alm')
    """
    path = Path(word)
    if word in list_recipes():
        recipe = load_recipe(word, changes)
        note = f"{word} is taken as the name of a recipe; the folder is ./{word}" if path.exists() else ""
        return Choice(recipe, Path("runs") / recipe.name, note)
    if word.endswith((".yaml", ".yml")):
        recipe = load_recipe(word, changes)
        return Choice(recipe, Path("runs") / recipe.name)
    if not word or not path.exists():
        beside = [str(found) for found in path.parent.glob("*")] if word else []
        hint = did_you_mean(word, [*list_recipes(), *beside], others="those of tnn train --list")
        raise ValueError(f"no recipe {word!r}, and no .yaml file, text or folder of this name; {hint}")
    if (path / RECIPE).is_file():
        if not resume:
            raise FileExistsError(f"{word} is the folder of a run: go on with --resume, or start a recipe with --out")
        return Choice(load_saved_recipe(path / RECIPE, changes), path)
    return _of_text(word, changes)


def _of_text(word: str, changes: Sequence[str]) -> Choice:
    name = Path(word).resolve().name.strip(".").split(".")[0] or "text"
    recipe = load_recipe(RECOMMENDED, [f"name={quoted(name)}", f"data.corpus={quoted(word)}", *changes])
    note = f"{word} is taken as a text, for the recipe {RECOMMENDED}; --init writes one for the size of the text"
    return Choice(recipe, Path("runs") / recipe.name, note)
