"""Correlations of two series of numbers; 0 if either is constant."""

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def pearson(x: Numbers, y: Numbers) -> float:
    """Of the numbers themselves.

    >>> import numpy as np
    >>> from tnn.data.correlation import pearson
    >>> round(pearson(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 2.0])), 3)
    0.866
    """
    return float(np.corrcoef(x, y)[0, 1]) if np.ptp(x) and np.ptp(y) else 0.0


def spearman(x: Numbers, y: Numbers) -> float:
    """Of their ranks.

    >>> import numpy as np
    >>> from tnn.data.correlation import spearman
    >>> round(spearman(np.array([1.0, 2.0, 30.0]), np.array([1.0, 2.0, 3.0])), 3)
    1.0
    """
    return pearson(_ranks(x), _ranks(y))


def _ranks(x: Numbers) -> Numbers:
    """The rank of each number, from 1; equal numbers get the mean of their ranks."""
    _, which, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[which]
