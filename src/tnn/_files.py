"""Files and folders that are complete or absent: written under a temporary name, then renamed."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write a file or a folder to; renamed to `path` if nothing was raised.

    An existing file is replaced; an existing folder only if it is empty. A device or a FIFO is written to.

    >>> from tempfile import TemporaryDirectory
    >>> from pathlib import Path
    >>> from tnn._files import atomic_path
    >>> with TemporaryDirectory() as folder:
    ...     with atomic_path(Path(folder) / "a.txt") as temporary:
    ...         _ = temporary.write_text("complete")
    ...     (Path(folder) / "a.txt").read_text()
    'complete'
    """
    path = path.resolve() if path.is_symlink() else path  # the link stays; /dev/stdout is one
    with TemporaryDirectory(dir=None if is_special(path) else path.parent, prefix=f".{path.name}-") as scratch:
        temporary = Path(scratch) / path.name
        yield temporary
        if is_special(path):
            with temporary.open("rb") as complete, path.open("wb") as out:
                shutil.copyfileobj(complete, out)
        else:
            temporary.replace(path)


def is_special(path: Path) -> bool:
    """Whether this is a device or a FIFO: something that is written to, and must never be replaced.

    >>> from pathlib import Path
    >>> from tnn._files import is_special
    >>> is_special(Path("/dev/null")), is_special(Path("no-such-file"))
    (True, False)
    """
    return path.exists() and not path.is_file() and not path.is_dir()


def check_writable(path: Path) -> None:
    """Called before the work: an OSError if a file could not be written to `path`, or a folder be made there."""
    if is_special(path):
        if not os.access(path, os.W_OK):
            raise PermissionError(f"no permission to write to {path}")
        return
    folder = path if path.is_dir() else path.parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise NotADirectoryError(f"{path} cannot be written: {folder} is not a folder")
    try:
        with TemporaryDirectory(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror or error}") from None


def check_name(path: Path) -> None:
    """Called before the work: a ValueError if libraries that save models could not, as they take names in UTF-8 only.

    >>> from pathlib import Path
    >>> from tnn._files import check_name
    >>> check_name(Path("é"))
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ValueError(f"{path} cannot be written: its name is not valid UTF-8") from None


def check_folder(path: Path) -> None:
    """Called before the work: an OSError if files could not be written into the folder `path`, old or new."""
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"{path} is not a folder")
    check_writable(path)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, or leave what is there."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
