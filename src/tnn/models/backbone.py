"""The text model without a head: embedding, blocks, norm."""

from itertools import islice
from typing import Any, TypeGuard

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.utils import logging
from transformers.utils.output_capturing import capture_outputs

from tnn._auto import complete_registration
from tnn.layers.norm import make_norm
from tnn.layers.position import SineLinear
from tnn.layers.sequences import Mask
from tnn.layers.state import States
from tnn.mixers.block import TNNBlock
from tnn.models.cache import TNNCache
from tnn.models.configuration import TNNBlockConfig, TNNConfig
from tnn.models.inputs import check_ids, find_sequences, positions_in_documents
from tnn.models.positions import PositionEmbedding
from tnn.models.remote_code import is_own
from tnn.streaming import new_state

logger = logging.get_logger(__name__)


class TNNLayer(GradientCheckpointingLayer, TNNBlock):
    """A block as transformers checkpoints and records it."""

    def forward(
        self, x: Tensor, mask: Mask = None, state: States = None, grid: tuple[int, int] | None = None
    ) -> Tensor:
        """x (batch, n, hidden_size); with `grid`, the rows of a (height, width) grid one after the other."""
        if grid is None:
            return super().forward(x, mask, state)
        return super().forward(x.unflatten(1, grid)).flatten(1, 2)


class TNNPreTrainedModel(PreTrainedModel):
    """What all TNN models share: initialisation, and how transformers loads, casts and splits them."""

    config: TNNBlockConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _skip_keys_device_placement = ["past_key_values"]
    _can_record_outputs = {"hidden_states": TNNLayer}
    _no_split_modules = ["TNNLayer"]

    def post_init(self) -> None:
        """Of models that have a Toeplitz operator, it stays in float32: bfloat16 cannot tell lag 1,000 from 1,001."""
        if any(name.endswith(".operator") for name, _ in self.named_modules()):
            self._keep_in_fp32_modules_strict = {"operator"}
        super().post_init()

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        except SafetensorError as error:
            raise OSError(f"weights of {pretrained_model_name_or_path} are damaged or cut short: {error}") from error

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoModel") -> None:
        """For models of your own. Ours need nothing: every saved folder has the code that loads them."""
        if not is_own(cls):
            super().register_for_auto_class(auto_class)

    def _init_weights(self, module: nn.Module) -> None:
        """Every parameter and buffer, as `from_pretrained` builds on the meta device; loaded ones are left alone.

        `initializer`: "torch" is each module's own reset_parameters; "gtu" draws the projections of a GTU from
        N(0, initializer_range), and "normal" every dense layer, with bias 0.
        """
        if isinstance(module, nn.BatchNorm1d):
            super()._init_weights(module)  # its own reset would wipe loaded statistics
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=self._embedding_std(module.embedding_dim))
            if module.padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
                nn.init.zeros_(module.weight[module.padding_idx])
        elif self.config.initializer == "normal" and _has_any_start(module):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif callable(reset := getattr(module, "reset_parameters", None)):
            reset()

    def _embedding_std(self, size: int) -> float:
        if self.config.initializer == "normal":
            return self.config.initializer_range
        if getattr(self.config, "scale_embedding", False):
            return size**-0.5
        return 1.0 if self.config.initializer == "gtu" else self.config.initializer_range


class TNNModel(TNNPreTrainedModel):
    """Token ids to hidden states.

    >>> import torch
    >>> from tnn import TNNConfig, TNNModel
    >>> model = TNNModel(TNNConfig(vocab_size=100, hidden_size=16, num_hidden_layers=2)).eval()
    >>> model(torch.tensor([[5, 6, 7]])).last_hidden_state.shape
    torch.Size([1, 3, 16])
    """

    config: TNNConfig

    def __init__(self, config: TNNConfig):
        super().__init__(config)
        size = config.embedding_size or config.hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, size, padding_idx=_own_pad_id(config))
        self.embed_proj = XavierMap(size, config.hidden_size) if size != config.hidden_size else None
        self.positions = PositionEmbedding(
            config.position_embedding, config.hidden_size, config.max_position_embeddings
        )
        self.embed_norm = nn.LayerNorm(config.hidden_size) if config.embedding_norm else None
        self.dropout = nn.Dropout(config.dropout if config.embedding_dropout is None else config.embedding_dropout)
        self.layers = nn.ModuleList(TNNLayer(**config.block_options(i)) for i in range(config.num_hidden_layers))
        self.norm = make_norm(config.final_norm, config.hidden_size) if config.final_norm else None
        self.gradient_checkpointing = False
        self.post_init()

    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        past_key_values: TNNCache | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """input_ids (batch, n), or inputs_embeds (batch, n, embedding_size): what `embed_tokens` would give for them.

        attention_mask (batch, n): 1 at real tokens. Documents packed into a row are kept apart if `position_ids`
        (batch, n) restart with each of them, or if `cu_seqlens`, the offsets of a batch of one, tell where they begin.

        `use_cache` returns `past_key_values`, with which a later call takes the next tokens only; the mask may then be
        that of all tokens so far. None: as `config.use_cache` says in evaluation, where the model can; not in training
        and not in torch.export.
        """
        if inputs_embeds is None:
            if input_ids is None:
                raise ValueError("give either input_ids or inputs_embeds")
            tokens = getattr(self.embed_tokens, "num_embeddings", self.config.vocab_size)  # an adapter does not tell
            check_ids("input_ids", input_ids, tokens)
            if input_ids.ndim != 2 or input_ids.shape[1] == 0:
                raise ValueError(f"input_ids must be (batch, n) with n at least 1; got shape {tuple(input_ids.shape)}")
            inputs_embeds = self.embed_tokens(input_ids)
        elif input_ids is not None:
            raise ValueError("give either input_ids or inputs_embeds, and not both")
        if inputs_embeds.ndim != 3 or inputs_embeds.shape[1] == 0:
            shape = tuple(inputs_embeds.shape)
            raise ValueError(f"inputs_embeds must be (batch, n, hidden_size) with n at least 1; got shape {shape}")
        if cu_seqlens is None:
            cu_seqlens = kwargs.get("cu_seq_lens_q")  # the name that transformers' collators use
        if (seq_idx := kwargs.get("seq_idx")) is not None and position_ids is None:
            position_ids = positions_in_documents(seq_idx)
        if self.gradient_checkpointing and self.training:
            self._check_checkpointing()
        seen = 0 if past_key_values is None else _checked_cache(past_key_values).get_seq_length()
        sequences, position_ids = find_sequences(inputs_embeds, attention_mask, position_ids, cu_seqlens, seen)
        packed = sequences is not None and sequences.packed
        if past_key_values is None and self._wants_cache(use_cache, packed):
            past_key_values = self.new_cache()
        if packed and past_key_values is not None:
            raise ValueError("packed documents cannot be cached: give each a row, or use_cache=False")
        states = self._states(past_key_values)

        x = inputs_embeds
        if self.config.scale_embedding:
            x = x * self.config.hidden_size**0.5
        if self.embed_proj is not None:
            x = self.embed_proj(x)  # (batch, n, hidden_size)
        x = self.positions(x, position_ids)
        if self.embed_norm is not None:
            x = self.embed_norm(x)
        x = self.dropout(x)
        if sequences is not None:
            x = sequences.zero_padding(x)  # (batch, n, hidden_size)
        for layer, state in zip(self.layers, states, strict=True):
            x = layer(x, sequences) if state is None else layer(x, sequences, state)
        if self.norm is not None:
            x = self.norm(x, sequences)
        return BaseModelOutputWithPast(last_hidden_state=x, past_key_values=past_key_values)

    def _check_checkpointing(self) -> None:
        for name, layer in zip(self.config.layer_mixers, self.layers, strict=True):
            if isinstance(layer, TNNLayer) and layer.mixer.keeps_memory:
                raise ValueError(f"mixer {name!r} keeps a memory, which gradient checkpointing would change twice")

    def _wants_cache(self, use_cache: bool | None, packed: bool) -> bool:
        if use_cache is None:
            traced = torch.compiler.is_exporting() or torch.jit.is_tracing()  # type: ignore[attr-defined]
            by_default = bool(self.config.use_cache) and not self.training and not traced
            return by_default and not packed and self.can_cache
        if use_cache and self.gradient_checkpointing and self.training:
            logger.warning_once("use_cache=True has no effect with gradient checkpointing, which runs each layer twice")
            return False
        return use_cache

    @property
    def can_cache(self) -> bool:
        """Whether every layer has a state: in causal models, unless outputs change with the length."""
        return self.config.is_decoder and None not in self.state_owners

    @property
    def can_crop(self) -> bool:
        """Whether the newest tokens can be removed from its cache."""
        return self.can_cache and self.new_cache().is_croppable

    def new_cache(self) -> TNNCache:
        """An empty cache, for a sequence that will come in parts."""
        if not self.can_cache:
            raise ValueError("no cache for this model: it is bidirectional, or a layer has no state")
        return TNNCache([new_state(owner) for owner in self.state_owners])

    @property
    def state_owners(self) -> list[Any]:
        """What has a state, layer after layer: mixers or operators; None where outputs change as tokens are added."""
        layers: Any = self.layers
        return [owner for layer in layers for owner in layer.state_owners]

    @property
    def operators(self) -> list[Any]:
        """The Toeplitz operator of each layer; None where something else mixes the tokens."""
        return [layer.operator for layer in self.layers]

    def _states(self, cache: TNNCache | None) -> list[Any]:
        """For each layer its state, or a tuple of them if it has several."""
        if cache is None:
            return [None] * len(self.layers)
        if self.gradient_checkpointing and self.training:
            raise ValueError("a cache cannot be used with gradient checkpointing, which runs each layer twice")
        layers: Any = self.layers
        states = iter(cache.states_of(self.state_owners))
        several = [tuple(islice(states, len(layer.state_owners))) for layer in layers]
        return [one[0] if len(one) == 1 else one for one in several]


def _has_any_start(module: nn.Module) -> TypeGuard[nn.Linear]:
    """A dense layer; not one of a network of sines, which learns from its own start alone."""
    return isinstance(module, nn.Linear) and not isinstance(module, SineLinear)


def _checked_cache(cache: Any) -> TNNCache:
    if not isinstance(cache, TNNCache):
        raise TypeError(f"past_key_values must be a cache that this model has returned; got {type(cache).__name__}")
    return cache


class XavierMap(nn.Linear):
    """Between the size of the embedding and that of the layers: no bias."""

    def __init__(self, in_features: int, out_features: int):
        super().__init__(in_features, out_features, bias=False)

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight)


def _own_pad_id(config: TNNConfig) -> int | None:
    """The pad id, whose embedding starts from 0 and gets no gradient from the input.

    None if it is a token that must learn, as with tokenizers that pad with the end of the text.
    """
    eos = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    return None if config.pad_token_id in [config.bos_token_id, *eos] else config.pad_token_id


complete_registration()
