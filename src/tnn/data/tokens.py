"""Token ids of a text on disk: tokenised once, then memory-mapped."""

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tnn._files import atomic_path, write_text
from tnn.data.corpus import Corpus
from tnn.data.encoding import Encode, Stream, batches, encoder_of, id_type, plain_backend, stream_of
from tnn.data.tokenizers import highest_id, is_byte_tokenizer, make_tokenizer, train_bpe

VERSION = 1  # of the files, and of the division of a text into shards
SHARD = 2**24  # characters; the progress is saved after each shard
CHECKED_AT_ONCE = 2**24  # ids


@dataclass(frozen=True, eq=False)
class Tokens:
    """The token ids of a text; `ids[:line_ends[k]]` are its lines 0 to k.

    Where line ends are text, a line ends with the token that holds its line end, or with `</s>`.

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
    ids = np.memmap(folder / "ids.bin", id_type(done.vocab_size), "r", shape=(done.ids,))
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

    Documents are encoded as they are, with `</s>` between two of them. If the lines of the corpus are separate, each
    line is encoded without its line end, followed by `</s>`; empty lines are kept, the spaces around the lines of
    WikiText are removed. Only the byte tokenizer then encodes the text as it is. The name of a special token in a text
    is treated as text.

    If it is interrupted, the next call continues. Other processes that need the same tokens wait for the first one.

    >>> import tempfile
    >>> from tnn.data import byte_tokenizer, open_corpus, tokenize
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tokens = tokenize(open_corpus("stdlib"), "test", byte_tokenizer(), folder)
    >>> len(tokens.ids) == tokens.bytes, tokens.vocab_size
    (True, 260)
    """
    from filelock import FileLock

    backend, as_bytes = plain_backend(tokenizer), is_byte_tokenizer(tokenizer)
    key = json.dumps([VERSION, corpus.fingerprint(split), backend.to_str(), tokenizer.eos_token_id, as_bytes])
    folder = Path(cache) / f"{split}-{hashlib.sha256(key.encode()).hexdigest()[:24]}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        encode = encoder_of(tokenizer, backend, corpus, as_bytes)
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
                tokenizer = bpe_of(corpus, int(size), mask=mask)
                with atomic_path(folder) as temporary:
                    tokenizer.save_pretrained(temporary)
    return make_tokenizer(folder, mask=mask)


def bpe_of(corpus: Corpus, size: int, *, mask: bool = False) -> Any:
    """A tokenizer trained on the training split of a corpus, as the corpus is tokenised.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from tnn.data import open_corpus
    >>> from tnn.data.tokens import bpe_of
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "train.txt").write_text("if x:\\n    if y:\\n    if z:")
    ...     bpe_of(open_corpus(folder), 300).tokenize("x:\\n    if y")
    ['x', ':', 'ĊĠĠĠ', 'Ġif', 'Ġy']
    """
    if corpus.separate:
        return train_bpe((line.rstrip("\r\n") for line in corpus.lines("train")), size, mask=mask)
    return train_bpe((piece for piece in stream_of(corpus, "train") if piece is not None), size, mask=mask)


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
    for name, size in (("ids.bin", done.ids * id_type(done.vocab_size).itemsize), ("line_ends.bin", done.lines * 8)):
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


def _write(folder: Path, stream: Stream, encode: Encode, vocab_size: int) -> None:
    """Tokenise into FOLDER.part, which is renamed to FOLDER at the end."""
    part = Path(f"{folder}.part")
    part.mkdir(exist_ok=True)
    state, done = part / "progress.json", _continued(part, vocab_size)
    dtype = id_type(vocab_size)
    with (part / "ids.bin").open("ab") as ids_file, (part / "line_ends.bin").open("ab") as ends_file:
        ids_file.truncate(done.ids * dtype.itemsize)
        ends_file.truncate(done.lines * 8)
        for shard, batch in enumerate(batches(stream, SHARD)):
            if shard < done.shards:
                continue
            ids, ends = encode(batch)
            ids_file.write(ids.astype(dtype).tobytes())
            ends_file.write((done.ids + ends).astype(np.int64).tobytes())
            done = _advance(done, batch, len(ids), len(ends))
            for file in (ids_file, ends_file):
                file.flush()
                os.fsync(file.fileno())
            write_text(state, json.dumps(asdict(done)))
    part.rename(folder)


def _advance(done: _Progress, batch: list[str | None], ids: int, lines: int) -> _Progress:
    text = "".join(" " if piece is None else piece for piece in batch)  # no word goes on in the next document
    return _Progress(
        vocab_size=done.vocab_size,
        shards=done.shards + 1,
        ids=done.ids + ids,
        lines=done.lines + lines,
        words=done.words + len(text.split()) + text.count("\n"),
        bytes=done.bytes + len(text.encode()) - batch.count(None),
    )


def _read(corpus: Corpus, split: str, progress: bool) -> Stream:
    """What is encoded; an error if there is nothing."""
    from tqdm import tqdm

    piece = None
    disable = None if progress else True  # None: tqdm shows the bar in a terminal only
    with tqdm(desc=f"tokenizing {split}", unit=" characters", unit_scale=True, disable=disable) as bar:
        for piece in stream_of(corpus, split):
            bar.update(len(piece or ""))
            yield piece
    if piece is None:
        raise ValueError(f"the {split} split of {corpus.name} is empty; data.{split}=FILE gives another text for it")


@contextmanager
def _full_disk(cache: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise OSError(errno.ENOSPC, f"no space left for tokens in {cache}; finished parts are kept") from None
