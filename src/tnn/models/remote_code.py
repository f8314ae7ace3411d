"""What lets tools that never import `tnn` load a saved folder: `auto_map` in its config.json, and the file it names.

transformers runs such a file if it is told to, by `trust_remote_code=True`, and only where the model's type is not
registered yet. Ours imports `tnn`, which registers all. `tnn` itself never runs the file of a folder.
"""

import shutil
from pathlib import Path

CODE = Path(__file__).with_name("modeling_toeplitz_nn.py")
BASE_MODELS = {"tnn": "TNNModel", "tnn_image": "TNNImageModel", "tnn_series": "TNNSeriesModel"}  # by model_type
AUTO_CLASSES = {  # of transformers, by ours
    "TNNForCausalLM": "AutoModelForCausalLM",
    "TNNForMaskedLM": "AutoModelForMaskedLM",
    "TNNForSequenceClassification": "AutoModelForSequenceClassification",
    "TNNForTokenClassification": "AutoModelForTokenClassification",
    "TNNForImageClassification": "AutoModelForImageClassification",
    "TNNForForecasting": "AutoModelForTimeSeriesPrediction",
}


def is_own(cls: type) -> bool:
    """Whether a class is one of this package, and not derived from one elsewhere.

    >>> from tnn import TNNConfig
    >>> from tnn.models.remote_code import is_own
    >>> is_own(TNNConfig), is_own(type("MyConfig", (TNNConfig,), {"__module__": "mine"}))
    (True, False)
    """
    return cls.__module__.partition(".")[0] == "tnn"


def auto_map(config: str, model_type: str, architectures: list[str] | None) -> dict[str, str]:
    """Classes in the file by the Auto class that asks for them; the head only of a model that was saved with one.

    >>> from tnn.models.remote_code import auto_map
    >>> auto_map("TNNConfig", "tnn", ["TNNForCausalLM"])["AutoModelForCausalLM"]
    'modeling_toeplitz_nn.TNNForCausalLM'
    """
    heads = {AUTO_CLASSES[name]: name for name in architectures or [] if name in AUTO_CLASSES}
    classes = {"AutoConfig": config, "AutoModel": BASE_MODELS[model_type], **heads}
    return {auto: f"{CODE.stem}.{name}" for auto, name in classes.items()}


def write_code(folder: Path) -> None:
    """Put the file into a folder, in place of an older one.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from tnn.models.remote_code import write_code
    >>> with TemporaryDirectory() as folder:
    ...     write_code(Path(folder))
    ...     [path.name for path in Path(folder).iterdir()]
    ['modeling_toeplitz_nn.py']
    """
    shutil.copyfile(CODE, folder / CODE.name)
