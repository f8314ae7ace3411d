"""Commands that evaluate a model, measure its speed or draw it."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tnn.cli.common import TEXT_HELP, Model, load_causal, numbers, quiet_transformers

Run = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a run, or of any model.")]
Text = Annotated[str | None, typer.Argument(metavar="[TEXT]", help=TEXT_HELP, show_default="that of the training")]
Split = Annotated[
    Literal["train", "validation", "test"] | None,
    typer.Option(help="The split of the text; a single file is one split.", show_default="test"),
]


def evaluate(
    model: Run,
    text: Text = None,
    split: Split = None,
    length: Annotated[int | None, typer.Option(help="Tokens per block.", show_default="that of the training")] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="The text as one sequence, with the complete context.")
    ] = False,
    chunk: Annotated[
        int, typer.Option(help="With --stream or --whole: tokens computed at once. No effect on the result.")
    ] = 4096,
    page: Annotated[
        Path | None, typer.Option(metavar="F.html", help="Of a classifier of texts or tokens: its hardest texts.")
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Of a classifier of texts: read those longer than data.length to their end.")
    ] = False,
) -> None:
    """Perplexity of a language model, or the scores of a classifier or a forecaster."""
    from tnn._files import check_writable
    from tnn.training.evaluation import evaluate as report

    if page is not None:
        check_writable(page)
    quiet_transformers()
    typer.echo(report(model, text, split=split, length=length, stream=stream, chunk=chunk, page=page, whole=whole))


def extrapolate(
    model: Run,
    text: Text = None,
    split: Split = None,
    lengths: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Tokens per block.", show_default="the paper's 19, to 14,336")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Read only the beginning of the text.")] = None,
    batch_tokens: Annotated[int, typer.Option(help="Tokens computed at once, but at least one block.")] = 16_384,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the table, its JSON and the figure.", show_default="MODEL")
    ] = None,
) -> None:
    """Perplexity at lengths other than that of the training."""
    from tnn._files import check_folder
    from tnn.training.evaluation import load_text
    from tnn.training.extrapolation import LENGTHS
    from tnn.training.extrapolation import extrapolate as measure
    from tnn.training.figures import new_figure

    new_figure(height=1)  # without matplotlib it fails here, not after the evaluation
    chosen = LENGTHS if lengths is None else numbers("lengths", lengths)
    check_folder(out or model)
    network = load_causal(model)
    loaded = load_text(model, network, text, split or "test")
    eos = loaded.tokenizer.eos_token_id
    result = measure(
        network, loaded.tokens, chosen, eos, loaded.length, batch_tokens=batch_tokens, max_tokens=max_tokens
    )
    result.save(out or model, name=model.name)
    typer.echo(result.to_table())


def show(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL|PRESET", help="The folder of a run, or of any model; or a preset, as it starts."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The image file.", show_default="MODEL/kernels.png, PRESET-kernels.png"),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(
            help="Rows and columns of the matrices, and lags of the table.",
            show_default="256 and 512; of images, one side",
        ),
    ] = None,
) -> None:
    """Draw how each layer mixes the positions, and print how many dimensions its kernels span."""
    from tnn.training.evaluation import load_model
    from tnn.training.figures import check_figure, draw_model, save_figure
    from tnn.training.ranks import rank_table
    from tnn.training.tasks.setup import is_preset, model_at_start

    quiet_transformers()
    at_start = is_preset(model)
    path = out or (Path(f"{model}-kernels.png") if at_start else model / "kernels.png")
    check_figure(path)
    network = model_at_start(str(model)) if at_start else load_model(model)
    save_figure(draw_model(network, length), path)
    typer.echo(rank_table(network, length))
    typer.echo(path)


def bench(
    model: Model,
    contexts: Annotated[
        str, typer.Option(metavar="A,B,...", help="Numbers of tokens before the measured ones.")
    ] = "512,4096",
    new_tokens: Annotated[int, typer.Option(help="Number of tokens to measure.")] = 64,
    tolerance: Annotated[
        float, typer.Option(help="Of the conversion to a state space: largest relative difference of the kernels.")
    ] = 1e-3,
) -> None:
    """Tokens per second of the decoders, on this machine."""
    from tnn.training.speed import decoding_speed, to_table

    chosen, network = numbers("contexts", contexts), load_causal(model)
    converted = network.to_state_space(tolerance) if _has_state_space(network) else None
    typer.echo(to_table(decoding_speed(network, chosen, new_tokens, converted)))
    if not network.model.can_cache:
        typer.echo("recompute only: this model has no cache", err=True)


def _has_state_space(network: Any) -> bool:
    """Whether a model can be converted, and is not converted yet."""
    from tnn.layers import ToeplitzOperator

    operators = [operator for operator in network.model.operators if isinstance(operator, ToeplitzOperator)]
    convertible = bool(operators) and network.config.coefficients != "poles" and network.model.can_cache
    return convertible and all(operator.decay.slowest_rate() < 1 for operator in operators)
