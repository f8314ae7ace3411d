"""Commands that convert models: `tnn convert`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tnn.cli.common import Model, load_causal, quiet_transformers

convert_commands = typer.Typer(
    no_args_is_help=True, help="Convert checkpoints of the reference code, and models to state spaces and ONNX files."
)


@convert_commands.command()
def reference(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="A checkpoint file of fairseq.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The new folder, for from_pretrained.")],
) -> None:
    """Convert a language model of the TNN authors."""
    from tnn.layers import count_parameters
    from tnn.models.reference import convert_reference

    quiet_transformers()
    model = convert_reference(checkpoint, out)
    config = model.config
    decay = "no decay" if config.decay_mode == "none" else f"decay {config.decay:g}"
    size = f"{sum(count_parameters(model)):,} parameters in {config.num_hidden_layers} layers"
    typer.echo(f"{type(model).__name__}, {size}, {decay}: {out}")


@convert_commands.command("state-space")
def state_space(
    model: Model,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The new folder, for from_pretrained.")],
    tolerance: Annotated[float, typer.Option(help="Largest relative difference of the kernels.")] = 1e-3,
    max_states: Annotated[
        int | None, typer.Option(help="Largest number of states per layer.", show_default="that of exact decoding")
    ] = None,
) -> None:
    """Convert a causal model to one that decodes in constant time and memory per token."""
    from tnn.data.tokenizers import tokenizer_files
    from tnn.models.saving import check_free, save_atomically

    check_free(out)
    converted = load_causal(model).to_state_space(tolerance, max_states)
    save_atomically(converted, out, files=tokenizer_files(model))
    typer.echo(_state_space_table(converted.config.state_space))


@convert_commands.command()
def onnx(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a model with any head.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The new file, such as model.onnx.")],
    mask: Annotated[bool, typer.Option(help="Whether attention_mask is an input.")] = True,
    batch: Annotated[int | None, typer.Option(help="A fixed batch size; by default any.")] = None,
    length: Annotated[int | None, typer.Option(help="A fixed length; by default any.")] = None,
) -> None:
    """Export a model as an ONNX file."""
    from tnn.models import export_onnx
    from tnn.models.onnx_file import check_target
    from tnn.training.evaluation import load_model

    check_target(out)
    quiet_transformers()
    loaded = load_model(model)
    export_onnx(loaded, out, mask=mask, batch=batch, length=length)
    typer.echo(f"{type(loaded).__name__}, {out.stat().st_size / 1e6:.1f} MB: {out}")


def _state_space_table(layers: list[dict[str, Any] | None]) -> str:
    """`history` is what exact decoding keeps in place of the states. A layer that was not converted has no row."""
    rows = [
        f"{x['layer']:5}  {x['states']:6}  {x['history']:7}  {x['residual']:8.1e}  {x['bound']:7.1e}"
        for x in layers
        if x is not None
    ]
    return "\n".join(["layer  states  history  residual    bound", *rows])
