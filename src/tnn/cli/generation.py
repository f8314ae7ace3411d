"""The command that generates text."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tnn.cli.common import load_causal

if TYPE_CHECKING:
    from tnn.cli.continuation import Continuation

LOWEST_TEMPERATURE = 1e-6  # below, scores divided by it would overflow; the most likely token is all that is left
CHUNK = 4096  # tokens of the prompt that are read at once: a long one takes no more memory
Decoder = Literal["exact", "state-space", "recompute"]


def generate(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The folder of a causal language model, a run, or a checkpoint.")
    ],
    prompt: Annotated[str | None, typer.Option(help="The text to continue; - reads it from standard input.")] = None,
    prompt_file: Annotated[Path | None, typer.Option(metavar="FILE", help="A file with the text to continue.")] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Largest number of new tokens.")] = 200,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="The new text ends before this; may be repeated.")
    ] = None,
    samples: Annotated[int, typer.Option(help="Number of texts; their seeds are --seed, --seed + 1, ...")] = 1,
    decoder: Annotated[
        Decoder,
        typer.Option(
            help="exact: with the cache of the model; state-space: after a conversion, in constant time per token; "
            "recompute: reads all tokens again for each new one."
        ),
    ] = "exact",
    tolerance: Annotated[
        float, typer.Option(help="Of the conversion to a state space: largest relative difference of the kernels.")
    ] = 1e-3,
    temperature: Annotated[float, typer.Option(help="Of the distribution; 0: always the most likely token.")] = 0,
    top_k: Annotated[int | None, typer.Option(help="Sample from this many of the most likely tokens.")] = None,
    seed: Annotated[int, typer.Option(help="Of the random numbers.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per text, when it is complete.")
    ] = False,
) -> None:
    """Continue a text. Tokens are printed as they are generated, the speed on stderr. Runs need not be finished."""
    import torch

    from tnn._checks import check_positive
    from tnn.cli.prompts import read_prompt
    from tnn.data.tokenizers import load_tokenizer
    from tnn.training.runs import newest_model

    check_positive("max_new_tokens", max_new_tokens)
    sampling, stops = _sampling(temperature, top_k), _checked_stops(stop or [])
    _check_samples(samples, seed, temperature)
    text = read_prompt(prompt, prompt_file)
    folder = newest_model(model)
    if folder != model:
        typer.echo(f"{model} is not finished: using {folder.name}", err=True)
    network = load_causal(folder)
    tokenizer = load_tokenizer(folder, network.config.vocab_size)
    ids = torch.tensor([_encode_prompt(folder, tokenizer, text)], device=network.device)
    network = with_decoder(network, decoder, tolerance)
    options = sampling | {"max_new_tokens": max_new_tokens, "use_cache": decoder != "recompute"}
    for number in range(samples):
        torch.manual_seed(seed + number)
        if samples > 1 and not as_json:
            typer.echo(f"--- {number + 1} of {samples}, seed {seed + number}")
        pieces: list[str] = []
        new = _continue(network, tokenizer, ids, stops, pieces.append if as_json else _show, options)
        if as_json:
            values = {"prompt": text, "text": "".join(pieces), "seed": seed + number, "tokens": new.tokens}
            values |= {"seconds": round(new.seconds, 6), "finished": new.finished}
            typer.echo(json.dumps(values, ensure_ascii=False))
        else:
            typer.echo()
        typer.echo("; ".join([new.report(), *_state_space_report(network)]), err=True)


def _continue(
    network: Any, tokenizer: Any, ids: Any, stops: list[str], write: Callable[[str], object], options: dict[str, Any]
) -> "Continuation":
    """Generate one text. Its pieces are written as they come."""
    import torch
    from transformers import StoppingCriteriaList

    from tnn.cli.continuation import Continuation

    config = _only_token_ids(network.generation_config)
    if options["use_cache"] and ids.shape[1] > CHUNK:
        config.prefill_chunk_size = CHUNK
    network.generation_config = config
    eos = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    text = Continuation(
        lambda new: str(tokenizer.decode(new, skip_special_tokens=True)),
        write,
        most=options["max_new_tokens"],
        stops=stops,
        eos=eos,
    )
    network.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        logits_processor=[_refuse_nan],
        stopping_criteria=StoppingCriteriaList([text]),
        **options,
    )
    return text


def _show(piece: str) -> None:
    typer.echo(piece, nl=False)


def _checked_stops(stops: list[str]) -> list[str]:
    for text in stops:
        text.encode()  # a ValueError if the terminal gave invalid text
        if not text:
            raise ValueError("stop must have at least one character; got ''")
    return stops


def _check_samples(samples: int, seed: int, temperature: float) -> None:
    from tnn._checks import check_positive

    check_positive("samples", samples)
    if samples > 1 and temperature == 0:
        raise ValueError(f"samples needs a temperature above 0: without, all would be the same; got {samples}")
    if not -(2**63) <= seed <= seed + samples <= 2**64:
        raise ValueError(f"seed must be a number of 64 bits; got {seed}")


def _sampling(temperature: float, top_k: int | None) -> dict[str, Any]:
    from tnn._checks import check_positive, check_tolerance

    check_tolerance("temperature", temperature)
    if 0 < temperature < LOWEST_TEMPERATURE:
        raise ValueError(f"temperature must be 0, or at least {LOWEST_TEMPERATURE}; got {temperature}")
    if top_k is not None:
        check_positive("top_k", top_k)
    if temperature > 0:
        return {"do_sample": True, "temperature": temperature, "top_k": top_k or 0}
    if top_k is not None:
        raise ValueError(f"top_k needs a temperature above 0: without, nothing is sampled; got {top_k}")
    return {"do_sample": False}


def _only_token_ids(saved: Any) -> Any:
    """The options of the command are all that counts, not what else generation_config.json may ask for."""
    from transformers import GenerationConfig

    kept = {name: getattr(saved, name) for name in ("bos_token_id", "pad_token_id", "eos_token_id")}
    return GenerationConfig(**kept)


def _refuse_nan(ids: Any, scores: Any) -> Any:
    """A logits processor: with NaN among the scores, the choice of a token would mean nothing."""
    if scores.isnan().any():
        raise ArithmeticError(f"the model gives NaN after {ids.shape[1]} tokens")
    return scores


def with_decoder(network: Any, decoder: Decoder, tolerance: float) -> Any:
    if decoder == "exact" and not network.model.can_cache:
        raise ValueError("this model has no cache, because its outputs change with the length: use --decoder recompute")
    if decoder != "state-space" or network.config.coefficients == "poles":
        return network
    from tnn.models.state_space import LargerStateSpace

    try:
        return network.to_state_space(tolerance)
    except LargerStateSpace as error:
        typer.echo(f"{error}; decoding exactly", err=True)
        return network


def _encode_prompt(model: Path, tokenizer: Any, prompt: str) -> list[int]:
    """As the text that the model was trained on."""
    from tnn.data.encoding import encode_prompt
    from tnn.training.evaluation import separate_lines

    ids = encode_prompt(tokenizer, prompt, separate=separate_lines(model))
    if not ids:
        raise ValueError(f"prompt must have at least one token; got {prompt!r}")
    return ids


def _state_space_report(network: Any) -> list[str]:
    layers = [layer for layer in network.config.state_space or [] if layer is not None]
    if not layers:
        return []
    states = ", ".join(str(layer["states"]) for layer in layers)
    return [f"{states} states per layer, residual at most {max(layer['residual'] for layer in layers):.1e}"]
