"""Text files line by line, whole or in part."""

import codecs
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tnn.data.compressed import OPENERS, reading

LINE = 2**20  # bytes; a longer line is read in pieces, so that a huge line does not fill the memory
WHOLE = 20  # parts are given in twentieths
NEAR = 40  # a part begins at a line end if there is one within one part in so many of the file
CONTINUATION = bytes(range(0x80, 0xC0))  # UTF-8 bytes that do not start a character


def lines_of(path: Path, start: int = 0, stop: int | None = None) -> Iterator[str]:
    """The lines of a file, line ends included, from one byte to another, or from the next character.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from tnn.data.text_files import lines_of
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "text")
    ...     _ = path.write_text("one\\n\\ntwo")
    ...     list(lines_of(path))
    ['one\\n', '\\n', 'two']
    """
    decoder = codecs.getincrementaldecoder("utf-8")()  # holds an incomplete character until the next piece
    with reading(path) as file:
        stop = sys.maxsize if stop is None else _next_character(file, stop)
        start = file.seek(_next_character(file, start))
        while piece := file.readline(min(LINE, stop - start)):
            start += len(piece)
            yield decoder.decode(piece)
        decoder.decode(b"", final=True)


def bounds_of(path: Path, part: tuple[int, int]) -> tuple[int, int]:
    """Where a part in twentieths begins and ends: at line ends, or at a character if none is near."""
    size = size_of(path)
    with reading(path) as file:
        begin, end = (_line_start(file, size * place // WHOLE, size // NEAR) for place in part)
    return begin, end


def size_of(path: Path) -> int:
    """In bytes, decompressed."""
    if path.suffix not in OPENERS:
        return path.stat().st_size
    with reading(path) as file:
        return file.seek(0, io.SEEK_END)


def is_text(path: Path) -> bool:
    """Whether a file can be read to its end."""
    try:
        for _ in lines_of(path):
            pass
    except ValueError:
        return False
    return True


def _next_character(file: BinaryIO, position: int) -> int:
    """The first offset at or after `position` where a character starts, so that no character is cut in two."""
    if position == 0:
        return 0
    file.seek(position)
    after = file.read(3)
    return position + len(after) - len(after.lstrip(CONTINUATION))


def _line_start(file: BinaryIO, position: int, within: int) -> int:
    """The first offset at or after `position` where a line starts, if it is near."""
    if position == 0:
        return 0
    file.seek(position - 1)
    rest = file.readline(min(LINE, within) + 1)
    return position - 1 + len(rest) if rest.endswith(b"\n") else _next_character(file, position)
