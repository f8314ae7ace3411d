"""The cache: made by default, plain data, the same in a graph and in another process."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map
from transformers import Trainer, TrainingArguments

from tnn import TNNConfig, TNNForCausalLM, TNNForMaskedLM, TNNForTokenClassification, TNNModel
from tnn.models.cache import TNNCache

KERNELS = {
    "exact": {"decay": 0.9},
    "decay 1": {"decay": 1.0},
    "free": {"coefficients": "free", "max_lags": 5},
    "positions": {"position_embedding": "sinusoidal"},
    "short convolution": {"decay": 0.9, "short_convolution": 4},
    "state space": {"decay": 0.9},
    "hybrid": {"mixer": ["tnn", "attention"]},
    "gmlp": {"mixer": "gmlp", "mixer_options": {"max_length": 64}},
    "performer": {"mixer": "performer", "num_attention_heads": 2},
    "flash": {"mixer": "flash", "mixer_options": {"key_size": 8, "chunk": 4}},
    "gss": {"mixer": "gss", "mixer_options": {"state_channels": 8, "state_size": 16}},
}
kernels = pytest.mark.parametrize("kernel", KERNELS)
SIZES = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "rpe_size": 8, "rpe_num_layers": 2}


def model_of(kernel="exact", **changes):
    torch.manual_seed(0)
    options = SIZES | {"tie_word_embeddings": False, "initializer_range": 0.5} | KERNELS[kernel] | changes
    model = TNNForCausalLM(TNNConfig(**options)).eval()
    return model.to_state_space(tolerance=1e-2) if kernel == "state space" else model


def text(batch=2, n=12, seed=1):
    return torch.randint(4, 64, (batch, n), generator=torch.Generator().manual_seed(seed))


def close(a, b):
    torch.testing.assert_close(a, b, atol=2e-4, rtol=1e-4)


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


# --- by default


@kernels
def test_the_ordinary_loop_keeps_its_context(kernel):
    model, ids = model_of(kernel), text()
    past, parts = None, []
    for part in ids.split([5, 1, 1, 4, 1], 1):
        out = model(part, past_key_values=past)
        past = out.past_key_values
        parts.append(out.logits)
    close(torch.cat(parts, 1), model(ids).logits)
    assert past.get_seq_length() == 12


def test_when_a_cache_is_made():
    ids = text()
    model = model_of()
    assert model.config.use_cache is True
    assert isinstance(model(ids).past_key_values, TNNCache)
    assert isinstance(model(ids, labels=ids).past_key_values, TNNCache)
    assert isinstance(model(ids, return_dict=False)[1], TNNCache)
    assert model(ids, use_cache=False).past_key_values is None
    assert model.train()(ids).past_key_values is None
    assert isinstance(model(ids, use_cache=True).past_key_values, TNNCache)
    model.gradient_checkpointing_enable()
    with torch.enable_grad():
        assert model(ids, use_cache=True).past_key_values is None  # warned about, as transformers does
        assert model(ids).past_key_values is None
    assert model_of(use_cache=False)(ids).past_key_values is None
    assert isinstance(model_of(use_cache=False)(ids, use_cache=True).past_key_values, TNNCache)


def test_models_that_cannot_cache_say_so_only_when_asked():
    normalized = model_of(rpe_input="normalized")
    masked = TNNForMaskedLM(TNNConfig(**SIZES, is_decoder=False)).eval()
    backbone = TNNModel(TNNConfig(**SIZES, is_decoder=False)).eval()
    assert normalized(text()).past_key_values is None
    assert backbone(text()).past_key_values is None
    assert masked(text()).logits.shape == (2, 12, 64)
    for model in (normalized, masked, backbone):
        with pytest.raises(
            ValueError, match=r"^no cache for this model: it is bidirectional, or a layer has no state$"
        ):
            model(text(), use_cache=True)


def test_packed_documents_have_no_cache_unless_asked():
    model, packed = model_of(), torch.cat([torch.arange(7), torch.arange(5)])[None]
    assert model(text(1), position_ids=packed).past_key_values is None
    with pytest.raises(ValueError, match="packed documents cannot be cached"):
        model(text(1), position_ids=packed, use_cache=True)


def test_heads_with_one_answer_make_none(monkeypatch):
    model = TNNForTokenClassification(TNNConfig(**SIZES)).eval()
    monkeypatch.setattr(TNNModel, "new_cache", lambda self: pytest.fail("a cache that nobody gets"))
    assert model(text()).logits.shape == (2, 12, 2)


def test_a_saved_configuration_without_a_choice(tmp_path):
    """As version 0.1 wrote it."""
    model = model_of()
    model.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(file.read_text().replace('"use_cache": true', '"use_cache": null'))
    assert "null" in file.read_text()
    loaded = TNNForCausalLM.from_pretrained(tmp_path).eval()
    assert loaded.config.use_cache is True
    assert isinstance(loaded(text()).past_key_values, TNNCache)


@pytest.mark.slow
def test_a_trainer_gathers_logits_and_not_caches(tmp_path):
    arguments = TrainingArguments(str(tmp_path), report_to=[], use_cpu=True, per_device_eval_batch_size=2)
    rows = [{"input_ids": row, "labels": row} for row in text(4)]
    predictions = Trainer(model_of(), arguments).predict(rows).predictions
    assert predictions.shape == (4, 12, 64)


def test_the_first_pass_is_that_without_a_cache():
    for kernel in ("exact", "decay 1", "free", "hybrid"):
        model = model_of(kernel)
        assert torch.equal(model(text(2, 50)).logits, model(text(2, 50), use_cache=False).logits)


# --- plain data


@kernels
def test_a_cache_is_small_and_holds_no_module(kernel):
    model = model_of(kernel)
    cache = model(text(1, 3)).past_key_values
    data = pickle.dumps(cache)
    assert len(data) < 30_000
    assert b"tnn.models.backbone" not in data
    assert b"torch.nn.modules" not in data
    assert all(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(cache))
    copied = copy.deepcopy(cache)
    assert [state.owner for state in copied.states] == [state.owner for state in cache.states]


@kernels
def test_a_pickled_cache_goes_on_and_foreign_models_refuse_it(kernel):
    model, ids = model_of(kernel), text()
    data = pickle.dumps(model(ids[:, :8]).past_key_values)
    expected = model(ids).logits[:, 8:]
    close(model(ids[:, 8:], past_key_values=pickle.loads(data)).logits, expected)
    twin = pickle.loads(pickle.dumps(model))  # as in another process
    close(twin(ids[:, 8:], past_key_values=pickle.loads(data)).logits, expected)
    wider, deeper = {"hidden_size": 32}, {"num_hidden_layers": 3}
    if kernel == "hybrid":
        deeper["mixer"] = ["tnn", "attention", "tnn"]
    for changes in (deeper, {"mixer": "alibi", "mixer_options": None}, *([wider] if kernel != "gss" else [])):
        other = model_of(kernel if "mixer" not in changes or kernel == "hybrid" else "exact", **changes)
        with pytest.raises(ValueError, match=r"^past_key_values belongs to another model; use a cache that this model"):
            other(ids[:, 8:], past_key_values=pickle.loads(data))


def test_a_refused_cache_is_as_before():
    """Its first layers would fit."""
    model, ids = model_of(), text()
    cache = pickle.loads(pickle.dumps(model(ids[:, :8]).past_key_values))
    for changes in ({"num_hidden_layers": 3}, {"mixer": ["tnn", "attention"]}):
        with pytest.raises(ValueError, match="belongs to another model"):
            model_of(**changes)(ids[:, 8:], past_key_values=cache)
    close(model(ids[:, 8:], past_key_values=cache).logits, model(ids).logits[:, 8:])


@kernels
def test_torch_saves_and_loads_a_cache(kernel, tmp_path):
    model, ids = model_of(kernel), text()
    torch.save(model(ids[:, :8]).past_key_values, tmp_path / "cache.pt")
    cache = torch.load(tmp_path / "cache.pt", weights_only=True)
    close(model(ids[:, 8:], past_key_values=cache).logits, model(ids).logits[:, 8:])


def test_models_without_states_refuse_any_cache():
    cache = pickle.loads(pickle.dumps(model_of()(text()).past_key_values))
    with pytest.raises(ValueError, match="belongs to another model"):
        model_of(rpe_input="normalized")(text(2, 1), past_key_values=cache)


@pytest.mark.slow
def test_another_process_goes_on(tmp_path):
    model, ids = model_of(), text()
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "cache").write_bytes(pickle.dumps(model(ids[:, :8]).past_key_values))
    torch.save(ids, tmp_path / "ids")
    script = """
import pickle, sys, torch
from pathlib import Path
from tnn import TNNForCausalLM
folder = Path(sys.argv[1])
model = TNNForCausalLM.from_pretrained(folder / "model").eval()
cache = pickle.loads((folder / "cache").read_bytes())
with torch.no_grad():
    logits = model(torch.load(folder / "ids")[:, 8:], past_key_values=cache).logits
torch.save(logits, folder / "logits")
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=120)
    close(torch.load(tmp_path / "logits"), model(ids).logits[:, 8:])


@kernels
def test_a_pytree_goes_on_after_a_change_of_its_leaves(kernel):
    model, ids = model_of(kernel), text()
    cache = model(ids[:, :8]).past_key_values
    twin = tree_map(lambda leaf: leaf.clone(), cache)
    model(ids[:, :3], past_key_values=cache)
    assert twin.get_seq_length() == 8
    close(model(ids[:, 8:], past_key_values=twin).logits, model(ids).logits[:, 8:])


# --- graphs


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "padded"), [("exact", False), ("exact", True), ("state space", True)])
def test_an_exported_prefill_returns_the_cache(kernel, padded):
    model, ids, mask = model_of(kernel), text(), torch.ones(2, 12, dtype=torch.long)
    mask[1, :5] = 0
    inputs = {"input_ids": ids, "use_cache": True, **({"attention_mask": mask} if padded else {})}
    out = torch.export.export(model, (), inputs).module()(**inputs)
    expected = model(**inputs)
    real = mask.bool() if padded else torch.ones_like(mask, dtype=torch.bool)
    close(out.logits[real], expected.logits[real])
    assert isinstance(out.past_key_values, TNNCache)
    assert out.past_key_values.get_seq_length() == 12
    close(*(model(ids[:, :3], past_key_values=c).logits for c in (out.past_key_values, expected.past_key_values)))


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["exact", "decay 1", "positions", "state space", "hybrid", "gmlp", "performer"])
def test_an_exported_step_takes_and_returns_the_cache(kernel):
    """The state of a state space keeps its shape; other states grow, along axes that are left open."""
    model, ids = model_of(kernel), text()
    cache = model(ids[:, :6]).past_key_values
    auto = torch.export.Dim.AUTO
    shapes = [dict.fromkeys(range(1, leaf.ndim), auto) if leaf.ndim > 1 else {} for leaf in tree_leaves(cache)]
    grows = None if kernel in ("state space", "performer") else {"input_ids": None, "past_key_values": shapes}
    inputs = {"input_ids": ids[:, 6:7], "past_key_values": cache}
    step = torch.export.export(model, (), inputs, dynamic_shapes=grows).module()
    assert cache.get_seq_length() == 6  # a graph changes nothing outside
    logits = []
    for token in ids[:, 6:].split(1, 1):
        out = step(input_ids=token, past_key_values=cache)
        cache = out.past_key_values
        logits.append(out.logits)
    close(torch.cat(logits, 1), model(ids).logits[:, 6:])
    assert cache.get_seq_length() == 12


@pytest.mark.slow
def test_an_exported_step_can_be_saved(tmp_path):
    model, ids = model_of("state space"), text()
    cache = model(ids[:, :11]).past_key_values
    inputs = {"input_ids": ids[:, 11:], "past_key_values": cache}
    torch.export.save(torch.export.export(model, (), inputs), tmp_path / "step.pt2")
    out = torch.export.load(tmp_path / "step.pt2").module()(**inputs)
    close(out.logits, model(ids).logits[:, 11:])
    assert out.past_key_values.get_seq_length() == 12


@pytest.mark.slow
def test_an_export_has_no_cache_unless_asked():
    model, ids = model_of("state space"), text()
    out = torch.export.export(model, (), {"input_ids": ids}).module()(input_ids=ids)
    assert out.past_key_values is None
    close(out.logits, model(ids).logits)


def test_a_state_space_that_ends_is_not_exported_with_a_cache():
    model = model_of("decay 1").to_state_space(method="dft", length=20)
    with pytest.raises(ValueError, match="for 20 tokens, which an exported graph would not count"):
        torch.export.export(model, (), {"input_ids": text(), "use_cache": True})


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["exact", "state space"])
def test_the_ordinary_loop_of_a_compiled_model(kernel):
    torch.compiler.reset()
    model, ids = model_of(kernel, num_hidden_layers=1), text()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    out = compiled(ids[:, :8])
    logits = [out.logits]
    for part in ids[:, 8:].split([1, 3], 1):
        out = compiled(part, past_key_values=out.past_key_values)
        logits.append(out.logits)
    close(torch.cat(logits, 1), model(ids).logits)
    torch.compiler.reset()


def test_vmap_and_functional_calls():
    model, ids = model_of(), text()
    embeds = model.get_input_embeddings()(ids)
    out = torch.func.vmap(lambda row: model(inputs_embeds=row[None]))(embeds)
    close(out.logits[:, 0], model(ids).logits)
    doubled = {name: 2 * value for name, value in model.named_parameters()}
    other = torch.func.functional_call(model, doubled, (ids,)).logits
    assert (other - model(ids).logits).abs().max() > 0.1
