"""What a user gives to be predicted: a file, a text, or the lines of standard input."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

LONGEST_SHOWN = 60  # characters of a text in a message
FILES = (".txt", ".json", ".xls", ".xlsx", ".xz", ".gz", ".zip")  # endings of a word that is no text


def source_kind(source: str, is_file_name: Callable[[Path], bool]) -> Literal["lines", "file", "text"]:
    """Which of them a word on the command line is. A file that is not there is an error, if the word is like its name.

    >>> from tnn.training.text_source import source_kind
    >>> source_kind("-", lambda path: False), source_kind("A fine film.", lambda path: False)
    ('lines', 'text')
    """
    if source == "-":
        return "lines"
    if source.startswith("hf:") or os.path.exists(source):
        return "file"
    if is_file_name(Path(source)) or _looks_like_a_path(source):
        shown = source if len(source) <= LONGEST_SHOWN else f"{source[:LONGEST_SHOWN]}..."
        raise FileNotFoundError(f"there is no file {shown}; a text that looks like a path can be given by -")
    return "text"


def _looks_like_a_path(source: str) -> bool:
    is_word = bool(source) and not any(map(str.isspace, source))
    return is_word and ("/" in source or os.sep in source or source.lower().endswith(FILES))
