"""The command that continues a text."""

from time import perf_counter
from typing import Annotated, Any, Literal

import typer

from tnn.cli.common import Model, load_causal, one_line_errors

Decoder = Literal["exact", "state-space", "recompute"]


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
    with one_line_errors():
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
