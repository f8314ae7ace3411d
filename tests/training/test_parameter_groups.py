"""Modules with their own learning rate or weight decay, from the groups to a resumed run."""

import shutil

import pytest
import torch
from torch import nn

from tnn import TNNConfig
from tnn.models import TNNForCausalLM
from tnn.training import runs, train
from tnn.training.parameter_groups import parameter_groups
from tnn.training.schedules import learning_rate
from tnn.training.schema import ModelSection
from tnn.training.tasks.language import CausalLM
from tnn.training.trainer import RecipeTrainer, training_arguments


class Kernel(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.step, self.size = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
        self.settings = settings

    def parameter_settings(self):
        return self.settings


def names(model, groups):
    known = {id(parameter): name for name, parameter in model.named_parameters()}
    return [[known[id(parameter)] for parameter in group["params"]] for group in groups]


def groups_of(model):
    return parameter_groups(model, learning_rate=0.1, weight_decay=0.01)


def test_without_settings_all_are_in_one_group_in_their_order():
    model = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3))
    model[0].bias.requires_grad_(False)
    groups = groups_of(model)
    assert names(model, groups) == [["0.weight", "1.weight", "1.bias"]]
    assert list(groups[0]) == ["params"]  # the optimizer's own values, and its state as it always was


def test_parameters_with_equal_settings_share_a_group():
    slow, plain = {"learning_rate": 0.001, "weight_decay": 0.0}, {"learning_rate": 0.1}
    model = nn.Sequential(Kernel({"step": slow}), nn.Linear(1, 1), Kernel({"step": slow, "size": plain}))
    groups = groups_of(model)
    assert names(model, groups) == [["0.size", "1.weight", "1.bias", "2.size"], ["0.step", "2.step"]]
    assert (groups[1]["lr"], groups[1]["weight_decay"]) == (0.001, 0.0)


def test_an_outer_module_overrules_an_inner_one():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.kernel = Kernel({"step": {"learning_rate": 0.001, "weight_decay": 0.5}})

        def parameter_settings(self):
            return {"kernel.step": {"learning_rate": 0.002}}

    groups = groups_of(nn.Sequential(Outer()))
    assert (groups[1]["lr"], groups[1]["weight_decay"]) == (0.002, 0.5)


def test_a_shared_parameter_has_its_settings_under_each_name():
    first, second = nn.Linear(1, 1, bias=False), Kernel({"step": {"weight_decay": 0.0}})
    first.weight = second.step
    assert names(nn.Sequential(first, second), groups_of(nn.Sequential(first, second))) == [["1.size"], ["0.weight"]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stp": {}}, r"parameter_settings\(\) of Kernel at 0: no parameter 'stp'; did you mean 'step'\?"),
        ({"step": {"weight_deacy": 0}}, r"at 0: step: unknown key 'weight_deacy'; did you mean 'weight_decay'\?"),
        ({"step": {"learning_rate": -1}}, r"step: learning_rate must be a number, 0 or more; got -1"),
        ({"step": {"learning_rate": float("nan")}}, r"step: learning_rate must be a number, 0 or more; got nan"),
        ({"step": {"weight_decay": "none"}}, r"step: weight_decay must be a number, 0 or more; got 'none'"),
    ],
)
def test_mistakes(settings, message):
    with pytest.raises(ValueError, match=message):
        groups_of(nn.Sequential(Kernel(settings)))


@pytest.mark.parametrize("named", [("step",), ("step", "size")])
def test_the_schedule_scales_the_learning_rate_of_each_group(recipe, tmp_path, named):
    """The first group, empty or not, has the learning rate of the recipe, which is the one that is logged."""
    training = recipe(schedule="cosine", warmup_steps=2, learning_rate=0.01).training
    model = nn.Sequential(Kernel({name: {"learning_rate": 0.5} for name in named}))
    trainer = RecipeTrainer(
        training, tmp_path, model=model, args=training_arguments(training, 12, str(tmp_path), "loss")
    )
    trainer.create_optimizer_and_scheduler(12)
    rate = learning_rate(training, 12)
    for step in range(12):
        assert trainer.lr_scheduler.get_last_lr() == pytest.approx([rate(step), 50 * rate(step)])
        sum(parameter.sum() for parameter in model.parameters()).backward()
        trainer.optimizer.step()
        trainer.lr_scheduler.step()


class WithSettings(TNNForCausalLM):
    def parameter_settings(self):
        decays = {name: {"weight_decay": 0.0} for name, _ in self.named_parameters() if name.endswith("bias")}
        return decays | {"model.embed_tokens.weight": {"learning_rate": 1e-9}}


@pytest.mark.slow
def test_a_run_with_groups_resumes_bit_exactly(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(CausalLM, "model_class", lambda self, recipe: WithSettings)
    tiny = recipe(model={"dropout": 0.1}, save_every=5, keep_checkpoints=5)

    def run(folder, **options):
        train(tiny, folder, log=lambda text: None, **options)
        return (folder / "model.safetensors").read_bytes()

    expected = run(tmp_path / "complete")
    run(tmp_path / "stopped")
    (tmp_path / "stopped" / "config.json").unlink()
    shutil.rmtree(tmp_path / "stopped" / "checkpoints" / "checkpoint-12")
    assert runs.step_of(runs.last_checkpoint(tmp_path / "stopped")) == 10
    assert run(tmp_path / "stopped", resume=True) == expected

    optimizer = torch.load(tmp_path / "complete" / "checkpoints" / "checkpoint-12" / "optimizer.pt")
    assert [group["weight_decay"] for group in optimizer["param_groups"]] == [0.1, 0.1, 0.0]
    monkeypatch.undo()
    assert run(tmp_path / "plain") != expected


def test_the_mixer_of_a_recipe_may_be_a_name_or_a_list():
    """The configuration checks it; a recipe passes it on."""
    for mixer in ("package.module:Class", ["tnn", "package.module:Class"]):
        assert ModelSection(start_from="runs/x", mixer=mixer).changes == {"mixer": mixer}


def test_what_has_no_weight_decay():
    """Learned rates, encoders of sines, short convolutions and state spaces would be drawn away from what they mean."""
    options = {"vocab_size": 20, "hidden_size": 8, "rpe_size": 4, "rpe_num_layers": 1}
    sines = {"rpe_activation": "sin", "decay": [0.5, 0.9], "decay_mode": "learned", "short_convolution": 3}
    model = TNNForCausalLM(TNNConfig(**options, **sines, num_hidden_layers=2, mixer=["tnn", "s4"]))
    _, *own = parameter_groups(model, learning_rate=0.1, weight_decay=0.01)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = {(names[id(p)], group["lr"]) for group in own for p in group["params"] if group["weight_decay"] == 0}
    gtu = "model.layers.0.token_mixer."
    assert {(f"{gtu}convolution.free", 0.1), (f"{gtu}operator.decay.logit", 0.1)} <= found
    assert (f"{gtu}operator.rpe.input.weight", 0.1) in found
    assert ("model.layers.1.token_mixer.operator.log_dt", 1e-3) in found
    assert not any(name.endswith("proj.weight") for name, _ in found)
