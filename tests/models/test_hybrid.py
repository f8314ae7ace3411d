"""Hybrid models: a mixer per layer, each with its own padding, packing, state and options."""

import pytest
import torch
from transformers import Trainer, TrainingArguments

from tnn import TNNConfig, TNNForCausalLM, TNNForImageClassification, TNNForMaskedLM, TNNImageConfig
from tnn.mixers.softmax import SoftmaxAttention
from tnn.models import DecodingStep
from tnn.streaming import History, State

MIXERS = ["tnn", "tnn", "transformer", "tnn"]
SIZES = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 4, "rpe_size": 8, "rpe_num_layers": 1}
SIZES |= {"num_attention_heads": 2, "initializer": "torch", "decay": 0.9}


def hybrid(mixer=MIXERS, **changes):
    return TNNForCausalLM(TNNConfig(**(SIZES | {"mixer": mixer} | changes))).eval()


def ids_of(batch, n):
    return torch.randint(3, 40, (batch, n))


def test_each_layer_has_its_mixer_and_its_state():
    model = hybrid()
    assert [layer.mixer_name for layer in model.model.layers] == MIXERS
    assert isinstance(model.model.layers[2].mixer, SoftmaxAttention)
    states = [layer.state for layer in model.model.new_cache().layers]
    assert all(isinstance(state, State) for state in states)
    assert [isinstance(state, History) for state in states] == [True, True, False, True]
    assert [operator is None for operator in model.model.operators] == [False, False, True, False]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("mixer", [MIXERS, ["transformer", "s4", "performer", "gtu"]], ids=["tnn", "others"])
def test_padded_equals_alone(side, mixer):
    model = hybrid(mixer).double()
    texts = [ids_of(1, n)[0] for n in (12, 5, 1)]
    ids, mask = torch.ones(3, 13, dtype=torch.long), torch.zeros(3, 13, dtype=torch.long)
    for row, text in enumerate(texts):
        place = slice(13 - len(text), None) if side == "left" else slice(len(text))
        ids[row, place], mask[row, place] = text, 1
    logits = model(ids, attention_mask=mask).logits
    for row, text in enumerate(texts):
        torch.testing.assert_close(logits[row, mask[row] == 1], model(text[None]).logits[0], rtol=1e-8, atol=1e-8)


def test_packed_equals_separate():
    model, ids = hybrid().double(), ids_of(1, 14)
    positions = torch.cat([torch.arange(5), torch.arange(9)])[None]
    separate = torch.cat([model(part).logits for part in ids.split([5, 9], 1)], 1)
    torch.testing.assert_close(model(ids, position_ids=positions).logits, separate, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("beams", [1, 3])
def test_cached_equals_uncached_with_left_padding(beams):
    model, ids = hybrid(), ids_of(2, 9)
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1, :4] = 0
    options = {
        "max_new_tokens": 80,
        "do_sample": False,
        "num_beams": beams,
        "eos_token_id": None,
        "attention_mask": mask,
    }
    assert torch.equal(model.generate(ids, **options), model.generate(ids, use_cache=False, **options))


def test_saves_and_loads(tmp_path):
    model, ids = hybrid(mixer_options={"transformer": {"attention_dropout": 0.1}}), ids_of(2, 9)
    model.save_pretrained(tmp_path)
    loaded = TNNForCausalLM.from_pretrained(tmp_path)
    assert loaded.config.mixer == MIXERS
    assert loaded.model.layers[2].mixer.attention_dropout == 0.1
    assert torch.equal(loaded(ids).logits, model(ids).logits)


@pytest.mark.slow
def test_trains_with_trainer(tmp_path):
    model = hybrid()
    rows = [{"input_ids": row, "labels": row} for row in ids_of(8, 16)]
    arguments = TrainingArguments(
        str(tmp_path), max_steps=12, learning_rate=1e-2, report_to=[], use_cpu=True, logging_steps=1, disable_tqdm=True
    )
    trainer = Trainer(model, arguments, train_dataset=rows)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < 0.8 * losses[0]


def test_a_state_space_of_the_toeplitz_layers():
    model, ids = hybrid(initializer="gtu", decay=0.8), ids_of(1, 50)
    fast = model.to_state_space(tolerance=1e-4)
    assert [report is None for report in fast.config.state_space] == [False, False, True, False]
    with torch.no_grad():
        torch.testing.assert_close(fast(ids).logits, model(ids).logits, rtol=1e-2, atol=1e-2)
    with pytest.raises(ValueError, match=r"^every layer must be a state space to export a step; mixer 'tr"):
        DecodingStep(fast)


def test_a_layer_without_a_state_means_no_cache():
    model, ids = hybrid(["tnn", "cosformer", "tnn", "tnn"]), ids_of(2, 9)
    assert not model.model.can_cache
    options = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None}
    assert torch.equal(model.generate(ids, **options), model.generate(ids, use_cache=False, **options))


def test_bidirectional_and_image_hybrids():
    masked = TNNForMaskedLM(
        TNNConfig(**(SIZES | {"mixer": ["tnn", "fnet", "transformer", "afno"], "is_decoder": False}))
    )
    assert masked(ids_of(2, 9)).logits.shape == (2, 9, 40)
    sizes = {"image_size": 8, "patch_size": 4, "hidden_size": 16, "num_hidden_layers": 2, "num_labels": 3}
    image = TNNForImageClassification(TNNImageConfig(**sizes, dims=1, mixer=["tnn", "attention"]))
    assert image(torch.randn(2, 3, 8, 8)).logits.shape == (2, 3)
    grid = TNNForImageClassification(TNNImageConfig(**sizes, mixer=["tnn", "gtu"]))
    assert grid(torch.randn(2, 3, 8, 8)).logits.shape == (2, 3)


@pytest.mark.slow
def test_exported_with_a_dynamic_length():
    model, longer = hybrid(), ids_of(3, 41)
    shapes = {"input_ids": {0: torch.export.Dim("batch", max=64), 1: torch.export.Dim.DYNAMIC}}
    program = torch.export.export(model, (), {"input_ids": ids_of(2, 9)}, dynamic_shapes=shapes)
    torch.testing.assert_close(program.module()(input_ids=longer).logits, model(longer).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_compiled():
    model, ids = hybrid(), ids_of(2, 9)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(ids).logits, model(ids).logits, rtol=1e-4, atol=1e-5)
