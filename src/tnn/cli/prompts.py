"""Where a prompt comes from: the command line, a file, or standard input."""

import sys
from pathlib import Path
from typing import BinaryIO

from tnn._machine import physical_memory

STANDARD_INPUT = "-"
MEMORY = 256  # bytes that are needed for a byte of the prompt: its tokens, several times


def read_prompt(prompt: str | None, file: Path | None) -> str:
    """The text, exactly as it is, line ends included.

    >>> from tnn.cli.prompts import read_prompt
    >>> read_prompt("def f(", None)
    'def f('
    """
    if prompt is None and file is None:
        raise ValueError("give a prompt: --prompt TEXT, --prompt - for standard input, or --prompt-file FILE")
    if prompt is not None and file is not None:
        raise ValueError("give either --prompt or --prompt-file, not both")
    if file is not None:
        with file.open("rb") as opened:
            return _read(opened, str(file))
    assert prompt is not None
    if prompt == STANDARD_INPUT:
        if sys.stdin is None:
            raise ValueError("--prompt - reads standard input, which is closed")
        return _read(sys.stdin.buffer, "standard input")
    prompt.encode()  # a ValueError if the terminal gave invalid text
    return prompt


def _read(file: BinaryIO, name: str) -> str:
    memory = physical_memory()
    most = None if memory is None else memory // MEMORY
    content = file.read(-1 if most is None else most + 1)
    if most is not None and len(content) > most:
        raise ValueError(f"{name} is too long for a prompt: this machine has memory for {most / 1e6:,.0f} MB")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not a UTF-8 text: see byte {error.start}") from None
