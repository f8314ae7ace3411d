"""One training step (forward, backward, AdamW) of the paper's language model, compared with two references.

    python -m benchmarks.train_step        writes results/train_step.md

- paper: the same model with the FFT code of the paper's authors as operator, and plain cross-entropy;
- matrix products: only the forward and backward products of every dense layer and of the output layer.

All take turns in one run; times are medians. Peak memory is measured in a fresh process for each.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers.loss.loss_utils import ForCausalLMLoss

from benchmarks._timing import environment, interleaved_medians
from benchmarks.operator import paper_form
from tnn import TNNForCausalLM, load_preset
from tnn.layers import ToeplitzOperator

BATCH, LENGTH = 8, 512
RESULTS = Path(__file__).parent.parent / "results"


class PaperOperator(nn.Module):
    """The causal operator as the paper's authors compute it: all lags, transforms of length 2n along the sequence."""

    def __init__(self, operator: ToeplitzOperator):
        super().__init__()
        self.operator = operator

    def forward(self, x: Tensor, mask: None = None) -> Tensor:
        kernel = self.operator.kernel(x.shape[1])
        return paper_form(x, torch.cat([kernel, torch.zeros_like(kernel)]))


def make_step(paper: bool) -> Callable[[], float]:
    torch.manual_seed(0)
    model = TNNForCausalLM(load_preset("wikitext103-alm", dropout=0.0))  # no dropout, so that losses can be compared
    if paper:
        model.loss_function = ForCausalLMLoss
        for layer in model.model.layers:
            layer.token_mixer.operator = PaperOperator(layer.token_mixer.operator)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(3, model.config.vocab_size, (BATCH, LENGTH))

    def step() -> float:
        optimizer.zero_grad()
        loss = model(ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def make_products() -> Callable[[], None]:
    """y = x W^T, dx = dy W, dW = dy^T x for every dense layer."""
    model = TNNForCausalLM(load_preset("wikitext103-alm"))
    dense = [m for name, m in model.named_modules() if isinstance(m, nn.Linear) and ".rpe." not in name]
    weights = [m.weight.detach() for m in dense]
    inputs = {w.shape[1]: torch.randn(BATCH * LENGTH, w.shape[1]) for w in weights}
    grads = {w.shape[0]: torch.randn(BATCH * LENGTH, w.shape[0]) for w in weights}

    def products() -> None:
        for w in weights:
            x, dy = inputs[w.shape[1]], grads[w.shape[0]]
            torch.mm(x, w.T)
            torch.mm(dy, w)
            torch.mm(dy.T, x)

    return products


def peak_memory(kind: str) -> float:
    """Peak MB of two steps in a fresh process, minus what it uses before the model is made."""
    command = [sys.executable, "-m", "benchmarks.train_step", "--memory", kind]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=RESULTS.parent)
    return float(done.stdout.split()[-1])


def report_memory(kind: str) -> None:
    def status(name: str) -> float:
        return int(Path("/proc/self/status").read_text().split(name)[1].split()[0]) / 1024

    before = status("VmRSS:")
    step = make_step(paper=kind == "paper")
    step()
    step()
    print(status("VmHWM:") - before)


def main() -> None:
    torch.set_num_threads(2)
    if "--memory" in sys.argv:
        report_memory(sys.argv[-1])
        return
    paper, ours = make_step(paper=True), make_step(paper=False)
    losses = paper(), ours()
    assert abs(losses[0] - losses[1]) < 1e-3, f"the two models disagree: {losses}"
    seconds = interleaved_medians({"paper": paper, "ours": ours, "products": make_products()}, repeats=5)
    memory = {kind: peak_memory(kind) for kind in ("paper", "ours")}
    text = f"""# A training step

`python -m benchmarks.train_step`, seed 0, {environment()}.
`wikitext103-alm` (48.68M parameters), {BATCH} x {LENGTH} tokens, float32, no dropout, fused AdamW; medians,
interleaved.

| | seconds | peak memory, MB |
|---|---|---|
| the paper's FFT form, plain cross-entropy | {seconds["paper"]:.2f} | {memory["paper"]:,.0f} |
| this library | {seconds["ours"]:.2f} | {memory["ours"]:,.0f} |
| its matrix products alone | {seconds["products"]:.2f} | |

- **{seconds["paper"] / seconds["ours"]:.2f}** times as fast as the paper's form (wanted: 1.5).
- **{seconds["ours"] / seconds["products"]:.2f}** times the time of its matrix products (wanted: at most 1.35).
- **{memory["ours"] / memory["paper"]:.2f}** times its peak memory (wanted: at most 0.7).
"""
    print(text)
    (RESULTS / "train_step.md").write_text(text)


if __name__ == "__main__":
    main()
