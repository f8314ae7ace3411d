"""The page of the demo: one HTML file without external resources."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from itertools import takewhile
from typing import Any

from tnn.training.durations import format_time as format_time
from tnn.training.extrapolation import Extrapolation
from tnn.training.html import document, figure, headlines, table
from tnn.training.perplexity import format_ppl
from tnn.training.speed import Speed


@dataclass(frozen=True)
class DemoResults:
    """The settings and results of a demo. Tokens are bytes."""

    facts: list[str]  # about the machine and the run, a few words each
    settings: str  # one per line
    parameters: int
    steps: int
    tokens_per_step: int
    seconds: float | None  # of the training, if known
    extrapolation: Extrapolation
    temperature: float
    prompt: str
    samples: Mapping[str, str]  # by decoder, from the same seed
    speeds: list[Speed]
    state_space: list[dict[str, Any]]  # as in the configuration of the converted model
    training_figure: bytes  # PNG, like the next two
    extrapolation_figure: bytes
    kernels_figure: bytes

    def headlines(self) -> dict[str, str]:
        """The most important numbers, by their description."""
        run = self.extrapolation
        trained, longest = run.perplexities[run.lengths.index(run.reference_length)], run.lengths[-1]
        numbers = {"parameters": f"{self.parameters:,}"}
        if self.seconds is not None:
            numbers[f"of training, {self.steps:,} steps"] = format_time(self.seconds)
            numbers["tokens/s in training"] = f"{self.steps * self.tokens_per_step / self.seconds:,.0f}"
        name = f"perplexity per byte of the test text, {trained.bits_per_byte:.2f} bits"
        numbers[name] = format_ppl(trained.per_token, 3)
        name = f"perplexity at {longest:,} tokens, relative to {run.reference_length:,}"
        numbers[name] = format_ppl(run.ratios[-1], 3)
        context, speeds = list(_by_context(self.speeds).items())[-1]
        for decoder, speed in speeds.items():
            numbers[f"tokens/s, {decoder}, after {context:,} tokens"] = _speed(speed)
        return numbers


def printable(text: str) -> str:
    """Without control characters, which a model with little training may generate.

    >>> from tnn.training.report import printable
    >>> printable("def f():\\n\\x1b[2J")
    'def f():\\n�[2J'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def page(results: DemoResults) -> str:
    """The complete page.

    >>> from tnn.training.report import page
    >>> page(results)  # doctest: +SKIP
    '<!doctype html>...'
    """
    title = "A Toeplitz neural network, trained on this machine"
    sections = (_opening, _training, _lengths, _kernels, _samples, _decoders)
    return document(title, "\n".join(section(results) for section in sections))


def _opening(results: DemoResults) -> str:
    return f"""<p>A Toeplitz neural network (Qin et al., ICLR 2023) mixes a sequence with Toeplitz matrices instead of
attention: the weight between two positions depends only on their distance. A small network computes the weights from
the distance, and they decay with it, so that the same parameters work for any length. This model was trained on the
source of Python's standard library, one byte per token. Then it was evaluated on texts many times as long as those in
training, and generated some text.</p>
<p class="facts">{" · ".join(escape(fact) for fact in results.facts)}</p>
{headlines(results.headlines())}
<details>
<summary>All settings</summary>
<pre>{escape(results.settings)}</pre>
</details>"""


def _training(results: DemoResults) -> str:
    return f"""<h2>Training</h2>
{figure(results.training_figure, "Loss against steps, on the training text and on the validation text")}"""


def _lengths(results: DemoResults) -> str:
    run = results.extrapolation
    trained, longest, ratio = run.reference_length, run.lengths[-1], format_ppl(run.ratios[-1], 3)
    rows = [
        [f"{p.length:,}", format_ppl(p.per_token), f"{p.bits_per_byte:.4f}", format_ppl(r, 3)]
        for p, r in zip(run.perplexities, run.ratios, strict=True)
    ]
    return f"""<h2>Beyond the training length</h2>
<p>The model was trained on blocks of {run.train_length:,} bytes. The test text, {run.perplexities[0].tokens:,} bytes
that it has not seen, is split into blocks of increasing length. Each byte is predicted once, from those before it in
its block. At {longest:,} bytes, {longest / trained:.3g} times the length, the perplexity is {ratio} times that at
{trained:,}.</p>
{figure(results.extrapolation_figure, "Perplexity against the length of the blocks")}
<details>
<summary>All numbers</summary>
{table(["length", "perplexity per byte", "bits per byte", f"relative to {trained:,}"], rows)}
</details>"""


def _kernels(results: DemoResults) -> str:
    caption = "For each layer: the matrix, averaged over channels; some of its kernels; their size by distance"
    return f"""<h2>The learned kernels</h2>
<p>A causal Toeplitz matrix is its first column, the kernel, shifted down by one in each following column. The titles on
the right give the distances within which 50% and 90% of its weight lie.</p>
{figure(results.kernels_figure, caption, wide=True)}"""


def _samples(results: DemoResults) -> str:
    samples = "\n".join(
        f"<figure><figcaption>{escape(decoder)}</figcaption>"
        f"<pre><strong>{escape(results.prompt)}</strong>{escape(printable(text))}</pre></figure>"
        for decoder, text in results.samples.items()
    )
    return f"""<h2>Generated text</h2>
<p>Sampled at temperature {results.temperature:g} after the prompt in bold. The exact decoder keeps its context in a
cache; the constant-time decoder, called state-space, keeps a state of fixed size. From the same seed
{_agreement(list(results.samples.values()))}.</p>
<div class="samples">
{samples}
</div>"""


def _agreement(texts: list[str]) -> str:
    same = len(list(takewhile(lambda c: len(set(c)) == 1, zip(*texts, strict=False))))
    if all(len(text) == same for text in texts):
        return "they generated the same text"
    return f"their first {same:,} characters are the same"


def _decoders(results: DemoResults) -> str:
    speeds = _by_context(results.speeds)
    decoders = list(next(iter(speeds.values())))
    fast = [[f"{context:,}", *map(_speed, row.values())] for context, row in speeds.items()]
    states = [
        [str(x["layer"] + 1), str(x["states"]), f"{x['residual']:.1e}", f"{x['bound']:.1e}"]
        for x in results.state_space
    ]
    return f"""<h2>Decoding speed</h2>
<p>Tokens per second after contexts of several lengths. The decoder recompute reads the complete context again for each
new token.</p>
{table(["context", *decoders], fast)}
<p>The constant-time decoder replaces the kernels of a layer by sums of a few decaying oscillations, one state each.
The residual is the largest difference between a kernel and its sum, relative to the kernel. The bound limits the
resulting change in any output of the operator, at any length, for inputs up to 1.</p>
{table(["layer", "states", "residual", "bound"], states)}"""


def _by_context(speeds: list[Speed]) -> dict[int, dict[str, float]]:
    """Tokens per second of each decoder, in the order of measurement."""
    by_context: dict[int, dict[str, float]] = {}
    for speed in speeds:
        by_context.setdefault(speed.context, {})[speed.decoder] = speed.tokens_per_second
    return by_context


def _speed(tokens_per_second: float) -> str:
    return f"{tokens_per_second:,.{0 if tokens_per_second >= 100 else 1}f}"
