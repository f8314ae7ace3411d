"""Figures show what is in the model and in the log, and their files are complete or absent."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch

import tnn
from tnn.ops import toeplitz_matrix
from tnn.training import figures
from tnn.training.figures import draw_model, draw_training, influence, new_figure, save_figure

SMALL = {"hidden_size": 8, "num_hidden_layers": 2, "rpe_size": 4, "rpe_num_layers": 1}
TEXT = SMALL | {"vocab_size": 20}
IMAGE = SMALL | {"image_size": 12, "patch_size": 2, "num_channels": 1}
MODELS = {
    "causal": (tnn.TNNForCausalLM, tnn.TNNConfig, TEXT),
    "bidirectional": (tnn.TNNForMaskedLM, tnn.TNNConfig, TEXT | {"is_decoder": False}),
    "no head": (tnn.TNNModel, tnn.TNNConfig, TEXT),
    "no decay": (tnn.TNNForCausalLM, tnn.TNNConfig, TEXT | {"decay_mode": "none"}),
    "learned decay": (tnn.TNNForCausalLM, tnn.TNNConfig, TEXT | {"decay_mode": "learned"}),
    "free": (tnn.TNNForCausalLM, tnn.TNNConfig, TEXT | {"coefficients": "free", "max_lags": 5}),
    "normalized": (tnn.TNNForCausalLM, tnn.TNNConfig, TEXT | {"rpe_input": "normalized"}),
    "inner norm": (tnn.TNNForCausalLM, tnn.TNNConfig, TEXT | {"inner_norm": "layer"}),
    "two channels": (tnn.TNNForCausalLM, tnn.TNNConfig, TEXT | {"hidden_size": 2, "gtu_expansion": 1}),
    "image": (tnn.TNNForImageClassification, tnn.TNNImageConfig, IMAGE),
    "image as a sequence": (tnn.TNNForImageClassification, tnn.TNNImageConfig, IMAGE | {"dims": 1}),
}


def make(name):
    head, config, options = MODELS[name]
    return head(config(**options))


def images(figure):
    return [axes.images[0].get_array() for axes in figure.axes if axes.images and axes.get_title(loc="left")]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_model(name, tmp_path):
    figure = draw_model(make(name), length=40)
    operators = 4 if name == "image" else 2
    assert len(figure.axes) == 4 * operators  # matrix, kernels, sizes, and the scale of colours
    save_figure(figure, tmp_path / "model.png")
    assert (tmp_path / "model.png").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["causal", "bidirectional", "free"])
@pytest.mark.parametrize("length", [1, 2, 30, 300])
def test_the_matrix_is_that_of_the_operator(name, length):
    model = make(name)
    figure = draw_model(model, length)
    for operator, drawn in zip(model.base_model.operators, images(figure), strict=True):
        kernel = operator.kernel(length).detach().double()
        matrix = toeplitz_matrix(kernel, length, causal=operator.causal).abs().mean(0).numpy()
        visible = matrix >= figures.DARKEST * matrix.max()
        np.testing.assert_allclose(drawn[visible], matrix[visible], rtol=1e-12)
        assert (drawn[~visible] <= figures.DARKEST * matrix.max() * (1 + 1e-9)).all()


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 2])
def test_short(length, tmp_path):
    save_figure(draw_model(make("bidirectional"), length), tmp_path / "model.png")  # ticks are made now


def test_both_axes_of_an_image():
    model = make("image")
    operator = model.model.layers[0].operator
    columns, rows, *_ = images(draw_model(model))
    assert columns.shape == (6, 6)  # patches along a side
    for drawn, part in ((columns, operator.height), (rows, operator.width)):
        kernel = part.kernel(6).detach().abs().mean(1).numpy()
        np.testing.assert_allclose(drawn[:, 0], kernel[5:], rtol=1e-5)  # lags 0 .. 5
    titles = [axes.get_title(loc="left") for axes in draw_model(model).axes]
    assert "layer 2, along rows: mean |t|" in titles


def test_the_spread_of_the_mass():
    model = make("free")
    with torch.no_grad():
        for operator in model.model.operators:
            operator.decay.mode = "none"
            operator.free.zero_()
            operator.free[:4] = torch.tensor([[6.0], [1.0], [2.0], [-1.0]])
    titles = [axes.get_title(loc="left") for axes in draw_model(model, 10).axes]
    assert titles.count("50% up to lag 0, 90% up to 2") == 2


@pytest.mark.slow
def test_a_kernel_of_zeros(tmp_path):
    model = make("free")
    for operator in model.model.operators:
        torch.nn.init.zeros_(operator.free)
    save_figure(draw_model(model, 100), tmp_path / "zero.png")


def test_a_model_that_diverged():
    model = make("free")
    torch.nn.init.constant_(model.model.operators[1].free, math.nan)
    with pytest.raises(ValueError, match="layer 2 has coefficients that are NaN or infinite"):
        draw_model(model, 100)


@pytest.mark.parametrize("mixer", ["attention", ["tnn", "transformer"], "fnet"], ids=["attention", "hybrid", "fnet"])
def test_layers_without_a_toeplitz_operator_are_drawn_by_their_derivatives(mixer, tmp_path):
    fields = {"mixer": mixer, "num_hidden_layers": 2, "is_decoder": mixer != "fnet"}
    model = tnn.TNNModel(tnn.TNNConfig(**(TEXT | fields))).eval()
    figure = draw_model(model, 40)
    save_figure(figure, tmp_path / "model.png")
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles[3].startswith("layer 2, ")
    assert titles[3].endswith(": mean |dy/dx|")


def test_influence_of_a_linear_mixer_is_its_matrix():
    gtu = tnn.layers.ToeplitzOperator(channels=4, causal=True).double()
    gtu.hidden_size = 4
    expected = gtu.kernel(12).abs().mean(1).detach()
    matrix = influence(gtu, 12)
    for i in range(12):
        for j in range(12):
            assert matrix[i, j] == pytest.approx(expected[i - j].item() if j <= i else 0)


def test_length_must_be_positive():
    with pytest.raises(ValueError, match="length must be at least 1; got 0"):
        draw_model(make("causal"), 0)


def test_training(tmp_path):
    log = [{"step": i, "loss": 5 * math.exp(-i / 20) + i % 2, "learning_rate": 0.1} for i in range(1, 101)]
    log += [{"step": i, "eval_loss": 5 * math.exp(-i / 20)} for i in (50, 100)]
    figure = draw_training(log)
    raw, smooth, evaluated = figure.axes[0].lines
    assert list(raw.get_ydata()) == [entry["loss"] for entry in log[:100]]
    assert list(evaluated.get_xdata()) == [50, 100]
    assert np.abs(np.diff(smooth.get_ydata()))[20:].max() < 0.3 < np.abs(np.diff(raw.get_ydata()))[20:].min()
    assert smooth.get_ydata()[10] == pytest.approx(raw.get_ydata()[8:13].mean())
    save_figure(figure, tmp_path / "training.png")


@pytest.mark.parametrize("key", ["loss", "eval_loss"])
@pytest.mark.parametrize("value", [1.5, math.nan])
def test_training_of_one_step(tmp_path, key, value):
    figure = draw_training([{"step": 1, key: value}])
    label = {"loss": "training, smoothed", "eval_loss": "evaluation"}[key]
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == [label]
    save_figure(figure, tmp_path / "training.png")


def test_the_first_steps_leave_room_for_the_rest():
    log = ({"step": i, "loss": 100.0 if i < 3 else 2 + 1 / i} for i in range(1, 201))
    assert draw_training(log).axes[0].get_ylim()[1] < 3


@pytest.mark.parametrize("log", [[], [{"step": 1, "learning_rate": 0.1}]], ids=["empty", "other"])
def test_a_log_without_losses(log):
    with pytest.raises(ValueError, match="has no losses yet"):
        draw_training(log)


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a"])
def test_save(tmp_path, name):
    save_figure(new_figure(2), tmp_path / "new" / name)
    assert [p.name for p in (tmp_path / "new").iterdir()] == [name]
    start = b"<?xml" if name.endswith("svg") else b"\x89PNG"
    assert (tmp_path / "new" / name).read_bytes().startswith(start)


def test_what_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_text("old")
    figure = new_figure(2)

    def fail(scratch, **_):
        scratch.write_text("half")
        raise OSError("disk full")

    monkeypatch.setattr(figure, "savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        save_figure(figure, path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]
    assert path.read_text() == "old"


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'toeplitz-nn\[plot\]'"):
        draw_model(make("causal"))


@pytest.mark.slow
def test_imports_are_light_and_global_state_is_left_alone():
    code = "import sys, tnn.training; assert not {'torch', 'matplotlib'} & set(sys.modules)\n"
    code += "import tnn.training.figures as f; assert 'matplotlib' not in sys.modules\n"
    code += "f.new_figure(2); assert 'matplotlib.pyplot' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
