"""State carried along a sequence: the exact history of an operator, and a state space of constant size."""

from tnn.layers import ToeplitzOperator
from tnn.streaming.history import History
from tnn.streaming.realization import Realization, realize, realize_by_dft
from tnn.streaming.recurrence import Recurrence

__all__ = ["History", "Realization", "Recurrence", "new_state", "realize", "realize_by_dft"]


def new_state(operator: ToeplitzOperator) -> History | Recurrence:
    """An empty state of a causal operator: of constant size if its coefficients allow it, exact in any case."""
    return History(operator) if operator.poles is None else Recurrence(operator)
