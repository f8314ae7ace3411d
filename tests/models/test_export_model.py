"""Whole models as ONNX files and as graphs of torch.export: the same outputs as the model gives."""

import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from tnn import (
    TNNConfig,
    TNNForCausalLM,
    TNNForForecasting,
    TNNForImageClassification,
    TNNForMaskedLM,
    TNNForSequenceClassification,
    TNNForSequencePairClassification,
    TNNForTokenClassification,
    TNNImageConfig,
    TNNImageModel,
    TNNModel,
    TNNSeriesConfig,
)
from tnn.mixers import find_mixer, list_mixers
from tnn.models import export_model, export_onnx

VOCABULARY, PAD = 24, 1
TEXT_HEADS = {
    "causal": TNNForCausalLM,
    "masked": TNNForMaskedLM,
    "sequence": TNNForSequenceClassification,
    "pair": TNNForSequencePairClassification,
    "token": TNNForTokenClassification,
    "model": TNNModel,
}
SIZES = [(2, 9), (3, 1), (1, 16), (3, 70)]  # another batch and length than those of the trace; more than the bandwidth
# All others have a form for fixed sizes, with and without a mask. These have complex numbers, or draw random ones.
NOT_EXPORTABLE = ["fnet", "gfnet", "afno", "s4", "dss", "gss", "skyformer", "informer", "reformer", "bigbird"]
EXPORTABLE = [name for name in list_mixers() if name not in NOT_EXPORTABLE]
FOR_ANY_SIZE = ["tnn", "gtu", "transformer", "attention"]


def make_text(head="masked", **changes):
    fields = {"vocab_size": VOCABULARY, "hidden_size": 8, "num_hidden_layers": 1, "num_labels": 3, "decay": 0.8}
    fields |= {"rpe_size": 8, "rpe_num_layers": 1, "initializer": "torch", "is_decoder": head in ("causal", "model")}
    return prepared(TEXT_HEADS[head](TNNConfig(**(fields | changes))))


def make_image(cls=TNNForImageClassification, **changes):
    fields = {"image_size": 12, "patch_size": 4, "hidden_size": 8, "num_hidden_layers": 1, "num_labels": 3}
    return prepared(cls(TNNImageConfig(**(fields | {"rpe_size": 8} | changes))))


@torch.no_grad()
def prepared(model):
    """Norms that start as ones, and statistics that start as 0 and 1, would hide mistakes."""
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if value.ndim == 1 and value.is_floating_point():
            value.add_(0.1 * torch.rand_like(value))
        elif "embed_tokens" in name:
            assert not value[PAD].any()  # so that some rows are zero
    return model.eval()


def make_mask(batch, n):
    """Padding on the left, on the right and in between, in one batch."""
    mask = torch.ones(batch, n, dtype=torch.long)
    mask[0, : n // 3] = 0
    mask[-1, n - n // 3 :] = 0
    mask[batch // 2, n // 2 : n // 2 + 2] = 0
    mask[:, n // 2 - 1] = 1
    return mask


def make_inputs(model, batch, n, mask):
    if isinstance(model.config, TNNImageConfig):
        return {"pixel_values": torch.randn(batch, 3, 12, 12)}
    lengths = {"": n, "pair_": n + 3} if isinstance(model, TNNForSequencePairClassification) else {"": n}
    inputs = {}
    for kind, length in lengths.items():
        inputs[f"{kind}input_ids"] = torch.randint(VOCABULARY, (batch, length))
        inputs[f"{kind}input_ids"][0, 0] = PAD
        if mask:
            inputs[f"{kind}attention_mask"] = make_mask(batch, length)
    return inputs


def open_session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


@torch.no_grad()
def assert_equals_the_model(session, model, inputs):
    found = torch.from_numpy(session.run(None, {name: np.asarray(value) for name, value in inputs.items()})[0])
    expected = model(**inputs)[0]
    if expected.ndim == 3 and "attention_mask" in inputs:  # what stands at padding means nothing
        real = inputs["attention_mask"] == 1
        found, expected = found[real], expected[real]
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def check(model, folder, *, mask=True, sizes=SIZES, **fixed):
    path = folder / "model.onnx"
    export_onnx(model, path, mask=mask, **fixed)
    session = open_session(path)
    for batch, n in sizes:
        assert_equals_the_model(session, model, make_inputs(model, batch, n, mask))


@pytest.fixture(scope="module")
def causal(tmp_path_factory):
    """A causal model, and its file with a mask and open sizes."""
    model, path = make_text("causal"), tmp_path_factory.mktemp("onnx") / "model.onnx"
    torch.manual_seed(0)
    export_onnx(model, path)
    return model, path


@pytest.mark.slow
class TestHeads:
    @pytest.mark.parametrize("size", SIZES)
    def test_causal(self, causal, size):
        model, path = causal
        assert_equals_the_model(open_session(path), model, make_inputs(model, *size, mask=True))

    @pytest.mark.parametrize("head", ["masked", "sequence", "pair", "model"])
    def test_with_a_mask(self, head, tmp_path):
        check(make_text(head), tmp_path)

    @pytest.mark.parametrize(("head", "changes"), [("causal", {}), ("sequence", {"rpe_input": "normalized"})])
    def test_without_a_mask(self, head, changes, tmp_path):
        check(make_text(head, **changes), tmp_path, mask=False)

    def test_fixed_sizes(self, tmp_path):
        check(make_text("token"), tmp_path, batch=2, length=21, sizes=[(2, 21)])
        shape = onnx.load(tmp_path / "model.onnx").graph.input[0].type.tensor_type.shape
        assert [dim.dim_value for dim in shape.dim] == [2, 21]

    @pytest.mark.parametrize(
        ("cls", "changes"),
        [
            (TNNImageModel, {"dims": 1, "position_embedding": "learned", "max_position_embeddings": 9}),
            (TNNForImageClassification, {"form": "product", "rpe_input": "normalized"}),
        ],
    )
    def test_images(self, cls, changes, tmp_path):
        check(make_image(cls, **changes), tmp_path)


VARIANTS = {
    "learned decay, sines": {"decay_mode": "learned", "rpe_input": "sincos", "norm": "layer"},
    "convolution, input gate": {"short_convolution": 3, "input_gate": True},
    "operator norm": {"operator_norm": True},
    "sine encoder, spread": {"rpe_activation": "sin", "decay": [0.5, 0.97]},
    "no decay, lags": {"decay_mode": "none", "max_lags": 5, "rpe_norm": "last_layer", "norm": "batch"},
    "free, positions": {"coefficients": "free", "max_lags": 6, "position_embedding": "sinusoidal", "norm": "scale"},
    "interleaved positions": {"position_embedding": "interleaved", "inner_norm": "unused"},
    "learned positions": {"position_embedding": "learned", "max_position_embeddings": 80, "inner_norm": "rms"},
    "mixers": {"mixer": ["gtu", "attention"], "num_hidden_layers": 2, "norm_position": "post", "rpe_num_layers": 2},
}


@pytest.mark.slow
class TestVariants:
    @pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
    def test_equals_the_model(self, changes, tmp_path):
        check(make_text("token" if "free" in changes.values() else "causal", **changes), tmp_path)

    def test_every_other_mixer_in_one_hybrid_of_fixed_sizes(self, tmp_path):
        mixers = [name for name in EXPORTABLE if name not in FOR_ANY_SIZE]
        options = {name: dict(find_mixer(name).small_options) for name in mixers}
        fields = {"mixer": mixers, "num_hidden_layers": len(mixers), "mixer_options": options, "norm": "layer"}
        check(make_text(**fields, num_attention_heads=2), tmp_path, batch=2, length=13, sizes=[(2, 13)])

    def test_state_space(self, tmp_path):
        model = make_text("causal").to_state_space(tolerance=1e-2)
        check(model, tmp_path)

    def test_half_precision_is_exported_in_float32(self, causal, tmp_path):
        model = make_text("causal").to(torch.bfloat16).train()
        export_onnx(model, tmp_path / "model.onnx", length=5, batch=1)
        assert model.training
        assert model.lm_head.weight.dtype == torch.bfloat16
        inputs = make_inputs(model, 1, 5, mask=True)
        assert_equals_the_model(open_session(tmp_path / "model.onnx"), model.float().eval(), inputs)


@pytest.mark.slow
class TestFile:
    def test_has_standard_operations_only(self, causal):
        program = onnx.load(causal[1])
        onnx.checker.check_model(program, full_check=True)
        assert {node.domain for node in program.graph.node} == {""}
        assert not program.functions

    def test_names_and_sizes(self, causal):
        graph = onnx.load(causal[1]).graph
        sizes = {
            value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
            for value in (*graph.input, *graph.output)
        }
        assert sizes == {
            "input_ids": ["batch", "length"],
            "attention_mask": ["batch", "length"],
            "logits": ["batch", "length", VOCABULARY],
        }

    def test_tells_nothing_of_this_machine(self, causal):
        assert [file.name for file in causal[1].parent.iterdir()] == ["model.onnx"]
        assert b".py" not in causal[1].read_bytes()

    def test_a_failure_leaves_the_old_file(self, causal, tmp_path, monkeypatch):
        class Failing:
            def save(self, path, **options):
                path.write_text("half")
                raise OSError("disk full")

        monkeypatch.setattr(export_model, "onnx_program", lambda *args, **options: Failing())
        (tmp_path / "model.onnx").write_text("old")
        with pytest.raises(OSError, match="disk full"):
            export_onnx(causal[0], tmp_path / "model.onnx")
        assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
        assert (tmp_path / "model.onnx").read_text() == "old"


class TestRefusals:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", NOT_EXPORTABLE)
    def test_mixers_without_an_onnx_form(self, name, tmp_path, capfd):
        options = {"mixer_options": dict(find_mixer(name).small_options), "norm": "layer", "num_attention_heads": 2}
        model = make_text(mixer=name, **options)
        with pytest.raises(ValueError, match=f"^TNNForMaskedLM with mixer '{name}' cannot be exported") as caught:
            export_onnx(model, tmp_path / "model.onnx", batch=2, length=13)
        assert "\n" not in str(caught.value)
        assert caught.value.__suppress_context__
        assert capfd.readouterr() == ("", "")
        assert not list(tmp_path.iterdir())

    @pytest.mark.slow
    def test_a_graph_that_would_be_right_for_some_lengths_only(self, tmp_path):
        options = {"mixer_options": dict(find_mixer("elu").small_options), "num_attention_heads": 2}
        message = r"for any batch and length \(it may work if you give both\): some sizes are computed in another way$"
        with pytest.raises(ValueError, match=message):
            export_onnx(make_text("causal", mixer="elu", **options), tmp_path / "model.onnx", mask=False)

    @pytest.mark.slow
    def test_fourier_transforms(self, tmp_path):
        with pytest.raises(ValueError, match="Fourier transforms fail in ONNX runtimes"):
            export_onnx(make_text(mixer="fnet"), tmp_path / "model.onnx", mask=False, batch=2, length=13)

    @pytest.mark.slow
    def test_coefficients_that_depend_on_the_length_of_a_row(self, tmp_path):
        with pytest.raises(ValueError, match=r"mixed by their own lengths .*: export without a mask$"):
            export_onnx(make_text(rpe_input="normalized"), tmp_path / "model.onnx")

    def test_what_is_no_model(self, tmp_path):
        with pytest.raises(TypeError, match=r"^model must be a TNN model; got Linear$"):
            export_onnx(torch.nn.Linear(1, 1), tmp_path / "model.onnx")

    def test_sizes(self, tmp_path):
        with pytest.raises(ValueError, match=r"^length must be at least 1; got 0$"):
            export_onnx(make_text(), tmp_path / "model.onnx", length=0)

    def test_places_without_a_folder_or_with_one(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"to put model\.onnx into"):
            export_onnx(make_text(), tmp_path / "missing" / "model.onnx")
        with pytest.raises(IsADirectoryError, match="is a folder; give the name of the file"):
            export_onnx(make_text(), tmp_path)


def exported(model, mask, **options):
    """The graph of torch.export for any batch and length, as a function of the inputs."""
    sizes = {name: torch.export.Dim(name, min=1) for name in ("batch", "length", "pair_length")}
    inputs, columns = make_inputs(model, 2, 9, mask), {"": sizes["length"], "pair_": sizes["pair_length"]}
    if "pixel_values" in inputs:
        shapes = {"pixel_values": {0: sizes["batch"]}}
    else:
        shapes = {name: {0: sizes["batch"], 1: columns["pair_" if "pair" in name else ""]} for name in inputs}
    return torch.export.export(model, (), inputs, dynamic_shapes=shapes, **options).module()


@pytest.mark.slow
class TestTorchExport:
    @pytest.mark.parametrize(
        ("head", "mask"),
        [*((head, True) for head in TEXT_HEADS), ("causal", False), ("sequence", False), ("image", False)],
    )
    @torch.no_grad()
    def test_equals_eager_for_any_length(self, head, mask):
        model = make_image() if head == "image" else make_text(head, use_cache=False)
        graph = exported(model, mask)
        for batch, n in SIZES:
            inputs = make_inputs(model, batch, n, mask)
            found, expected = graph(**inputs)[0], model(**inputs)[0]
            where = inputs["attention_mask"] == 1 if mask and expected.ndim == 3 else ...
            torch.testing.assert_close(found[where], expected[where], atol=1e-5, rtol=1e-5)

    @pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects:UserWarning")  # of transformers
    @torch.no_grad()
    def test_strict(self):
        model = make_text("causal", use_cache=False)
        inputs = make_inputs(model, 3, 40, mask=True)
        found = exported(model, mask=True, strict=True)(**inputs).logits
        real = inputs["attention_mask"] == 1
        torch.testing.assert_close(found[real], model(**inputs).logits[real], atol=1e-5, rtol=1e-5)

    def test_the_product_stays_one_operator(self):
        """Whose backend is chosen when the graph runs: only ONNX gets plain operations."""
        called = {str(node.target) for node in exported(make_text("causal", use_cache=False), mask=False).graph.nodes}
        assert "tnn.toeplitz_export_convolve.default" in called
        assert not any("conv1d" in name for name in called)


@pytest.mark.slow
def test_the_exporter_of_transformers(tmp_path):
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    model = make_text("causal")
    inputs = {**make_inputs(model, 2, 9, mask=True), "use_cache": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about torch
        program = OnnxExporter().export(model, inputs, OnnxConfig(dynamic=True))
    program.save(tmp_path / "model.onnx")
    assert_equals_the_model(open_session(tmp_path / "model.onnx"), model, make_inputs(model, 3, 40, mask=True))


@pytest.mark.slow
@pytest.mark.parametrize("known", [[], ["hour"]])
def test_forecasts_of_any_length_with_missing_values(known, tmp_path):
    config = TNNSeriesConfig(targets=["a", "b"], known=known, horizon=4, hidden_size=8, num_hidden_layers=1, rpe_size=8)
    model = prepared(TNNForForecasting(config))
    export_onnx(model, tmp_path / "model.onnx")
    session = open_session(tmp_path / "model.onnx")
    for batch, n in SIZES:
        inputs = {"values": torch.randn(batch, n, 2)}
        inputs["values"][0, n // 2] = float("nan")
        inputs["values"][-1, :, 1] = 5  # a column that does not change
        if known:
            inputs["known"] = torch.rand(batch, n + 4, 1)
        assert_equals_the_model(session, model, inputs)
