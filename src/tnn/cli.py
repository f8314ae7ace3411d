"""The command line: `tnn`, or `python -m tnn`. A command imports what it needs when it runs: help must come at once."""

import os
import pickle
import shlex
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
Run = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a run, or of any model.")]
TEXT_HELP = "A text file, a folder of them, stdlib, or hf:NAME; see docs/data.md."
Text = Annotated[
    str | None, typer.Argument(metavar="[TEXT]", help=TEXT_HELP, show_default="what the model was trained on")
]
Split = Annotated[
    Literal["train", "validation", "test"] | None,
    typer.Option(help="The part of the text; a single file is taken whole.", show_default="test"),
]
Decoder = Literal["exact", "state-space", "recompute"]
data = typer.Typer(no_args_is_help=True)
generators = typer.Typer(no_args_is_help=True)
app.add_typer(data, name="data", help="Tokenise texts, train tokenizers, make data of Long-Range Arena.")
data.add_typer(generators, name="generate", help="Make data of Long-Range Arena, by its rules.")
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


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A name (--list shows them) or a YAML file.")] = "",
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes, as training.steps=100.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the run.", show_default="runs/RECIPE")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in that folder.")] = False,
    list_names: Annotated[bool, typer.Option("--list", help="Print the recipes there are.")] = False,
) -> None:
    """Train a model by a recipe. Ctrl-C saves and stops; torchrun and accelerate launch use several processes."""
    with _one_line_errors():
        from tnn.experiments.recipe import list_recipes, load_recipe

        if list_names:
            typer.echo("\n".join(list_recipes()))
            return
        if not recipe:
            raise ValueError(f"give a recipe: {', '.join(list_recipes())}, or a YAML file")
        loaded = load_recipe(recipe, changes or ())
        out = out or Path("runs") / loaded.name
        from tnn.experiments.training import Interrupted
        from tnn.experiments.training import train as run

        _quiet_transformers()
        try:
            run(loaded, out, resume=resume)
        except Interrupted as stopped:
            again = shlex.join(["tnn", "train", recipe, *(changes or ()), "--out", str(out), "--resume"])
            launched = int(os.environ.get("WORLD_SIZE", 1)) > 1
            if os.environ.get("RANK", "0") == "0":  # one voice for all processes
                typer.echo(f"{stopped}; go on with: {'the same and --resume' if launched else again}", err=True)
            raise typer.Exit(130) from None


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
        ids = torch.tensor([_encode_prompt(tokenizer, prompt)], device=network.device)
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
    model: Run,
    text: Text = None,
    split: Split = None,
    length: Annotated[
        int | None, typer.Option(help="Tokens of a block, which sees no other; by default that of the training.")
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="The text as one, with all context carried along.")] = False,
    chunk: Annotated[
        int, typer.Option(help="With --stream: tokens in work at a time. No effect on the result.")
    ] = 4096,
) -> None:
    """Perplexity of a language model, or the scores of a classifier."""
    with _one_line_errors():
        from tnn.experiments.evaluation import evaluate as report

        _quiet_transformers()
        typer.echo(report(model, text, split=split, length=length, stream=stream, chunk=chunk))


@app.command()
def extrapolate(
    model: Run,
    text: Text = None,
    split: Split = None,
    lengths: Annotated[
        str, typer.Option(metavar="A,B,...", help="Lengths of blocks.", show_default="the paper's 19, to 14,336")
    ] = "",
    max_tokens: Annotated[int | None, typer.Option(help="Read the beginning of the text only.")] = None,
    batch_tokens: Annotated[
        int, typer.Option(help="Tokens in work at a time, or one block if that is longer; fewer if memory is short.")
    ] = 16_384,
    out: Annotated[
        Path | None, typer.Option(help="The folder for the table, its JSON and the figure.", show_default="MODEL")
    ] = None,
) -> None:
    """Perplexity at lengths that the model was not trained on."""
    with _one_line_errors():
        from tnn.experiments.evaluation import load_text
        from tnn.experiments.extrapolation import LENGTHS
        from tnn.experiments.extrapolation import extrapolate as measure
        from tnn.experiments.figures import new_figure

        new_figure(height=1)  # without matplotlib it fails here, not after the work
        chosen = _numbers("lengths", lengths) if lengths else LENGTHS
        network = _load_causal(model)
        found = load_text(model, network, text, split or "test")
        eos = found.tokenizer.eos_token_id
        result = measure(
            network, found.tokens, chosen, eos, found.length, batch_tokens=batch_tokens, max_tokens=max_tokens
        )
        result.save(out or model, name=model.name)
        typer.echo(result.to_table())


@app.command()
def show(
    model: Run,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The picture.", show_default="MODEL/kernels.png")
    ] = None,
    length: Annotated[int | None, typer.Option(help="Rows and columns of the matrices.")] = None,
) -> None:
    """Draw the Toeplitz matrix and the kernels of each layer."""
    with _one_line_errors():
        from transformers import AutoModel

        from tnn.experiments.figures import draw_model, save_figure
        from tnn.experiments.tasks.task import checked_model_folder

        _quiet_transformers()
        path = out or checked_model_folder(model) / "kernels.png"
        _existing_folder(path.parent)
        save_figure(draw_model(AutoModel.from_pretrained(model).eval(), length), path)
        typer.echo(path)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder for the model and the page.")] = Path("runs/demo"),
) -> None:
    """Train a small model on Python's own library, show what it can do, and write a page about it; in some minutes."""
    with _one_line_errors():
        from tnn.experiments.demo import demo as run
        from tnn.experiments.training import Interrupted

        _quiet_transformers()
        try:
            run(out, say=typer.echo)
        except Interrupted as stopped:
            typer.echo(f"{stopped}; go on with: {shlex.join(['tnn', 'demo', '--out', str(out)])}", err=True)
            raise typer.Exit(130) from None


@app.command()
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="An experiment (--list shows them), report for the pages of what is known, or all for everything.",
        ),
    ] = "",
    scale: Annotated[Literal["mini", "paper"], typer.Option(help="For two CPU cores, or as published.")] = "mini",
    methods: Annotated[
        str, typer.Option(metavar="A,B,...", help="Rows of the table.", show_default="all of them")
    ] = "",
    seeds: Annotated[
        int | None, typer.Option(help="Seeds of each row.", show_default="three of some, one of the others")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Updates of each training.", show_default="as the scale has")
    ] = None,
    data_dir: Annotated[Path, typer.Option(help="The folder with the data sets; see docs/reproduction.md.")] = Path(
        "data"
    ),
    out: Annotated[Path, typer.Option(help="The folder for records, tables and figures.")] = Path("results"),
    models: Annotated[Path, typer.Option(help="The folder for trained models.")] = Path("runs/reproduce"),
    list_names: Annotated[bool, typer.Option("--list", help="Print the experiments there are.")] = False,
) -> None:
    """Make a table and a figure of the paper again. What has been measured is not measured again."""
    with _one_line_errors():
        from tnn.experiments.reproduction.catalogue import EXPERIMENTS

        if list_names:
            typer.echo("\n".join(f"{key:20} {experiment.about}" for key, experiment in EXPERIMENTS.items()))
            return
        if not name:
            raise ValueError(f"give an experiment: {', '.join(EXPERIMENTS)}; or report, or all")
        if methods and name in ("report", "all"):
            raise ValueError(f"--methods chooses rows of one experiment; {name} is of all")
        from tnn.experiments.reproduction.page import write_report
        from tnn.experiments.reproduction.running import command
        from tnn.experiments.reproduction.running import reproduce as run
        from tnn.experiments.reproduction.trial import Options
        from tnn.experiments.training import Interrupted

        _quiet_transformers()
        chosen = Options(scale, tuple(methods.split(",")) if methods else None, seeds, steps)
        names = {"all": list(EXPERIMENTS), "report": []}.get(name, [name])
        try:
            for each in names:
                run(each, chosen, data=data_dir, out=out, models=models, say=typer.echo)
            if name in ("report", "all"):
                write_report(chosen, out, say=typer.echo)
        except Interrupted as stopped:
            typer.echo(f"{stopped}; go on with: {command(name, chosen)} and the same folders", err=True)
            raise typer.Exit(130) from None


@app.command()
def bench(
    model: Model,
    contexts: Annotated[str, typer.Option(metavar="A,B,...", help="Tokens before the measured ones.")] = "512,4096",
    new_tokens: Annotated[int, typer.Option(help="Tokens to measure at each context.")] = 64,
    tolerance: Annotated[float, typer.Option(help="Of the conversion to a state space.")] = 1e-3,
) -> None:
    """Tokens per second of the decoders, on this machine."""
    with _one_line_errors():
        from tnn.experiments.speed import decoding_speed, to_table

        chosen, network = _numbers("contexts", contexts), _load_causal(model)
        config = network.config
        decays = config.mixer == "tnn" and config.decay_mode != "none" and config.decay < 1
        converted = network.to_state_space(tolerance) if decays and config.coefficients != "poles" else None
        typer.echo(to_table(decoding_speed(network, chosen, new_tokens, converted)))


@data.command()
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
    with _one_line_errors():
        from tnn.data import open_corpus, tokenize
        from tnn.data.tokens import cache_folder, tokenizer_for

        corpus, kept = open_corpus(text), cache_folder(cache)
        made = tokenizer_for(tokenizer, corpus, mask=mask, cache=kept)
        for split in corpus.splits():
            found = tokenize(corpus, split, made, kept)
            counts = f"{len(found.ids):13,} tokens  {found.words:12,} words  {found.bytes:13,} bytes"
            typer.echo(f"{split:10}  {counts}")


@data.command("tokenizer")
def make_bpe(
    text: Annotated[str, typer.Argument(metavar="TEXT", help=TEXT_HELP)],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to make.")],
    size: Annotated[int, typer.Option(help="Tokens of the vocabulary.")] = 8000,
    mask: Annotated[bool, typer.Option("--mask", help="With a mask token on top, for masked language models.")] = False,
) -> None:
    """Train a byte-level BPE tokenizer on the training split of a text."""
    with _one_line_errors():
        from tnn.data import open_corpus, train_bpe
        from tnn.models.saving import check_free, save_whole

        check_free(out)
        made = train_bpe(open_corpus(text).lines("train"), size, mask=mask)
        save_whole(made, out)
        typer.echo(f"{len(made):,} tokens: {out}")


Folder = Annotated[Path, typer.Option(metavar="DIR", help="The folder to make, or to go on with.")]
Seed = Annotated[int, typer.Option(help="Of all draws: the same seed gives the same data.")]
Workers = Annotated[int | None, typer.Option(help="Processes to use.", show_default="one a core")]


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
    with _one_line_errors():
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
    with _one_line_errors():
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


def _numbers(name: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} must be numbers with commas between them, as 512,1024; got {text!r}") from None


def _existing_folder(folder: Path) -> Path:
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    return folder


def _load_causal(folder: Path) -> Any:
    """A TNNForCausalLM, ready to run."""
    from tnn.experiments.evaluation import load_model
    from tnn.models import TNNForCausalLM

    _quiet_transformers()
    model = load_model(folder)
    if not isinstance(model, TNNForCausalLM):
        raise ValueError(f"{folder} must hold a causal language model; got a {type(model).__name__}")
    return model


def _quiet_transformers() -> None:
    """No bars and warnings among the lines of a script."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """A user's mistake is one line and exit code 1; anything else is ours, and keeps its traceback."""
    from safetensors import SafetensorError

    try:
        yield
    except (ValueError, OSError, ArithmeticError, ImportError, SafetensorError, pickle.UnpicklingError) as error:
        message = str(error).strip().splitlines()[-1] if "in DataLoader worker" in str(error) else str(error)
        typer.echo(f"error: {' '.join(message.split())}", err=True)
        raise typer.Exit(1) from None
