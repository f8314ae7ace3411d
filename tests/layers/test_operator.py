import copy
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tnn.layers import ToeplitzOperator, ToeplitzOperator2d
from tnn.ops import toeplitz_matmul, toeplitz_matrix

VARIANTS = {
    "fixed": {},
    "learned": {"decay_mode": "learned"},
    "none": {"decay_mode": "none"},
    "zero": {"decay": 0},
    "one": {"decay": 1},
    "free": {"coefficients": "free", "max_lags": 6},
    "limited": {"max_lags": 6},
    "sincos": {"rpe_input": "sincos"},
    "normalized": {"rpe_input": "normalized"},
    "sine": {"rpe_activation": "sin", "decay": 0.9},
    "spread": {"decay": [0.3, 0.9]},
    "learned spread": {"decay": (0.3, 0.9), "decay_mode": "learned", "rpe_activation": "sin"},
    "lra": {"rpe_norm": "last_layer", "rpe_size": 16, "rpe_num_layers": 2},
}
variants = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())
directions = pytest.mark.parametrize("causal", [True, False])


def relative(error, reference):
    return (error.abs().max() / reference.abs().max()).item()


def dense_coefficient(operator, lag, length):
    """t_lag * decay^|lag| from the definition."""
    decay = torch.ones(operator.channels, dtype=torch.float64)
    if operator.decay.mode == "learned":
        decay = torch.sigmoid(operator.decay.logit)
    elif operator.decay.spread is not None:
        halves = [math.log(0.5, rate) for rate in operator.decay.spread]  # half-lives, which grow by a constant factor
        factor = (halves[1] / halves[0]) ** (1 / (operator.channels - 1))
        rates = [0.5 ** (1 / (halves[0] * factor**i)) for i in range(operator.channels)]
        decay = torch.tensor(rates, dtype=torch.float64)
    elif operator.decay.mode == "fixed":
        decay *= operator.decay.rate
    if operator.max_lags is not None and abs(lag) >= operator.max_lags:
        return torch.zeros(operator.channels, dtype=torch.float64)
    if operator.rpe is not None:
        t = operator.rpe(torch.tensor([lag]), length)[0]
    else:
        t = operator.free[lag if operator.causal else lag + operator.max_lags - 1]
    return t * decay ** abs(lag)


@variants
@directions
@pytest.mark.parametrize("n", [1, 2, 3, 13])
def test_equals_the_matrix_written_out(options, causal, n):
    operator = ToeplitzOperator(3, causal=causal, **options).double()
    x = torch.randn(2, n, 3, dtype=torch.float64)
    expected = torch.zeros_like(x)
    for i in range(n):
        for j in range(i + 1 if causal else n):
            expected[:, i] += dense_coefficient(operator, i - j, n) * x[:, j]
    assert torch.allclose(operator(x), expected, atol=1e-10)


@variants
@directions
def test_leading_dimensions_and_gradients(options, causal):
    operator = ToeplitzOperator(3, causal=causal, **options)
    x = torch.randn(2, 4, 11, 3)
    y = operator(x)
    assert torch.allclose(y[1, 2], operator(x[1, 2]), atol=1e-6)
    y.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in operator.parameters())


@variants
def test_causal_output_has_no_gradient_from_later_input(options):
    operator = ToeplitzOperator(3, causal=True, **options, backend="dense")
    x = torch.randn(1, 20, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(operator(x)[:, 8].sum(), x)
    assert (gradient[:, 9:] == 0).all()
    assert gradient[:, 8].abs().sum() > 0


def masks(n):
    """Left, right, both, interior, alternating, one token, none at all and no padding."""
    mask = torch.ones(8, n, dtype=torch.bool)
    mask[0, : n // 3] = False
    mask[1, -(n // 3) :] = False
    mask[2, : n // 4] = mask[2, -(n // 4) :] = False
    mask[3, n // 3 : 2 * n // 3] = False
    mask[4, ::2] = False
    mask[5] = False
    mask[5, n // 2] = True
    mask[6] = False
    return mask


@variants
@directions
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_padded_rows_equal_the_rows_alone(options, causal, dtype):
    operator = ToeplitzOperator(3, causal=causal, **options)
    mask = masks(24)
    x = torch.randn(8, 24, 3)
    x[~mask] = math.nan  # whatever stands in the padding must not matter
    y = operator(x, mask.to(dtype))
    for row in range(8):
        if mask[row].any():
            alone = operator(x[row, mask[row]])
            assert relative(y[row, mask[row]] - alone, alone) < 1e-5


@pytest.mark.slow
@directions
@given(data=st.data(), n=st.integers(1, 40))
def test_any_mask_gives_the_rows_alone(causal, data, n):
    mask = torch.tensor([data.draw(st.lists(st.booleans(), min_size=n, max_size=n)) for _ in range(2)])
    operator = ToeplitzOperator(2, causal=causal, rpe_num_layers=1)
    x = torch.randn(2, n, 2)
    y = operator(x, mask)
    for row in range(2):
        if mask[row].any():
            alone = operator(x[row, mask[row]])
            assert relative(y[row, mask[row]] - alone, alone) < 2e-6


def test_padding_gets_no_gradient():
    operator = ToeplitzOperator(3)
    mask = masks(24)
    x = torch.randn(8, 24, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(operator(x, mask)[mask].square().sum(), x)
    assert (gradient[~mask] == 0).all()
    assert gradient[mask].abs().sum() > 0


def trained_like(operator, scale=3.0):
    with torch.no_grad():
        for p in operator.parameters():
            p.mul_(scale).add_(0.1 * scale * torch.randn_like(p))
    return operator


@directions
@pytest.mark.parametrize("trained", [False, True])
def test_the_cut_stays_below_float32_noise(causal, trained):
    operator = ToeplitzOperator(4, causal=causal, decay=0.99).eval()
    if trained:
        trained_like(operator)
    x = torch.randn(1, 8192, 4)
    with torch.no_grad():
        cut = operator(x)
        assert operator.kernel(8192).shape[0] == (1833 if causal else 2 * 1902 - 1)
        operator.bandwidth_tolerance = 0.0
        assert operator.kernel(8192).shape[0] == (8192 if causal else 2 * 8192 - 1)
        exact = operator.double()(x.double())
    assert relative(cut.double() - exact, exact) < 1e-6


@given(
    seed=st.integers(0, 2**16),
    decay=st.floats(0.5, 0.995),
    tolerance=st.sampled_from([1e-1, 1e-2, 1e-4]),
    causal=st.booleans(),
    mode=st.sampled_from(["fixed", "learned", "free"]),
    spread=st.booleans(),
    activation=st.sampled_from(["relu", "sin"]),
    trained=st.booleans(),
)
def test_truncation_bound_is_never_violated(seed, decay, tolerance, causal, mode, spread, activation, trained):
    torch.manual_seed(seed)
    options = {"coefficients": "free", "max_lags": 600} if mode == "free" else {"rpe_activation": activation}
    operator = ToeplitzOperator(
        4,
        causal=causal,
        decay=[decay / 2, decay] if spread else decay,
        decay_mode="learned" if mode == "learned" else "fixed",
        bandwidth_tolerance=tolerance,
        rpe_size=16,
        rpe_num_layers=2,
        **options,
    ).double()
    if trained:
        trained_like(operator)
    n = 600
    x = torch.randn(1, n, 4, dtype=torch.float64)
    with torch.no_grad():
        cut, kept, bound = operator(x), operator.kernel(n), operator.truncation_bound()
        operator.bandwidth_tolerance = 0.0
        full, everything = operator(x), operator.kernel(n)
    dropped = everything.abs().sum(0) - kept.abs().sum(0)
    assert (dropped <= bound + 1e-9).all()
    assert ((cut - full).abs().amax((0, 1)) <= bound * x.abs().max() + 1e-9).all()


def test_learned_rates_start_as_published():
    operator = ToeplitzOperator(100_000, coefficients="free", max_lags=1, decay_mode="learned")
    logit = operator.decay.logit
    assert logit.mean().item() == pytest.approx(3, abs=0.02)
    assert logit.std().item() == pytest.approx(1, abs=0.02)
    assert operator.free.std().item() == pytest.approx(1, abs=0.02)


def test_learned_rates_start_from_a_spread():
    operator = ToeplitzOperator(5, decay=[0.25, 0.5**0.125], decay_mode="learned")
    rates = torch.sigmoid(operator.decay.logit)
    assert torch.log(torch.tensor(0.5)).div(rates.log()).tolist() == pytest.approx([0.5, 1, 2, 4, 8], rel=1e-5)
    assert operator.decay.slowest_rate() == pytest.approx(0.5**0.125)


def test_the_slowest_channel_of_a_spread_decides_the_cut():
    operators = [ToeplitzOperator(4, causal=True, decay=decay) for decay in ([0.5, 0.9], 0.9)]
    assert operators[0].reach == operators[1].reach == operators[0].bandwidth().lags


class Switch(torch.nn.Module):
    """One more than the input, or the input."""

    on = True

    def forward(self, x):
        return x + 1 if self.on else x


class TestCache:
    @staticmethod
    def evaluate(operator, n=50):
        with torch.no_grad():
            return operator.kernel(n)

    def test_is_kept_in_evaluation_only(self, monkeypatch):
        operator = ToeplitzOperator(3).eval()
        calls = []
        compute = operator._compute_kernel
        monkeypatch.setattr(operator, "_compute_kernel", lambda *a: calls.append(a) or compute(*a))
        x = torch.randn(50, 3)
        with torch.no_grad():
            operator(x), operator(x)
        assert len(calls) == 1
        assert operator(x).requires_grad
        assert len(calls) == 2
        operator.train()
        with torch.no_grad():
            operator(x), operator(x)
        assert len(calls) == 4

    def test_cannot_be_reached_from_outside(self):
        operator = ToeplitzOperator(3).eval()
        before = self.evaluate(operator).clone()
        self.evaluate(operator).zero_()
        assert torch.equal(self.evaluate(operator), before)

    @pytest.mark.parametrize("how", ["add_", "data", "load_state_dict", "optimizer", "replace", "assign data"])
    @variants
    def test_follows_every_change_of_a_parameter(self, how, options):
        operator = ToeplitzOperator(3, **options).eval()
        before = self.evaluate(operator)
        name, parameter = next(iter(operator.named_parameters()))
        changed = parameter.detach() + 1
        if how == "add_":
            with torch.no_grad():
                parameter.add_(1)
        elif how == "data":
            parameter.data.add_(1)
        elif how == "assign data":
            parameter.data = changed
        elif how == "load_state_dict":
            operator.load_state_dict({**operator.state_dict(), name: changed})
        elif how == "optimizer":
            parameter.grad = -torch.ones_like(parameter)
            torch.optim.SGD([parameter], lr=1.0).step()
        else:
            owner = operator.get_submodule(name.rpartition(".")[0])
            setattr(owner, name.rpartition(".")[2], torch.nn.Parameter(changed))
        after = self.evaluate(operator)
        with torch.enable_grad():
            assert torch.equal(after, operator.kernel(50).detach())
        if options.get("decay") != 0 and name != "decay.logit":
            assert not torch.equal(before, after)

    def test_serves_shorter_lengths_and_grows_for_longer(self):
        operator = ToeplitzOperator(3, bandwidth_tolerance=0).eval()
        for n in (50, 7, 1, 80):
            with torch.enable_grad():
                expected = operator.kernel(n)
            assert torch.allclose(self.evaluate(operator, n), expected, atol=1e-6)

    def test_depends_on_the_length_where_coefficients_do(self):
        operator = ToeplitzOperator(3, rpe_input="normalized").eval()
        self.evaluate(operator, 50)
        with torch.enable_grad():
            assert torch.allclose(self.evaluate(operator, 20), operator.kernel(20), atol=1e-6)

    def test_follows_the_dtype(self):
        operator = ToeplitzOperator(3).eval()
        self.evaluate(operator)
        assert self.evaluate(operator.double()).dtype == torch.float64

    def test_is_not_copied_or_saved(self):
        operator = ToeplitzOperator(3).eval()
        self.evaluate(operator)
        assert copy.deepcopy(operator)._cache._kept is None
        assert pickle.loads(pickle.dumps(operator))._cache._kept is None
        assert operator._cache._kept is not None

    @pytest.mark.parametrize("how", ["parametrization", "hook", "instance forward", "other layers", "fewer layers"])
    def test_follows_whatever_else_changes_a_layer(self, how):
        operator = ToeplitzOperator(3).eval()
        rpe, before, switch = operator.rpe, self.evaluate(operator), Switch()
        if how == "parametrization":
            torch.nn.utils.parametrize.register_parametrization(rpe.output, "weight", switch)
        elif how == "hook":
            rpe.output.register_forward_hook(lambda module, args, y: switch(y))
        elif how == "instance forward":
            rpe.output.forward = lambda x, forward=rpe.output.forward: switch(forward(x))
        elif how == "other layers":
            rpe.hidden[0] = torch.nn.Sequential(rpe.hidden[0], switch)
        else:
            del rpe.hidden[0]
        changed = self.evaluate(operator)
        assert not torch.allclose(before, changed)
        switch.on = False
        assert torch.equal(self.evaluate(operator), changed if how == "fewer layers" else before)

    def test_does_not_meddle_with_functional_calls(self):
        operator = ToeplitzOperator(3).eval()
        x = torch.randn(10, 3)
        with torch.no_grad():
            plain = operator(x)
            doubled = {name: 2 * p for name, p in operator.named_parameters()}
            other = torch.func.functional_call(operator, doubled, (x,))
            assert not torch.allclose(plain, other)
            assert torch.equal(operator(x), plain)

    def test_inference_mode(self):
        operator = ToeplitzOperator(3).eval()
        x = torch.randn(10, 3)
        with torch.inference_mode():
            y = operator(x)
        with torch.no_grad():
            assert torch.equal(operator(x), y)
        operator(x).sum().backward()


def test_state_holds_parameters_only():
    operator = ToeplitzOperator(3)
    assert not list(operator.buffers())
    with torch.device("meta"):
        empty = ToeplitzOperator(3)
    empty.load_state_dict(operator.state_dict(), assign=True)
    x = torch.randn(2, 9, 3)
    assert torch.equal(empty(x), operator(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_model(dtype):
    operator = ToeplitzOperator(3, causal=True).to(dtype)
    x = torch.randn(2, 700, 3).to(dtype)
    y = operator(x)
    assert y.dtype == dtype
    assert operator.kernel(700).dtype == torch.float32
    expected = copy.deepcopy(operator).double()(x.double())
    assert relative(y.double() - expected, expected) < torch.finfo(dtype).eps


@pytest.mark.parametrize("form", ["sum", "product"])
@pytest.mark.parametrize(("h", "w"), [(1, 1), (1, 5), (4, 1), (5, 7)])
def test_two_dimensional_forms(form, h, w):
    operator = ToeplitzOperator2d(3, form=form, decay=0.9).double()
    x = torch.randn(2, h, w, 3, dtype=torch.float64)
    columns = toeplitz_matrix(operator.height.kernel(h), h)  # (d, h, h)
    rows = toeplitz_matrix(operator.width.kernel(w), w)
    down = torch.einsum("dij,bjwd->biwd", columns, x)
    across = torch.einsum("dij,bhjd->bhid", rows, x)
    if form == "sum":
        expected = down + across
    else:  # as published: both orders, added
        expected = torch.einsum("dij,bjwd->biwd", columns, across) + torch.einsum("dij,bhjd->bhid", rows, down)
    assert torch.allclose(operator(x), expected, atol=1e-10)


@pytest.mark.parametrize("form", ["sum", "product"])
def test_two_dimensional_padding(form):
    operator = ToeplitzOperator2d(3, form=form)
    x = torch.randn(2, 6, 8, 3)
    mask = torch.zeros(2, 6, 8, dtype=torch.bool)
    mask[0, :4, :5] = True
    mask[1, 2:, 3:] = True
    x[~mask] = math.nan
    y = operator(x, mask)
    for row, alone in ((0, operator(x[0, :4, :5])), (1, operator(x[1, 2:, 3:]))):
        assert torch.allclose(y[row][mask[row]], alone.reshape(-1, 3), atol=1e-5)


def test_representation_tells_the_options():
    text = repr(ToeplitzOperator(3, causal=True, coefficients="free", max_lags=4, decay=0.9))
    for part in ("3, causal=True", "coefficients=free", "max_lags=4", "mode=fixed, rate=0.9"):
        assert part in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decay": [0.5]}, "decay must be one rate, or the fastest and the slowest of a spread; got \\[0.5\\]"),
        ({"decay": [0.9, 0.5]}, "two rates between 0 and 1, the faster \\(smaller\\) first; got \\[0.9, 0.5\\]"),
        ({"decay": [0.5, 1.0]}, "two rates between 0 and 1"),
        ({"decay": [0, 0.5]}, "two rates between 0 and 1"),
        ({"decay": 1.5}, r"decay must be in \[0, 1\]; got 1.5"),
        ({"decay": -0.1}, r"decay must be in \[0, 1\]; got -0.1"),
        ({"decay": math.nan}, r"decay must be in \[0, 1\]; got nan"),
        ({"decay": math.inf}, r"decay must be in \[0, 1\]; got inf"),
        ({"decay_mode": "slow"}, "decay_mode must be one of 'fixed', 'learned', 'none'; got 'slow'"),
        ({"coefficients": "random"}, "coefficients must be one of 'rpe', 'free', 'poles'; got 'random'"),
        ({"coefficients": "free"}, 'max_lags must be given when coefficients="free"'),
        ({"coefficients": "poles", "num_poles": 2}, 'coefficients="poles" needs causal=True and num_poles'),
        ({"max_lags": 0}, "max_lags must be at least 1; got 0"),
        ({"bandwidth_tolerance": -1}, "bandwidth_tolerance must be finite and 0 or more; got -1"),
        ({"backend": "magic"}, "backend must be one of 'auto'.* got 'magic'"),
        ({"rpe_input": "cosine"}, "rpe_input must be one of .* got 'cosine'"),
        ({"rpe_norm": "batch"}, "rpe_norm must be one of .* got 'batch'"),
        ({"rpe_activation": "swoosh"}, "rpe_activation must be one of .* got 'swoosh'"),
        ({"rpe_size": 0}, "rpe_size must be at least 1; got 0"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        ToeplitzOperator(3, **options)
    with pytest.raises(ValueError, match=message):
        ToeplitzOperator2d(3, **options)


def test_poles_decay_by_themselves():
    with pytest.raises(ValueError, match='coefficients="poles" decay by their poles: decay_mode must be "fixed" or'):
        ToeplitzOperator(3, causal=True, coefficients="poles", num_poles=2, decay_mode="learned")


def test_bad_two_dimensional_options():
    with pytest.raises(ValueError, match="form must be one of 'sum', 'product'; got 'both'"):
        ToeplitzOperator2d(3, form="both")
    with pytest.raises(ValueError, match="causal must be False"):
        ToeplitzOperator2d(3, causal=True)


@pytest.mark.parametrize(
    ("x", "mask", "error", "message"),
    [
        (torch.randn(5), None, ValueError, r"x must have shape \(..., length, channels\)"),
        (torch.randn(2, 5, 4), None, ValueError, "x must have 3 channels"),
        (torch.randn(2, 0, 3), None, ValueError, "at least one position"),
        (torch.ones(2, 5, 3, dtype=torch.int64), None, TypeError, "x must be float64"),
        (torch.randn(2, 5, 3), torch.ones(2, 4), ValueError, r"mask must have shape \(2, 5\), .* got \(2, 4\)"),
        (torch.randn(2, 5, 3), [[1] * 5] * 2, TypeError, "mask must be a torch.Tensor; got list"),
        (torch.randn(2, 5, 3), torch.ones(2, 5, dtype=torch.complex64), TypeError, "mask must be boolean"),
        (torch.randn(2, 5, 3), torch.ones(2, 5, device="meta"), ValueError, "must share a device"),
    ],
)
def test_bad_input_is_named(x, mask, error, message):
    with pytest.raises(error, match=message):
        ToeplitzOperator(3)(x, mask)


def test_additive_masks_are_refused():
    additive = torch.zeros(2, 5).masked_fill(torch.rand(2, 5) > 0.5, -math.inf)
    with pytest.raises(ValueError, match="mask must hold 1 at real positions and 0 at padding"):
        ToeplitzOperator(3)(torch.randn(2, 5, 3), additive)


def test_replicas_and_copies_without_parameters_work():
    """What torch.nn.DataParallel makes: modules whose weights are plain tensors."""
    operator = ToeplitzOperator(3).eval()
    x = torch.randn(2, 9, 3)
    with torch.no_grad():
        expected = operator(x)
    replica = copy.copy(operator)
    replica._modules = {
        name: copy.deepcopy(child) if child is not None else None for name, child in operator._modules.items()
    }
    for module in replica.modules():
        values = {name: p.detach().clone() for name, p in module._parameters.items() if p is not None}
        for name, value in values.items():
            del module._parameters[name]
            setattr(module, name, value)
    with torch.no_grad():
        assert torch.allclose(replica(x), expected)


@pytest.mark.parametrize("options", [{}, {"decay_mode": "learned"}, {"coefficients": "free", "max_lags": 4}])
def test_meta_device(options):
    with torch.device("meta"):
        operator = ToeplitzOperator(3, **options)
        assert operator(torch.empty(2, 9, 3), torch.ones(2, 9)).shape == (2, 9, 3)


def test_free_coefficients_can_be_reset():
    with torch.device("meta"):
        operator = ToeplitzOperator(100, coefficients="free", max_lags=100)
    operator.to_empty(device="cpu").reset_parameters()
    assert operator.free.std().item() == pytest.approx(1, abs=0.05)


def test_every_activation_pickles():
    for name in ("relu", "silu", "gelu", "tanh", "identity"):
        pickle.dumps(ToeplitzOperator(3, rpe_activation=name))


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())
def test_empty_batch(options):
    operator = ToeplitzOperator(3, **options)
    assert operator(torch.empty(0, 5, 3), torch.ones(0, 5)).shape == (0, 5, 3)


def test_grid_input_is_checked():
    with pytest.raises(ValueError, match="a mask of a grid needs rpe_input"):
        ToeplitzOperator2d(3, rpe_input="normalized")(torch.randn(2, 4, 5, 3), torch.ones(2, 4, 5))
    with pytest.raises(ValueError, match=r"x must have shape \(..., height, width, channels\); got \(5, 3\)"):
        ToeplitzOperator2d(3)(torch.randn(5, 3))


def test_kernel_is_what_the_product_takes():
    operator = ToeplitzOperator(3, causal=True)
    x = torch.randn(2, 30, 3)
    assert torch.equal(operator(x), toeplitz_matmul(x, operator.kernel(30), causal=True))
