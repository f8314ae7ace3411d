"""Timing on a noisy machine: candidates take turns in one run, and the median of each counts."""

import platform
import statistics
import time
from collections.abc import Callable

import torch


def interleaved_medians(candidates: dict[str, Callable[[], object]], repeats: int = 9) -> dict[str, float]:
    """Median seconds of each candidate. They run in turn, so that a slow moment of the machine affects all of them."""
    for run in candidates.values():
        run()  # warm-up: plans, allocations
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repeats):
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def environment() -> str:
    return (
        f"Python {platform.python_version()}, torch {torch.__version__}, {torch.get_num_threads()} threads, "
        f"{torch.backends.cpu.get_cpu_capability()}"
    )
