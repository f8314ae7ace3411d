"""What the engine is asked to write, and what it hands back, piece by piece."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tnn.data.text_stream import Finished
from tnn.models.cache import TNNCache
from tnn.serving.sampling import Sampling


class Kept(NamedTuple):
    """The state of a text whose first `age` tokens have been read. It is never changed: who goes on takes a copy."""

    cache: TNNCache
    age: int
    pending: tuple[int, ...] = ()  # the tokens after them, which are still to be read


class TokenScore(NamedTuple):
    """A token of the text, and how likely the model found it."""

    token: int
    offset: int  # where its text begins
    logprob: float
    top: tuple[tuple[int, float], ...]  # the most likely tokens at this place, and theirs


class Piece(NamedTuple):
    """The next part of one text of a request."""

    row: int
    text: str
    scores: tuple[TokenScore, ...] = ()
    tokens: int = 0  # how many the text has so far
    finished: Finished | None = None
    kept: Kept | None = None  # at the end, if the request asked for it: for the text up to there


class Failure(NamedTuple):
    """The request ends without a result."""

    kind: Literal["deadline", "internal"]
    message: str


Listener = Callable[[Piece | Failure], object]


@dataclass(frozen=True)
class Request:
    """Texts that continue `ids`, or what `start` has read and `ids` after it.

    >>> from tnn.serving import Request, Sampling
    >>> Request([5, 6, 7], max_tokens=20, sampling=Sampling(temperature=0.8, seed=1)).samples
    1
    """

    ids: list[int]
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    samples: int = 1  # their seeds are `seed`, `seed` + 1, ...
    logprobs: int | None = None  # how many alternatives to score at each place; None: no scores
    owner: str = ""  # whose prefixes may be used
    start: Kept | None = None
    keep: bool = False  # hand back the state of the text at its end
    deadline: float | None = None  # of time.monotonic()

    def __post_init__(self) -> None:
        if not self.ids:
            raise ValueError("prompt must have at least one token")
        if self.keep and self.samples > 1:
            raise ValueError(f"a session holds one text: n must be 1; got {self.samples}")
