"""Token ids of a text on disk: tokenised once, then memory-mapped."""

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tnn._files import atomic_path, write_text
from tnn.data.corpus import Corpus
from tnn.data.tokenizers import SPECIAL, highest_id, is_byte_tokenizer, make_tokenizer, train_bpe

VERSION = 1  # of the files, and of the division of a text into shards
SHARD = 2**24  # characters; the progress is saved after each shard
BATCH = 2**20  # characters per call of the tokenizer
CHECKED_AT_ONCE = 2**24  # ids
Encode = Callable[[list[str]], tuple[np.ndarray, np.ndarray]]  # lines -> ids of all lines, number of ids per line


@dataclass(frozen=True, eq=False)
class Tokens:
    """The token ids of a text; `ids[:line_ends[k]]` are its lines 0 to k.

    `words` counts words separated by white space plus one per line end, as the tables of WikiText do. `bytes` is the
    size of the text in UTF-8, line ends included.
    """

    ids: np.ndarray  # (n,) uint16 or uint32
    line_ends: np.ndarray  # (lines,) int64
    words: int
    bytes: int
    vocab_size: int

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process gets the path of a mapped file, not its contents."""
        if isinstance(self.ids, np.memmap):
            return _map, (Path(str(self.ids.filename)).parent,)
        return Tokens, (self.ids, self.line_ends, self.words, self.bytes, self.vocab_size)


def open_tokens(folder: Path) -> Tokens:
    """The tokens in a folder that `tokenize` has written into its cache. A ValueError if they were damaged since."""
    try:
        tokens = _map(folder)
        _check(tokens)
    except (ValueError, OSError) as error:
        raise ValueError(
            f"the tokens in {folder} are damaged: {error}; delete that folder, and they are made again"
        ) from None
    return tokens


def _map(folder: Path) -> Tokens:
    done = _read_progress(folder)
    ids = np.memmap(folder / "ids.bin", _dtype(done.vocab_size), "r", shape=(done.ids,))
    line_ends = np.memmap(folder / "line_ends.bin", np.int64, "r", shape=(done.lines,))
    return Tokens(ids, line_ends, done.words, done.bytes, done.vocab_size)


def _check(tokens: Tokens) -> None:
    """Every id is in the vocabulary, and the lines end one after the other, the last one with the text."""
    for start in range(0, len(tokens.ids), CHECKED_AT_ONCE):
        if (highest := int(tokens.ids[start : start + CHECKED_AT_ONCE].max())) >= tokens.vocab_size:
            raise ValueError(f"there is an id {highest} in a vocabulary of {tokens.vocab_size}")
    if tokens.line_ends[0] < 0 or np.any(np.diff(tokens.line_ends) < 0) or tokens.line_ends[-1] != len(tokens.ids):
        raise ValueError("its lines do not end one after the other")


def cache_folder(given: str | Path | None = None) -> Path:
    """The folder for tokens: `given`, or the environment variable TNN_CACHE, or ~/.cache/toeplitz-nn.

    >>> from tnn.data.tokens import cache_folder
    >>> cache_folder("somewhere").name
    'somewhere'
    """
    return Path(given or os.environ.get("TNN_CACHE") or "~/.cache/toeplitz-nn").expanduser()


def tokenize(corpus: Corpus, split: str, tokenizer: Any, cache: str | Path, *, progress: bool = True) -> Tokens:
    """The token ids of a split, from the folder `cache` if this tokenizer has tokenised this text before.

    The byte tokenizer encodes the text as it is. Other tokenizers encode each line without its line end, followed by
    `</s>`; empty lines are kept, the spaces around the lines of WikiText are removed. The name of a special token in a
    text is treated as text.

    If it is interrupted, the next call continues. Other processes that need the same tokens wait for the first one.

    >>> import tempfile
    >>> from tnn.data import byte_tokenizer, open_corpus, tokenize
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tokens = tokenize(open_corpus("stdlib"), "test", byte_tokenizer(), folder)
    >>> len(tokens.ids) == tokens.bytes, tokens.vocab_size
    (True, 260)
    """
    from filelock import FileLock

    backend, as_bytes = _plain_backend(tokenizer), is_byte_tokenizer(tokenizer)
    key = json.dumps([VERSION, corpus.fingerprint(split), backend.to_str(), tokenizer.eos_token_id, as_bytes])
    folder = Path(cache) / f"{split}-{hashlib.sha256(key.encode()).hexdigest()[:24]}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        encode = _encode_bytes if as_bytes else _line_encoder(backend, tokenizer.eos_token_id, corpus.strip)
        with FileLock(f"{folder}.lock"), _full_disk(folder.parent):
            if not folder.exists():
                _write(folder, _read(corpus, split, progress), encode, highest_id(tokenizer) + 1)
    return open_tokens(folder)


def tokenizer_for(spec: str, corpus: Corpus, *, mask: bool, cache: Path) -> Any:
    """Like `make_tokenizer`; in addition "bpe:SIZE" trains a tokenizer on the corpus, once, and keeps it in the cache.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from tnn.data import open_corpus
    >>> from tnn.data.tokens import tokenizer_for
    >>> len(tokenizer_for("bytes", open_corpus("stdlib"), mask=False, cache=Path("unused")))
    260
    """
    if not spec.startswith("bpe:"):
        return make_tokenizer(spec, mask=mask)
    from filelock import FileLock

    size = spec.removeprefix("bpe:")
    if not size.isdecimal():
        raise ValueError(f"the tokenizer must be bpe:SIZE, such as bpe:8000; got {spec!r}")
    key = hashlib.sha256(f"{corpus.fingerprint('train')} {size} {mask}".encode()).hexdigest()[:24]
    folder = cache / f"tokenizer-{key}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"), _full_disk(cache):
            if not folder.exists():
                tokenizer = train_bpe(corpus.lines("train"), int(size), mask=mask)
                with atomic_path(folder) as temporary:
                    tokenizer.save_pretrained(temporary)
    return make_tokenizer(folder, mask=mask)


@dataclass
class _Progress:
    """How much of a text is tokenised; anything in the files beyond that is ignored."""

    vocab_size: int
    shards: int = 0
    ids: int = 0
    lines: int = 0
    words: int = 0
    bytes: int = 0


def _read_progress(folder: Path, *, interrupted: bool = False) -> _Progress:
    """What a progress.json says, if the other files have that size; they may be longer after an interruption."""
    values = json.loads((folder / "progress.json").read_bytes())
    if not isinstance(values, dict) or values.keys() != asdict(_Progress(0)).keys():
        raise ValueError("its progress.json must have the keys " + ", ".join(asdict(_Progress(0))))
    if not all(type(value) is int and value >= 1 for value in values.values()):
        raise ValueError("its progress.json must hold numbers above 0")
    done = _Progress(**values)
    for name, size in (("ids.bin", done.ids * _dtype(done.vocab_size).itemsize), ("line_ends.bin", done.lines * 8)):
        found = (folder / name).stat().st_size
        if found < size or (found > size and not interrupted):
            raise ValueError(f"{name} must have {size} bytes; it has {found}")
    return done


def _continued(part: Path, vocab_size: int) -> _Progress:
    """How far an interrupted call came; the beginning if that cannot be trusted."""
    try:
        done = _read_progress(part, interrupted=True)
    except (ValueError, OSError):
        return _Progress(vocab_size)
    return done if done.vocab_size == vocab_size else _Progress(vocab_size)


def _write(folder: Path, lines: Iterable[str], encode: Encode, vocab_size: int) -> None:
    """Tokenise into FOLDER.part, which is renamed to FOLDER at the end."""
    part = Path(f"{folder}.part")
    part.mkdir(exist_ok=True)
    state, done = part / "progress.json", _continued(part, vocab_size)
    dtype = _dtype(vocab_size)
    with (part / "ids.bin").open("ab") as ids_file, (part / "line_ends.bin").open("ab") as ends_file:
        ids_file.truncate(done.ids * dtype.itemsize)
        ends_file.truncate(done.lines * 8)
        for shard, batch in enumerate(_batches(lines, SHARD)):
            if shard < done.shards:
                continue
            ids, counts = encode(batch)
            ids_file.write(ids.astype(dtype).tobytes())
            ends_file.write((done.ids + np.cumsum(counts, dtype=np.int64)).tobytes())
            done = _advance(done, batch, len(ids))
            for file in (ids_file, ends_file):
                file.flush()
                os.fsync(file.fileno())
            write_text(state, json.dumps(asdict(done)))
    part.rename(folder)


def _advance(done: _Progress, lines: list[str], ids: int) -> _Progress:
    text = "".join(lines)
    return _Progress(
        vocab_size=done.vocab_size,
        shards=done.shards + 1,
        ids=done.ids + ids,
        lines=done.lines + len(lines),
        words=done.words + len(text.split()) + text.count("\n"),
        bytes=done.bytes + len(text.encode()),
    )


def _dtype(vocab_size: int) -> np.dtype[Any]:
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)


def _plain_backend(tokenizer: Any) -> Any:
    """A copy of the tokenizer's backend that treats the names of special tokens as text."""
    from tokenizers import Tokenizer

    if tokenizer.eos_token_id is None:
        raise ValueError("the tokenizer must have an end-of-text token, such as </s>")
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_padding()
    backend.no_truncation()
    backend.encode_special_tokens = True
    return backend


def _line_encoder(backend: Any, eos: int, strip: bool) -> Encode:
    end, strip_line = np.array([eos]), str.strip if strip else _without_end

    def encode(lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
        rows = []
        for batch in _batches(map(strip_line, lines), BATCH):
            for encoding in backend.encode_batch_fast(batch, add_special_tokens=False):
                rows += [np.array(encoding.ids), end]
        return np.concatenate(rows), np.array([len(row) for row in rows]).reshape(-1, 2).sum(axis=1)

    return encode


def _encode_bytes(lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
    ids = np.frombuffer("".join(lines).encode(), np.uint8).astype(np.uint16) + len(SPECIAL)
    return ids, np.array([len(line.encode()) for line in lines])


def _without_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def _batches(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of lines, each with at least `size` characters except the last."""
    batch, held = [], 0
    for line in lines:
        batch.append(line)
        held += len(line)
        if held >= size:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _read(corpus: Corpus, split: str, progress: bool) -> Iterator[str]:
    """The lines of a split; an error if there are none."""
    from tqdm import tqdm

    line = None
    disable = None if progress else True  # None: tqdm shows the bar in a terminal only
    for line in tqdm(corpus.lines(split), f"tokenizing {split}", unit=" lines", disable=disable):
        yield line
    if line is None:
        raise ValueError(f"the {split} split of {corpus.name} is empty")


@contextmanager
def _full_disk(cache: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise OSError(errno.ENOSPC, f"no space left for tokens in {cache}; finished parts are kept") from None
