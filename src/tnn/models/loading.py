"""Models from folders, without guessing: every weight comes from the file, all of the file is used, all is finite.

`from_pretrained` draws what a file lacks at random and says so in a warning. The commands use these functions instead.
"""

import json
import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from transformers import CONFIG_MAPPING, AutoConfig, GenerationConfig

from tnn._checks import FLOAT_TYPES, check_positive
from tnn._machine import physical_memory
from tnn._names import listed
from tnn.models.configuration import TNNBlockConfig
from tnn.models.finite import find_non_finite
from tnn.models.remote_code import CODE

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CONFIG, GENERATION = "config.json", "generation_config.json"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # or several files, and an index that names them
INDEX = ".index.json"
# Nothing is downloaded, and no code of the folder is run or asked for.
LOCAL = {"local_files_only": True, "trust_remote_code": False}


def read_config(folder: Path, **changes: Any) -> Any:
    """The configuration in a model's folder, with some fields changed. A ValueError names the file.

    >>> from pathlib import Path
    >>> from tnn.models.loading import read_config
    >>> read_config(Path("runs/mini-alm"), dropout=0.1)  # doctest: +SKIP
    """
    path = folder / CONFIG
    content = _read_json(path)
    try:
        config: Any = AutoConfig.from_pretrained(folder, **LOCAL)
    except Exception as error:  # transformers trusts the types in the file, so that wrong ones can fail anywhere
        foreign = CODE.stem not in str(content.get("auto_map"))
        if foreign and "trust_remote_code" in str(error):  # transformers' advice, which no command can follow
            raise ValueError(f"{path}: the model needs code of its own, and commands run none") from error
        kind = content.get("model_type")
        if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
            raise ValueError(f'{path}: model_type must be "tnn", "tnn_image" or "tnn_series"; got {kind!r}') from error
        raise ValueError(f"{path}: {_reason(error)}") from error
    if config.dtype is not None and config.dtype not in FLOAT_TYPES:
        raise ValueError(f"{path}: dtype must be float64, float32, bfloat16 or float16; got {config.dtype!r}")
    return _changed(config, content, changes) if changes else config


def _changed(config: Any, content: dict[str, Any], changes: dict[str, Any]) -> Any:
    """Checked as a whole: from_pretrained would set the fields one by one, without a check."""
    if "num_labels" in changes:
        content = {key: content[key] for key in content if key not in ("id2label", "label2id")}
    kind = type(config)
    if issubclass(kind, TNNBlockConfig):
        kind.check_names(changes)
    try:
        return kind.from_dict({**content, **changes})
    except TypeError as error:
        raise ValueError(f"the changes of model: {error}") from None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: it is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged: it must hold a JSON object; got {type(content).__name__}")
    return content


def _check_generation(path: Path) -> None:
    """A file that from_pretrained passes over in silence if it cannot be read."""
    _read_json(path)
    try:
        config = GenerationConfig.from_pretrained(path.parent, **LOCAL)
        for name in ("bos_token_id", "pad_token_id", "eos_token_id"):
            ids = getattr(config, name)
            for token in ids if isinstance(ids, list) else [ids]:
                if token is not None:
                    check_positive(name, token, at_least=-1)
    except Exception as error:
        raise ValueError(f"{path}: {_reason(error)}") from error


def architecture_of(config: Any, folder: Path) -> str:
    """The name of the class that a model was saved from."""
    names = config.architectures
    if not (isinstance(names, list) and names and isinstance(names[0], str)):
        raise ValueError(f"{folder / CONFIG}: architectures must be a list with the name of the model; got {names!r}")
    return names[0]


def load_strictly(
    head: Any, folder: Path, config: Any, may_be_new: Callable[[str], bool] | None = None
) -> "PreTrainedModel":
    """A model in evaluation mode from a folder that save_pretrained wrote, whose weights are exactly those of `head`.

    Args:
        head: the class of the model.
        folder: where the weights are.
        config: what `read_config` has returned for this folder.
        may_be_new: tells by its name if a weight may be missing, left over or of another shape; None: no weight may.

    >>> from tempfile import TemporaryDirectory
    >>> from pathlib import Path
    >>> from tnn import TNNConfig, TNNForCausalLM
    >>> from tnn.models.loading import load_strictly, read_config
    >>> with TemporaryDirectory() as folder:
    ...     TNNForCausalLM(TNNConfig(vocab_size=10, hidden_size=8, num_hidden_layers=1)).save_pretrained(folder)
    ...     type(load_strictly(TNNForCausalLM, Path(folder), read_config(Path(folder)))).__name__
    'TNNForCausalLM'
    """
    if not isinstance(config, head.config_class):
        raise ValueError(f"{folder / CONFIG}: the model_type {config.model_type!r} is not that of a {head.__name__}")
    _check_weight_files(folder)
    dtypes = _dtypes(folder)
    if dtypes and config.num_hidden_layers > len(dtypes):
        layers = f"{config.num_hidden_layers:,} layers, and the weights are {len(dtypes):,} tensors"
        raise ValueError(f"the weights in {folder} do not fit its {CONFIG}: it has {layers}")
    check_memory(head, config, str(folder / CONFIG))
    if (folder / GENERATION).exists():
        _check_generation(folder / GENERATION)
    try:
        model, info = head.from_pretrained(
            folder, config=config, ignore_mismatched_sizes=True, output_loading_info=True, **LOCAL
        )
    except (ValueError, OSError, MemoryError):
        raise
    except pickle.UnpicklingError:
        raise ValueError(f"the weights in {folder} are no plain tensors: only those are loaded from a .bin") from None
    except Exception as error:  # of a damaged file, in any of the readers
        raise ValueError(f"the weights in {folder} could not be loaded: {_reason(error)}") from error
    problems = [
        f"{kind} {listed(wrong)}"
        for kind, names in _differences(model, info, dtypes).items()
        if (wrong := sorted(name for name in names if may_be_new is None or not may_be_new(name)))
    ]
    if problems:
        raise ValueError(f"the weights in {folder} do not fit the model: {'; '.join(problems)}")
    if (name := find_non_finite(model)) is not None:
        raise ValueError(f"the model in {folder} has weights that are not finite, first in {name}: it diverged")
    return model.eval()


def _check_weight_files(folder: Path) -> None:
    """A FileNotFoundError if there are no weights in a folder, or not all of their files."""
    for name in WEIGHTS:
        if (folder / name).is_file():
            return
        if (folder / f"{name}{INDEX}").is_file():
            _check_shards(folder / f"{name}{INDEX}")
            return
    raise FileNotFoundError(f"there are no weights in {folder}: {WEIGHTS[0]} is missing, which save_pretrained writes")


def _check_shards(index: Path) -> None:
    names = _read_json(index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise ValueError(f"{index} is damaged: its weight_map must be an object with the names of files")
    if missing := sorted({name for name in names.values() if not (index.parent / name).is_file()}):
        raise FileNotFoundError(f"{index.parent / missing[0]} is missing, which has weights by {index.name}")


def _differences(model: Any, info: dict[str, Any], dtypes: dict[str, str]) -> dict[str, Iterable[str]]:
    """Names of weights, by what is wrong with them."""
    floats = [name for name, value in model.state_dict().items() if value.is_floating_point()]
    tied = model.get_expanded_tied_weights_keys(all_submodels=True)
    return {
        "missing": info["missing_keys"],
        "left over": info["unexpected_keys"],
        "of another shape": {name for name, *_ in info["mismatched_keys"]},
        "not of floating point": [name for name in floats if not dtypes.get(name, "F32").startswith(("F", "BF"))],
        "tied but not equal": tied.keys() - model.all_tied_weights_keys.keys(),
    }


def _dtypes(folder: Path) -> dict[str, str]:
    """The type of each tensor in the safetensors files of a folder, as they name it."""
    return dict(entry for path in sorted(folder.glob("model*.safetensors")) for entry in _entries(path))


def _entries(path: Path) -> Iterator[tuple[str, str]]:
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118
                yield name, file.get_slice(name).get_dtype()
    except Exception as error:
        raise ValueError(f"{path} is damaged or cut short: {_reason(error)}") from None


def check_memory(head: Any, config: Any, source: str) -> None:
    """A ValueError if the weights of a model do not fit into the memory of this machine; nothing is allocated.

    `source` is where the configuration is from, for the message.
    """
    memory = physical_memory()
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            needed = sum(p.numel() * p.element_size() for p in head(config).parameters())
    except RuntimeError as error:  # a size of more than 2**63 bytes
        raise ValueError(f"{source}: the sizes are too large: {_reason(error)}") from None
    if memory is not None and needed > memory:
        sizes = f"{needed / 1e9:,.1f} GB, and this machine has {memory / 1e9:,.1f} GB"
        raise ValueError(f"{source}: the sizes are too large: the weights need {sizes}")


def _reason(error: Exception) -> str:
    kind = "" if isinstance(error, ValueError | OSError | TypeError) else f"{type(error).__name__}: "
    return f"{kind}{error}" if str(error) else type(error).__name__
