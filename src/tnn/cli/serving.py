"""The command that serves a model."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from tnn.serving import Service

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def serve(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="The folder of a language model or classifier, or a run."),
    ],
    host: Annotated[str, typer.Option(help="The address to listen on; by default this machine only.")] = LOOPBACK[0],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    name: Annotated[str | None, typer.Option(help="Of the model in the API.", show_default="of the folder")] = None,
    decoder: Annotated[
        Literal["exact", "state-space"],
        typer.Option(help="exact: the model as it is; state-space: after a conversion, with a state of constant size."),
    ] = "exact",
    tolerance: Annotated[
        float, typer.Option(help="Of the conversion to a state space: largest relative difference of the kernels.")
    ] = 1e-3,
    api_key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="One key per line; or one in TNN_API_KEY.", show_default="no key"),
    ] = None,
    max_streams: Annotated[int, typer.Option(help="Texts that are written at the same time.")] = 64,
    max_queue: Annotated[int, typer.Option(help="Texts that may wait for a place; more get 429.")] = 256,
    max_tokens: Annotated[int, typer.Option(help="New tokens of a text.")] = 4096,
    max_prompt_tokens: Annotated[int, typer.Option(help="Tokens that are read in one call.")] = 32_768,
    max_sessions: Annotated[int, typer.Option(help="Sessions that are kept; the longest unused go first.")] = 1000,
    session_minutes: Annotated[int, typer.Option(help="How long states are kept without use.")] = 60,
    state_memory: Annotated[int, typer.Option(metavar="MB", help="Memory of kept states.")] = 512,
    max_body: Annotated[int, typer.Option(metavar="KB", help="Size of a request.")] = 1024,
    timeout: Annotated[int, typer.Option(help="Seconds for a call.")] = 300,
) -> None:
    """Serve a model over HTTP with OpenAI's API: completions, chat, streams; or labels. See docs/serving.md."""
    _check_installed()
    from tnn.serving.keys import load_keys
    from tnn.serving.server import listen
    from tnn.serving.server import serve as run
    from tnn.serving.service import Limits, load_service

    limits = Limits(
        max_streams=max_streams,
        max_queue=max_queue,
        max_tokens=max_tokens,
        max_prompt_tokens=max_prompt_tokens,
        max_body=max_body * 1024,
        timeout=timeout,
        max_sessions=max_sessions,
        session_seconds=session_minutes * 60,
        state_bytes=state_memory * 2**20,
    )
    keys = load_keys(api_key_file)
    with listen(host, port) as opened:
        if host not in LOOPBACK and not keys.required:
            typer.echo(f"warning: everybody who reaches {host} can use this server: it has no --api-key-file", err=True)
        folder, network = _load(model, decoder, tolerance)
        service = load_service(folder, name=name or model.resolve().name, keys=keys, limits=limits, model=network)
        address = _address(host, opened.getsockname()[1])
        if not run(service, opened, lambda: typer.echo("\n".join(_greeting(service, address)))):
            raise typer.Exit(1)


def _check_installed() -> None:
    for name in ("fastapi", "uvicorn", "jinja2"):
        if find_spec(name) is None:
            raise ImportError(f"{name} is missing: pip install 'toeplitz-nn[serve]'")


def _load(model: Path, decoder: Literal["exact", "state-space"], tolerance: float) -> tuple[Path, Any]:
    from tnn.cli.common import quiet_transformers
    from tnn.cli.generation import with_decoder
    from tnn.models import TNNForCausalLM
    from tnn.training.evaluation import load_model
    from tnn.training.runs import newest_model

    quiet_transformers()
    folder = newest_model(model)
    if folder != model:
        typer.echo(f"{model} is not finished: using {folder.name}", err=True)
    network = load_model(folder)
    if decoder == "state-space":
        if not isinstance(network, TNNForCausalLM):
            raise ValueError(f"--decoder state-space is for language models; {folder} has a {type(network).__name__}")
        network = with_decoder(network, decoder, tolerance)
    return folder, network


def _address(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _greeting(service: "Service", address: str) -> list[str]:
    """What is served, and a line to try."""
    model, limits = service.model, service.limits
    about = f"{service.name}: {type(model).__name__}, {model.num_parameters():,} parameters"
    body, route = '{"texts": ["A fine film."]}', "/v1/predict"
    if service.state is not None:
        decoder = "state space" if model.config.coefficients == "poles" else "exact decoder"
        size = f"{service.state.nbytes / 1000:,.1f} kB"
        state = f"{size} per token" if service.state.grows else f"at most {size}, however long the text"
        about += f", {decoder}; state of a session: {state}"
        body, route = '{"prompt": "The ", "max_tokens": 50, "stream": true}', "/v1/completions"
    key = ' -H "Authorization: Bearer $TNN_API_KEY"' if service.keys.required else ""
    return [
        about,
        f"{address} is ready for {limits.max_streams} texts at once; Ctrl-C stops it. Try:",
        f"curl -N {address}{route} -H 'Content-Type: application/json'{key} -d '{body}'",
    ]
