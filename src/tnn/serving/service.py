"""A model with everything that serving it needs, whatever the protocol."""

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tnn._checks import check_positive
from tnn.data.encoding import encode_prompt
from tnn.data.labelled_texts import Columns
from tnn.data.tokenizers import load_tokenizer
from tnn.models import TNNForCausalLM
from tnn.serving.engine import Engine
from tnn.serving.keys import Keys
from tnn.serving.metrics import Metrics
from tnn.serving.predictor import Predictor
from tnn.serving.prefixes import Prefixes
from tnn.serving.sessions import Sessions
from tnn.serving.state_size import StateSize, state_size
from tnn.training.evaluation import load_model, separate_lines, task_of
from tnn.training.runs import load_run_recipe
from tnn.training.tasks.table import TableClassification, TableRecipe

MAY_BE_NONE = ("max_queue", "max_sessions", "max_prefixes")


@dataclass(frozen=True)
class Limits:
    """What clients may ask for, and what the server keeps.

    >>> from tnn.serving import Limits
    >>> Limits(max_streams=8).max_tokens
    4096
    """

    max_streams: int = 64  # texts that are written at the same time
    max_queue: int = 256  # texts that wait for a place
    max_tokens: int = 4096  # new tokens of a text
    max_prompt_tokens: int = 32_768  # that are read in one call
    max_texts: int = 256  # in a call of /v1/predict
    max_body: int = 2**20  # bytes
    timeout: int = 300  # seconds, of a call
    max_sessions: int = 1000
    session_seconds: int = 3600  # without use
    state_bytes: int = 2**29  # of kept states: half for sessions, half for prefixes
    max_prefixes: int = 256

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_positive(name, value, at_least=0 if name in MAY_BE_NONE else 1, at_most=2**40)


class Service:
    """The parts that share a model: an engine and sessions for a language model, or a predictor for a classifier."""

    def __init__(
        self,
        name: str,
        model: Any,
        tokenizer: Any,
        *,
        keys: Keys | None = None,
        limits: Limits | None = None,
        columns: Columns | None = None,
        separate: bool = False,
    ):
        """`columns`: of the table that a classifier was trained on. `separate`: as in `encode_prompt`."""
        self.name, self.model, self.tokenizer = name, model, tokenizer
        self.keys, self.limits = keys or Keys([]), limits or Limits()
        self.created = int(time.time())
        self.metrics = Metrics()
        self.stopping = False
        self.engine: Engine | None = None
        self.predictor: Predictor | None = None
        self.state: StateSize | None = None
        self._separate = separate
        encode_prompt(tokenizer, "", separate=False)  # settles what a call changes in it: threads share it from now on
        self._encoder = ThreadPoolExecutor(1, thread_name_prefix="tnn-encode")
        if isinstance(model, TNNForCausalLM):
            self._serve_texts()
        else:
            self.predictor = Predictor(model, tokenizer, columns or Columns(), max_waiting=self.limits.max_queue)

    def _serve_texts(self) -> None:
        limits, half = self.limits, self.limits.state_bytes // 2
        self.prefixes = Prefixes(limits.max_prefixes, half, limits.session_seconds)
        self.sessions = Sessions(
            self.keys.owners, most=limits.max_sessions, most_bytes=half, seconds=limits.session_seconds
        )
        engine = Engine(
            self.model,
            self._decode,
            max_streams=limits.max_streams,
            max_waiting=limits.max_queue,
            prefixes=self.prefixes,
            watch=self.metrics,
        )
        self.engine = engine
        self.state = state_size(self.model)
        gauge = self.metrics.gauge
        gauge("tnn_waiting_streams", "Texts that wait for a place.", lambda: engine.waiting)
        gauge("tnn_running_streams", "Texts that are read or written.", lambda: engine.running)
        gauge("tnn_sessions", "Sessions that are kept.", lambda: len(self.sessions))
        gauge("tnn_prefixes", "States of prompts and texts that are kept.", lambda: len(self.prefixes))
        memory = {"running": lambda: engine.nbytes, "sessions": lambda: self.sessions.nbytes}
        gauge("tnn_state_bytes", "Memory of states.", memory | {"prefixes": lambda: self.prefixes.nbytes})

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    async def encode(self, text: str, *, chat: bool = False) -> list[int]:
        """The ids of a text; of a chat, the names of special tokens are those tokens."""
        separate = self._separate and not chat
        work = asyncio.get_running_loop().run_in_executor
        return await work(self._encoder, lambda: encode_prompt(self.tokenizer, text, separate=separate))

    @property
    def context_limit(self) -> int | None:
        """The positions that the model has; None: as many as one likes."""
        owners = self.model.model.state_owners
        limits = [n for owner in owners if getattr(owner, "poles", None) is not None and (n := owner.max_lags)]
        positions = self.model.model.positions
        return min([*limits, *([positions.max_positions] if positions.learned is not None else [])], default=None)

    # --- life

    def start(self) -> None:
        if self.engine is not None:
            self._thread = threading.Thread(target=self.engine.run, name="tnn-engine", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Finish what runs, and take nothing new."""
        self.stopping = True
        if self.engine is not None:
            self.engine.close()

    @property
    def idle(self) -> bool:
        busy = self.engine is not None and self.engine.busy
        return not busy and not (self.predictor is not None and self.predictor.running)

    def join(self) -> None:
        """After `stop`: wait for the threads."""
        if self.engine is not None:
            self._thread.join()
        if self.predictor is not None:
            self.predictor.close()
        self._encoder.shutdown()


def load_service(
    folder: Path,
    *,
    name: str | None = None,
    keys: Keys | None = None,
    limits: Limits | None = None,
    model: Any = None,
) -> Service:
    """A service of the model in a folder: a language model, or a classifier of texts.

    `model`: the loaded model, if it is not to be that of the folder as it is, but for instance its state space.

    >>> from pathlib import Path
    >>> from tnn.serving import load_service
    >>> load_service(Path("runs/mine"))  # doctest: +SKIP
    """
    model = load_model(folder) if model is None else model
    tokenizer = load_tokenizer(folder, model.config.vocab_size)
    name = name or folder.resolve().name
    if isinstance(model, TNNForCausalLM):
        return Service(name, model, tokenizer, keys=keys, limits=limits, separate=separate_lines(folder))
    task, recipe = task_of(model, load_run_recipe(folder))
    if not isinstance(task, TableClassification):
        raise ValueError(f"{folder} cannot be served: it must be a causal language model or a classifier of texts")
    columns = recipe.data.columns if isinstance(recipe, TableRecipe) else Columns()
    return Service(name, model, tokenizer, keys=keys, limits=limits, columns=columns)
