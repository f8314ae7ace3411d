"""One text that is being written: its settings, its random numbers, and what of it is certain."""

import random
from collections.abc import Callable, Sequence

from tnn.data.text_stream import Finished, TextStream
from tnn.serving.request import Listener, Piece, Request, TokenScore


class Row:
    """The text of one row of the batch. `feed` is the token that the model reads next, after `age` others."""

    def __init__(
        self,
        request: Request,
        number: int,
        listener: Listener,
        *,
        age: int,
        decode: Callable[[Sequence[int]], str],
        eos: Sequence[int],
    ):
        self.request, self.number, self.age = request, number, age
        self.feed = request.ids[-1]
        self.sampling = request.sampling
        seed = self.sampling.seed
        self._random = random.Random(None if seed is None else seed + number)
        self._listener = listener
        self._new: list[str] = []  # text that has not been handed out
        self._scores: list[TokenScore] = []  # of tokens whose text has not been handed out
        self._written = 0  # characters that have
        self.ids: list[int] = []
        self._text = TextStream(decode, self._new.append, most=request.max_tokens, stops=request.stop, eos=eos)

    @property
    def finished(self) -> Finished | None:
        return self._text.finished

    def draw(self) -> float:
        """The next random number, if this row samples."""
        return self._random.random() if self.sampling.temperature > 0 else 0.0

    def add(self, token: int, logprob: float | None = None, top: tuple[tuple[int, float], ...] = ()) -> None:
        """The token that follows the one that was fed."""
        self.age += 1
        self.feed = token
        self.ids.append(token)
        if logprob is not None:
            self._scores.append(TokenScore(token, self._text.characters, logprob, top))
        self._text.add(token)

    def end(self) -> None:
        """There is no time for more."""
        self._text.end("length")

    def piece(self) -> Piece | None:
        """What is new; None if that is nothing."""
        text = "".join(self._new)
        self._new.clear()
        self._written += len(text)
        certain = [score for score in self._scores if score.offset < self._written]
        self._scores = self._scores[len(certain) :]
        if not text and self.finished is None:
            return None
        return Piece(self.number, text, tuple(certain), self._text.tokens, self.finished)

    def hand_out(self, piece: Piece) -> None:
        self._listener(piece)
