"""The state of a causal mixer: what a sequence that arrives in parts needs to remember."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from tnn.layers.sequences import Mask


@runtime_checkable
class State(Protocol):
    """Outputs of a sequence that arrives in parts: each call takes the next inputs and returns their outputs.

    Any split of a sequence into parts gives the outputs of one pass over the whole sequence. Public as
    `tnn.streaming.State`; every cache of a model holds one per layer.
    """

    @property
    def owner(self) -> Any:
        """The module whose state this is: a mixer, or the operator inside it."""

    @property
    def seen(self) -> int:
        """How many inputs each row has received, padding included."""

    @property
    def batch_size(self) -> int | None:
        """The number of rows; None before the first input."""

    @property
    def croppable(self) -> bool:
        """Whether `crop` can remove the newest inputs."""

    def __call__(self, x: Tensor, mask: Mask = None) -> Tensor:
        """x (batch, n, d), the next n inputs of each row -> (batch, n, d). Padding among them is skipped."""

    def reset(self) -> None:
        """Forget everything."""

    def crop(self, count: int) -> None:
        """Remove the newest `count` inputs; ValueError if the state cannot."""

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order; a row may be repeated."""

    def __deepcopy__(self, memo: dict[int, object]) -> State:
        """An independent copy of the state, with the same owner."""
