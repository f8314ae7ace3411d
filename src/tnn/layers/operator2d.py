"""The Toeplitz operator of a grid: one 1-D operator along each axis."""

from typing import Any

from torch import Tensor, nn

from tnn._checks import check_choice, check_sequence
from tnn.layers.operator import ToeplitzOperator
from tnn.layers.sequences import Mask, enter

FORMS = ("sum", "product")


class ToeplitzOperator2d(nn.Module):
    """Toeplitz mixing of a grid: T_c along the height and T_r along the width, each with an RPE of its own.

    `form`: "sum" gives T_c x + x T_r^T (the paper's image models), "product" gives 2 T_c x T_r^T (its released
    Long-Range Arena models, written there as the sum of two equal terms). Bidirectional; the other options are
    those of ToeplitzOperator.

    >>> import torch
    >>> from tnn.layers import ToeplitzOperator2d
    >>> ToeplitzOperator2d(channels=8, rpe_size=16)(torch.randn(2, 14, 14, 8)).shape
    torch.Size([2, 14, 14, 8])
    """

    def __init__(self, channels: int, *, form: str = "sum", **options: Any):
        super().__init__()
        check_choice("form", form, FORMS)
        if options.get("causal"):
            raise ValueError("causal must be False: a grid has no order, the 2-D operator is bidirectional")
        self.channels = channels
        self.form = form
        self.height = ToeplitzOperator(channels, **options)
        self.width = ToeplitzOperator(channels, **options)

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        """x (..., h, w, channels), mask (..., h, w) -> (..., h, w, channels). Padded cells contribute nothing."""
        check_sequence("x", x, self.channels, axes="height, width")
        x, cells = enter(x, mask)
        if cells is not None:
            if self.height.depends_on_length:
                raise ValueError(
                    'a mask of a grid needs rpe_input="integer" or "sincos"; "normalized" has one size only'
                )
            x = cells.zero_padding(x)
        if self.form == "sum":
            return self._along_height(x) + self.width(x)
        return 2 * self._along_height(self.width(x))

    def _along_height(self, x: Tensor) -> Tensor:
        return self.height(x.transpose(-3, -2)).transpose(-3, -2)

    def extra_repr(self) -> str:
        return f"form={self.form}"
