"""Configurations in transformers' naming. The defaults are the paper's language model; presets carry the others."""

from importlib import import_module
from typing import Any, ClassVar

import torch
from transformers import PreTrainedConfig

from tnn._checks import check_choice, check_fraction, check_positive
from tnn.layers import TNNBlock
from tnn.layers.attention import check_heads
from tnn.layers.block import Block
from tnn.layers.gated import inner_size
from tnn.layers.norm import NORMS
from tnn.mixers import find_method

POSITION_EMBEDDINGS = ("none", "sinusoidal", "learned")
POOLINGS = ("mean", "first", "last")
INITIALIZERS = ("gtu", "normal", "torch")


class TNNBlockConfig(PreTrainedConfig):
    """What text and image models share: a stack of blocks, and what stands around it."""

    hidden_size: int = 512
    num_hidden_layers: int = 7
    gtu_expansion: float = 3
    glu_expansion: float = 1
    rpe_size: int = 64
    rpe_num_layers: int = 6
    rpe_input: str = "integer"
    rpe_activation: str = "relu"
    rpe_norm: str = "simple_rms"
    decay: float = 0.99
    decay_mode: str = "fixed"
    coefficients: str = "rpe"
    max_lags: int | None = None
    structure: str = "gtu+glu"
    num_attention_heads: int = 1
    hidden_act: str = "silu"
    norm: str = "simple_rms"
    norm_position: str = "pre"
    inner_norm: str | None = None
    final_norm: str | None = "layer"
    dropout: float = 0.0
    embedding_dropout: float | None = None
    position_embedding: str = "none"
    max_position_embeddings: int | None = None
    pooling: str = "mean"
    classifier_act: str | None = None
    classifier_size: int | None = None
    classifier_dropout: float = 0.0
    initializer: str = "gtu"
    initializer_range: float = 0.02
    bandwidth_tolerance: float = 1e-6
    backend: str = "auto"
    state_space: list[dict[str, Any]] | None = None
    mixer: str = "tnn"
    mixer_options: dict[str, Any] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        check_positive("num_hidden_layers", self.num_hidden_layers)
        if self.max_position_embeddings is not None:
            check_positive("max_position_embeddings", self.max_position_embeddings)
        elif self.position_embedding == "learned":
            raise ValueError('max_position_embeddings must be given when position_embedding="learned"')
        self._check_renamed()
        check_choice("position_embedding", self.position_embedding, POSITION_EMBEDDINGS)
        check_choice("pooling", self.pooling, POOLINGS)
        check_choice("initializer", self.initializer, INITIALIZERS)
        check_fraction("classifier_dropout", self.classifier_dropout)
        if self.classifier_size is not None:
            check_positive("classifier_size", self.classifier_size)
        if self.embedding_dropout is not None:
            check_fraction("embedding_dropout", self.embedding_dropout)
        if self.final_norm is not None:
            check_choice("final_norm", self.final_norm, NORMS)
        if (self.coefficients == "poles") != bool(self.state_space):
            raise ValueError('coefficients="poles" and state_space go together: make them with to_state_space()')
        if self.mixer_options and self.mixer == "tnn":
            raise ValueError(f"mixer_options must be empty for mixer='tnn'; got {self.mixer_options}")
        with torch.device("meta"):
            self.block_class(**self.block_options())  # which checks each of its options
        super().__post_init__(**kwargs)
        import_module("tnn.models.auto")  # whoever has a configuration can ask the Auto classes for its model

    def _check_renamed(self) -> None:
        """What a block knows by another name."""
        method = None if self.mixer == "tnn" else find_method(self.mixer)
        has_heads = self.structure == "attention+glu" if method is None else method.heads
        if has_heads:
            check_heads("num_attention_heads", self.hidden_size, self.num_attention_heads)
        if method is not None and method.feed_forward:
            inner_size("glu_expansion", self.hidden_size, self.glu_expansion)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        found = config_dict.get("model_type", cls.model_type)
        if found != cls.model_type:
            raise ValueError(f"the checkpoint holds a {found!r} model; {cls.__name__} describes {cls.model_type!r}")
        return super().from_dict(config_dict, **kwargs)

    @property
    def block_class(self) -> type[Block]:
        if self.mixer == "tnn":
            return TNNBlock
        from tnn.mixers.block import BaselineBlock

        return BaselineBlock

    def block_options(self, layer: int = 0) -> dict[str, Any]:
        """The arguments of `block_class`. Layers differ only in a state space: in the number of their poles."""
        if self.mixer != "tnn":
            return self._baseline_options()
        options: dict[str, Any] = {
            "hidden_size": self.hidden_size,
            "structure": self.structure,
            "gtu_expansion": self.gtu_expansion,
            "glu_expansion": self.glu_expansion,
            "num_heads": self.num_attention_heads,
            "hidden_act": self.hidden_act,
            "norm": self.norm,
            "norm_position": self.norm_position,
            "inner_norm": self.inner_norm,
            "dropout": self.dropout,
        }
        if self.structure == "attention+glu":
            return options
        return options | {
            "coefficients": self.coefficients,
            "max_lags": self.max_lags,
            "num_poles": self.state_space[layer]["poles"] if self.state_space else None,
            "decay": self.decay,
            "decay_mode": self.decay_mode,
            "rpe_size": self.rpe_size,
            "rpe_num_layers": self.rpe_num_layers,
            "rpe_input": self.rpe_input,
            "rpe_activation": self.rpe_activation,
            "rpe_norm": self.rpe_norm,
            "initializer_range": self.initializer_range if self.initializer == "gtu" else None,
            "bandwidth_tolerance": self.bandwidth_tolerance,
            "backend": self.backend,
        }

    def _baseline_options(self) -> dict[str, Any]:
        return {
            "hidden_size": self.hidden_size,
            "mixer": self.mixer,
            "num_heads": self.num_attention_heads,
            "ffn_expansion": self.glu_expansion,
            "hidden_act": self.hidden_act,
            "norm": self.norm,
            "norm_position": self.norm_position,
            "dropout": self.dropout,
            **(self.mixer_options or {}),
        }


class TNNConfig(TNNBlockConfig):
    """Configuration of the text models.

    - `hidden_size`, `num_hidden_layers`, `gtu_expansion`, `glu_expansion`: the sizes; GTU and GLU work on
      `expansion * hidden_size` channels inside.
    - `is_decoder`: causal (`TNNForCausalLM`) or bidirectional (`TNNForMaskedLM`, most classifiers).
    - `decay`, `decay_mode`: lambda of the coefficients' decay lambda^|lag|; "fixed", "learned" per channel, or "none".
    - `rpe_size`, `rpe_num_layers`, `rpe_input` ("integer", "normalized", "sincos"), `rpe_activation`, `rpe_norm`
      ("simple_rms", "last_layer"): the network that makes the coefficients. `coefficients="free"` learns `max_lags` of
      them instead; with "rpe", `max_lags` zeroes all lags from there on.
    - `structure`: "gtu+glu", "gtu", or "attention+glu" (with `num_attention_heads`).
    - `norm` of a block ("simple_rms", "layer", "rms", "batch"), at `norm_position` "pre" or "post"; `inner_norm` puts
      another norm and skip around the GTU; `final_norm` (None: without) follows the last block, and `embedding_norm`
      puts a LayerNorm after the embedding.
    - `scale_embedding`: multiply embeddings by sqrt(hidden_size). `position_embedding`: "none", "sinusoidal" (for any
      length) or "learned" (for `max_position_embeddings`; None otherwise: there is no limit).
    - `dropout` of what a block adds and, unless `embedding_dropout` is given, of the embedding.
    - `pooling` ("mean" over the real tokens, "first", "last"), `classifier_act` (a hidden layer with this activation in
      the classifier, of `classifier_size` or `hidden_size` features; None: one linear map), `classifier_dropout`: for
      the classification heads.
    - `mixer`: "tnn", or a method that TNN is compared with (`tnn.mixers.METHODS`) in its place, with its own
      `mixer_options`, `num_attention_heads`, and a feed-forward layer of `glu_expansion * hidden_size`. See
      docs/mixers.md.
    - `embedding_size`, where it is not `hidden_size`; `lm_head_bias`: a bias in the output of a causal model.
    - `initializer`: "gtu" (projections of the GTU from N(0, `initializer_range`), the rest torch's default), "normal"
      (every dense layer and embedding so, biases 0), "torch" (torch's default, embeddings from N(0,
      `initializer_range`)). With `scale_embedding`, "gtu" and "torch" draw embeddings from N(0, hidden_size**-0.5).
    - `state_space`: what `TNNForCausalLM.to_state_space` found, one entry a layer; with `coefficients="poles"`.
    - `bandwidth_tolerance`, `backend`: how the Toeplitz product is computed, see `tnn.layers.ToeplitzOperator`.

    >>> from tnn import TNNConfig, TNNForCausalLM
    >>> model = TNNForCausalLM(TNNConfig(vocab_size=100, hidden_size=16, num_hidden_layers=2))
    """

    model_type: ClassVar[str] = "tnn"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values"]

    vocab_size: int = 50_264
    is_decoder: bool = True
    embedding_size: int | None = None
    scale_embedding: bool = True
    embedding_norm: bool = False
    tie_word_embeddings: bool = True
    lm_head_bias: bool = False
    pad_token_id: int | None = 1
    bos_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 2

    def __post_init__(self, **kwargs: Any) -> None:
        check_positive("vocab_size", self.vocab_size)
        if self.embedding_size is not None:
            check_positive("embedding_size", self.embedding_size)
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ValueError(f"pad_token_id must be below vocab_size {self.vocab_size}; got {self.pad_token_id}")
        super().__post_init__(**kwargs)

    def block_options(self, layer: int = 0) -> dict[str, Any]:
        return {**super().block_options(layer), "causal": self.is_decoder}


class TNNImageConfig(TNNBlockConfig):
    """Configuration of the image models. The fields of the blocks are those of TNNConfig; always bidirectional.

    - An image of `num_channels` is cut into squares of `patch_size` pixels, each mapped to one vector; `patch_size=1`
      is the pixel sequence of Long-Range Arena. Any image whose sides are multiples of the patch is accepted;
      `image_size` is what a processor should resize to.
    - `dims`: 2 keeps the patches as a grid and mixes along rows and columns, in the `form` "sum" or "product"; 1 reads
      them as one sequence, row by row.
    - `pool_norm`: a norm after the pooling, as in the paper's ImageNet models; `final_norm` is before it.

    >>> from tnn import TNNForImageClassification, TNNImageConfig
    >>> config = TNNImageConfig(image_size=32, patch_size=4, hidden_size=16, num_hidden_layers=2, num_labels=10)
    >>> model = TNNForImageClassification(config)
    """

    model_type: ClassVar[str] = "tnn_image"

    hidden_size: int = 192
    num_hidden_layers: int = 12
    rpe_size: int = 48
    rpe_num_layers: int = 1
    decay: float = 0.9
    initializer: str = "torch"
    final_norm: str | None = None
    pool_norm: str | None = "simple_rms"
    image_size: int = 224
    patch_size: int = 16
    num_channels: int = 3
    dims: int = 2
    form: str = "sum"

    def __post_init__(self, **kwargs: Any) -> None:
        for name in ("image_size", "patch_size", "num_channels"):
            check_positive(name, getattr(self, name))
        if self.image_size % self.patch_size:
            raise ValueError(f"image_size must be a multiple of patch_size {self.patch_size}; got {self.image_size}")
        patches = (self.image_size // self.patch_size) ** 2
        if self.position_embedding == "learned" and patches > (self.max_position_embeddings or 0):
            raise ValueError(f"max_position_embeddings must be at least {patches}, the number of patches of an image")
        if self.dims not in (1, 2):
            raise ValueError(f"dims must be 1 (a sequence) or 2 (a grid); got {self.dims}")
        if self.pool_norm is not None:
            check_choice("pool_norm", self.pool_norm, NORMS)
        super().__post_init__(**kwargs)

    def block_options(self, layer: int = 0) -> dict[str, Any]:
        options = super().block_options(layer)
        if self.mixer != "tnn":
            if self.dims == 2:
                raise ValueError(f"mixer {self.mixer!r} needs dims=1: it reads a sequence")
            return options
        if self.structure == "attention+glu":
            if self.dims == 2:
                raise ValueError('structure "attention+glu" needs dims=1: its attention reads a sequence')
            return options
        return options | {"dims": self.dims} | ({"form": self.form} if self.dims == 2 else {})
