"""The native kernel (csrc/) for float32 on CPU: loaded through ctypes on first use, if it was built."""

import ctypes
import logging
import os
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

MAX_LAGS = 2**17  # half of the longest frame
IMPORTED_BY = os.getpid()


class _Problem(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("rows", "n", "d", "lags", "future")]


class _Sequence(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("row_stride", ctypes.c_int64),
        ("position_stride", ctypes.c_int64),
    ]


@cache
def load() -> tuple[ctypes.CDLL | None, str]:
    """The library or None, and a text: the instruction set in use, or why the library is missing. Logged once."""
    library, status = _find()
    message = "native Toeplitz kernel: %s"
    if library is None and not _disabled():
        logger.warning(message + "; the torch backends are used", status)
    else:
        logger.info(message, status)
    return library, status


def _disabled() -> bool:
    return os.environ.get("TNN_DISABLE_NATIVE", "") not in ("", "0")


def _find() -> tuple[ctypes.CDLL | None, str]:
    if _disabled():
        return None, "switched off by TNN_DISABLE_NATIVE"
    import tnn.ops

    # An editable install keeps the built library outside the source folder, hence the search along __path__.
    override = os.environ.get("TNN_NATIVE_LIBRARY")
    folders = [Path(folder) for folder in tnn.ops.__path__]
    paths = [Path(override)] if override else [path for folder in folders for path in folder.glob("libtoeplitz.*")]
    if not paths:
        return None, "not built: no C++ compiler was found, or it failed, when the package was installed"
    try:
        library = ctypes.CDLL(str(paths[0]))
    except OSError as error:
        return None, f"could not be loaded: {error}"
    library.tnn_instruction_set.restype = ctypes.c_char_p
    problem = ctypes.POINTER(_Problem)
    library.tnn_convolve.argtypes = [problem, _Sequence, ctypes.c_void_p, _Sequence, ctypes.c_int, ctypes.c_int]
    library.tnn_correlate.argtypes = [problem, _Sequence, _Sequence, ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    return library, f"available ({library.tnn_instruction_set().decode()})"


def serves(x: Tensor, lags: int) -> bool:
    return x.device.type == "cpu" and x.dtype == torch.float32 and lags <= MAX_LAGS and load()[0] is not None


def convolve(x: Tensor, kernel: Tensor, future: int) -> Tensor:
    x, kernel = _contiguous_channels(x), kernel.contiguous()
    y = x.new_empty(x.shape)
    problem = _Problem(*x.shape, kernel.shape[0], future)
    _call("tnn_convolve", problem, _sequence(x), kernel.data_ptr(), _sequence(y))
    return y


def correlate(x: Tensor, g: Tensor, lags: int, future: int) -> Tensor:
    x, g = _contiguous_channels(x), _contiguous_channels(g)
    c = x.new_empty(lags, x.shape[-1])
    problem = _Problem(*x.shape, lags, future)
    _call("tnn_correlate", problem, _sequence(x), _sequence(g), c.data_ptr())
    return c


def _contiguous_channels(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _sequence(x: Tensor) -> _Sequence:
    return _Sequence(x.data_ptr(), x.stride(0), x.stride(1))


def _call(function: str, problem: _Problem, *arguments: object) -> None:
    library, status = load()
    if library is None:
        raise RuntimeError(f"native Toeplitz kernel: {status}")
    forked = os.getpid() != IMPORTED_BY
    # ctypes releases the GIL. The only failure is memory: `serves` has excluded too many lags.
    if getattr(library, function)(ctypes.byref(problem), *arguments, torch.get_num_threads(), forked):
        raise MemoryError("not enough memory for the work space of a Toeplitz product")
