"""Files and folders that are complete or absent: written under a temporary name, then renamed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write a file or a folder to; renamed to `path` if nothing was raised.

    An existing file is replaced; an existing folder only if it is empty.

    >>> from tempfile import TemporaryDirectory
    >>> from pathlib import Path
    >>> from tnn._files import atomic_path
    >>> with TemporaryDirectory() as folder:
    ...     with atomic_path(Path(folder) / "a.txt") as temporary:
    ...         _ = temporary.write_text("complete")
    ...     (Path(folder) / "a.txt").read_text()
    'complete'
    """
    with TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as scratch:
        temporary = Path(scratch) / path.name
        yield temporary
        temporary.replace(path)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, or leave what is there."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
