"""Text models with a head: causal and masked language models, and three classifiers."""

from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.generation import GenerationMode
from transformers.modeling_outputs import (
    BaseModelOutputWithPast,
    CausalLMOutputWithPast,
    MaskedLMOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.modeling_utils import slice_logits_to_keep
from transformers.utils import can_return_tuple

from tnn._auto import complete_registration
from tnn.models.backbone import TNNModel, TNNPreTrainedModel, XavierMap
from tnn.models.cache import TNNCache
from tnn.models.classification import ClassificationHead, classification_loss, pool
from tnn.models.configuration import TNNConfig
from tnn.models.inputs import check_ids, refuse_packed
from tnn.models.loss import IGNORED, linear_cross_entropy


class TNNForCausalLM(TNNPreTrainedModel, GenerationMixin):
    """A causal language model; the output matrix is the embedding unless `tie_word_embeddings=False`.

    >>> import torch
    >>> from tnn import TNNConfig, TNNForCausalLM
    >>> model = TNNForCausalLM(TNNConfig(vocab_size=100, hidden_size=16, num_hidden_layers=2)).eval()
    >>> ids = torch.tensor([[5, 6, 7, 8]])
    >>> model(ids, labels=ids).logits.shape
    torch.Size([1, 4, 100])
    """

    config: TNNConfig
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: TNNConfig):
        super().__init__(config)
        if not config.is_decoder:
            raise ValueError("TNNForCausalLM needs a causal configuration: is_decoder=True")
        self.model = TNNModel(config)
        size = config.embedding_size or config.hidden_size
        self.head_proj = XavierMap(config.hidden_size, size) if size != config.hidden_size else None
        self.lm_head = nn.Linear(size, config.vocab_size, bias=config.lm_head_bias)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        past_key_values: TNNCache | None = None,
        use_cache: bool | None = None,
        labels: Tensor | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """labels (batch, n), not shifted; -100 is ignored. The other arguments are those of TNNModel."""
        outputs = self.model(
            input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            past_key_values=past_key_values,
            use_cache=use_cache,
            **kwargs,
        )
        hidden = self._for_lm_head(outputs.last_hidden_state)
        if labels is None:
            loss, logits = None, self.lm_head(slice_logits_to_keep(hidden, logits_to_keep))
        else:
            if not isinstance(logits_to_keep, int) or logits_to_keep != 0:
                raise ValueError("labels need all logits: give either labels or logits_to_keep, and not both")
            loss, logits = _language_model_loss(self, self.lm_head, hidden, labels, shift=True, **kwargs)
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
        )

    def token_logits(self, hidden: Tensor) -> Tensor:
        """What `forward` makes of the last hidden states, for any of them: (..., hidden_size) -> (..., vocab_size)."""
        logits: Tensor = self.lm_head(self._for_lm_head(hidden))
        return logits

    def _for_lm_head(self, hidden: Tensor) -> Tensor:
        return hidden if self.head_proj is None else self.head_proj(hidden)

    def to_state_space(
        self,
        tolerance: float = 1e-3,
        max_states: int | None = None,
        *,
        method: str = "poles",
        length: int | None = None,
    ) -> "TNNForCausalLM":
        """A model that decodes in constant time and memory, with kernels within `tolerance` of this one's.

        Each layer gets few poles with which the L1 norm of the difference, relative to that of the kernel, is within
        the tolerance in every channel; `config.state_space` reports states, the inputs of the exact `history` that
        they replace, residual and the bound on the output that follows. A layer that needs more than `max_states` is
        refused; None: as many as the exact history has inputs, because with more of them exact decoding is the smaller
        of the two. `method="dft"` is the published conversion, exact for `length` tokens with as many states, and wrong
        after them.

        >>> from tnn import TNNConfig, TNNForCausalLM
        >>> model = TNNForCausalLM(TNNConfig(vocab_size=100, hidden_size=16, num_hidden_layers=1, decay=0.9)).eval()
        >>> fast = model.to_state_space(tolerance=1e-2)
        >>> fast.config.state_space[0]["residual"] <= 1e-2
        True
        """
        from tnn.models.state_space import convert

        return convert(self, tolerance, max_states, method, length)

    def generate(self, inputs: Any = None, generation_config: Any = None, *args: Any, **kwargs: Any) -> Any:
        """As in transformers. `cache_implementation` can be "dynamic" only: the cache of this model."""
        asked = (kwargs, vars(generation_config) if generation_config is not None else {}, vars(self.generation_config))
        chosen = next((value for place in asked if (value := place.get("cache_implementation")) is not None), None)
        if chosen not in (None, "dynamic"):
            raise ValueError(
                f'cache_implementation must be "dynamic" for this model, which has its own; got {chosen!r}'
            )
        return super().generate(inputs, generation_config, *args, **kwargs)

    def _validate_generation_mode(self, mode: Any, generation_config: Any, arguments: dict[str, Any]) -> None:
        """Assisted generation removes tokens again."""
        if mode == GenerationMode.ASSISTED_GENERATION:  # `_is_stateful` would refuse it for all models of the class
            if self.model.can_cache and not self.model.can_crop:
                raise ValueError("assisted generation and prompt lookup must remove tokens; a state space cannot")
            assistant = arguments.get("assistant_model")
            if isinstance(assistant, TNNForCausalLM) and not assistant.model.can_crop:
                raise ValueError("assistant_model must be able to remove tokens: it has no cache, or is a state space")
        super()._validate_generation_mode(mode, generation_config, arguments)

    def init_continuous_batching(self, *args: Any, **kwargs: Any) -> Any:
        raise ValueError("continuous batching (generate_batch) needs keys and values in pages; use generate()")

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        """generate() asks for a cache: ours, or none if the model runs the whole prefix at each step."""
        given = model_kwargs.get("past_key_values")
        if given is not None and generation_config.use_cache is False:
            raise ValueError("past_key_values needs use_cache=True: without a cache, the whole text is run again")
        if not self.model.can_cache:
            if model_kwargs.get("inputs_embeds") is not None:
                raise ValueError("generate() from inputs_embeds needs a cache, which this configuration cannot have")
            generation_config.use_cache = False
        elif generation_config.use_cache is not False and given is None:
            model_kwargs["past_key_values"] = self.model.new_cache()


class TNNForMaskedLM(TNNPreTrainedModel):
    """A masked language model: dense layer, GELU, LayerNorm, then the (tied) output matrix with a bias.

    >>> import torch
    >>> from tnn import TNNConfig, TNNForMaskedLM
    >>> model = TNNForMaskedLM(TNNConfig(vocab_size=100, hidden_size=16, num_hidden_layers=2, is_decoder=False))
    >>> model(torch.tensor([[5, 6, 7, 8]])).logits.shape
    torch.Size([1, 4, 100])
    """

    config: TNNConfig
    _tied_weights_keys = {"lm_head.decoder.weight": "model.embed_tokens.weight"}

    def __init__(self, config: TNNConfig):
        super().__init__(config)
        if config.is_decoder:
            raise ValueError("TNNForMaskedLM needs a bidirectional configuration: is_decoder=False")
        if config.embedding_size not in (None, config.hidden_size):
            raise ValueError("TNNForMaskedLM needs embedding_size=None: its output matrix is the embedding")
        self.model = TNNModel(config)
        self.lm_head = MaskedLMHead(config)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """In every scheme the dense layer of the head starts from torch's default, and the last bias from 0."""
        if module is self.lm_head.dense:
            self.lm_head.dense.reset_parameters()
            return
        super()._init_weights(module)
        if module is self.lm_head.decoder:
            nn.init.zeros_(self.lm_head.decoder.bias)

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.lm_head.decoder = new_embeddings

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """labels (batch, n): the tokens at masked positions, -100 elsewhere. The others are those of TNNModel."""
        outputs = self.model(
            input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )
        features = self.lm_head.transform(outputs.last_hidden_state)
        if labels is None:
            loss, logits = None, self.lm_head.decoder(features)
        else:
            loss, logits = _language_model_loss(self, self.lm_head.decoder, features, labels, shift=False, **kwargs)
        return MaskedLMOutput(loss=loss, logits=logits, hidden_states=outputs.hidden_states)

    def token_logits(self, hidden: Tensor) -> Tensor:
        """What `forward` makes of the last hidden states, for any of them: (..., hidden_size) -> (..., vocab_size)."""
        logits: Tensor = self.lm_head.decoder(self.lm_head.transform(hidden))
        return logits


class MaskedLMHead(nn.Module):
    def __init__(self, config: TNNConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)

    def transform(self, x: Tensor) -> Tensor:
        return self.norm(F.gelu(self.dense(x)))


def _language_model_loss(
    model: TNNPreTrainedModel, head: nn.Module, hidden: Tensor, labels: Tensor, *, shift: bool, **kwargs: Any
) -> tuple[Tensor, Tensor]:
    """(loss, logits). A loss function or an output layer that someone has put in place of ours is used as it is."""
    if labels.shape != hidden.shape[:2]:
        raise ValueError(f"labels must have shape {tuple(hidden.shape[:2])}, one per token; got {tuple(labels.shape)}")
    check_ids("labels", labels, model.config.vocab_size, ignored=kwargs.get("ignore_index", IGNORED))
    if hasattr(model, "_loss_function") or not _is_plain_linear(head) or torch.compiler.is_compiling():
        logits = head(hidden)
        return model.loss_function(logits=logits, labels=labels, vocab_size=model.config.vocab_size, **kwargs), logits
    ignored = kwargs.get("ignore_index", IGNORED)
    if shift:
        labels = kwargs.get("shift_labels", F.pad(labels, (0, 1), value=ignored)[:, 1:])
    count = kwargs.get("num_items_in_batch")
    return linear_cross_entropy(hidden, head, labels, num_items=count, ignore_index=ignored)


def _is_plain_linear(head: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether weight and bias are all there is to it: no adapter, no hook, nothing that brings them from a disk."""
    hooks = (head._forward_hooks, head._forward_pre_hooks, head._backward_hooks, head._backward_pre_hooks)
    return type(head) is nn.Linear and not any(hooks) and "forward" not in vars(head) and not head.weight.is_meta


class TNNForSequenceClassification(TNNPreTrainedModel):
    """One label (or number, with `num_labels=1`) per sequence, from the mean over its real tokens (or other `pooling`).

    >>> import torch
    >>> from tnn import TNNConfig, TNNForSequenceClassification
    >>> config = TNNConfig(vocab_size=100, hidden_size=16, num_hidden_layers=2, is_decoder=False, num_labels=3)
    >>> TNNForSequenceClassification(config)(torch.tensor([[5, 6, 7, 8]])).logits.shape
    torch.Size([1, 3])
    """

    config: TNNConfig
    accepts_loss_kwargs = False  # the mean over a batch does not know the other micro-batches

    def __init__(self, config: TNNConfig):
        super().__init__(config)
        self.model = TNNModel(config)
        self.classifier = ClassificationHead(config, config.hidden_size, config.classifier_act)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """labels (batch,), or (batch, num_labels) for several numbers or several labels per sequence."""
        refuse_packed(attention_mask, position_ids, **kwargs)
        pooled, outputs = _encode(
            self.model, input_ids, attention_mask, position_ids=position_ids, inputs_embeds=inputs_embeds, **kwargs
        )
        logits = self.classifier(pooled)
        loss = None if labels is None else classification_loss(self, logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=outputs.hidden_states)


class TNNForSequencePairClassification(TNNPreTrainedModel):
    """One label per pair of sequences: both through the same encoder, then a hidden layer on [a, b, a - b, a * b].

    >>> import torch
    >>> from tnn import TNNConfig, TNNForSequencePairClassification
    >>> config = TNNConfig(vocab_size=100, hidden_size=16, num_hidden_layers=2, is_decoder=False)
    >>> model = TNNForSequencePairClassification(config)
    >>> model(input_ids=torch.tensor([[5, 6, 7]]), pair_input_ids=torch.tensor([[8, 9]])).logits.shape
    torch.Size([1, 2])
    """

    config: TNNConfig
    accepts_loss_kwargs = False

    def __init__(self, config: TNNConfig):
        super().__init__(config)
        self.model = TNNModel(config)
        self.loss_type = "ForSequenceClassification"  # transformers knows it by the name of the class, but not this one
        self.classifier = ClassificationHead(config, 4 * config.hidden_size, config.classifier_act or "gelu")
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        pair_input_ids: Tensor | None = None,
        pair_attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        pair_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """input_ids (batch, n) and pair_input_ids (batch, m), each with its mask; labels (batch,)."""
        if pair_input_ids is None and pair_inputs_embeds is None:
            raise ValueError("give the second sequence of the pair: pair_input_ids or pair_inputs_embeds")
        if unknown := sorted({"position_ids", "pair_position_ids", "cu_seqlens", "seq_idx"} & set(kwargs)):
            raise ValueError(f"a pair takes no {unknown[0]}: each row is one sequence")
        a, outputs = _encode(self.model, input_ids, attention_mask, inputs_embeds=inputs_embeds, **kwargs)
        b, _ = _encode(self.model, pair_input_ids, pair_attention_mask, inputs_embeds=pair_inputs_embeds)
        if a.shape != b.shape:
            raise ValueError(f"both sequences must have the same batch size; got {a.shape[0]} and {b.shape[0]}")
        logits = self.classifier(torch.cat([a, b, a - b, a * b], dim=-1))
        loss = None if labels is None else classification_loss(self, logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=outputs.hidden_states)


class TNNForTokenClassification(TNNPreTrainedModel):
    """One label per token.

    >>> import torch
    >>> from tnn import TNNConfig, TNNForTokenClassification
    >>> config = TNNConfig(vocab_size=100, hidden_size=16, num_hidden_layers=2, is_decoder=False, num_labels=5)
    >>> TNNForTokenClassification(config)(torch.tensor([[5, 6, 7, 8]])).logits.shape
    torch.Size([1, 4, 5])
    """

    config: TNNConfig

    def __init__(self, config: TNNConfig):
        super().__init__(config)
        self.model = TNNModel(config)
        self.classifier = ClassificationHead(config, config.hidden_size, config.classifier_act)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """labels (batch, n); -100 is ignored. The other arguments are those of TNNModel."""
        outputs = self.model(
            input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **{"use_cache": False, **kwargs},
        )
        logits = self.classifier(outputs.last_hidden_state)
        loss = None
        if labels is not None:
            if labels.shape != logits.shape[:2]:
                raise ValueError(f"labels must have shape {tuple(logits.shape[:2])}; got {tuple(labels.shape)}")
            check_ids("labels", labels, self.config.num_labels, ignored=IGNORED)
            loss = self.loss_function(logits, labels, self.config, **kwargs)
        return TokenClassifierOutput(loss=loss, logits=logits, hidden_states=outputs.hidden_states)


def _encode(
    model: TNNModel, input_ids: Tensor | None, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, BaseModelOutputWithPast]:
    outputs = model(input_ids, attention_mask=attention_mask, **{"use_cache": False, **kwargs})
    return pool(outputs.last_hidden_state, attention_mask, model.config.pooling), outputs


complete_registration()
