"""The command that generates text."""

from time import perf_counter
from typing import Annotated, Any, Literal

import typer

from tnn.cli.common import Model, load_causal

LOWEST_TEMPERATURE = 1e-6  # below, scores divided by it would overflow; the most likely token is all that is left
Decoder = Literal["exact", "state-space", "recompute"]


def generate(
    model: Model,
    prompt: Annotated[str, typer.Option(help="The text to continue.")],
    max_new_tokens: Annotated[int, typer.Option(help="Largest number of new tokens.")] = 200,
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
) -> None:
    """Continue a text. Tokens are printed as they are generated, the speed on stderr."""
    import torch
    from transformers import TextStreamer

    from tnn._checks import check_positive
    from tnn.data.tokenizers import load_tokenizer

    check_positive("max_new_tokens", max_new_tokens)
    sampling = _sampling(temperature, top_k)
    network = load_causal(model)
    tokenizer = load_tokenizer(model, network.config.vocab_size)
    ids = torch.tensor([_encode_prompt(tokenizer, prompt)], device=network.device)
    network = _with_decoder(network, decoder, tolerance)
    clock = _Clock(TextStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True))
    _set_seed(seed)
    network.generation_config = _only_token_ids(network.generation_config)
    network.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=max_new_tokens,
        use_cache=decoder != "recompute",
        streamer=clock,
        logits_processor=[_refuse_nan],
        **sampling,
    )
    typer.echo("; ".join([clock.report(), *_state_space_report(network)]), err=True)


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


def _set_seed(seed: int) -> None:
    import torch

    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"seed must be a number of 64 bits; got {seed}")
    torch.manual_seed(seed)


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


def _with_decoder(network: Any, decoder: Decoder, tolerance: float) -> Any:
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


def _encode_prompt(tokenizer: Any, prompt: str) -> list[int]:
    prompt.encode()  # a ValueError if the terminal gave invalid text
    ids: list[int] = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    if not ids:
        raise ValueError(f"prompt must have at least one token; got {prompt!r}")
    return ids


def _state_space_report(network: Any) -> list[str]:
    layers = [layer for layer in network.config.state_space or [] if layer is not None]
    if not layers:
        return []
    states = ", ".join(str(layer["states"]) for layer in layers)
    return [f"{states} states per layer, residual at most {max(layer['residual'] for layer in layers):.1e}"]


class _Clock:
    """A streamer for generate() that passes everything on to another one and records the times."""

    def __init__(self, streamer: Any):
        self._streamer = streamer
        self._times: list[float] = []

    def put(self, value: Any) -> None:
        self._times.append(perf_counter())
        self._streamer.put(value)

    def end(self) -> None:
        self._streamer.end()

    def report(self) -> str:
        """The speed of the tokens after the first, which includes reading the prompt."""
        _, *times = self._times
        speed = f", {(len(times) - 1) / (times[-1] - times[0]):.1f} tokens/s" if len(times) > 1 else ""
        return f"{len(times)} token{'s' * (len(times) > 1)}{speed}"
