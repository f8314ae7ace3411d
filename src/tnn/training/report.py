"""The page of a demonstration: one HTML file that needs nothing else, made of what was measured."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from itertools import takewhile
from typing import Any

from tnn.training.extrapolation import Extrapolation
from tnn.training.html import document, headlines, picture, table
from tnn.training.perplexity import show
from tnn.training.speed import Speed


@dataclass(frozen=True)
class Findings:
    """What was done and measured. Tokens are bytes."""

    facts: list[str]  # of the machine and the run, in a few words each
    settings: str  # all of them, as lines of text
    parameters: int
    steps: int
    tokens_per_step: int
    seconds: float | None  # of the training, if they are known
    extrapolation: Extrapolation
    temperature: float
    prompt: str
    samples: Mapping[str, str]  # what each decoder wrote after the prompt, from the same seed
    speeds: list[Speed]
    state_space: list[dict[str, Any]]  # as in the configuration of the converted model
    training_figure: bytes  # these are PNG
    extrapolation_figure: bytes
    kernels_figure: bytes

    def headlines(self) -> dict[str, str]:
        """The few numbers to remember, by what they are."""
        found = self.extrapolation
        trained, longest = found.perplexities[found.lengths.index(found.reference_length)], found.lengths[-1]
        numbers = {"parameters": f"{self.parameters:,}"}
        if self.seconds is not None:
            numbers[f"of training, {self.steps:,} steps"] = duration(self.seconds)
            numbers["tokens/s in training"] = f"{self.steps * self.tokens_per_step / self.seconds:,.0f}"
        numbers[f"perplexity per byte of the test text, {trained.bits_per_byte:.2f} bits"] = show(trained.per_token, 3)
        numbers[f"perplexity at {longest:,} tokens, relative to {found.reference_length:,}"] = show(found.ratios[-1], 3)
        context, speeds = list(_by_context(self.speeds).items())[-1]
        for decoder, speed in speeds.items():
            numbers[f"tokens/s, {decoder}, after {context:,} tokens"] = _speed(speed)
        return numbers


def duration(seconds: float) -> str:
    """In minutes and seconds.

    >>> from tnn.training.report import duration
    >>> duration(147.6), duration(59.4)
    ('2 min 28 s', '59 s')
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def printable(text: str) -> str:
    """Without the control characters that a young model writes, which have no place in HTML or on a terminal.

    >>> from tnn.training.report import printable
    >>> printable("def f():\\n\\x1b[2J")
    'def f():\\n�[2J'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def page(found: Findings) -> str:
    """The whole page.

    >>> from tnn.training.report import page
    >>> page(findings)  # doctest: +SKIP
    '<!doctype html>...'
    """
    title = "A Toeplitz neural network, trained on this machine"
    sections = [_opening(found), _training(found), _lengths(found), _kernels(found), _samples(found), _decoders(found)]
    return document(title, "\n".join(sections))


def _opening(found: Findings) -> str:
    return f"""<p>A Toeplitz neural network (Qin et al., ICLR 2023) mixes a sequence with Toeplitz matrices in the place
of attention: the weight between two positions depends on their distance alone. A small network makes the weights from
the distance, and they decay with it, so that the same parameters serve any length. Here such a model has learned to
write Python, one byte a token, from the standard library that comes with the interpreter. Then it read texts many times
as long as any that it was trained on, and wrote some of its own.</p>
<p class="facts">{" · ".join(escape(fact) for fact in found.facts)}</p>
{headlines(found.headlines())}
<details>
<summary>All settings</summary>
<pre>{escape(found.settings)}</pre>
</details>"""


def _training(found: Findings) -> str:
    return f"""<h2>Training</h2>
{picture(found.training_figure, "Loss against steps, on the text of training and on text held back")}"""


def _lengths(found: Findings) -> str:
    run = found.extrapolation
    trained, longest, ratio = run.reference_length, run.lengths[-1], show(run.ratios[-1], 3)
    rows = [
        [f"{p.length:,}", show(p.per_token), f"{p.bits_per_byte:.4f}", show(r, 3)]
        for p, r in zip(run.perplexities, run.ratios, strict=True)
    ]
    return f"""<h2>Far past the length of training</h2>
<p>The model was trained on blocks of {run.train_length:,} bytes. The test text, {run.perplexities[0].tokens:,} bytes
that it never saw, is cut into blocks of growing length, and each byte predicted once from those before it in its block.
At {longest:,} bytes, {longest / trained:.3g} times as many, perplexity is {ratio} of what it is at {trained:,}.</p>
{picture(found.extrapolation_figure, "Perplexity against the length of the blocks")}
<details>
<summary>The numbers</summary>
{table(["length", "perplexity per byte", "bits per byte", f"relative to {trained:,}"], rows)}
</details>"""


def _kernels(found: Findings) -> str:
    caption = "Of each layer: the matrix, averaged over channels; some of its kernels; their size by distance"
    return f"""<h2>What it has learned to look at</h2>
<p>A causal Toeplitz matrix is its first column, the kernel, shifted down column after column. The titles on the right
say within which distance half of its weight lies, and nine tenths.</p>
{picture(found.kernels_figure, caption, wide=True)}"""


def _samples(found: Findings) -> str:
    samples = "\n".join(
        f"<figure><figcaption>{escape(decoder)}</figcaption>"
        f"<pre><strong>{escape(found.prompt)}</strong>{escape(printable(text))}</pre></figure>"
        for decoder, text in found.samples.items()
    )
    return f"""<h2>What it writes</h2>
<p>Drawn at temperature {found.temperature:g} after the words in bold. The exact decoder keeps what it has read in a
cache; the constant-time decoder, called state-space, keeps a state of fixed size. From the same seed
{_agreement(list(found.samples.values()))}.</p>
<div class="samples">
{samples}
</div>"""


def _agreement(texts: list[str]) -> str:
    same = len(list(takewhile(lambda c: len(set(c)) == 1, zip(*texts, strict=False))))
    if all(len(text) == same for text in texts):
        return "they wrote the same text"
    return f"their first {same:,} characters are the same"


def _decoders(found: Findings) -> str:
    speeds = _by_context(found.speeds)
    decoders = list(next(iter(speeds.values())))
    fast = [[f"{context:,}", *map(_speed, row.values())] for context, row in speeds.items()]
    states = [
        [str(x["layer"] + 1), str(x["states"]), f"{x['residual']:.1e}", f"{x['bound']:.1e}"] for x in found.state_space
    ]
    return f"""<h2>How fast it writes</h2>
<p>Tokens per second after a context of so many tokens. To recompute is to read the whole context again for each new
token.</p>
{table(["context", *decoders], fast)}
<p>The constant-time decoder replaces the kernels of a layer by sums of a few decaying oscillations, one state each.
The residual is the largest difference between a kernel and its sum, relative to the kernel. The bound is on what that
changes in any output of the operator, at any length, for inputs up to 1.</p>
{table(["layer", "states", "residual", "bound"], states)}"""


def _by_context(speeds: list[Speed]) -> dict[int, dict[str, float]]:
    """Tokens a second of each decoder, in the order of measurement."""
    found: dict[int, dict[str, float]] = {}
    for speed in speeds:
        found.setdefault(speed.context, {})[speed.decoder] = speed.tokens_per_second
    return found


def _speed(tokens_per_second: float) -> str:
    return f"{tokens_per_second:,.{0 if tokens_per_second >= 100 else 1}f}"
