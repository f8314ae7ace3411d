"""Commands for data: `tnn data`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tnn.cli.common import TEXT_HELP
from tnn.data.corpus import BadFiles, Lines

if TYPE_CHECKING:
    from tnn.data import Corpus

Folder = Annotated[Path, typer.Option(metavar="DIR", help="The new folder, or one to continue.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same data.")]
LineRule = Annotated[
    Lines, typer.Option("--lines", help="keep: line ends are text. separate: each is </s>. auto: as the text needs it.")
]
Column = Annotated[str | None, typer.Option("--text-column", metavar="NAME", help="Of a table: where the texts are.")]
Bad = Annotated[BadFiles, typer.Option("--bad-files", help="What to do with files that are not UTF-8 text.")]
Workers = Annotated[int | None, typer.Option(help="Number of processes.", show_default="one per core")]

SHOWN = 5  # files that are skipped

data_commands = typer.Typer(
    no_args_is_help=True, help="Tokenize texts, train tokenizers, generate data of Long-Range Arena."
)
generators = typer.Typer(no_args_is_help=True, help="Generate data of Long-Range Arena.")
data_commands.add_typer(generators, name="generate")


@data_commands.command()
def prepare(
    text: Annotated[str, typer.Argument(metavar="TEXT", help=TEXT_HELP)],
    tokenizer: Annotated[
        str, typer.Option(help="bytes, bpe:SIZE, a tokenizer.json, or a folder with the files of GPT-2.")
    ] = "bytes",
    mask: Annotated[bool, typer.Option("--mask", help="For a masked language model.")] = False,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for the tokens.", show_default="$TNN_CACHE or ~/.cache/toeplitz-nn")
    ] = None,
    lines: LineRule = "auto",
    text_column: Column = None,
    bad_files: Bad = "refuse",
) -> None:
    """Tokenize a text before training, and print the number of tokens, words and bytes."""
    from tnn.data import open_corpus, tokenize
    from tnn.data.tokens import cache_folder, tokenizer_for

    corpus = open_corpus(text, lines=lines, text_column=text_column, bad_files=bad_files)
    folder = cache_folder(cache)
    _report_skipped(corpus)
    loaded = tokenizer_for(tokenizer, corpus, mask=mask, cache=folder)
    for split in corpus.splits():
        tokens = tokenize(corpus, split, loaded, folder)
        counts = f"{len(tokens.ids):13,} tokens  {tokens.words:12,} words  {tokens.bytes:13,} bytes"
        typer.echo(f"{split:10}  {counts}")


@data_commands.command("tokenizer")
def make_bpe(
    text: Annotated[str, typer.Argument(metavar="TEXT", help=TEXT_HELP)],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The new folder.")],
    size: Annotated[int, typer.Option(help="Size of the vocabulary.")] = 8000,
    mask: Annotated[bool, typer.Option("--mask", help="Add a mask token, for masked language models.")] = False,
    lines: LineRule = "auto",
    text_column: Column = None,
    bad_files: Bad = "refuse",
) -> None:
    """Train a byte-level BPE tokenizer on the training split of a text."""
    from tnn.data import open_corpus
    from tnn.data.tokens import bpe_of
    from tnn.models.saving import check_free, save_atomically

    check_free(out)
    corpus = open_corpus(text, lines=lines, text_column=text_column, bad_files=bad_files)
    _report_skipped(corpus)
    tokenizer = bpe_of(corpus, size, mask=mask)
    save_atomically(tokenizer, out)
    typer.echo(f"{len(tokenizer):,} tokens: {out}")


def _report_skipped(corpus: "Corpus") -> None:
    skipped = corpus.skipped()
    for path in skipped[:SHOWN]:
        typer.echo(f"skipped, as it is not UTF-8 text: {path}", err=True)
    if len(skipped) > SHOWN:
        typer.echo(f"skipped {len(skipped):,} files in all", err=True)


@generators.command()
def listops(
    out: Folder,
    seed: Seed = 0,
    train: Annotated[int, typer.Option(help="Number of training examples.")] = 96_000,
    val: Annotated[int, typer.Option(help="Number of validation examples.")] = 2_000,
    test: Annotated[int, typer.Option(help="Number of test examples.")] = 2_000,
    workers: Workers = None,
) -> None:
    """Nested lists of operations on digits: basic_train.tsv, basic_val.tsv, basic_test.tsv."""
    from tnn.data.lra.listops import generate_listops

    counts = generate_listops(out, seed=seed, train=train, validation=val, test=test, workers=workers)
    typer.echo(
        f"{counts.kept:,} of {counts.drawn:,} trees kept ({counts.kept / counts.drawn:.1%}), "
        f"mean length {counts.mean:,.0f} tokens, median {counts.median:,.0f}: {out}"
    )


@generators.command()
def pathfinder(
    out: Folder,
    size: Annotated[int, typer.Option(help="Pixels per side: 32, or 128 for Path-X.")] = 32,
    seed: Seed = 0,
    count: Annotated[int, typer.Option(help="Number of images.")] = 200_000,
    contour_length: Annotated[
        int, typer.Option(help="Dashes per contour: 14 as in the benchmark; fewer are easier.")
    ] = 14,
    distractors: Annotated[
        int | None, typer.Option(help="Number of short contours beside the two.", show_default="as in the benchmark")
    ] = None,
    workers: Workers = None,
) -> None:
    """Images of dashed contours: are the two discs the ends of one contour?"""
    from tnn.data.lra.pathfinder import generate_pathfinder

    generate_pathfinder(
        out,
        size=size,
        seed=seed,
        count=count,
        contour_length=contour_length,
        distractors=distractors,
        workers=workers,
    )
    typer.echo(f"{count:,} images: {out}")
