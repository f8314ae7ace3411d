import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnn.ops import effective_bandwidth


@given(
    decay=st.one_of(st.floats(0, 1), st.floats(0.5, 0.99999)),
    tolerance=st.floats(1e-12, 10),
    causal=st.booleans(),
)
def test_fewest_lags_within_the_tolerance(decay, tolerance, causal):
    bandwidth = effective_bandwidth(decay, tolerance, causal=causal)
    if bandwidth.lags is None:
        assert decay == 1
        return
    sides = 1 if causal else 2

    def tail(lags):  # by summation, not by the formula
        return sides * sum(decay**i for i in range(lags, lags + 4000)) if decay < 0.99 else None

    assert bandwidth.lags >= 1
    assert bandwidth.tail <= tolerance
    if decay < 0.99:
        assert tail(bandwidth.lags) <= bandwidth.tail * (1 + 1e-9) + 1e-300
    if bandwidth.lags > 1:
        previous = sides * decay ** (bandwidth.lags - 1) / (1 - decay)
        assert previous > tolerance * (1 - 1e-9), "one lag less would have done"


def test_values_for_the_decay_of_the_paper():
    assert effective_bandwidth(0.99, 1e-6, causal=True).lags == 1833
    assert effective_bandwidth(0.99, 1e-6).lags == 1902


def test_no_decay_or_no_tolerance_keeps_every_lag():
    assert effective_bandwidth(1.0) == (None, 0.0)
    assert effective_bandwidth(0.99, 0) == (None, 0.0)
    assert effective_bandwidth(0.0) == (1, 0.0)


@pytest.mark.parametrize("decay", [-0.1, 1.1, math.nan, math.inf, -math.inf])
def test_decay_outside_the_unit_interval(decay):
    with pytest.raises(ValueError, match=r"decay must be in \[0, 1\]; got"):
        effective_bandwidth(decay)


@pytest.mark.parametrize("tolerance", [-1e-6, math.nan, math.inf])
def test_tolerance_must_be_finite_and_not_negative(tolerance):
    with pytest.raises(ValueError, match="tolerance must be finite and 0 or more; got"):
        effective_bandwidth(0.99, tolerance)


def test_the_smallest_tolerance_and_the_slowest_decay():
    for decay in (0.99, 1 - 1e-9, 1 - 2**-50):
        for tolerance in (5e-324, 1e-6):
            bandwidth = effective_bandwidth(decay, tolerance)
            assert bandwidth.tail <= tolerance


def test_types_are_checked():
    with pytest.raises(TypeError, match="decay must be a number"):
        effective_bandwidth("0.99")
    with pytest.raises(TypeError, match="tolerance must be a number"):
        effective_bandwidth(0.99, None)
