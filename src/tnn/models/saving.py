"""Folders of models and tokenizers that are whole or not there."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


def check_free(out: Path) -> None:
    """Before the work: nothing is overwritten, and there is a place for it."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise FileExistsError(f"{out} exists already; give a folder that does not, or an empty one")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {out.parent} to put {out.name} into")


def save_whole(model: Any, out: Path, files: Iterable[Path] = ()) -> None:
    """save_pretrained of a model or tokenizer, with copies of `files` beside it; `out` is whole or not there."""
    with TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as scratch:
        folder = Path(scratch) / "model"
        model.save_pretrained(folder)
        for file in files:
            shutil.copy(file, folder)
        folder.replace(out)
