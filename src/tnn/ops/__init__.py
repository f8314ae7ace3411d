"""y = T x along a sequence, for one Toeplitz matrix T per channel."""

from tnn._lazy import public_names
from tnn.ops.bandwidth import Bandwidth, effective_bandwidth
from tnn.ops.builders import from_conv1d, from_state_space
from tnn.ops.dense import toeplitz_matrix
from tnn.ops.matmul import toeplitz_matmul
from tnn.ops.product import backends

__all__ = [
    "Bandwidth",
    "backends",
    "effective_bandwidth",
    "from_conv1d",
    "from_state_space",
    "toeplitz_matmul",
    "toeplitz_matrix",
]

__dir__ = public_names(__name__)
