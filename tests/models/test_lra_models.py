"""The Long-Range Arena models of the paper against a second implementation, in float64, written from the formulas.

In training mode with gradients, running statistics and dropout, whose masks both share; and in evaluation mode.
"""

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F

import tnn

# Widths and depths are small here; tests/models/test_configuration.py counts the parameters of the published sizes.
SIZES = {"hidden_size": 8, "num_hidden_layers": 2, "bandwidth_tolerance": 0}
EMBEDDING_DROPOUT = 0.1
BATCH = 3
SIDE = 6  # of images


@dataclass
class Published:
    """What the launch files and the code set; `inner`: the GTU has a norm and a skip of its own."""

    form: str = ""  # of the 2-D operator
    inner: bool = False
    gamma: float = 1.0
    lags: int | None = None
    dropout: float = 0.0  # of a block, and of the gate in its GLU
    operator_dropout: float = 0.0
    last: bool = False  # the vector at the last position is classified, not the mean


PUBLISHED = {
    "lra-text": Published(inner=True, lags=1024),
    "lra-listops": Published(inner=True, lags=1024, gamma=0.95),
    "lra-retrieval": Published(inner=True, lags=1024, gamma=0.95),
    "lra-pathfinder": Published(inner=True, form="sum", last=True),
    "lra-image": Published(inner=True, form="sum", dropout=0.2),
    "lra-text-large": Published(gamma=0.9, dropout=0.1),
    "lra-listops-large": Published(lags=1024),
    "lra-retrieval-large": Published(gamma=0.6),
    "lra-pathfinder-large": Published(form="product", last=True),
    "lra-pathx-large": Published(form="product", last=True, gamma=0.999),
    "lra-image-large": Published(form="product", gamma=0.7, dropout=0.1, operator_dropout=0.1),
}


NAMES = [pytest.param(name, marks=pytest.mark.slow) if PUBLISHED[name].lags else name for name in PUBLISHED]


class Dropout:
    """The same masks in the same order for whoever calls it; stands for torch.nn.functional.dropout."""

    def __init__(self):
        self.calls = []

    def __call__(self, x, p=0.5, training=True, inplace=False):
        if p == 0 or not training:
            return x
        self.calls.append((p, x.numel()))
        generator = torch.Generator().manual_seed(len(self.calls))
        kept = torch.rand(x.numel(), generator=generator) >= p
        return x * kept.reshape(x.shape) / (1 - p)


class Reference:
    """The published computation; `weights` are those of a model of ours, by our names."""

    def __init__(self, weights, settings, training):
        self.weights = weights
        self.settings = settings
        self.training = training
        self.dropout = Dropout()

    def linear(self, name, x):
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def layer_norm(self, name, x):
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def batch_norm(self, name, x):
        """Over all positions of the batch; the running variance is unbiased."""
        mean, variance = self.weights[f"{name}.running_mean"], self.weights[f"{name}.running_var"]
        if self.training:
            count = x.shape[0] * x.shape[1]
            new_mean = x.mean((0, 1))
            new_variance = (x - new_mean).square().mean((0, 1))
            mean.mul_(0.9).add_(0.1 * new_mean.detach())
            variance.mul_(0.9).add_(0.1 * new_variance.detach() * count / (count - 1))
            mean, variance = new_mean, new_variance
        scaled = (x - mean) / (variance + 1e-5).sqrt()
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def matrices(self, name, n):
        """T (n, n, channels): the coefficient of lag i - j in row i, column j."""
        lags = torch.arange(1 - n, n, dtype=torch.float64)
        z = self.linear(f"{name}.rpe.input", lags[:, None])
        z = self.linear(f"{name}.rpe.hidden.0", z.relu())
        z = self.linear(f"{name}.rpe.hidden.1", z.relu())
        z = self.linear(f"{name}.rpe.output", self.layer_norm(f"{name}.rpe.output_norm", z).relu())
        z = z * (self.settings.gamma ** lags.abs())[:, None]
        if self.settings.lags is not None:
            z = z * (lags.abs() < self.settings.lags)[:, None]
        index = torch.arange(n)
        return z[index[:, None] - index + n - 1]

    def operator(self, name, v):
        if not self.settings.form:
            return torch.einsum("ijd,bjd->bid", self.matrices(name, v.shape[1]), v)
        grid = v.unflatten(1, (SIDE, SIDE))
        height, width = (self.matrices(f"{name}.{axis}", SIDE) for axis in ("height", "width"))

        def along_height(x):
            return torch.einsum("ijd,bjkd->bikd", height, x)

        def along_width(x):
            return torch.einsum("ijd,bkjd->bkid", width, x)

        if self.settings.form == "sum":
            return (along_height(grid) + along_width(grid)).flatten(1, 2)
        return (along_height(along_width(grid)) + along_width(along_height(grid))).flatten(1, 2)

    def gtu(self, name, x):
        u, v = F.silu(self.linear(f"{name}.gate_proj", x)), F.silu(self.linear(f"{name}.value_proj", x))
        mixed = self.drop(self.operator(f"{name}.operator", v), self.settings.operator_dropout)
        return self.linear(f"{name}.out_proj", u * mixed)

    def glu(self, name, x):
        gate = self.drop(F.silu(self.linear(f"{name}.gate_proj", x)), self.settings.dropout)
        return self.linear(f"{name}.out_proj", gate * self.linear(f"{name}.value_proj", x))

    def drop(self, x, p):
        return self.dropout(x, p, self.training)

    def encode(self, x):
        """x (batch, n, d): embedded tokens or pixels -> the pooled vector (batch, d)."""
        position, k = torch.arange(x.shape[1])[:, None].double(), torch.arange(x.shape[2] // 2).double()
        angle = position / 10_000 ** (2 * k / x.shape[2])
        waves = torch.zeros(x.shape[1:], dtype=torch.float64)
        waves[:, 0::2], waves[:, 1::2] = angle.sin(), angle.cos()
        x = self.drop(x + waves, EMBEDDING_DROPOUT)
        for n in range(SIZES["num_hidden_layers"]):
            layer = f"model.layers.{n}"
            y = self.batch_norm(f"{layer}.token_norm", x)
            if self.settings.inner:
                inside = self.layer_norm(f"{layer}.token_mixer.norm", y)
                y = y + self.gtu(f"{layer}.token_mixer.mixer", inside)
            else:
                y = self.gtu(f"{layer}.token_mixer", y)
            x = x + self.drop(y, self.settings.dropout)
            y = self.glu(f"{layer}.channel_mixer", self.batch_norm(f"{layer}.channel_norm", x))
            x = x + self.drop(y, self.settings.dropout)
        x = self.batch_norm("model.norm", x)
        return x[:, -1] if self.settings.last else x.mean(1)

    def embed(self, ids):
        return self.weights["model.embed_tokens.weight"][ids]

    def logits(self, input_ids=None, pair_input_ids=None, pixel_values=None):
        if pixel_values is not None:
            pixels = pixel_values.flatten(1).unsqueeze(-1)
            return self.linear("classifier.out", self.encode(self.linear("model.patch_proj", pixels)))
        a = self.encode(self.embed(input_ids))
        if pair_input_ids is None:
            return self.linear("classifier.out", a)
        b = self.encode(self.embed(pair_input_ids))
        both = self.linear("classifier.hidden", torch.cat([a, b, a - b, a * b], -1))
        return self.linear("classifier.out", F.gelu(both))


def model_of(name):
    config = tnn.load_preset(name, **SIZES)
    if PUBLISHED[name].form:
        head = tnn.TNNForImageClassification
    else:
        head = tnn.TNNForSequencePairClassification if "retrieval" in name else tnn.TNNForSequenceClassification
    model = head(config).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def inputs_of(name, config):
    if PUBLISHED[name].form:
        return {"pixel_values": torch.randn(BATCH, 1, SIDE, SIDE, dtype=torch.float64)}
    names = ("input_ids", "pair_input_ids") if "retrieval" in name else ("input_ids",)
    length = (PUBLISHED[name].lags or 30) + 10  # so that some lags are cut
    return {key: torch.randint(3, config.vocab_size, (BATCH, length)) for key in names}


def assert_equal(ours, theirs):
    assert (ours - theirs).abs().max() <= 1e-10 * theirs.abs().max().clamp_min(1)


def test_every_preset_is_here():
    others = tuple(f"-{mixer}" for mixer in tnn.mixers.list_mixers())
    own = [name for name in tnn.list_presets() if not name.endswith(others)]
    assert {name for name in own if name.startswith("lra-")} == set(PUBLISHED)


@pytest.mark.parametrize("name", NAMES)
def test_training(name, monkeypatch):
    """Logits, loss, running statistics, the gradient of each parameter, and the order and rates of dropout."""
    model = model_of(name).train()
    inputs, labels = inputs_of(name, model.config), torch.arange(BATCH) % 2
    weights = {key: parameter.detach().clone().requires_grad_() for key, parameter in model.named_parameters()}
    buffers = {key: buffer.clone() for key, buffer in model.named_buffers()}
    reference = Reference(weights | buffers, PUBLISHED[name], training=True)
    theirs = reference.logits(**inputs)
    loss = -theirs.log_softmax(-1)[range(BATCH), labels].mean()
    loss.backward()

    dropout = Dropout()
    monkeypatch.setattr(F, "dropout", dropout)
    ours = model(**inputs, labels=labels)
    ours.loss.backward()

    assert dropout.calls == reference.dropout.calls
    assert_equal(ours.logits, theirs)
    assert_equal(ours.loss, loss)
    for key, parameter in model.named_parameters():
        if "unused_norm" in key:
            assert parameter.grad is weights[key].grad is None
        else:
            assert_equal(parameter.grad, weights[key].grad)
    for key, buffer in model.named_buffers():
        if "running" in key:
            assert_equal(buffer, buffers[key])


@pytest.mark.parametrize("name", NAMES)
def test_evaluation(name):
    model = model_of(name).eval()
    for key, buffer in model.named_buffers():
        if "running" in key:
            buffer.uniform_(0.5, 1.5)
    inputs = inputs_of(name, model.config)
    reference = Reference(model.state_dict(), PUBLISHED[name], training=False)
    with torch.no_grad():
        assert_equal(model(**inputs).logits, reference.logits(**inputs))


def test_the_unused_norm_stays_frozen_when_a_model_is_loaded(tmp_path):
    model = tnn.TNNForSequenceClassification(tnn.load_preset("lra-text-large", **SIZES))
    model.save_pretrained(tmp_path)
    loaded = tnn.TNNForSequenceClassification.from_pretrained(tmp_path)
    for one in (model, loaded, loaded.train()):
        frozen = {key for key, parameter in one.named_parameters() if not parameter.requires_grad}
        assert frozen == {f"model.layers.{n}.unused_norm.{kind}" for n in range(2) for kind in ("weight", "bias")}
