"""A whole model as an ONNX file: token ids or pixels in, logits or hidden states out, for any batch and any length."""

import copy
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tnn._checks import check_positive
from tnn.models.backbone import TNNModel, TNNPreTrainedModel
from tnn.models.configuration import TNNConfig, TNNImageConfig, TNNSeriesConfig
from tnn.models.heads import TNNForSequencePairClassification
from tnn.models.image import TNNImageModel
from tnn.models.onnx_file import ONNXError, check_target, onnx_program, save
from tnn.models.series import TNNForForecasting, TNNSeriesModel

EXAMPLE_BATCH, EXAMPLE_LENGTH = 2, 19  # any sizes, but different ones: export takes equal sizes for the same


def export_onnx(
    model: TNNPreTrainedModel,
    path: str | PathLike[str],
    *,
    mask: bool = True,
    batch: int | None = None,
    length: int | None = None,
) -> None:
    """Write a model with any head as an ONNX file, in float32.

    Inputs are input_ids and, with `mask`, attention_mask, both (batch, length); of a model of pairs also pair_input_ids
    and pair_attention_mask; of an image model pixel_values, with sides of `config.image_size`; of a model of series
    values and, if it has covariates, known. The output is logits, quantiles of a forecast, or last_hidden_state of a
    model without a head. `batch` and `length` fix these sizes; None: any.
    Weights beyond what one ONNX file can hold (2 GB) go to a second file, `path` with ".data" added.

    >>> from tempfile import TemporaryDirectory
    >>> from tnn import TNNConfig, TNNForCausalLM
    >>> from tnn.models import export_onnx
    >>> model = TNNForCausalLM(TNNConfig(vocab_size=100, hidden_size=16, num_hidden_layers=1))
    >>> with TemporaryDirectory() as folder:
    ...     export_onnx(model, f"{folder}/model.onnx")
    """
    if not isinstance(model, TNNPreTrainedModel):
        raise TypeError(f"model must be a TNN model; got {type(model).__name__}")
    for name, size in (("batch", batch), ("length", length)):
        if size is not None:
            check_positive(name, size)
    path = Path(path)
    check_target(path)
    inputs = _example(model, mask, batch, length)
    module = _Answer(copy.deepcopy(model).cpu().float().eval().requires_grad_(False), list(inputs))
    try:
        program = onnx_program(
            module,
            tuple(inputs.values()),
            input_names=list(inputs),
            output_names=[_output_name(model)],
            dynamic_shapes={"tensors": _open_axes(inputs, batch, length)},
        )
    except ONNXError as error:
        raise ValueError(f"{_description(model, batch, length)}: {error}") from None
    save(program, path)


def _output_name(model: TNNPreTrainedModel) -> str:
    if isinstance(model, TNNModel | TNNImageModel | TNNSeriesModel):
        return "last_hidden_state"
    return "quantiles" if isinstance(model, TNNForForecasting) else "logits"


class _Answer(nn.Module):
    """The inputs as a row of tensors -> the first output."""

    def __init__(self, model: TNNPreTrainedModel, names: list[str]):
        super().__init__()
        self.model = model
        self.names = names
        self.options = {"use_cache": False} if isinstance(model.config, TNNConfig) else {}

    def forward(self, *tensors: Tensor) -> Tensor:
        output: Tensor = self.model(**dict(zip(self.names, tensors, strict=True)), **self.options)[0]
        return output


def _example(model: TNNPreTrainedModel, mask: bool, batch: int | None, length: int | None) -> dict[str, Tensor]:
    """Inputs by their names, with the fixed sizes."""
    rows = batch or EXAMPLE_BATCH
    if isinstance(model.config, TNNImageConfig):
        side = model.config.image_size
        return {"pixel_values": torch.zeros(rows, model.config.num_channels, side, side)}
    if isinstance(model.config, TNNSeriesConfig):
        config, n = model.config, length or EXAMPLE_LENGTH
        known = {"known": torch.zeros(rows, n + config.horizon, len(config.known))} if config.known else {}
        return {"values": torch.zeros(rows, n, len(config.targets)), **known}
    lengths = {"": length or EXAMPLE_LENGTH}
    if isinstance(model, TNNForSequencePairClassification):
        lengths["pair_"] = length or EXAMPLE_LENGTH + 2
    inputs = {}
    for kind, n in lengths.items():
        inputs[f"{kind}input_ids"] = torch.zeros(rows, n, dtype=torch.long)
        if mask:
            inputs[f"{kind}attention_mask"] = torch.ones(rows, n, dtype=torch.long)
    return inputs


def _open_axes(inputs: dict[str, Tensor], batch: int | None, length: int | None) -> tuple[dict[int, Any], ...]:
    """The axes of each input that have no fixed size. Export refuses a model that works for some sizes only."""
    rows = {} if batch is not None else {0: torch.export.Dim("batch", min=1)}
    columns = {kind: torch.export.Dim(f"{kind}length", min=1) for kind in ("", "pair_")}

    def axes(name: str) -> dict[int, Any]:
        if length is not None or name == "pixel_values":
            return rows
        if name == "known":  # it goes on to the end of the forecast
            return rows | {1: columns[""] + (inputs["known"].shape[1] - inputs["values"].shape[1])}
        return rows | {1: columns["pair_" if name.startswith("pair_") else ""]}

    return tuple(axes(name) for name in inputs)


def _description(model: TNNPreTrainedModel, batch: int | None, length: int | None) -> str:
    """What cannot be done, and what may be tried."""
    mixers = ", ".join(repr(name) for name in dict.fromkeys(model.config.layer_mixers))
    text = f"{type(model).__name__} with mixer {mixers} cannot be exported to ONNX"
    if batch is not None and length is not None:
        return text
    return f"{text} for any batch and length (it may work if you give both)"
