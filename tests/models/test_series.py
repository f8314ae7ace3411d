"""Models of series: quantiles, normalisation, origins, missing values, covariates, loading."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModel, AutoModelForTimeSeriesPrediction

from tnn import TNNForForecasting, TNNSeriesConfig, TNNSeriesModel
from tnn.models.series import location_and_scale, pinball_loss

NAN = float("nan")
ROUNDING = {"rtol": 1e-4, "atol": 1e-5}  # inside, the models are float32


def tiny(**changes):
    torch.manual_seed(0)
    defaults = {"hidden_size": 16, "num_hidden_layers": 2, "rpe_size": 8, "horizon": 4}
    return TNNForForecasting(TNNSeriesConfig(**(defaults | changes))).eval()


def values_for(model, n=20, batch=2):
    return torch.randn(batch, n, len(model.config.targets), dtype=torch.float64)


def test_round_trip(tmp_path):
    model = tiny(targets=["a", "b"], known=["hour"], known_mean=[11.5], known_std=[7.0])
    model.save_pretrained(tmp_path)
    loaded = AutoModelForTimeSeriesPrediction.from_pretrained(tmp_path).eval()
    values, known = values_for(model), torch.rand(2, 24, 1)
    assert torch.equal(loaded(values, known).quantiles, model(values, known).quantiles)
    config = AutoConfig.from_pretrained(tmp_path)
    assert (type(config), config.targets, config.known_mean) == (TNNSeriesConfig, ["a", "b"], [11.5])
    assert type(AutoModel.from_config(config)) is TNNSeriesModel


def test_training_step_reaches_every_parameter():
    model = tiny(targets=["a", "b"], known=["hour"]).train()
    model(values_for(model), torch.rand(2, 26, 1), labels=torch.randn(2, 6, 2)).loss.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


@settings(max_examples=15)
@given(n=st.integers(1, 30), missing=st.floats(0, 1))
def test_quantiles_never_cross_whatever_the_length(n, missing):
    model = tiny(targets=["a", "b"])
    values = values_for(model, n)
    values[torch.rand(values.shape) < missing] = NAN
    quantiles = model(values).quantiles
    assert quantiles.shape == (2, 1, 4, 2, 7)
    assert quantiles.dtype == torch.float64
    assert quantiles.isfinite().all()
    assert (quantiles.diff(dim=-1) >= 0).all()


@settings(max_examples=15)
@given(shift=st.floats(-1e4, 1e4), scale=st.floats(1e-3, 1e6))
def test_a_change_of_units_changes_the_forecast_alike(shift, scale):
    model = tiny()
    values = values_for(model)
    expected = model(values).quantiles * scale + shift
    torch.testing.assert_close(model(values * scale + shift).quantiles, expected, rtol=1e-4, atol=1e-3 * scale)


def test_more_labels_are_more_origins_that_do_not_see_what_follows():
    model = tiny()
    values, labels = values_for(model), torch.randn(2, 9, 1)
    output = model(values, labels=labels)
    assert output.quantiles.shape == (2, 6, 4, 1, 7)
    torch.testing.assert_close(output.quantiles[:, :1], model(values).quantiles, **ROUNDING)
    for origin in range(1, 6):
        changed = labels.clone()
        changed[:, origin:] += 100
        until = model(values, labels=changed).quantiles[:, : origin + 1]
        torch.testing.assert_close(until, output.quantiles[:, : origin + 1], **ROUNDING)


def test_the_loss_is_that_of_each_origin_alone():
    model = tiny()
    values, labels = values_for(model), torch.randn(2, 6, 1, dtype=torch.float64)
    output = model(values, labels=labels)
    loc, scale = location_and_scale(values)
    losses = []
    for origin in range(3):
        future = labels[:, origin : origin + 4]
        quantiles = (output.quantiles[:, origin] - loc[..., None]) / scale[..., None]
        known = torch.ones_like(future, dtype=torch.bool)
        losses.append(pinball_loss(quantiles, (future - loc) / scale, known, model.config.quantiles))
    assert output.loss.item() == pytest.approx(torch.stack(losses).mean().item(), rel=1e-5)


def test_missing_labels_have_no_part_in_the_loss():
    model = tiny()
    values, labels = values_for(model), torch.randn(2, 4, 1)
    labels[:, 2:] = NAN
    loss = model(values, labels=labels).loss
    assert loss.isfinite()
    assert model(values, labels=torch.full((2, 4, 1), NAN)).loss == 0
    torch.testing.assert_close(
        model(values[:1], labels=labels[:1]).loss * 0.5 + model(values[1:], labels=labels[1:]).loss * 0.5, loss
    )


@pytest.mark.parametrize("level", [0.0, 1e-9, 0.1, -5.0, 1e12])
def test_a_constant_series_goes_on_as_it_is(level):
    model = tiny().train()
    output = model(torch.full((1, 20, 1), level, dtype=torch.float64), labels=torch.full((1, 4, 1), level + 1))
    torch.testing.assert_close(output.quantiles, torch.full((1, 1, 4, 1, 7), level, dtype=torch.float64))
    assert output.loss == 0
    output.loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_one_value_after_a_quiet_time_is_not_the_whole_loss():
    model = tiny()
    values = torch.zeros(1, 20, 1)
    values[0, 3] = 1e-3
    assert model(values, labels=torch.full((1, 4, 1), 1e6)).loss < 100


def test_covariates_of_the_future_count():
    model = tiny(known=["warm"])
    values, known = values_for(model, batch=1), torch.zeros(1, 24, 1)
    later = known.clone()
    later[:, 22] = 1
    assert not torch.equal(model(values, known).quantiles, model(values, later).quantiles)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"values": torch.zeros(2, 5)}, r"values must be \(batch, n, 1\) with n at least 1.*got shape \(2, 5\)"),
        ({"values": torch.zeros(2, 5, 3)}, r"got shape \(2, 5, 3\)"),
        ({"values": torch.zeros(2, 5), "labels": torch.zeros(2, 4, 1)}, r"got shape \(2, 5\)"),
        ({"values": torch.zeros(2, 0, 1)}, r"got shape \(2, 0, 1\)"),
        ({"values": torch.zeros(2, 5, 1), "labels": torch.zeros(2, 3, 1)}, r"labels must be \(2, 4 or more, 1\)"),
        ({"values": torch.zeros(2, 5, 1), "known": torch.zeros(2, 9, 1)}, "known must be left out; got shape"),
    ],
)
def test_wrong_shapes_are_told(inputs, message):
    with pytest.raises(ValueError, match=message):
        tiny()(**inputs)


@pytest.mark.parametrize("mixer", ["attention", "transformer", "gss", ["tnn", "transformer"]])
def test_other_mixers_do_not_see_what_follows_either(mixer):
    model = tiny(mixer=mixer, num_attention_heads=2)
    values, labels = values_for(model), torch.randn(2, 9, 1)
    changed = labels.clone()
    changed[:, 2:] += 100
    first, other = (model(values, labels=after).quantiles[:, :3] for after in (labels, changed))
    torch.testing.assert_close(first, other, **ROUNDING)


def test_missing_covariates_are_told():
    with pytest.raises(ValueError, match=r"known must be \(1, 9, 1\): 1 columns up to the end .* got none"):
        tiny(known=["hour"])(torch.zeros(1, 5, 1))


def test_integers_are_refused():
    with pytest.raises(TypeError, match="values must be float64"):
        tiny()(torch.zeros(1, 5, 1, dtype=torch.long))


def test_gradient_checkpointing_and_hidden_states():
    model = tiny().train()
    values, labels = values_for(model), torch.randn(2, 4, 1)
    gradients = []
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable()
        model.zero_grad()
        model(values, labels=labels).loss.backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)
    assert [h.shape for h in model(values, output_hidden_states=True).hidden_states] == [(2, 20, 16)] * 3
