"""Time per token of the decoders at the size of the paper's language model, batch 1.

    python -m benchmarks.decode            writes results/decode.md and results/decode.png

- floor: the same model without token mixing (its operators are the identity);
- exact: the model with its cache;
- state-space: 48 states per layer, the most that a conversion at tolerance 1e-3 should need;
- recompute: the complete prefix for each token, as without a cache;
- transformer: a GPT-2 of transformers with about as many parameters, with its key-value cache.

Decoders take turns in one run, in blocks of 64 tokens; a time is the median over the blocks, divided by 64. Weights and
the transformer's cache are random: times do not depend on their values.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

from benchmarks._timing import environment
from tnn import TNNForCausalLM, load_preset
from tnn.layers import count_parameters
from tnn.streaming.history import BLOCK

CONTEXTS = (512, 2048, 4096, 8192, 16_384)
BLOCKS = 5
STATES = 48
TRANSFORMER_UP_TO = 8192
RESULTS = Path(__file__).parent.parent / "results"
Step = Callable[[], object]


class Identity(nn.Module):
    def forward(self, x: Tensor, mask: None = None) -> Tensor:
        return x


def exact_model() -> TNNForCausalLM:
    return TNNForCausalLM(load_preset("wikitext103-alm")).eval()


def floor_model() -> TNNForCausalLM:
    model = exact_model()
    for layer in model.model.layers:
        layer.token_mixer.operator = Identity()
    return model


def state_space_model() -> TNNForCausalLM:
    config = load_preset("wikitext103-alm")
    entry = {"poles": STATES // 2}
    config = load_preset("wikitext103-alm", coefficients="poles", state_space=[entry] * config.num_hidden_layers)
    model = TNNForCausalLM(config).eval()
    with torch.no_grad():
        for layer in model.model.layers:
            angle = torch.linspace(0, 3, STATES // 2)
            layer.operator.poles.poles.copy_(0.98 * torch.stack([angle.cos(), angle.sin()], 1))
            layer.operator.poles.weights.normal_(std=0.01)
    return model


def transformer() -> GPT2LMHeadModel:
    positions = TRANSFORMER_UP_TO + BLOCK * (BLOCKS + 1)
    config = GPT2Config(vocab_size=50_264, n_embd=512, n_layer=6, n_head=8, n_positions=positions)
    return GPT2LMHeadModel(config).eval()


def step_of(model: nn.Module, context: int) -> Step:
    """The next token after a context."""
    token = torch.randint(3, 50_000, (1, 1))
    if isinstance(model, GPT2LMHeadModel):
        cache: object = DynamicCache(config=model.config)
        for layer in range(model.config.n_layer):
            cache.update(torch.randn(1, 8, context, 64), torch.randn(1, 8, context, 64), layer)
    else:
        cache = model(torch.randint(3, 50_000, (1, context)), use_cache=True, logits_to_keep=1).past_key_values
    return lambda: model(token, past_key_values=cache, use_cache=True, logits_to_keep=1)


def milliseconds_per_token(steps: dict[str, Step]) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in steps}
    for block in range(BLOCKS + 1):  # the first one is a warm-up
        for name, step in steps.items():
            start = time.perf_counter()
            for _ in range(BLOCK):
                step()
            if block:
                times[name].append((time.perf_counter() - start) / BLOCK)
    return {name: 1e3 * statistics.median(values) for name, values in times.items()}


def milliseconds_to_recompute(model: nn.Module, context: int) -> float:
    ids = torch.randint(3, 50_000, (1, context))
    times = []
    for _ in range(4):
        start = time.perf_counter()
        model(ids, use_cache=False, logits_to_keep=1)
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times[1:])


def measure() -> dict[int, dict[str, float]]:
    torch.manual_seed(0)
    models = {"floor": floor_model(), "exact": exact_model(), "state-space": state_space_model()}
    gpt2 = transformer()
    token = torch.randint(3, 50_000, (1, 1))
    results = {}
    for context in CONTEXTS:
        steps: dict[str, Step] = {"floor": lambda: models["floor"](token, logits_to_keep=1)}
        steps |= {name: step_of(models[name], context) for name in ("exact", "state-space")}
        if context <= TRANSFORMER_UP_TO:
            steps["transformer"] = step_of(gpt2, context)
        results[context] = milliseconds_per_token(steps)
        results[context]["recompute"] = milliseconds_to_recompute(models["exact"], context)
        print(context, {name: round(value, 2) for name, value in results[context].items()}, flush=True)
    return results


def state_bytes() -> dict[str, float]:
    """The size of the state of one layer in MB, for one sequence of any length."""
    config = load_preset("wikitext103-alm")
    channels = config.hidden_size * config.gtu_expansion
    reach = exact_model().model.layers[0].operator.reach
    return {"exact": 4 * channels * (reach + 2 * BLOCK + 127) / 1e6, "state-space": 4 * channels * (STATES + 16) / 1e6}


def report(results: dict[int, dict[str, float]]) -> str:
    names = ["floor", "exact", "state-space", "transformer", "recompute"]
    first, last = results[CONTEXTS[0]], results[CONTEXTS[-1]]
    size = {"tnn": sum(count_parameters(exact_model())), "transformer": transformer().num_parameters()}
    memory = state_bytes()
    worst = {name: max(r[name] / r["floor"] for r in results.values()) for name in ("exact", "state-space")}
    at, far = results[4096], results[8192]
    lines = [
        "# Decoding",
        "",
        f"`python -m benchmarks.decode`, seed 0, {environment()}.",
        f"`wikitext103-alm` ({size['tnn']:,} parameters), batch 1, float32; transformer: {size['transformer']:,}.",
        "Milliseconds per token (median of blocks of 64, decoders interleaved), by the length of the context.",
        "",
        "| context | " + " | ".join(names) + " |",
        "|---" * (1 + len(names)) + "|",
    ]
    for context, row in results.items():
        lines.append(f"| {context:,} | " + " | ".join(f"{row[n]:.2f}" if n in row else "" for n in names) + " |")
    lines += [
        "",
        "![time per token](decode.png)",
        "",
        f"- Growth from 512 to 16,384: exact **{last['exact'] / first['exact']:.2f}**, "
        f"state-space **{last['state-space'] / first['state-space']:.2f}** (wanted: at most 1.1).",
        f"- Over the floor, at the worst context: exact **{worst['exact']:.2f}** (wanted: at most 1.6), "
        f"state-space **{worst['state-space']:.2f}** (at most 1.2).",
        f"- Against recomputing 4,096 tokens: exact **{at['recompute'] / at['exact']:.0f}** times as fast, "
        f"state-space **{at['recompute'] / at['state-space']:.0f}** (wanted: 30).",
        f"- Against the transformer at 8,192: exact **{far['transformer'] / far['exact']:.2f}** times as fast, "
        f"state-space **{far['transformer'] / far['state-space']:.2f}** (wanted: above 1).",
        f"- State of a layer: exact {memory['exact']:.1f} MB, state-space {memory['state-space']:.2f} MB "
        "(wanted: at most 2).",
        "",
    ]
    return "\n".join(lines)


def draw(results: dict[int, dict[str, float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2))
    for name in ("recompute", "transformer", "exact", "state-space", "floor"):
        points = [(context, row[name]) for context, row in results.items() if name in row]
        axes.plot(*zip(*points, strict=True), marker="o", label=name, linestyle="--" if name == "floor" else "-")
    axes.set(xscale="log", yscale="log", xlabel="tokens before", ylabel="milliseconds per token")
    axes.set_xticks(CONTEXTS, [f"{c:,}" for c in CONTEXTS])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(RESULTS / "decode.png", dpi=120)


@torch.no_grad()
def main() -> None:
    torch.set_num_threads(2)
    results = measure()
    draw(results)
    text = report(results)
    print(text)
    (RESULTS / "decode.md").write_text(text)


if __name__ == "__main__":
    main()
