"""The text of new tokens as they come: decoded exactly, and ended before a stop string."""

from collections.abc import Callable, Collection, Sequence
from typing import Literal

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"  # also what the first bytes of a character decode to, until the rest comes
Finished = Literal["stop", "eos", "length"]


class TextStream:
    """Hands the text of each new token to `write`, once it is certain.

    What could be the beginning of a stop string is held back until that is known. Of several stop strings, the one that
    is complete first ends the text. The text is what all tokens together decode to, whatever their boundaries are.

    Args:
        decode: from the ids of tokens to their text.
        write: called with each piece of the text.
        stops: the text ends before the first of these.
        eos: ids of tokens that end the text.
        most: largest number of tokens.

    >>> from tnn.data import byte_tokenizer
    >>> from tnn.data.text_stream import TextStream
    >>> tokenizer, pieces = byte_tokenizer(), []
    >>> text = TextStream(tokenizer.decode, pieces.append, stops=["é!"], most=20)
    >>> for token in tokenizer("olé é! and more")["input_ids"]:
    ...     text.add(token)
    >>> pieces, text.finished, text.tokens
    (['o', 'l', 'é '], 'stop', 8)
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        write: Callable[[str], object],
        *,
        most: int,
        stops: Sequence[str] = (),
        eos: Collection[int] = (),
    ):
        self._decode, self._write, self._stops, self._eos, self._most = decode, write, stops, eos, most
        self._ids: list[int] = []
        self._start = self._read = 0  # tokens before `read` are decoded; those from `start` on are decoded again
        self._known = 0  # characters after `read` that are decoded too
        self._held = ""  # decoded, but not written
        self.characters = 0  # decoded so far: where the text of the next token begins
        self.finished: Finished | None = None

    @property
    def tokens(self) -> int:
        return len(self._ids)

    def add(self, token: int) -> None:
        """The next token. What comes after the end has no effect: on a GPU the end is noticed one token late."""
        if self.finished is not None:
            return
        self._ids.append(token)
        self._take(self._new_text())
        if self.finished is None and (token in self._eos or self.tokens == self._most):
            self.end("eos" if token in self._eos else "length")

    def end(self, reason: Finished) -> None:
        """There will be no more tokens: what has been held back is written."""
        self.finished = reason
        self._take(self._new_text(last=True), last=True)

    def _new_text(self, last: bool = False) -> str:
        """What the newest tokens add. An incomplete character at the end is left for the next call, if there is one.

        Some tokens are decoded again with the new ones: what a token decodes to can depend on the one before it.
        """
        before = self._decode(self._ids[self._start : self._read]) if self._read else ""
        after = self._decode(self._ids[self._start :])[len(before) :]
        certain = after if last else after.removesuffix(INCOMPLETE)
        new, self._known = certain[self._known :], len(certain)
        if after and certain == after:
            self._start, self._read, self._known = self._read, len(self._ids), 0
        self.characters += len(new)
        return new

    def _take(self, new: str, last: bool = False) -> None:
        text = self._held + new
        found = [(place + len(stop), place) for stop in self._stops if (place := text.find(stop)) >= 0]
        if found:
            self.finished = "stop"
            end = min(found)[1]
        else:
            end = len(text) if last else len(text) - max((_begun(stop, text) for stop in self._stops), default=0)
        if end > 0:
            self._write(text[:end])
        self._held = text[end:]


def _begun(stop: str, text: str) -> int:
    """How many characters at the end of a text could be the beginning of a stop string."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
