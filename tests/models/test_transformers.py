"""transformers' own behaviours, by running them: saving and loading, Auto classes, Trainer, pipelines, device maps."""

import subprocess
import sys

import pytest
import torch
from safetensors import safe_open
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    GenerationConfig,
    Trainer,
    TrainingArguments,
    pipeline,
)

from tnn import TNNForCausalLM, TNNForSequencePairClassification, TNNModel

HEADS = ["causal", "masked", "sequence", "pair", "token"]
AUTO = {
    "causal": AutoModelForCausalLM,
    "masked": AutoModelForMaskedLM,
    "sequence": AutoModelForSequenceClassification,
    "pair": TNNForSequencePairClassification,  # transformers has no class for pairs
    "token": AutoModelForTokenClassification,
}
all_heads = pytest.mark.parametrize("head", HEADS)
VARIANTS = {
    "default": {},
    "untied": {"tie_word_embeddings": False},
    "learned decay": {"decay_mode": "learned"},
    "convolution, input gate": {"short_convolution": 3, "input_gate": True},
    "operator norm": {"operator_norm": True},
    "sines, learned spread": {"rpe_activation": "sin", "decay": [0.5, 0.97], "decay_mode": "learned"},
    "free": {"coefficients": "free", "max_lags": 6},
    "batch": {"norm": "batch", "final_norm": "batch", "inner_norm": "layer", "rpe_norm": "last_layer"},
    "learned positions": {"position_embedding": "learned", "max_position_embeddings": 40},
    "blm": {"initializer": "normal", "norm_position": "post", "embedding_norm": True, "final_norm": None},
}


def shuffled(model):
    """The model with every parameter and buffer drawn anew, so that a load that leaves one out is seen."""
    with torch.no_grad():
        for value in [*model.parameters(), *model.buffers()]:
            if value.is_floating_point():
                value.copy_(torch.rand_like(value) * 0.3 + 0.05)
    return model


# --- saving and loading


@pytest.mark.slow
@all_heads
@pytest.mark.parametrize("variant", VARIANTS)
def test_round_trip_is_bit_equal(head, variant, tiny, inputs_for, tmp_path):
    model = shuffled(tiny(head, **VARIANTS[variant]))
    model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    loaded = AUTO[head].from_pretrained(tmp_path)
    assert type(loaded) is type(model)
    assert loaded.config.to_diff_dict().keys() >= {"hidden_size", "model_type"}
    state = model.state_dict()
    assert loaded.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in loaded.state_dict().items())
    inputs = inputs_for(head)
    assert torch.equal(loaded(**inputs).logits, model(**inputs).logits)


@all_heads
def test_round_trip_in_bfloat16(head, tiny, inputs_for, tmp_path):
    model = shuffled(tiny(head, decay_mode="learned"))
    model.save_pretrained(tmp_path / "full")
    half = AUTO[head].from_pretrained(tmp_path / "full", dtype=torch.bfloat16)
    wide = [name for name, p in half.named_parameters() if p.dtype == torch.float32]
    assert wide
    assert wide == [name for name, _ in half.named_parameters() if ".operator." in name]
    half.save_pretrained(tmp_path / "half")
    again = AUTO[head].from_pretrained(tmp_path / "half", dtype=torch.bfloat16)
    assert all(torch.equal(value, half.state_dict()[name]) for name, value in again.state_dict().items())
    inputs = inputs_for(head)
    assert torch.equal(again(**inputs).logits, half(**inputs).logits)


def test_saved_dtype_is_kept_by_default(tiny, tmp_path):
    tiny("causal").to(torch.bfloat16).save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.get_input_embeddings().weight.dtype == torch.bfloat16


def test_sharded_and_tied(tiny, tmp_path):
    model = shuffled(tiny("causal"))
    model.save_pretrained(tmp_path, max_shard_size="4KB")
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 2
    names = [name for shard in shards for name in safe_open(shard, "pt").keys()]  # noqa: SIM118
    assert "model.embed_tokens.weight" in names
    assert "lm_head.weight" not in names  # stored once
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in loaded.state_dict().items())


def test_headless_and_other_heads_load_from_a_language_model(tiny, tmp_path):
    model = shuffled(tiny("masked"))
    model.save_pretrained(tmp_path)
    bare = AutoModel.from_pretrained(tmp_path)
    assert type(bare) is TNNModel
    classifier = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=5)
    for other in (bare, classifier.model):
        assert all(torch.equal(v, model.model.state_dict()[name]) for name, v in other.state_dict().items())
    fresh = classifier.classifier.out.weight
    assert fresh.isfinite().all()
    assert 0 < fresh.abs().max() < 1


def test_missing_weights_are_initialised_as_a_new_model_is(tiny, tmp_path):
    """from_pretrained builds on the meta device: what a checkpoint lacks must come from the initialisation."""
    from safetensors.torch import load_file, save_file

    torch.manual_seed(0)
    model = tiny("causal", decay_mode="learned", hidden_size=64, rpe_size=64, norm="batch")
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    dropped = {k: v for k, v in weights.items() if ".layers.1." in k}
    save_file({k: v for k, v in weights.items() if k not in dropped}, tmp_path / "model.safetensors", {"format": "pt"})
    loaded = TNNForCausalLM.from_pretrained(tmp_path).state_dict()
    for name, old in dropped.items():
        new = loaded[name].float()
        assert new.isfinite().all(), name
        if old.numel() > 60:
            assert abs(new.std() - old.std()) < 0.35 * old.std() + 1e-6, name
            assert abs(new.mean() - old.mean()) < 0.5 * old.std() + 1e-6, name


def test_initialisation_schemes(tiny):
    for scheme, std in (("gtu", 0.02), ("normal", 0.02), ("torch", 64**-0.5 / 3**0.5)):
        model = tiny("masked", initializer=scheme, hidden_size=64, rpe_size=64, scale_embedding=False)
        layer = model.model.layers[0]
        gate = layer.token_mixer.gate_proj
        assert abs(gate.weight.std() - std) < 0.1 * std, scheme
        assert (gate.bias.count_nonzero() == 0) == (scheme == "normal")
        glu = layer.channel_mixer.gate_proj.weight.std()
        assert abs(glu - (0.02 if scheme == "normal" else 64**-0.5 / 3**0.5)) < 0.01, scheme
        assert abs(model.lm_head.dense.weight.std() - 64**-0.5 / 3**0.5) < 0.01
        assert model.lm_head.decoder.bias.count_nonzero() == 0
        embedding = 1 if scheme == "gtu" else 0.02
        assert abs(model.model.embed_tokens.weight.std() - embedding) < 0.1 * embedding
    scaled = tiny("causal", hidden_size=64).model.embed_tokens.weight
    assert abs(scaled.std() - 64**-0.5) < 0.01


@pytest.mark.parametrize("scheme", ["gtu", "normal", "torch"])
def test_sines_keep_their_own_start(tiny, scheme):
    model = tiny("masked", initializer=scheme, rpe_activation="sin", rpe_size=64)
    rpe = model.model.layers[0].operator.rpe
    assert 1.5 < rpe.input.weight.abs().max() <= 2
    assert 2.5 < rpe.input.bias.abs().max() <= 3.1416


def test_truncated_weights_are_told(tiny, tmp_path):
    tiny("causal").save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(OSError, match="are damaged or cut short") as error:
        TNNForCausalLM.from_pretrained(tmp_path)
    assert "\n" not in str(error.value)


def test_checkpoint_of_another_architecture_is_told(tiny, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert", "vocab_size": 64}')
    with pytest.raises(ValueError, match="the checkpoint holds a 'bert' model; TNNConfig describes 'tnn'"):
        TNNForCausalLM.from_pretrained(tmp_path)


def test_no_buffers_that_are_not_saved(tiny):
    model = tiny("causal", norm="batch", position_embedding="sinusoidal")
    assert {name for name, _ in model.named_buffers()} <= set(model.state_dict())


# --- Auto classes


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        "import tnn; import sys; assert not {'torch', 'transformers'} & set(sys.modules)",
        "import transformers, tnn",
        "from transformers import AutoConfig; import tnn",
        "import tnn; from transformers.modeling_layers import GradientCheckpointingLayer",
        "import tnn; import transformers.models.auto.modeling_auto",
        "import tnn.models",
        "import sys, tnn; tnn.TNNConfig(); assert 'transformers.modeling_utils' not in sys.modules",
        "import tnn; tnn.TNNConfig(); from transformers.modeling_layers import GradientCheckpointingLayer",
        "import tnn; tnn.TNNConfig(); from transformers import Trainer, pipeline",
        "import tnn; tnn.TNNConfig(); tnn.TNNForCausalLM",
        "import tnn; tnn.TNNConfig(); tnn.TNNModel",
        "import tnn; tnn.TNNConfig(); tnn.TNNForImageClassification",
        "import tnn; tnn.TNNConfig(); import tnn.models.chunks, tnn.models.cache",
        "import transformers.models.auto.modeling_auto, tnn; tnn.TNNConfig()",
    ],
)
def test_auto_classes_know_the_models_after_import(first, tiny, tmp_path):
    tiny("causal").save_pretrained(tmp_path)
    code = f"""
{first}
from transformers import AutoConfig, AutoModelForCausalLM
assert type(AutoConfig.from_pretrained({str(tmp_path)!r})).__name__ == "TNNConfig"
assert type(AutoModelForCausalLM.from_pretrained({str(tmp_path)!r})).__name__ == "TNNForCausalLM"
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_looking_for_transformers_does_not_lose_the_registration():
    code = """
import importlib.util, tnn
importlib.util.find_spec("transformers.models.auto.configuration_auto")
from transformers import AutoConfig
AutoConfig.for_model("tnn")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_auto_config_by_name():
    config = AutoConfig.for_model("tnn", hidden_size=32)
    assert (config.hidden_size, config.num_hidden_layers) == (32, 7)


# --- Trainer


def arguments(folder, **changes):
    defaults = {"output_dir": str(folder), "max_steps": 4, "per_device_train_batch_size": 4, "save_steps": 2}
    defaults |= {"logging_steps": 1, "report_to": [], "use_cpu": True, "disable_tqdm": True, "learning_rate": 1e-2}
    return TrainingArguments(**(defaults | changes))


@pytest.mark.slow
@all_heads
def test_trainer_trains_and_resumes_exactly(head, tiny, inputs_for, tmp_path):
    examples = [{k: v[0] for k, v in inputs_for(head, batch=1, n=12).items()} for _ in range(16)]
    state = tiny(head).state_dict()

    def train(folder, resume=None, **changes):
        torch.manual_seed(0)
        model = tiny(head)
        model.load_state_dict(state)
        trainer = Trainer(model=model, args=arguments(folder, **changes), train_dataset=examples)
        trainer.train(resume_from_checkpoint=resume)
        return model, trainer

    whole, trainer = train(tmp_path / "whole")
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 4
    assert all(torch.tensor(losses).isfinite())
    assert (tmp_path / "whole" / "checkpoint-4" / "model.safetensors").exists()
    resumed, _ = train(tmp_path / "part", resume=str(tmp_path / "whole" / "checkpoint-2"))
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=0, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
def test_accumulation_equals_one_large_batch(head, tiny, inputs_for, tmp_path):
    examples = [{k: v[0] for k, v in inputs_for(head, batch=1, n=12).items()} for _ in range(8)]
    if head in ("causal", "masked", "token"):
        for i, example in enumerate(examples):
            example["labels"][: i + 1] = -100  # micro-batches of different weight
    state, results = tiny(head).state_dict(), []
    for batch, steps in ((8, 1), (2, 4)):
        model = tiny(head)
        model.load_state_dict(state)
        changes = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": steps, "max_steps": 1}
        changes |= {"optim": "sgd", "learning_rate": 1.0, "max_grad_norm": 0.0, "save_strategy": "no"}
        Trainer(model=model, args=arguments(tmp_path, **changes), train_dataset=examples).train()
        results.append(model.state_dict())
    for name, value in results[0].items():
        torch.testing.assert_close(value, results[1][name], atol=1e-5, rtol=1e-4, msg=name)


def test_label_smoothing_shifts_the_labels(tiny, inputs_for, tmp_path):
    model = tiny("causal")
    inputs = inputs_for("causal")
    trainer = Trainer(model=model, args=arguments(tmp_path, label_smoothing_factor=1e-9))
    torch.testing.assert_close(trainer.compute_loss(model, dict(inputs)), model(**inputs).loss)


@pytest.mark.slow
def test_trainer_evaluates_and_lowers_the_loss(tiny, tmp_path):
    torch.manual_seed(0)
    pattern = torch.arange(3, 15)
    examples = [{"input_ids": pattern, "labels": pattern} for _ in range(8)]
    args = arguments(tmp_path, max_steps=30, save_strategy="no", bf16=True, gradient_checkpointing=True)
    trainer = Trainer(model=tiny("causal"), args=args, train_dataset=examples, eval_dataset=examples)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < 0.5 * before


# --- generation and pipelines


@pytest.fixture
def generator(tiny):
    """A model whose next token depends on many earlier ones, as an untrained tied model's does not."""
    torch.manual_seed(0)
    model = tiny("causal", tie_word_embeddings=False, initializer="gtu", initializer_range=0.5)
    ids = torch.randint(4, 64, (1, 12))
    last = [model(ids[:, i:]).logits[0, -1].argmax().item() for i in range(0, 12, 3)]
    assert len(set(last)) > 1
    return model


def test_generate_equals_taking_the_best_token_by_hand(generator):
    model = generator
    ids = torch.randint(4, 64, (2, 5))
    expected = ids
    for _ in range(6):
        expected = torch.cat([expected, model(expected).logits[:, -1:].argmax(-1)], 1)
    out = model.generate(ids, max_new_tokens=6, do_sample=False, eos_token_id=None)
    assert torch.equal(out, expected)


def test_generate_with_left_padding_equals_each_row_alone(generator):
    model = generator
    ids = torch.randint(4, 64, (2, 7))
    mask = torch.tensor([[1] * 7, [0] * 3 + [1] * 4])
    options = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None}
    out = model.generate(ids.masked_fill(mask == 0, 1), attention_mask=mask, **options)
    assert torch.equal(out[:1], model.generate(ids[:1], **options))
    assert torch.equal(out[1:, 3:], model.generate(ids[1:, 3:], **options))


def test_generate_samples_and_searches_beams(generator):
    model = generator
    ids = torch.randint(4, 64, (1, 5))
    sampled = model.generate(ids, max_new_tokens=4, do_sample=True, num_return_sequences=3)
    assert sampled.shape[0] == 3
    beams = model.generate(ids, max_new_tokens=4, num_beams=3, do_sample=False)
    assert beams.shape[1] <= 9


@pytest.fixture
def saved(tiny, tokenizer, tmp_path):
    def save(head, **changes):
        folder = tmp_path / head
        tiny(head, **changes).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return str(folder)

    return save


def test_text_generation_pipeline(saved):
    generate = pipeline("text-generation", model=saved("causal"))
    config = GenerationConfig(max_new_tokens=4, do_sample=False, pad_token_id=1)
    out = generate(["w5 w6 w7", "w9"], batch_size=2, generation_config=config)
    assert [o[0]["generated_text"].startswith(p) for o, p in zip(out, ["w5 w6 w7", "w9"], strict=True)] == [True] * 2
    assert out[1] == generate("w9", generation_config=config)


def test_fill_mask_pipeline(saved):
    out = pipeline("fill-mask", model=saved("masked"))("w5 <mask> w7", top_k=3)
    assert len(out) == 3
    assert sum(o["score"] for o in out) <= 1


def test_text_classification_pipeline(saved):
    classify = pipeline("text-classification", model=saved("sequence", id2label={0: "a", 1: "b", 2: "c"}))
    texts = ["w5 w6 w7 w8", "w9", "w9 w9"]
    alone = [classify(text)[0] for text in texts]
    assert {o["label"] for o in alone} <= {"a", "b", "c"}
    for one, many in zip(alone, classify(texts, batch_size=3), strict=True):
        assert one["label"] == many["label"]
        assert abs(one["score"] - many["score"]) < 1e-5


def test_token_classification_pipeline(saved):
    assert len(pipeline("token-classification", model=saved("token"))("w5 w6 w7")) == 3


# --- devices


def test_layers_on_disk(tiny, inputs_for, tmp_path):
    """A device map that leaves some blocks on disk: weights come in as each module is called."""
    model = shuffled(tiny("causal", rpe_norm="last_layer", decay_mode="learned"))
    model.save_pretrained(tmp_path / "model")
    device_map = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk"}
    device_map |= {"model.norm": "cpu", "model.positions": "cpu", "model.dropout": "cpu", "lm_head": "cpu"}
    split = AutoModelForCausalLM.from_pretrained(
        tmp_path / "model", device_map=device_map, offload_folder=str(tmp_path / "offload")
    )
    assert split.model.layers[1].token_mixer.gate_proj.weight.is_meta
    inputs = inputs_for("causal")
    mask = torch.tensor([[1] * 10, [0] * 4 + [1] * 6])
    with torch.no_grad():
        expected = model(inputs["input_ids"], attention_mask=mask).logits
        out = split(inputs["input_ids"], attention_mask=mask).logits
    torch.testing.assert_close(out[mask.bool()], expected[mask.bool()])


@pytest.mark.parametrize("head", ["causal", "masked"])
def test_output_layer_on_disk(head, tiny, inputs_for, tmp_path):
    """Its weight is not there until it is called, so the loss must call it."""
    model = shuffled(tiny(head, tie_word_embeddings=False))
    model.save_pretrained(tmp_path / "model")
    split = type(model).from_pretrained(
        tmp_path / "model", device_map={"model": "cpu", "lm_head": "disk"}, offload_folder=str(tmp_path / "offload")
    )
    inputs = inputs_for(head)
    with torch.no_grad():
        torch.testing.assert_close(split(**inputs).loss, model(**inputs).loss)


def test_blocks_are_not_split(tiny):
    from accelerate import infer_auto_device_map

    model = tiny("causal")
    block = sum(p.nbytes for p in model.model.layers[0].parameters())
    limits = {"cpu": model.model.embed_tokens.weight.nbytes + 2 * block, "disk": 10**9}
    placed = infer_auto_device_map(model, limits, no_split_module_classes=model._no_split_modules)
    assert any(device == "disk" for device in placed.values())
    assert not any(name.startswith("model.layers.") and name.count(".") > 2 for name in placed)


# --- what the classes declare


@pytest.mark.parametrize(
    ("mixer", "kept"), [("tnn", {"operator"}), (["tnn", "transformer"], {"operator"}), ("transformer", set())]
)
def test_only_models_with_an_operator_keep_it_in_float32(mixer, kept, tiny, tmp_path):
    model = tiny("causal", mixer=mixer)
    assert model._keep_in_fp32_modules_strict == model.model._keep_in_fp32_modules_strict == kept
    model.save_pretrained(tmp_path)
    half = TNNForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    wide = {name for name, p in half.named_parameters() if p.dtype == torch.float32}
    assert wide == {name for name, _ in half.named_parameters() if ".operator." in name}


@pytest.mark.parametrize("head", ["sequence", "pair", "token"])
def test_classification_heads_have_a_name_that_tools_know(head, tiny):
    assert type(tiny(head).classifier).__name__.endswith("ClassificationHead")
