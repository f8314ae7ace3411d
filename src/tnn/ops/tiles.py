"""A product of many rows and channels as a sequence of small ones, whose intermediates stay in cache.

On two cores this halves the time of long products and keeps it linear: intermediates of tens of megabytes would be
mapped and cleared by the operating system at every call.
"""

from collections.abc import Iterator

from torch import Tensor

TILE = 2**18  # entries of x: 1 MB of float32
CACHE_LINE = 16  # channels: a tile reads whole lines of a tensor whose channels are contiguous


def tiles(x: Tensor) -> Iterator[tuple[slice, slice]]:
    """Slices of rows and of channels that cover x (rows, n, d); a single pair away from the CPU."""
    rows, n, d = x.shape
    row_step, channel_step = rows, d
    if x.device.type == "cpu":
        channel_step = max(1, TILE // (rows * n * CACHE_LINE)) * CACHE_LINE
        row_step = max(1, TILE // (n * channel_step))
    for row in range(0, rows, row_step):
        for channel in range(0, d, channel_step):
            yield slice(row, row + row_step), slice(channel, channel + channel_step)
