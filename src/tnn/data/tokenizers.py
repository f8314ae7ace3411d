"""Tokenizers: one token per byte, GPT-2's BPE, a BPE trained on a text, and saved ones."""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

SPECIAL = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
GPT2_END = "<|endoftext|>"
BYTE_VOCABULARY = len(SPECIAL) + 256
LARGEST_VOCABULARY = 10_000_000  # the trainer reserves memory for all of it
SAVED, SETTINGS = "tokenizer.json", "tokenizer_config.json"
VOCABULARIES = (SAVED, "vocab.*", "merges.txt", "*.model")
FILES = ("tokenizer*", *VOCABULARIES, "special_tokens_map.json", "added_tokens.json", "chat_template*")
GPT2_FILES = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))
UNUSED = 3  # extra entries, as in fairseq's dictionary for GPT-2, so that models with 50,264 tokens fit


def byte_tokenizer(mask: bool = False) -> "PreTrainedTokenizerFast":
    """One token per byte of the UTF-8 text: byte b has id 4 + b, after `<s>`, `<pad>`, `</s>` and `<unk>`.

    Decoding gives back any text exactly, and no special token is added; the name of a special token in a text is
    treated as text. With `mask`, `<mask>` has id 260, and the name of a special token stands for that token.

    >>> from tnn.data import byte_tokenizer
    >>> tokenizer = byte_tokenizer()
    >>> tokenizer("hé")["input_ids"]
    [108, 199, 173]
    >>> tokenizer.decode([108, 199, 173])
    'hé'
    """
    return _byte_level([*SPECIAL.values(), *_byte_characters()], [], mask, regex=False)


def gpt2_tokenizer(folder: str | Path, mask: bool = False) -> "PreTrainedTokenizerFast":
    """GPT-2's byte-level BPE from its two files, encoder.json and vocab.bpe or vocab.json and merges.txt.

    GPT-2's id i becomes 4 + i, after `<s>`, `<pad>`, `</s>` and `<unk>`; three unused entries follow, as in fairseq's
    dictionary: 50,264 in all. With `mask`, `<mask>` has id 50,264.

    >>> from tnn.data.tokenizers import gpt2_tokenizer
    >>> gpt2_tokenizer("gpt2")("Hello world")["input_ids"]  # doctest: +SKIP
    [15500, 999]
    """
    vocabulary, merges = _gpt2_files(Path(folder))
    ids = _read_vocabulary(vocabulary)
    unused = [f"<unused{i}>" for i in range(UNUSED)]
    try:
        return _byte_level([*SPECIAL.values(), *ids, *unused], _read_merges(merges), mask)
    except Exception as error:  # the backend raises plain Exception
        raise ValueError(f"{merges} does not fit {vocabulary}: {error}") from None


def _gpt2_files(folder: Path) -> tuple[Path, Path]:
    for names in GPT2_FILES:
        vocabulary, merges = (folder / name for name in names)
        if vocabulary.is_file() and merges.is_file():
            return vocabulary, merges
    raise FileNotFoundError(f"{folder} has neither encoder.json and vocab.bpe nor vocab.json and merges.txt")


def _read_vocabulary(path: Path) -> list[str]:
    try:
        ids: dict[str, int] = json.loads(path.read_text(encoding="utf-8"))
        tokens = [token for token, _ in sorted(ids.items(), key=lambda entry: entry[1])]
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f"{path} must hold a JSON object that maps tokens to ids") from None
    if sorted(ids.values()) != list(range(len(ids))):
        raise ValueError(f"{path} must number its {len(ids)} tokens from 0 to {len(ids) - 1}")
    if missing := set(_byte_characters()).difference(ids):
        raise ValueError(f"{path} is not a byte-level vocabulary: it lacks {len(missing)} of the 256 bytes")
    return tokens


def _read_merges(path: Path) -> list[tuple[str, str]]:
    lines = path.read_text(encoding="utf-8").split("\n")
    pairs = (line.partition(" ") for line in lines if line and not line.startswith("#version"))
    return [(left, right) for left, _, right in pairs]


def train_bpe(texts: Iterable[str], vocab_size: int, mask: bool = False) -> "PreTrainedTokenizerFast":
    """Byte-level BPE, like GPT-2's, trained on texts: `vocab_size` entries, or fewer if the texts run out of pairs.

    Line ends are characters like others: entries may hold a line end and the indentation after it. `<mask>` comes after
    all entries.

    >>> from tnn.data import train_bpe
    >>> tokenizer = train_bpe(["the cat", "the hat"], vocab_size=264)
    >>> len(tokenizer), tokenizer.tokenize("the mat")
    (264, ['the', 'Ġ', 'm', 'at'])
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    if vocab_size < BYTE_VOCABULARY:
        raise ValueError(
            f"vocab_size must be at least {BYTE_VOCABULARY}, the bytes and special tokens; got {vocab_size}"
        )
    if vocab_size > LARGEST_VOCABULARY:
        raise ValueError(f"vocab_size must be at most {LARGEST_VOCABULARY:,}; got {vocab_size:,}")
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL.values()),
        initial_alphabet=_byte_characters(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return _wrap(backend, mask)


def _byte_level(
    tokens: list[str], merges: list[tuple[str, str]], mask: bool, regex: bool = True
) -> "PreTrainedTokenizerFast":
    from tokenizers import Tokenizer, models, pre_tokenizers

    backend = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)
    return _wrap(backend, mask)


def _wrap(backend: "Tokenizer", mask: bool) -> "PreTrainedTokenizerFast":
    from tokenizers import decoders
    from transformers import PreTrainedTokenizerFast

    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        padding_side="left",
        split_special_tokens=not mask,
        clean_up_tokenization_spaces=False,
        **SPECIAL | ({"mask_token": "<mask>"} if mask else {}),
    )


def _byte_characters() -> list[str]:
    """The character that stands for each byte in byte-level vocabularies: the byte itself if it is printable."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [b for b in range(256) if b not in visible]
    return [chr(b) if b in visible else chr(256 + hidden.index(b)) for b in range(256)]


def byte_values() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for.

    >>> from tnn.data.tokenizers import byte_values
    >>> byte_values()["Ġ"]
    32
    """
    return {character: value for value, character in enumerate(_byte_characters())}


def make_tokenizer(spec: str | Path, mask: bool = False) -> "PreTrainedTokenizerFast":
    """The tokenizer that a recipe names: "bytes", a folder with GPT-2's files, or a saved tokenizer.

    A saved tokenizer is a folder written by `save_pretrained`, or a tokenizer.json with the special tokens of this
    package (`<s>`, `<pad>`, `</s>`, `<unk>`, `<mask>`). With `mask` the tokenizer has a mask token; a saved one must
    have it already.

    >>> from tnn.data import make_tokenizer
    >>> len(make_tokenizer("bytes", mask=True))
    261
    """
    path = Path(spec)
    if str(spec) == "bytes":
        return byte_tokenizer(mask)
    if not path.exists():
        raise FileNotFoundError(f'no tokenizer {spec}: it must be "bytes", a folder or a tokenizer.json')
    if path.is_dir() and not any((path / name).exists() for name in (SAVED, SETTINGS)):
        return gpt2_tokenizer(path, mask)
    return _saved_tokenizer(path, mask)


def _saved_tokenizer(path: Path, mask: bool) -> "PreTrainedTokenizerFast":
    from transformers import PreTrainedTokenizerFast

    folder = path if path.is_dir() else path.parent
    with _reading(path):
        if (folder / SETTINGS).exists():
            tokenizer = _from_pretrained(folder)
        else:  # a bare tokenizer.json does not say which tokens are special: go by name
            tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / SAVED if path.is_dir() else path))
            names = SPECIAL | {"mask_token": "<mask>"}
            tokenizer.add_special_tokens({role: t for role, t in names.items() if t in tokenizer.get_vocab()})
        _complete(tokenizer, path)
    if mask and tokenizer.mask_token is None:
        raise ValueError(f"the tokenizer {path} has no mask token; masked language models need one")
    return tokenizer


def _from_pretrained(folder: Path) -> Any:
    """Nothing is downloaded, and no code of the folder is run or asked for."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        if "trust_remote_code" in str(error):  # transformers' advice, which no command can follow
            raise ValueError("it needs code of its own, and commands run none") from None
        if not any(file for pattern in VOCABULARIES for file in folder.glob(pattern)):
            raise ValueError(f"its {SAVED} is missing, which save_pretrained writes beside {SETTINGS}") from None
        raise


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever the libraries raise for damaged files becomes a ValueError; the backend even panics."""
    try:
        with _no_report_of_panics():
            yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        kind = "" if type(error) in (Exception, ValueError, OSError) else f"{type(error).__name__}: "
        raise ValueError(f"{path} does not hold a tokenizer: {kind}{error}") from None


@contextmanager
def _no_report_of_panics() -> Iterator[None]:
    """A panic in Rust prints a backtrace to the file descriptor of stderr; anything else is printed afterwards."""
    with TemporaryFile() as kept:
        stderr = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            kept.seek(0)
            if b"panicked at" not in (printed := kept.read()):
                os.write(2, printed)


def _complete(tokenizer: Any, path: Path) -> None:
    """Fill in missing special tokens. GPT-2 has a single one, which then also starts texts and pads them."""
    if tokenizer.eos_token is None and GPT2_END in tokenizer.get_vocab():
        tokenizer.eos_token = GPT2_END
    if tokenizer.eos_token is None:
        raise ValueError(f"the tokenizer {path} has no end-of-text token, such as {SPECIAL['eos_token']} or {GPT2_END}")
    for role in ("bos_token", "pad_token"):
        if getattr(tokenizer, role) is None:
            setattr(tokenizer, role, tokenizer.eos_token)


def highest_id(tokenizer: Any) -> int:
    """The highest token id, which may exceed the number of tokens: a vocabulary can have gaps.

    >>> from tnn.data.tokenizers import byte_tokenizer, highest_id
    >>> highest_id(byte_tokenizer())
    259
    """
    return max(tokenizer.get_vocab().values())


def load_tokenizer(folder: Path, vocab_size: int) -> "PreTrainedTokenizerBase":
    """The tokenizer in a model's folder; without tokenizer files, the byte tokenizer if the vocabulary size fits.

    Its tokens must be among those of the model.

    >>> from pathlib import Path
    >>> from tnn.data.tokenizers import load_tokenizer
    >>> len(load_tokenizer(Path("no-such-folder"), vocab_size=260))
    260
    """
    if files := tokenizer_files(folder):
        if folder / SETTINGS not in files:  # the special tokens would be others, or none
            rest = f"save_pretrained writes it beside {files[0].name}"
            raise FileNotFoundError(f"the tokenizer in {folder} is not whole: {SETTINGS} is missing; {rest}")
        with _reading(folder):
            tokenizer = _from_pretrained(folder)
            size = highest_id(tokenizer) + 1
            if not isinstance(most := tokenizer.model_max_length, int | float):
                raise ValueError(f"model_max_length must be a number; got {most!r}")
        if size > vocab_size:
            raise ValueError(f"the tokenizer in {folder} has {size:,} tokens, and the model has only {vocab_size:,}")
        return tokenizer
    if vocab_size != BYTE_VOCABULARY:
        raise ValueError(
            f"{folder} has no tokenizer files; the byte tokenizer is used only with a vocabulary of "
            f"{BYTE_VOCABULARY}, and this model has {vocab_size}"
        )
    return byte_tokenizer()


def tokenizer_files(folder: Path) -> list[Path]:
    """The files in a folder that belong to a saved tokenizer.

    >>> from pathlib import Path
    >>> from tnn.data.tokenizers import tokenizer_files
    >>> tokenizer_files(Path("no-such-folder"))
    []
    """
    return sorted({path for pattern in FILES for path in folder.glob(pattern) if path.is_file()})


def is_byte_tokenizer(tokenizer: Any) -> bool:
    """Whether this is `byte_tokenizer()`, possibly saved and loaded.

    >>> from tnn.data.tokenizers import byte_tokenizer, is_byte_tokenizer
    >>> is_byte_tokenizer(byte_tokenizer())
    True
    """
    return tokenizer.split_special_tokens and tokenizer.get_vocab() == byte_tokenizer().get_vocab()
