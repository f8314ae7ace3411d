"""Models behind HTTP: continuous batching, sessions, OpenAI's API. HTTP needs the extra `serve`."""

from typing import TYPE_CHECKING

from tnn._lazy import lazy_attributes, public_names

if TYPE_CHECKING:
    from tnn.serving.app import make_app
    from tnn.serving.engine import Engine
    from tnn.serving.request import Piece, Request
    from tnn.serving.sampling import Sampling
    from tnn.serving.service import Limits, Service, load_service

__all__ = ["Engine", "Limits", "Piece", "Request", "Sampling", "Service", "load_service", "make_app"]

_HOMES = {
    "Engine": "tnn.serving.engine",
    "Limits": "tnn.serving.service",
    "Piece": "tnn.serving.request",
    "Request": "tnn.serving.request",
    "Sampling": "tnn.serving.sampling",
    "Service": "tnn.serving.service",
    "load_service": "tnn.serving.service",
    "make_app": "tnn.serving.app",
}
__getattr__ = lazy_attributes(__name__, _HOMES)
__dir__ = public_names(__name__)
