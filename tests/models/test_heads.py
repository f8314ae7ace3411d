"""The contract of every text model: padding, packing, dtypes, graphs, gradients, and clear errors."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tnn import TNNConfig, TNNForCausalLM, TNNForMaskedLM, TNNModel

HEADS = ["causal", "masked", "sequence", "pair", "token"]
LANGUAGE_HEADS = ["causal", "masked"]
PER_TOKEN = ["causal", "masked", "token"]

all_heads = pytest.mark.parametrize("head", HEADS)
SETTINGS = {
    "default": {},
    "sinusoidal": {"position_embedding": "sinusoidal"},
    "interleaved": {"position_embedding": "interleaved", "inner_norm": "unused"},
    "learned": {"position_embedding": "learned", "max_position_embeddings": 40},
    "post": {"norm_position": "post", "embedding_norm": True, "final_norm": None, "scale_embedding": False},
    "attention": {"mixer": "attention", "num_attention_heads": 2},
    "free": {"coefficients": "free", "max_lags": 6},
    "normalized": {"rpe_input": "normalized", "decay_mode": "none"},
    "batch": {"norm": "batch", "final_norm": "batch", "inner_norm": "layer", "rpe_norm": "last_layer"},
    "learned decay": {"decay_mode": "learned"},
    "convolution, input gate": {"short_convolution": 3, "input_gate": True},
    "operator norm": {"operator_norm": True},
    "sines, learned spread": {"rpe_activation": "sin", "decay": [0.5, 0.97], "decay_mode": "learned"},
    "gtu": {"mixer": "gtu", "norm": "rms"},
    "hybrid": {"mixer": ["tnn", "transformer"], "num_attention_heads": 2},
}
settings = pytest.mark.parametrize("setting", SETTINGS)


def logits_of(model, **inputs):
    with torch.no_grad():
        return model(**inputs).logits


def close(a, b, tolerance=1e-5):
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


# --- padding and packing


@all_heads
@settings
@pytest.mark.parametrize("side", ["left", "right", "inside"])
def test_padded_batch_equals_its_rows(head, setting, side, tiny, inputs_for):
    model = tiny(head, **SETTINGS[setting])
    inputs = inputs_for(head, batch=3, n=11)
    inputs.pop("labels")
    masks = {}
    for name in [k for k in inputs if k.endswith("input_ids")]:
        n = inputs[name].shape[1]
        mask = torch.ones(3, n, dtype=torch.long)
        for row, padding in enumerate((0, 4, n - 1)):
            where = {"left": slice(0, padding), "right": slice(n - padding, n), "inside": slice(1, padding + 1)}[side]
            mask[row, where] = 0
        masks[name] = mask.bool()
        inputs[name.replace("input_ids", "attention_mask")] = mask
    padded = logits_of(model, **inputs)
    for row in range(3):
        alone = {name: inputs[name][row : row + 1, mask[row]] for name, mask in masks.items()}
        expected = logits_of(model, **alone)[0]
        close(padded[row][masks["input_ids"][row]] if head in PER_TOKEN else padded[row], expected)


@all_heads
def test_what_stands_at_padding_changes_nothing(head, tiny, inputs_for):
    model = tiny(head)
    inputs = inputs_for(head, n=9)
    labels = inputs.pop("labels")
    inputs["attention_mask"] = torch.tensor([[1] * 9, [0] * 5 + [1] * 4])
    if head in PER_TOKEN:
        labels = labels.masked_fill(inputs["attention_mask"] == 0, -100)
    other = {**inputs, "input_ids": inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, 1)}
    close(model(**inputs, labels=labels).loss, model(**other, labels=labels).loss, 1e-6)


@settings
@pytest.mark.parametrize("head", PER_TOKEN)
def test_packed_documents_equal_separate_ones(head, setting, tiny, inputs_for):
    model = tiny(head, **SETTINGS[setting])
    ids = inputs_for(head, batch=1, n=24)["input_ids"]
    offsets = [0, 9, 10, 12, 21, 24]
    positions = torch.cat([torch.arange(b - a) for a, b in pairwise(offsets)])[None]
    alone = [logits_of(model, input_ids=ids[:, a:b]) for a, b in pairwise(offsets)]
    close(logits_of(model, input_ids=ids, position_ids=positions), torch.cat(alone, 1))
    close(logits_of(model, input_ids=ids, cu_seqlens=torch.tensor(offsets)), torch.cat(alone, 1))
    close(logits_of(model, input_ids=ids, cu_seq_lens_q=torch.tensor(offsets, dtype=torch.int32)), torch.cat(alone, 1))


def test_documents_may_be_numbered(tiny):
    """seq_idx, which some collators make instead of positions."""
    model = tiny("causal", position_embedding="sinusoidal")
    ids = torch.randint(3, 64, (1, 8))
    packed = logits_of(model, input_ids=ids, seq_idx=torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2]], dtype=torch.int32))
    alone = [logits_of(model, input_ids=ids[:, a:b]) for a, b in pairwise([0, 3, 7, 8])]
    close(packed, torch.cat(alone, 1))


def test_an_all_ones_mask_changes_nothing(tiny):
    model = tiny("causal")
    ids, positions = torch.randint(3, 64, (1, 6)), torch.tensor([[0, 1, 2, 7, 8, 9]])
    plain = logits_of(model, input_ids=ids, position_ids=positions)
    close(logits_of(model, input_ids=ids, position_ids=positions, attention_mask=torch.ones(1, 6)), plain)


@pytest.mark.parametrize(
    "packing", [{"position_ids": torch.tensor([[0, 1, 0, 1]])}, {"cu_seqlens": torch.tensor([0, 2, 4])}]
)
def test_classifiers_of_rows_refuse_packed_documents(packing, tiny):
    with pytest.raises(ValueError, match="documents cannot be packed"):
        tiny("sequence")(torch.randint(3, 64, (1, 4)), **packing)
    with pytest.raises(ValueError, match="a pair takes no"):
        tiny("pair")(torch.randint(3, 64, (1, 4)), pair_input_ids=torch.randint(3, 64, (1, 4)), **packing)


def test_packed_rows_may_differ_and_be_padded(tiny):
    model = tiny("causal", position_embedding="sinusoidal")
    ids = torch.randint(3, 64, (2, 8))
    positions = torch.tensor([[0, 1, 2, 0, 1, 0, 0, 0], [0, 1, 2, 3, 4, 5, 6, 7]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 0, 0, 0], [1] * 8])
    packed = logits_of(model, input_ids=ids, attention_mask=mask, position_ids=positions)
    close(packed[:1, :3], logits_of(model, input_ids=ids[:1, :3]))
    close(packed[:1, 3:5], logits_of(model, input_ids=ids[:1, 3:5]))
    close(packed[1:], logits_of(model, input_ids=ids[1:]))


def test_gradients_do_not_cross_documents(tiny):
    model = tiny("masked")
    embeds = torch.randn(1, 10, 16, requires_grad=True)
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4, 5]])
    model(inputs_embeds=embeds, position_ids=positions).logits[:, 4:].sum().backward()
    assert embeds.grad[:, :4].count_nonzero() == 0
    assert embeds.grad[:, 4:].count_nonzero() > 0


def test_left_padding_with_counted_positions_is_one_document(tiny):
    """What generate() passes: positions that count real tokens only, or all of them."""
    model = tiny("causal")
    ids = torch.randint(3, 64, (1, 7))
    mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
    alone = logits_of(model, input_ids=ids[:, 3:])
    for positions in ([[1, 1, 1, 0, 1, 2, 3]], [[0, 0, 0, 0, 1, 2, 3]], [[0, 1, 2, 3, 4, 5, 6]]):
        out = logits_of(model, input_ids=ids, attention_mask=mask, position_ids=torch.tensor(positions))
        close(out[:, 3:], alone)


@pytest.mark.slow
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6), causal=st.booleans())
def test_packing_any_lengths(lengths, causal):
    torch.manual_seed(0)
    config = TNNConfig(vocab_size=64, hidden_size=8, num_hidden_layers=1, rpe_size=4, is_decoder=causal)
    model = TNNModel(config).eval()
    ids = torch.randint(3, 64, (1, sum(lengths)))
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    with torch.no_grad():
        packed = model(ids, cu_seqlens=offsets).last_hidden_state
        alone = [model(part).last_hidden_state for part in ids.split(lengths, dim=1)]
    close(packed, torch.cat(alone, 1))


# --- causality


@pytest.mark.parametrize(("backend", "tolerance"), [("dense", 0.0), ("auto", 1e-5), ("fft", 1e-5), ("banded", 1e-5)])
def test_later_tokens_do_not_change_earlier_logits(backend, tolerance, tiny):
    model = tiny("causal", backend=backend)
    ids = torch.randint(3, 64, (1, 33))
    changed = torch.cat([ids[:, :20], torch.randint(3, 64, (1, 13))], 1)
    a, b = logits_of(model, input_ids=ids), logits_of(model, input_ids=changed)
    assert (a[:, :20] - b[:, :20]).abs().max() <= tolerance
    assert (a[:, 20:] - b[:, 20:]).abs().max() > 1e-3


def test_gradient_with_respect_to_the_future_is_zero(tiny):
    model = tiny("causal", backend="dense")
    embeds = torch.randn(1, 12, 16, requires_grad=True)
    model(inputs_embeds=embeds).logits[:, 5].sum().backward()
    assert embeds.grad[:, 6:].count_nonzero() == 0
    assert embeds.grad[:, :6].count_nonzero() > 0


def test_bidirectional_model_sees_both_sides(tiny):
    model = tiny("masked")
    embeds = torch.randn(1, 12, 16, requires_grad=True)
    model(inputs_embeds=embeds).logits[:, 5].sum().backward()
    assert (embeds.grad.abs().sum(-1) > 0).all()


# --- inputs and outputs


@all_heads
def test_embeddings_may_be_given_instead_of_ids(head, tiny, inputs_for):
    model = tiny(head)
    inputs = inputs_for(head)
    embedded = {
        name.replace("input_ids", "inputs_embeds") if name.endswith("input_ids") else name: (
            model.get_input_embeddings()(value) if name.endswith("input_ids") else value
        )
        for name, value in inputs.items()
    }
    close(model(**inputs).loss, model(**embedded).loss, 1e-6)


@all_heads
def test_hidden_states_and_tuples(head, tiny, inputs_for):
    model = tiny(head)
    inputs = inputs_for(head)
    out = model(**inputs, output_hidden_states=True)
    assert len(out.hidden_states) == 3
    assert all(h.shape == (2, 10, 16) for h in out.hidden_states)
    loss, logits, *_ = model(**inputs, return_dict=False)
    assert torch.equal(loss, out.loss)
    assert torch.equal(logits, out.logits)


def test_logits_to_keep(tiny):
    model = tiny("causal")
    ids = torch.randint(3, 64, (2, 9))
    full = logits_of(model, input_ids=ids)
    close(logits_of(model, input_ids=ids, logits_to_keep=1), full[:, -1:])
    close(logits_of(model, input_ids=ids, logits_to_keep=torch.tensor([0, 4])), full[:, [0, 4]])
    with pytest.raises(ValueError, match="labels or logits_to_keep"):
        model(ids, labels=ids, logits_to_keep=1)


@pytest.mark.parametrize("head", ["sequence", "pair"])
def test_regression_and_several_labels(head, tiny, inputs_for):
    inputs = inputs_for(head)
    out = tiny(head, num_labels=1)(**{**inputs, "labels": torch.tensor([0.5, -1.0])})
    close(out.loss, (out.logits.squeeze(1) - torch.tensor([0.5, -1.0])).square().mean())
    several = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    out = tiny(head, num_labels=3)(**{**inputs, "labels": several})
    close(out.loss, torch.nn.functional.binary_cross_entropy_with_logits(out.logits, several))


@pytest.mark.parametrize("head", ["sequence", "pair"])
def test_shares_of_the_classes_as_labels(head, tiny, inputs_for):
    model = tiny(head, num_labels=4, problem_type="single_label_classification")
    inputs = inputs_for(head)
    logits = model(**{**inputs, "labels": None}).logits
    shares = torch.rand_like(logits).softmax(-1)
    expected = -(shares * logits.log_softmax(-1)).sum(-1).mean()
    torch.testing.assert_close(model(**{**inputs, "labels": shares}).loss, expected)


def test_a_small_embedding_and_a_bias(tiny):
    model = tiny("causal", embedding_size=5, lm_head_bias=True)
    assert model.model.embed_tokens.weight.shape[1] == 5
    assert model.lm_head.weight is model.model.embed_tokens.weight
    ids = torch.randint(3, model.config.vocab_size, (2, 9))
    plain = model(ids).logits
    with torch.no_grad():
        model.lm_head.bias += 1
    torch.testing.assert_close(model(ids).logits, plain + 1)
    with pytest.raises(ValueError, match=r"TNNForMaskedLM needs embedding_size=None"):
        tiny("masked", embedding_size=5)


def test_regression_of_whole_numbers_in_half_precision(tiny, inputs_for):
    model = tiny("sequence", num_labels=1).bfloat16()
    out = model(**{**inputs_for("sequence"), "labels": torch.tensor([1, 4])})
    assert out.loss.isfinite()


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_pooling_of_padded_rows(pooling, tiny):
    model = tiny("sequence", pooling=pooling, classifier_act="tanh")
    ids = torch.randint(3, 64, (1, 9))
    mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 0, 0]])
    close(logits_of(model, input_ids=ids, attention_mask=mask), logits_of(model, input_ids=ids[:, 3:7]))


@pytest.mark.parametrize("head", LANGUAGE_HEADS)
def test_loss_is_that_of_the_logits(head, tiny, inputs_for):
    """Ours never holds the softmax; transformers' own loss does."""
    model = tiny(head).train()
    inputs = inputs_for(head, batch=3, n=17)
    inputs["labels"][0, :5] = -100
    losses, gradients = [], []
    for _ in range(2):
        for count in (None, torch.tensor(30)):
            model.zero_grad()
            out = model(**inputs, num_items_in_batch=count)
            out.loss.backward()
            losses.append(out.loss.detach())
            gradients.append([p.grad.clone() for p in model.parameters()])
        model.loss_function = model.loss_function  # someone puts a loss of their own in place
    close(losses[0], losses[2], 1e-6)
    close(losses[1], losses[3], 1e-6)
    for a, b in zip(gradients[0] + gradients[1], gradients[2] + gradients[3], strict=True):
        close(a, b)


def test_derivatives_of_derivatives_of_the_loss(tiny):
    """A gradient penalty: ours against transformers' own loss."""
    model = tiny("causal", tie_word_embeddings=False).train()
    ids = torch.randint(3, 64, (2, 7))
    found = []
    for _ in range(2):
        model.zero_grad()
        gradients = torch.autograd.grad(model(ids, labels=ids).loss, list(model.parameters()), create_graph=True)
        sum(g.square().sum() for g in gradients).backward()
        found.append([model.lm_head.weight.grad.clone(), model.model.norm.weight.grad.clone()])
        model.loss_function = model.loss_function
    for a, b in zip(*found, strict=True):
        close(a, b)


def test_empty_batch_and_shapes_without_values(tiny):
    model = tiny("causal")
    empty = torch.zeros(0, 5, dtype=torch.long)
    assert model(empty, labels=empty).logits.shape == (0, 5, 64)
    meta = model.to("meta")
    ids = torch.zeros(2, 5, dtype=torch.long, device="meta")
    assert meta(ids, attention_mask=torch.ones_like(ids), labels=ids).logits.shape == (2, 5, 64)


def test_hooks_of_the_output_layer_are_called(tiny):
    model, calls = tiny("causal"), []
    model.lm_head.register_forward_hook(lambda *_: calls.append(1))
    ids = torch.randint(3, 64, (1, 5))
    model(ids, labels=ids)
    assert calls == [1]


def test_an_adapter_on_the_position_encoder_counts(tiny):
    """Also after it is switched off: coefficients that are kept must not be those of before."""

    class Adapter(torch.nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base, self.scale = base, 1.0
            self.weight = torch.nn.Parameter(torch.full_like(base.weight, 0.1))

        def forward(self, x):
            return self.base(x) + self.scale * torch.nn.functional.linear(x, self.weight)

    model = tiny("causal")
    ids = torch.randint(3, 64, (1, 9))
    plain = logits_of(model, input_ids=ids)
    rpe = model.model.layers[0].operator.rpe
    rpe.output = Adapter(rpe.output)
    assert (logits_of(model, input_ids=ids) - plain).abs().max() > 1e-4
    rpe.output.scale = 0.0
    close(logits_of(model, input_ids=ids), plain, 1e-6)


def test_given_shift_labels_are_used(tiny):
    model = tiny("causal")
    ids = torch.randint(3, 64, (2, 9))
    shifted = torch.cat([ids[:, 1:], torch.full((2, 1), -100)], 1)
    close(model(ids, labels=ids).loss, model(ids, labels=ids, shift_labels=shifted).loss, 1e-6)


def test_replaced_output_layer_is_called(tiny):
    """An adapter wraps the layer: its weight alone would not be the output."""
    model = tiny("causal", tie_word_embeddings=False)
    ids = torch.randint(3, 64, (1, 6))
    plain = model(ids, labels=ids).loss
    model.lm_head = torch.nn.Sequential(model.lm_head, torch.nn.Tanh())
    assert not torch.isclose(model(ids, labels=ids).loss, plain)


# --- training


@all_heads
@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_gives_equal_gradients(head, reentrant, tiny, inputs_for):
    model = tiny(head, dropout=0.1).train()
    inputs = inputs_for(head)
    inputs["attention_mask"] = torch.tensor([[1] * 10, [0] * 4 + [1] * 6])
    gradients = []
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            model.enable_input_require_grads()
        model.zero_grad()
        torch.manual_seed(1)
        model(**inputs).loss.backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for a, b in zip(*gradients, strict=True):
        close(a, b, 1e-6)


@all_heads
def test_every_parameter_gets_a_gradient(head, tiny, inputs_for):
    model = tiny(head).train()
    model(**inputs_for(head)).loss.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


# --- graphs and dtypes


@pytest.mark.slow
@all_heads
def test_compile_equals_eager(head, tiny, inputs_for):
    torch._dynamo.reset()
    model = tiny(head)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    inputs = inputs_for(head)
    close(compiled(**inputs).loss, model(**inputs).loss)
    mask = inputs["attention_mask"] = torch.tensor([[1] * 10, [0, 1, 0] + [1] * 7])
    real = mask.bool() if head in PER_TOKEN else slice(None)  # what stands at padding means nothing
    close(compiled(**inputs).logits[real], model(**inputs).logits[real])


@pytest.mark.slow
def test_compiled_model_reads_the_mask_as_ones(tiny):
    """It cannot look at the values: a number other than 1 is not a real token, and an additive mask is refused."""
    torch._dynamo.reset()
    model = tiny("causal")
    compiled = torch.compile(model, backend="eager")
    ids = torch.randint(3, 64, (1, 6))
    numbered = logits_of(compiled, input_ids=ids, attention_mask=torch.tensor([[1, 1, 1, 2, 2, 2]]))
    close(numbered[:, :3], logits_of(model, input_ids=ids[:, :3]))
    with torch.no_grad(), pytest.raises((TypeError, ValueError), match="attention_mask must"):
        compiled(input_ids=ids, attention_mask=torch.full((1, 6), -1e9))


@pytest.mark.slow
def test_compiled_model_keeps_packed_documents_apart(tiny):
    """The documents are found outside the graph, which then breaks; they must not leak."""
    torch._dynamo.reset()
    model = tiny("causal")
    compiled = torch.compile(model, backend="aot_eager")
    ids = torch.randint(3, 64, (1, 12))
    positions = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6]])
    expected = logits_of(model, input_ids=ids, position_ids=positions)
    close(logits_of(compiled, input_ids=ids, position_ids=positions), expected)


@pytest.mark.slow
@all_heads
def test_export_with_any_length(head, tiny, inputs_for):
    model = tiny(head)
    inputs = inputs_for(head)
    inputs.pop("labels")
    dynamic = {name: {0: torch.export.Dim("batch", max=64), 1: torch.export.Dim.DYNAMIC} for name in inputs}
    program = torch.export.export(model, (), inputs, dynamic_shapes=dynamic)
    longer = inputs_for(head, batch=3, n=41)
    longer.pop("labels")
    close(program.module()(**longer).logits, model(**longer).logits)


@all_heads
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(head, dtype, tiny, inputs_for):
    model = tiny(head)
    inputs = inputs_for(head)
    expected = model(**inputs)
    out = model.to(dtype)(**inputs)
    assert out.logits.dtype == dtype
    assert (out.logits.float() - expected.logits).abs().max() < 0.1
    assert (out.loss.float() - expected.loss).abs() < 0.05


def test_sums_over_many_positions_do_not_overflow(tiny):
    model = tiny("sequence", final_norm="layer")
    model.model.norm.bias.data.fill_(30.0)
    ids = torch.randint(3, 64, (1, 5000))
    mask = torch.ones_like(ids)
    mask[0, 0] = 0
    out = model.half()(ids, attention_mask=mask)
    assert out.logits.isfinite().all()


def test_batch_norm_in_mixed_precision(tiny):
    model = tiny("causal", norm="batch", final_norm="batch").train()
    mask = torch.tensor([[1] * 10, [0] * 4 + [1] * 6])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(inputs_embeds=torch.randn(2, 10, 16, dtype=torch.bfloat16), attention_mask=mask)
    assert out.logits.isfinite().all()


@all_heads
def test_autocast(head, tiny, inputs_for):
    model = tiny(head).train()
    inputs = inputs_for(head)
    expected = model(**inputs).loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(**inputs)
    out.loss.backward()
    assert (out.loss - expected).abs() < 0.05
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


# --- embeddings


@pytest.mark.parametrize("head", LANGUAGE_HEADS)
@pytest.mark.parametrize("tied", [True, False])
def test_resize_token_embeddings(head, tied, tiny, inputs_for):
    model = tiny(head, tie_word_embeddings=tied)
    ids = inputs_for(head)["input_ids"]
    before = logits_of(model, input_ids=ids)
    model.resize_token_embeddings(80)
    assert model.config.vocab_size == 80
    assert (model.get_output_embeddings().weight is model.get_input_embeddings().weight) == tied
    close(logits_of(model, input_ids=ids)[..., :64], before)
    assert model(input_ids=torch.full((1, 4), 79), labels=torch.full((1, 4), 79)).loss.isfinite()


def test_embedding_of_padding_stays_zero_unless_it_is_a_real_token(tiny):
    model = tiny("causal")
    assert model.get_input_embeddings().weight[1].count_nonzero() == 0
    model = tiny("causal", pad_token_id=2, eos_token_id=2)
    assert model.get_input_embeddings().weight[2].count_nonzero() > 0


# --- bad input


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_ids": torch.tensor([[5, 64]])}, r"input_ids must be in 0 .. 63; got 64"),
        ({"input_ids": torch.tensor([[5, -1]])}, r"input_ids must be in 0 .. 63; got -1"),
        ({"input_ids": torch.zeros(1, 0, dtype=torch.long)}, r"n at least 1; got shape \(1, 0\)"),
        ({"input_ids": torch.tensor([5, 6])}, r"input_ids must be \(batch, n\) with n at least 1; got shape \(2,\)"),
        ({}, "either input_ids or inputs_embeds"),
        (
            {"input_ids": torch.tensor([[5, 6]]), "attention_mask": torch.ones(1, 3)},
            r"attention_mask must have shape \(1, 2\), one entry per position; got \(1, 3\)",
        ),
        (
            {"input_ids": torch.tensor([[5, 6]]), "attention_mask": torch.tensor([[0.0, -1e9]])},
            "attention_mask must hold 1 at real positions",
        ),
        (
            {"input_ids": torch.tensor([[5, 6]]), "position_ids": torch.tensor([[0, 1, 2]])},
            r"position_ids must have shape \(1, 2\); got \(1, 3\)",
        ),
        (
            {"input_ids": torch.tensor([[5, 6]]), "cu_seqlens": torch.tensor([0, 3])},
            r"cu_seqlens must rise from 0 to the length 2; got \[0, 3\]",
        ),
        (
            {"input_ids": torch.tensor([[5], [6]]), "cu_seqlens": torch.tensor([0, 1])},
            "cu_seqlens needs a batch of one row that holds all documents; got 2 rows",
        ),
        (
            {"input_ids": torch.tensor([[5, 6]]), "labels": torch.tensor([[5, 64]])},
            r"labels must be in 0 .. 63 or -100; got 64",
        ),
        (
            {"input_ids": torch.tensor([[5, 6]]), "labels": torch.tensor([[5]])},
            r"labels must have shape \(1, 2\), one per token; got \(1, 1\)",
        ),
    ],
)
def test_bad_input_is_told_in_one_line(inputs, message, tiny):
    with pytest.raises(ValueError, match=message) as error:
        tiny("causal")(**inputs)
    assert "\n" not in str(error.value)


def test_float_ids_are_refused(tiny):
    with pytest.raises(TypeError, match=r"input_ids must hold integers; got torch.float32"):
        tiny("causal")(torch.ones(1, 3))


@pytest.mark.parametrize(
    ("head", "labels", "message"),
    [
        ("sequence", torch.tensor([0, 3]), r"labels must be in 0 .. 2; got 3"),
        ("sequence", torch.tensor([0]), r"labels must hold 2 rows, one per sequence; got shape \(1,\)"),
        ("sequence", torch.tensor([0.0, 1.0]), r"labels must have shape \(2, 3\); got \(2,\)"),
        ("pair", torch.tensor([0, -1]), r"labels must be in 0 .. 2; got -1"),
        ("token", torch.full((2, 10), 3), r"labels must be in 0 .. 2 or -100; got 3"),
        ("token", torch.zeros(2, 9, dtype=torch.long), r"labels must have shape \(2, 10\); got \(2, 9\)"),
    ],
)
def test_bad_labels(head, labels, message, tiny, inputs_for):
    with pytest.raises(ValueError, match=message):
        tiny(head)(**{**inputs_for(head), "labels": labels})


def test_pairs_must_match(tiny):
    with pytest.raises(ValueError, match="same batch size; got 1 and 2"):
        tiny("pair")(input_ids=torch.tensor([[5, 6]]), pair_input_ids=torch.tensor([[5], [6]]))


def test_learned_positions_end(tiny):
    model = tiny("causal", position_embedding="learned", max_position_embeddings=8)
    with pytest.raises(ValueError, match=r"reach 8 positions \(max_position_embeddings\); got position 8"):
        model(torch.randint(3, 64, (1, 9)))


@pytest.mark.parametrize(("model", "causal"), [(TNNForCausalLM, False), (TNNForMaskedLM, True)])
def test_direction_must_fit_the_head(model, causal):
    with pytest.raises(ValueError, match=f"is_decoder={not causal}"):
        model(TNNConfig(vocab_size=64, hidden_size=8, num_hidden_layers=1, is_decoder=causal))
