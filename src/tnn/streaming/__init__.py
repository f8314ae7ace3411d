"""State carried along a sequence: the exact history of an operator, and a state space of constant size."""

from tnn._lazy import public_names
from tnn.layers import ToeplitzOperator
from tnn.streaming.history import CausalOperator, History
from tnn.streaming.realization import Realization, realize, realize_by_dft
from tnn.streaming.recurrence import Recurrence

__all__ = ["History", "Realization", "Recurrence", "new_state", "realize", "realize_by_dft"]

__dir__ = public_names(__name__)


def new_state(operator: CausalOperator) -> History | Recurrence:
    """An empty state of a causal operator: of constant size if its coefficients allow it, exact in any case."""
    if isinstance(operator, ToeplitzOperator) and operator.poles is not None:
        return Recurrence(operator)
    return History(operator)
