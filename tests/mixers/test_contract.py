"""One contract for all token mixers, TNN's and a user's own among them, in the same small models."""

import logging
import runpy
from pathlib import Path

import pytest
import torch

from tnn import (
    TNNConfig,
    TNNForCausalLM,
    TNNForImageClassification,
    TNNForMaskedLM,
    TNNForSequenceClassification,
    TNNImageConfig,
)
from tnn.layers import TNNBlock
from tnn.layers.sequences import Sequences
from tnn.mixers import Mixer, find_mixer, list_mixers, register_mixer, unregister_mixer

VOCABULARY, LIMIT = 24, 32  # positions that have a place in a table
OWN = "moving-average"  # a mixer that is not part of the package
MovingAverage = runpy.run_path(str(Path(__file__).parent / "moving_average.py"))["MovingAverage"]
MIXERS = [*list_mixers(), OWN]
CAUSAL = [name for name in MIXERS if name == OWN or find_mixer(name).cls.has_causal_form]
BOTH = [(name, True) for name in CAUSAL] + [(name, False) for name in MIXERS]
TOEPLITZ = {"tnn", "gtu"}
# Known properties.
CHANGES_WITH_LENGTH = {"cosformer", "dss", "flash-quad"}  # so that causal outputs are not final
WITHOUT_CACHE = CHANGES_WITH_LENGTH | {"transformer-ls"}
DRAWS_IN_TRAINING = {"performer", "skyformer", "informer", "reformer"}
CHOOSES = {"reformer", "informer"}  # decides which keys are seen: a small change of the input may change much

methods = pytest.mark.parametrize("name", MIXERS)
causal_methods = pytest.mark.parametrize("name", CAUSAL)
both_forms = pytest.mark.parametrize(
    ("name", "causal"), [pytest.param(*pair, id=f"{pair[0]}-{'causal' if pair[1] else 'both'}") for pair in BOTH]
)


@pytest.fixture(autouse=True)
def _quiet(one_thread):
    logging.getLogger("transformers").setLevel(logging.ERROR)


@pytest.fixture(autouse=True, scope="module")
def _own_mixer():
    register_mixer(OWN, MovingAverage, small_options={"rate": 0.7, "backend": "dense"})  # exact zeros
    yield
    unregister_mixer(OWN)


def fields_of(name):
    """So small that a short sequence has several chunks, blocks, windows, and more tokens than landmarks."""
    small = dict(find_mixer(name).small_options)
    if name in TOEPLITZ:
        return small  # fields of the configuration
    return {"norm": "layer", "num_attention_heads": 2, "glu_expansion": 2, "mixer_options": small}


def config_of(name, causal, **changes):
    fields = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "num_labels": 3}
    fields |= {"is_decoder": causal, "initializer": "torch", "mixer": name}  # N(0, 0.02) would mix too weakly to tell
    fields |= {"position_embedding": "none" if name in {*TOEPLITZ, "alibi", OWN} else "sinusoidal"}
    return TNNConfig(**(fields | fields_of(name) | changes))


def model_of(name, causal, **changes):
    model = (TNNForCausalLM if causal else TNNForMaskedLM)(config_of(name, causal, **changes))
    return unlike_the_start(model).eval()


@torch.no_grad()
def unlike_the_start(model):
    """Gates that start shut, and norms that start as ones, would hide mistakes."""
    for parameter in model.parameters():
        if parameter.ndim == 1 or parameter.abs().max() < 0.01:
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def random_ids(*shape):
    return torch.randint(3, VOCABULARY, shape)


def padded(texts, side):
    """One batch of texts of different lengths, and its mask; 0s stand at the padding."""
    longest = max(map(len, texts)) + 2
    ids, mask = torch.zeros(2, len(texts), longest, dtype=torch.long)
    for row, text in enumerate(texts):
        place = slice(longest - len(text), None) if side == "left" else slice(len(text))
        ids[row, place], mask[row, place] = text, 1
    return ids, mask


# --- shapes, lengths, types


@both_forms
def test_lengths(name, causal):
    longer = {"mixer_options": {"projected": 4, "max_length": 600}} if name == "linformer" else {}
    model = model_of(name, causal, **longer)
    for length in (1, 7, 64, 513):
        logits = model(random_ids(1, length)).logits
        assert logits.shape == (1, length, VOCABULARY)
        assert logits.isfinite().all()


@pytest.mark.parametrize(("name", "causal"), [pair for pair in BOTH if pair[0] not in {*TOEPLITZ, OWN}])
def test_published_forms_run(name, causal):
    small = find_mixer(name).small_options
    model = model_of(name, causal, mixer_options={**small, "as_published": True}).train()
    ids, mask = padded([random_ids(13), random_ids(6)], "right")
    model(ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@both_forms
def test_precisions_and_checkpoints(name, causal, tmp_path):
    model = model_of(name, causal)
    model.save_pretrained(tmp_path)
    ids = random_ids(2, 20)
    with torch.no_grad():
        logits = model(ids).logits
        same = type(model).from_pretrained(tmp_path)(ids).logits
        double = model.double()(ids).logits
        half = type(model).from_pretrained(tmp_path, dtype=torch.bfloat16)(ids).logits
    assert torch.equal(same, logits)
    assert half.dtype == torch.bfloat16
    assert half.isfinite().all()
    if name in CHOOSES:
        return
    scale = logits.std()
    assert (double - logits).abs().max() < 1e-4 * scale
    assert (half - logits).abs().max() < 0.2 * scale


@methods
def test_images(name):
    fields = {"image_size": 12, "patch_size": 4, "hidden_size": 16, "num_hidden_layers": 1, "num_labels": 3, "dims": 1}
    config = TNNImageConfig(mixer=name, **fields, **fields_of(name))
    assert TNNForImageClassification(config).eval()(torch.randn(2, 3, 12, 12)).logits.shape == (2, 3)


@both_forms
def test_padded_and_packed_rows_have_the_dtype_of_full_ones(name, causal):
    mixer = model_of(name, causal).model.layers[0].token_mixer
    x = torch.randn(2, 14, 16)
    gaps = torch.tensor([[1, 1, 0, 1, 1, 1, 1] * 2, [1] * 9 + [0] * 5])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        whole = mixer(x)
        for ids in (gaps == 1, gaps.cumsum(-1) // 4 + 1):
            assert mixer(x, Sequences(ids)).dtype == whole.dtype


@both_forms
def test_a_batch_without_rows(name, causal):
    model = model_of(name, causal).model
    for training in (False, True):
        layer = model.train(training).layers[0]
        for mask in (None, torch.ones(0, 9)):
            assert layer(torch.empty(0, 9, 16), mask).shape == (0, 9, 16)


# --- who sees whom


@both_forms
def test_causality_by_gradients(name, causal):
    """Exactly zero: in evaluation and in training, at the first and last position of chunks and between.

    Convolutions by the matrix itself, for a Fourier transform rounds.
    """
    model = model_of(name, causal).model
    for operator in model.operators:
        if operator is not None:
            operator.backend = "dense"
    for training in (False, True):
        model.train(training)
        for i in (0, 3, 4, 10):
            x = torch.randn(1, 13, 16, requires_grad=True)
            y = model(inputs_embeds=x).last_hidden_state
            seen = torch.autograd.grad(y[0, i].square().sum(), x)[0][0].abs().sum(-1) > 0  # (13,)
            if causal:
                assert not seen[i + 1 :].any(), f"position {i} sees {seen.nonzero().flatten().tolist()}"
                assert seen[: i + 1].all()
            elif name not in CHOOSES | {"bigbird"}:
                assert seen.all()


@pytest.mark.parametrize("name", [name for name in MIXERS if name not in CAUSAL])
def test_what_has_no_causal_form_is_refused(name):
    with pytest.raises(ValueError, match=f"^mixer '{name}' has no causal form: it is bidirectional only$"):
        TNNConfig(mixer=name, hidden_size=16, num_attention_heads=2)


# --- padding


@pytest.mark.parametrize("side", ["left", "right"])
@both_forms
def test_padding_changes_nothing(name, causal, side):
    model = model_of(name, causal).double()
    texts = [random_ids(n) for n in (13, 6, 1, 13)]
    ids, mask = padded(texts, side)
    logits = model(ids, attention_mask=mask).logits
    for row, text in enumerate(texts):
        torch.testing.assert_close(logits[row, mask[row] == 1], model(text[None]).logits[0], rtol=1e-8, atol=1e-8)


@both_forms
def test_gaps_and_empty_rows_change_nothing(name, causal):
    model = model_of(name, causal).double()
    ids, mask = random_ids(3, 17), (torch.rand(3, 17) < 0.6).long()
    mask[1] = 0
    embedded = model.model.embed_tokens(ids).detach().masked_fill(mask.unsqueeze(-1) == 0, float("nan"))
    logits = model(inputs_embeds=embedded, attention_mask=mask).logits
    for row in (0, 2):
        real = mask[row] == 1
        torch.testing.assert_close(logits[row, real], model(ids[row, real][None]).logits[0], rtol=1e-8, atol=1e-8)


@methods
def test_padding_changes_no_label(name):
    classifier = unlike_the_start(TNNForSequenceClassification(config_of(name, False))).eval().double()
    texts = [random_ids(n) for n in (9, 16)]
    alone = torch.cat([classifier(text[None]).logits for text in texts])
    for side in ("left", "right"):
        ids, mask = padded(texts, side)
        together = classifier(ids, attention_mask=mask).logits
        torch.testing.assert_close(together, alone, rtol=1e-8, atol=1e-8)


@both_forms
def test_packed_documents_stay_apart(name, causal):
    model = model_of(name, causal).double()
    ids = random_ids(1, 14)
    positions = torch.cat([torch.arange(5), torch.arange(9)])[None]
    logits = model(ids, position_ids=positions).logits
    alone = torch.cat([model(part).logits for part in ids.split([5, 9], 1)], 1)
    torch.testing.assert_close(logits, alone, rtol=1e-8, atol=1e-8)


# --- longer than the tables of a model


@causal_methods
def test_causal_outputs_are_final_unless_they_change_with_the_length(name):
    model = model_of(name, True).double()
    ids = random_ids(1, 3 * LIMIT)
    short, long = model(ids[:, :LIMIT]).logits, model(ids).logits[:, :LIMIT]
    assert torch.allclose(short, long, atol=1e-8) == (name not in CHANGES_WITH_LENGTH)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", ["gmlp", "synthesizer-dense", "synthesizer-random"])
def test_beyond_the_table(name, causal):
    mixer = model_of(name, causal).model.layers[0].token_mixer
    x = torch.randn(1, LIMIT + 8, 16)
    y = mixer(x)
    beyond = mixer.out_proj.bias if name == "gmlp" else torch.zeros(16)
    assert torch.equal(y[0, LIMIT:], beyond.expand(8, 16))
    torch.testing.assert_close(y[:, :LIMIT], mixer(x[:, :LIMIT]))


def test_tables_that_refuse():
    with pytest.raises(ValueError, match=r"^a sequence may have max_length = 32 positions; got 40$"):
        model_of("linformer", False)(random_ids(1, 40))
    learned = {"position_embedding": "learned", "max_position_embeddings": LIMIT}
    with pytest.raises(ValueError, match="learned position embeddings reach 32 positions"):
        model_of("transformer", False, **learned)(random_ids(1, 40))


# --- training


@both_forms
def test_training_lowers_the_loss(name, causal):
    model = model_of(name, causal).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    ids, mask = padded([random_ids(16), random_ids(11)], "right")
    labels = ids.masked_fill(mask == 0, -100)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = model(ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.95 * losses[0]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)


@both_forms
def test_training_under_autocast(name, causal):
    model = model_of(name, causal).train()
    ids, mask = padded([random_ids(20), random_ids(11)], "right")
    packed = torch.cat([torch.arange(5), torch.arange(17)]).expand(2, 22)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(ids, labels=ids).loss + model(ids, labels=ids, attention_mask=mask, position_ids=packed).loss
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)


@both_forms
def test_the_seed_decides(name, causal):
    model, ids = model_of(name, causal), random_ids(1, 20)
    assert torch.equal(model(ids).logits, model(ids).logits)
    model.train()
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append(model(ids).logits)
    assert torch.equal(runs[0], runs[1])
    assert torch.equal(runs[0], runs[2]) == (name not in DRAWS_IN_TRAINING)


@both_forms
def test_gradient_checkpointing(name, causal):
    model = model_of(name, causal, dropout=0.1).train()
    ids = random_ids(2, 12)

    def gradients():
        torch.manual_seed(3)
        model.zero_grad()
        model(ids, labels=ids).loss.backward()
        return {key: p.grad for key, p in model.named_parameters() if p.requires_grad}

    plain = gradients()
    model.gradient_checkpointing_enable()
    torch.testing.assert_close(gradients(), plain)


# --- generation


@pytest.mark.parametrize("beams", [1, 3])
@causal_methods
def test_generation_with_a_cache(name, beams):
    model = model_of(name, True)
    assert model.model.can_cache == (name not in WITHOUT_CACHE)
    ids, mask = padded([random_ids(7), random_ids(4)], "left")
    results = [
        model.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=6,
            num_beams=beams,
            do_sample=False,
            eos_token_id=None,
            use_cache=cached,
            output_scores=True,
            return_dict_in_generate=True,
        )
        for cached in (True, False)
    ]
    assert torch.equal(results[0].sequences, results[1].sequences)
    torch.testing.assert_close(results[0].scores, results[1].scores, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in CAUSAL if name not in WITHOUT_CACHE])
def test_parts_equal_the_whole(name):
    model, ids = model_of(name, True).double(), random_ids(2, LIMIT + 8)
    cache, parts = model.model.new_cache(), []
    with torch.no_grad():
        for part in ids.split([5, 1, 1, 20, 13], 1):
            parts.append(model(part, past_key_values=cache, use_cache=True).logits)
        torch.testing.assert_close(torch.cat(parts, 1), model(ids).logits, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(("name", "causal"), [(name, True) for name in sorted(WITHOUT_CACHE)] + [("tnn", False)])
def test_no_cache_where_there_is_no_state(name, causal):
    with pytest.raises(ValueError, match=r"^no cache for this model: it is bidirectional, or a layer has no state"):
        model_of(name, causal).model.new_cache()


# --- what transformers expects, and what is told


@methods
def test_hidden_states_are_recorded(name):
    states = model_of(name, False)(random_ids(1, 6), output_hidden_states=True).hidden_states
    assert [state.shape for state in states] == [(1, 6, 16)] * 3


@methods
def test_unknown_options_are_named(name):
    with pytest.raises(ValueError, match=f"^mixer '{name}' has no option 'colour'; choose from '") as error:
        config_of(name, False, mixer_options={"colour": "red"})
    assert "\n" not in str(error.value)


@methods
def test_options_that_are_fields_of_the_configuration_are_refused(name):
    field = "decay" if name in TOEPLITZ else "num_heads"
    if field not in find_mixer(name).cls.option_names():
        return
    with pytest.raises(ValueError, match=f"^mixer_options must not have '{field}': the configuration has a field"):
        config_of(name, False, mixer_options={field: 1})


@pytest.mark.parametrize(
    ("size", "options", "error", "message"),
    [
        ("16", {}, TypeError, "hidden_size must be an integer; got '16'"),
        (16, {"num_heads": 3}, ValueError, "num_heads must divide hidden_size 16; got 3"),
        (16, {"glu_expansion": 0.3}, ValueError, "glu_expansion must make 16 .* a whole number, 1 or more; got 0.3"),
        (16, {"mixer": "performer", "features": "8"}, TypeError, "features must be an integer; got '8'"),
        (16, {"mixer": 3}, TypeError, "mixer must be the name of a registered mixer; got 3"),
    ],
)
def test_arguments_of_a_block_are_named(size, options, error, message):
    with pytest.raises(error, match=f"^{message}$"):
        TNNBlock(size, **{"mixer": "transformer", **options})


def test_mistakes_in_a_mixer_are_not_taken_for_wrong_options():
    class Broken(Mixer):
        def __init__(self, hidden_size, *, causal=False):
            super().__init__(hidden_size, causal=causal)
            len(hidden_size)

    register_mixer("broken", Broken)
    try:
        with pytest.raises(TypeError, match="has no len"):
            TNNBlock(16, mixer="broken")
    finally:
        unregister_mixer("broken")
