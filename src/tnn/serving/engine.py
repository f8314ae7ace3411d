"""Continuous batching: texts of any age are written together, and new ones join while others are being written.

In each step, waiting requests are admitted as far as there is room, some tokens of the new prompts are read, and every
text gets one token. A prompt is read up to its last token in a cache of its own, whose row then joins the batch: states
have no positions, or are aligned when they join. So each text is what it would be alone.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from tnn._checks import check_positive
from tnn.models.cache import TNNCache
from tnn.models.heads import TNNForCausalLM
from tnn.models.memory import SteadyMemory
from tnn.serving.prefixes import Prefixes
from tnn.serving.request import Failure, Kept, Listener, Piece, Request
from tnn.serving.rows import Row
from tnn.serving.sampling import choose_tokens

CHUNK = 512  # tokens of prompts that are read between two steps of the others


class QueueFull(Exception):
    """There is no room for one more request to wait."""


class Closed(Exception):
    """The engine takes no new requests: it is stopping."""


class Watch(Protocol):
    """What the engine reports to, for statistics."""

    def read(self, tokens: int, known: int) -> None: ...
    def wrote(self, seconds: float, *, first: bool) -> None: ...


class Job:
    """A request on its way. `cancel` frees its place; its listener hears nothing more."""

    def __init__(self, request: Request, listener: Listener):
        self.request = request
        self._listener = listener
        self.born = time.monotonic()
        self.cancelled = False
        self.begun = False  # whether it has a token
        self.known = 0  # tokens that need not be read again
        self.cache: TNNCache | None = None  # its own, until it joins the batch
        self.owns_cache = False  # and may change it
        self.left: list[int] = []  # tokens that are still to be read into it
        self.before: Kept | None = None  # the state in front of its text, if it keeps one

    def cancel(self) -> None:
        self.cancelled = True

    def tell(self, news: Piece | Failure) -> None:
        if not self.cancelled:
            self._listener(news)

    def fail_late(self) -> None:
        self.tell(Failure("deadline", "there was no time to begin: the server is busy, or the prompt is long"))
        self.cancel()

    @property
    def late(self) -> bool:
        return self.request.deadline is not None and time.monotonic() > self.request.deadline


class _Member(NamedTuple):
    row: Row
    job: Job


class Engine:
    """Writes the texts of many requests at once; `step` by step, or with `run` in a thread of its own.

    Args:
        model: a causal language model in evaluation mode, each layer of which has a state whose rows can be joined.
        decode: from the ids of tokens to their text.
        max_streams: texts that are written at the same time.
        max_waiting: texts that may wait for a place.
        prefixes: where the states of prompts and texts are kept; None: nowhere.
        watch: is told how many tokens are read and written.

    >>> from tnn import TNNConfig, TNNForCausalLM
    >>> from tnn.data import byte_tokenizer
    >>> from tnn.serving import Engine, Request
    >>> model = TNNForCausalLM(TNNConfig(vocab_size=260, hidden_size=8, num_hidden_layers=1)).eval()
    >>> engine, pieces = Engine(model, byte_tokenizer().decode), []
    >>> job = engine.submit(Request([70, 71], max_tokens=5), pieces.append)
    >>> while engine.step():
    ...     pass
    >>> pieces[-1].tokens, pieces[-1].finished
    (5, 'length')
    """

    def __init__(
        self,
        model: Any,
        decode: Callable[[Sequence[int]], str],
        *,
        max_streams: int = 64,
        max_waiting: int = 256,
        chunk: int = CHUNK,
        prefixes: Prefixes | None = None,
        watch: Watch | None = None,
    ):
        check_positive("max_streams", max_streams)
        check_positive("max_waiting", max_waiting, at_least=0)
        check_positive("chunk", chunk)
        check_servable(model)
        self.model, self._decode = model, decode
        self.max_streams, self.max_waiting, self._chunk = max_streams, max_waiting, chunk
        self.prefixes, self._watch = prefixes, watch
        eos = model.generation_config.eos_token_id
        self.eos: list[int] = eos if isinstance(eos, list) else [] if eos is None else [eos]
        self._waiting: deque[Job] = deque()
        self._reading: deque[Job] = deque()
        self._members: list[_Member] = []
        self._admitted: set[Job] = set()
        self._batch: TNNCache | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._memory = SteadyMemory()

    # --- from any thread

    def submit(self, request: Request, listener: Listener) -> Job:
        """Put a request into the queue; its listener is called with each `Piece`, or once with a `Failure`."""
        if request.samples > self.max_streams:
            raise ValueError(f"n must be at most {self.max_streams}, the texts that are written at once")
        with self._changed:
            if self._closed:
                raise Closed("the server is stopping and takes no new requests")
            if self.waiting + request.samples > self.max_waiting + self._free:
                raise QueueFull(f"{self.waiting} texts are waiting, and there is room for {self.max_waiting}")
            job = Job(request, listener)
            self._waiting.append(job)
            self._changed.notify()
        return job

    def close(self) -> None:
        """Take no new requests; `run` returns when those it has are finished."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    @property
    def waiting(self) -> int:
        """Texts that wait for a place."""
        return sum(job.request.samples for job in [*self._waiting])

    @property
    def running(self) -> int:
        """Texts that are read or written."""
        return len(self._members) + sum(job.request.samples for job in [*self._reading])

    @property
    def nbytes(self) -> int:
        """Of the states of the texts that are being written."""
        batch = self._batch
        return 0 if batch is None else batch.nbytes

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._reading or self._members)

    @property
    def _free(self) -> int:
        return self.max_streams - self.running

    # --- in the thread of the engine

    def run(self) -> None:
        """Work until `close` is called and everything is finished."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.busy or self._closed)
                if not self.busy:
                    return
            try:
                self.step()
            except Exception as error:  # whatever it is, the server goes on
                self._fail_all(error)

    @torch.inference_mode()
    def step(self) -> bool:
        """One token for every text, and a part of the prompts; returns whether there is more to do."""
        self._drop_gone()
        self._admit()
        self._read_prompts()
        if self._members:
            self._write()
        self._admitted = {*self._reading, *(job for _, job in self._members)}
        return self.busy

    def _fail_all(self, error: Exception) -> None:
        failure = Failure("internal", f"{type(error).__name__}: {error}")
        for job in self._admitted:
            job.tell(failure)
        self._reading.clear()
        self._members, self._batch, self._admitted = [], None, set()

    # --- coming and going

    def _drop_gone(self) -> None:
        """Requests that are cancelled, or out of time."""
        for queue in (self._waiting, self._reading):
            for job in [job for job in [*queue] if job.cancelled or job.late]:
                queue.remove(job)
                job.fail_late()
        for k, (row, job) in enumerate(self._members):
            if job.late and not job.begun:
                job.fail_late()
            elif job.late and not job.cancelled:
                row.end()
                self._hand_out(row, job, self._kept(k))
        self._keep_members([not (job.cancelled or row.finished) for row, job in self._members])

    def _admit(self) -> None:
        while self._waiting and self._waiting[0].request.samples <= self._free:
            with self._changed:
                job = self._waiting.popleft()
                self._reading.append(job)
                self._admitted.add(job)
            request = job.request
            known = request.start
            if known is None and self.prefixes is not None:
                known = self.prefixes.longest(request.owner, request.ids[:-1])
            if known is not None:
                job.cache, job.known = known.cache, known.age
            job.left = request.ids[job.known if request.start is None else 0 : -1]
            if self._watch is not None:
                self._watch.read(len(job.left) + 1, job.known)

    # --- prompts

    def _read_prompts(self) -> None:
        """A part of the prompts that wait, those that fit whole and begin a text side by side; all others in turn."""
        room = self._chunk
        fresh: list[Job] = []
        ready: list[Job] = []
        for _ in range(len(self._reading)):
            job = self._reading[0]
            if job.cache is None and len(job.left) <= self._chunk:
                width = max([1, len(job.left), *(len(other.left) for other in fresh)])
                if fresh and width * (len(fresh) + 1) > room:
                    break
                fresh.append(self._reading.popleft())
                continue
            if room <= 0:
                break
            self._reading.popleft()
            room -= self._read_part(job, room)
            (self._reading if job.left else ready).append(job)
        if fresh:
            ready += self._read_together(fresh)
        if ready:
            self._begin(ready)

    def _read_part(self, job: Job, room: int) -> int:
        """The next tokens of one prompt; returns how many."""
        part, job.left = job.left[:room], job.left[room:]
        if part:
            if job.cache is None:
                job.cache = self.model.model.new_cache()
            elif not job.owns_cache:
                job.cache = job.cache.rows(torch.tensor([0]))
            job.owns_cache = True
            self._forward([part], [job.cache.get_seq_length()], job.cache)
        return len(part)

    def _read_together(self, jobs: list[Job]) -> list[Job]:
        """Whole prompts as one batch, with padding in front of the shorter ones."""
        cache = self.model.model.new_cache()
        self._forward([job.left for job in jobs], [0] * len(jobs), cache)
        for k, job in enumerate(jobs):
            job.cache = cache if len(jobs) == 1 else cache.rows(torch.tensor([k]))
            job.cache.unpad(len(job.left))
            job.left, job.owns_cache = [], True
        return jobs

    def _forward(self, parts: Sequence[Sequence[int]], ages: Sequence[int], cache: TNNCache) -> Tensor:
        """The next tokens of each row, of which there may be none -> the hidden states of the last (rows, size)."""
        width = max(1, *map(len, parts))
        device = self.model.device
        ids = torch.tensor([[0] * (width - len(part)) + list(part) for part in parts], device=device)
        lengths = torch.tensor([len(part) for part in parts], device=device)[:, None]
        step = torch.arange(width, device=device) - (width - lengths)  # (rows, width), below 0 at padding
        positions = (torch.tensor(ages, device=device)[:, None] + step).clamp_min(0)
        mask = None if all(len(part) == width for part in parts) else (step >= 0).long()
        outputs = self.model.model(ids, attention_mask=mask, position_ids=positions, past_key_values=cache)
        return outputs.last_hidden_state[:, -1]

    def _begin(self, jobs: list[Job]) -> None:
        """The prompts have been read: their rows join the batch, to be fed the last token."""
        caches = []
        for job in jobs:
            request, cache = job.request, job.cache
            assert cache is not None
            age = cache.get_seq_length()
            if self.prefixes is not None and request.start is None and job.owns_cache:
                self.prefixes.put(request.owner, request.ids[:-1], cache)
            if request.keep:
                job.before = Kept(cache, age, (request.ids[-1],))
            caches.append(cache if request.samples == 1 else cache.rows(torch.zeros(request.samples).long()))
            for number in range(request.samples):
                row = Row(request, number, job.tell, age=age, decode=self._decode, eos=self.eos)
                self._members.append(_Member(row, job))
            job.cache = None
        if self._batch is None:
            first, *caches = caches
            self._batch = first.rows(torch.arange(jobs[0].request.samples))
        if caches:
            self._batch.join(caches)

    # --- texts

    def _write(self) -> None:
        """One token for each text."""
        assert self._batch is not None
        began = time.monotonic()
        rows = [row for row, _ in self._members]
        hidden = self._forward([[row.feed] for row in rows], [row.age for row in rows], self._batch)
        logits = self.model.token_logits(hidden)  # (rows, vocabulary)
        broken = logits.isnan().any(-1).tolist()
        sound = logits.nan_to_num() if any(broken) else logits
        tokens = choose_tokens(sound, [row.sampling for row in rows], [row.draw() for row in rows])
        scored = [k for k, row in enumerate(rows) if row.request.logprobs is not None]
        scores = dict(zip(scored, _scores(logits[scored], [rows[k] for k in scored], tokens, scored), strict=True))
        for k, (row, job) in enumerate(self._members):
            if broken[k]:
                job.tell(Failure("internal", f"the model gives NaN after {row.age + 1} tokens"))
                job.cancel()
                continue
            row.add(tokens[k], *scores.get(k, ()))
            self._note(job, began)
            if row.finished is None:
                self._hand_out(row, job, kept=None)
        for k, (row, job) in enumerate(self._members):
            if row.finished is not None:
                self._hand_out(row, job, self._kept(k))
        self._keep_members([row.finished is None for row in rows])

    def _note(self, job: Job, began: float) -> None:
        if self._watch is not None:
            self._watch.wrote(time.monotonic() - (began if job.begun else job.born), first=not job.begun)
        job.begun = True

    def _hand_out(self, row: Row, job: Job, kept: Kept | None) -> None:
        if (piece := row.piece()) is not None:
            job.tell(piece._replace(kept=kept))

    def _kept(self, place: int) -> Kept | None:
        """The state of a finished text: for the prefixes, and for who asked to keep it.

        After a stop string the model has read more than the text: there it is the state before the text.
        """
        row, job = self._members[place]
        request = row.request
        wanted = request.keep and row.finished != "stop"
        known = self.prefixes is not None and request.start is None and request.samples == 1
        if not wanted and not known:
            return job.before
        assert self._batch is not None
        cache = self._batch.rows(torch.tensor([place]))
        cache.unpad(row.age)
        if known and self.prefixes is not None:
            self.prefixes.put(request.owner, request.ids + row.ids[:-1], cache)
        return Kept(cache, row.age, () if row.finished == "eos" else (row.feed,)) if wanted else job.before

    def _keep_members(self, keep: list[bool]) -> None:
        if all(keep):
            return
        self._members = [member for member, stays in zip(self._members, keep, strict=True) if stays]
        if not self._members:
            self._batch = None
        elif self._batch is not None:
            self._batch.batch_select_indices(torch.tensor([k for k, stays in enumerate(keep) if stays]))
            self._batch.unpad(max(row.age for row, _ in self._members))
        self._memory.check()


def _scores(
    logits: Tensor, rows: Sequence[Row], tokens: Sequence[int], places: Sequence[int]
) -> list[tuple[float, tuple[tuple[int, float], ...]]]:
    """The log-probability of each chosen token, and the most likely ones with theirs."""
    if not rows:
        return []
    logprobs = logits.float().log_softmax(-1)
    most = max(row.request.logprobs or 0 for row in rows)
    best, ids = (t.tolist() for t in logprobs.topk(min(most, logprobs.shape[-1])))
    result = []
    for k, row in enumerate(rows):
        count = row.request.logprobs or 0
        top = tuple(zip(ids[k][:count], best[k][:count], strict=True))
        result.append((float(logprobs[k, tokens[places[k]]]), top))
    return result


@torch.inference_mode()
def check_servable(model: Any) -> None:
    """A ValueError if the texts of a model cannot be written side by side."""
    if not isinstance(model, TNNForCausalLM):
        raise ValueError(f"model must be a causal language model; got a {type(model).__name__}")
    if model.training:
        raise ValueError("model must be in evaluation mode: call model.eval()")
    if not model.model.can_cache:
        raise ValueError("the model has no cache, because its outputs change with the length: it cannot be served")
    caches = [model.model.new_cache() for _ in range(2)]
    for cache in caches:
        model.model(torch.zeros(1, 1, dtype=torch.long, device=model.device), past_key_values=cache)
    try:
        caches[0].join(caches[1:])
    except ValueError as error:
        names = ", ".join(dict.fromkeys(model.config.layer_mixers))
        raise ValueError(f"a model with the mixers {names} cannot be served: {error}") from None
