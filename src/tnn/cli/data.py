"""Commands that make data: `tnn data`."""

from pathlib import Path
from typing import Annotated

import typer

from tnn.cli.common import TEXT_HELP, one_line_errors

Folder = Annotated[Path, typer.Option(metavar="DIR", help="The folder to make, or to go on with.")]
Seed = Annotated[int, typer.Option(help="Of all draws: the same seed gives the same data.")]
Workers = Annotated[int | None, typer.Option(help="Processes to use.", show_default="one a core")]

data_commands = typer.Typer(
    no_args_is_help=True, help="Tokenise texts, train tokenizers, make data of Long-Range Arena."
)
generators = typer.Typer(no_args_is_help=True, help="Make data of Long-Range Arena, by its rules.")
data_commands.add_typer(generators, name="generate")


@data_commands.command()
def prepare(
    text: Annotated[str, typer.Argument(metavar="TEXT", help=TEXT_HELP)],
    tokenizer: Annotated[
        str, typer.Option(help="bytes, bpe:SIZE, a tokenizer.json, or a folder with GPT-2's files.")
    ] = "bytes",
    mask: Annotated[bool, typer.Option("--mask", help="For a masked language model.")] = False,
    cache: Annotated[
        Path | None, typer.Option(help="The folder for the tokens.", show_default="$TNN_CACHE or ~/.cache/toeplitz-nn")
    ] = None,
) -> None:
    """Tokenise a text ahead of training, and count it."""
    with one_line_errors():
        from tnn.data import open_corpus, tokenize
        from tnn.data.tokens import cache_folder, tokenizer_for

        corpus, kept = open_corpus(text), cache_folder(cache)
        made = tokenizer_for(tokenizer, corpus, mask=mask, cache=kept)
        for split in corpus.splits():
            found = tokenize(corpus, split, made, kept)
            counts = f"{len(found.ids):13,} tokens  {found.words:12,} words  {found.bytes:13,} bytes"
            typer.echo(f"{split:10}  {counts}")


@data_commands.command("tokenizer")
def make_bpe(
    text: Annotated[str, typer.Argument(metavar="TEXT", help=TEXT_HELP)],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to make.")],
    size: Annotated[int, typer.Option(help="Tokens of the vocabulary.")] = 8000,
    mask: Annotated[bool, typer.Option("--mask", help="With a mask token on top, for masked language models.")] = False,
) -> None:
    """Train a byte-level BPE tokenizer on the training split of a text."""
    with one_line_errors():
        from tnn.data import open_corpus, train_bpe
        from tnn.models.saving import check_free, save_atomically

        check_free(out)
        made = train_bpe(open_corpus(text).lines("train"), size, mask=mask)
        save_atomically(made, out)
        typer.echo(f"{len(made):,} tokens: {out}")


@generators.command()
def listops(
    out: Folder,
    seed: Seed = 0,
    train: Annotated[int, typer.Option(help="Examples to train on.")] = 96_000,
    val: Annotated[int, typer.Option(help="Examples to validate on.")] = 2_000,
    test: Annotated[int, typer.Option(help="Examples to test on.")] = 2_000,
    workers: Workers = None,
) -> None:
    """Nested lists of operations on digits: basic_train.tsv, basic_val.tsv, basic_test.tsv."""
    with one_line_errors():
        from tnn.data.lra.listops import generate_listops

        found = generate_listops(out, seed=seed, train=train, validation=val, test=test, workers=workers)
        typer.echo(
            f"{found.kept:,} of {found.drawn:,} trees kept ({found.kept / found.drawn:.1%}), "
            f"{found.mean:,.0f} tokens in the mean, {found.median:,.0f} in the median: {out}"
        )


@generators.command()
def pathfinder(
    out: Folder,
    size: Annotated[int, typer.Option(help="Pixels of a side: 32, or 128 for Path-X.")] = 32,
    seed: Seed = 0,
    count: Annotated[int, typer.Option(help="Pictures to draw.")] = 200_000,
    contour_length: Annotated[int, typer.Option(help="Dashes of a contour: 14, or fewer, which are easier.")] = 14,
    distractors: Annotated[
        int | None, typer.Option(help="Short contours beside the two.", show_default="as many as the benchmark's")
    ] = None,
    workers: Workers = None,
) -> None:
    """Pictures of dashed contours: are the two discs the ends of one?"""
    with one_line_errors():
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
        typer.echo(f"{count:,} pictures: {out}")
