"""What commands share: arguments, and how a model is loaded."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

TEXT_HELP = "A text file or table, a folder of them, stdlib, or hf:NAME; see docs/data.md."
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a causal language model.")]


def numbers(name: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} must be numbers with commas between them, like 512,1024; got {text!r}") from None


def load_causal(folder: Path) -> Any:
    """A TNNForCausalLM in evaluation mode, on the best device."""
    from tnn.models import TNNForCausalLM
    from tnn.training.evaluation import load_model

    quiet_transformers()
    model = load_model(folder)
    if not isinstance(model, TNNForCausalLM):
        raise ValueError(f"{folder} must hold a causal language model; got a {type(model).__name__}")
    return model


def quiet_transformers() -> None:
    """No progress bars and warnings of transformers in the output."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def import_from_current_folder() -> None:
    """For modules of the user: `python -m tnn` looks there, and `tnn` should too."""
    if "" not in sys.path:
        sys.path.insert(0, "")
