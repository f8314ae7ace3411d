"""Texts that go on from call to call: their states are kept, and only what is new is sent and read."""

import secrets
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Literal

from tnn.serving.errors import ApiError
from tnn.serving.request import Kept
from tnn.serving.shelf import Shelf

NEW = "new"
Kind = Literal["completions", "chat"]


class Session:
    """A text, as far as it has been read and written. Calls follow each other; each changes it wholly or not at all."""

    def __init__(self, id: str, kind: Kind):
        self.id, self.kind = id, kind
        self.busy = False
        self.kept: Kept | None = None
        self.text = ""  # all of it, of a chat
        self.messages: list[dict[str, Any]] = []  # of a chat

    @property
    def nbytes(self) -> int:
        own = 8 * len(self.kept.pending) + self.kept.cache.nbytes if self.kept is not None else 0
        return own + 4 * len(self.text) + sum(4 * len(message["content"]) + 100 for message in self.messages)


class Sessions:
    """The sessions of each owner, who has an equal share of the room: nobody reaches or displaces those of another.

    >>> from tnn.serving.sessions import Sessions
    >>> sessions = Sessions(["me", "you"], most=10, most_bytes=10**6, seconds=60)
    >>> session = sessions.begin("me", "new", "chat")
    >>> sessions.end("me", session, keep=True)
    >>> sessions.begin("me", session.id, "chat") is session, len(sessions)
    (True, 1)
    >>> sessions.begin("you", session.id, "chat")
    Traceback (most recent call last):
    ...
    tnn.serving.errors.ApiError: there is no such session: it was dropped, or never made
    """

    def __init__(
        self,
        owners: Sequence[str],
        *,
        most: int,
        most_bytes: int,
        seconds: float,
        clock: Callable[[], float] = monotonic,
    ):
        share = max(1, len(owners))
        self._shelves: dict[str, Shelf[str, Session]] = {
            owner: Shelf(most // share, most_bytes // share, seconds, clock) for owner in owners
        }

    def begin(self, owner: str, id: str, kind: Kind) -> Session:
        """The session for one call, which must be ended. "new" makes one, whose id cannot be guessed."""
        if id == NEW:
            session = Session(f"session-{secrets.token_urlsafe(24)}", kind)
        else:
            session = self._known(owner, id)
            if session.kind != kind:
                raise ApiError(400, f"this session is one of {session.kind}, and not of {kind}", param="session")
            if session.busy:
                message = "the session is in use: its calls must follow each other"
                raise ApiError(409, message, param="session", code="session_in_use")
        session.busy = True
        return session

    def end(self, owner: str, session: Session, *, keep: bool) -> None:
        """The call is over. Unless it was completed, the session stays as it was before."""
        session.busy = False
        if keep:
            self._shelves[owner].put(session.id, session, session.nbytes)

    def delete(self, owner: str, id: str) -> None:
        self._known(owner, id)
        self._shelves[owner].pop(id)

    def _known(self, owner: str, id: str) -> Session:
        session = self._shelves[owner].get(id)
        if session is None:
            message = "there is no such session: it was dropped, or never made"
            raise ApiError(404, message, param="session", code="session_not_found")
        return session

    @property
    def nbytes(self) -> int:
        return sum(shelf.nbytes for shelf in self._shelves.values())

    def __len__(self) -> int:
        return sum(len(shelf) for shelf in self._shelves.values())
