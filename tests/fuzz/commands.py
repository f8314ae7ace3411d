"""Command lines: every command with good, odd, missing and extra words."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.fuzz.judge import Case, Check, Result
from tests.fuzz.samples import PROMPT, Samples

ODD_NUMBERS = [
    *("", " ", "-1", "0", "nan", "inf", "-inf", "1e-45", "1e-400", "1e400", "1e30", "0x10", "1_0", "١٢", "1.5", "½"),
    *("2147483648", "4294967297", "9223372036854775807", "9223372036854775808", "9" * 40, "-9223372036854775809"),
]
ODD_TEXTS = ["", " ", ".", "..", "none", "é∑\u202e", "a\nb", "\udcff", "--", "-", "x" * 5000, "a-file", "a-file/below"]
EXTRA = ["--help", "--nope", "--nope=3", "-x", "extra", "", "--", "--version", "\udcff", "-1", "--out"]
ODD_WORKERS = ["", "-1", "0", "x", "nan", "1.5"]  # a large number is allowed, and starts that many processes

# A command: its words, and for each option the good values. Without a value, the option is a flag.
Options = dict[str, list[str]]
READING = {"--lines": ["keep", "separate"], "--bad-files": ["refuse", "skip"]}
COMMANDS: list[tuple[float, list[str], Options]] = [
    (
        5,
        ["evaluate", "causal", "corpus"],
        {"--split": ["test"], "--length": ["1", "7", "32", "1000"], "--chunk": ["1", "16"], "--stream": []},
    ),
    (1, ["evaluate", "image"], {"--split": ["test"], "--length": ["8"]}),
    (
        5,
        ["generate", "causal"],
        {
            "--prompt": [PROMPT, "é", "the same"],
            "--prompt-file": ["a-file"],
            "--stop": ["e", "é", "no such text"],
            "--samples": ["1", "2"],
            "--json": [],
            "--max-new-tokens": ["1", "4"],
            "--decoder": ["exact", "recompute"],
            "--temperature": ["0", "0.7", "1e10"],
            "--top-k": ["1", "5", "1000"],
            "--seed": ["0", "3"],
            "--tolerance": ["0.01"],
        },
    ),
    (
        1,
        ["extrapolate", "causal", "corpus"],
        {"--lengths": ["16,32", "8"], "--max-tokens": ["64"], "--batch-tokens": ["64"], "--out": ["new"]},
    ),
    (0.5, ["show", "causal"], {"--out": ["new.png"], "--length": ["4", "9"]}),
    (0.5, ["bench", "causal"], {"--contexts": ["4", "4,8"], "--new-tokens": ["2"], "--tolerance": ["0.01"]}),
    (0.5, ["convert", "state-space", "causal", "new"], {"--tolerance": ["0.01"], "--max-states": ["8", "64"]}),
    (1, ["convert", "reference", "a-file", "new"], {}),
    (
        3,
        ["data", "prepare", "corpus"],
        {"--tokenizer": ["bytes", "bpe:270", "bpe"], "--mask": [], "--cache": ["new"], **READING},
    ),
    (2, ["data", "tokenizer", "corpus", "new"], {"--size": ["270", "300"], "--mask": [], **READING}),
    (
        2,
        ["data", "generate", "listops", "--workers=1"],
        {"--out": ["new"], "--seed": ["1"], "--train": ["1"], "--val": ["1", "2"], "--test": ["1"]},
    ),
    (
        2,
        ["data", "generate", "pathfinder", "--workers=1"],
        {
            "--out": ["new"],
            "--size": ["32"],
            "--seed": ["1"],
            "--count": ["1", "2"],
            "--contour-length": ["3", "14"],
            "--distractors": ["0", "2"],
        },
    ),
    (1, ["train", "run.yaml"], {"--list": [], "--resume": [], "--show": []}),
    (1, ["runs", "run"], {"--json": []}),
    (1, ["train"], {"--init": ["new.yaml"], "--data": ["stdlib"]}),
    (0.5, ["train", "--list"], {}),
    (1, ["reproduce"], {"--table": ["1"], "--help": []}),
    (0.2, ["demo"], {"--out": ["new", "new/below"]}),
    (0.5, ["env"], {"--json": []}),
    (1, [], {"--mixer": ["nowhere:Class", "os:path", "tnn:x"], "--version": []}),
]
REQUIRED = {"--prompt", "--max-new-tokens", "--out"}
ALWAYS = {"--train", "--val", "--test", "--count"}  # the default is hours of work
TEXTS = {
    "--split",
    "--decoder",
    "--prompt",
    "--prompt-file",
    "--stop",
    "--tokenizer",
    "--cache",
    "--out",
    "--mixer",
    "--table",
    *READING,
}


def command_lines(rng: Random, samples: Samples, here: Path) -> Case:
    _, words, options = rng.choices(COMMANDS, [weight for weight, *_ in COMMANDS])[0]
    words = list(words)
    for name in {"causal", "corpus", "image", "run"} & {*words}:
        samples.copy(name, here)
    (here / "a-file").write_text("not a folder\n")
    if "run.yaml" in words:
        words[1] = rng.choice(["", "mini-alm.yaml", "mini-aml", "a-file", "é.yaml", ".yaml", "new"])
    odd = rng.random() < 0.7
    given: dict[str, str | None] = {}
    for name, good in options.items():
        if name in ALWAYS or (name in REQUIRED and rng.random() < 0.97) or rng.random() < 0.4:
            given[name] = _value(rng, name, good, odd and rng.random() < 0.5)
    if odd and rng.random() < 0.3:
        place = rng.randrange(len(words)) if words else 0
        words[place : place + 1] = rng.choice([[], ["é"], ["a-file"], [""], ["\udcff"], ["x" * 300], ["missing"]])
    args = [*words, *(word for name, value in given.items() for word in ([name] if value is None else [name, value]))]
    extra = odd and rng.random() < 0.1
    if extra:
        args.insert(rng.randrange(len(args) + 1), rng.choice(EXTRA))
    known = not extra and tuple(words) in {tuple(words) for _, words, _ in COMMANDS}
    return Case(" ".join(args)[:200], args, _right(words, given, samples, here) if known else _plausible)


def _value(rng: Random, name: str, good: list[str], odd: bool) -> str | None:
    if not good:
        return None
    if not odd:
        return rng.choice(good)
    if name == "--workers":
        return rng.choice(ODD_WORKERS)
    if name == "--prompt":
        return rng.choice([text for text in ODD_TEXTS if text != "-"])  # it reads standard input
    return rng.choice(ODD_TEXTS if name in TEXTS else [*ODD_NUMBERS, "x", "é"])


def _plausible(result: Result) -> bool:
    """Help, a version, a list: something was printed."""
    return bool(result.out.strip())


def _right(words: list[str], given: dict[str, str | None], samples: Samples, here: Path) -> Check:
    """The result that this command must have if it accepts its options."""
    makers: dict[str, Callable[[], Check]] = {
        "evaluate causal corpus": lambda: _perplexity(given, samples, here),
        "evaluate image": lambda: lambda result: result.out == samples.reference(["evaluate", "image"]),
        "generate causal": lambda: _generated(given, samples, here),
        "extrapolate causal corpus": lambda: lambda result: _rows(result.out, given.get("--lengths")),
        "show causal": lambda: lambda result: (here / _shown_path(result.out)).read_bytes().startswith(b"\x89PNG"),
        "bench causal": lambda: lambda result: len(result.out.splitlines()) == 1 + _listed(given, "--contexts", 2),
        "convert state-space causal new": lambda: lambda result: (here / "new" / "model.safetensors").is_file(),
        "data prepare corpus": lambda: _counted(given, here),
        "data tokenizer corpus new": lambda: lambda result: (here / "new" / "tokenizer.json").is_file(),
        "data generate listops --workers=1": lambda: _lists(given, here),
        "data generate pathfinder --workers=1": lambda: _contours(given, here),
        "demo": lambda: lambda result: (here / (given.get("--out", "runs/demo") or "") / "report.html").is_file(),
        "train --list": lambda: lambda result: result.out.splitlines()[0].startswith("glue-cola  "),
    }
    make = makers.get(" ".join(words))
    return make() if make else _plausible


def _perplexity(given: dict[str, str | None], samples: Samples, here: Path) -> Check:
    def check(result: Result) -> bool:
        text = (here / "corpus" / "test.txt").read_bytes()
        length = len(text) if "--stream" in given else int(given.get("--length") or 512)
        expected = samples.perplexity(text, length)
        found = re.search(r"perplexity +(\S+) per token", result.out)
        return found is not None and abs(float(found[1]) / expected - 1) < 1e-3

    return check


def _generated(given: dict[str, str | None], samples: Samples, here: Path) -> Check:
    def check(result: Result) -> bool:
        if float(given.get("--temperature") or 0) > 0:
            return result.err.count("token") >= 1
        prompt = given.get("--prompt")
        text = samples.continuation(
            (here / (given.get("--prompt-file") or "")).read_text() if prompt is None else prompt,
            int(given.get("--max-new-tokens") or 200),
        )
        text = text.partition(given.get("--stop") or "\0")[0]
        return bool(json.loads(result.out)["text"] == text) if "--json" in given else result.out == text + "\n"

    return check


def _rows(out: str, lengths: str | None) -> bool:
    chosen = [int(part) for part in (lengths or "").split(",") if part]
    shown = [int(row.replace(",", "")) for row in re.findall(r"^\| +([\d,]+) \|", out, re.MULTILINE)]
    return shown == chosen if chosen else len(shown) > 0


def _shown_path(out: str) -> str:
    """What follows the table."""
    return re.split(r"; lags up to \d+\n", out)[-1].strip()


def _listed(given: dict[str, str | None], name: str, default: int) -> int:
    return len((given[name] or "").split(",")) if name in given else default


def _counted(given: dict[str, str | None], here: Path) -> Check:
    def check(result: Result) -> bool:
        rows = [line.replace(",", "").split() for line in result.out.splitlines()]
        names = {"train": "train.txt", "validation": "valid.txt", "test": "test.txt"}
        texts = {split: (here / "corpus" / name).read_bytes() for split, name in names.items()}
        words = {split: len(text.decode().split()) + text.count(b"\n") for split, text in texts.items()}
        expected = [[split, str(words[split]), str(len(text))] for split, text in texts.items()]
        is_bytes = given.get("--tokenizer", "bytes") == "bytes"
        return [[row[0], row[3], row[5]] for row in rows] == expected and (
            not is_bytes or all(row[1] == row[5] for row in rows)
        )

    return check


def _lists(given: dict[str, str | None], here: Path) -> Check:
    def check(result: Result) -> bool:
        counts = {"train": "--train", "val": "--val", "test": "--test"}
        folder = here / (given["--out"] or "")
        tables = {split: (folder / f"basic_{split}.tsv").read_text().splitlines()[1:] for split in counts}
        right = all(
            row.split("\t")[1] == str(_value_of(row.split("\t")[0])) for rows in tables.values() for row in rows
        )
        return right and all(len(tables[split]) == int(given[name] or 0) for split, name in counts.items())

    return check


def _value_of(expression: str) -> int:
    """The value of a ListOps expression, with a stack."""
    stack: list[list[str | int]] = [[]]
    for token in expression.replace("(", " ").replace(")", " ").split():
        if token.startswith("["):
            stack.append([token])
        elif token == "]":
            name, *numbers = stack.pop()
            values = sorted(int(number) for number in numbers)
            middle = values[(len(values) - 1) // 2] + values[len(values) // 2]
            value = {"[MIN": values[0], "[MAX": values[-1], "[MED": middle // 2, "[SM": sum(values) % 10}[str(name)]
            stack[-1].append(value)
        else:
            stack[-1].append(int(token))
    return int(stack[0][0])


def _contours(given: dict[str, str | None], here: Path) -> Check:
    def check(result: Result) -> bool:
        folder = here / (given["--out"] or "")
        return len(list(folder.rglob("*.png"))) == int(given["--count"] or 0)

    return check
