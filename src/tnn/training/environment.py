"""What a bug report needs to know of a machine: versions, hardware, backends. Nothing in it is personal."""

import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import tnn
from tnn._machine import physical_memory

PACKAGE = "toeplitz-nn"
FOR_DEVELOPERS = ("dev", "conformance", "ecosystem")  # extras
CPU = Path("/proc/cpuinfo")
INSTRUCTIONS = re.compile(r"sse4_2|avx\w*|fma|f16c|amx\w*|asimd\w*|sve\w*")
VARIABLES = re.compile(r"TNN_\w+|(OMP|MKL)_NUM_THREADS|CUDA_VISIBLE_DEVICES|WORLD_SIZE")
FOLDERS = re.compile(r"/([^/\s:]+/)+")  # their names can be private


def describe_environment() -> dict[str, dict[str, Any]]:
    """Sections of names and values: versions, machine, backends, extras, variables.

    There is no name of a host or a user in it, and no path.

    >>> from tnn.training.environment import describe_environment
    >>> report = describe_environment()
    >>> report["backends"]["fft"], list(report)
    ('available', ['versions', 'machine', 'backends', 'extras', 'variables'])
    """
    from tnn.ops import backends

    return {
        "versions": _versions(),
        "machine": _machine(),
        "backends": {name: FOLDERS.sub("", status) for name, status in backends().items()},
        "extras": _extras(),
        "variables": _variables(),
    }


def _versions() -> dict[str, str]:
    """Of this package, Python, and every package that it needs."""
    needed = [name for name, extra in _requirements() if not extra]
    return {PACKAGE: tnn.__version__, "python": platform.python_version()} | {
        name: _version(name) or "missing" for name in needed
    }


def _machine() -> dict[str, Any]:
    memory = physical_memory()
    about = _cpu()
    words = sorted({word for word in about.get("flags", "").split() if INSTRUCTIONS.fullmatch(word)})
    return {
        "system": platform.platform(),
        "processor": about.get("name") or platform.processor() or platform.machine(),
        "instructions": ", ".join(words) or "unknown",
        "instructions of torch": torch.backends.cpu.get_cpu_capability(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads of torch": torch.get_num_threads(),
        "memory": "unknown" if memory is None else f"{memory / 1e9:.1f} GB",
        "accelerators": _accelerators(),
    }


def _cpu() -> dict[str, str]:
    """Of the first core, where the system tells: Linux does."""
    try:
        entries = [line.partition(":") for line in CPU.read_text().splitlines()]
    except OSError:
        return {}
    first = {key.strip().lower(): value.strip() for key, _, value in reversed(entries)}
    return {"name": first.get("model name", ""), "flags": first.get("flags", first.get("features", ""))}


def _accelerators() -> str:
    best = torch.accelerator.current_accelerator(check_available=True)
    if best is None:
        return "none"
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return ", ".join(names) or best.type


def _extras() -> dict[str, str]:
    """Of each extra: its packages with their versions, or how to install what is missing."""
    groups: dict[str, list[str]] = {}
    for name, extra in _requirements():
        if extra and extra not in FOR_DEVELOPERS:
            groups.setdefault(extra, []).append(name)
    return {extra: _installed(extra, names) for extra, names in groups.items()}


def _installed(extra: str, names: list[str]) -> str:
    if missing := [name for name in names if _version(name) is None]:
        return f"missing {', '.join(missing)}: pip install '{PACKAGE}[{extra}]'"
    return ", ".join(f"{name} {_version(name)}" for name in names)


def _requirements() -> list[tuple[str, str]]:
    """(package, extra) of each requirement; the extra is empty where it is always needed."""
    try:
        lines = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:  # a source folder that is not installed
        return []
    pattern = re.compile(r"([\w.-]+)[^;]*(?:;.*extra == ['\"](\w+)['\"])?")
    return [(match[1], match[2] or "") for line in lines if (match := pattern.match(line))]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _variables() -> dict[str, str]:
    """Those that have an effect on this package."""
    return {name: _harmless(value) for name, value in sorted(os.environ.items()) if VARIABLES.fullmatch(name)}


def _harmless(value: str) -> str:
    """Numbers as they are; of anything else, only that it is set."""
    return value if re.fullmatch(r"[\d,.]*", value) else "(set)"


def to_text(report: dict[str, dict[str, Any]]) -> str:
    """The report in aligned lines.

    >>> from tnn.training.environment import to_text
    >>> print(to_text({"versions": {"python": "3.11.2", "torch": "2.13.0"}}))
    versions
      python  3.11.2
      torch   2.13.0
    """
    width = max(len(name) for section in report.values() for name in section)
    lines = []
    for title, section in report.items():
        lines += [title, *(f"  {name:{width}}  {value}" for name, value in (section or {"none": ""}).items())]
    return "\n".join(line.rstrip() for line in lines)
