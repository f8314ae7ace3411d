"""Image models: patches kept as a grid (or read as a sequence), mixed along rows and columns, pooled, classified."""

from typing import Any

from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput, ImageClassifierOutput
from transformers.utils import can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from tnn._auto import complete_registration
from tnn.layers.norm import make_norm
from tnn.models.backbone import TNNLayer, TNNPreTrainedModel
from tnn.models.classification import ClassificationHead, classification_loss, pool
from tnn.models.configuration import TNNImageConfig
from tnn.models.positions import PositionEmbedding


class TNNImagePreTrainedModel(TNNPreTrainedModel):
    config: TNNImageConfig
    main_input_name = "pixel_values"
    input_modalities = ("image",)


class TNNImageModel(TNNImagePreTrainedModel):
    """Pixels to one vector per patch, row by row.

    >>> import torch
    >>> from tnn import TNNImageConfig, TNNImageModel
    >>> model = TNNImageModel(TNNImageConfig(image_size=32, patch_size=4, hidden_size=16, num_hidden_layers=2)).eval()
    >>> model(torch.randn(1, 3, 32, 32)).last_hidden_state.shape
    torch.Size([1, 64, 16])
    """

    def __init__(self, config: TNNImageConfig):
        super().__init__(config)
        self.patch_proj = nn.Linear(config.patch_size**2 * config.num_channels, config.hidden_size)
        self.positions = PositionEmbedding(
            config.position_embedding, config.hidden_size, config.max_position_embeddings
        )
        self.dropout = nn.Dropout(config.dropout if config.embedding_dropout is None else config.embedding_dropout)
        self.layers = nn.ModuleList(TNNLayer(**config.block_options(i)) for i in range(config.num_hidden_layers))
        self.norm = make_norm(config.final_norm, config.hidden_size) if config.final_norm else None
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.patch_proj

    def set_input_embeddings(self, value: nn.Linear) -> None:
        self.patch_proj = value

    @merge_with_config_defaults
    @capture_outputs
    def forward(self, pixel_values: Tensor, **kwargs: Any) -> BaseModelOutput:
        """pixel_values (batch, channels, height, width); sides are multiples of the patch."""
        patches = self._patches(pixel_values)  # (batch, h, w, pixels of a patch)
        x = self.patch_proj(patches.to(self.patch_proj.weight.dtype))
        x = self.dropout(self.positions(x.flatten(1, 2)))  # (batch, h * w, d): positions run along the rows
        grid = (patches.shape[1], patches.shape[2]) if self.config.dims == 2 else None
        for layer in self.layers:
            x = layer(x, grid=grid)
        if self.norm is not None:
            x = self.norm(x)
        return BaseModelOutput(last_hidden_state=x)

    def _patches(self, pixels: Tensor) -> Tensor:
        """(batch, h, w, patch * patch * channels): the pixels of a patch row by row, channels last."""
        p, channels = self.config.patch_size, self.config.num_channels
        if pixels.ndim != 4 or pixels.shape[1] != channels:
            raise ValueError(
                f"pixel_values must be (batch, {channels}, height, width); got shape {tuple(pixels.shape)}"
            )
        height, width = pixels.shape[2:]
        if height % p or width % p or height == 0 or width == 0:
            raise ValueError(f"the sides of an image must be multiples of the patch size {p}; got {height} x {width}")
        grid = pixels.unflatten(3, (width // p, p)).unflatten(2, (height // p, p))  # (batch, c, h, p, w, p)
        return grid.permute(0, 2, 4, 3, 5, 1).flatten(3)


class TNNForImageClassification(TNNImagePreTrainedModel):
    """One label per image.

    >>> import torch
    >>> from tnn import TNNForImageClassification, TNNImageConfig
    >>> config = TNNImageConfig(image_size=32, patch_size=4, hidden_size=16, num_hidden_layers=2, num_labels=10)
    >>> TNNForImageClassification(config)(torch.randn(1, 3, 32, 32)).logits.shape
    torch.Size([1, 10])
    """

    accepts_loss_kwargs = False

    def __init__(self, config: TNNImageConfig):
        super().__init__(config)
        self.model = TNNImageModel(config)
        self.norm = make_norm(config.pool_norm, config.hidden_size) if config.pool_norm else None
        self.classifier = ClassificationHead(config, config.hidden_size, config.classifier_act)
        self.post_init()

    @can_return_tuple
    def forward(self, pixel_values: Tensor, labels: Tensor | None = None, **kwargs: Any) -> ImageClassifierOutput:
        """pixel_values (batch, channels, height, width), labels (batch,)."""
        outputs = self.model(pixel_values, **kwargs)
        pooled = pool(outputs.last_hidden_state, None, self.config.pooling)
        logits = self.classifier(pooled if self.norm is None else self.norm(pooled))
        loss = None if labels is None else classification_loss(self, logits, labels)
        return ImageClassifierOutput(loss=loss, logits=logits, hidden_states=outputs.hidden_states)


complete_registration()
