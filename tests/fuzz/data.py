"""Data: texts, tables, images, and the cache of tokens."""

import gzip
import json
import lzma
import os
import pickle
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.fuzz.judge import CACHE, Case, Check, Result, anything, run
from tests.fuzz.mutations import ODD, changed, damaged
from tests.fuzz.samples import Samples, gzipped, sentences, write_idx

PIECES = ["\r\n", "\n", "\0", "\ufeff", "é", "∑", "\u2028", "\x85", "😀", "<s>", "</s>", "\t", "a", "word ", " "]


def texts(rng: Random, samples: Samples, here: Path) -> Case:
    """Files and folders of text, through `data prepare`, whose counts are known."""
    if (kind := rng.random()) < 0.25:
        return _odd_folder(rng, here)
    if kind < 0.4:
        return _records(rng, here)
    text = rng.choice([sentences(rng, rng.randrange(12)), "".join(rng.choices(PIECES, k=rng.randrange(200)))])
    data = text.encode()
    if rng.random() < 0.4:
        data = damaged(data, rng)
    suffix, pack = rng.choice([("", bytes), ("", bytes), (".gz", gzipped), (".xz", lzma.compress)])
    stored = pack(data)
    broken = suffix and rng.random() < 0.4
    if broken:
        stored = damaged(stored, rng)
    if rng.random() < 0.5:
        path = here / f"text.txt{suffix}"
    else:
        path = here / "folder" / f"train.txt{suffix}"
        path.parent.mkdir()
    path.write_bytes(stored)
    source = path if path.parent == here else path.parent
    expected = _unpacked(stored, suffix) if broken else data
    args = ["data", "prepare", str(source)]
    return Case(f"{len(data)} bytes of text{suffix}", args, None if expected is None else _counts(expected))


def _records(rng: Random, here: Path) -> Case:
    """A table of texts, whole or damaged, or without the column that is asked for."""
    texts = [f"{i} " + "".join(rng.choices(PIECES, k=rng.randrange(20))) for i in range(rng.randrange(3, 40))]
    name, column = rng.choice(["a.csv", "a.tsv", "a.jsonl"]), rng.choice(["text", "text", "text", "texts"])
    if name == "a.jsonl":
        data = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    else:
        separator = "," if name == "a.csv" else "\t"
        quoted = (f'{i}{separator}"{text}"\n' for i, text in enumerate(texts))
        data = f"id{separator}text\n" + "".join(quoted)
    args = ["data", "prepare", name, "--text-column", column]
    if rng.random() < 0.4:
        (here / name).write_bytes(damaged(data.encode(), rng))
        return Case(f"{name}, damaged", args)
    (here / name).write_bytes(data.encode())
    size = sum(len(text.encode()) for text in texts)

    def check(result: Result) -> bool:
        return sum(int(line.replace(",", "").split()[5]) for line in result.out.splitlines()) == size

    return Case(f"{len(texts)} records in {name}", args, *((check, None) if column == "text" else (None, anything)))


def _unpacked(data: bytes, suffix: str) -> bytes | None:
    """What is in a damaged file, by the libraries themselves; None if it is damaged."""
    try:
        return gzip.decompress(data) if suffix == ".gz" else lzma.decompress(data)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, struct.error):
        return None


def _counts(data: bytes) -> Check | None:
    """All bytes are counted once, as tokens and as bytes; None: it is not text, and must be refused."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return None
    if not data:
        return None

    def check(result: Result) -> bool:
        rows = [line.replace(",", "").split() for line in result.out.splitlines()]
        return sum(int(row[1]) for row in rows) == sum(int(row[5]) for row in rows) == len(data)

    return check


def _odd_folder(rng: Random, here: Path) -> Case:
    """Things in a folder that are not files, or no file at all."""
    folder = here / "folder"
    folder.mkdir()
    args = ["data", "prepare", "folder"]
    kind = rng.choice(["empty", "hidden", "fifo", "dangling", "loop", "directory", "device", "named-fifo", "beside"])
    if kind == "hidden":
        (folder / ".hidden").write_text("text")
    if kind in ("fifo", "beside"):
        os.mkfifo(folder / "pipe")
    if kind == "named-fifo":
        os.mkfifo(folder / "train.txt")
    if kind == "dangling":
        (folder / "train.txt").symlink_to("nowhere")
    if kind == "loop":
        (folder / "loop").symlink_to(folder)
    if kind == "directory":
        (folder / "train.txt").mkdir()
    if kind == "device":
        (folder / "train.txt").symlink_to(rng.choice(["/dev/zero", "/dev/full"]))
    if kind == "beside":
        (folder / "text").write_text("some text of two lines\nthat is split\n")
        return Case("a pipe beside a text", args, _counts(b"some text of two lines\nthat is split\n"))
    return Case(f"folder with {kind}", args, None)


def tables(rng: Random, samples: Samples, here: Path) -> Case:
    """ListOps and GLUE: the score of a classifier."""
    model, name = rng.choice([("lists", "basic_val.tsv"), ("lists", "basic_test.tsv"), ("glue", "SST-2/dev.tsv")])
    samples.copy(f"{model}-data", here)
    path = here / f"{model}-data" / name
    args = ["evaluate", str(samples.home / model), f"{model}-data"]
    same = _same_scores(samples, model)
    header, *rows = path.read_text(encoding="utf-8").splitlines()
    kind = rng.choice(["harmless", "label", "label", "column", "header", "bytes", "packed", "missing"])
    if kind == "harmless":
        end, mark = rng.choice(["\n", "\r\n"]), rng.choice(["", "\ufeff"])
        text = mark + end.join([header, *rows]) + end * rng.choice([0, 1, 2])
        path.write_bytes(text.encode())
        return Case(f"the same {name}", args, same, None)
    if kind == "label":
        place = rng.randrange(len(rows))
        wrong = rng.choice(["", "-1", "10", "1000000000", "1e9", "nan", "inf", "x", "0.5", "é", "1e-45", "9" * 30])
        rows[place] = rows[place].rpartition("\t")[0] + "\t" + wrong
        path.write_text("\n".join([header, *rows]), encoding="utf-8")
        return Case(f"label {wrong!r}", args, None)
    if kind == "column":
        place = rng.randrange(len(rows))
        rows[place] = rng.choice([rows[place].split("\t")[0], rows[place].replace("\t", " ")])
        path.write_text("\n".join([header, *rows]), encoding="utf-8")
        return Case("a row with too few columns", args, None)
    if kind == "header":
        path.write_text(
            "\n".join([rng.choice(["", "x\ty", header.upper(), header.split("\t")[0]]), *rows]), encoding="utf-8"
        )
        return Case("another header", args, None)
    if kind == "packed":
        whole = path.read_bytes()
        suffix, pack = rng.choice([(".gz", gzipped), (".xz", lzma.compress)])
        stored = pack(whole) if rng.random() < 0.5 else damaged(pack(whole), rng)
        path.unlink()
        path.with_name(path.name + suffix).write_bytes(stored)
        unpacked = _unpacked(stored, suffix)
        return Case(f"{name}{suffix}", args, same if unpacked == whole else None if unpacked is None else _scores)
    if kind == "missing":
        path.unlink()
        return Case(f"no {name}", args, None)
    data = damaged(path.read_bytes(), rng)
    path.write_bytes(data)
    return Case(f"damaged {name}", args, _scores if _is_text(data) else None)


def labelled(rng: Random, samples: Samples, here: Path) -> Case:
    """A table of texts: predictions of a classifier, one per row."""
    texts = ["".join(rng.choices(PIECES, k=rng.randrange(1, 30))) + "." for _ in range(rng.randrange(1, 70))]
    args = ["predict", str(samples.home / "labelled"), "table.jsonl"]
    kind = rng.choice(["harmless", "harmless", "value", "value", "column", "bytes"])
    rows: list[dict[str, Any]] = [{"text": text, "other": rng.choice(ODD)} for text in texts]
    if kind == "value":
        rows[rng.randrange(len(rows))]["text"] = rng.choice([*ODD, " ", "a"])
    if kind == "column":
        rows = [{rng.choice(["Text", "texts", ""]): text} for text in texts]
    data = "".join(json.dumps(row) + rng.choice(["\n", "\r\n", "\n\n"]) for row in rows).encode()
    if kind == "bytes":
        data = damaged(data, rng)
    (here / "table.jsonl").write_bytes(data)
    if kind == "bytes":
        return Case("a damaged table", args, _has_predictions)
    read = [row.get("text") for row in rows]
    if not all(isinstance(text, str) and _is_readable(text) for text in read):
        return Case(f"a table with another {kind}", args, None)
    return Case(
        "a table",
        args,
        lambda result: _has_predictions(result) and [row["text"] for row in _rows(result)] == read,
        None,
    )


def tagged(rng: Random, samples: Samples, here: Path) -> Case:
    """A file of tagged words: scores of a classifier of tokens, or the labels that it finds."""
    path = here / "words.conll"
    rows = (samples.home / "tagged-data" / "train.conll").read_text(encoding="utf-8").split("\n")
    args = [rng.choice(["evaluate", "predict"]), str(samples.home / "tagged"), path.name]
    kind = rng.choice(["harmless", "harmless", "tag", "columns", "bytes", "bytes"])
    place = rng.choice([k for k, row in enumerate(rows) if row])
    if kind == "harmless":
        end = rng.choice(["\n", "\r\n"])
        rows.insert(rng.choice([0, len(rows)]), rng.choice(["", " ", "\t", "# a comment of six words", "-DOCSTART- O"]))
        path.write_bytes((rng.choice(["", "\ufeff"]) + end.join(rows) + end * rng.randrange(3)).encode())
        sentences = "\n".join(row for row in rows if not row.startswith(("#", "-D"))).split("\n\n")
        texts = [" ".join(row.split()[0] for row in some.splitlines() if row.strip()) for some in sentences]
        expected = [text for text in texts if text]

        def same(result: Result) -> bool:
            return [row["text"] for row in _rows(result)] == expected

        return Case("tagged words", args, same if args[0] == "predict" else _scores_of_spans, None)
    if kind == "tag":
        rows[place] = f"{rows[place].split()[0]} {rng.choice(['X', 'B-', 'B-O', 'Z-PER', '-', 'B-NOBODY', 'é'])}"
    if kind == "columns":
        rows[place] = rng.choice([rows[place] + " x", rows[place].split()[0], "x y z"])
    data = "\n".join(rows).encode()
    path.write_bytes(damaged(data, rng) if kind == "bytes" else data)
    if kind == "bytes":
        return Case("damaged tagged words", args, _scores_of_spans if args[0] == "evaluate" else anything)
    if kind == "tag" and args[0] == "predict":
        return Case("another tag, which is not read", args, anything, None)
    return Case(f"tagged words with another {kind}", args, None)


def _scores_of_spans(result: Result) -> bool:
    return all(0 <= float(score) <= 1 for score in re.findall(r"^\w.*?(\S+) on ", result.out, re.MULTILINE))


def _is_readable(text: str) -> bool:
    return bool(text.strip()) and _is_text(text.encode(errors="surrogatepass"))


def _rows(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.out.split("\n")[:-1]]  # other line ends may be in a text


def _has_predictions(result: Result) -> bool:
    return all(abs(sum(row["probabilities"].values()) - 1) < 1e-5 for row in _rows(result))


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _same_scores(samples: Samples, model: str) -> Check:
    def check(result: Result) -> bool:
        return result.out == samples.reference(["evaluate", model])

    return check


def _scores(result: Result) -> bool:
    """Scores of other examples are other scores; but they are scores."""
    rows = [line.split() for line in result.out.splitlines()]
    return all(0 <= float(row[1]) <= 1 and int(row[4]) > 0 for row in rows) and bool(rows)


def arrays(rng: Random, samples: Samples, here: Path) -> Case:
    """The idx files of MNIST, numpy's, and the batches of CIFAR-10."""
    if rng.random() < 0.25:
        return _batches(rng, samples, here)
    samples.copy("image-data", here)
    folder = here / "image-data"
    args = ["evaluate", str(samples.home / "image"), "image-data"]
    same = _same_scores(samples, "image")
    if rng.random() < 0.5:
        _to_npy(folder)
        return _npy(rng, folder, args, same)
    path = folder / f"{rng.choice(['train', 't10k'])}-{rng.choice(['images-idx3', 'labels-idx1'])}-ubyte"
    data = path.read_bytes()
    kind = rng.choice(["packed", "claims", "label", "bytes", "cut"])
    if kind == "packed":
        suffix, pack = rng.choice([(".gz", gzipped), (".xz", lzma.compress)])
        path.unlink()
        path.with_name(path.name + suffix).write_bytes(pack(data))
        return Case(f"{path.name}{suffix}", args, same, None)
    if kind == "claims":
        axis = rng.randrange(data[3])
        wrong = rng.choice([0, 1, 2**16, 2**31, 2**32 - 1]).to_bytes(4, "big")
        path.write_bytes(data[: 4 + 4 * axis] + wrong + data[8 + 4 * axis :])
        return Case(f"{path.name} claims another size", args, None)
    if kind == "label":
        labels = np.frombuffer((folder / "t10k-labels-idx1-ubyte").read_bytes()[8:], np.uint8).copy()
        labels[rng.randrange(len(labels))] = rng.choice([2, 9, 255])
        write_idx(folder / "t10k-labels-idx1-ubyte", labels)
        return Case("a label that train does not have", args, None)
    if kind == "cut":
        path.write_bytes(data[: rng.randrange(len(data))])
        return Case(f"cut {path.name}", args, None)
    start = len(data) - (len(data) - 4 - 4 * data[3])
    head = damaged(data[:start], rng)
    path.write_bytes(head + data[start:])
    return Case(f"damaged header of {path.name}", args, same if head == data[:start] else _scores)


def _batches(rng: Random, samples: Samples, here: Path) -> Case:
    """The pickles of CIFAR-10, or its binary files; no pickle may run code."""
    folder = samples.copy("cifar-data", here)
    args = ["evaluate", str(samples.home / "cifar"), "cifar-data"]
    path = rng.choice(sorted(folder.iterdir()))
    kind = rng.choice(["binary", "bytes", "cut", "code", "values"])
    if kind == "binary":
        for stored in sorted(folder.iterdir()):
            batch = pickle.loads(stored.read_bytes())
            rows = np.c_[np.array(batch["labels"], np.uint8), batch["data"]].tobytes()
            stored.with_suffix(".bin").write_bytes(rows)
            stored.unlink()
        if rng.random() < 0.5:
            return Case("binary batches", args, _same_scores(samples, "cifar"), None)
        path.with_suffix(".bin").write_bytes(rows[: rng.choice([0, 1, 3072, 3074])])
        return Case("a cut binary batch", args, None)
    if kind == "code":
        path.write_bytes(b"cos\nsystem\n(S'touch executed'\ntR.")
        return Case("a pickle that runs code", args, None)
    if kind == "values":
        images, labels = np.zeros((2, 3072), np.uint8), [0, 1]
        wrong = [[], {}, {"data": images}, {"data": images, "labels": [0]}, {"data": images, "labels": [0, -1]}]
        wrong += [{"data": images.astype(np.float32), "labels": labels}, {"data": images[:, 1:], "labels": labels}]
        wrong += [
            {"data": images, "labels": [0, 10**9]},
            {"data": images, "labels": ["a", "b"]},
            {"data": [], "labels": []},
        ]
        path.write_bytes(pickle.dumps(rng.choice(wrong), protocol=4))
        return Case(f"{path.name} of wrong values", args, None)
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))] if kind == "cut" else damaged(data, rng))
    return Case(f"{kind} of {path.name}", args, None if kind == "cut" else _scores)


def _to_npy(folder: Path) -> None:
    for split, name in (("train", "train"), ("t10k", "test")):
        images, labels = (folder / f"{split}-{part}-ubyte" for part in ("images-idx3", "labels-idx1"))
        np.save(folder / f"x_{name}.npy", np.frombuffer(images.read_bytes()[16:], np.uint8).reshape(-1, 12, 12))
        np.save(folder / f"y_{name}.npy", np.frombuffer(labels.read_bytes()[8:], np.uint8).astype(np.int64))
        images.unlink()
        labels.unlink()


def _npy(rng: Random, folder: Path, args: list[str], same: Check) -> Case:
    axis, split = rng.choice("xy"), rng.choice(["train", "test"])
    path = folder / f"{axis}_{split}.npy"
    values = np.load(path)
    kind = rng.choice(["harmless", "zip", "claims", "type", "pickle", "label", "bytes", "cut"])
    if kind == "harmless":
        types = ["u1", "i4", ">i8"] if axis == "y" else ["u1"]
        np.save(path, np.asfortranarray(values.astype(rng.choice(types))))
        return Case(f"the same {path.name}", args, same, None)
    if kind == "zip":
        with path.open("wb") as file:
            np.savez(file, values)
        return Case(f"{path.name} is a zip", args, None)
    if kind == "claims":
        shape = rng.choice(["(784000000000000,)", "(99999999, 9999999)", "(-1,)", "(2, 2, 2, 2)", "()", f"({2**70},)"])
        header = f"{{'descr': '{values.dtype.str}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
        path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + values.tobytes())
        return Case(f"{path.name} claims the shape {shape}", args, None)
    if kind == "type":
        np.save(path, values.astype(rng.choice(["f4", "f8", "c8", "S3", "M8[s]"])))
        return Case(f"{path.name} of another type", args, None)
    if kind == "pickle":
        np.save(path, np.array([None, {"a": 1}], dtype=object), allow_pickle=True)
        return Case(f"{path.name} is a pickle", args, None)
    if kind == "label":
        labels = np.load(folder / f"y_{split}.npy")
        labels[0] = rng.choice([-1, 10**9, 2**62, -(2**63)])
        np.save(folder / f"y_{split}.npy", labels)
        return Case(f"a label of {labels[0]} in {split}", args, None)
    data = path.read_bytes()
    if kind == "cut":
        path.write_bytes(data[: rng.randrange(len(data))])
        return Case(f"cut {path.name}", args, None)
    head = damaged(data[:128], rng)
    path.write_bytes(head + data[128:])
    return Case(f"damaged header of {path.name}", args, same if head == data[:128] else _scores)


def photographs(rng: Random, samples: Samples, here: Path) -> Case:
    """Images in folders."""
    samples.copy("photos-data", here)
    folder = here / "photos-data"
    args = ["evaluate", str(samples.home / "photos"), "photos-data"]
    same = _same_scores(samples, "photos")
    path = rng.choice(sorted((folder / "val").rglob("*.*")))
    kind = rng.choice(["harmless", "bytes", "bytes", "cut", "huge", "class", "pipe", "text", "dangling"])
    if kind == "harmless":
        (folder / rng.choice(["notes.txt", "val/red/.hidden.png", "val/red/notes.md"])).write_text("no image")
        return Case("a file beside the images", args, same, None)
    if kind == "cut":
        data = path.read_bytes()
        path.write_bytes(data[: rng.randrange(len(data) // 2)])
        return Case(f"cut {path.name}", args, None)
    if kind == "huge":
        path.unlink()
        path.with_suffix(".png").write_bytes(_huge_png(rng.choice([20_000, 100_000, 2**31 - 1])))
        return Case("a huge image", args, None)
    if kind == "class":
        (folder / "val" / "green").mkdir()
        return Case("a class without images", args, None)
    if kind in ("pipe", "dangling", "text"):
        path.unlink()
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "text":
            path.write_text("not an image")
        else:
            path.symlink_to("nowhere")
        return Case(f"an image that is a {kind}", args, None)
    path.write_bytes(damaged(path.read_bytes(), rng))
    return Case(f"damaged {path.name}", args, _scores)


def _huge_png(side: int) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    pixels = zlib.compress(bytes(10_000_000 if side < 10**6 else 100))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def caches(rng: Random, samples: Samples, here: Path) -> Case:
    """Tokens that were kept, and damaged since."""
    samples.copy("corpus", here)
    samples.copy("causal", here)
    args = ["evaluate", "causal", "corpus", "--length", "32"]
    assert run(args, here).code == 0
    (folder,) = (path for path in (here / CACHE).iterdir() if path.is_dir())
    path = folder / rng.choice(["progress.json", "progress.json", "ids.bin", "line_ends.bin"])

    def same(result: Result) -> bool:
        return result.out == samples.reference(args)

    kind = rng.choice(["values", "bytes", "removed", "ids", "interrupted"])
    if kind == "ids":
        ids = np.fromfile(folder / "ids.bin", np.uint16)
        ids[rng.randrange(len(ids))] = rng.choice([260, 5000, 65535])
        ids.tofile(folder / "ids.bin")
        return Case("an id past the vocabulary", args, None)
    if kind == "interrupted":
        return _interrupted(rng, folder, args, same)
    if kind == "removed":
        path.unlink()
        return Case(f"no {path.name}", args, same)
    if kind == "values" and path.name == "progress.json":
        values = json.loads(path.read_text())
        key, new = rng.choice([*values, "nope"]), rng.choice(ODD)
        path.write_text(json.dumps(changed(values, (key,), new)))
        return Case(f"progress.json with {key}: {str(new)[:60]!r}", args, _same_or(same, key, values, new))
    data = path.read_bytes()
    sized = [data[: rng.randrange(len(data))], data + rng.randbytes(rng.choice([1, 2, 8]))]
    path.write_bytes(rng.choice(sized) if path.name != "progress.json" else damaged(data, rng))
    return Case(f"damaged {path.name}", args, same)


def _same_or(same: Check, key: str, values: dict[str, int], new: object) -> Check:
    """Counts of words and bytes cannot be checked without the text: a plausible one is believed."""
    believed = key in ("words", "bytes", "shards") and type(new) is int and new > 0
    return anything if believed else same


def _interrupted(rng: Random, folder: Path, args: list[str], same: Check) -> Case:
    """What a killed process leaves: FOLDER.part with less, or more, than its progress.json says."""
    part = folder.rename(f"{folder}.part")
    choices: list[Callable[[], object]] = [
        lambda: (part / "progress.json").unlink(),
        lambda: (part / "ids.bin").write_bytes(b""),
        lambda: (part / "ids.bin").unlink(),
        lambda: (part / "progress.json").write_bytes(damaged((part / "progress.json").read_bytes(), rng)),
        lambda: None,
    ]
    rng.choice(choices)()
    return Case("an interrupted tokenization", args, same)
