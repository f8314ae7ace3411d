"""Saved folders load where nobody has imported `tnn`: `auto_map`, the file that it names, and who runs that file."""

import json
import os
import runpy
import subprocess
import sys
from types import ModuleType

import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, ViTImageProcessorPil

import tnn
from tnn.data import byte_tokenizer
from tnn.models.loading import load_strictly, read_config
from tnn.models.remote_code import AUTO_CLASSES, BASE_MODELS, CODE, auto_map

TEXT = {"vocab_size": 261, "hidden_size": 8, "num_hidden_layers": 1, "rpe_size": 8, "rpe_num_layers": 1}
IMAGE = {"image_size": 8, "patch_size": 4, "hidden_size": 8, "num_hidden_layers": 1}
SERIES = {"hidden_size": 8, "num_hidden_layers": 1, "horizon": 2}


def make(name):
    cls = getattr(tnn, name)
    if cls.config_class is tnn.TNNConfig:
        decoder = name == "TNNForCausalLM"
        return cls(tnn.TNNConfig(**TEXT, is_decoder=decoder, num_labels=3))
    return cls(tnn.TNNImageConfig(**IMAGE) if cls.config_class is tnn.TNNImageConfig else tnn.TNNSeriesConfig(**SERIES))


@pytest.fixture
def folder(tmp_path):
    make("TNNForCausalLM").save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def stored(folder):
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("name", [*AUTO_CLASSES, *BASE_MODELS.values()])
def test_a_saved_folder_names_its_classes(name, tmp_path):
    model = make(name)
    model.save_pretrained(tmp_path)
    assert (tmp_path / CODE.name).read_bytes() == CODE.read_bytes()
    for auto, reference in stored(tmp_path)["auto_map"].items():
        module, _, cls = reference.partition(".")
        assert f"{module}.py" == CODE.name
        found = getattr(transformers, auto).from_pretrained(tmp_path, trust_remote_code=True)
        assert type(found) is getattr(tnn, cls)
    assert AUTO_CLASSES.get(name, "AutoModel") in stored(tmp_path)["auto_map"]


def test_the_code_has_every_class(folder):
    names = runpy.run_path(str(CODE))
    assert {"TNNConfig", "TNNImageConfig", "TNNSeriesConfig", *AUTO_CLASSES, *BASE_MODELS.values()} == {
        *names["__all__"]
    }
    assert all(names[name] is getattr(tnn, name) for name in names["__all__"])


def test_loaded_and_saved_again_is_the_same(folder, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    for again in (tmp_path / "again", folder):
        model.save_pretrained(again)
        assert [path.name for path in again.glob("*.py")] == [CODE.name]
        assert (again / "config.json").read_text() == (folder / "config.json").read_text()


def test_a_pair_has_a_configuration_and_a_base(tmp_path):
    tnn.TNNForSequencePairClassification(tnn.TNNConfig(**TEXT, is_decoder=False)).save_pretrained(tmp_path)
    assert stored(tmp_path)["auto_map"].keys() == {"AutoConfig", "AutoModel"}


def test_another_head_has_its_own_entry(folder, tmp_path):
    config = AutoConfig.from_pretrained(folder, num_labels=3, is_decoder=False)
    tnn.TNNForTokenClassification.from_pretrained(folder, config=config).save_pretrained(tmp_path / "tokens")
    assert stored(tmp_path / "tokens")["auto_map"] == auto_map("TNNConfig", "tnn", ["TNNForTokenClassification"])


def test_the_entries_of_somebody_else_are_not_passed_on(folder, tmp_path):
    values = stored(folder)
    values["auto_map"] = {"AutoConfig": "other/repository--evil.Config", "AutoModelForCausalLM": "evil.Model"}
    (folder / "config.json").write_text(json.dumps(values))
    AutoModelForCausalLM.from_pretrained(folder).save_pretrained(tmp_path / "again")
    assert stored(tmp_path / "again")["auto_map"] == auto_map("TNNConfig", "tnn", ["TNNForCausalLM"])


def test_folders_of_before_load(folder):
    values = stored(folder)
    del values["auto_map"]
    (folder / "config.json").write_text(json.dumps(values))
    (folder / CODE.name).unlink()
    assert type(AutoModelForCausalLM.from_pretrained(folder)) is tnn.TNNForCausalLM
    assert "auto_map" not in read_config(folder).to_dict()


def test_tnn_never_runs_the_file(folder):
    (folder / CODE.name).write_text("raise SystemExit('the file was run')")
    load_strictly(tnn.TNNForCausalLM, folder, read_config(folder))
    assert type(AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)) is tnn.TNNForCausalLM


def test_an_unknown_type_is_refused_by_its_name(folder):
    (folder / "config.json").write_text(json.dumps({**stored(folder), "model_type": "tnn_video"}))
    with pytest.raises(ValueError, match=r"config\.json: model_type must be .*; got 'tnn_video'$"):
        read_config(folder)


def test_register_for_auto_class_is_for_classes_of_ones_own(folder, monkeypatch):
    tnn.TNNConfig.register_for_auto_class()
    tnn.TNNForCausalLM.register_for_auto_class("AutoModelForCausalLM")
    assert tnn.TNNConfig._auto_class is None
    assert tnn.TNNForCausalLM._auto_class is None

    class MyConfig(tnn.TNNConfig):
        model_type = "mine"

    class MyModel(tnn.TNNForCausalLM):
        config_class = MyConfig

    MyConfig(**TEXT).save_pretrained(folder)
    assert "auto_map" not in stored(folder)
    MyConfig.register_for_auto_class()
    MyModel.register_for_auto_class("AutoModelForCausalLM")
    assert (MyConfig._auto_class, MyModel._auto_class) == ("AutoConfig", "AutoModelForCausalLM")


@pytest.mark.parametrize("there", [None, ModuleType("tnn")], ids=["nothing", "another package"])
def test_without_the_package_one_line_says_so(there, monkeypatch):
    monkeypatch.setitem(sys.modules, "tnn", there)
    with pytest.raises(ImportError, match=r"^this model needs the package toeplitz-nn: pip install --upgrade .*nn$"):
        runpy.run_path(str(CODE))


def test_what_the_package_lacks_is_not_hidden(monkeypatch):
    broken = ModuleType("tnn")

    def missing(name):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    broken.__getattr__ = missing
    monkeypatch.setitem(sys.modules, "tnn", broken)
    with pytest.raises(ModuleNotFoundError, match="torch"):
        runpy.run_path(str(CODE))


def run_fresh(code, cwd):
    """In a process that has not imported `tnn`, without network; what it prints."""
    environment = {**os.environ, "HF_HOME": str(cwd / "cache"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    start = "import sys, transformers, torch\nassert 'tnn' not in sys.modules\ntrusted = {'trust_remote_code': True}\n"
    command = [sys.executable, "-W", "error", "-c", start + code]
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_pipelines_in_a_fresh_process(tmp_path):
    torch.manual_seed(0)
    for name in (
        "TNNForCausalLM",
        "TNNForMaskedLM",
        "TNNForSequenceClassification",
        "TNNForTokenClassification",
        "TNNModel",
    ):
        make(name).save_pretrained(tmp_path / name)
        byte_tokenizer(mask=True).save_pretrained(tmp_path / name)
    code = """
from transformers import TextIteratorStreamer, TextStreamer, pipeline
generate = pipeline("text-generation", model="TNNForCausalLM", **trusted)
options = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None, "pad_token_id": 1}
text = generate("a text", return_full_text=False, generation_config=transformers.GenerationConfig(**options))
tokenizer = generate.tokenizer
streamer = TextIteratorStreamer(tokenizer, skip_prompt=True)
generate.model.generate(**tokenizer("a text", return_tensors="pt"), streamer=streamer, **options)
assert "".join(streamer) == text[0]["generated_text"], text
print(len(pipeline("fill-mask", model="TNNForMaskedLM", **trusted)("a <mask> text", top_k=4)))
print(len(pipeline("text-classification", model="TNNForSequenceClassification", **trusted)("a text", top_k=None)))
print(len(pipeline("token-classification", model="TNNForTokenClassification", **trusted)("a text")))
print(len(pipeline("feature-extraction", model="TNNModel", **trusted)("a text")[0]))
print(type(generate.model).__module__)
"""
    assert run_fresh(code, tmp_path) == ["4", "3", "6", "6", "tnn.models.heads"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["TNNForImageClassification", "TNNForForecasting"])
def test_images_and_series_in_a_fresh_process(name, tmp_path):
    model = make(name).eval()
    model.save_pretrained(tmp_path / "model")
    if name == "TNNForImageClassification":
        ViTImageProcessorPil(size={"height": 8, "width": 8}).save_pretrained(tmp_path / "model")
        code = """
from PIL import Image
print(len(transformers.pipeline("image-classification", model="model", **trusted)(Image.new("RGB", (9, 9)))))
"""
        assert run_fresh(code, tmp_path) == ["2"]
    else:
        values = torch.arange(6.0).reshape(1, 6, 1)
        code = """
model = transformers.AutoModelForTimeSeriesPrediction.from_pretrained("model", **trusted).eval()
print(model(torch.arange(6.0).reshape(1, 6, 1)).quantiles.sum().item())
"""
        assert float(run_fresh(code, tmp_path)[0]) == pytest.approx(model(values).quantiles.sum().item(), rel=1e-5)
