"""The table of `tnn show`: how many dimensions the kernels of each layer span."""

from typing import Any

from tnn.layers.rank import TOLERANCES, LayerRanks, layer_ranks

LAGS = 512
HEAD = ("layer", "channels", "encoder width", "all lags", "from lag 16", "from lag 64")
SHARES = ", ".join(f"{100 * e:g}%" for e in TOLERANCES)
MEANING = f"a/b/c: so many dimensions hold the kernels of all channels but for {SHARES} of their norm"


def rank_table(model: Any, length: int | None = None) -> str:
    """The `tnn.layers.layer_ranks` of a model as a table, and a line that says what the numbers mean.

    `length` is the number of lags: by default 512, or those along an axis of the image.

    >>> import torch
    >>> from tnn import TNNConfig, TNNModel
    >>> from tnn.training.ranks import rank_table
    >>> _ = torch.manual_seed(0)
    >>> sizes = {"vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 2, "rpe_size": 8, "rpe_num_layers": 3}
    >>> print(rank_table(TNNModel(TNNConfig(**sizes, mixer=["tnn", "transformer"]))))
    layer                 channels  encoder width  all lags  from lag 16  from lag 64
    layer 1                     48              8     1/2/5        1/1/2        1/1/1
    layer 2, transformer  no Toeplitz kernel
    a/b/c: so many dimensions hold the kernels of all channels but for 10%, 1%, 0.1% of their norm; lags up to 511
    """
    length = _default_length(model.config) if length is None else length
    rows = [HEAD, *map(_cells, layer_ranks(model, length))]
    return "\n".join([*_aligned(rows), f"{MEANING}; lags up to {length - 1}"])


def _default_length(config: Any) -> int:
    if not hasattr(config, "image_size"):
        return LAGS
    side = config.image_size // config.patch_size
    return min(LAGS, side if config.dims == 2 else side**2)


def _cells(layer: LayerRanks) -> tuple[str, ...]:
    ranks = [found for found in (layer.all_lags, layer.from_lag_16, layer.from_lag_64) if found is not None]
    if not ranks:
        return layer.name, "no Toeplitz kernel"
    encoder = "-" if layer.rpe_size is None else str(layer.rpe_size)
    return layer.name, str(layer.channels), encoder, *("/".join(map(str, found)) for found in ranks)


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Names to the left, numbers to the right. A row of fewer cells than the first widens no column of numbers."""
    complete = [row for row in rows if len(row) == len(rows[0])]
    widths = [max(map(len, column)) for column in zip(*complete, strict=True)]
    first = max(len(row[0]) for row in rows)
    return [
        "  ".join([name.ljust(first), *(cell.rjust(w) for cell, w in zip(cells, widths[1:], strict=False))])
        for name, *cells in rows
    ]
