"""Files of a model: configuration, tokenizer, settings of generation, weights."""

import json
import struct
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.judge import Case, Check, Result, anything
from tests.fuzz.mutations import ODD, changed, damaged, is_equal, places, reprinted, without
from tests.fuzz.samples import PROMPT, Samples

EVALUATE = ["corpus", "--length", "32"]
GENERATE = ["--prompt", PROMPT, "--max-new-tokens", "4"]
NOT_JSON = [
    *("", "{", "[", "null", "1", '"x"', "[]", "{}", "nan", "\ufeff{}", "{'a': 1}", '{"a": 1,}', '{"a": 1e999}', "\0"),
    *("[" * 5000, '{"a": ' * 5000, "9" * 10000, '{"model_type": "tnn"'),
]
NEUTRAL = [  # keys that decide nothing
    *("_name_or_path", "transformers_version", "dtype", "id2label", "label2id"),
]
WRONG_CONFIG: dict[str, list[Any]] = {  # what is certainly refused
    "model_type": [None, 1, "", "gpt2", "nope", [], {}],
    "architectures": [1, ["Nope"], [1], {"a": 1}, ["TNNForImageClassification"], [[]]],
    "hidden_size": [None, 0, -1, 8, 17, 1.5, "16", "x", [], {}, True, 2**31, 2**63, 10**30, float("nan")],
    "num_hidden_layers": [None, 0, -1, 1, 3, 1.5, "2", [], {}, True, 2**31, 10**30],
    "vocab_size": [None, 0, -1, 1, 259, 261, 1.5, "260", [], {}, 2**31, 2**63, 10**30],
    "rpe_size": [None, 0, -1, 7, 1.5, "8", [], {}, 10**30],
    "decay": [None, -1, 1.5, "0.9", "x", [], {}, float("nan"), float("inf")],
    "mixer": [None, 1, "nope", "os:path", {}, ["tnn"], ["tnn", "nope"], []],
    "norm": [None, 1, "nope", [], {}],
    "activation": [None, 1, "nope", [], {}],
    "auto_map": [{"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}],
}


def configurations(rng: Random, samples: Samples, here: Path) -> Case:
    """config.json"""
    stored = json.loads((samples.home / "causal" / "config.json").read_text())
    args, same = _command(rng, samples, here, "causal")
    path = here / "causal" / "config.json"
    kind = rng.choice(["harmless", "wrong", "wrong", "wrong", "not-json", "bytes", "odd"])
    if kind == "harmless":
        values = {**stored, rng.choice(["_name_or_path", "transformers_version"]): rng.choice(["", "x", "5.0.0"])}
        path.write_text(reprinted(values, rng), encoding="utf-8")
        return Case("the same configuration", args, same, None)
    if kind == "wrong":
        key = rng.choice([key for key in WRONG_CONFIG if key in stored or key in ("auto_map", "mixer", "norm")])
        new = rng.choice(WRONG_CONFIG[key])
        path.write_text(json.dumps({**stored, key: new}))
        if key == "auto_map":
            return Case("a configuration that names code", args, same)
        return Case(f"{key}: {new!r}", args, None)
    if kind == "not-json":
        return _not_json(rng, path, args, refuse=True)
    if kind == "bytes":
        return _damaged_json(rng, path, stored, args, same)
    key, new = rng.choice(list(stored)), rng.choice(ODD)
    path.write_text(json.dumps({**stored, key: new}))  # a valid value makes another model
    return Case(f"{key}: {str(new)[:80]!r}", args)


def tokenizers(rng: Random, samples: Samples, here: Path) -> Case:
    """tokenizer.json and tokenizer_config.json"""
    model = rng.choice(["causal", "bpe"])
    args, same = _command(rng, samples, here, model)
    name = rng.choice(["tokenizer.json", "tokenizer.json", "tokenizer_config.json"])
    path = here / model / name
    stored = json.loads(path.read_text(encoding="utf-8"))
    kind = rng.choice(["harmless", "removed", "not-json", "bytes", "section", "section", "vocabulary"])
    if kind == "harmless":
        path.write_text(json.dumps(stored, indent=rng.choice([None, 0, 3]), ensure_ascii=rng.random() < 0.5), "utf-8")
        return Case(f"the same {name}", args, same, None)
    if kind == "removed":
        path.unlink()
        return Case(f"no {name}", args, None if name == "tokenizer.json" else same)
    if kind == "not-json":
        return _not_json(rng, path, args, refuse=name == "tokenizer.json")
    if kind == "bytes":
        return _damaged_json(rng, path, stored, args, same)
    if kind == "vocabulary" and name == "tokenizer.json":
        return _wrong_vocabulary(rng, path, stored, args)
    place = rng.choice([p for p in places(stored) if len(p) <= 3 and p[:2] != ("model", "vocab")])
    new = rng.choice(ODD)
    path.write_text(json.dumps(changed(stored, place, new) if rng.random() < 0.7 else without(stored, place)))
    return Case(f"{name} {place}: {str(new)[:80]!r}", args)  # another tokenizer may be valid


def _wrong_vocabulary(rng: Random, path: Path, stored: dict[str, Any], args: list[str]) -> Case:
    vocabulary = stored["model"]["vocab"]
    token = rng.choice(list(vocabulary))
    new = rng.choice([-1, 2**32, 2**40, 10**30, "x", None, 1.5, [], 100_000])
    path.write_text(json.dumps(changed(stored, ("model", "vocab", token), new)))
    return Case(f"token {token!r} has the id {new!r}", args, None)


def generation_settings(rng: Random, samples: Samples, here: Path) -> Case:
    """generation_config.json"""
    samples.copy("causal", here)
    args = ["generate", "causal", *GENERATE]
    same = _same(samples, args)
    path = here / "causal" / "generation_config.json"
    stored = json.loads(path.read_text())
    kind = rng.choice(["harmless", "removed", "not-json", "bytes", "odd", "odd", "odd"])
    if kind == "harmless":
        path.write_text(reprinted(stored, rng))
        return Case("the same settings", args, same, None)
    if kind == "removed":
        path.unlink()
        return Case("no settings", args, same, None)
    if kind == "not-json":
        return _not_json(rng, path, args, refuse=False, same=same)
    if kind == "bytes":
        return _damaged_json(rng, path, stored, args, same)
    overruled = ["do_sample", "temperature", "top_k", "top_p", "num_beams", "use_cache", "max_length", "nope"]
    keys = [
        *stored,
        *overruled,
        "min_length",
        "cache_implementation",
        "stop_strings",
        "suppress_tokens",
        "num_return_sequences",
        "penalty_alpha",
        "nope",
    ]
    keys += ["repetition_penalty", "bad_words_ids", "forced_eos_token_id", "assistant_model", "watermarking_config"]
    key, new = rng.choice(keys), rng.choice(ODD)
    path.write_text(json.dumps({**stored, key: new}))
    return Case(f"{key}: {str(new)[:80]!r}", args, same if key in overruled else anything)  # others change the text


def weights(rng: Random, samples: Samples, here: Path) -> Case:
    """model.safetensors. Other finite numbers are another model; everything else must be noticed."""
    args, same = _command(rng, samples, here, "causal")
    path = here / "causal" / "model.safetensors"
    data = path.read_bytes()
    header, body = _split(data)
    names = [name for name in header if name != "__metadata__"]
    name = rng.choice(names)
    entry = header[name]
    start, end = entry["data_offsets"]
    kind = rng.choice(["harmless", "header", "removed", "added", "renamed", "shape", "numbers", "cut", "bytes", "file"])
    if kind == "harmless":
        path.write_bytes(_joined(dict(rng.sample(list(header.items()), len(header))), body, rng.choice([0, 1, 64])))
        return Case("the same weights", args, same, None)
    if kind == "header":
        wrong = rng.choice([0, 1, 7, len(data), 2**31, 2**40, 2**63, 2**64 - 1])
        path.write_bytes(struct.pack("<Q", wrong) + data[8:])
        return Case(f"a header of {wrong} bytes", args, None)
    if kind == "removed":
        path.write_bytes(_packed({key: value for key, value in header.items() if key != name}, body))
        return Case(f"{name} is missing", args, None)
    if kind == "added":
        extra = {"dtype": "F32", "shape": [2], "data_offsets": [len(body), len(body) + 8]}
        path.write_bytes(
            _joined({**header, rng.choice(["extra", f"{name}.x", "model.layers.9.a"]): extra}, body + bytes(8))
        )
        return Case("one tensor too many", args, None)
    if kind == "renamed":
        path.write_bytes(_joined({key if key != name else f"{key}_": value for key, value in header.items()}, body))
        return Case(f"{name} is renamed", args, None)
    if kind == "shape":
        shape = rng.choice(
            [[*entry["shape"], 1], [1, *entry["shape"]], entry["shape"][:-1], [-1], [2**40], [2**63, 2**63]]
        )
        path.write_bytes(_joined({**header, name: {**entry, "shape": shape}}, body))
        return Case(f"{name} has the shape {shape}", args, None)
    if kind == "numbers":
        wrong = struct.pack("<f", rng.choice([float("nan"), float("inf"), float("-inf")]))
        place = start + 4 * rng.randrange((end - start) // 4)
        path.write_bytes(_joined(header, body[:place] + wrong + body[place + 4 :]))
        return Case(f"{name} is not finite", args, None)
    if kind == "cut":
        path.write_bytes(data[: rng.randrange(len(data))])
        return Case("cut weights", args, None)
    if kind == "bytes":
        size = 8 + struct.unpack("<Q", data[:8])[0]
        broken = damaged(data[:size], rng)
        path.write_bytes(broken + data[size:])
        return Case("a damaged header", args, same if _is_same_header(broken, data[:size]) else None)
    path.write_bytes(rng.choice([b"", b"\x80\x04.", b"PK\x03\x04", b"\0" * 100, b"version https://git-lfs\n"]))
    return Case("another kind of file", args, None)


def _split(data: bytes) -> tuple[dict[str, Any], bytes]:
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def _joined(header: dict[str, Any], body: bytes, spaces: int = 0) -> bytes:
    text = json.dumps(header).encode() + b" " * spaces
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def _packed(header: dict[str, Any], body: bytes) -> bytes:
    """Without gaps between the tensors, as the format demands."""
    new, numbers = {}, b""
    for name, entry in header.items():
        if name == "__metadata__":
            new[name] = entry
            continue
        start, end = entry["data_offsets"]
        new[name] = {**entry, "data_offsets": [len(numbers), len(numbers) + end - start]}
        numbers += body[start:end]
    return _joined(new, numbers)


def _is_same_header(broken: bytes, whole: bytes) -> bool:
    """Whether it says the same: only spaces, or metadata that nothing reads, may differ."""
    try:
        (size,) = struct.unpack("<Q", broken[:8])
        new, old = json.loads(broken[8 : 8 + size]), json.loads(whole[8:])
        del new["__metadata__"], old["__metadata__"]
        return size == len(whole) - 8 == len(broken) - 8 and new == old
    except (ValueError, KeyError, TypeError, struct.error):
        return False


def _command(rng: Random, samples: Samples, here: Path, model: str) -> tuple[list[str], Check]:
    """A command that reads the whole model, and the check that its result is that of the undamaged model."""
    samples.copy(model, here)
    samples.copy("corpus", here)
    args = rng.choice([["evaluate", model, *EVALUATE], ["generate", model, *GENERATE]])
    return args, _same(samples, args)


def _same(samples: Samples, args: list[str]) -> Check:
    def check(result: Result) -> bool:
        return result.out == samples.reference(args)

    return check


def _not_json(rng: Random, path: Path, args: list[str], refuse: bool, same: Check = anything) -> Case:
    """Files that hold no settings; `refuse`: also those with settings that say nothing are not enough."""
    text = rng.choice(NOT_JSON)
    path.write_text(text, encoding="utf-8")
    says_nothing = text in ("{}", '{"a": 1e999}')
    return Case(f"{path.name} {text[:40]!r}", args, same if says_nothing and not refuse else None)


def _damaged_json(rng: Random, path: Path, stored: Any, args: list[str], same: Check) -> Case:
    """Damaged bytes. If they still are JSON of another content, they may mean another model: any result is right."""
    data = damaged(path.read_bytes(), rng)
    path.write_bytes(data)
    try:
        parsed = json.loads(data)
    except ValueError:
        return Case(f"damaged {path.name}", args, None)
    return Case(f"damaged {path.name}", args, same if is_equal(parsed, stored) else anything)
