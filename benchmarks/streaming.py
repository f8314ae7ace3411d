"""Long texts and the state space, on the mini model after some minutes of training.

    python -m benchmarks.streaming         writes results/streaming.md

The model is trained on the source of Python's standard library, byte by byte, and tested on its last tenth.
"""

import math
from pathlib import Path

import torch
from benchmarks._mini import BATCH, LENGTH, STEPS, library_text, train_and_test, trained_mini
from benchmarks._timing import environment
from torch import Tensor

from tnn import TNNForCausalLM
from tnn.models import stream_loss

TOLERANCE = 1e-3
LENGTHS = (512, 1024, 2048, 4096, 8192, 16_384)
GREEDY = 2000
STREAM = 1_000_000
RESULTS = Path(__file__).parent.parent / "results"


def perplexity(model: TNNForCausalLM, text: Tensor, length: int) -> float:
    """Of blocks of `length` tokens, no context carried over, about 65,000 tokens in all."""
    blocks = text[: max(1, 65_536 // length) * length].view(-1, length)
    losses = [model(block[None], labels=block[None]).loss for block in blocks]
    return math.exp(torch.stack(losses).mean())


def greedy_agreement(model: TNNForCausalLM, fast: TNNForCausalLM, prompt: Tensor) -> float:
    """The share of GREEDY tokens of the exact model's text that the state space, fed with that text, says as well."""
    text = model.generate(prompt[None], max_new_tokens=GREEDY, do_sample=False, eos_token_id=None)
    out = fast(text[:, : len(prompt)], use_cache=True, logits_to_keep=1)
    said = []
    for i in range(len(prompt), text.shape[1]):
        said.append(int(out.logits.argmax()))
        out = fast(text[:, i : i + 1], past_key_values=out.past_key_values)
    return sum(a == b for a, b in zip(said, text[0, len(prompt) :].tolist(), strict=True)) / GREEDY


def measured_error(model: TNNForCausalLM, fast: TNNForCausalLM, text: Tensor) -> list[tuple[float, float]]:
    """For each layer, on what its operator gets in the exact model: the largest error, and the bound on it."""
    pairs: list[tuple[float, float]] = []

    def compare(layer: int) -> object:
        def hook(operator: object, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            v = inputs[0]
            error = (fast.model.layers[layer].operator(v) - output).abs().max()
            pairs.append((float(error), fast.config.state_space[layer]["bound"] * float(v.abs().max())))

        return hook

    handles = [layer.operator.register_forward_hook(compare(i)) for i, layer in enumerate(model.model.layers)]
    model(text[None])
    for handle in handles:
        handle.remove()
    return pairs


def resident_megabytes() -> float:
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def stream(model: TNNForCausalLM, chunk: int) -> tuple[float, float, float]:
    """(perplexity, MB after the first chunks, MB at the end) of STREAM tokens."""
    text = library_text()[:STREAM]
    memory: list[float] = []

    def pieces() -> object:
        for piece in text.split(chunk):
            memory.append(resident_megabytes())
            yield piece

    loss = stream_loss(model, pieces(), chunk=chunk).loss
    return math.exp(loss), memory[min(2, len(memory) - 1)], memory[-1]


@torch.no_grad()
def main() -> None:
    torch.set_num_threads(2)
    model = trained_mini()
    _, test = train_and_test()
    fast = model.to_state_space(tolerance=TOLERANCE)
    lines = [
        "# Streaming and the state space",
        "",
        f"`python -m benchmarks.streaming`, seed 0, {environment()}.",
        f"`mini-alm` ({model.num_parameters():,} parameters, decay {model.config.decay}), {STEPS} steps of",
        f"{BATCH} x {LENGTH} bytes of Python's standard library; tested on its last tenth.",
        "",
        f"## State space at tolerance {TOLERANCE:g}",
        "",
        "| layer | states | residual | bound on the output | measured on the test text |",
        "|---|---|---|---|---|",
    ]
    errors = measured_error(model, fast, test[:8192])
    for entry, (error, bound) in zip(fast.config.state_space, errors, strict=True):
        lines.append(f"| {entry['layer']} | {entry['states']} | {entry['residual']:.1e} | {bound:.1e} | {error:.1e} |")
    agreement = greedy_agreement(model, fast, test[:64])
    lines += ["", f"Greedy text of {GREEDY:,} tokens, teacher-forced: **{agreement:.2%}** the same (wanted: 99%).", ""]
    lines += ["| length | perplexity, exact | state space | change (wanted: below 0.1%) |", "|---|---|---|---|"]
    for length in LENGTHS:
        a, b = perplexity(model, test, length), perplexity(fast, test, length)
        lines.append(f"| {length:,} | {a:.4f} | {b:.4f} | {abs(b / a - 1):.4%} |")
    lines += ["", f"## {STREAM:,} tokens in chunks", ""]
    lines += ["| chunk | perplexity | MB after two chunks | MB at the end |", "|---|---|---|---|"]
    for chunk in (1000, 4096, 30_011):
        value, first, last = stream(model, chunk)
        lines.append(f"| {chunk:,} | {value:.6f} | {first:.0f} | {last:.0f} |")
    text = "\n".join([*lines, ""])
    print(text)
    (RESULTS / "streaming.md").write_text(text)


if __name__ == "__main__":
    main()
