"""Pieces of text as OpenAI's objects: whole answers, and the chunks of a stream."""

from collections.abc import Sequence
from typing import Any

from tnn.data.tokenizers import byte_values
from tnn.serving.request import Piece, TokenScore

Json = dict[str, Any]
REASONS = {"stop": "stop", "eos": "stop", "length": "length"}


class TokenNames:
    """Tokens as text and as bytes.

    >>> from tnn.data import byte_tokenizer
    >>> from tnn.serving.wire import TokenNames
    >>> names = TokenNames(byte_tokenizer())
    >>> names.text_of(108), names.bytes_of(199), names.in_completions(199)
    ('h', [195], 'bytes:\\\\xc3')
    """

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
        self._bytes = byte_values() if type(decoder).__name__ == "ByteLevel" else {}

    def text_of(self, token: int) -> str:
        return str(self._tokenizer.decode([token]))

    def bytes_of(self, token: int) -> list[int]:
        characters = self._tokenizer.convert_ids_to_tokens(token)
        if characters and all(character in self._bytes for character in characters):
            return [self._bytes[character] for character in characters]
        return [*self.text_of(token).encode()]

    def in_completions(self, token: int) -> str:
        """A part of a character has its bytes for a name."""
        text = self.text_of(token)
        return (
            text
            if "\N{REPLACEMENT CHARACTER}" not in text
            else "bytes:" + "".join(f"\\x{value:02x}" for value in self.bytes_of(token))
        )


class CompletionWire:
    """The objects of /v1/completions."""

    object = stream_object = "text_completion"

    def __init__(self, names: TokenNames):
        self._names = names

    def opening(self, index: int) -> list[Json]:
        """The choices of a stream before there is text."""
        return []

    def chunks(self, index: int, piece: Piece, scored: bool) -> list[Json]:
        """The choices that a piece of a stream makes."""
        return [self._choice(index, piece.text, piece.scores if scored else None, piece)]

    def choice(self, index: int, text: str, scores: Sequence[TokenScore] | None, last: Piece) -> Json:
        """That of a whole answer."""
        return self._choice(index, text, scores, last)

    def _choice(self, index: int, text: str, scores: Sequence[TokenScore] | None, last: Piece) -> Json:
        logprobs = None if scores is None else self._logprobs(scores)
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": _reason(last)}

    def _logprobs(self, scores: Sequence[TokenScore]) -> Json:
        name = self._names.in_completions
        return {
            "tokens": [name(score.token) for score in scores],
            "token_logprobs": [score.logprob for score in scores],
            "top_logprobs": [{name(token): value for token, value in score.top} for score in scores],
            "text_offset": [score.offset for score in scores],
        }


class ChatWire:
    """The objects of /v1/chat/completions."""

    object, stream_object = "chat.completion", "chat.completion.chunk"

    def __init__(self, names: TokenNames):
        self._names = names

    def opening(self, index: int) -> list[Json]:
        return [_delta(index, {"role": "assistant", "content": ""})]

    def chunks(self, index: int, piece: Piece, scored: bool) -> list[Json]:
        parts = []
        if piece.text:
            parts.append(_delta(index, {"content": piece.text}, self._logprobs(piece.scores) if scored else None))
        if piece.finished is not None:
            parts.append(_delta(index, {}) | {"finish_reason": _reason(piece)})
        return parts

    def choice(self, index: int, text: str, scores: Sequence[TokenScore] | None, last: Piece) -> Json:
        message = {"role": "assistant", "content": text, "refusal": None}
        logprobs = None if scores is None else self._logprobs(scores)
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": _reason(last)}

    def _logprobs(self, scores: Sequence[TokenScore]) -> Json:
        content = [
            self._scored(score.token, score.logprob) | {"top_logprobs": [self._scored(*one) for one in score.top]}
            for score in scores
        ]
        return {"content": content, "refusal": None}

    def _scored(self, token: int, logprob: float) -> Json:
        return {"token": self._names.text_of(token), "logprob": logprob, "bytes": self._names.bytes_of(token)}


Wire = CompletionWire | ChatWire


def _delta(index: int, delta: Json, logprobs: Json | None = None) -> Json:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}


def _reason(piece: Piece) -> str | None:
    return None if piece.finished is None else REASONS[piece.finished]


def usage(prompt: int, completion: int, known: int) -> Json:
    """How many tokens there were; `known` of the prompt were in a kept state."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": known},
    }
