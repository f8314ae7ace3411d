"""A mixer in a user's own file, from a recipe to generated text: trained, saved, loaded, evaluated, drawn."""

import shutil
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tnn import TNNConfig, TNNForCausalLM
from tnn.cli import app
from tnn.mixers import list_mixers, load_mixer, unregister_mixer
from tnn.training.evaluation import load_model
from tnn.training.parameter_groups import parameter_groups

SOURCE = Path(__file__).parents[1] / "mixers" / "moving_average.py"
MIXER = "my_mixers:MovingAverage"


@pytest.fixture(autouse=True)
def _own_module(tmp_path, monkeypatch):
    """The current folder has the user's module; `tnn` finds it there."""
    shutil.copy(SOURCE, tmp_path / "my_mixers.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield
    forget()


def forget():
    sys.modules.pop("my_mixers", None)
    if MIXER in list_mixers():
        unregister_mixer(MIXER)


def tnn(*words):
    return CliRunner().invoke(app, [*map(str, words)])


def train(recipe_file, *changes):
    return tnn("train", recipe_file, *changes, "--out", "run")


@pytest.mark.slow
@pytest.mark.parametrize("mixer", [MIXER, f"[tnn, {MIXER}]"], ids=["alone", "hybrid"])
def test_trained_evaluated_and_drawn_by_commands(recipe_file, mixer):
    done = train(recipe_file(), f"model.mixer={mixer}", "training.steps=20")
    assert done.exit_code == 0, done.output
    forget()  # as in another process

    refused = tnn("evaluate", "run")
    assert refused.exit_code == 1
    assert f"config.json: mixer '{MIXER}' is not registered: " in refused.stderr
    assert refused.stderr.count("\n") == 1

    done = tnn("--mixer", MIXER, "evaluate", "run")
    assert "perplexity" in done.stdout, done.output
    done = tnn("--mixer", MIXER, "show", "run", "--length", "16")
    assert Path("run/kernels.png").stat().st_size > 10_000, done.output
    texts = {
        decoder: tnn("--mixer", MIXER, "generate", "run", "--prompt", "a matrix", "--decoder", decoder)
        for decoder in ("exact", "recompute")
    }
    assert texts["exact"].exit_code == 0, texts["exact"].output
    assert texts["exact"].stdout == texts["recompute"].stdout


@pytest.mark.slow
def test_a_trained_model_generates_with_its_state(recipe_file):
    assert train(recipe_file(), f"model.mixer={MIXER}", "training.steps=20").exit_code == 0
    forget()
    with pytest.raises(ValueError, match="is not registered"):
        load_model(Path("run"))
    load_mixer(MIXER)
    model, ids = load_model(Path("run")), torch.randint(4, 200, (2, 9))
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    for beams in (1, 3):
        options = {"attention_mask": mask, "max_new_tokens": 20, "num_beams": beams, "do_sample": False}
        assert torch.equal(model.generate(ids, **options), model.generate(ids, use_cache=False, **options))


def test_its_parameters_train_by_their_own_settings(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    load_mixer(MIXER)
    model = TNNForCausalLM(TNNConfig(vocab_size=20, hidden_size=8, num_hidden_layers=2, mixer=MIXER))
    usual, own = parameter_groups(model, learning_rate=3e-3, weight_decay=0.1)
    assert (own["lr"], own["weight_decay"]) == (1e-3, 0.0)
    assert [tuple(p.shape) for p in own["params"]] == [(8,), (8,)]
    assert len(usual["params"]) + 2 == len(list(model.parameters()))


@pytest.mark.parametrize(
    ("mixer", "message"),
    [
        (
            "nowhere:Mixer",
            "error: mixer 'nowhere:Mixer': module 'nowhere' cannot be imported: No module named 'nowhere'",
        ),
        ("my_mixers:Nothing", "error: mixer 'my_mixers:Nothing': module 'my_mixers' has no class 'Nothing'"),
        ("[tnn]", "mixer must have one entry per layer if it is a list; got 1 for num_hidden_layers=2"),
        ("fnet", "mixer 'fnet' has no causal form: it is bidirectional only"),
    ],
)
def test_mistakes_are_one_line(recipe_file, mixer, message):
    done = train(recipe_file(), f"model.mixer={mixer}")
    assert done.exit_code == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not Path("run").exists()
