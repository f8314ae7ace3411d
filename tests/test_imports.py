"""The import graph of `src/tnn`, read from its source: no cycles, packages in order, torch alone at the bottom."""

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import tnn

SOURCE = Path(tnn.__file__).parent
ORDER = ("helpers", "ops", "layers", "streaming", "mixers", "models", "data", "training", "serving", "cli")
TORCH_ONLY = ("ops", "layers", "streaming", "mixers")
NEEDS_TRANSFORMERS = {"transformers", "tokenizers", "datasets", "accelerate", "safetensors"}
# Imports against the order, each inside a function or for type checkers only.
EXCEPTIONS = {
    ("tnn._auto", "tnn.models"),  # registers the configurations once transformers is loaded
    ("tnn.layers", "tnn.mixers"),  # the public name of the block, which is written where the mixers are
}


class Import(NamedTuple):
    target: str  # a module, or the package that a name is imported from
    at_import_time: bool  # neither inside a function nor for type checkers only


@cache
def modules():
    """Each module of the package and its syntax tree."""
    trees = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        trees[name] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


@cache
def imports(module):
    return [*find_imports(modules()[module], at_import_time=True)]


def find_imports(node, at_import_time):
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, at_import_time) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: write absolute imports"
        for alias in node.names:
            submodule = f"{node.module}.{alias.name}"
            yield Import(submodule if submodule in modules() else node.module, at_import_time)
    elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        for child in node.body:
            yield from find_imports(child, at_import_time=False)
    else:
        inside = at_import_time and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from find_imports(child, inside)


def ancestors(module):
    parts = module.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts))}


def package(module):
    """The element of ORDER that a module belongs to; None for `tnn` itself."""
    if module == "tnn":
        return None
    name = module.split(".")[1]
    return "cli" if name == "__main__" else "helpers" if name.startswith("_") else name


@pytest.mark.slow
def test_the_graph_is_read():
    assert len(modules()) > 100
    assert Import("tnn.ops.product", True) in imports("tnn.ops")
    assert Import("torch", True) in imports("tnn.ops.product")
    assert Import("tnn.models.configuration", False) in imports("tnn._auto")
    assert Import("tnn.models", False) in imports("tnn")


def test_no_cycles_at_import_time():
    """Importing a module imports the packages around it first, except those that are being imported already."""
    graph = {}
    for module in modules():
        targets = {one.target for one in imports(module) if one.at_import_time and one.target in modules()}
        around = {parent for target in targets for parent in ancestors(target)} - ancestors(module) - {module}
        graph[module] = targets | around
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the cycle


def test_packages_import_only_from_those_before_them():
    pairs = [(module, one) for module in modules() for one in imports(module)]
    assert not [f"{module} imports {one.target}" for module, one in pairs if against_order(module, one)]


def against_order(module, one):
    if module == "tnn" or one.target not in modules():
        return False
    if one.target == "tnn":  # which gives access to the models
        return ORDER.index(package(module)) < ORDER.index("models")
    allowed = {(module, parent) for parent in {one.target, *ancestors(one.target)}} & EXCEPTIONS
    in_order = ORDER.index(package(one.target)) <= ORDER.index(package(module))
    return not in_order and not (allowed and not one.at_import_time)


def test_data_does_not_import_models():
    users = {module for module in modules() for one in imports(module) if one.target.startswith("tnn.models")}
    assert "data" not in {package(module) for module in users}


def test_the_reproduction_is_imported_by_a_command_only():
    """The wheel does not hold `paper`; `tnn reproduce` hands over to it when it runs in a clone."""
    users = {(module, one) for module in modules() for one in imports(module) if one.target.split(".")[0] == "paper"}
    assert {package(module) for module, _ in users} <= {"cli"}
    assert not [one for _, one in users if one.at_import_time]


@pytest.mark.parametrize("name", TORCH_ONLY)
def test_torch_alone(name):
    targets = {one.target.split(".")[0] for module in modules() if package(module) == name for one in imports(module)}
    assert "torch" in targets
    assert not targets & NEEDS_TRANSFORMERS
