"""Commands that convert models: `tnn convert`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tnn.cli.common import Model, load_causal, quiet_transformers

convert_commands = typer.Typer(
    no_args_is_help=True, help="Convert checkpoints of the reference code, and models to state spaces."
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
    max_states: Annotated[int, typer.Option(help="Largest number of states per layer.")] = 64,
) -> None:
    """Convert a causal model to one that decodes in constant time and memory per token."""
    from tnn.data.tokenizers import tokenizer_files
    from tnn.models.saving import check_free, save_atomically

    check_free(out)
    converted = load_causal(model).to_state_space(tolerance, max_states)
    save_atomically(converted, out, files=tokenizer_files(model))
    typer.echo(_state_space_table(converted.config.state_space))


def _state_space_table(layers: list[dict[str, Any]]) -> str:
    rows = [f"{x['layer']:5}  {x['states']:6}  {x['residual']:8.1e}  {x['bound']:7.1e}" for x in layers]
    return "\n".join(["layer  states  residual    bound", *rows])
