"""A service on a port, until it is asked to stop."""

import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType

import uvicorn

from tnn.serving.app import make_app
from tnn.serving.service import Service

SLOW_READERS = 10  # seconds for clients to take what is written when the server stops


def listen(host: str, port: int) -> socket.socket:
    """A socket on a free port, or an OSError that says what is wrong with it.

    >>> from tnn.serving.server import listen
    >>> with listen("127.0.0.1", 0) as opened:
    ...     opened.getsockname()[0]
    '127.0.0.1'
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    except socket.gaierror as error:
        raise OSError(f"--host {host} is no address of this machine: {error.strerror}") from None
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        opened.listen(2048)
    except OSError as error:
        opened.close()
        raise OSError(f"port {port} of {host} cannot be opened: {os.strerror(error.errno or 0)}; try --port") from None
    return opened


def serve(service: Service, opened: socket.socket, ready: Callable[[], object]) -> bool:
    """Answer requests until SIGTERM or SIGINT comes and all that runs is finished; `ready` is called at the beginning.

    Returns whether all was finished: a second signal ends the server at once.
    """
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of clients that go away
    config = uvicorn.Config(
        make_app(service),
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=SLOW_READERS,
    )
    server = _Server(config, service, ready)
    server.run(sockets=[opened])
    return not server.force_exit


class _Server(uvicorn.Server):
    """On the first signal new requests are refused, and those that run are finished before the port is closed."""

    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[], object]):
        super().__init__(config)
        self._service, self._ready = service, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._service.stopping:
            self.should_exit = self.force_exit = True
            return
        print(f"{signal.Signals(sig).name}: finishing what runs", file=sys.stderr, flush=True)
        self._service.stop()

    async def on_tick(self, counter: int) -> bool:
        if self._service.stopping and self._service.idle:
            self.should_exit = True
        return await super().on_tick(counter)
