"""What a client did wrong, or the server cannot do now: one line in OpenAI's form, with the HTTP status that fits."""

from collections.abc import Mapping, Sequence
from typing import Any

from tnn._names import did_you_mean

LONGEST = 300  # characters of a message
SHOWN = 60  # characters of what came
Status = int
KINDS = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 408: "timeout_error"}
KINDS |= {409: "conflict_error", 413: "invalid_request_error", 429: "rate_limit_error", 504: "timeout_error"}


class ApiError(Exception):
    """A request that gets no result.

    >>> from tnn.serving.errors import ApiError
    >>> ApiError(400, "n must be 1", param="n").body()
    {'error': {'message': 'n must be 1', 'type': 'invalid_request_error', 'param': 'n', 'code': None}}
    """

    def __init__(
        self,
        status: Status,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.param, self.code = status, param, code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        kind = KINDS.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        message = " ".join(str(self).split())
        message = message if len(message) <= LONGEST else f"{message[:LONGEST]}..."
        return {"error": {"message": message, "type": kind, "param": self.param, "code": self.code}}


def from_validation(errors: Sequence[Mapping[str, Any]], fields: Sequence[str]) -> ApiError:
    """The first field that is wrong, of a body that pydantic has refused; `fields` are those that the body may have.

    >>> from tnn.serving.errors import from_validation
    >>> error = {"type": "extra_forbidden", "loc": ("body", "temprature"), "msg": "", "input": 1}
    >>> str(from_validation([error], ["temperature", "top_p"]))
    "unknown field 'temprature'; did you mean 'temperature'?"
    """
    first = errors[0]
    if first["type"] == "json_invalid":
        return ApiError(400, f"the body is not JSON: {first.get('ctx', {}).get('error', first['msg'])}")
    place = [str(part) for part in first["loc"] if part != "body"]
    if not place:  # the body as a whole, or fields that do not go together
        return ApiError(400, _plain(first) if first["type"] == "value_error" else "the body must be a JSON object")
    name = place[0]
    if first["type"] == "extra_forbidden" and len(place) == 1:
        return ApiError(400, f"unknown field {name!r}; {did_you_mean(name, fields)}", param=name)
    messages = [_plain(error) for error in errors if error["loc"][1:2] == (name,)]
    shown = repr(first.get("input"))
    got = "" if first["type"] == "missing" else f"; got {shown if len(shown) <= SHOWN else shown[:SHOWN] + '...'}"
    where = name if len(messages) > 1 else ".".join(place)
    return ApiError(400, f"{where}: {' or '.join(dict.fromkeys(messages))}{got}", param=name)


def _plain(error: Mapping[str, Any]) -> str:
    """What pydantic says, without its names for things."""
    return str(error["msg"]).removeprefix("Value error, ").removeprefix("Input ")
