"""Files that may be compressed (.xz, .gz)."""

import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast


def find_file(path: Path) -> Path:
    """`path` if it exists, else `path` with .xz or .gz appended if that exists, else `path`."""
    if path.is_file():
        return path
    compressed = (path.with_name(path.name + suffix) for suffix in (".xz", ".gz"))
    return next((candidate for candidate in compressed if candidate.is_file()), path)


@contextmanager
def reading(path: Path) -> Iterator[BinaryIO]:
    """A file opened for reading bytes, decompressed if its name ends in .xz or .gz.

    >>> import gzip, tempfile
    >>> from pathlib import Path
    >>> from tnn.data.compressed import reading
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "text.gz")
    ...     _ = path.write_bytes(gzip.compress(b"some text"))
    ...     with reading(path) as file:
    ...         file.read()
    b'some text'
    """
    opener: Any = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
    try:
        with opener(path, "rb") as file:
            yield cast(BinaryIO, io.BufferedReader(file, 2**20))  # compressed files are slow to read line by line
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a UTF-8 text") from None
    except (lzma.LZMAError, zlib.error, gzip.BadGzipFile, EOFError) as error:
        raise ValueError(f"{path} cannot be decompressed: {error}") from None
