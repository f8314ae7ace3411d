"""State carried along a sequence: the exact history of an operator, and a state space of constant size."""

from typing import Any

from tnn._lazy import public_names
from tnn.layers.state import CroppableState, State
from tnn.streaming.history import History
from tnn.streaming.realization import Realization, realize, realize_by_dft
from tnn.streaming.recurrence import Recurrence

__all__ = ["CroppableState", "History", "Realization", "Recurrence", "State", "new_state", "realize", "realize_by_dft"]

__dir__ = public_names(__name__)


def new_state(owner: Any) -> State:
    """An empty state of a mixer or of a causal operator.

    A mixer makes its own. The state of an operator is exact; its size is constant if the coefficients allow it.

    >>> from tnn.layers import ToeplitzOperator
    >>> from tnn.streaming import State, new_state
    >>> state = new_state(ToeplitzOperator(channels=4, causal=True))
    >>> isinstance(state, State), state.seen
    (True, 0)
    """
    if hasattr(owner, "new_state"):
        return owner.new_state()
    return History(owner) if getattr(owner, "poles", None) is None else Recurrence(owner)
