"""The command that predicts: labels of texts, or the next values of a series."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO

import typer

from tnn.cli.common import quiet_transformers

Format = Literal["jsonl", "csv"]


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a classifier or forecaster.")],
    source: Annotated[str, typer.Argument(metavar="FILE|TEXT|-", help="A table, a text, or - for standard input.")],
    out: Annotated[Path | None, typer.Option(help="A .jsonl or .csv file.", show_default="standard output")] = None,
    format: Annotated[Format | None, typer.Option(help="Of the output.", show_default="by the ending of --out")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw a forecast into this .png, .svg or .pdf file.")] = None,
    horizon: Annotated[int | None, typer.Option(help="Steps to forecast.", show_default="as in training")] = None,
    batch_size: Annotated[int, typer.Option(help="Inputs that are computed at once.")] = 32,
    whole: Annotated[
        bool, typer.Option("--whole", help="Read texts to their end that are longer than data.length.")
    ] = False,
    chunk: Annotated[int, typer.Option(help="With --whole: tokens computed at once. No effect on the result.")] = 4096,
) -> None:
    """Predict labels of texts or tokens with probabilities, or the next values of series with intervals."""
    from tnn._checks import check_positive
    from tnn._files import check_writable
    from tnn.training.figures import check_figure
    from tnn.training.prediction import predict as run

    check_positive("batch_size", batch_size)
    check_positive("chunk", chunk)
    if horizon is not None:
        check_positive("horizon", horizon)
    if out is not None:
        check_writable(out)
    if figure is not None:
        check_figure(figure)
    kind = _format_of(out, format)
    quiet_transformers()
    rows: Iterable[dict[str, Any]] = run(
        model, source, batch_size=batch_size, horizon=horizon, whole=whole, chunk=chunk
    )
    if figure is not None:
        rows = list(rows)
    with _opened(out) as file:
        _write(rows, file, kind)
    if figure is not None:
        _draw(model, rows, figure)


def _format_of(out: Path | None, given: Format | None) -> Format:
    if given is not None or out is None:
        return given or "jsonl"
    if out.suffix not in (".jsonl", ".csv"):
        raise ValueError(f"--out must end in .jsonl or .csv, or give --format; got {out}")
    return "csv" if out.suffix == ".csv" else "jsonl"


@contextmanager
def _opened(out: Path | None) -> Iterator[TextIO]:
    """The file appears once it is whole. Half of a character, as JSON may hold, is written as JSON has it."""
    from tnn._files import atomic_path

    if out is None:
        yield sys.stdout
        return
    options: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace", "newline": ""}
    with atomic_path(out) as temporary, temporary.open("w", **options) as file:
        yield file


def _write(rows: Iterable[dict[str, Any]], file: TextIO, kind: Format) -> None:
    if kind == "jsonl":
        for row in rows:
            file.write(_as_json(row) + "\n")
        return
    writer = None
    for cells in map(_cells, rows):
        if writer is None:
            writer = csv.DictWriter(file, list(cells), lineterminator="\n")
            writer.writeheader()
        writer.writerow(cells)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)  # a Parquet file may hold dates


def _cells(row: dict[str, Any]) -> dict[str, Any]:
    """The probabilities of classes get a column each; any other structure is JSON."""
    cells: dict[str, Any] = {}
    for key, value in row.items():
        if key == "probabilities" and isinstance(value, dict):
            cells |= {f"{key}.{name}": probability for name, probability in value.items()}
        else:
            cells[key] = _as_json(value) if isinstance(value, dict | list) else value
    return cells


def _draw(model: Path, rows: Iterable[dict[str, Any]], path: Path) -> None:
    from tnn.training.figures import save_figure
    from tnn.training.runs import load_run_recipe
    from tnn.training.tasks.registry import find_task

    recipe = load_run_recipe(model)
    if recipe is None:
        raise ValueError(f"{model} has no recipe, so its predictions cannot be drawn")
    save_figure(find_task(recipe.task).draw_predictions(list(rows)), path)
