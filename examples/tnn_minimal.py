"""A complete causal Toeplitz Neural Network in one file: operator, model, training, generation. It needs torch alone.

    python examples/tnn_minimal.py                                          # Python's own source, in some seconds
    python examples/tnn_minimal.py book.txt --steps 2000 --prompt "It was"  # your text

Numbers are sections of the paper (Qin et al., ICLR 2023). Parameters have the names of the library's TNNForCausalLM.
Shapes: b batch, n positions, d channels, e = gtu_expansion * d channels inside a gated Toeplitz unit, v vocabulary.
"""

import argparse
import math
import pathlib
import random

import torch
import torch.nn.functional as F
from torch import nn

# 3.2 y_i = sum of t_{i-j} x_j over j <= i, one Toeplitz matrix per channel. It is a block of a circulant matrix of size
# 2n, which the Fourier transform makes diagonal: O(n log n) instead of O(n^2).


def causal_toeplitz(x, t):  # x (b, n, e), t (n, e): the coefficients of lags 0 .. n-1
    n = x.shape[1]
    product = torch.fft.rfft(x, 2 * n, dim=1) * torch.fft.rfft(t, 2 * n, dim=0)  # (b, n + 1, e)
    return torch.fft.irfft(product, 2 * n, dim=1)[:, :n]  # (b, n, e)


def simple_rms_norm(x, eps=1e-8):  # over the channels, without parameters
    return x / (x.square().mean(-1, keepdim=True).sqrt() + eps)


# 3.3 A small network maps a lag to its coefficients, one per channel. It takes any lag: there is no maximum length.


class RelativePositionEncoder(nn.Module):
    def __init__(self, channels, size, num_layers):
        super().__init__()
        self.input = nn.Linear(1, size)
        self.hidden = nn.ModuleList(nn.Linear(size, size) for _ in range(num_layers))
        self.output = nn.Linear(size, channels)

    def forward(self, lags):  # (n,)
        z = self.input(lags[:, None])  # (n, size)
        for layer in [*self.hidden, self.output]:
            z = layer(F.relu(simple_rms_norm(z)))
        return z  # (n, e)


class ToeplitzOperator(nn.Module):
    def __init__(self, channels, decay, rpe_size, rpe_num_layers):
        super().__init__()
        self.decay = decay
        self.rpe = RelativePositionEncoder(channels, rpe_size, rpe_num_layers)

    def forward(self, x):  # (b, n, e)
        lags = torch.arange(x.shape[1], device=x.device, dtype=x.dtype)
        decay = torch.exp(lags * math.log(self.decay))  # (n,): far lags fade, so a text may be longer than in training
        return causal_toeplitz(x, self.rpe(lags) * decay[:, None])


# 3.1 A gated Toeplitz unit mixes positions, a gated linear unit mixes channels. The two make a block.


class GatedToeplitzUnit(nn.Module):
    def __init__(self, size, expansion, **operator):
        super().__init__()
        self.gate_proj = nn.Linear(size, expansion * size)
        self.value_proj = nn.Linear(size, expansion * size)
        self.out_proj = nn.Linear(expansion * size, size)
        self.operator = ToeplitzOperator(expansion * size, **operator)
        for layer in (self.gate_proj, self.value_proj, self.out_proj):
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.normal_(layer.bias, std=0.02)

    def forward(self, x):  # (b, n, d)
        gate, value = F.silu(self.gate_proj(x)), F.silu(self.value_proj(x))  # (b, n, e) each
        return self.out_proj(gate * self.operator(value))


class GatedLinearUnit(nn.Module):
    def __init__(self, size, expansion):
        super().__init__()
        self.gate_proj = nn.Linear(size, expansion * size)
        self.value_proj = nn.Linear(size, expansion * size)
        self.out_proj = nn.Linear(expansion * size, size)

    def forward(self, x):  # (b, n, d)
        return self.out_proj(F.silu(self.gate_proj(x)) * self.value_proj(x))


class Block(nn.Module):
    def __init__(self, size, gtu_expansion=2, glu_expansion=1, decay=0.99, rpe_size=32, rpe_num_layers=3):
        super().__init__()
        operator = {"decay": decay, "rpe_size": rpe_size, "rpe_num_layers": rpe_num_layers}
        self.token_mixer = GatedToeplitzUnit(size, gtu_expansion, **operator)
        self.channel_mixer = GatedLinearUnit(size, glu_expansion)

    def forward(self, x):  # (b, n, d)
        x = x + self.token_mixer(simple_rms_norm(x))
        return x + self.channel_mixer(simple_rms_norm(x))


class TNN(nn.Module):
    def __init__(self, vocab_size=256, size=96, num_layers=2, **block):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab_size, size)
        nn.init.normal_(self.embed_tokens.weight, std=size**-0.5)
        self.layers = nn.ModuleList(Block(size, **block) for _ in range(num_layers))
        self.norm = nn.LayerNorm(size)

    def forward(self, ids):  # (b, n)
        x = self.embed_tokens(ids) * self.embed_tokens.embedding_dim**0.5  # (b, n, d); no positions
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.embed_tokens.weight.T  # (b, n, v): the output matrix is the embedding


# Training and evaluation: each byte is predicted from those before it.


def loss_of(model, rows):  # rows (b, n + 1)
    return F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def train(model, text, steps, length=128, batch_size=16, learning_rate=3e-3, log_every=40):  # text (m,): byte ids
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=steps, pct_start=0.1)
    losses = []
    for step in range(1, steps + 1):
        starts = torch.randint(len(text) - length, (batch_size,)).tolist()
        loss = loss_of(model, torch.stack([text[i : i + length + 1] for i in starts]))
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % log_every == 0:
            print(f"step {step:5}  loss {sum(losses[-log_every:]) / log_every:.3f}")
    return losses


@torch.no_grad()
def perplexity(model, text, length):
    rows = text[: (len(text) - 1) // length * length + 1].unfold(0, length + 1, length)  # (rows, length + 1)
    return math.exp(sum(loss_of(model, row[None]).item() for row in rows) / len(rows))


# Generation: the complete text again for each new byte. The library has an exact cache, and a state of constant size.


@torch.no_grad()
def generate(model, ids, count, temperature=1.0):  # ids (n,)
    for _ in range(count):
        probabilities = F.softmax(model(ids[None])[0, -1] / temperature, dim=-1)  # (v,)
        ids = torch.cat([ids, torch.multinomial(probabilities, 1)])
    return ids  # (n + count,)


def read(file):
    """The bytes of a file, or of the modules of Python's standard library in a random order."""
    files = [pathlib.Path(file)] if file else sorted(pathlib.Path(argparse.__file__).parent.glob("*.py"))
    random.Random(0).shuffle(files)
    return torch.frombuffer(bytearray(b"".join(path.read_bytes() for path in files)), dtype=torch.uint8).long()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", help="the text to learn; by default Python's standard library")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--prompt", default="def ")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    text = read(arguments.file)
    split = max(len(text) - 16_385, len(text) * 9 // 10)  # the last part is for the test, at most 16,384 bytes
    model = TNN()
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {split:,} bytes of text")
    train(model, text[:split], arguments.steps)
    for length in (128, 512, 2048):  # the length of training, and up to 16 times that
        if len(text) - split > length:
            print(f"perplexity in blocks of {length:4} bytes: {perplexity(model, text[split:], length):.3f}")
    prompt = torch.tensor(list(arguments.prompt.encode()))
    print(bytes(generate(model, prompt, 300).tolist()).decode(errors="replace"))


if __name__ == "__main__":
    main()
