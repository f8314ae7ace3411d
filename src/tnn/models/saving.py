"""Model folders that are whole or not there."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from tnn.models.backbone import TNNPreTrainedModel


def check_free(out: Path) -> None:
    """Before the work: nothing is overwritten, and there is a place for it."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise FileExistsError(f"{out} exists already; give a folder that does not, or an empty one")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {out.parent} to put {out.name} into")


def save_whole(model: TNNPreTrainedModel, out: Path, files: Iterable[Path] = ()) -> None:
    """save_pretrained, with copies of `files` beside it; first under another name, so that `out` is always whole."""
    with TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as scratch:
        folder = Path(scratch) / "model"
        model.save_pretrained(folder)
        for file in files:
            shutil.copy(file, folder)
        folder.replace(out)
