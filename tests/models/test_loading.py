"""Strict loading: a model has the weights of its file, all of them and no others."""

import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import tnn
from tnn.models.loading import check_memory, load_strictly, read_config
from tnn.training.evaluation import load_model
from tnn.training.tasks.setup import load_head

SIZES = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 2, "rpe_size": 4, "rpe_num_layers": 1}
LAYER = "model.layers.1.channel_mixer.gate_proj.weight"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    tnn.TNNForCausalLM(tnn.TNNConfig(**SIZES)).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


def rewrite(folder, change, name="model.safetensors"):
    weights = load_file(folder / name)
    change(weights)
    save_file(weights, folder / name, metadata={"format": "pt"})


def configure(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def load(folder):
    return load_strictly(tnn.TNNForCausalLM, folder, read_config(folder))


def test_the_weights_of_the_file(saved):
    weights, model = load_file(saved / "model.safetensors"), load_model(saved)
    assert type(model) is tnn.TNNForCausalLM
    assert not model.training
    assert weights
    assert all(torch.equal(model.state_dict()[name], value) for name, value in weights.items())


def add(name, value):
    return lambda weights: weights.update({name: value})


WRONG = {
    "missing": (lambda w: w.pop(LAYER), rf"missing 1 key \({LAYER}\)$"),
    "a layer": (
        lambda w: [w.pop(name) for name in list(w) if ".layers.1." in name],
        r"missing 18 keys \(model\.layers\.1\.\S+, (\S+, ){4}\.\.\.\)$",
    ),
    "tied": (lambda w: w.pop("model.embed_tokens.weight"), r"missing 2 keys \(lm_head\.weight, model\.embed_tokens"),
    "left over": (add("extra", torch.ones(2)), r"left over 1 key \(extra\)$"),
    "shape": (add(LAYER, torch.ones(3, 8)), rf"of another shape 1 key \({LAYER}\)$"),
    "whole numbers": (add(LAYER, torch.ones(8, 8, dtype=torch.int64)), rf"not of floating point 1 key \({LAYER}\)$"),
    "tied to others": (add("lm_head.weight", torch.ones(20, 8)), r"tied but not equal 1 key \(lm_head\.weight\)$"),
    "NaN": (lambda w: w[LAYER].fill_(float("nan")), rf"weights that are not finite, first in {LAYER}"),
    "infinite": (lambda w: w["model.norm.bias"][1:].fill_(float("inf")), r"not finite, first in model\.norm\.bias"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_weights_that_do_not_fit(folder, change, message):
    rewrite(folder, change)
    with pytest.raises(ValueError, match=message):
        load(folder)


def test_half_precision_is_no_difference(folder):
    rewrite(folder, lambda w: w.update({name: value.half() for name, value in w.items()}))
    assert load(folder).model.norm.weight.dtype == torch.float32


def test_a_shard_that_is_missing(folder):
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    names = list(load_file(folder / "model-00001-of-00002.safetensors"))
    shards = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    with pytest.raises(
        FileNotFoundError, match=r"model-00002-of-00002\.safetensors is missing, which has weights by model"
    ):
        load(folder)


@pytest.mark.parametrize("text", ["[]", "{", "{}", '{"weight_map": 3}', '{"weight_map": {"lm_head.weight": 3}}'])
def test_a_damaged_index(folder, text):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ValueError, match=r"model\.safetensors\.index\.json is damaged: "):
        load(folder)


def test_no_weights(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"^there are no weights in \S+: model\.safetensors is missing, which save"
    ):
        load(folder)


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"\x02\0\0\0\0\0\0\0{}", None], ids=["", "junk", "no", "cut"])
def test_damaged_weights(folder, content):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10] if content is None else content)
    with pytest.raises((ValueError, OSError), match=r"damaged or cut short|missing \d+ keys"):
        load(folder)


def test_a_pickle_is_not_executed(folder, tmp_path):
    class Malicious:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    assert load(folder)  # tensors alone are read
    torch.save(weights | {"model.norm.bias": Malicious()}, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"the weights in \S+ are no plain tensors"):
        load(folder)
    assert not (tmp_path / "harm").exists()


def test_a_model_without_a_head(folder):
    load(folder).model.save_pretrained(folder)
    assert type(load_model(folder)) is tnn.TNNModel
    rewrite(folder, lambda w: w.pop("norm.bias"))
    with pytest.raises(ValueError, match=r"missing 1 key \(norm\.bias\)$"):
        load_model(folder)


CONFIGURATIONS = {
    "more layers than tensors": ({"num_hidden_layers": 900}, "it has 900 layers, and the weights are 39 tensors"),
    "layers": ({"num_hidden_layers": 10**9}, "num_hidden_layers must be at most 1,000; got 1,000,000,000"),
    "depth of the RPE": ({"rpe_num_layers": 10**9}, "rpe_num_layers must be at most 1,000"),
    "2**31": ({"hidden_size": 2**31}, "hidden_size must be at most 2,147,483,647; got 2,147,483,648"),
    "2**63": ({"vocab_size": 2**63}, "vocab_size must be at most 2,147,483,647"),
    "no room": ({"vocab_size": 2**31 - 1, "hidden_size": 4096}, r"weights need 35,\d+\.\d GB, and this machine has"),
    "labels": ({"num_labels": 10**9}, "num_labels must be at most 1,000,000"),
    "a list": ({"hidden_size": [8]}, r"hidden_size must be an integer; got \[8\]"),
    "NaN": ({"decay": float("nan")}, r"decay must be in \[0, 1\]; got nan"),
    "not a flag": ({"is_decoder": "yes"}, "is_decoder must be true or false; got 'yes'"),
    "not a mixer": ({"mixer": {"a": 1}}, "mixer must be the name of a registered mixer, or a list of names"),
    "not options": ({"mixer_options": [1]}, r"mixer_options must be a dictionary; got \[1\]"),
    "a token": ({"eos_token_id": "end"}, "eos_token_id must be an integer; got 'end'"),
    "a type": ({"dtype": "int64"}, r"dtype must be float64, .*got torch\.int64"),
    "no type": ({"dtype": 3}, r"dtype must be float64, .*got 3"),
    "labels by name": ({"id2label": 3}, "items|id2label"),
    "another model": ({"model_type": "other"}, "model_type must be .tnn., .tnn_image. or .tnn_series.; got 'other'$"),
    "no model": ({"model_type": [3]}, r"model_type must be .tnn., .tnn_image. or .tnn_series.; got \[3\]$"),
    "code": (
        {"model_type": "other", "auto_map": {"AutoConfig": "code.Config"}},
        "needs code of its own, and commands run",
    ),
}


@pytest.mark.parametrize(("changes", "message"), CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_configurations(folder, changes, message, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked on standard input"))
    configure(folder, **changes)
    with pytest.raises(ValueError, match=rf"config\.json.*{message}"):
        load(folder)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a":' * 5000, b"\xff\0"])
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_files_that_are_no_json_objects(folder, name, content):
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=rf"{name} is damaged: it (is not JSON|must hold a JSON object)"):
        load(folder)


@pytest.mark.parametrize("changes", [{"eos_token_id": "end"}, {"eos_token_id": 10**30}, {"watermarking_config": 3}])
def test_settings_of_generation(folder, changes):
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(ValueError, match=r"generation_config\.json: "):
        load(folder)


@pytest.mark.parametrize("names", [None, [], "TNNForCausalLM", [3], ["Other"]])
def test_architectures(folder, names):
    configure(folder, architectures=names)
    with pytest.raises(ValueError, match=r"architectures must be a list|must hold one of TNNForC.*got a Other"):
        load_model(folder)


def test_a_head_for_another_kind_of_data(folder):
    configure(folder, architectures=["TNNForImageClassification"])
    with pytest.raises(ValueError, match=r"config\.json: the model_type 'tnn' is not that of a TNNForImageClassif"):
        load_model(folder)


def test_memory_is_checked_without_an_effect_on_random_numbers():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    check_memory(tnn.TNNForCausalLM, tnn.TNNConfig(**SIZES), "model")
    assert torch.equal(torch.rand(1), expected)


def test_starting_from_the_same_head(folder):
    """Its weights are all used, unless the labels are new."""
    classifier = tnn.TNNForSequenceClassification
    classifier(tnn.TNNConfig(**SIZES, num_labels=3)).save_pretrained(folder)
    assert load_head(classifier, folder, {}).config.num_labels == 3
    assert load_head(classifier, folder, {"num_labels": 4}).classifier.out.weight.shape == (4, 8)
    rewrite(folder, lambda w: w.pop("classifier.out.weight"))
    with pytest.raises(ValueError, match=r"missing 1 key \(classifier\.out\.weight\)$"):
        load_head(classifier, folder, {})
    assert load_head(classifier, folder, {"num_labels": 4})


def test_starting_from_a_model_without_its_output_matrix(folder):
    tnn.TNNForCausalLM(tnn.TNNConfig(**SIZES, tie_word_embeddings=False)).save_pretrained(folder)
    rewrite(folder, lambda w: w.pop("lm_head.weight"))
    with pytest.raises(ValueError, match=r"missing 1 key \(lm_head\.weight\)$"):
        load_head(tnn.TNNForCausalLM, folder, {})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hiden_size": 8}, "no argument 'hiden_size'; did you mean 'hidden_size'"),
        ({"dropout": "high"}, r"changes of model: dropout must be a number in \[0, 1\]; got 'high'"),
        ({"decay": 7}, r"decay must be in \[0, 1\]"),
    ],
)
def test_changes_are_checked(folder, changes, message):
    with pytest.raises(ValueError, match=message):
        load_head(tnn.TNNForCausalLM, folder, changes)
