"""The next token of each row of a batch, by the settings and the random numbers of that row alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tnn._checks import check_positive, check_tolerance

LOWEST_TEMPERATURE = 1e-6  # below, scores divided by it would overflow; the most likely token is all that is left


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen: temperature 0 takes the most likely one.

    First the `top_k` most likely tokens are kept, then the fewest of them that have the probability `top_p` together.
    Texts with the same seed are the same; None: a new one each time.

    >>> from tnn.serving import Sampling
    >>> Sampling(temperature=0.8, top_p=0.9, seed=1)
    Sampling(temperature=0.8, top_p=0.9, top_k=None, seed=1)
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        check_tolerance("temperature", self.temperature)
        if 0 < self.temperature < LOWEST_TEMPERATURE:
            raise ValueError(f"temperature must be 0, or at least {LOWEST_TEMPERATURE}; got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1; got {self.top_p}")
        if self.top_k is not None:
            check_positive("top_k", self.top_k)

    @property
    def filters(self) -> bool:
        return self.top_p < 1 or self.top_k is not None


def choose_tokens(logits: Tensor, settings: Sequence[Sampling], numbers: Sequence[float]) -> list[int]:
    """One token per row of logits (rows, vocabulary); `numbers` in [0, 1) decide where a row samples.

    >>> import torch
    >>> from tnn.serving.sampling import Sampling, choose_tokens
    >>> choose_tokens(torch.tensor([[0.0, 1.0], [0.0, 0.0]]), [Sampling(), Sampling(1.0)], [0.0, 0.4])
    [1, 0]
    """
    tokens = logits.argmax(-1)
    for filtered in (False, True):
        rows = [k for k, one in enumerate(settings) if one.temperature > 0 and one.filters == filtered]
        if rows:
            index = torch.tensor(rows, device=logits.device)
            own = [settings[k] for k in rows]
            temperatures = torch.tensor([one.temperature for one in own], dtype=torch.float64, device=logits.device)
            probabilities = (logits[index].double() / temperatures[:, None]).softmax(-1)
            drawn = torch.tensor([numbers[k] for k in rows], dtype=torch.float64, device=logits.device)
            tokens[index] = _draw_filtered(probabilities, own, drawn) if filtered else _draw(probabilities, drawn)
    return tokens.tolist()


def _draw(weights: Tensor, numbers: Tensor) -> Tensor:
    """weights (rows, tokens), numbers (rows,) -> (rows,): the token in which the share `number` of all weight falls."""
    sums = weights.cumsum(-1)
    total = sums[:, -1]
    place = torch.minimum(numbers * total, torch.nextafter(total, torch.zeros_like(total)))  # never past the last one
    return torch.searchsorted(sums, place[:, None], right=True)[:, 0]


def _draw_filtered(probabilities: Tensor, settings: Sequence[Sampling], numbers: Tensor) -> Tensor:
    size = probabilities.shape[-1]
    weights, order = probabilities.sort(dim=-1, descending=True, stable=True)
    most = torch.tensor([one.top_k or size for one in settings], device=weights.device)
    weights = weights.masked_fill(torch.arange(size, device=weights.device) >= most[:, None], 0)
    shares = weights / weights.sum(-1, keepdim=True)
    enough = torch.tensor([one.top_p for one in settings], dtype=weights.dtype, device=weights.device)
    before = shares.cumsum(-1) - shares
    weights = weights.masked_fill(before >= enough[:, None], 0)
    return order.gather(-1, _draw(weights, numbers)[:, None])[:, 0]
