"""Recipes: YAML files and changes. The text that they name does not exist, so that nothing is trained: a recipe that is
accepted ends with that error, and one that is refused with another."""

from pathlib import Path
from random import Random
from typing import Any

import yaml

from tests.fuzz.judge import Case, Result
from tests.fuzz.mutations import ODD, at, changed, damaged, places, shuffled, without
from tests.fuzz.samples import RUN_RECIPE, Samples

NOWHERE = "no-such-text"
RECIPE = changed(RUN_RECIPE, ("data", "corpus"), NOWHERE)
WRONG: dict[tuple[str, ...], list[Any]] = {  # what is certainly refused at a key
    ("name",): [None, 1, [], {}],
    ("task",): [None, 1, "", "causal", [], {}, ["causal-lm"], True],
    ("model",): [None, 1, "mini-alm", [], {}],
    ("model", "preset"): [None, 1, "", "mini", [], {}],
    ("model", "hidden_size"): [None, 0, -1, 1.5, "x", [], {}, True, 2**63, 10**30, float("nan")],
    ("model", "num_hidden_layers"): [None, 0, -1, 1.5, "x", [], {}, 10**30],
    ("model", "decay"): [None, -0.1, 1.1, "x", [], {}, float("nan"), float("inf")],
    ("data",): [None, 1, "stdlib", [], {}],
    ("data", "corpus"): [None, 1, [], {}],
    ("data", "length"): [None, 0, -1, 1.5, "x", [], {}],
    ("data", "tokenizer"): [None, 1, [], {}],
    ("data", "lines"): [None, 1, "", "Keep", True, [], {}],
    ("data", "text_column"): [1, True, [], {}],
    ("data", "bad_files"): [None, 1, "", "ignore", False, [], {}],
    ("training",): [None, 1, "fast", [], {}],
    ("training", "steps"): [None, 0, -1, 1.5, "x", [], {}, float("inf"), float("nan")],
    ("training", "batch_size"): [None, 0, -1, 1.5, "x", [], {}],
    ("training", "learning_rate"): [None, 0, -1, "x", [], {}, float("nan")],
    ("training", "schedule"): [None, 1, "", "linear", [], {}],
    ("training", "betas"): [None, 1, [0.9], [0.9, 0.99, 0.999], [2, 3], ["a", "b"], {}],
    ("training", "precision"): ["fp8", 1, None, []],
    ("training", "report_to"): [1, {}, [1]],
    ("training", "arguments"): [1, [], {"nope": 1}, {"seed": 1}],
}
BOMBS = [
    "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)),
    "[" * 3000,
    "[" * 3000 + "]" * 3000,
    "{a: " * 2000 + "1" + "}" * 2000,
    "&a [*a]",
    "a: &a {b: *a}",
    "? [a, b]\n: 1",
    "name: !!python/object/apply:os.system [true]",
    "steps: " + "9" * 10000,
    "date: 2020-13-45",
    "time: 12:99:99.5e",
    "- 1\n- 2",
    "a: b: c",
    "\t",
    "%YAML 9.9\n---\na: 1",
    "--- 1\n--- 2",
    "a: 1\na: 2",
    "<<: 1",
    "<<: [1]",
    "{1: 2, ~: 3, [a]: 4}",
    "x: !!binary '#'",
    "x: !!int 'a'",
    "x: !!float '1.1.1'",
    "x: !!timestamp 'x'",
    "x: !!set {a, b}",
    "x: 0b2",
    "x: 1:99999999999999999999:3",
    "x: \ufeff",
]


def recipes(rng: Random, samples: Samples, here: Path) -> Case:
    kind = rng.choice(["file", "file", "key", "key", "changes", "bytes", "odd", "harmless"])
    args = ["train", "recipe.yaml", "--out", "new"]
    if kind == "harmless":
        _write(here, shuffled(RECIPE, rng), rng)
        return Case("the same recipe in another order", args, None, _accepted)
    if kind == "file":
        bomb = rng.choice(BOMBS)
        if rng.random() < 0.5:
            bomb = yaml.safe_dump(RECIPE) + "about: " + (bomb if "\n" not in bomb else bomb.replace("\n", "\n  "))
        (here / "recipe.yaml").write_text(bomb, encoding="utf-8")
        return Case(f"recipe {bomb[:60]!r}", args, None, _short)
    if kind == "key":
        path = rng.choice(list(WRONG))
        wrong = rng.choice(WRONG[path])
        _write(here, changed(RECIPE, path, wrong), rng)
        return Case(f"{'.'.join(path)}: {str(wrong)[:60]}", args, None, _rejected)
    if kind == "bytes":
        (here / "recipe.yaml").write_bytes(damaged(yaml.safe_dump(RECIPE).encode(), rng))
        return Case("damaged recipe", args, None, _short)
    if kind == "changes":
        _write(here, RECIPE, rng)
        changes = [_change(rng) for _ in range(rng.choice([1, 1, 2]))]
        return Case(f"changes {str(changes)[:150]}", [*args, *changes], None, _short)
    return _odd(rng, here, args)


def _odd(rng: Random, here: Path, args: list[str]) -> Case:
    """Any value anywhere, or a key that is missing or unknown."""
    path = rng.choice(list(places(RECIPE)))
    action = rng.choice(["odd", "odd", "missing", "unknown"])
    if action == "missing":
        _write(here, without(RECIPE, path), rng)
        required = path in {("task",), ("model",), ("data",), ("training",), ("data", "corpus"), ("model", "preset")}
        return Case(f"without {path}", args, None, _rejected if required else _short)
    if action == "unknown":
        place = path if isinstance(at(RECIPE, path), dict) else path[:-1]
        _write(here, changed(RECIPE, (*place, rng.choice(["nope", "Steps", "é", " ", "x" * 300])), 1), rng)
        return Case(f"an unknown key in {place}", args, None, _rejected)
    new = rng.choice(ODD)
    values = changed(RECIPE, path, new)
    _write(here, values, rng)
    return Case(f"{path}: {str(new)[:60]!r}", args, None, _short)


def _change(rng: Random) -> str:
    path = ".".join(map(str, rng.choice([*list(places(RECIPE)), ("nope",), ("steps",), ("model", "é"), ("", ""), ()])))
    value = rng.choice([*map(str, ODD), "[", "{", "*a", "!!x 1", "null", "~", "- -", "'", '"', "[" * 500, "1e999"])
    return rng.choice(
        [f"{path}={value}", path, f"={value}", f"{path}.x={value}", f".{path}={value}", f"{path}=={value}"]
    )


def _write(here: Path, values: dict[str, Any], rng: Random) -> None:
    text = yaml.safe_dump(
        values, sort_keys=False, allow_unicode=True, default_flow_style=rng.choice([None, True, False])
    )
    (here / "recipe.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")


def _accepted(result: Result) -> bool:
    return f"no text at {NOWHERE}" in result.err


def _rejected(result: Result) -> bool:
    return not _accepted(result) and _short(result)


def _short(result: Result) -> bool:
    """An error that a person reads."""
    return len(result.err) < 10_000
