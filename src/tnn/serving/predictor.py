"""Labels of texts by a classifier: one call after the other, in a thread of their own."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tnn.data.labelled_texts import Columns, TextEncoder, Texts, check_text
from tnn.data.tables import Row
from tnn.serving.errors import ApiError
from tnn.training.label_prediction import predict_texts

BATCH = 32  # texts that are computed at once


class Predictor:
    """Rows as `tnn.training.predict` makes them: the text, or a pair under the names of its columns, and its label."""

    def __init__(self, model: Any, tokenizer: Any, columns: Columns, *, max_waiting: int):
        self._model, self._columns, self._max_waiting = model, columns, max_waiting
        self._encoder = TextEncoder(tokenizer)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tnn-predict")
        self.running = 0  # calls, with those that wait

    async def predict(self, given: list[str | list[str]]) -> list[Row]:
        texts = [self._texts(one, number) for number, one in enumerate(given, start=1)]
        if self.running > self._max_waiting:
            message = f"{self.running - 1} calls are waiting, and there is room for {self._max_waiting}"
            raise ApiError(429, message, code="queue_full", headers={"Retry-After": "1"})
        self.running += 1
        try:
            rows = await asyncio.get_running_loop().run_in_executor(self._thread, self._predict, texts)
        finally:
            self.running -= 1
        return [self._inputs(one) | row for one, row in zip(texts, rows, strict=True)]

    def _predict(self, texts: list[Texts]) -> list[Row]:
        parts = (texts[k : k + BATCH] for k in range(0, len(texts), BATCH))
        return [row for part in parts for row in predict_texts(self._model, self._encoder, part)]

    def _texts(self, given: str | list[str], number: int) -> Texts:
        texts = (given,) if isinstance(given, str) else tuple(given)
        wanted = "one text" if self._columns.pair is None else "a pair of texts"
        if len(texts) != (1 if self._columns.pair is None else 2):
            raise ApiError(400, f"texts: entry {number} must be {wanted}, as in the training", param="texts")
        try:
            return tuple(check_text(text, f"texts: entry {number}") for text in texts)
        except ValueError as error:
            raise ApiError(400, str(error), param="texts") from None

    def _inputs(self, texts: Texts) -> Row:
        if self._columns.pair is None:
            return {"text": texts[0]}
        return {self._columns.text: texts[0], self._columns.pair: texts[1]}

    def close(self) -> None:
        self._thread.shutdown()
