"""Recipes that are written for a text."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tnn.training.new_recipe import new_recipe, write_recipe
from tnn.training.recipe import parse_recipe, read_yaml


def parse(text):
    return parse_recipe({"name": "mine", **read_yaml(text)})


@pytest.mark.slow
@settings(max_examples=25)
@given(source=st.text(min_size=1, max_size=20), size=st.integers(200, 10**12), accelerator=st.booleans())
def test_any_text_gets_a_recipe_of_its_size(source, size, accelerator):
    recipe = parse(write_recipe(source, size, threads=2, accelerator=accelerator))
    assert recipe.data.corpus == source
    assert recipe.model.preset == (
        "tnn-mini" if size <= 10**8 else "tnn-small" if size <= 10**9 or not accelerator else "tnn-base"
    )
    assert recipe.training.steps >= 200
    assert 8 * recipe.data.length <= size
    assert recipe.training.keep_best


def test_more_text_means_more_training():
    recipes = [parse(write_recipe("texts", size, threads=2, accelerator=True)) for size in (1e4, 1e6, 1e7, 5e8, 1e10)]
    seen = [recipe.training.steps * recipe.training.batch_size * recipe.data.length for recipe in recipes]
    assert all(less < more for less, more in pairwise(seen))
    assert seen[1] == pytest.approx(4e6, rel=0.1)  # a text of a million bytes, four times
    assert seen[3] == pytest.approx(20 * 5.7e6, rel=0.1)  # enough for the parameters


def test_the_time_is_that_of_the_machine():
    one, two = (write_recipe("texts", 10**6, threads=threads, accelerator=False) for threads in (1, 2))
    assert "# For this machine: 1 thread, with which it takes roughly 10 min " in one
    assert "# For this machine: 2 threads, with which it takes roughly 5 min " in two
    assert "# For this machine: an accelerator.\n" in write_recipe("texts", 10**6, accelerator=True)


def test_the_size_is_that_of_the_training_text(corpus):
    megabytes = (corpus / "train.txt").stat().st_size / 1e6
    assert new_recipe(str(corpus)).startswith(f'# A language model of "{corpus}": {megabytes:.3g} MB of training text')
    (corpus / "train.txt").write_text("a few words")
    with pytest.raises(ValueError, match=r"the training text of \S+corpus has 11 bytes: too few to train on$"):
        new_recipe(str(corpus))
