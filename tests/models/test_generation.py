"""Generation: cached equals uncached, token for token; and the state space, which is as close as it says."""

import copy

import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache, GenerationConfig
from transformers.generation.configuration_utils import ALL_CACHE_IMPLEMENTATIONS

from tnn import TNNConfig, TNNForCausalLM
from tnn.models.cache import TNNCache

KERNELS = {
    "decay 0.9": {"decay": 0.9},
    "decay 0.99": {"decay": 0.99},
    "decay 0.999": {"decay": 0.999},
    "decay 1": {"decay": 1.0},
    "free": {"coefficients": "free", "max_lags": 20},
    "learned decay": {"decay_mode": "learned"},
    "sines, learned spread": {"rpe_activation": "sin", "decay": [0.5, 0.97], "decay_mode": "learned"},
    "input gate": {"input_gate": True, "decay": 0.9},
    "short convolution": {"short_convolution": 3, "decay": 0.9},
    "convolution in a state space": {"short_convolution": 3, "input_gate": True, "decay": 0.8},
    "operator norm": {"operator_norm": True, "decay": 0.9},
    "positions": {"position_embedding": "sinusoidal"},
    "inner norm": {"inner_norm": "layer", "norm": "batch"},
    "post": {"norm_position": "post"},
    "state space": {"decay": 0.9},
    "attention": {"mixer": "attention"},
    "hybrid": {"num_hidden_layers": 4, "mixer": ["tnn", "tnn", "transformer", "tnn"], "num_attention_heads": 2},
    "hybrid state space": {"num_hidden_layers": 3, "mixer": ["tnn", "attention", "tnn"], "decay": 0.9},
    # An ablation whose earlier outputs depend on later tokens: no cache, the prefix is run again.
    "normalized": {"rpe_input": "normalized"},
}
kernels = pytest.mark.parametrize("kernel", KERNELS)
cached = pytest.mark.parametrize("kernel", [k for k in KERNELS if k != "normalized"])
CROPPABLE = ["decay 0.9", "decay 0.99", "decay 1", "free", "learned decay", "short convolution"]
CROPPABLE += ["positions", "attention", "hybrid"]
GREEDY = {"do_sample": False, "eos_token_id": None, "max_new_tokens": 80}


@pytest.fixture
def model_of():
    """A model whose next token depends on many earlier ones."""

    def make(kernel, **changes):
        torch.manual_seed(0)
        defaults = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "rpe_size": 8, "rpe_num_layers": 2}
        defaults |= {"tie_word_embeddings": False, "initializer_range": 0.5}
        model = TNNForCausalLM(TNNConfig(**(defaults | KERNELS[kernel] | changes))).eval()
        return model.to_state_space(tolerance=1e-3) if kernel.endswith("state space") else model

    return make


def prompt(batch=2, n=37):
    return torch.randint(4, 64, (batch, n), generator=torch.Generator().manual_seed(1))


@kernels
def test_greedy(kernel, model_of):
    model = model_of(kernel)
    out = model.generate(prompt(), **GREEDY)
    assert torch.equal(out, model.generate(prompt(), use_cache=False, **GREEDY))
    assert len(set(out[0, 37:].tolist())) > 3  # not a text that any decoder would get right


@cached
def test_generate_uses_the_cache(kernel, model_of):
    out = model_of(kernel).generate(prompt(), return_dict_in_generate=True, **GREEDY)
    assert isinstance(out.past_key_values, TNNCache)
    assert out.past_key_values.get_seq_length() == 37 + 79


@cached
def test_sampling(kernel, model_of):
    model = model_of(kernel)
    texts = []
    for use_cache in (True, False):
        torch.manual_seed(3)
        options = {"do_sample": True, "max_new_tokens": 70, "num_return_sequences": 3, "eos_token_id": None}
        texts.append(model.generate(prompt(), use_cache=use_cache, **options))
    assert torch.equal(*texts)


@pytest.mark.slow
@cached
def test_beams(kernel, model_of):
    model = model_of(kernel)
    options = {**GREEDY, "num_beams": 3, "num_return_sequences": 2}
    assert torch.equal(model.generate(prompt(), **options), model.generate(prompt(), use_cache=False, **options))


@pytest.mark.slow
@cached
def test_left_padding(kernel, model_of):
    model = model_of(kernel)
    ids, mask = prompt(), torch.ones(2, 37, dtype=torch.long)
    mask[1, :30] = 0
    out = model.generate(ids.masked_fill(mask == 0, 1), attention_mask=mask, **GREEDY)
    assert torch.equal(out[1:, 30:], model.generate(ids[1:, 30:], **GREEDY))
    assert torch.equal(out[:1], model.generate(ids[:1], **GREEDY))


@pytest.mark.slow
@cached
@pytest.mark.parametrize("size", [1, 5, 36, 100])
def test_chunked_prefill(kernel, size, model_of):
    model = model_of(kernel)
    mask = torch.ones(2, 37, dtype=torch.long)
    mask[1, :9] = 0
    out = model.generate(prompt(), attention_mask=mask, prefill_chunk_size=size, **GREEDY)
    assert torch.equal(out, model.generate(prompt(), attention_mask=mask, use_cache=False, **GREEDY))


@cached
def test_continuation_from_a_returned_cache(kernel, model_of):
    model = model_of(kernel)
    first = model.generate(prompt(), return_dict_in_generate=True, **{**GREEDY, "max_new_tokens": 30})
    more = torch.cat([first.sequences, prompt(2, 6)], 1)
    mask = torch.ones_like(more)  # or generate() would guess one from pad ids, which this model likes to say
    out = model.generate(more, attention_mask=mask, past_key_values=first.past_key_values, **GREEDY)
    assert torch.equal(out, model.generate(more, attention_mask=mask, use_cache=False, **GREEDY))


@pytest.mark.parametrize("kernel", ["decay 0.9", "decay 0.99", "decay 1", "free"])
def test_assisted(kernel, model_of):
    model = model_of(kernel)
    assistant = model_of(kernel, num_hidden_layers=1)
    expected = model.generate(prompt(1), use_cache=False, **GREEDY)
    assert torch.equal(model.generate(prompt(1), assistant_model=assistant, **GREEDY), expected)
    assert torch.equal(model.generate(prompt(1), prompt_lookup_num_tokens=3, **GREEDY), expected)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", CROPPABLE)
def test_assisted_on_left_padded_prompts(kernel, model_of):
    """The prompt and the first candidates are one part, with padding in it, of which tokens are removed."""
    model, assistant = model_of(kernel), model_of("decay 0.9", num_hidden_layers=1)
    mask = torch.ones(1, 37, dtype=torch.long)
    mask[:, :9] = 0
    options = {**GREEDY, "attention_mask": mask, "max_new_tokens": 40}
    expected = model.generate(prompt(1), use_cache=False, **options)
    assert torch.equal(model.generate(prompt(1), assistant_model=assistant, **options), expected)
    assert torch.equal(model.generate(prompt(1), prompt_lookup_num_tokens=3, **options), expected)


def test_assistants_must_be_able_to_remove_tokens(model_of):
    for kernel in ("state space", "normalized"):
        with pytest.raises(
            ValueError, match=r"^assistant_model must be able to remove tokens: it has no cache, or [^\n]*$"
        ):
            model_of("decay 0.9").generate(prompt(1), assistant_model=model_of(kernel), **GREEDY)


@pytest.mark.parametrize("option", ["prompt_lookup_num_tokens", "assistant_model"])
def test_a_state_space_refuses_assistance(option, model_of):
    options = {"prompt_lookup_num_tokens": 3, "assistant_model": model_of("decay 0.9")}
    with pytest.raises(ValueError, match=r"^assisted generation and prompt lookup must remove tokens; [^\n]*$"):
        model_of("state space").generate(prompt(1), **{option: options[option]}, **GREEDY)
    assert TNNForCausalLM._is_stateful is False  # read from the class too, where a property would count as true


@cached
def test_embeddings_as_prompt(kernel, model_of):
    model = model_of(kernel)
    embeds = model.get_input_embeddings()(prompt())
    out = model.generate(inputs_embeds=embeds, **GREEDY)
    assert torch.equal(out, model.generate(prompt(), **GREEDY)[:, 37:])


def test_embeddings_as_prompt_need_a_cache(model_of):
    model = model_of("normalized")
    with pytest.raises(ValueError, match="needs a cache, which this configuration cannot have"):
        model.generate(inputs_embeds=torch.randn(1, 4, 16), **GREEDY)


@cached
def test_parts_by_hand(kernel, model_of):
    """Logits, not only tokens; with a ragged batch and a mask of all tokens so far."""
    model = model_of(kernel)
    ids, mask = prompt(2, 150), torch.ones(2, 150, dtype=torch.long)
    mask[1, :9] = 0
    with torch.no_grad():
        expected = model(ids, attention_mask=mask).logits
        cache, parts = None, []
        for start, end in ((0, 20), (20, 21), (21, 50), (50, 51), (51, 150)):
            out = model(ids[:, start:end], attention_mask=mask[:, :end], past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            parts.append(out.logits)
    logits = torch.cat(parts, 1)
    torch.testing.assert_close(logits[mask.bool()], expected[mask.bool()], atol=2e-4, rtol=1e-4)


@pytest.mark.slow
@cached
def test_a_copied_cache_serves_two_continuations(kernel, model_of):
    model = model_of(kernel)
    with torch.no_grad():
        cache = model(prompt(), use_cache=True).past_key_values
        twin = copy.deepcopy(cache)
        a, b = prompt(2, 5), prompt(2, 5).flip(1)
        for tokens, memory in ((a, cache), (b, twin)):
            out = model(tokens, past_key_values=memory).logits
            whole = model(torch.cat([prompt(), tokens], 1)).logits[:, -5:]
            torch.testing.assert_close(out, whole, atol=2e-4, rtol=1e-4)


@cached
def test_half_precision(kernel, model_of):
    model = model_of(kernel).bfloat16()
    with torch.no_grad():
        whole = model(prompt(2, 90)).logits.float()
        cache = model(prompt(2, 90)[:, :60], use_cache=True).past_key_values
        parts = [model(prompt(2, 90)[:, i : i + 1], past_key_values=cache).logits for i in range(60, 90)]
    difference = (torch.cat(parts, 1).float() - whole[:, 60:]).abs()
    assert difference.mean() < 0.05 * whole.abs().mean()


# --- refusals


CACHES = [*ALL_CACHE_IMPLEMENTATIONS, "paged", "no such thing"]


@pytest.mark.parametrize("name", [name for name in CACHES if name != "dynamic"])
def test_other_kinds_of_cache_are_refused(name, model_of):
    model = model_of("decay 0.9")
    message = f'^cache_implementation must be "dynamic" for this model, which has its own; got {name!r}$'
    with pytest.raises(ValueError, match=message):
        model.generate(prompt(1), cache_implementation=name, **GREEDY)
    config = GenerationConfig(**GREEDY)
    config.cache_implementation = name
    with pytest.raises(ValueError, match=message):
        model.generate(prompt(1), config)
    model.generation_config.cache_implementation = name
    with pytest.raises(ValueError, match=message):
        model.generate(prompt(1), **GREEDY)


def test_the_name_of_the_own_cache_is_accepted(model_of):
    model = model_of("decay 0.9")
    expected = model.generate(prompt(1), **GREEDY)
    model.generation_config.cache_implementation = "static"  # of a file; what is given to generate() counts more
    assert torch.equal(model.generate(prompt(1), cache_implementation="dynamic", **GREEDY), expected)


def test_continuous_batching_is_refused(model_of):
    with pytest.raises(ValueError, match=r"^continuous batching"):
        model_of("decay 0.9").generate_batch([[5, 6, 7]])


def test_a_cache_with_use_cache_false_is_refused(model_of):
    """transformers would run the whole text after what the cache has seen of it."""
    model = model_of("decay 0.9")
    cache = model(prompt(1)).past_key_values
    with pytest.raises(ValueError, match=r"^past_key_values needs use_cache=True"):
        model.generate(prompt(1, 40), past_key_values=cache, use_cache=False, **GREEDY)


def test_foreign_caches_are_refused(model_of):
    model, other = model_of("decay 0.9"), model_of("decay 0.9")
    with torch.no_grad():
        cache = model(prompt(), use_cache=True).past_key_values
        with pytest.raises(ValueError, match="belongs to another model"):
            other(prompt(2, 1), past_key_values=cache)
        with pytest.raises(ValueError, match="holds 2 sequences; got inputs for 1"):
            model(prompt(1, 1), past_key_values=cache)
        with pytest.raises(TypeError, match="must be a cache that this model has returned; got DynamicCache"):
            model(prompt(2, 1), past_key_values=DynamicCache(config=model.config))
        packed = torch.cat([torch.arange(20), torch.arange(17)])[None]
        with pytest.raises(ValueError, match="packed documents cannot be cached"):
            model(prompt(1), position_ids=packed, use_cache=True)
    model.gradient_checkpointing_enable()
    with pytest.raises(ValueError, match="gradient checkpointing"):
        model.train()(prompt(2, 1), past_key_values=cache)


# --- state space


@pytest.mark.slow
def test_conversion_saves_loads_and_reports(model_of, tmp_path):
    model = model_of("decay 0.99")
    fast = model.to_state_space(tolerance=1e-2, max_states=48)
    assert [entry["layer"] for entry in fast.config.state_space] == [0, 1]
    assert all(entry["residual"] <= 1e-2 and entry["states"] <= 48 for entry in fast.config.state_space)
    fast.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(loaded(prompt()).logits, fast(prompt()).logits)
    assert torch.equal(loaded.generate(prompt(), **GREEDY), fast.generate(prompt(), **GREEDY))
    half = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert half.model.layers[0].operator.poles.poles.dtype == torch.float32
    assert not any(".rpe." in name for name in fast.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["decay 0.9", "decay 0.99", "learned decay"])
def test_each_layer_stays_within_its_bound(kernel, model_of):
    model = model_of(kernel)
    fast = model.to_state_space(tolerance=1e-3)
    for exact, close, entry in zip(model.model.layers, fast.model.layers, fast.config.state_space, strict=True):
        v = torch.randn(1, 3000, exact.operator.channels)
        with torch.no_grad():
            error = (exact.operator(v) - close.operator(v)).abs().max()
        assert error <= entry["bound"] * v.abs().max() + 1e-5


def test_tighter_tolerances_take_more_states_and_err_less(model_of):
    model = model_of("decay 0.9")
    with torch.no_grad():
        expected = model(prompt(2, 200)).logits
        errors, states = [], []
        for tolerance in (1e-1, 1e-3):
            fast = model.to_state_space(tolerance=tolerance)
            errors.append((fast(prompt(2, 200)).logits - expected).abs().max())
            states.append(sum(entry["states"] for entry in fast.config.state_space))
    assert errors[1] < errors[0]
    assert states[1] >= states[0]


def test_conversion_by_dft(model_of):
    """Exact for its length, with as many states; a longer text is refused rather than got wrong."""
    model = model_of("decay 1")
    fast = model.to_state_space(method="dft", length=60)
    assert [entry["states"] for entry in fast.config.state_space] == [60, 60]
    options = {**GREEDY, "max_new_tokens": 20}
    assert torch.equal(fast.generate(prompt(), **options), model.generate(prompt(), **options))
    with pytest.raises(ValueError, match="exact for 60 tokens and wrong after them"):
        fast.generate(prompt(), **{**GREEDY, "max_new_tokens": 30})
    with pytest.raises(ValueError, match="needs a length"):
        model.to_state_space(method="dft")


@pytest.mark.parametrize("kernel", ["decay 0.9", "free"])
def test_conversion_by_dft_past_the_reach(kernel, model_of):
    model = model_of(kernel)
    fast = model.to_state_space(method="dft", length=300)
    with torch.no_grad():
        torch.testing.assert_close(fast(prompt(1, 300)).logits, model(prompt(1, 300)).logits, atol=1e-2, rtol=1e-2)


def test_conversion_keeps_the_generation_config(model_of):
    model = model_of("decay 0.9")
    model.generation_config.eos_token_id = 7
    assert model.to_state_space(1e-2).generation_config.eos_token_id == 7


def test_a_mask_of_the_new_tokens_only(model_of):
    model = model_of("positions")
    ids, ones = prompt(2, 20), torch.ones(2, 20, dtype=torch.long)
    with torch.no_grad():
        cache = model(ids[:, :12], attention_mask=ones[:, :12], use_cache=True).past_key_values
        new = model(ids[:, 12:], attention_mask=ones[:, 12:], past_key_values=cache).logits
        torch.testing.assert_close(new, model(ids).logits[:, 12:], atol=2e-4, rtol=1e-4)


@pytest.mark.slow
def test_conversions_that_cannot_be_are_refused(model_of):
    model = model_of("decay 0.99")
    with pytest.raises(ValueError, match="tolerance must be finite and 0 or more; got -1"):
        model.to_state_space(tolerance=-1)
    with pytest.raises(ValueError, match="layer 0: the best of up to 2 states leaves a residual of"):
        model.to_state_space(tolerance=1e-6, max_states=2)
    with pytest.raises(ValueError, match="max_states must be at least 2; got 1"):
        model.to_state_space(max_states=1)
    with pytest.raises(ValueError, match="decay must be below 1"):
        model_of("decay 1").to_state_space()
    with pytest.raises(ValueError, match="method must be one of 'poles', 'dft'; got 'pade'"):
        model.to_state_space(method="pade")
    with pytest.raises(ValueError, match="is a state space already"):
        model_of("state space").to_state_space()
    with torch.no_grad():
        model.model.layers[1].operator.rpe.output.bias[0] = torch.nan
    with pytest.raises(ValueError, match="layer 1 has coefficients that are not finite"):
        model.to_state_space()
    with pytest.raises(ValueError, match="mixer 'attention' has no conversion to a state space"):
        model_of("attention").to_state_space()
    with pytest.raises(ValueError, match="there is no state space"):
        model_of("normalized", decay=0.9).to_state_space()


def test_a_converted_model_can_be_trained_further(model_of):
    fast = model_of("state space").train()
    fast(prompt(), labels=prompt()).loss.backward()
    assert fast.model.layers[0].operator.poles.weights.grad.isfinite().all()
