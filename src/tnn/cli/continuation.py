"""The text of new tokens as `generate` makes them."""

from time import perf_counter
from typing import Any

from tnn.data.text_stream import TextStream


class Continuation(TextStream):
    """A text stream that is a stopping criterion for `generate`, and knows the speed.

    >>> from tnn.cli.continuation import Continuation
    >>> from tnn.data import byte_tokenizer
    >>> pieces = []
    >>> text = Continuation(byte_tokenizer().decode, pieces.append, most=2)
    >>> text.add(70), text.add(71), text.report()
    (None, None, '2 tokens, ... tokens/s')
    """

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._times = [perf_counter()]

    @property
    def seconds(self) -> float:
        """From the beginning to the last token."""
        return self._times[-1] - self._times[0]

    def report(self) -> str:
        """The speed of the tokens after the first, which includes reading the prompt."""
        _, *times = self._times
        speed = f", {(len(times) - 1) / (times[-1] - times[0]):.1f} tokens/s" if len(times) > 1 else ""
        return f"{len(times)} token{'s' * (len(times) > 1)}{speed}"

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        import torch

        self.add(int(input_ids[0, -1]))
        return torch.tensor([self.finished is not None], device=input_ids.device)  # (batch,)

    def add(self, token: int) -> None:
        if self.finished is None:
            self._times.append(perf_counter())
        super().add(token)
