"""The paper's modules: relative position encoder, Toeplitz operator (1-D, 2-D), GTU, GLU, norm and block."""

from typing import TYPE_CHECKING

from tnn._lazy import lazy_attributes, public_names
from tnn.layers.gated import GatedLinearUnit, GatedToeplitzUnit
from tnn.layers.norm import SimpleRMSNorm
from tnn.layers.operator import ToeplitzOperator
from tnn.layers.operator2d import ToeplitzOperator2d
from tnn.layers.parameters import ParameterCount, count_parameters
from tnn.layers.position import RelativePositionEncoder
from tnn.layers.rank import LayerRanks, kernel_rank, layer_ranks

if TYPE_CHECKING:
    from tnn.mixers.block import TNNBlock

__all__ = [
    "GatedLinearUnit",
    "GatedToeplitzUnit",
    "LayerRanks",
    "ParameterCount",
    "RelativePositionEncoder",
    "SimpleRMSNorm",
    "TNNBlock",
    "ToeplitzOperator",
    "ToeplitzOperator2d",
    "count_parameters",
    "kernel_rank",
    "layer_ranks",
]

# The block can hold any mixer, so it is written with them; its public name is here.
__getattr__ = lazy_attributes(__name__, {"TNNBlock": "tnn.mixers.block"})
__dir__ = public_names(__name__)
