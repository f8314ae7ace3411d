"""The choice of tokens: shares of the numbers are the probabilities, after top_k and top_p as in transformers."""

import pytest
import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from tnn.serving import Sampling
from tnn.serving.sampling import choose_tokens

SETTINGS = [Sampling(1.0), Sampling(0.5), Sampling(2.0, top_k=3), Sampling(1.0, top_p=0.7), Sampling(1.5, 0.6, 5)]
SETTINGS += [Sampling(1.0, top_p=1e-9), Sampling(1.0, top_k=1), Sampling(1.0, top_k=1000)]


def expected(logits, one):
    """The probabilities that transformers samples from."""
    scores = TemperatureLogitsWarper(one.temperature)(None, logits)
    if one.top_k is not None:
        scores = TopKLogitsWarper(one.top_k)(None, scores)
    if one.top_p < 1:
        scores = TopPLogitsWarper(one.top_p)(None, scores)
    return scores.softmax(-1)[0]


@pytest.mark.parametrize("one", SETTINGS, ids=str)
def test_shares_are_the_probabilities(one):
    logits, draws = torch.randn(1, 12), 4000
    numbers = [(k + 0.5) / draws for k in range(draws)]
    tokens = choose_tokens(logits.expand(draws, -1), [one] * draws, numbers)
    shares = torch.tensor(tokens).bincount(minlength=12) / draws
    torch.testing.assert_close(shares, expected(logits, one), atol=1e-3, rtol=0)


def test_rows_do_not_depend_on_each_other():
    logits, numbers = torch.randn(9, 50), torch.rand(9).tolist()
    settings = [*SETTINGS, Sampling()]
    together = choose_tokens(logits, settings, numbers)
    assert together == [choose_tokens(logits[k : k + 1], settings[k : k + 1], numbers[k : k + 1])[0] for k in range(9)]
    assert together[-1] == int(logits[-1].argmax())


def test_the_ends_of_the_numbers():
    """Never a token of probability zero, whatever is rounded."""
    logits = torch.tensor([[-torch.inf, 0.0, 0.0, -torch.inf]])
    for one in (Sampling(1.0), Sampling(1.0, top_k=3)):
        assert choose_tokens(logits, [one], [0.0]) == [1]
        assert choose_tokens(logits, [one], [1 - 2**-53]) == [2]


WRONG = {
    "temperature must be 0, or at least 1e-06; got 1e-07": {"temperature": 1e-7},
    "temperature must be finite and 0 or more; got -1": {"temperature": -1},
    "top_p must be above 0 and at most 1; got 0": {"top_p": 0},
    "top_k must be at least 1; got 0": {"top_k": 0},
}


@pytest.mark.parametrize(("message", "fields"), WRONG.items())
def test_wrong_settings(message, fields):
    with pytest.raises(ValueError, match=f"^{message}$"):
        Sampling(**fields)
