"""The mini causal model, trained for some minutes on the source of Python's standard library."""

import sysconfig
import time
from pathlib import Path

import torch
from torch import Tensor

from tnn import TNNForCausalLM, load_preset

FOLDER = Path(__file__).parent.parent / "build" / "mini-alm"
STEPS, BATCH, LENGTH = 600, 16, 512
FIRST_BYTE = 4  # ids 0 to 3 are special


def library_text() -> Tensor:
    """The bytes of the modules of the standard library, in alphabetical order, as token ids."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    data = b"".join(file.read_bytes() for file in files)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).long() + FIRST_BYTE


def train_and_test() -> tuple[Tensor, Tensor]:
    """The text without its last tenth, and that tenth."""
    text = library_text()
    cut = len(text) * 9 // 10
    return text[:cut], text[cut:]


def trained_mini() -> TNNForCausalLM:
    """From build/mini-alm if it exists, otherwise trained now."""
    if not FOLDER.exists():
        _train()
    return TNNForCausalLM.from_pretrained(FOLDER)


def _train() -> None:
    torch.manual_seed(0)
    text, _ = train_and_test()
    model = TNNForCausalLM(load_preset("mini-alm"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=STEPS, pct_start=0.1)
    start = time.perf_counter()
    for step in range(STEPS):
        first = torch.randint(0, len(text) - LENGTH, (BATCH,))
        ids = torch.stack([text[i : i + LENGTH] for i in first])
        loss = model(ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}, {time.perf_counter() - start:.0f} s", flush=True)
    model.save_pretrained(FOLDER)


if __name__ == "__main__":
    torch.set_num_threads(2)
    trained_mini()
