"""The routes: OpenAI's, and those for health, statistics, sessions and labels."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

import tnn
from tnn.serving.errors import ApiError, from_validation
from tnn.serving.gate import OPEN, Gate
from tnn.serving.generation import Generation, Indexed
from tnn.serving.protocol import (
    Body,
    ChatBody,
    ChatCompletion,
    Completion,
    CompletionBody,
    ErrorBody,
    Health,
    ModelEntry,
    Models,
    PredictBody,
    Predictions,
)
from tnn.serving.service import Service
from tnn.serving.wire import ChatWire, CompletionWire, Json, TokenNames, Wire, usage

Result = TypeVar("Result")
Responses = dict[int | str, dict[str, Any]]
ABOUT = {
    400: "The body is wrong; the message says where.",
    401: "No key, or a wrong one, where the server asks for one.",
    404: "There is no such model or session.",
    408: "The body did not come in time.",
    409: "The session is in use by another call.",
    413: "The body is too large.",
    429: "The queue is full; Retry-After says when to try again.",
    500: "The model failed.",
    503: "The server is stopping.",
    504: "There was no time to begin.",
}
GENERATES = (400, 401, 404, 408, 409, 413, 429, 500, 503, 504)


def make_app(service: Service) -> FastAPI:
    """The ASGI application of a service; it starts and joins the engine's thread.

    >>> from tnn import TNNConfig, TNNForCausalLM
    >>> from tnn.data import byte_tokenizer
    >>> from tnn.serving import Service, make_app
    >>> model = TNNForCausalLM(TNNConfig(vocab_size=260, hidden_size=8, num_hidden_layers=1)).eval()
    >>> app = make_app(Service("tiny", model, byte_tokenizer()))
    >>> "/v1/completions" in app.openapi()["paths"]
    True
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.stop()
        await asyncio.to_thread(service.join)

    app = FastAPI(title="toeplitz-nn", version=tnn.__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(Gate, service=service)
    _add_error_handlers(app, service)
    _add_common_routes(app, service)
    if service.engine is not None:
        _add_generation(app, service)
    else:
        _add_prediction(app, service)
    _complete_openapi(app, service)
    return app


# --- routes


def _add_common_routes(app: FastAPI, service: Service) -> None:
    @app.get("/health", response_model=Health, responses={503: {"model": Health, "description": ABOUT[503]}})
    async def health() -> Response:
        """Whether the server takes requests."""
        status = "stopping" if service.stopping else "ok"
        return JSONResponse({"status": status}, 503 if service.stopping else 200)

    @app.get("/metrics", response_class=PlainTextResponse, responses=_errors(401))
    async def metrics() -> Response:
        """Numbers for Prometheus."""
        return PlainTextResponse(service.metrics.render(), media_type="text/plain; version=0.0.4")

    @app.get("/v1/models", response_model=Models, responses=_errors(401))
    async def models() -> Response:
        """The model that is served."""
        return JSONResponse({"object": "list", "data": [_model_entry(service)]})

    @app.get("/v1/models/{model}", response_model=ModelEntry, responses=_errors(401, 404))
    async def model(model: str) -> Response:
        """What is known of it: its size, its decoder, and the size of the state of a text."""
        _check_model(service, model)
        return JSONResponse(_model_entry(service))


def _add_generation(app: FastAPI, service: Service) -> None:
    names = TokenNames(service.tokenizer)
    texts, chats = CompletionWire(names), ChatWire(names)
    about = "The texts; with `stream`, chunks of them as events."
    stream: Responses = {200: {"content": {"text/event-stream": {}}, "description": about}}

    @app.post("/v1/completions", response_model=Completion, responses=stream | _errors(*GENERATES))
    async def completions(body: CompletionBody, request: Request) -> Response:
        """Texts that continue prompts."""
        return await _generate(service, body, request, texts)

    @app.post("/v1/chat/completions", response_model=ChatCompletion, responses=stream | _errors(*GENERATES))
    async def chat_completions(body: ChatBody, request: Request) -> Response:
        """The next message of a conversation."""
        return await _generate(service, body, request, chats)

    @app.delete("/v1/sessions/{session}", status_code=204, responses=_errors(401, 404))
    async def delete_session(session: str, request: Request) -> Response:
        """Forget a session."""
        service.sessions.delete(request.state.owner, session)
        return Response(status_code=204)


def _add_prediction(app: FastAPI, service: Service) -> None:
    predictor = service.predictor
    assert predictor is not None

    @app.post("/v1/predict", response_model=Predictions, responses=_errors(400, 401, 404, 408, 413, 429, 500, 503, 504))
    async def predict(body: PredictBody, request: Request) -> Response:
        """Labels of texts, with probabilities."""
        _check_model(service, body.model)
        if service.stopping:
            raise ApiError(503, "the server is stopping and takes no new requests", code="stopping")
        if len(body.texts) > (most := service.limits.max_texts):
            raise ApiError(400, f"texts must be at most {most}; got {len(body.texts)}", param="texts")
        try:
            async with asyncio.timeout(service.limits.timeout):
                rows = await unless_gone(request, predictor.predict(body.texts))
        except TimeoutError:
            raise ApiError(504, "there was no time for an answer", code="deadline") from None
        return JSONResponse({"model": service.name, "predictions": rows})


# --- texts


async def _generate(service: Service, body: CompletionBody | ChatBody, request: Request, wire: Wire) -> Response:
    _check_model(service, body.model)
    generation = Generation(service, body, request.state.owner)
    with ExitStack() as until_written:
        until_written.callback(generation.close)
        await generation.begin()
        head = {"id": f"cmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": service.name}
        if generation.session_id is not None:
            head["session"] = generation.session_id
        if not body.stream:
            return JSONResponse(await unless_gone(request, _whole(generation, body, wire, head)))
        pieces = generation.pieces()
        first = await unless_gone(request, anext(pieces))  # until here, an error still has a status of its own
        until_written.pop_all()
        return EventStream(generation, _events(generation, pieces, first, body, wire, head))


async def _whole(generation: Generation, body: CompletionBody | ChatBody, wire: Wire, head: Json) -> Json:
    parts: dict[int, list[Indexed]] = {}
    async for one in generation.pieces():
        parts.setdefault(one.place, []).append(one)
    choices = []
    for index, own in sorted(parts.items()):
        scores = None if body.alternatives is None else [score for _, piece in own for score in piece.scores]
        choices.append(wire.choice(index, "".join(piece.text for _, piece in own), scores, own[-1].piece))
    return {**head, "object": wire.object, "choices": choices, "usage": _usage(generation)}


async def _events(
    generation: Generation,
    pieces: AsyncIterator[Indexed],
    first: Indexed,
    body: CompletionBody | ChatBody,
    wire: Wire,
    head: Json,
) -> AsyncIterator[bytes]:
    common = {**head, "object": wire.stream_object}
    no_usage = {"usage": None} if body.includes_usage else {}

    def event(choices: Sequence[Json]) -> bytes:
        return _event({**common, "choices": [*choices], **no_usage})

    opened: set[int] = set()
    one: Indexed | None = first
    try:
        while one is not None:
            if one.place not in opened:
                opened.add(one.place)
                for choice in wire.opening(one.place):
                    yield event([choice])
            for choice in wire.chunks(one.place, one.piece, body.alternatives is not None):
                yield event([choice])
            one = await anext(pieces, None)
    except ApiError as error:
        yield _event(error.body())
        return
    if body.includes_usage:
        yield _event({**common, "choices": [], "usage": _usage(generation)})
    yield b"data: [DONE]\n\n"


class EventStream(StreamingResponse):
    """Server-sent events of a generation, which ends when the client goes away."""

    def __init__(self, generation: Generation, events: AsyncIterator[bytes]):
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._generation = generation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._generation.close()


def _event(content: Json) -> bytes:
    return b"data: " + json.dumps(content, separators=(",", ":")).encode() + b"\n\n"


def _usage(generation: Generation) -> Json:
    return usage(generation.prompt_tokens, generation.new_tokens, generation.known_tokens)


async def unless_gone(request: Request, work: Awaitable[Result]) -> Result:
    """The result of `work`, which is cancelled if the client goes away before."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ApiError(499, "the client has gone")
    finally:
        task.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


# --- models and errors


def _model_entry(service: Service) -> Json:
    model = service.model
    entry: Json = {"id": service.name, "object": "model", "created": service.created, "owned_by": "toeplitz-nn"}
    entry |= {"kind": type(model).__name__, "parameters": model.num_parameters()}
    if service.state is not None:
        entry["decoder"] = "state-space" if model.config.coefficients == "poles" else "exact"
        entry["state"] = {"bytes": service.state.nbytes, "per_token": service.state.grows}
        entry["chat"] = service.tokenizer.chat_template is not None
        entry["max_tokens"] = service.limits.max_tokens
        shape = {"layers": model.config.num_hidden_layers, "hidden_size": model.config.hidden_size}
        entry["shape"] = shape
    return entry


def _check_model(service: Service, name: str | None) -> None:
    if name not in (None, service.name):
        message = f"this server has the model {service.name!r}, and not {name!r}"
        raise ApiError(404, message, param="model", code="model_not_found")


def _errors(*statuses: int) -> Responses:
    return {status: {"model": ErrorBody, "description": ABOUT[status]} for status in statuses}


def _add_error_handlers(app: FastAPI, service: Service) -> None:
    def answer(error: ApiError) -> Response:
        return JSONResponse(error.body(), error.status, error.headers)

    @app.exception_handler(ApiError)
    async def api_error(_: Request, error: ApiError) -> Response:
        return answer(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        body: dict[str, type[Body]] = {
            "/v1/completions": CompletionBody,
            "/v1/chat/completions": ChatBody,
            "/v1/predict": PredictBody,
        }
        known = body.get(request.url.path)
        return answer(from_validation(error.errors(), [*known.model_fields] if known is not None else []))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        message = f"{request.method} {request.url.path}: {error.detail}"
        if error.status_code == 404:
            routes = "/v1/completions and /v1/chat/completions" if service.engine is not None else "/v1/predict"
            message = f"there is no {request.url.path}: this server has {routes}"
        return answer(ApiError(error.status_code, message, headers=error.headers))

    @app.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> Response:
        return answer(ApiError(500, f"unexpected {type(error).__name__}", code="internal"))


def _complete_openapi(app: FastAPI, service: Service) -> None:
    """As the server behaves: wrong bodies get 400, and keys are asked for."""
    page = app.openapi()
    for path, operations in page["paths"].items():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            if service.keys.required and path not in OPEN:
                operation["security"] = [{"key": []}]
    schemas = page["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    if service.keys.required:
        page["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
