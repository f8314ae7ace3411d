"""One call that generates text: from its body to the engine, and its pieces as they come."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

from tnn.serving.chat import render_chat
from tnn.serving.engine import Closed, Job, QueueFull
from tnn.serving.errors import ApiError
from tnn.serving.protocol import ChatBody, CompletionBody
from tnn.serving.request import Failure, Kept, Piece, Request
from tnn.serving.sampling import Sampling
from tnn.serving.service import Service
from tnn.serving.sessions import Kind, Session

STOPPING = "the server is stopping and takes no new requests"


class Indexed(NamedTuple):
    """A piece of one of the texts of a call."""

    place: int
    piece: Piece


class Prompt(NamedTuple):
    """What is to be read, after the state of a session if there is one."""

    ids: list[int]
    start: Kept | None = None


class Generation:
    """The texts of one call. `pieces` gives them as they are written; whatever happens, `close` must be called."""

    def __init__(self, service: Service, body: CompletionBody | ChatBody, owner: str):
        self._service, self._body, self._owner = service, body, owner
        self._events: asyncio.Queue[tuple[int, Piece | Failure]] = asyncio.Queue()
        self._jobs: list[Job] = []
        self._session: Session | None = None
        self.session_id: str | None = None
        self._read = ""  # all text that the session will have read, of a chat
        self._texts: list[list[str]] = []
        self._prompts: list[Prompt] = []
        self._tokens: list[int] = []

    @property
    def prompt_tokens(self) -> int:
        """Of all prompts, with what a session had read before."""
        return sum(len(one.ids) + (one.start.age if one.start is not None else 0) for one in self._prompts)

    @property
    def known_tokens(self) -> int:
        return sum(job.known for job in self._jobs)

    @property
    def new_tokens(self) -> int:
        return sum(self._tokens)

    # --- the beginning

    async def begin(self) -> None:
        """Hand the call to the engine, or raise an ApiError that says why not."""
        service, body = self._service, self._body
        if service.stopping:
            raise ApiError(503, STOPPING, code="stopping")
        if body.session is not None:
            kind: Kind = "chat" if isinstance(body, ChatBody) else "completions"
            self._session = service.sessions.begin(self._owner, body.session, kind)
            self.session_id = self._session.id
        self._prompts = await (self._chat_prompts(body) if isinstance(body, ChatBody) else self._text_prompts(body))
        self._check(count := len(self._prompts) * body.samples)
        self._texts, self._tokens = [[] for _ in range(count)], [0] * count
        requests = [self._request(prompt) for prompt in self._prompts]
        for number, request in enumerate(requests):
            self._submit(request, number * body.samples)

    async def _text_prompts(self, body: CompletionBody) -> list[Prompt]:
        kept = None if self._session is None else self._session.kept
        prompts = []
        for prompt in body.prompts:
            ids = await self._service.encode(prompt) if isinstance(prompt, str) else prompt
            prompts.append(Prompt(ids) if kept is None else Prompt([*kept.pending, *ids], kept))
        if self._session is not None and len(prompts) > 1:
            raise ApiError(400, f"a session holds one text: give one prompt; got {len(prompts)}", param="prompt")
        return prompts

    async def _chat_prompts(self, body: ChatBody) -> list[Prompt]:
        """The conversation; in a session, what its template adds to what has been read."""
        session, new = self._session, [message.plain() for message in body.messages]
        text = render_chat(self._service.tokenizer, [*([] if session is None else session.messages), *new])
        self._read = text
        if session is None or session.kept is None or not text.startswith(session.text):
            return [Prompt(await self._service.encode(text, chat=True))]
        rest = await self._service.encode(text[len(session.text) :], chat=True)
        return [Prompt([*session.kept.pending, *rest], session.kept)]

    def _check(self, count: int) -> None:
        limits, vocabulary = self._service.limits, self._service.model.config.vocab_size
        name = "messages" if isinstance(self._body, ChatBody) else "prompt"
        if count > limits.max_streams:
            raise ApiError(400, f"a call may ask for {limits.max_streams} texts; got {count}", param="n")
        if (asked := self._asked) is not None and asked > limits.max_tokens:
            raise ApiError(400, f"max_tokens must be at most {limits.max_tokens}; got {asked}", param="max_tokens")
        for prompt in self._prompts:
            if not prompt.ids:
                raise ApiError(400, f"{name} must have at least one token", param=name)
            if len(prompt.ids) > limits.max_prompt_tokens:
                message = f"{name} must have at most {limits.max_prompt_tokens:,} tokens; got {len(prompt.ids):,}"
                raise ApiError(400, message, param=name, code="context_length_exceeded")
            if (wrong := max(prompt.ids)) >= vocabulary:
                raise ApiError(400, f"prompt: token ids must be below {vocabulary}; got {wrong}", param=name)
            if self._most(prompt) < (asked or 1):
                message = f"the model has {self._service.context_limit:,} positions, for {name} and new tokens together"
                raise ApiError(400, message, param=name, code="context_length_exceeded")

    @property
    def _asked(self) -> int | None:
        """New tokens that the body asks for; None: as many as it may."""
        body = self._body
        if isinstance(body, ChatBody) and body.max_completion_tokens is not None:
            return body.max_completion_tokens
        return body.max_tokens

    def _most(self, prompt: Prompt) -> int:
        """New tokens that there can be after a prompt."""
        most, limit = self._service.limits.max_tokens, self._service.context_limit
        read = len(prompt.ids) + (prompt.start.age if prompt.start is not None else 0)
        return most if limit is None else min(most, limit - read)

    def _request(self, prompt: Prompt) -> Request:
        body = self._body
        temperature = 1.0 if body.temperature is None else body.temperature
        return Request(
            ids=prompt.ids,
            max_tokens=self._asked or self._most(prompt),
            sampling=Sampling(temperature, 1.0 if body.top_p is None else body.top_p, body.top_k, body.seed),
            stop=body.stops,
            samples=body.samples,
            logprobs=body.alternatives,
            owner=self._owner,
            start=prompt.start,
            keep=self._session is not None,
            deadline=time.monotonic() + self._service.limits.timeout,
        )

    def _submit(self, request: Request, first: int) -> None:
        """`first` is the index of its first text."""
        loop, put = asyncio.get_running_loop(), self._events.put_nowait
        engine = self._service.engine
        assert engine is not None

        def listen(news: Piece | Failure) -> None:
            loop.call_soon_threadsafe(put, (first, news))

        try:
            self._jobs.append(engine.submit(request, listen))
        except QueueFull as error:
            raise ApiError(429, str(error), code="queue_full", headers={"Retry-After": "1"}) from None
        except Closed:
            raise ApiError(503, STOPPING, code="stopping") from None

    # --- the texts

    async def pieces(self) -> AsyncIterator[Indexed]:
        """All pieces of all texts, until each is finished; an ApiError if one fails."""
        left = len(self._tokens)
        while left:
            first, news = await self._events.get()
            if isinstance(news, Failure):
                status = 504 if news.kind == "deadline" else 500
                raise ApiError(status, news.message, code=news.kind)
            index = first + news.row
            self._texts[index].append(news.text)
            self._tokens[index] = news.tokens
            if news.finished is not None:
                left -= 1
                if self._session is not None:
                    await self._go_on(self._session, news)
            yield Indexed(index, news)

    async def _go_on(self, session: Session, last: Piece) -> None:
        """The session has heard and said what this call had. After a stop string the text is read again next time."""
        kept, text = last.kept, "".join(self._texts[0])
        assert kept is not None
        chat = isinstance(self._body, ChatBody)
        if last.finished == "stop":
            again = await self._service.encode(text, chat=chat) if text else []
            kept = kept._replace(pending=(*kept.pending, *again))
        session.kept = kept
        if isinstance(self._body, ChatBody):
            said = [message.plain() for message in self._body.messages]
            session.messages = [*session.messages, *said, {"role": "assistant", "content": text}]
            session.text = self._read + text
        self._end_session(keep=True)

    def _end_session(self, *, keep: bool) -> None:
        if self._session is not None:
            self._service.sessions.end(self._owner, self._session, keep=keep)
            self._session = None

    def close(self) -> None:
        """Free what it holds; a session whose call was not completed stays as it was."""
        for job in self._jobs:
            job.cancel()
        self._end_session(keep=False)
