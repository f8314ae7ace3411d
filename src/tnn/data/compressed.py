"""Files that may be packed."""

import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast


def find_file(path: Path) -> Path:
    """The file of that name, or of that name with .xz or .gz after it; the name itself if there is none."""
    packed = (path.with_name(path.name + suffix) for suffix in (".xz", ".gz"))
    return next((other for other in packed if other.is_file() and not path.is_file()), path)


@contextmanager
def reading(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked if its name ends in .xz or .gz.

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
            yield cast(BinaryIO, io.BufferedReader(file, 2**20))  # packed files are slow by the line
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a UTF-8 text") from None
    except (lzma.LZMAError, zlib.error, gzip.BadGzipFile, EOFError) as error:
        raise ValueError(f"{path} cannot be unpacked: {error}") from None
