"""Long texts and the state space, with a mini model that was trained for some minutes.

    python -m benchmarks.streaming         writes results/streaming.md

The model is trained on the source of Python's standard library, byte by byte, and tested on its last tenth.
"""

import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks._mini import BATCH, LENGTH, STEPS, library_text, train_and_test, trained_mini
from benchmarks._timing import environment
from tnn import TNNForCausalLM
from tnn.models import stream_loss
from tnn.streaming import new_state

TOLERANCE = 1e-3
LENGTHS = (512, 1024, 2048, 4096, 8192, 16_384)
GREEDY = 2000
STREAM = 1_000_000
RESULTS = Path(__file__).parent.parent / "results"


def perplexity(model: TNNForCausalLM, text: Tensor, length: int) -> float:
    """The perplexity of separate blocks of `length` tokens, about 65,000 tokens in all."""
    blocks = text[: max(1, 65_536 // length) * length].view(-1, length)
    losses = [model(block[None], labels=block[None]).loss for block in blocks]
    return math.exp(torch.stack(losses).mean())


def greedy_text(model: TNNForCausalLM, prompt: Tensor) -> Tensor:
    text = model.generate(prompt[None], max_new_tokens=GREEDY, do_sample=False, eos_token_id=None)
    return text[0, -GREEDY:]


def agreement(model: TNNForCausalLM, fast: TNNForCausalLM, text: Tensor) -> float:
    """The share of positions where both models have the same most likely next token; `fast` runs token by token."""
    exact = model(text[None]).logits[0].argmax(-1)
    cache, same = fast.model.new_cache(), 0
    for i, token in enumerate(text):
        same += int(fast(token[None, None], past_key_values=cache).logits.argmax() == exact[i])
    return same / len(text)


class Errors(NamedTuple):
    """Errors of one layer: the bound, and the largest measured errors relative to the largest input."""

    bound: float
    parallel: float  # on the inputs of the operator in the exact model
    stepped: float  # the same, token by token
    constant: float  # token by token on ones, where all rounding errors have the same sign


def measured_errors(model: TNNForCausalLM, fast: TNNForCausalLM, text: Tensor) -> list[Errors]:
    errors: list[Errors] = []

    def compare(layer: int) -> object:
        exact, operator = model.model.layers[layer].operator, fast.model.layers[layer].operator

        def error(form: Callable[[Tensor], Tensor], v: Tensor) -> float:
            return float((form(v) - exact.forward(v)).abs().max() / v.abs().max())

        def step_by_step(v: Tensor) -> Tensor:
            state = new_state(operator)
            return torch.cat([state(token) for token in v.split(1, 1)], 1)

        def hook(module: object, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            v = inputs[0]
            bound = fast.config.state_space[layer]["bound"]
            stepped = [error(step_by_step, x) for x in (v, torch.ones_like(v))]
            errors.append(Errors(bound, error(operator, v), *stepped))

        return hook

    handles = [layer.operator.register_forward_hook(compare(i)) for i, layer in enumerate(model.model.layers)]
    model(text[None])
    for handle in handles:
        handle.remove()
    return errors


def resident_megabytes() -> float:
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def report_stream(chunk: int) -> None:
    """Print the perplexity of STREAM tokens, and MB after the first chunk, at the maximum afterwards, and at the end.

    A chunk runs when the next one has been read, because its last token predicts the first token of the next one.
    """
    text = library_text()[:STREAM]
    memory: list[float] = []

    def pieces() -> Iterator[Tensor]:
        for piece in text.split(chunk):
            memory.append(resident_megabytes())  # after the previous chunk
            yield piece

    loss = stream_loss(trained_mini(), pieces(), chunk=chunk).loss
    print(math.exp(loss), memory[2], max(memory[2:]), memory[-1])


def stream(chunk: int) -> list[float]:
    """`report_stream` in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.streaming", "--stream", str(chunk)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=RESULTS.parent)
    return [float(value) for value in done.stdout.split()[-4:]]


@torch.no_grad()
def main() -> None:
    torch.set_num_threads(2)
    if "--stream" in sys.argv:
        report_stream(int(sys.argv[-1]))
        return
    model = trained_mini()
    _, test = train_and_test()
    fast = model.to_state_space(tolerance=TOLERANCE)
    lines = [
        "# Streaming and the state space",
        "",
        f"`python -m benchmarks.streaming`, seed 0, {environment()}.",
        f"`mini-alm` ({model.num_parameters():,} trained parameters, decay {model.config.decay}), {STEPS} steps of",
        f"{BATCH} x {LENGTH} bytes of Python's standard library; tested on its last tenth.",
        "",
        f"## State space at tolerance {TOLERANCE:g}",
        "",
        "Error of each operator's output, relative to its largest input: the bound, and what is measured on the inputs",
        "that 8,192 bytes of the test text make, in parallel and token by token, and token by token on ones.",
        "",
        "| layer | states | residual | bound | in parallel | token by token | on ones |",
        "|---" * 7 + "|",
    ]
    measured = measured_errors(model, fast, test[:8192])
    for entry, errors in zip(fast.config.state_space, measured, strict=True):
        values = " | ".join(f"{error:.1e}" for error in errors)
        lines.append(f"| {entry['layer']} | {entry['states']} | {entry['residual']:.1e} | {values} |")
    exceeded = sum(max(errors[1:]) > errors.bound for errors in measured)
    lines += ["", f"Layers in which the bound is exceeded: **{exceeded}** (wanted: 0)."]
    shares = [agreement(model, fast, text) for text in (greedy_text(model, test[:64]), test[:GREEDY])]
    lines += [
        "",
        f"Same likeliest next byte, teacher-forced over {GREEDY:,} tokens: **{shares[0]:.2%}** of the exact model's",
        f"own greedy text (wanted: 99%; it soon repeats itself), {shares[1]:.2%} of the test text.",
        "",
    ]
    lines += ["| length | perplexity, exact | state space | change (wanted: below 0.1%) |", "|---|---|---|---|"]
    for length in LENGTHS:
        a, b = perplexity(model, test, length), perplexity(fast, test, length)
        lines.append(f"| {length:,} | {a:.4f} | {b:.4f} | {abs(b / a - 1):.4%} |")
    lines += ["", f"## {STREAM:,} tokens in chunks", ""]
    lines += [
        "Resident memory of the process in MB after the first chunk, the most after a later one, and at the end.",
        "",
    ]
    lines += ["| chunk | perplexity | first | most | end | growth (wanted: at most 5%) |", "|---" * 6 + "|"]
    for chunk in (1000, 4096, 30_011):
        value, first, most, end = stream(chunk)
        row = f"| {chunk:,} | {value:.6f} | {first:.0f} | {most:.0f} | {end:.0f} | {most / first - 1:+.1%} |"
        lines.append(row)
    text = "\n".join([*lines, ""])
    print(text)
    (RESULTS / "streaming.md").write_text(text)


if __name__ == "__main__":
    main()
