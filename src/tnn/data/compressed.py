"""Files that may be compressed (.xz, .gz), and may be damaged: pipes, bombs and bytes that are no text are refused."""

import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

OPENERS: dict[str, Any] = {".xz": lzma.open, ".gz": gzip.open}
PIECE = 2**20  # bytes read at once: compressed files are slow to read line by line
GROWTH, ALWAYS_ALLOWED = 200, 2**28  # a file may grow by this factor, or to this many bytes if that is more


def find_file(path: Path) -> Path:
    """`path` if it exists, else `path` with .xz or .gz appended if that exists, else `path`."""
    if path.is_file():
        return path
    compressed = (path.with_name(path.name + suffix) for suffix in OPENERS)
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
    try:
        with _open(path) as file:
            yield file
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a UTF-8 text{_first_odd_byte(path)}") from None
    except (lzma.LZMAError, zlib.error, gzip.BadGzipFile, EOFError) as error:
        raise ValueError(f"{path} cannot be decompressed: {error}") from None


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    if path.exists() and not path.is_file():  # to read from a pipe could take forever
        raise ValueError(f"{path} must be a file; it is a folder, a pipe or a device")
    if path.suffix not in OPENERS:
        with path.open("rb", PIECE) as plain:
            yield plain
        return
    with OPENERS[path.suffix](path, "rb") as file:
        yield cast(BinaryIO, io.BufferedReader(_Bounded(file, path), PIECE))


class _Bounded(io.RawIOBase):
    """A compressed file that does not grow without bound: a few kilobytes can hold terabytes of zeros."""

    def __init__(self, file: Any, path: Path) -> None:
        self._file, self._path = file, path
        self._limit = max(ALWAYS_ALLOWED, GROWTH * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        count: int = self._file.readinto(buffer)
        if self._file.tell() > self._limit:
            raise ValueError(
                f"{self._path} grows to more than {GROWTH} times its size and {ALWAYS_ALLOWED >> 20} MiB; "
                "if that is right, decompress it first"
            )
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if whence != io.SEEK_END:
            return int(self._file.seek(offset, whence))
        while self.readinto(bytearray(PIECE)):
            pass
        return int(self._file.seek(offset, io.SEEK_CUR))

    def tell(self) -> int:
        return int(self._file.tell())


def _first_odd_byte(path: Path) -> str:
    """Where a text stops being UTF-8, for the message."""
    decoder, before = codecs.getincrementaldecoder("utf-8")(), 0
    with _open(path) as file:
        while True:
            piece = file.read(PIECE)
            held = len(decoder.getstate()[0])
            try:
                decoder.decode(piece, final=not piece)
            except UnicodeDecodeError as error:
                return f": see byte {before - held + error.start}"
            if not piece:
                return ""
            before += len(piece)
