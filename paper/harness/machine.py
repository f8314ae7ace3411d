"""The machine that measures: what it is, and how much memory the process takes."""

import ctypes
import os
import platform
import resource
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from tnn.ops import backends

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def versions() -> dict[str, str]:
    """The versions that the numbers depend on.

    >>> from paper.harness.machine import versions
    >>> sorted(versions())
    ['python', 'toeplitz-nn', 'torch', 'transformers']
    """
    packages = {name: version(name) for name in ("toeplitz-nn", "torch", "transformers")}
    return {"python": platform.python_version(), **packages}


def describe_machine() -> dict[str, Any]:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {
        "device": device,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "kernel": backends()["native"],
    }


def return_free_memory() -> None:
    """Return freed blocks to the system, where the C library can; otherwise they count as held."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def forget_peak_memory() -> None:
    """Start a new peak, where the system allows it."""
    if _CLEAR.exists():
        _CLEAR.write_text("5")
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def peak_memory_mb() -> float:
    """Of the GPU if there is one, else of the process, since `forget_peak_memory` or since the start."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    if _STATUS.exists():
        return int(_STATUS.read_text().split("VmHWM:")[1].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
