"""What stands around every route: the key, the size of the body, how long it may take, and errors in one form."""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tnn.serving.errors import ApiError
from tnn.serving.service import Service

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

OPEN = ("/health",)  # asked by supervisors, which have no key
BODY_SECONDS = 30  # in which a body must have come


class Gate:
    """Lets requests through that have a key and a whole body of allowed size, and counts all answers."""

    def __init__(self, app: App, service: Service):
        self._app, self._service = app, service

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            owner = self._service.keys.owner_of(headers.get("authorization"))
            if owner is None and scope["path"] not in OPEN:
                raise ApiError(401, "give a key of this server: Authorization: Bearer KEY", code="invalid_api_key")
            scope.setdefault("state", {})["owner"] = owner
            body = await self._body(headers, receive)
            if body is not None:
                await self._app(scope, _replay(body, receive), counted)
        except ApiError as error:
            await send_error(error, counted)
        finally:
            route = scope.get("route")
            self._service.metrics.requests.add(1, getattr(route, "path", "other"), str(status))

    async def _body(self, headers: dict[str, str], receive: Receive) -> bytes | None:
        """None if the client left before all of it had come."""
        most = self._service.limits.max_body
        too_large = ApiError(413, f"the body must have at most {most:,} bytes", code="body_too_large")
        if (length := headers.get("content-length", "")).isdecimal() and int(length) > most:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while (message := await receive())["type"] == "http.request":
                    body += message.get("body", b"")
                    if len(body) > most:
                        raise too_large
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise ApiError(408, f"the body did not come within {BODY_SECONDS} seconds", code="slow_body") from None
        return None


def _replay(body: bytes, receive: Receive) -> Receive:
    """What has been received once more, and then what comes after it."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return first.pop() if first else await receive()

    return again


async def send_error(error: ApiError, send: Send) -> None:
    """The answer to a request that never reached a route; the connection is closed, for its body may still come."""
    content = json.dumps(error.body()).encode()
    headers = {"content-type": "application/json", "content-length": str(len(content)), "connection": "close"}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    pairs = [(name.lower().encode(), value.encode()) for name, value in (headers | error.headers).items()]
    await send({"type": "http.response.start", "status": error.status, "headers": pairs})
    await send({"type": "http.response.body", "body": content})
