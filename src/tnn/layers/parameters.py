"""Parameter counts, split as the paper's tables need them."""

from typing import NamedTuple

from torch import nn

from tnn.layers.operator import ToeplitzOperator


class ParameterCount(NamedTuple):
    """`trained`: all parameters, frozen or not; `fixed_decay`: rates, one per channel, that the paper counts too."""

    trained: int
    fixed_decay: int


def count_parameters(module: nn.Module) -> ParameterCount:
    """Count the parameters of any module; the sum of both numbers is what the paper prints for language models.

    >>> from tnn.layers import ToeplitzOperator, count_parameters
    >>> count_parameters(ToeplitzOperator(channels=16, rpe_size=8, rpe_num_layers=1))
    ParameterCount(trained=232, fixed_decay=16)
    """
    operators = [m for m in module.modules() if isinstance(m, ToeplitzOperator)]
    return ParameterCount(
        trained=sum(p.numel() for p in module.parameters()),
        fixed_decay=sum(o.channels for o in operators if o.decay.mode == "fixed" and o.poles is None),
    )
