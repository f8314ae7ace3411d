"""PEFT: what LoRA adapts, and that no kernel, cache or converted model is left of other weights."""

import copy

import pytest
import torch
from peft import IA3Config, LoraConfig, PeftModel, PromptTuningConfig, get_peft_model

from tnn import TNNForCausalLM, TNNForImageClassification, TNNImageConfig

DENSE = r".*layers\..*_proj"  # the targets that docs/models.md recommends
GREEDY = {"max_new_tokens": 70, "do_sample": False, "eos_token_id": None}


def adapted(model, targets, name="default", **options):
    """With LoRA that changes something: its second factor is not left at 0."""
    config = LoraConfig(target_modules=targets, r=4, lora_alpha=8, **options)
    if isinstance(model, PeftModel):
        model.add_adapter(name, config)
    else:
        model = get_peft_model(model, config, adapter_name=name)
    with torch.no_grad():
        for key, value in model.named_parameters():
            if f".{name}." in key:
                value.normal_(std=0.3)
    return model.eval()


def operator_of(model):
    return model.get_base_model().model.layers[0].token_mixer.operator


def prompt(n=20):
    return torch.randint(4, 64, (2, n), generator=torch.Generator().manual_seed(1))


# --- what is adapted


@pytest.mark.parametrize("mixer", ["tnn", ["tnn", "transformer"], "flash"])
def test_recommended_targets_are_the_dense_layers_of_the_blocks(mixer, tiny):
    model = tiny("causal", mixer=mixer, tie_word_embeddings=False, embedding_size=8)
    dense = {
        n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and "layers." in n and ".rpe." not in n
    }
    assert set(adapted(model, DENSE).targeted_module_names) == dense


def test_the_position_encoder_is_left_alone_by_recommended_targets(tiny):
    model = tiny("causal")
    before = model.model.layers[0].token_mixer.operator.kernel(30)
    model = adapted(model, DENSE)
    assert torch.equal(operator_of(model).kernel(30), before)
    assert not any(value.requires_grad for name, value in model.named_parameters() if ".operator." in name)


def test_all_linear_adapts_the_position_encoder_in_float32(tiny, tmp_path):
    tiny("causal").save_pretrained(tmp_path)
    model = TNNForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16).eval()
    before = model.model.layers[0].token_mixer.operator.kernel(30)
    model = adapted(model, "all-linear")
    factors = {name: value for name, value in model.named_parameters() if ".rpe." in name and ".lora_" in name}
    assert len(factors) == 2 * 2 * 4  # layers, factors, dense layers of the encoder
    assert {value.dtype for value in factors.values()} == {torch.float32}
    assert not torch.allclose(operator_of(model).kernel(30), before, atol=1e-2)
    assert model(prompt()).logits.isfinite().all()


def test_a_position_encoder_in_16_bit_is_refused(tiny):
    """Its weights alone are computed with in float32, an adapter is not."""
    model = adapted(tiny("causal").to(torch.bfloat16), "all-linear")
    with pytest.raises(
        ValueError, match=r"^a position encoder with an adapter must be in float32; got torch.bfloat16$"
    ):
        model(prompt())


@pytest.mark.parametrize("targets", [DENSE, "all-linear"])
def test_gradients_reach_the_adapter_alone(targets, tiny):
    model = adapted(tiny("causal"), targets)
    model(input_ids=prompt(), labels=prompt()).loss.backward()
    for name, value in model.named_parameters():
        assert (value.grad is not None) == (".lora_" in name), name
        if value.grad is not None:
            assert value.grad.abs().max() > 0, name


def test_classification_head_is_trained_and_saved_whole(tiny, tmp_path):
    model = adapted(tiny("sequence"), "all-linear", task_type="SEQ_CLS")
    assert not any("classifier" in name for name in model.targeted_module_names)
    trained = {name for name, value in model.named_parameters() if value.requires_grad and ".lora_" not in name}
    assert trained == {f"base_model.model.classifier.modules_to_save.default.out.{kind}" for kind in ("weight", "bias")}
    model.save_pretrained(tmp_path)
    torch.manual_seed(0)
    base = copy.deepcopy(model).unload()
    assert torch.equal(PeftModel.from_pretrained(base, tmp_path).eval()(prompt()).logits, model(prompt()).logits)


@pytest.mark.filterwarnings("ignore:Position ids are not supported")  # PEFT's of every prompt that it tunes
@pytest.mark.parametrize(
    "config",
    [
        LoraConfig(target_modules=["embed_tokens", "lm_head"]),
        LoraConfig(target_modules=DENSE, trainable_token_indices=[5, 6]),
        LoraConfig(target_modules="all-linear", use_dora=True),
        IA3Config(target_modules=DENSE, feedforward_modules=[]),
        PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
    ],
    ids=["embeddings", "tokens", "dora", "ia3", "prompt"],
)
def test_other_adapters(config, tiny):
    """The cached text is the one that single calls of the adapted model give."""
    model = get_peft_model(tiny("causal", tie_word_embeddings=False, initializer="gtu", initializer_range=0.5), config)
    with torch.no_grad():
        for value in model.eval().parameters():
            if value.requires_grad:
                value.normal_(std=0.5)
        text = model.generate(input_ids=prompt(), **GREEDY | {"max_new_tokens": 12})
        for n in range(20, 32):
            assert torch.equal(text[:, n], model(input_ids=text[:, :n]).logits[:, -1].argmax(-1))


def test_image_model():
    config = TNNImageConfig(image_size=8, patch_size=2, hidden_size=16, num_hidden_layers=1, rpe_size=8, num_labels=3)
    model = TNNForImageClassification(config).eval()
    pixels = torch.rand(2, 3, 8, 8)
    before = model(pixels).logits
    model = adapted(model, DENSE)
    assert len(model.targeted_module_names) == 6
    changed = model(pixels).logits
    assert not torch.allclose(changed, before, atol=1e-2)
    torch.testing.assert_close(model.merge_and_unload()(pixels).logits, changed, atol=1e-4, rtol=1e-4)


# --- kernels follow the adapters


@torch.no_grad()
def test_no_kernel_of_other_weights_is_used(tiny):
    """Kernels are kept in evaluation; with gradients they are always computed anew."""
    model = tiny("causal")
    kernels = [model.model.layers[0].token_mixer.operator.kernel(30)]  # kept from here on
    model = adapted(adapted(model, "all-linear", "first"), "all-linear", "second")

    def check(changed):
        kernel = operator_of(model).kernel(30)
        with torch.enable_grad():
            torch.testing.assert_close(kernel, operator_of(model).kernel(30).detach(), atol=1e-6, rtol=1e-5)
        assert changed != any(torch.allclose(kernel, old, atol=1e-3) for old in kernels)
        kernels.append(kernel)

    model.set_adapter("first")
    check(changed=True)
    model.set_adapter("second")
    check(changed=True)
    with model.disable_adapter():
        check(changed=False)
    model.merge_adapter()
    check(changed=False)
    model.unmerge_adapter()
    check(changed=False)
    next(p for n, p in model.named_parameters() if ".rpe.output.lora_B.second." in n).mul_(2)
    check(changed=True)
    merged = copy.deepcopy(model).merge_and_unload()
    torch.testing.assert_close(merged.model.layers[0].token_mixer.operator.kernel(30), kernels[-1])
    plain = model.unload()
    torch.testing.assert_close(plain.model.layers[0].token_mixer.operator.kernel(30), kernels[0])


def test_the_bound_on_what_is_cut_counts_the_adapter(tiny):
    encoder = operator_of(adapted(tiny("causal"), "all-linear")).rpe
    with torch.no_grad():
        assert (encoder(torch.arange(5_000)).abs() <= encoder.coefficient_bound()).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"targets": DENSE}, {"targets": "all-linear"}, {"targets": DENSE, "modules_to_save": ["rpe"]}]
)
def test_generation(options, tiny, tmp_path):
    """With a cache as without, merged as not, saved and loaded as before."""
    base = tiny("causal", tie_word_embeddings=False, initializer="gtu", initializer_range=0.5)
    plain = base.generate(prompt(), **GREEDY)
    model = adapted(copy.deepcopy(base), **options, task_type="CAUSAL_LM")
    expected = model.generate(input_ids=prompt(), use_cache=False, **GREEDY)
    assert not torch.equal(expected, plain)
    assert torch.equal(model.generate(input_ids=prompt(), **GREEDY), expected)
    with model.disable_adapter():
        assert torch.equal(model.generate(input_ids=prompt(), **GREEDY), plain)
    model.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(base, tmp_path).eval()
    assert torch.equal(loaded(prompt()).logits, model(prompt()).logits)
    assert torch.equal(model.merge_and_unload().generate(prompt(), **GREEDY), expected)


def test_conversion_needs_a_merged_adapter(tiny):
    model = adapted(tiny("causal", decay=0.9), "all-linear")
    with pytest.raises(ValueError, match=r"^the model has an adapter, .*: merge it first, with merge_and_unload\(\)$"):
        model.to_state_space()
    merged = model.merge_and_unload()
    with torch.no_grad():
        torch.testing.assert_close(
            merged.to_state_space(1e-4)(prompt()).logits, merged(prompt()).logits, atol=1e-2, rtol=0
        )


def test_adapters_through_transformers(tiny):
    model = tiny("causal")
    before = model(prompt()).logits
    model.add_adapter(LoraConfig(target_modules=DENSE, init_lora_weights=False))
    model.eval()
    assert not torch.allclose(model(prompt()).logits, before, atol=1e-3)
    model.disable_adapters()
    torch.testing.assert_close(model(prompt()).logits, before)
