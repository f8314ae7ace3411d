"""Models of numbers over time: a causal stack of blocks on real values, with quantiles of the next ones."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import can_return_tuple
from transformers.utils.generic import ModelOutput, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from tnn._auto import complete_registration
from tnn._checks import check_float
from tnn._precision import compute_dtype
from tnn.layers.norm import make_norm
from tnn.models.backbone import TNNLayer, TNNPreTrainedModel
from tnn.models.configuration import TNNSeriesConfig
from tnn.models.positions import PositionEmbedding

TINY = 1e-6  # a standard deviation below this share of the mean is rounding
FARTHEST = 100.0  # deviations from the mean that count: after a quiet time, one value must not be the whole loss


@dataclass
class SeriesModelOutput(BaseModelOutput):
    """The hidden states, and what the values were normalised by: loc and scale (batch, 1, targets)."""

    loc: Tensor | None = None
    scale: Tensor | None = None


@dataclass
class ForecastOutput(ModelOutput):
    """quantiles (batch, origins, horizon, targets, quantiles), in the units of the values, in ascending order."""

    loss: Tensor | None = None
    quantiles: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class TNNSeriesPreTrainedModel(TNNPreTrainedModel):
    config: TNNSeriesConfig
    main_input_name = "values"
    input_modalities = ("time",)


class TNNSeriesModel(TNNSeriesPreTrainedModel):
    """Values of one or several columns over time to one vector per step.

    >>> import torch
    >>> from tnn import TNNSeriesConfig, TNNSeriesModel
    >>> model = TNNSeriesModel(TNNSeriesConfig(hidden_size=16, num_hidden_layers=2)).eval()
    >>> model(torch.randn(1, 50, 1)).last_hidden_state.shape
    torch.Size([1, 50, 16])
    """

    def __init__(self, config: TNNSeriesConfig):
        super().__init__(config)
        inputs = 2 * len(config.targets) + (config.horizon + 1) * len(config.known)
        self.in_proj = nn.Linear(inputs, config.hidden_size)
        self.positions = PositionEmbedding(
            config.position_embedding, config.hidden_size, config.max_position_embeddings
        )
        self.dropout = nn.Dropout(config.dropout if config.embedding_dropout is None else config.embedding_dropout)
        self.layers = nn.ModuleList(TNNLayer(**config.block_options(i)) for i in range(config.num_hidden_layers))
        self.norm = make_norm(config.final_norm, config.hidden_size) if config.final_norm else None
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.in_proj

    def set_input_embeddings(self, value: nn.Linear) -> None:
        self.in_proj = value

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self, values: Tensor, known: Tensor | None = None, context: int | None = None, **kwargs: Any
    ) -> SeriesModelOutput:
        """values (batch, n, targets), NaN where one is missing; known (batch, n + horizon, known columns).

        Each column is normalised by the mean and the standard deviation of its first `context` values; None: of all.
        """
        self.check_values(values)
        loc, scale = location_and_scale(values[:, :context])
        normalised, observed = normalise(values, loc, scale)
        features = torch.cat([normalised, observed.to(normalised.dtype), *self._known(known, values)], -1)
        x = self.dropout(self.positions(self.in_proj(features.to(self.in_proj.weight.dtype))))
        for layer in self.layers:
            x = layer(x)
        if self.norm is not None:
            x = self.norm(x)
        return SeriesModelOutput(last_hidden_state=x, loc=loc, scale=scale)

    def check_values(self, values: Tensor) -> None:
        """An error if these are not values of the targets."""
        check_float("values", values)
        count = len(self.config.targets)
        if values.ndim != 3 or values.shape[1] == 0 or values.shape[2] != count:
            got = tuple(values.shape)
            raise ValueError(f"values must be (batch, n, {count}) with n at least 1, one per target; got shape {got}")

    def _known(self, known: Tensor | None, values: Tensor) -> list[Tensor]:
        """(batch, n, known columns * (horizon + 1)): the covariates of each step and of those that it forecasts."""
        config, count = self.config, len(self.config.known)
        if count == 0 and known is None:
            return []
        expected = (values.shape[0], values.shape[1] + config.horizon, count)
        if known is None or known.shape != expected or count == 0:
            got = "none" if known is None else f"shape {tuple(known.shape)}"
            wanted = f"{expected}: {count} columns up to the end of the forecast" if count else "left out"
            raise ValueError(f"known must be {wanted}; got {got}")
        mean, std = (
            torch.tensor(numbers or [default] * count, dtype=known.dtype, device=known.device)
            for numbers, default in ((config.known_mean, 0.0), (config.known_std, 1.0))
        )
        return [((known - mean) / std).unfold(1, config.horizon + 1, 1).flatten(2).to(values.dtype)]


class TNNForForecasting(TNNSeriesPreTrainedModel):
    """Quantiles of the next `horizon` values of each column.

    >>> import torch
    >>> from tnn import TNNForForecasting, TNNSeriesConfig
    >>> model = TNNForForecasting(TNNSeriesConfig(hidden_size=16, num_hidden_layers=2, horizon=12)).eval()
    >>> model(torch.randn(1, 50, 1)).quantiles.shape  # (batch, origins, horizon, targets, quantiles)
    torch.Size([1, 1, 12, 1, 7])
    """

    accepts_loss_kwargs = False

    def __init__(self, config: TNNSeriesConfig):
        super().__init__(config)
        self.model = TNNSeriesModel(config)
        self.head = nn.Linear(config.hidden_size, config.horizon * len(config.targets) * len(config.quantiles))
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        values: Tensor,
        known: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> ForecastOutput:
        """values (batch, n, targets), NaN where one is missing; known (batch, n + horizon, known columns).

        labels (batch, horizon or more, targets): the values that follow, NaN where one is missing. If there are more of
        them than the horizon, each value up to `horizon` before their end is an origin too: it forecasts the values
        after it, from all before it. `known` then goes on to the end of the labels. Each column is normalised by its
        mean and its standard deviation in `values` alone, so that no forecast knows what comes after its origin. A
        column that does not change there is forecast to stay as it is. The loss is the pinball loss of normalised
        values, the mean over all origins.
        """
        inputs = values
        if labels is not None:
            labels = self._checked(labels, values)
            inputs = torch.cat([values, labels[:, : labels.shape[1] - self.config.horizon]], 1)
        outputs = self.model(inputs, known=known, context=values.shape[1], **kwargs)
        origins = inputs.shape[1] - values.shape[1] + 1
        shape = (self.config.horizon, len(self.config.targets), len(self.config.quantiles))
        quantiles = self.head(outputs.last_hidden_state[:, -origins:]).unflatten(-1, shape)
        quantiles = quantiles.sort(-1).values  # (batch, origins, horizon, targets, quantiles): they never cross
        loc, scale = (value[..., None, None] for value in (outputs.loc, outputs.scale))  # (batch, 1, targets, 1, 1)
        loss = None
        if labels is not None:
            future = labels.unfold(1, self.config.horizon, 1)  # (batch, origins, targets, horizon)
            future, observed = normalise(future, loc[..., 0], scale[..., 0])
            loss = pinball_loss(quantiles, future.transpose(2, 3), observed.transpose(2, 3), self.config.quantiles)
        quantiles = quantiles.to(values.dtype) * scale.transpose(2, 3) + loc.transpose(2, 3)
        return ForecastOutput(loss=loss, quantiles=quantiles, hidden_states=outputs.hidden_states)

    def _checked(self, labels: Tensor, values: Tensor) -> Tensor:
        self.model.check_values(values)
        horizon, (batch, _, count) = self.config.horizon, values.shape
        if labels.ndim != 3 or labels.shape[::2] != (batch, count) or labels.shape[1] < horizon:
            got = f"got shape {tuple(labels.shape)}"
            raise ValueError(f"labels must be ({batch}, {horizon} or more, {count}), the values that follow; {got}")
        return labels.to(values.dtype)


def location_and_scale(values: Tensor) -> tuple[Tensor, Tensor]:
    """values (batch, n, targets), NaN where missing -> mean and standard deviation of each column, (batch, 1, targets).

    The deviation is 0 in a column that does not change, or has no values.

    >>> import torch
    >>> from tnn.models.series import location_and_scale
    >>> loc, scale = location_and_scale(torch.tensor([[[1.0, 5.0], [3.0, 5.0], [float("nan"), 5.0]]]))
    >>> loc.tolist(), scale.tolist()
    ([[[2.0, 5.0]]], [[[1.0, 0.0]]])
    """
    observed = ~values.isnan()
    count = observed.sum(1, keepdim=True).clamp_min(1)
    loc = values.masked_fill(~observed, 0).sum(1, keepdim=True) / count
    std = ((values - loc).masked_fill(~observed, 0).square().sum(1, keepdim=True) / count).sqrt()
    return loc, torch.where(std > TINY * loc.abs(), std, 0)


def normalise(values: Tensor, loc: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """(values - loc) / scale, and where that is known; elsewhere it is 0. All of a scale of 0 is unknown.

    >>> import torch
    >>> from tnn.models.series import normalise
    >>> normalise(torch.tensor([4.0, float("nan")]), torch.tensor(2.0), torch.tensor(2.0))
    (tensor([1., 0.]), tensor([ True, False]))
    """
    normalised = (values - loc) / scale
    observed = normalised.isfinite()
    return normalised.masked_fill(~observed, 0).clamp(-FARTHEST, FARTHEST), observed


def pinball_loss(quantiles: Tensor, future: Tensor, observed: Tensor, levels: list[float]) -> Tensor:
    """quantiles (..., q), future and observed (...): the mean over the quantiles and the values that are observed.

    >>> import torch
    >>> from tnn.models.series import pinball_loss
    >>> pinball_loss(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([2.5]), torch.tensor([True]), [0.25, 0.5, 0.75])
    tensor(0.2500)
    """
    quantiles = quantiles.to(compute_dtype(quantiles))
    error = future.to(quantiles.dtype).unsqueeze(-1) - quantiles  # (..., q)
    level = torch.tensor(levels, dtype=quantiles.dtype, device=quantiles.device)
    loss = torch.maximum(level * error, (level - 1) * error).mean(-1)
    return loss.masked_fill(~observed, 0).sum() / observed.sum().clamp_min(1)


complete_registration()
