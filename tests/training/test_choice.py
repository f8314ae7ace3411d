"""What the first word of `tnn train` stands for."""

from pathlib import Path

import pytest

from tnn.training import runs
from tnn.training.choice import choose
from tnn.training.recipe import list_recipes, load_recipe, recipe_text, summarize_recipes


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_recipe_comes_first():
    assert choose("mini-alm", ["training.steps=3"]) == (
        load_recipe("mini-alm", ["training.steps=3"]),
        Path("runs/mini-alm"),
        "",
    )
    Path("mini-alm").mkdir()
    chosen = choose("mini-alm")
    assert chosen.recipe.name == "mini-alm"
    assert chosen.note == "mini-alm is taken as the name of a recipe; the folder is ./mini-alm"
    assert choose("./mini-alm").recipe.data.corpus == "./mini-alm"


def test_a_yaml_file(recipe_file):
    chosen = choose(str(recipe_file(steps=3)))
    assert (chosen.recipe.training.steps, chosen.out, chosen.note) == (3, Path("runs/tiny"), "")
    with pytest.raises(FileNotFoundError, match=r"there is no recipe file mine\.yaml"):
        choose("mine.yaml")


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("texts", "texts"),
        ("texts/", "texts"),
        ("texts/a.b.txt", "a"),
        ("1e3", "1e3"),
        (".hidden", "hidden"),
        ("x: [y", "x: [y"),
        ("\N{GRINNING FACE}", "\N{GRINNING FACE}"),
    ],
)
def test_a_text(word, name):
    """Whatever its name means in YAML."""
    if word == "texts/a.b.txt":
        Path("texts").mkdir()
        Path(word).touch()
    else:
        Path(word).mkdir()
    recipe, out, note = choose(word, ["training.steps=3"])
    assert (recipe.data.corpus, recipe.name, recipe.training.steps, out) == (word, name, 3, Path("runs", name))
    assert recipe.model.preset == "tnn-mini"
    assert f"{word} is taken as a text, for the recipe tnn-mini" in note


def test_the_current_folder(tmp_path):
    assert choose(".").out == Path("runs", tmp_path.name)


def test_the_folder_of_a_run(recipe):
    with pytest.raises(
        ValueError, match=r"no recipe 'run', and no \.yaml file, text or folder of this name; choose from th"
    ):
        choose("run", resume=True)
    runs.begin(Path("run"), recipe(), {})
    chosen = choose("run", ["training.steps=99"], resume=True)
    assert (chosen.recipe.name, chosen.recipe.training.steps, chosen.out) == ("tiny", 99, Path("run"))
    with pytest.raises(
        FileExistsError, match="run is the folder of a run: go on with --resume, or start a recipe with"
    ):
        choose("run")


def test_a_saved_recipe_imports_nothing(recipe):
    runs.begin(Path("run"), recipe(), {})
    text = Path("run/recipe.yaml").read_text().replace("model:\n", "model:\n  mixer: nowhere:Class\n")
    Path("run/recipe.yaml").write_text(text)
    with pytest.raises(ValueError, match="'nowhere:Class'"):
        choose("run", resume=True)


def test_names_that_are_nearly_right():
    Path("my-texts").mkdir()
    for word, near in (("my-text", "my-texts"), ("mini-al", "mini-alm"), ("Tnn-mini", "tnn-mini")):
        with pytest.raises(ValueError, match=rf"no recipe '{word}', .*; did you mean '{near}'\?$"):
            choose(word)


def test_summaries():
    summaries = summarize_recipes()
    assert list(summaries) == list_recipes()
    assert all("\n" not in about and about.endswith(".") for about in summaries.values())
    assert "# the source of Python's standard library" in recipe_text("tnn-mini")
