"""Where a function of the native kernel can take the place of several steps of torch."""

import torch
from torch import Tensor

from tnn.ops import native, transforms


def one_pass(*tensors: Tensor) -> bool:
    """Whether the native kernel reads these tensors. In a graph it does not: a compiler fuses the steps itself."""
    in_graph = torch.compiler.is_compiling() or torch.compiler.is_exporting()
    return not in_graph and native.serves_values(*tensors) and not transforms.active(*tensors)


def one_pass_backward(grad: Tensor, *saved: Tensor) -> bool:
    """The same for a gradient. Step by step where a derivative of this gradient may be wanted."""
    return not torch.is_grad_enabled() and native.serves_values(grad, *saved) and not transforms.active(grad)
