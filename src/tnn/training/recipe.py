"""Recipes: all that decides an experiment, in one YAML file that is checked before any work is done.

A recipe names a task, a model, its data and how it is trained. The files are in `recipes/`, one per experiment. Any
value can be changed as `section.key=value`, on the command line or in `load_recipe`. The keys are in
`tnn.training.schema`; those of `data` are beside each task in `tnn.training.tasks`.
"""

import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from tnn._names import did_you_mean
from tnn.training.schema import ModelSection as ModelSection  # for code that builds recipes
from tnn.training.schema import Recipe as Recipe
from tnn.training.tasks.registry import find_task

_FOLDER = files("tnn.training") / "recipes"
MOST_VALUES, MOST_LEVELS = 100_000, 50  # far more than a recipe needs, and few enough for everything that reads one
LONGEST_SHOWN = 200  # characters of a wrong value


def list_recipes() -> list[str]:
    """The names that `load_recipe` knows.

    >>> from tnn.training import list_recipes
    >>> "mini-alm" in list_recipes()
    True
    """
    return sorted(path.name.removesuffix(".yaml") for path in _FOLDER.iterdir() if path.name.endswith(".yaml"))


def summarize_recipes() -> dict[str, str]:
    """By name, the first sentence of what each recipe is for.

    >>> from tnn.training.recipe import summarize_recipes
    >>> summarize_recipes()["imagenet-tiny"]
    'ImageNet-1k by the DeiT recipe, 192 channels.'
    """
    abouts = {name: read_yaml(recipe_text(name))["about"] for name in list_recipes()}
    return {name: re.split(r"(?<=\.)\s", about, maxsplit=1)[0] for name, about in abouts.items()}


def recipe_text(name: str) -> str:
    """A recipe by name, or a YAML file, as it was written, with its comments.

    >>> from tnn.training.recipe import recipe_text
    >>> recipe_text("mini-alm").splitlines()[0]
    'name: mini-alm'
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else None
    if path is None and name not in list_recipes():
        raise ValueError(f"no recipe {name!r}, and not a .yaml file; {did_you_mean(name, list_recipes())}")
    if path is not None and not path.is_file():
        raise FileNotFoundError(f"there is no recipe file {path}")
    try:
        return (path or _FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not a UTF-8 text: see byte {error.start}") from None


def load_recipe(name: str, changes: Iterable[str] = ()) -> Recipe:
    """A recipe by name, or from a YAML file, with changes as `section.key=value`.

    A mixer that is given as `package.module:Class` in `model.mixer` is imported and registered.

    >>> from tnn.training import load_recipe
    >>> recipe = load_recipe("mini-alm", ["training.steps=20", "model.decay=1"])
    >>> recipe.training.steps, recipe.model.changes
    (20, {'decay': 1})
    """
    values = _changed(name, changes)
    _load_mixers(values)
    return parse_recipe(values, name)


def load_saved_recipe(file: Path, changes: Iterable[str] = ()) -> Recipe:
    """The recipe.yaml of a run, with changes. It imports nothing: a mixer of the user must be registered before.

    >>> from pathlib import Path
    >>> from tnn.training.recipe import load_saved_recipe
    >>> load_saved_recipe(Path("runs/mine/recipe.yaml"), ["training.steps=400"])  # doctest: +SKIP
    """
    return parse_recipe(_changed(str(file), changes), str(file))


def _changed(name: str, changes: Iterable[str]) -> dict[str, Any]:
    values = _read(name)
    for change in changes:
        _apply(values, change)
    return values


def _load_mixers(values: dict[str, Any]) -> None:
    """Only for recipes that the user names: a saved recipe.yaml, like a config.json, does not decide what code runs."""
    model = values.get("model")
    mixer = model.get("mixer") if isinstance(model, dict) else None
    for path in mixer if isinstance(mixer, list) else [mixer]:
        if isinstance(path, str) and ":" in path:
            from tnn.mixers import load_mixer

            try:
                load_mixer(path)
            except TypeError as error:
                raise ValueError(f"model.mixer: {error}") from None


def _read(name: str) -> dict[str, Any]:
    try:
        values = read_yaml(recipe_text(name))
    except yaml.YAMLError as error:
        raise ValueError(f"{name} is not YAML: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{name} must hold keys and values: name, task, model, data and training")
    return {"name": Path(name).stem, **values} if name not in list_recipes() else values


def _apply(values: dict[str, Any], change: str) -> None:
    """Set one value, given as `a.b=value`; the value is read as YAML."""
    path, equals, text = change.partition("=")
    *parents, key = path.split(".")
    if not equals or not key:
        raise ValueError(f"changes must be section.key=value; got {change!r}")
    if not parents:
        _check_top_level(key, values.get("task"))
    for parent in parents:
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise ValueError(f"{parent} is not a section, so {path} cannot be set")
    try:
        values[key] = read_yaml(text)
    except yaml.YAMLError:
        got = _shortened(text)
        raise ValueError(f"{path}: {got} is not a YAML value; put it in quotes to make it a string") from None


def _check_top_level(key: str, task: Any) -> None:
    """A key of a section that is given without the section is a common mistake."""
    if key in Recipe.model_fields:
        return
    schema = find_task(task).recipe_class
    if key in schema.model_fields:
        return
    for section in ("model", "data", "training"):
        if key in _keys(schema, section):
            raise ValueError(f"unknown key {key!r}; did you mean '{section}.{key}'?")


class _Loader(yaml.SafeLoader):
    """With 1e-6 as a number, which YAML 1.1 reads as a string, and without keys that are given twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [(key.tag, key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for index, (_, key) in enumerate(keys):
            if keys[index] in keys[:index] and key != "<<":
                raise yaml.YAMLError(f"the key {_shortened(key)} is given twice")
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+"), list("-+.0123456789")
)


def read_yaml(text: str) -> Any:
    """Plain values.

    >>> from tnn.training.recipe import read_yaml
    >>> read_yaml("{a: 1e-6, b: [bytes, 512]}")
    {'a': 1e-06, 'b': ['bytes', 512]}
    """
    _check_size(text)
    try:
        return yaml.load(text, _Loader)  # a SafeLoader
    except yaml.YAMLError:
        raise
    except Exception as error:  # a value that does not fit its tag, such as !!int x, can raise anything
        raise yaml.YAMLError(f"it has a value that cannot be read: {error}") from None


def quoted(text: str) -> str:
    """A string as YAML reads it again, in one line of ASCII.

    >>> from tnn.training.recipe import quoted
    >>> print(quoted("1e3: é"))
    "1e3: \\xE9"
    """
    return yaml.safe_dump(text, default_style='"', width=float("inf")).rstrip("\n")


def _check_size(text: str) -> None:
    """A few lines of YAML can stand for billions of values, by names (*a) for parts that hold names themselves."""
    known: dict[str, int] = {}  # how many values each name stands for
    open_parts = [("", 0)]  # the names of the parts around, and how many values they hold so far
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            open_parts.append((event.anchor or "", 1))
            count = 0
        elif isinstance(event, yaml.CollectionEndEvent):
            name, count = open_parts.pop()
            known[name] = count
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor in (name for name, _ in open_parts):
                raise yaml.YAMLError(f"*{event.anchor} is inside the part that it stands for")
            count = known.get(event.anchor, 1)
        else:
            count = int(isinstance(event, yaml.ScalarEvent))
        name, held = open_parts[-1]
        open_parts[-1] = name, held + count
        if len(open_parts) > MOST_LEVELS or held + count > MOST_VALUES:
            raise yaml.YAMLError(f"it must have at most {MOST_VALUES} values, in at most {MOST_LEVELS} levels")


def _shortened(value: Any) -> str:
    """A value for a message."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "..."


def parse_recipe(values: dict[str, Any], name: str = "recipe") -> Recipe:
    """The checked recipe of plain values; a ValueError tells the first problem in one line."""
    schema: type[Recipe] | None = None
    try:
        schema = find_task(values.get("task")).recipe_class
        return schema.model_validate(values)
    except ValidationError as error:
        assert schema is not None
        raise ValueError(f"{name}: {_first_problem(error, schema)}") from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _first_problem(error: ValidationError, schema: type[Recipe]) -> str:
    problem = error.errors()[0]
    *section, key = [str(part) for part in problem["loc"]] or [""]
    path = ".".join([*section, key])
    if problem["type"] == "extra_forbidden":
        known = [".".join([*section, other]) for other in sorted(_keys(schema, *section))]
        return f"unknown key {path!r}; {did_you_mean(path, known)}"
    if problem["type"] == "missing":
        return f"{path} is missing"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return f"{path}: {message}" if path else message
    return f"{path}: {message[0].lower()}{message[1:]}; got {_shortened(problem['input'])}"


def _keys(schema: type[BaseModel], *sections: str) -> list[str]:
    """The keys of a recipe, or of a section inside it."""
    for section in sections:
        inner: Any = schema.model_fields[section].annotation
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        schema = inner
    return list(schema.model_fields)


def dump_recipe(recipe: Recipe) -> str:
    """YAML that `load_recipe` reads again.

    >>> from tnn.training.recipe import dump_recipe, load_recipe, parse_recipe
    >>> import yaml
    >>> recipe = load_recipe("mini-alm")
    >>> parse_recipe(yaml.safe_load(dump_recipe(recipe))) == recipe
    True
    """
    values = recipe.model_dump(mode="json", exclude_none=True)
    values["model"] |= recipe.model.changes  # here None is a value
    return yaml.safe_dump(values, sort_keys=False, width=120)
