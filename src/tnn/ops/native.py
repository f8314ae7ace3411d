"""The native kernel (csrc/) for float32 on CPU: loaded through ctypes on first use, if it was built."""

import ctypes
import logging
import os
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import Parameter

logger = logging.getLogger(__name__)

MAX_LAGS = 2**17  # half of the longest frame
NEWEST = "tnn_silu_product"  # the function that a library of earlier sources lacks
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
    if not hasattr(library, NEWEST):
        return None, f"{paths[0]} was built from other sources: install the package again"
    library.tnn_instruction_set.restype = ctypes.c_char_p
    problem = ctypes.POINTER(_Problem)
    library.tnn_convolve.argtypes = [problem, _Sequence, ctypes.c_void_p, _Sequence, ctypes.c_int, ctypes.c_int]
    library.tnn_correlate.argtypes = [problem, _Sequence, _Sequence, ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    pointer, size, number, flag = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_int
    on_threads = [ctypes.c_int, ctypes.c_int]
    library.tnn_rms_norm.argtypes = [size, size, number, *[pointer] * 2, flag, pointer, *on_threads]
    library.tnn_rms_norm_gradient.argtypes = [size, size, number, *[pointer] * 3, flag, *[pointer] * 2, *on_threads]
    library.tnn_silu_product.argtypes = [size, *[pointer] * 3, *on_threads]
    library.tnn_silu_product_gradient.argtypes = [size, *[pointer] * 5, *on_threads]
    return library, f"available ({library.tnn_instruction_set().decode()})"


def serves(x: Tensor, lags: int) -> bool:
    return x.device.type == "cpu" and x.dtype == torch.float32 and lags <= MAX_LAGS and load()[0] is not None


def convolve(x: Tensor, kernel: Tensor, future: int) -> Tensor:
    x, kernel = _contiguous_channels(x), kernel.contiguous()
    y = x.new_empty(x.shape)
    problem = _Problem(*x.shape, kernel.shape[0], future)
    _call("tnn_convolve", ctypes.byref(problem), _sequence(x), kernel.data_ptr(), _sequence(y))
    return y


def correlate(x: Tensor, g: Tensor, lags: int, future: int) -> Tensor:
    x, g = _contiguous_channels(x), _contiguous_channels(g)
    c = x.new_empty(lags, x.shape[-1])
    problem = _Problem(*x.shape, lags, future)
    _call("tnn_correlate", ctypes.byref(problem), _sequence(x), _sequence(g), c.data_ptr())
    return c


def serves_values(*tensors: Tensor) -> bool:
    """Whether they have one shape, and memory that the functions below can read.

    Tensors of another class (fake ones, parts of a distributed one) have no memory to point to.
    """
    x = tensors[0]
    for t in tensors:
        if type(t) not in (Tensor, Parameter) or t.device.type != "cpu" or t.dtype != torch.float32:
            return False
    return x.numel() > 0 and all(t.shape == x.shape for t in tensors) and load()[0] is not None


def rms_norm(x: Tensor, gate: Tensor | None, eps: float, *, silu: bool = False) -> Tensor:
    """gate * x / (rms(x) + eps) over the last axis; with `silu`, silu(gate) in place of gate."""
    x, gate = x.contiguous(), None if gate is None else gate.contiguous()
    y = torch.empty_like(x)
    _call("tnn_rms_norm", *_rows(x), eps, x.data_ptr(), _pointer(gate), silu, y.data_ptr())
    return y


def rms_norm_gradient(
    grad: Tensor, x: Tensor, gate: Tensor | None, eps: float, *, silu: bool = False
) -> tuple[Tensor, Tensor | None]:
    """The gradients of x and of the gate, given that of their norm."""
    grad, x, gate = grad.contiguous(), x.contiguous(), None if gate is None else gate.contiguous()
    grad_x, grad_gate = torch.empty_like(x), None if gate is None else torch.empty_like(x)
    inputs = (grad.data_ptr(), x.data_ptr(), _pointer(gate), silu)
    _call("tnn_rms_norm_gradient", *_rows(x), eps, *inputs, grad_x.data_ptr(), _pointer(grad_gate))
    return grad_x, grad_gate


def silu_product(a: Tensor, b: Tensor) -> Tensor:
    """silu(a) * b."""
    a, b = a.contiguous(), b.contiguous()
    y = torch.empty_like(a)
    _call("tnn_silu_product", a.numel(), a.data_ptr(), b.data_ptr(), y.data_ptr())
    return y


def silu_product_gradient(grad: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of a and b, given that of their product."""
    grad, a, b = grad.contiguous(), a.contiguous(), b.contiguous()
    grad_a, grad_b = torch.empty_like(a), torch.empty_like(b)
    pointers = (grad.data_ptr(), a.data_ptr(), b.data_ptr(), grad_a.data_ptr(), grad_b.data_ptr())
    _call("tnn_silu_product_gradient", a.numel(), *pointers)
    return grad_a, grad_b


def _rows(x: Tensor) -> tuple[int, int]:
    return x.numel() // x.shape[-1], x.shape[-1]


def _pointer(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()


def _contiguous_channels(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _sequence(x: Tensor) -> _Sequence:
    return _Sequence(x.data_ptr(), x.stride(0), x.stride(1))


def _call(function: str, *arguments: object) -> None:
    library, status = load()
    if library is None:
        raise RuntimeError(f"native Toeplitz kernel: {status}")
    forked = os.getpid() != IMPORTED_BY
    # ctypes releases the GIL. The only failure is memory: `serves` has excluded too many lags.
    if getattr(library, function)(*arguments, torch.get_num_threads(), forked):
        raise MemoryError("not enough memory for the work space of the native kernel")
