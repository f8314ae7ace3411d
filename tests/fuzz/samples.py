"""Tiny models, texts, tables and images, all valid: made once, then copied and damaged."""

import gzip
import math
import pickle
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image
from transformers.utils import logging

from tests.fuzz.judge import run
from tnn.data import byte_tokenizer
from tnn.data.labelled_texts import text_tokenizer
from tnn.data.token_labels import token_tokenizer
from tnn.data.tokenizers import train_bpe
from tnn.models import (
    TNNConfig,
    TNNForCausalLM,
    TNNForImageClassification,
    TNNForSequenceClassification,
    TNNForTokenClassification,
    TNNImageConfig,
)
from tnn.training.demo import Scale, demo
from tnn.training.recipe import dump_recipe, parse_recipe

WORDS = "a toeplitz matrix has the same entry along each diagonal so few numbers describe all of it é ∑".split()  # noqa: SIM905
SIZES: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "rpe_size": 8, "decay": 0.9}
TEXT_IDS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
TRAINING = {"steps": 4, "batch_size": 2, "learning_rate": 0.01, "schedule": "cosine", "log_every": 1, "save_every": 2}
BLOCK = 32
RUN_RECIPE = {
    "name": "run",
    "task": "causal-lm",
    "model": {"preset": "mini-alm", **SIZES},
    "data": {"corpus": "corpus", "length": BLOCK},
    "training": TRAINING,
}
PROMPT = "a toep"


class Samples:
    """Folders in `home`: models `causal`, `bpe`, `image`, `photos`, `cifar`, `lists`, `glue`, `labelled`,
    `tagged`; a `run`.

    The data of the classifiers are in folders called as the model and `-data`.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        logging.disable_progress_bar()
        torch.manual_seed(0)
        self._make_texts()
        self._make_language_models()
        self._make_images()
        self._make_tables()
        self._make_run()
        self._make_labelled()
        self._make_tagged()
        for name in ("image", "photos", "cifar", "lists", "glue", "labelled", "tagged"):
            self.reference(["evaluate", name])  # whole, it is accepted: a damaged one is not refused for another reason

    def copy(self, name: str, here: Path) -> Path:
        return shutil.copytree(self.home / name, here / name)

    # --- texts

    def _make_texts(self) -> None:
        rng = random.Random(0)
        (self.home / "corpus").mkdir()
        for split, lines in (("train", 30), ("valid", 6), ("test", 6)):
            (self.home / "corpus" / f"{split}.txt").write_text(sentences(rng, lines), encoding="utf-8")

    def _make_language_models(self) -> None:
        lines = (self.home / "corpus" / "train.txt").read_text(encoding="utf-8").splitlines()
        for name, tokenizer in ("causal", byte_tokenizer()), ("bpe", train_bpe(lines, 300)):
            model = TNNForCausalLM(TNNConfig(vocab_size=len(tokenizer), **TEXT_IDS, **SIZES))
            _save(_with_opinions(model), self.home / name)
            tokenizer.save_pretrained(self.home / name)

    @cached_property
    def model(self) -> Any:
        return TNNForCausalLM.from_pretrained(self.home / "causal").eval()

    def perplexity(self, text: bytes, length: int) -> float:
        """Of the byte model on blocks of a text, computed plainly."""
        ids = torch.tensor([TEXT_IDS["eos_token_id"], *(byte + 4 for byte in text)])
        total = 0.0
        for start in range(0, len(text), length):
            block = ids[start : start + length + 1]
            with torch.inference_mode():
                logits = self.model(block[None, :-1]).logits[0].double()
            total -= logits.log_softmax(-1).gather(1, block[1:, None]).sum().item()
        return math.exp(total / len(text))

    def continuation(self, prompt: str, count: int) -> str:
        """Greedy, with the whole text computed for each token."""
        ids = [byte + 4 for byte in prompt.encode()]
        new: list[int] = []
        while len(new) < count and TEXT_IDS["eos_token_id"] not in new:
            with torch.inference_mode():
                new.append(int(self.model(torch.tensor([ids + new])).logits[0, -1].argmax()))
        return byte_tokenizer().decode(new, skip_special_tokens=True)

    # --- images: 12 x 12 as idx files, with two classes; photographs in folders

    def _make_images(self) -> None:
        generator = np.random.default_rng(0)
        data = self.home / "image-data"
        data.mkdir()
        for split, count in (("train", 12), ("t10k", 8)):
            labels = np.arange(count, dtype=np.uint8) % 2
            write_idx(data / f"{split}-images-idx3-ubyte", generator.integers(0, 256, (count, 12, 12), np.uint8))
            write_idx(data / f"{split}-labels-idx1-ubyte", labels)
        self._make_image_model("image", channels=1)
        for split, count in (("train", 2), ("val", 3)):
            for name in ("blue", "red"):
                folder = self.home / "photos-data" / split / name
                folder.mkdir(parents=True)
                for number in range(count):
                    pixels = generator.integers(0, 256, (12 + number, 14, 3), np.uint8)
                    Image.fromarray(pixels).save(folder / f"{number}{('.png', '.jpg', '.bmp')[number]}")
        self._make_image_model("photos", channels=3)
        for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
            batch = {"data": generator.integers(0, 256, (2, 3072), np.uint8), "labels": [0, 1]}
            (self.home / "cifar-data").mkdir(exist_ok=True)
            (self.home / "cifar-data" / name).write_bytes(pickle.dumps(batch, protocol=4))
        self._make_image_model("cifar", channels=3)

    def _make_image_model(self, name: str, channels: int) -> None:
        config = TNNImageConfig(image_size=12, patch_size=4, num_channels=channels, num_labels=2, **SIZES)
        values = {"images": str(self.home / f"{name}-data"), "size": 12, "mean": [0.5] * channels}
        data = {**values, "std": [0.2] * channels}
        self._save_classifier(name, TNNForImageClassification(config), "image", "mini-image", data)

    # --- tables: ListOps and a task of GLUE

    def _make_tables(self) -> None:
        rng = random.Random(1)
        lists, glue = self.home / "lists-data", self.home / "glue-data" / "SST-2"
        lists.mkdir()
        glue.mkdir(parents=True)
        for split, count in (("train", 8), ("val", 4), ("test", 4)):
            digits = [rng.sample(range(10), 2) for _ in range(count)]
            rows = [f"( ( ( [MAX {a} ) {b} ) ] )\t{max(a, b)}\n" for a, b in digits]
            (lists / f"basic_{split}.tsv").write_text("Source\tTarget\n" + "".join(rows))
        for split, count in (("train", 8), ("dev", 6)):
            rows = [f"{' '.join(rng.choices(WORDS, k=6))}\t{k % 2}\n" for k in range(count)]
            (glue / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(rows), encoding="utf-8")
        config = {**SIZES, "is_decoder": False}
        from tnn.data.lra import load_lra

        tokenizer = load_lra("listops", lists, check_counts=False).tokenizer
        ids = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": tokenizer.eos_token_id}
        model = TNNForSequenceClassification(TNNConfig(vocab_size=len(tokenizer), num_labels=10, **ids, **config))
        self._save_classifier(
            "lists", model, "lra", "lra-listops", {"task": "listops", "folder": str(lists), "check_counts": False}
        )
        tokenizer.save_pretrained(self.home / "lists")
        model = TNNForSequenceClassification(TNNConfig(vocab_size=260, num_labels=2, **TEXT_IDS, **config))
        data = {"glue": str(self.home / "glue-data"), "tasks": ["sst2"], "length": 64}
        self._save_classifier("glue", model, "glue", None, data)
        byte_tokenizer().save_pretrained(self.home / "glue")

    def _make_labelled(self) -> None:
        """A table of texts with labels, and a model of it."""
        rng = random.Random(2)
        data = self.home / "labelled-data"
        data.mkdir()
        rows = [f"{' '.join(rng.choices(WORDS, k=6))} {k},{('bad', 'good')[k % 2]}\n" for k in range(40)]
        (data / "table.csv").write_text("text,label\n" + "".join(rows), encoding="utf-8")
        names: dict[str, Any] = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
        config = TNNConfig(vocab_size=260, is_decoder=False, **names, **TEXT_IDS, **SIZES)
        values = {"table": str(data / "table.csv"), "length": 64}
        self._save_classifier("labelled", TNNForSequenceClassification(config), "classification", "mini-blm", values)
        text_tokenizer(byte_tokenizer(), 64).save_pretrained(self.home / "labelled")

    def _make_tagged(self) -> None:
        """Tagged words, and a model of them."""
        rng = random.Random(3)
        data = self.home / "tagged-data"
        data.mkdir()
        for split, count in (("train", 12), ("dev", 4)):
            tags = ["O", "B-X", "I-X", "B-Y", "O", "O"]
            sentences = ["".join(f"{rng.choice(WORDS)} {tag}\n" for tag in tags) for _ in range(count)]
            (data / f"{split}.conll").write_text("\n".join(sentences), encoding="utf-8")
        names = dict(enumerate(["O", "B-X", "I-X", "B-Y", "I-Y"]))
        config = TNNConfig(vocab_size=260, is_decoder=False, id2label=names, **TEXT_IDS, **SIZES)
        values = {"table": str(data), "length": 64}
        self._save_classifier("tagged", TNNForTokenClassification(config), "token-classification", "mini-blm", values)
        token_tokenizer(byte_tokenizer()).save_pretrained(self.home / "tagged")

    def _save_classifier(self, name: str, model: Any, task: str, preset: str | None, data: dict[str, Any]) -> None:
        start = {"preset": preset} if preset else {"start_from": "elsewhere"}
        values = {"name": name, "task": task, "model": start, "data": data, "training": TRAINING}
        _save(_with_opinions(model), self.home / name)
        (self.home / name / "recipe.yaml").write_text(dump_recipe(parse_recipe(values)))

    # --- a run, and a demo

    @contextmanager
    def small_demo(self) -> Iterator[None]:
        """The demo with a small model, a small text and few steps; all else is as it is."""
        sizes = (f"model.{name}={size}" for name, size in SIZES.items())
        training = (f"training.{name}={value}" for name, value in TRAINING.items())
        changes = (*sizes, *training, "training.warmup_steps=1", "training.evaluate_every=2")
        data = (f"data.corpus={self.home / 'corpus'}", f"data.length={BLOCK}")
        scale = Scale((*changes, *data), lengths=(BLOCK, 2 * BLOCK), contexts=(8,), new_tokens=4)
        with patch("tnn.training.demo.demo", partial(demo, scale=scale)):
            yield

    def _make_run(self) -> None:
        """A training of four steps; `run` is what is left if it was stopped after the last checkpoint."""
        (self.home / "run.yaml").write_text(dump_recipe(parse_recipe(RUN_RECIPE)))
        result = run(["train", "run.yaml", "--out", "run"], self.home)
        assert result.code == 0, result
        self.trained = (self.home / "run" / "model.safetensors").read_bytes()
        for name in ("config.json", "model.safetensors", "measured.json"):
            (self.home / "run" / name).unlink()

    def reference(self, args: list[str]) -> str:
        """What a command prints on stdout without any damage."""
        if args not in [known for known, _ in self._known]:
            result = run(args, self.home)
            assert result.code == 0, (args, result)
            self._known.append((args, result.out))
        return next(out for known, out in self._known if known == args)

    @cached_property
    def _known(self) -> list[tuple[list[str], str]]:
        return []


def sentences(rng: random.Random, lines: int) -> str:
    return "".join(" ".join(rng.choices(WORDS, k=8)) + "\n" for _ in range(lines))


def write_idx(path: Path, values: np.ndarray) -> None:
    header = bytes([0, 0, 8, values.ndim]) + b"".join(size.to_bytes(4, "big") for size in values.shape)
    path.write_bytes(header + values.tobytes())


def gzipped(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def _with_opinions(model: Any) -> Any:
    """Larger random weights: outputs that depend on the inputs, so that a wrong input shows."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2).add_(torch.randn_like(parameter), alpha=0.3)
    return model.eval()


def _save(model: Any, folder: Path) -> None:
    model.save_pretrained(folder)
