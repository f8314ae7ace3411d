"""A kind of task is one class: here is another one, outside of the package, from its recipe to its score."""

import subprocess
import sys

import numpy as np
import pytest
import torch
import yaml
from pydantic import PositiveInt
from torch.utils.data import Dataset, default_collate

from tnn.models import TNNForCausalLM, TNNForSequenceClassification, load_preset
from tnn.training import Task, evaluate, find_task, list_tasks, load_recipe, register_task, train, unregister_task
from tnn.training.recipe import dump_recipe, list_recipes, parse_recipe
from tnn.training.schema import Recipe, Section
from tnn.training.settings import describe
from tnn.training.tasks.classification import ClassificationTask, EvaluationSets, accuracy, majority_accuracy
from tnn.training.tasks.setup import TrainingSetup

BUILT_IN = ["causal-lm", "classification", "forecasting", "glue", "image", "lra", "masked-lm", "token-classification"]


class BitsData(Section):
    """Sequences of random bits, whose class is the first of them."""

    bits: PositiveInt
    examples: PositiveInt = 64


class BitsRecipe(Recipe):
    data: BitsData
    flip: bool = False  # a key that no other task has


class Bits(Dataset):
    def __init__(self, data, seed, flip):
        generator = np.random.default_rng(seed)
        self.ids = torch.from_numpy(generator.integers(0, 2, (data.examples, data.bits)))
        self.labels = 1 - self.ids[:, 0] if flip else self.ids[:, 0]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.labels[index]}


class FirstBit(ClassificationTask):
    recipe_class = BitsRecipe

    @property
    def model_classes(self):
        return (TNNForSequenceClassification,)

    source_key = "bits"
    resumable_keys = frozenset({"flip"})

    def build(self, recipe):
        train, validation = (Bits(recipe.data, seed, recipe.flip) for seed in (1, 2))
        changes = {"num_labels": 2, "vocab_size": 2, **recipe.model.changes}
        return TrainingSetup(
            lambda: TNNForSequenceClassification(load_preset(recipe.model.preset, **changes)),
            train,
            validation,
            default_collate,
            data_summary="bits",
            metrics=accuracy,
            metric="accuracy",
            majority_metrics=majority_accuracy(train, {"eval": validation}),
        )

    def evaluation_sets(self, folder, model, recipe):
        return EvaluationSets({"validation": Bits(recipe.data, 2, recipe.flip)}, default_collate, accuracy)

    def describe(self, recipe):
        return {"data": "random bits", "sequence length": recipe.data.bits}

    def speed_unit(self, recipe):
        return recipe.data.bits, "bits"


@pytest.fixture
def first_bit():
    register_task("first-bit", FirstBit)
    yield
    unregister_task("first-bit")


RECIPE = {
    "task": "first-bit",
    "model": {"preset": "mini-lra", "hidden_size": 16, "num_hidden_layers": 1, "rpe_size": 8, "pooling": "first"},
    "data": {"bits": 6},
    "training": {"steps": 30, "batch_size": 8, "learning_rate": 0.01, "schedule": "constant", "log_every": 10},
}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "bits.yaml"
    path.write_text(yaml.safe_dump(RECIPE))
    return path


@pytest.mark.slow
@pytest.mark.usefixtures("first_bit")
def test_a_task_of_a_user(path, tmp_path, capsys):
    """It is trained by a recipe, described, evaluated with its own data, and resumed."""
    recipe = load_recipe(str(path), ["flip=true", "data.examples=80"])
    assert isinstance(recipe, BitsRecipe)
    assert parse_recipe(yaml.safe_load(dump_recipe(recipe))) == recipe
    assert "sequence length  6" in describe(recipe)

    lines = []
    metrics = train(recipe, tmp_path / "run", log=lines.append)
    assert metrics["eval_accuracy"] > 0.9
    assert "examples         bits" in lines[0]
    assert lines[-1].startswith(f"validation accuracy {metrics['eval_accuracy']:.4f} (")
    assert "bits/s" in capsys.readouterr().err
    assert evaluate(tmp_path / "run") == f"accuracy       {metrics['eval_accuracy']:.4f} on validation, 80 examples"
    assert evaluate(tmp_path / "run", 6) == evaluate(tmp_path / "run")

    assert train(recipe.model_copy(update={"flip": False}), tmp_path / "run", resume=True, log=lines.append) == metrics
    other = recipe.model_copy(update={"data": BitsData(bits=7)})
    with pytest.raises(ValueError, match=r"has another recipe: data.bits was 6, and is 7 now$"):
        train(other, tmp_path / "run", resume=True)


@pytest.mark.usefixtures("first_bit")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("data.bit=3", r"unknown key 'data.bit'; did you mean 'data.bits'\?"),
        ("data.bits=0", r"data.bits: .*greater than 0; got 0"),
        ("bits=3", r"unknown key 'bits'; did you mean 'data.bits'\?"),
        ("flib=true", r"unknown key 'flib'; did you mean 'flip'\?"),
        ("task=first-bits", r"no task 'first-bits'; did you mean 'first-bit'\?"),
    ],
)
def test_mistakes_in_a_recipe_of_a_user(path, change, message):
    with pytest.raises(ValueError, match=message):
        load_recipe(str(path), [change])


def test_a_task_is_known_from_its_registration_to_its_removal(path):
    assert list_tasks() == BUILT_IN
    register_task("first-bit")(FirstBit)  # as a decorator
    try:
        assert list_tasks() == sorted([*BUILT_IN, "first-bit"])
        assert isinstance(find_task("first-bit"), FirstBit)
        load_recipe(str(path))
    finally:
        unregister_task("first-bit")
    assert list_tasks() == BUILT_IN
    with pytest.raises(ValueError, match=r"no task 'first-bit'; choose from 'causal-lm', "):
        load_recipe(str(path))
    with pytest.raises(ValueError, match=r"^no task 'first-bit'; "):
        unregister_task("first-bit")


def test_a_task_is_registered_once():
    for name in BUILT_IN:
        with pytest.raises(
            ValueError, match=rf"^task '{name}' is registered already, by {type(find_task(name)).__name__}$"
        ):
            register_task(name, FirstBit)
        assert not isinstance(find_task(name), FirstBit)
    with pytest.raises(TypeError, match=r"^task 'mine' must be a subclass of tnn.training.Task; got <object"):
        register_task("mine", object())


@pytest.mark.slow
def test_names_of_the_package_are_taken_from_the_start():
    code = "from tnn.training import Task, register_task; register_task('glue', type('Mine', (Task,), {}))"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "ValueError: task 'glue' is registered already, by Glue"


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_a_task_says_of_its_recipes(name):
    task = find_task(name)
    assert isinstance(task, Task)
    recipes = [load_recipe(recipe) for recipe in list_recipes()]
    for recipe in [recipe for recipe in recipes if recipe.task == name]:
        assert type(recipe) is task.recipe_class
        assert task.describe(recipe)["data"]
        assert task.model_class(recipe) in task.model_classes
        assert not task.trainings(recipe) or len(task.trainings(recipe)) == len(recipe.data.tasks)


def test_importing_recipes_is_light():
    """Help and lists of recipes must not wait for torch."""
    code = "import sys, tnn.training; tnn.training.list_recipes(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_names():
    import tnn.training

    assert dir(tnn.training) == sorted(tnn.training.__all__)
    assert all(callable(getattr(tnn.training, name)) for name in dir(tnn.training))
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        tnn.training.trian  # noqa: B018


def test_models_without_a_recipe(tmp_path):
    """A classifier cannot be evaluated then, and a language model needs a text."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "rpe_size": 8}
    TNNForSequenceClassification(load_preset("mini-lra", **sizes)).save_pretrained(tmp_path / "classifier")
    with pytest.raises(ValueError, match=r"classifier has no recipe of a classification task, so its classes are not"):
        evaluate(tmp_path / "classifier")
    TNNForCausalLM(load_preset("mini-alm", **sizes)).save_pretrained(tmp_path / "lm")
    for recipe in (None, "mini-mnist"):  # none, or one that is not of this model
        if recipe:
            (tmp_path / "lm" / "recipe.yaml").write_text(dump_recipe(load_recipe(recipe)))
        with pytest.raises(ValueError, match=r"^give a text: \S+ has no recipe that names one$"):
            evaluate(tmp_path / "lm")
