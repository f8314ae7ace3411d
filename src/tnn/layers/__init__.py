"""The paper's modules: relative position encoder, Toeplitz operator (1-D, 2-D), GTU, GLU, norm and block."""

from tnn._lazy import public_names
from tnn.layers.block import TNNBlock
from tnn.layers.gated import GatedLinearUnit, GatedToeplitzUnit
from tnn.layers.norm import SimpleRMSNorm
from tnn.layers.operator import ToeplitzOperator
from tnn.layers.operator2d import ToeplitzOperator2d
from tnn.layers.parameters import ParameterCount, count_parameters
from tnn.layers.position import RelativePositionEncoder

__all__ = [
    "GatedLinearUnit",
    "GatedToeplitzUnit",
    "ParameterCount",
    "RelativePositionEncoder",
    "SimpleRMSNorm",
    "TNNBlock",
    "ToeplitzOperator",
    "ToeplitzOperator2d",
    "count_parameters",
]

__dir__ = public_names(__name__)
