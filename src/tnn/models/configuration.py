"""Configurations in transformers' naming. The defaults are the paper's language model; presets carry the others."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

from transformers import GenerationConfig, PreTrainedConfig
from transformers.utils import logging

from tnn._auto import register_models
from tnn._checks import check_choice, check_fraction, check_positive
from tnn._names import did_you_mean
from tnn.layers.norm import NORMS
from tnn.mixers import find_mixer
from tnn.mixers.block import TNNBlock
from tnn.models.migration import current_fields
from tnn.models.remote_code import auto_map, is_own, write_code

logger = logging.get_logger(__name__)

POSITION_EMBEDDINGS = ("none", "sinusoidal", "interleaved", "learned")
POOLINGS = ("mean", "first", "last")
INITIALIZERS = ("gtu", "normal", "torch")
MOST_LAYERS = 1000  # more would take minutes to build, only to run out of memory
MOST_LABELS = 1_000_000  # each has a name
MOST_STEPS, MOST_COLUMNS = 100_000, 10_000  # of a forecast
# What transformers accepts of every configuration besides its fields.
COMMON_ARGUMENTS = {
    *("num_labels", "model_type", "torch_dtype", "name_or_path", "_name_or_path", "_commit_hash", "per_layer_config"),
    *("output_attentions", "attn_implementation", "_attn_implementation_internal", "experts_implementation"),
    *("_experts_implementation_internal", "auto_map", "quantization_config", "tokenizer_class"),
    "tie_word_embeddings",
}


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
    decay: float | list[float] = 0.99
    decay_mode: str = "fixed"
    input_gate: bool = False
    short_convolution: int | None = None
    coefficients: str = "rpe"
    max_lags: int | None = None
    num_attention_heads: int = 1
    hidden_act: str = "silu"
    norm: str = "simple_rms"
    norm_position: str = "pre"
    inner_norm: str | None = None
    final_norm: str | None = "layer"
    dropout: float = 0.0
    embedding_dropout: float | None = None
    glu_dropout: float = 0.0
    operator_norm: bool = False
    operator_dropout: float = 0.0
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
    state_space: list[dict[str, Any] | None] | None = None
    mixer: str | list[str] = "tnn"
    mixer_options: dict[str, Any] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        kwargs = current_fields({"mixer": self.mixer, "mixer_options": self.mixer_options, **kwargs})
        self.mixer, self.mixer_options = kwargs.pop("mixer"), kwargs.pop("mixer_options")
        self.check_names(kwargs)
        self._check_types(kwargs)
        self._check_values()
        super().__post_init__(**kwargs)
        register_models()  # with a configuration, the Auto classes can be asked for its model

    @classmethod
    @cache
    def known_names(cls) -> frozenset[str]:
        """All arguments that the constructor accepts."""
        generation = GenerationConfig._get_default_generation_params()  # accepted by every configuration, not used
        return frozenset({field.name for field in fields(cls)} | COMMON_ARGUMENTS | set(generation))

    @classmethod
    def check_names(cls, names: Iterable[str]) -> None:
        """A ValueError for an argument that the constructor does not accept, with the nearest that it does."""
        for name in names:
            if name not in cls.known_names():
                own = sorted(field.name for field in fields(cls))
                hint = did_you_mean(name, own, others="the fields that its documentation lists")
                raise ValueError(f"{cls.__name__} has no argument {name!r}; {hint}")

    def _check_types(self, arguments: Mapping[str, Any]) -> None:
        """Of what transformers and the checks of the values take for granted; `arguments` are not fields."""
        for known in fields(self):
            if known.type is bool and not isinstance(value := getattr(self, known.name), bool):
                raise TypeError(f"{known.name} must be true or false; got {value!r}")
        for name in ("mixer_options", "id2label", "label2id"):
            if not isinstance(value := getattr(self, name), dict | None):
                raise TypeError(f"{name} must be a dictionary; got {value!r}")
        if not isinstance(self.mixer, str | list) or not all(isinstance(name, str) for name in self.mixer):
            raise TypeError(f"mixer must be the name of a registered mixer, or a list of names; got {self.mixer!r}")
        if arguments.get("num_labels") is not None:
            check_positive("num_labels", arguments["num_labels"], at_most=MOST_LABELS)

    def _check_values(self) -> None:
        check_positive("num_hidden_layers", self.num_hidden_layers, at_most=MOST_LAYERS)
        check_positive("rpe_num_layers", self.rpe_num_layers, at_most=MOST_LAYERS)
        if self.max_position_embeddings is not None:
            check_positive("max_position_embeddings", self.max_position_embeddings)
        elif self.position_embedding == "learned":
            raise ValueError('max_position_embeddings must be given when position_embedding="learned"')
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
        self._check_mixers()

    def _check_mixers(self) -> None:
        """Every distinct mixer once; layers with the same mixer differ only in the number of their poles."""
        mixers = self.layer_mixers
        if len(mixers) != self.num_hidden_layers:
            count = f"got {len(mixers)} for num_hidden_layers={self.num_hidden_layers}"
            raise ValueError(f"mixer must have one entry per layer if it is a list; {count}")
        if isinstance(self.mixer, list):
            for name in self.mixer_options or {}:
                if name not in mixers:
                    example = f'as {{"{mixers[0]}": {{...}}}}'
                    raise ValueError(f"mixer_options of a list of mixers has a key per mixer, {example}; got {name!r}")
        for name, layer in {name: layer for layer, name in enumerate(mixers)}.items():
            fields_of_config = find_mixer(name).cls.config_options(self, layer)
            if both := sorted(set(fields_of_config) & set(self._options_of(name))):
                raise ValueError(f"mixer_options must not have {both[0]!r}: the configuration has a field for it")
            TNNBlock.check_options(**self.block_options(layer))

    def _options_of(self, mixer: str) -> dict[str, Any]:
        """Of `mixer_options`: what belongs to one mixer."""
        options = self.mixer_options or {}
        return (options.get(mixer) or {}) if isinstance(self.mixer, list) else options

    @property
    def layer_mixers(self) -> list[str]:
        """The name of each layer's mixer."""
        return self.mixer if isinstance(self.mixer, list) else [self.mixer] * self.num_hidden_layers

    def save_pretrained(self, save_directory: str | PathLike[str], push_to_hub: bool = False, **kwargs: Any) -> None:
        """As in transformers. With the file that lets tools load the folder which never import `tnn`."""
        own = is_own(type(self))
        if own:
            self.auto_map = auto_map(type(self).__name__, self.model_type, self.architectures)
        super().save_pretrained(save_directory, push_to_hub, **kwargs)
        if own:
            write_code(Path(save_directory))

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoConfig") -> None:
        """For configurations of your own. Ours need nothing: every folder has the code that loads them."""
        if not is_own(cls):
            super().register_for_auto_class(auto_class)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        kind = config_dict.get("model_type", cls.model_type)
        if kind != cls.model_type:
            raise ValueError(f"the checkpoint holds a {kind!r} model; {cls.__name__} describes {cls.model_type!r}")
        foreign = cls._foreign_names(config_dict)
        result = super().from_dict({key: config_dict[key] for key in config_dict if key not in foreign}, **kwargs)
        config = result[0] if isinstance(result, tuple) else result
        for key in foreign:
            setattr(config, key, config_dict[key])
        return result

    @classmethod
    def _foreign_names(cls, config_dict: dict[str, Any]) -> list[str]:
        """Keys that other tools have added to a saved configuration; a key that looks like a field is an error."""
        unknown = [key for key in current_fields(config_dict) if key not in cls.known_names()]
        own = [field.name for field in fields(cls)]
        cls.check_names(key for key in unknown if get_close_matches(key, own, n=1))
        if unknown:
            logger.warning("keys of the configuration that %s does not know: %s", cls.__name__, ", ".join(unknown))
        return unknown

    def block_options(self, layer: int = 0) -> dict[str, Any]:
        """The arguments of the TNNBlock of one layer."""
        mixer = self.layer_mixers[layer]
        return {
            "hidden_size": self.hidden_size,
            "mixer": mixer,
            "causal": False,
            "glu_expansion": self.glu_expansion,
            "glu_dropout": self.glu_dropout,
            "hidden_act": self.hidden_act,
            "norm": self.norm,
            "norm_position": self.norm_position,
            "inner_norm": self.inner_norm,
            "dropout": self.dropout,
            **find_mixer(mixer).cls.config_options(self, layer),
            **self._options_of(mixer),
        }


class TNNConfig(TNNBlockConfig):
    """Configuration of the text models.

    - `hidden_size`, `num_hidden_layers`, `gtu_expansion`, `glu_expansion`: the sizes; GTU and GLU work on
      `expansion * hidden_size` channels inside.
    - `is_decoder`: causal (`TNNForCausalLM`) or bidirectional (`TNNForMaskedLM`, most classifiers).
    - `decay`, `decay_mode`: lambda of the coefficients' decay lambda^|lag|; "fixed", "learned" per channel, or "none".
      A pair of rates, the faster (smaller) first, is a spread over the channels with log-spaced half-lives; with
      "learned" it is where the rates start.
    - `input_gate`: gate the input of the Toeplitz operator as well; `short_convolution`: a convolution over so many
      positions in front of the GTU (None: without); `operator_norm`: a norm of what the operator has mixed. See
      `tnn.layers.GatedToeplitzUnit`.
    - `rpe_size`, `rpe_num_layers`, `rpe_input` ("integer", "normalized", "sincos"), `rpe_activation` ("sin": without
      norms, see docs/kernels.md), `rpe_norm` ("simple_rms", "last_layer"): the network that makes the
      coefficients. `coefficients="free"` learns `max_lags` of them instead; with "rpe", `max_lags` zeroes all lags from
      there on.
    - `norm` of a block ("simple_rms", "layer", "rms", "batch"), at `norm_position` "pre" or "post"; `inner_norm` puts
      another norm and skip around the GTU ("unused": only its parameters, see TNNBlock); `final_norm` (None: without)
      follows the last block, and `embedding_norm` puts a LayerNorm after the embedding.
    - `scale_embedding`: multiply embeddings by sqrt(hidden_size). `position_embedding`: "none", "sinusoidal" (for any
      length; sines, then cosines, counted from 2), "interleaved" (sines and cosines in turn, counted from 0) or
      "learned" (for `max_position_embeddings`; None otherwise: there is no limit).
    - `dropout` of what a block adds and, unless `embedding_dropout` is given, of the embedding. `glu_dropout` of the
      gate inside the GLU, `operator_dropout` of what the Toeplitz operator has mixed.
    - `pooling` ("mean" over the real tokens, "first", "last"), `classifier_act` (a hidden layer with this activation in
      the classifier, of `classifier_size` or `hidden_size` features; None: one linear map), `classifier_dropout`: for
      the classification heads.
    - `mixer`: what mixes the tokens, by name (`tnn.mixers.list_mixers()`); or a list with one name per layer, for a
      hybrid model. "tnn" is the paper's; "gtu" (without the GLU) and "attention" (in place of the GTU) are its
      ablations. `mixer_options` are the options of the mixer that have no field here; for a list of mixers, a
      dictionary of them per mixer. Attention has `num_attention_heads`; a mixer that was published with a
      feed-forward layer has one of `glu_expansion * hidden_size` channels. See docs/mixers.md.
    - `use_cache`: whether `forward` returns a cache in evaluation if it is not told, and `generate` uses one.
    - `embedding_size`, where it is not `hidden_size`; `lm_head_bias`: a bias in the output of a causal model.
    - `initializer`: "gtu" (projections of the GTU from N(0, `initializer_range`), the rest torch's default), "normal"
      (every dense layer and embedding so, biases 0), "torch" (torch's default, embeddings from N(0,
      `initializer_range`)). With `scale_embedding`, "gtu" and "torch" draw embeddings from N(0, hidden_size**-0.5).
    - `state_space`: what `TNNForCausalLM.to_state_space` reports, one entry per layer (None: not converted); with
      `coefficients="poles"`.
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
    use_cache: bool | None = True
    lm_head_bias: bool = False
    pad_token_id: int | None = 1
    bos_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 2

    def __post_init__(self, **kwargs: Any) -> None:
        if self.use_cache is None:  # as models of version 0.1 have saved it
            self.use_cache = True
        check_positive("vocab_size", self.vocab_size)
        if self.embedding_size is not None:
            check_positive("embedding_size", self.embedding_size)
        eos = self.eos_token_id if isinstance(self.eos_token_id, list) else [self.eos_token_id]
        for name, ids in {"pad": [self.pad_token_id], "bos": [self.bos_token_id], "eos": eos}.items():
            for token in ids:
                if token is not None:
                    check_positive(f"{name}_token_id", token, at_least=-1)  # some tools write -1 for none
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
    decay: float | list[float] = 0.9
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
        for name in self.mixer if isinstance(self.mixer, list) else [self.mixer]:
            if self.dims == 2 and isinstance(name, str) and not find_mixer(name).cls.takes_grids:
                raise ValueError(f"mixer {name!r} needs dims=1: it reads a sequence")
        super().__post_init__(**kwargs)


class TNNSeriesConfig(TNNBlockConfig):
    """Configuration of the models of numbers over time. The fields of the blocks are those of TNNConfig; always causal.

    - `targets`: the names of the columns that are read and forecast; `known`: those of the covariates that are known in
      advance, with the mean and the standard deviation that normalise each of them, `known_mean` and `known_std`.
    - `horizon`: how many steps are forecast; `quantiles`: which ones of each value, in ascending order, with 0.5.

    The blocks are by default those that we recommend, with decays for seasons: see docs/kernels.md.

    >>> from tnn import TNNForForecasting, TNNSeriesConfig
    >>> model = TNNForForecasting(TNNSeriesConfig(hidden_size=16, num_hidden_layers=2, horizon=12))
    """

    model_type: ClassVar[str] = "tnn_series"

    hidden_size: int = 64
    num_hidden_layers: int = 3
    gtu_expansion: float = 2
    rpe_size: int = 32
    rpe_num_layers: int = 3
    rpe_activation: str = "sin"
    decay: float | list[float] = field(default_factory=lambda: [0.5, 0.999])
    decay_mode: str = "learned"
    operator_norm: bool = True
    short_convolution: int | None = 4
    initializer: str = "torch"
    targets: list[str] = field(default_factory=lambda: ["value"])
    known: list[str] = field(default_factory=list)
    known_mean: list[float] | None = None
    known_std: list[float] | None = None
    horizon: int = 24
    quantiles: list[float] = field(default_factory=lambda: [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95])

    def __post_init__(self, **kwargs: Any) -> None:
        check_positive("horizon", self.horizon, at_most=MOST_STEPS)
        check_columns("targets", self.targets)
        check_columns("known", self.known)
        if not self.targets:
            raise ValueError("targets must name at least one column")
        check_quantiles(self.quantiles)
        for name in ("known_mean", "known_std"):
            if (numbers := getattr(self, name)) is not None:
                _check_numbers(name, numbers)
                if len(numbers) != len(self.known):
                    raise ValueError(f"{name} must have {len(self.known)} numbers, one per known column; got {numbers}")
        if min(self.known_std or [1]) <= 0:
            raise ValueError(f"known_std must be above 0; got {self.known_std}")
        super().__post_init__(**kwargs)

    def block_options(self, layer: int = 0) -> dict[str, Any]:
        return {**super().block_options(layer), "causal": True}


def check_columns(name: str, columns: Any) -> None:
    """A list of different names."""
    if not isinstance(columns, list | tuple) or not all(isinstance(column, str) for column in columns):
        raise TypeError(f"{name} must be a list of names of columns; got {columns!r}")
    if len(columns) > MOST_COLUMNS:
        raise ValueError(f"{name} must be at most {MOST_COLUMNS:,} columns; got {len(columns):,}")
    for column in columns:
        if list(columns).count(column) > 1:
            raise ValueError(f"{name} must name each column once; it has {column!r} twice")


def check_quantiles(quantiles: Any) -> None:
    """Ascending numbers between 0 and 1, the median among them."""
    _check_numbers("quantiles", quantiles)
    ascending = all(a < b for a, b in pairwise([0, *quantiles, 1]))
    if not ascending or 0.5 not in quantiles:
        raise ValueError(f"quantiles must ascend from above 0 to below 1, with 0.5 among them; got {list(quantiles)}")


def _check_numbers(name: str, values: Any) -> None:
    valid = isinstance(values, list | tuple)
    if not valid or not all(isinstance(v, Real) and not isinstance(v, bool) and math.isfinite(v) for v in values):
        raise TypeError(f"{name} must be a list of finite numbers; got {values!r}")
