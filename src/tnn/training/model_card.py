"""The model card of a finished run: its README.md, whose first lines the Hugging Face Hub reads."""

import hashlib
import json
import math
import re
import shlex
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import yaml

import tnn
from tnn._files import write_text
from tnn.layers import count_parameters
from tnn.training.durations import format_time
from tnn.training.run_files import CARD
from tnn.training.schema import Recipe
from tnn.training.settings import describe
from tnn.training.tasks.registry import find_task
from tnn.training.tasks.task import Task

HEADS = {  # by class: the task of the Hub, the class of transformers, a line of Python that uses the model
    "TNNForCausalLM": ("text-generation", "AutoModelForCausalLM", "model.generate(**inputs, max_new_tokens=50)"),
    "TNNForMaskedLM": ("fill-mask", "AutoModelForMaskedLM", "model(**inputs).logits"),
    "TNNForSequenceClassification": ("text-classification", "AutoModelForSequenceClassification", ""),
    "TNNForTokenClassification": ("token-classification", "AutoModelForTokenClassification", ""),
    "TNNForImageClassification": ("image-classification", "AutoModelForImageClassification", ""),
    "TNNForForecasting": ("time-series-forecasting", "AutoModelForTimeSeriesPrediction", ""),
}
FLOORS = {"majority_": " of the most frequent class", "word_tags_": " of the most frequent tags"}  # not of the model
LANGUAGE = ("text-generation", "fill-mask")
SIGNATURE = re.compile(r"<!-- Written by tnn train; replaced by it as long as nobody has changed it: (\w{64}) -->\n\Z")
FOLDERS = re.compile(r"(?<!\S)/(?:[^/\s]+/)+")  # in front of the last part of a path: nobody else's business


def model_card(
    name: str,
    recipe: Recipe,
    model: Any,
    metrics: dict[str, float],
    *,
    steps: int,
    has_tokenizer: bool = False,
    data_summary: str = "",
    seconds: float | None = None,
) -> str:
    """The page: what the model is, how to load it, what it was trained on and how, and its scores.

    >>> from tnn import TNNForCausalLM, load_preset
    >>> from tnn.training import load_recipe
    >>> from tnn.training.model_card import model_card
    >>> model = TNNForCausalLM(load_preset("mini-alm"))
    >>> card = model_card("mine", load_recipe("mini-alm"), model, {"eval_loss": 1.25}, steps=800)
    >>> print("\\n".join(card.splitlines()[:5]))
    ---
    library_name: transformers
    pipeline_tag: text-generation
    license: unknown
    tags:
    """
    head = HEADS.get(type(model).__name__)
    pipeline = head[0] if head else None
    scores = _scores(metrics, is_language=pipeline in LANGUAGE)
    data = FOLDERS.sub("", str(find_task(recipe.task).describe(recipe).get("data", recipe.name)))
    front = yaml.safe_dump(_front_matter(name, pipeline, data, scores), sort_keys=False, allow_unicode=True)
    numbers = sum(count_parameters(model))
    rows = "\n".join(f"| {key.replace('|', ' ')} | {value:.4f} |" for key, value in scores.items())
    return f"""---
{front}---

# {name}

A Toeplitz Neural Network ([paper](https://arxiv.org/abs/2305.04749)) of {numbers:,} parameters, trained on {data}.

Its licence is not chosen yet: put one in place of `unknown` in the first lines of this page before you share the model.

## Use
{_use(name, recipe, model, has_tokenizer)}
## Scores
| | |
|---|---|
{rows}

These are scores of the final model on the validation data. `tnn evaluate {shlex.quote(name)}` measures it on others.

## Training
{_facts(recipe, model, steps, seconds)}

```text
{FOLDERS.sub("", describe(recipe, model, data_summary))}
```
`recipe.yaml` has all settings, `log.jsonl` the losses.

## Limits
Say here what the data contain and lack, and what the model must not be used for.
"""


def write_card(folder: Path, text: str) -> None:
    """Write README.md into a folder, unless there is one that somebody has written or changed.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from tnn.training.model_card import write_card
    >>> with TemporaryDirectory() as folder:
    ...     write_card(Path(folder), "first\\n")
    ...     write_card(Path(folder), "second\\n")
    ...     (Path(folder) / "README.md").read_text().splitlines()[0]
    'second'
    """
    path = folder / CARD
    if path.exists() and not _is_unchanged(path):
        return
    signature = f"<!-- Written by tnn train; replaced by it as long as nobody has changed it: {_sum(text)} -->"
    write_text(path, f"{text}{signature}\n")


def _is_unchanged(path: Path) -> bool:
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return False
    found = SIGNATURE.search(text)
    return found is not None and found[1] == _sum(text[: found.start()])


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _scores(metrics: dict[str, float], is_language: bool) -> dict[str, float]:
    """By their names in words; of a language model the perplexity too."""
    scores = {}
    for key, value in metrics.items():
        floor = next((prefix for prefix in FLOORS if key.startswith(prefix)), "")
        end = FLOORS.get(floor, "")
        words = key.removeprefix(floor).replace("eval_", "validation ", 1).replace("_", " ")
        scores[f"{words}{end}"] = value
        if key == "eval_loss" and is_language:
            scores["validation perplexity per token"] = math.exp(min(value, 700))
    return scores


def _front_matter(name: str, pipeline: str | None, data: str, scores: dict[str, float]) -> dict[str, Any]:
    """What the Hub reads."""
    values: dict[str, Any] = {"library_name": "transformers"}
    if pipeline:
        values["pipeline_tag"] = pipeline
    values |= {"license": "unknown", "tags": ["toeplitz-nn", "tnn"]}
    if data.startswith("hf:"):
        values["datasets"] = [data.removeprefix("hf:").split(":")[0]]
    results = {key: value for key, value in scores.items() if not key.endswith((" loss", *FLOORS.values()))}
    kinds = {key: key.removeprefix("validation ").removesuffix(" per token").replace(" ", "_") for key in results}
    if results:
        values["metrics"] = list(kinds.values())
    if pipeline and results:
        measured = [{"type": kinds[key], "value": float(f"{value:.6g}"), "name": key} for key, value in results.items()]
        source = {"name": data, "type": data, "split": "validation"}
        result = {"task": {"type": pipeline}, "dataset": source, "metrics": measured}
        values["model-index"] = [{"name": name, "results": [result]}]
    return values


def _use(name: str, recipe: Recipe, model: Any, has_tokenizer: bool) -> str:
    kind = type(model)
    module = "tnn.models" if kind.__module__.startswith("tnn.models.") else kind.__module__
    pipeline, auto, call = HEADS.get(kind.__name__, (None, None, ""))
    place = json.dumps(name)
    lines = ["import tnn  # registers the models with transformers"]
    if auto is None:
        lines += [f"from {module} import {kind.__name__}", ""]
    else:
        lines += [f"from transformers import {auto}{', AutoTokenizer' if has_tokenizer else ''}", ""]
    lines.append(
        f"model = {auto or kind.__name__}.from_pretrained({place}).eval()  # the folder, or its name on the Hub"
    )
    if has_tokenizer:
        lines.append(f"tokenizer = AutoTokenizer.from_pretrained({place})")
        lines.append('inputs = tokenizer("A text", return_tensors="pt")')
        call = call or "model(**inputs).logits"
        lines.append(f"print(tokenizer.decode({call}[0]))" if pipeline == "text-generation" else f"print({call})")
    code = "\n".join(lines)
    commands = [f"tnn evaluate {shlex.quote(name)}"]
    if pipeline == "text-generation":
        commands.insert(0, f'tnn generate {shlex.quote(name)} --prompt "A text"')
    if type(find_task(recipe.task)).predict is not Task.predict:
        commands.insert(0, f"tnn predict {shlex.quote(name)} FILE")
    shell = "\n".join(["pip install toeplitz-nn", *commands])
    return f"```sh\n{shell}\n```\n```python\n{code}\n```\n"


def _facts(recipe: Recipe, model: Any, steps: int, seconds: float | None) -> str:
    device = torch.accelerator.current_accelerator(check_available=True)
    threads = torch.get_num_threads()
    machine = f"{threads} CPU thread{'s' * (threads > 1)}" if device is None else device.type
    time = "" if seconds is None else f", {format_time(seconds)}"
    versions = ", ".join(f"{package} {metadata.version(package)}" for package in ("torch", "transformers"))
    return f"""- {steps:,} updates of {_batch(recipe, model)}; seed {recipe.training.seed}
- {machine}{time}
- toeplitz-nn {tnn.__version__}, {versions}"""


def _batch(recipe: Recipe, model: Any) -> str:
    batch = recipe.training.batch_size
    try:
        tokens = find_task(recipe.task).tokens_per_example(recipe, model.config)
    except NotImplementedError:  # it is not needed for training
        return f"{batch:,} examples"
    return f"{batch:,} examples, each of at most {tokens:,} tokens"
