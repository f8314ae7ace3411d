"""A module to an ONNX file that is complete or absent, and that tells nothing of the machine it was made on."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

SHAPES_LOGGER = "torch.fx.experimental.symbolic_shapes"


class ONNXError(ValueError):
    """What a module does has no ONNX form."""


def check_target(path: Path) -> None:
    """Called before the work: what export needs is installed, and there is a folder for the file."""
    if missing := [name for name in ("onnx", "onnxscript") if find_spec(name) is None]:
        raise ImportError(f"ONNX export needs {' and '.join(missing)}: pip install 'toeplitz-nn[onnx]'")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of the file to write")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to put {path.name} into")


def onnx_program(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    *,
    input_names: Sequence[str],
    output_names: Sequence[str],
    dynamic_shapes: dict[str, Any],
) -> torch.onnx.ONNXProgram:
    """`module` traced with `inputs`; raises ONNXError if that fails, or would be right for some sizes only."""
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    try:
        with torch.no_grad(), _quiet():
            # Traced here, for torch.onnx would narrow the sizes until the model fits them.
            graph = torch.export.export(module, inputs, dynamic_shapes=dynamic_shapes, strict=False)
            program = torch.onnx.export(
                graph, verbose=False, input_names=input_names, output_names=output_names, dynamic_shapes=dynamic_shapes
            )
    except Exception as error:  # torch raises errors of many kinds
        raise ONNXError(_first_line(error)) from error
    assert program is not None
    ClearMetadataAndDocStringPass()(program.model)  # stack traces, with the paths of this machine
    if any(node.op_type == "DFT" for node in program.model.graph):
        raise ONNXError("Fourier transforms fail in ONNX runtimes, or are wrong")
    return program


def save(program: torch.onnx.ONNXProgram, path: Path) -> None:
    """Weights beyond what one ONNX file can hold (2 GB) go to a second file, `path` with ".data" added."""
    # Beside `path` first, so that a file of that name is always whole.
    with TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as scratch:
        program.save(Path(scratch) / path.name, external_data=False)
        for file in sorted(Path(scratch).iterdir(), reverse=True):  # the weights before the file that refers to them
            file.replace(path.parent / file.name)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch says about itself, and without its account of a failure: the error says it in one line."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "torch.fx", SHAPES_LOGGER)]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*LeafSpec.* is deprecated", FutureWarning)
            warnings.filterwarnings("ignore", "# The axis name: .* will not be used", UserWarning)  # shared on purpose
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _first_line(error: BaseException) -> str:
    """Of what went wrong at the bottom."""
    while error.__cause__ is not None:
        error = error.__cause__
    line = str(error).strip().partition("\n")[0]
    return "some sizes are computed in another way" if line.startswith("Constraints violated") else line
