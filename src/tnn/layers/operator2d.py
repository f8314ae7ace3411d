"""The Toeplitz operator of a grid: one 1-D operator along each axis."""

from typing import Unpack

from torch import Tensor, nn

from tnn._checks import check_choice, check_sequence
from tnn.layers.operator import OperatorOptions, ToeplitzOperator
from tnn.layers.sequences import Mask, resolve_mask

FORMS = ("sum", "product")


class ToeplitzOperator2d(nn.Module):
    """Toeplitz mixing of a grid: T_c along the height and T_r along the width, each with its own RPE.

    `form`: "sum" gives T_c x + x T_r^T (the paper's image models), "product" gives 2 T_c x T_r^T (its released
    Long-Range Arena models, written there as the sum of two equal terms). Bidirectional. `options`: the
    keyword arguments of ToeplitzOperator, the same for both axes.

    >>> import torch
    >>> from tnn.layers import ToeplitzOperator2d
    >>> ToeplitzOperator2d(channels=8, rpe_size=16)(torch.randn(2, 14, 14, 8)).shape
    torch.Size([2, 14, 14, 8])
    """

    def __init__(self, channels: int, *, form: str = "sum", causal: bool = False, **options: Unpack[OperatorOptions]):
        super().__init__()
        self.check_options(channels, form=form, causal=causal, **options)
        self.channels = channels
        self.form = form
        self.height = ToeplitzOperator(channels, **options)
        self.width = ToeplitzOperator(channels, **options)

    @staticmethod
    def check_options(
        channels: int, *, form: str = "sum", causal: bool = False, **options: Unpack[OperatorOptions]
    ) -> None:
        """Check the values of the constructor's arguments without building anything."""
        check_choice("form", form, FORMS)
        if causal:
            raise ValueError("causal must be False: a grid has no order, the 2-D operator is bidirectional")
        ToeplitzOperator.check_options(channels, **options)

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        """x (..., h, w, channels), mask (..., h, w) -> (..., h, w, channels). Padded cells contribute nothing."""
        check_sequence("x", x, self.channels, axes="height, width")
        x, cells = resolve_mask(x, mask)
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
