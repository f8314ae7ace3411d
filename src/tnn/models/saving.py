"""Folders of models and tokenizers that are complete or absent."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tnn._files import atomic_path, check_name, check_writable


def check_free(out: Path) -> None:
    """Called before the work: nothing is overwritten, and the parent folder can be written to."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise FileExistsError(f"{out} exists already; give a folder that does not, or an empty one")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {out.parent} to put {out.name} into")
    check_name(out)
    check_writable(out)


def save_atomically(model: Any, out: Path, files: Iterable[Path] = ()) -> None:
    """save_pretrained of a model or tokenizer, with copies of `files` beside it; `out` is complete or absent."""
    with atomic_path(out) as folder:
        model.save_pretrained(folder)
        for file in files:
            shutil.copy(file, folder)
