import pytest
import yaml

from tnn.training.recipe import parse_recipe


@pytest.fixture(autouse=True)
def _few_threads(one_thread):
    pass


@pytest.fixture
def values(tmp_path, corpus):
    """Makes the plain values of a tiny recipe; keywords go to its training."""

    def make(task="causal-lm", model=(), data=(), **training):
        preset = "mini-alm" if task == "causal-lm" else "mini-blm"
        sizes = {"hidden_size": 16, "num_hidden_layers": 2, "rpe_size": 8, "decay": 0.9}
        return {
            "name": "tiny",
            "task": task,
            "model": {"preset": preset, **sizes, **dict(model)},
            "data": {"corpus": str(corpus), "length": 32, "cache": str(tmp_path / "cache"), **dict(data)},
            "training": {
                "steps": 12,
                "batch_size": 4,
                "learning_rate": 0.01,
                "schedule": "cosine",
                "warmup_steps": 2,
                "weight_decay": 0.1,
                "clip": 1.0,
                "log_every": 1,
                "save_every": 5,
                **training,
            },
        }

    return make


@pytest.fixture
def recipe(values):
    return lambda *positional, **keywords: parse_recipe(values(*positional, **keywords))


@pytest.fixture
def recipe_file(values, tmp_path):
    """The same as a file, for the command line."""

    def make(*positional, **keywords):
        path = tmp_path / "tiny.yaml"
        path.write_text(yaml.safe_dump(values(*positional, **keywords)))
        return path

    return make
