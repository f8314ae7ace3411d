"""Classifiers of one's own texts, by the recipe text-classifier as it is, beside naive Bayes on words.

    python -m benchmarks.tables --data-dir DIR [--tables imdb,sources] [--steps N]

writes results/tables.md. DIR holds imdb/train.tsv.xz and test.tsv.xz, with columns `label` and `text`; the table
`sources` is made from the sources of Python's standard library: comments, docstrings and code. Both become CSV files.
"""

import argparse
import ast
import csv
import io
import lzma
import re
import sysconfig
import time
import tokenize
import warnings
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from benchmarks._timing import environment
from tnn.training import evaluate, load_recipe, train

RESULTS = Path(__file__).parent.parent / "results"
RUNS = Path("runs/tables")
RECIPE = "text-classifier"
CHANGES = {"imdb": ["data.text_column=text", "data.label_column=label"], "sources": ["data.length=128"]}
FEWEST_WORDS, LONGEST = 4, 400  # words and characters of a passage
Row = tuple[str, str]  # text, label


def write_imdb(data: Path, folder: Path) -> Path:
    """train.csv and test.csv in a folder."""
    for split in ("train", "test"):
        with lzma.open(data / "imdb" / f"{split}.tsv.xz", "rt", encoding="utf-8", newline="\n") as file:
            names = next(file).rstrip("\n").split("\t")
            rows = [dict(zip(names, line.rstrip("\n").split("\t"), strict=True)) for line in file]
        label = {"0": "negative", "1": "positive"}
        _write(folder / "imdb" / f"{split}.csv", ((row["text"], label[row["label"]]) for row in rows))
    return folder / "imdb"


def write_sources(folder: Path) -> Path:
    """One table: passages of the standard library, each a comment, a docstring, or a function without either."""
    root = Path(sysconfig.get_path("stdlib"))
    paths = sorted(path for path in root.rglob("*.py") if "site-packages" not in path.parts)
    seen: set[str] = set()
    rows = []
    for path in paths:
        for text, label in _passages(path):
            text = text.strip()[:LONGEST]
            if len(re.findall(r"\w+", text)) >= FEWEST_WORDS and text not in seen:
                seen.add(text)
                rows.append((text, label))
    _write(folder / "sources.csv", iter(rows))
    return folder / "sources.csv"


def _passages(path: Path) -> Iterator[Row]:
    try:
        source = path.read_text(encoding="utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # files of its own tests have odd escapes
            tree = ast.parse(source)
    except (SyntaxError, UnicodeDecodeError, ValueError):  # files of its own tests again
        return
    for comment in _comments(source):
        yield comment, "comment"
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            continue
        docstring = ast.get_docstring(node)
        if docstring is not None:
            yield docstring, "docstring"
        if isinstance(node, ast.FunctionDef) and (body := node.body[docstring is not None :]):
            yield "\n".join(map(ast.unparse, body)), "code"


def _comments(source: str) -> Iterator[str]:
    """Comments on lines of their own; neighbouring lines are one."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = [
        (token.start[0], token.string.lstrip("#! "))
        for token in tokens
        if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#")
    ]
    for _, group in groupby(enumerate(lines), lambda pair: pair[1][0] - pair[0]):
        yield "\n".join(text for _, (_, text) in group)


def _write(path: Path, rows: Iterator[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows(rows)


def measure(name: str, table: Path, steps: int | None) -> str:
    """The section of a table: the commands, the time of the training, and what `tnn evaluate` prints."""
    changes = [f"data.table={table}", *CHANGES[name], *([] if steps is None else [f"training.steps={steps}"])]
    out = RUNS / f"run-{name}"
    start = time.perf_counter()
    train(load_recipe(RECIPE, changes), out)
    minutes = (time.perf_counter() - start) / 60
    return "\n".join(
        [
            f"## {name}",
            "",
            "```sh",
            f"tnn train {RECIPE} {' '.join(changes)} --out {out}",
            f"tnn evaluate {out}",
            "```",
            f"The training took {minutes:.1f} minutes with all that is before it. `tnn evaluate` prints:",
            "```text",
            evaluate(out),
            "```",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--tables", default="imdb,sources")
    parser.add_argument("--steps", type=int)
    options = parser.parse_args()
    sections = []
    for name in options.tables.split(","):
        table = write_imdb(options.data_dir, RUNS) if name == "imdb" else write_sources(RUNS)
        sections.append(measure(name, table, options.steps))
    words = ["# Classifiers of one's own texts", "", f"`python -m benchmarks.tables --data-dir DIR`, {environment()}."]
    words += ["The recipe as it is, seed 0. The test texts were read once, at the end.", ""]
    text = "\n".join([*words, *sections])
    (RESULTS / "tables.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
