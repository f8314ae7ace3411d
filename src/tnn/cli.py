"""The command line: `tnn`, or `python -m tnn`. A command imports what it needs when it runs: help must come at once."""

import math
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Literal

import typer

import tnn

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
convert = typer.Typer(no_args_is_help=True)
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a causal language model.")]
Decoder = Literal["exact", "state-space", "recompute"]
app.add_typer(convert, name="convert", help="Convert checkpoints of other programs, and models to state spaces.")


def main() -> None:
    app(prog_name="tnn")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"toeplitz-nn {tnn.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """The Toeplitz Neural Network."""


@convert.command()
def reference(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="A file that fairseq wrote.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to make, for from_pretrained to load.")],
) -> None:
    """Convert a checkpoint of the TNN authors' language models."""
    with _one_line_errors():
        from tnn.layers import count_parameters
        from tnn.models.reference import convert_reference

        _quiet_transformers()
        model = convert_reference(checkpoint, out)
        config = model.config
        decay = "no decay" if config.decay_mode == "none" else f"decay {config.decay:g}"
        size = f"{sum(count_parameters(model)):,} parameters in {config.num_hidden_layers} layers"
        typer.echo(f"{type(model).__name__}, {size}, {decay}: {out}")


@convert.command("state-space")
def state_space(
    model: Model,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to make, for from_pretrained to load.")],
    tolerance: Annotated[float, typer.Option(help="Largest difference of the kernels, relative to them.")] = 1e-3,
    max_states: Annotated[int, typer.Option(help="States a layer may have.")] = 64,
) -> None:
    """Convert a causal model to one that decodes in constant time and memory."""
    with _one_line_errors():
        from tnn.data.tokenizers import tokenizer_files
        from tnn.models.saving import check_free, save_whole

        check_free(out)
        converted = _load_causal(model).to_state_space(tolerance, max_states)
        save_whole(converted, out, files=tokenizer_files(model))
        typer.echo(_state_space_table(converted.config.state_space))


def _state_space_table(layers: list[dict[str, Any]]) -> str:
    rows = [f"{x['layer']:5}  {x['states']:6}  {x['residual']:8.1e}  {x['bound']:7.1e}" for x in layers]
    return "\n".join(["layer  states  residual    bound", *rows])


@app.command()
def generate(
    model: Model,
    prompt: Annotated[str, typer.Option(help="The text to go on from.")],
    max_new_tokens: Annotated[int, typer.Option(help="Tokens to generate at most.")] = 200,
    decoder: Annotated[
        Decoder,
        typer.Option(
            help="exact: with the model's cache; state-space: after a conversion, in constant time a token; "
            "recompute: all tokens again for each new one."
        ),
    ] = "exact",
    tolerance: Annotated[float, typer.Option(help="Of the conversion to a state space.")] = 1e-3,
    temperature: Annotated[float, typer.Option(help="Of the distribution to draw from; 0: the likeliest token.")] = 0,
    top_k: Annotated[int | None, typer.Option(help="Draw among so many of the likeliest tokens.")] = None,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
) -> None:
    """Continue a text: what comes is printed as it comes, and the speed on stderr."""
    with _one_line_errors():
        import torch
        from transformers import TextStreamer

        from tnn._checks import check_positive
        from tnn.data.tokenizers import load_tokenizer

        check_positive("max_new_tokens", max_new_tokens)
        sampling = _sampling(temperature, top_k)
        network = _load_causal(model)
        tokenizer = load_tokenizer(model, network.config.vocab_size)
        ids = torch.tensor([_encode_prompt(tokenizer, prompt)])
        network = _with_decoder(network, decoder, tolerance)
        clock = _Clock(TextStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True))
        torch.manual_seed(seed)
        network.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_new_tokens,
            num_beams=1,
            use_cache=decoder != "recompute",
            streamer=clock,
            **sampling,
        )
        typer.echo("; ".join([clock.report(), *_state_space_report(network)]), err=True)


def _sampling(temperature: float, top_k: int | None) -> dict[str, Any]:
    from tnn._checks import check_tolerance

    check_tolerance("temperature", temperature)
    if temperature > 0:
        return {"do_sample": True, "temperature": temperature, "top_k": top_k or 0}
    if top_k is not None:
        raise ValueError(f"top_k needs a temperature above 0, for nothing is drawn without; got {top_k}")
    return {"do_sample": False}


def _with_decoder(network: Any, decoder: Decoder, tolerance: float) -> Any:
    if decoder == "exact" and not network.model.can_cache:
        raise ValueError("this model's outputs change with the length, so nothing can be kept: use --decoder recompute")
    if decoder == "state-space" and network.config.coefficients != "poles":
        return network.to_state_space(tolerance)
    return network


def _encode_prompt(tokenizer: Any, prompt: str) -> list[int]:
    prompt.encode()  # a ValueError where the terminal gave what is not text
    ids: list[int] = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    if not ids:
        raise ValueError(f"prompt must have at least one token; got {prompt!r}")
    return ids


def _state_space_report(network: Any) -> list[str]:
    layers = network.config.state_space or []
    if not layers:
        return []
    states = ", ".join(str(layer["states"]) for layer in layers)
    return [f"{states} states a layer, residual at most {max(layer['residual'] for layer in layers):.1e}"]


class _Clock:
    """Hands on what generate() tells its streamer, first the prompt and then token after token, and notes when."""

    def __init__(self, streamer: Any):
        self._streamer = streamer
        self._times: list[float] = []

    def put(self, value: Any) -> None:
        self._times.append(perf_counter())
        self._streamer.put(value)

    def end(self) -> None:
        self._streamer.end()

    def report(self) -> str:
        """Of the tokens after the first, which is the work of reading the prompt."""
        _, *times = self._times
        speed = f", {(len(times) - 1) / (times[-1] - times[0]):.1f} tokens/s" if len(times) > 1 else ""
        return f"{len(times)} token{'s' * (len(times) > 1)}{speed}"


@app.command()
def evaluate(
    model: Model,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A text in UTF-8.")],
    stream: Annotated[bool, typer.Option("--stream", help="The text as one, with all context carried along.")] = False,
    chunk: Annotated[
        int, typer.Option(help="With --stream: tokens in work at a time. No effect on the result.")
    ] = 4096,
    length: Annotated[int, typer.Option(help="Without --stream: tokens of a block, which sees no other.")] = 512,
) -> None:
    """Perplexity of a text."""
    with _one_line_errors():
        from tnn.data.tokenizers import is_byte_tokenizer, load_tokenizer, read_ids
        from tnn.models.chunks import block_loss, stream_loss

        if not file.is_file():
            raise FileNotFoundError(f"there is no file {file}")
        network = _load_causal(model)
        tokenizer = load_tokenizer(model, network.config.vocab_size)
        pieces = _Counted(read_ids(file, tokenizer))
        if stream:
            measured = stream_loss(network, pieces, chunk)
            protocol = f"one text in chunks of {chunk} tokens, each token but the first predicted from all before it"
        else:
            measured = block_loss(network, pieces, length)
            protocol = f"blocks of {length} tokens, each token but a block's first predicted from those before it there"
        if not is_byte_tokenizer(tokenizer):
            protocol += "; tokenised line by line"
        perplexity = math.exp(measured.loss) if measured.loss < 700 else math.inf  # beyond that, exp overflows
        tokens_a_byte = pieces.tokens / file.stat().st_size
        typer.echo(f"tokens         {measured.tokens:,} predicted of {pieces.tokens:,}")
        typer.echo(f"loss           {measured.loss:.4f} nats per token")
        typer.echo(f"perplexity     {perplexity:.4f} per token")
        typer.echo(f"bits per byte  {measured.loss / math.log(2) * tokens_a_byte:.4f}")
        typer.echo(f"protocol       {protocol}")


class _Counted:
    """Pieces of a text, handed on one by one, and the number of their tokens."""

    def __init__(self, pieces: Iterator[Any]):
        self._pieces = pieces
        self.tokens = 0

    def __iter__(self) -> Iterator[Any]:
        for piece in self._pieces:
            self.tokens += len(piece)
            yield piece


def _load_causal(folder: Path) -> Any:
    """A TNNForCausalLM, ready to run."""
    from transformers import AutoConfig

    from tnn.models import TNNForCausalLM

    _quiet_transformers()
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"there is no model in {folder}: it must be a folder with a config.json")
    try:
        config = AutoConfig.from_pretrained(folder)
    except TypeError as error:
        raise ValueError(f"{folder / 'config.json'}: {error}") from error
    found = (config.architectures or ["model of unknown kind"])[0]
    if found != TNNForCausalLM.__name__:
        raise ValueError(f"{folder} must hold a causal language model, {TNNForCausalLM.__name__}; got a {found}")
    return TNNForCausalLM.from_pretrained(folder).eval()


def _quiet_transformers() -> None:
    """No bars and warnings among the lines of a script."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """A user's mistake is one line and exit code 1; anything else is ours, and keeps its traceback."""
    try:
        yield
    except (ValueError, OSError, pickle.UnpicklingError) as error:
        typer.echo(f"error: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(1) from None
