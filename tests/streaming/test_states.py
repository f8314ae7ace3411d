"""A sequence in parts equals the sequence at once, for every state, split and kernel."""

import copy
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tnn.layers import ToeplitzOperator
from tnn.layers import state as layers_state
from tnn.layers.poles import PoleKernel
from tnn.layers.sequences import Sequences
from tnn.streaming import History, Recurrence, new_state, realize, realize_by_dft
from tnn.streaming.history import SPARE

D = 6
KERNELS = {
    "decay 0.9": {"decay": 0.9},
    "decay 0.99": {"decay": 0.99},
    "decay 0.999": {"decay": 0.999},
    "decay 1": {"decay": 1.0},
    "no decay": {"decay_mode": "none"},
    "learned decay": {"decay_mode": "learned"},
    "sines, spread": {"rpe_activation": "sin", "decay": [0.5, 0.97]},
    "sines, learned spread": {"rpe_activation": "sin", "decay": [0.5, 0.97], "decay_mode": "learned"},
    "free": {"coefficients": "free", "max_lags": 20},
    "one lag": {"coefficients": "free", "max_lags": 1},
    "max lags": {"max_lags": 100},
    "poles": {"coefficients": "poles", "num_poles": 5},
}
kernels = pytest.mark.parametrize("kernel", KERNELS)


def operator_of(kernel):
    torch.manual_seed(0)
    operator = ToeplitzOperator(D, causal=True, rpe_size=8, rpe_num_layers=2, **KERNELS[kernel]).eval()
    if operator.poles is not None:
        with torch.no_grad():
            angle = torch.linspace(0, 3, 5)
            operator.poles.poles.copy_(0.97 * torch.stack([angle.cos(), angle.sin()], 1))
            operator.poles.weights.normal_()
            operator.poles.direct.normal_()
    return operator


def close(a, b, tolerance=2e-5):
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


@kernels
@pytest.mark.parametrize(
    "parts",
    [
        [1] * 200,
        [150, *[1] * 140, 3, 5, 60, 1, 1, 64, 65, 1],
        [1, 2, 3, 500, 1, 1],
        [63, 1, 1, 64, 1, 63, 2],
        [700],
    ],
)
def test_parts_equal_the_whole(kernel, parts):
    operator = operator_of(kernel)
    x = torch.randn(2, sum(parts), D)
    state = new_state(operator)
    y = torch.cat([state(part) for part in x.split(parts, 1)], 1)
    close(y, operator(x))
    assert state.seen == sum(parts)


@given(parts=st.lists(st.integers(1, 90), min_size=1, max_size=8), kernel=st.sampled_from(sorted(KERNELS)))
def test_any_split(parts, kernel):
    operator = operator_of(kernel)
    x = torch.randn(1, sum(parts), D)
    state = new_state(operator)
    close(torch.cat([state(part) for part in x.split(parts, 1)], 1), operator(x))


@kernels
def test_memory_is_bounded_by_the_reach(kernel):
    operator = operator_of(kernel)
    state = new_state(operator)
    for _ in range(40):
        state(torch.randn(1, 300, D))
        state(torch.randn(1, 1, D))
    if isinstance(state, Recurrence):
        assert state._state.shape[1] == 10
    elif operator.reach is not None:
        assert state._past.shape[1] <= operator.reach - 1 + SPARE
        assert state._past.untyped_storage().nbytes() == state._past.nbytes  # and holds on to nothing larger
    else:
        assert state._past.shape[1] + state._count == state.seen


@kernels
def test_padding_is_left_out_wherever_it_is(kernel):
    operator = operator_of(kernel)
    x = torch.randn(3, 130, D)
    mask = torch.ones(3, 130, dtype=torch.bool)
    mask[0, :50] = False  # left, past the end of the first part
    mask[1, 20:25] = False  # inside
    mask[2, 60:90] = False  # over the border of two parts
    state = new_state(operator)
    parts = [
        state(x[:, :70], Sequences(mask[:, :70])),
        state(x[:, 70:100], Sequences(mask[:, 70:100])),
        *(state(x[:, i : i + 1]) for i in range(100, 130)),
    ]
    y = torch.cat(parts, 1)
    for row in range(3):
        real = mask[row]
        close(y[row, real], operator(x[row : row + 1, real])[0])


@kernels
def test_rows_can_be_selected_and_repeated(kernel):
    operator = operator_of(kernel)
    x = torch.randn(3, 100, D)
    state = new_state(operator)
    state(x[:, :70])
    state(x[:, 70:71])
    order = torch.tensor([2, 0, 0, 1])
    state.select(order)
    close(torch.cat([state(x[order, 71:72]), state(x[order, 72:])], 1), operator(x[order])[:, 71:])
    assert state.batch_size == 4


@kernels
def test_a_copy_goes_its_own_way(kernel):
    operator = operator_of(kernel)
    x, z = torch.randn(1, 80, D), torch.randn(1, 30, D)
    state = new_state(operator)
    state(x[:, :50])
    state(x[:, 50:51])
    twin = copy.deepcopy(state)
    assert twin.owner is operator
    for i in range(30):
        twin(z[:, i : i + 1])
    close(torch.cat([state(x[:, i : i + 1]) for i in range(51, 80)], 1), operator(x)[:, 51:])


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k != "poles"])
@pytest.mark.parametrize("back", [1, 5, 64, 100])
def test_tokens_can_be_taken_back(kernel, back):
    operator = operator_of(kernel)
    x = torch.randn(1, 3000, D)
    state = History(operator)
    state(x[:, :2900])
    for i in range(2900, 2950):
        state(x[:, i : i + 1])
    state.crop(back)
    rest = torch.cat([state(x[:, 2950 - back : 2951 - back]), state(x[:, 2951 - back :])], 1)
    close(rest, operator(x)[:, 2950 - back :])


def test_a_state_begun_in_inference_mode_goes_on_outside():
    operator = operator_of("decay 0.9")
    x = torch.randn(1, 20, D)
    state = History(operator)
    with torch.inference_mode():
        state(x[:, :10])
        state(x[:, 10:11])
    close(torch.cat([state(x[:, i : i + 1]) for i in range(11, 20)], 1), operator(x)[:, 11:])


def test_autocast_changes_nothing():
    operator = operator_of("poles")
    x = torch.randn(1, 90, D)
    kernel = operator.kernel(90)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(operator.poles(90), kernel)
        state = Recurrence(operator)
        y = torch.cat([state(x[:, :60]), state(x[:, 60:61]), state(x[:, 61:])], 1)
    close(y, operator(x))


def test_poles_stay_within_the_rate():
    """Whatever training makes of them: cached and parallel outputs must agree."""
    operator = ToeplitzOperator(D, causal=True, coefficients="poles", num_poles=2, decay=0.9).eval()
    operator.poles.poles.copy_(torch.tensor([[1.2, 0.3], [0.0, 0.0]]))
    operator.poles.weights.normal_()
    x = torch.ones(1, 600, D)
    state = Recurrence(operator)
    close(torch.cat([state(part) for part in x.split([300, *[1] * 300], 1)], 1), operator(x), 1e-4)
    assert (operator.truncation_bound() < 1e-4).all()


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k != "poles"])
@pytest.mark.parametrize("parts", [[70], [40, 30], [35, 20, *[1] * 15]])
@pytest.mark.parametrize("back", [1, 12, 25, 70])
def test_tokens_can_be_taken_back_where_there_was_padding(kernel, parts, back):
    """On the left, among the tokens that are removed and before them; the rows lose different numbers of tokens."""
    operator = operator_of(kernel)
    x, mask = torch.randn(4, 90, D), torch.ones(4, 90, dtype=torch.bool)
    mask[0, :50] = False
    mask[1, 62:66] = False
    mask[2, 30:60] = False
    state = History(operator)
    for part, real in zip(x[:, :70].split(parts, 1), mask[:, :70].split(parts, 1), strict=True):
        state(part, None if real.all() else Sequences(real))
    state.crop(back)
    assert state.seen == 70 - back
    state.crop(0)
    new = torch.randn(4, 20, D)
    y = torch.cat([state(new[:, :1]), state(new[:, 1:2]), state(new[:, 2:])], 1)
    for row in range(4):
        kept = x[row : row + 1, : 70 - back][:, mask[row, : 70 - back]]
        close(y[row : row + 1], operator(torch.cat([kept, new[row : row + 1]], 1))[:, -20:])


def test_tokens_can_be_taken_back_twice():
    operator = operator_of("decay 1")
    x, mask = torch.randn(2, 40, D), torch.ones(2, 40, dtype=torch.bool)
    mask[0, 10:13] = mask[1, 25:30] = False
    state = History(operator)
    state(x[:, :20], Sequences(mask[:, :20]))
    state(x[:, 20:], Sequences(mask[:, 20:]))
    state.crop(12)  # padding of the second row among them
    state.crop(16)  # of the first row
    new = torch.randn(2, 5, D)
    y = state(new)
    for row in range(2):
        kept = x[row : row + 1, :12][:, mask[row, :12]]
        close(y[row : row + 1], operator(torch.cat([kept, new[row : row + 1]], 1))[:, -5:])


def test_what_is_too_long_ago_to_know_is_refused(monkeypatch):
    monkeypatch.setattr(layers_state, "MARKS", 8)
    state = History(operator_of("decay 1"))
    state(torch.randn(1, 6, D), Sequences(torch.tensor([[False] * 2 + [True] * 4])))
    state(torch.randn(1, 6, D), Sequences(torch.tensor([[False] * 2 + [True] * 4])))
    with pytest.raises(ValueError, match="cannot remove 9 tokens: there was padding before the newest 8"):
        state.crop(9)
    state.crop(8)
    assert state.seen == 4


@pytest.mark.parametrize("decay", [0.99999, 1.0])
def test_coefficients_are_made_for_the_text_and_not_for_the_reach(decay):
    operator = ToeplitzOperator(D, causal=True, rpe_size=8, rpe_num_layers=2, decay=decay).eval()
    made = []
    kernel = operator.shared_kernel
    operator.shared_kernel = lambda length, device: made.append(length) or kernel(length, device)
    state, x = History(operator), torch.randn(1, 500, D)
    y = torch.cat([state(part) for part in x.split([1, 1, 98, *[1] * 300, 100], 1)], 1)
    assert max(made) <= 1024  # two powers of two above the text; the reach is 2 million, or has no end
    assert len(made) <= 6
    assert len(operator._cache._kept.kernel) <= 1024
    del operator.shared_kernel
    close(y, operator(x))


# --- plain data


@kernels
@pytest.mark.parametrize("parts", [[0], [70], [70, 1, 1, 1]])
def test_a_pickled_state_goes_on_in_an_operator_of_the_same_structure(kernel, parts):
    operator = operator_of(kernel)
    x = torch.randn(2, 100, D)
    state = new_state(operator)
    for part in x[:, : sum(parts)].split(parts, 1) if parts != [0] else ():
        state(part)
    data = pickle.dumps(state)
    assert len(data) < 2000 + state.seen * 2 * D * 4 + 2 * 10 * D * 4 + 2 * 16 * D * 4
    assert b"layers.operator" not in data  # no module
    twin = pickle.loads(data)
    assert (twin.owner, twin.seen, twin.batch_size) == (None, state.seen, state.batch_size)
    with pytest.raises(ValueError, match="belongs to another module, or to one of another structure"):
        twin.bind(ToeplitzOperator(D + 1, causal=True))
    twin.bind(operator_of(kernel))
    close(twin(x[:, sum(parts) :]), operator(x)[:, sum(parts) :])
    with pytest.raises(ValueError, match="belongs to another module"):
        twin.bind(operator)


def test_a_pickled_state_is_as_small_as_what_it_needs():
    for kernel, size in (("decay 0.9", 173 - 1 + SPARE), ("poles", 10 + 16)):
        operator = operator_of(kernel)
        state = new_state(operator)
        state(torch.randn(1, 5000, D))
        assert len(pickle.dumps(state)) < 2000 + 4 * D * size


def test_nothing_can_be_taken_back_at_any_time():
    state = History(operator_of("decay 0.9"))
    state.crop(0)
    state(torch.randn(1, 3, D))
    state.crop(0)
    assert state.seen == 3


def test_what_cannot_be_taken_back_is_refused():
    state = History(operator_of("decay 0.9"))
    state(torch.randn(1, 2000, D))
    with pytest.raises(ValueError, match=f"the state keeps {SPARE} beyond its reach"):
        state.crop(SPARE + 1)
    with pytest.raises(ValueError, match="only 2000 have been seen"):
        state.crop(2001)
    with pytest.raises(ValueError, match="count must be 0 or more; got -3"):
        state.crop(-3)
    assert state.seen == 2000
    with pytest.raises(ValueError, match="cannot remove tokens"):
        Recurrence(operator_of("poles")).crop(1)


@kernels
def test_other_batches_and_operators_are_refused(kernel):
    state = new_state(operator_of(kernel))
    state(torch.randn(2, 3, D))
    with pytest.raises(ValueError, match="holds 2 sequences; got inputs for 1"):
        state(torch.randn(1, 1, D))
    state.reset()
    assert state(torch.randn(1, 1, D)).shape == (1, 1, D)
    with pytest.raises(ValueError, match="needs a causal operator"):
        History(ToeplitzOperator(D))
    with pytest.raises(ValueError, match="they change with the length"):
        History(ToeplitzOperator(D, causal=True, rpe_input="normalized"))
    with pytest.raises(ValueError, match="needs an operator with poles"):
        Recurrence(ToeplitzOperator(D, causal=True))


@pytest.mark.parametrize("kernel", ["decay 0.9", "poles"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.long])
def test_a_mask_can_be_a_tensor(kernel, dtype):
    operator = operator_of(kernel)
    x, mask = torch.randn(2, 12, D), torch.ones(2, 12, dtype=torch.bool)
    mask[0, :5] = False
    x[0, 2] = torch.nan
    state, other = new_state(operator), new_state(operator)
    y, expected = state(x, mask.to(dtype)), other(x, Sequences(mask))
    assert torch.equal(y[mask], expected[mask])
    assert torch.equal(state(x[:, 5:6]), other(x[:, 5:6]))


BAD_PARTS = [
    (torch.randn(3, D), None, ValueError, r"x must have shape \(batch, length, channels\); got \(3, 6\)"),
    (torch.randn(1, 2, 3, D), None, ValueError, r"x must have shape \(batch, length, channels\); got \(1, 2, 3, 6\)"),
    (torch.randn(2, 3, D + 1), None, ValueError, r"x must have 6 channels .* got shape \(2, 3, 7\)"),
    (torch.randn(2, 0, D), None, ValueError, "x must hold at least one position"),
    (torch.ones(2, 3, D, dtype=torch.long), None, TypeError, "x must be float64, .* got torch.int64"),
    (torch.randn(2, 3, D), torch.ones(2, 4), ValueError, r"mask must have shape \(2, 3\), .* got \(2, 4\)"),
    (torch.randn(2, 3, D), [True], TypeError, "mask must be a torch.Tensor; got list"),
    (torch.randn(2, 3, D), Sequences(torch.tensor([[1, 1, 2]] * 2)), ValueError, "got packed documents"),
]


@pytest.mark.parametrize("kernel", ["decay 0.9", "poles"])
@pytest.mark.parametrize(("x", "mask", "error", "message"), BAD_PARTS)
def test_bad_parts_are_named_and_leave_no_trace(kernel, x, mask, error, message):
    state = new_state(operator_of(kernel))
    for _ in range(2):
        with pytest.raises(error, match=message):
            state(x, mask)
        state(torch.randn(2, 1, D))
    assert state.seen == 2


@kernels
def test_gradients_flow_through_the_state(kernel):
    operator = operator_of(kernel)
    with torch.enable_grad():
        x = torch.randn(1, 40, D, requires_grad=True)
        state = new_state(operator)
        y = torch.cat([state(x[:, :20]), state(x[:, 20:21]), state(x[:, 21:22]), state(x[:, 22:])], 1)
        wanted = [x, *operator.parameters()]
        found = torch.autograd.grad(y.square().sum(), wanted)
        expected = torch.autograd.grad(operator(x).square().sum(), wanted)
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-3)


@kernels
@pytest.mark.parametrize("without_gradients", [torch.no_grad, torch.inference_mode])
def test_parameters_get_gradients_after_a_prefix_without_any(kernel, without_gradients):
    operator = operator_of(kernel)
    x = torch.randn(1, 24, D)
    state = new_state(operator)
    with without_gradients():
        for part in x[:, :20].split([17, 1, 1, 1], 1):
            state(part)
    # All but the poles, whose powers a state of constant size has already taken.
    wanted = [parameter for name, parameter in operator.named_parameters() if name != "poles.poles"]
    with torch.enable_grad():
        expected = torch.autograd.grad(operator(x)[:, 20].square().sum(), wanted)
        for goes_on in (copy.deepcopy(state), state):  # the second needs nothing of the graph of the first
            found = torch.autograd.grad(goes_on(x[:, 20:21]).square().sum(), wanted)
            for one, other in zip(found, expected, strict=True):
                close(one, other, 1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@kernels
def test_half_precision_inputs(kernel, dtype):
    operator = operator_of(kernel)
    x = torch.randn(1, 150, D).to(dtype)
    state = new_state(operator)
    y = torch.cat([state(part) for part in x.split([70, *[1] * 80], 1)], 1)
    assert y.dtype == dtype
    close(y.float(), operator(x).float(), 0.02)


# --- realizations


def decayed(rate, lags=1500, channels=8, width=5):
    """Smooth kernels in the span of a few, with spikes at the first lags."""
    lag = torch.arange(lags, dtype=torch.float64)[:, None]
    basis = torch.cat([torch.cos(0.05 * k * lag.sqrt()) for k in range(width)], 1)
    kernel = basis @ torch.randn(width, channels, dtype=torch.float64)
    kernel[:5] += torch.randn(5, channels, dtype=torch.float64)
    return kernel * rate**lag


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "tolerance"), [(0.9, 1e-2), (0.9, 1e-4), (0.99, 1e-2), (0.99, 1e-3), (0.998, 1e-2), (0.998, 1e-3)]
)
def test_the_bound_holds_for_any_input(rate, tolerance):
    kernel = decayed(rate, lags=round(16 / (1 - rate)))
    found = realize(kernel, rate, torch.zeros(8), tolerance=tolerance, max_states=64)
    assert found.residual <= tolerance
    assert found.states <= 64
    assert found.kernel.poles.norm(dim=1).max() <= rate
    operator = ToeplitzOperator(8, causal=True, coefficients="poles", num_poles=len(found.kernel.poles), decay=rate)
    operator.poles = found.kernel
    exact = ToeplitzOperator(8, causal=True, coefficients="free", max_lags=len(kernel), decay_mode="none")
    exact.free.copy_(kernel)
    bound = found.error + found.rounding
    for x in (torch.randn(1, 4000, 8), torch.ones(1, 4000, 8), torch.randn(1, 4000, 8).sign()):
        for parts in ([1000, *[1] * 50, 2950], [1] * 4000):
            state = Recurrence(operator.eval())
            y = torch.cat([state(part) for part in x.split(parts, 1)], 1)
            error = (y.double() - exact.double()(x.double())).abs().amax((0, 1))
            assert (error <= bound * x.abs().max()).all()


def test_worst_input_comes_close_to_the_bound():
    """The sign of the residual, reversed, is the input that the bound is about: it is not a loose one."""
    kernel = decayed(0.95, lags=400)
    found = realize(kernel, 0.95, torch.zeros(8), tolerance=5e-2, max_states=16)
    residual = kernel - found.kernel.double()(400)
    assert (residual.abs().sum(0) > 0.9 * found.error).all()


def test_few_poles_are_found_again():
    lag = torch.arange(600, dtype=torch.float64)[:, None]
    angle, radius = torch.tensor([0.3, 1.0, 0.0]), torch.tensor([0.98, 0.95, 0.9])
    modes = radius**lag * torch.cos(angle * lag)
    found = realize(modes @ torch.randn(3, 4, dtype=torch.float64), 0.98, torch.zeros(4), tolerance=1e-4, max_states=20)
    assert found.states <= 6


def test_what_does_not_compress_is_told_by_the_residual():
    noise = torch.randn(300, 4, dtype=torch.float64)
    assert realize(noise, 0.99, torch.zeros(4), tolerance=1e-3, max_states=16).residual > 0.1


@pytest.mark.parametrize("lags", [1, 2, 10, 16, 17, 19, 20, 21, 22, 40])
def test_short_kernels(lags):
    kernel = torch.randn(lags, 3, dtype=torch.float64) * 0.8 ** torch.arange(lags)[:, None]
    found = realize(kernel, 0.8, torch.zeros(3), tolerance=1e-3, max_states=40)
    if lags <= PoleKernel.DIRECT:
        assert found.residual < 1e-6
        close(found.kernel(lags), kernel.float(), 1e-6)
        assert found.kernel(lags + 50)[lags:].abs().max() < 1e-6


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_realizations_are_stored_in_float32_whatever_the_default(default):
    kernel = decayed(0.9, lags=100)

    def found():
        return realize(kernel, 0.9, torch.zeros(8).double(), tolerance=1e-3, max_states=32), realize_by_dft(kernel)

    expected = found()
    torch.set_default_dtype(default)
    try:
        again = found()
    finally:
        torch.set_default_dtype(torch.float32)
    for one, other in zip(again, expected, strict=True):
        assert torch.equal(one.kernel.weights, other.kernel.weights)
        assert torch.equal(one.error, other.error)


GOOD = {"kernel": torch.ones(30, 3), "rate": 0.9, "tail": torch.zeros(3), "tolerance": 1e-3, "max_states": 2}
BAD_ARGUMENTS = [
    ({"kernel": torch.ones(30)}, ValueError, r"kernel must have shape \(lags, channels\); got \(30,\)"),
    ({"kernel": torch.ones(0, 3)}, ValueError, r"kernel must have shape \(lags, channels\); got \(0, 3\)"),
    ({"kernel": torch.full((30, 3), torch.inf)}, ValueError, "kernel must be finite"),
    ({"kernel": torch.ones(30, 3, dtype=torch.long)}, TypeError, "kernel must be float64, .* got torch.int64"),
    ({"rate": 1.0}, ValueError, "rate must be below 1"),
    ({"rate": 1.5}, ValueError, r"rate must be in \[0, 1\]; got 1.5"),
    ({"tail": torch.zeros(4)}, ValueError, r"tail must have shape \(3,\), .* got \(4,\)"),
    ({"tail": torch.tensor([0.0, -1.0, 0.0])}, ValueError, "tail must be 0 or more in every channel; got -1"),
    ({"tolerance": -1.0}, ValueError, "tolerance must be finite and 0 or more; got -1"),
    ({"max_states": 1}, ValueError, "max_states must be at least 2; got 1"),
    ({"max_states": 2.5}, TypeError, "max_states must be an integer; got 2.5"),
]


@pytest.mark.parametrize(("bad", "error", "message"), BAD_ARGUMENTS)
def test_arguments_of_a_realization_are_checked(bad, error, message):
    assert realize(**GOOD).states <= 2
    with pytest.raises(error, match=message):
        realize(**{**GOOD, **bad})
    if "kernel" in bad:
        with pytest.raises(error, match=message):
            realize_by_dft(bad["kernel"])


@pytest.mark.parametrize("lags", [10, 100])
def test_a_decay_of_nothing(lags):
    kernel = torch.zeros(lags, 2)
    kernel[0] = 1
    found = realize(kernel, 0.0, torch.zeros(2), tolerance=1e-3, max_states=8)
    assert found.residual < 1e-6


def test_conversion_by_dft_is_exact_for_its_length_and_repeats_after_it():
    kernel = decayed(0.99, lags=100)
    found = realize_by_dft(kernel)
    assert found.states == 100
    assert found.residual < 1e-4
    longer = found.kernel(150).double()
    close(longer[:100], kernel, 1e-3)
    close(longer[101:150], kernel[:49], 1e-3)  # what makes it wrong past its length
    close(longer[100], -kernel.sum(0), 1e-3)
