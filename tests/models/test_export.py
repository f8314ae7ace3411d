"""The exported decoding step: the same logits as the model's own cached decoding."""

import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from tnn import TNNConfig, TNNForCausalLM
from tnn.models import export
from tnn.models.export import DecodingStep, export_step

VOCABULARY, LAYERS = 64, 2


def make_model(**changes):
    torch.manual_seed(0)
    defaults = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": LAYERS, "decay": 0.9}
    defaults |= {"rpe_size": 8, "rpe_num_layers": 2}
    defaults |= {"initializer_range": 0.3}  # large, so that logits depend on the states
    return TNNForCausalLM(TNNConfig(**(defaults | changes))).eval()


@torch.no_grad()
def make_state_space(**changes):
    """With poles that oscillate, which a fit of such smooth kernels does not have."""
    model = make_model(**changes).to_state_space(tolerance=1e-2)
    for layer in model.model.layers:
        kernel = layer.operator.poles
        angle = torch.linspace(0.3, 2, len(kernel.poles))
        kernel.poles.copy_(kernel.poles.norm(dim=1, keepdim=True) * torch.stack([angle.cos(), angle.sin()], 1))
        kernel.weights.normal_(std=0.2)
    return model


@pytest.fixture(scope="module")
def model():
    return make_state_space()


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "step.onnx"
    export_step(model, path)
    return path


@pytest.fixture(scope="module")
def onnx_step(path):
    """The file as a function of tensors, as DecodingStep is one."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]

    def run(*tensors):
        feed = {name: np.asarray(tensor) for name, tensor in zip(names, tensors, strict=True)}
        return [torch.from_numpy(output) for output in session.run(None, feed)]

    return run


def decode(step, ids, states):
    """(batch, n, vocab_size), token by token."""
    logits = []
    for token in ids.split(1, 1):
        new, *states = step(token, *states)
        logits.append(new)
    return torch.stack(logits, 1)


@torch.no_grad()
def decode_cached(model, ids, cache):
    return torch.cat([model(token, past_key_values=cache).logits for token in ids.split(1, 1)], 1)


def random_ids(batch, n):
    return torch.randint(3, VOCABULARY, (batch, n), generator=torch.Generator().manual_seed(n))


def assert_close(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def exported(step):
    rows = {0: torch.export.Dim("batch")}
    inputs = (random_ids(2, 1), *step.initial_states(2))
    return torch.export.export(step, inputs, dynamic_shapes={"input_ids": rows, "states": (rows,) * (2 * LAYERS)})


class TestStep:
    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"mixer": "gtu", "norm": "rms", "tie_word_embeddings": False},
            {"embedding_norm": True, "scale_embedding": True, "norm_position": "post"},
            {"embedding_size": 5, "scale_embedding": True},
            {"short_convolution": 3, "input_gate": True},
            {"rpe_activation": "sin", "decay": [0.5, 0.9]},
            {"inner_norm": "layer", "norm": "batch", "hidden_act": "gelu", "final_norm": None, "dropout": 0.5},
        ],
    )
    def test_equals_the_model(self, changes):
        model, ids = make_state_space(**changes), random_ids(2, 40)
        step = DecodingStep(model)
        logits = decode(step, ids, step.initial_states(2))
        assert_close(logits, decode_cached(model, ids, model.model.new_cache()))
        with torch.no_grad():
            assert_close(logits, model(ids).logits)

    @pytest.mark.parametrize(("taps", "length"), [(None, 30), (4, 30), (4, 2)])
    def test_goes_on_after_a_prompt(self, taps, length):
        model = make_state_space(short_convolution=taps)
        prompt, ids = random_ids(2, length), random_ids(2, 10)
        with torch.no_grad():
            cache = model(prompt, use_cache=True).past_key_values
        step = DecodingStep(model)
        logits = decode(step, ids, step.states_of(cache))
        assert_close(logits, decode_cached(model, ids, cache))

    def test_is_a_copy_in_float32(self):
        model = make_state_space().to(torch.bfloat16).train()
        step = DecodingStep(model)
        logits, *states = step(random_ids(1, 1), *step.initial_states(1))
        assert {tensor.dtype for tensor in (logits, *states)} == {torch.float32}
        assert not logits.requires_grad
        assert not any(module.training for module in step.modules())
        assert model.training
        assert model.lm_head.weight.dtype == torch.bfloat16

    @pytest.mark.slow
    @pytest.mark.parametrize("batch", [1, 3])
    def test_torch_export_equals_eager(self, model, batch):
        step, ids = DecodingStep(model), random_ids(batch, 8)
        states = step.initial_states(batch)
        torch.testing.assert_close(decode(exported(step).module(), ids, states), decode(step, ids, states))

    @pytest.mark.slow
    def test_torch_export_has_plain_operations_only(self, model):
        nodes = exported(DecodingStep(model)).graph.nodes
        called = [node for node in nodes if node.op == "call_function"]
        assert {getattr(node.target, "namespace", node.target.__module__) for node in called} <= {"aten", "_operator"}
        values = [node.meta["val"] for node in nodes if isinstance(node.meta.get("val"), torch.Tensor)]
        assert {value.dtype for value in values} == {torch.float32, torch.int64}


class TestOnnx:
    @pytest.mark.slow
    @pytest.mark.parametrize("batch", [1, 3])
    def test_equals_cached_decoding(self, model, onnx_step, batch):
        ids = random_ids(batch, 20)
        logits = decode(onnx_step, ids, DecodingStep(model).initial_states(batch))
        assert_close(logits, decode_cached(model, ids, model.model.new_cache()))

    @pytest.mark.slow
    @pytest.mark.parametrize("batch", [1, 3])
    def test_goes_on_after_a_prompt(self, model, onnx_step, batch):
        prompt, ids = random_ids(batch, 30), random_ids(batch, 20)
        with torch.no_grad():
            cache = model(prompt, use_cache=True).past_key_values
        logits = decode(onnx_step, ids, DecodingStep(model).states_of(cache))
        assert_close(logits, decode_cached(model, ids, cache))

    def test_has_standard_real_operations_only(self, path):
        program = onnx.load(path)
        onnx.checker.check_model(program, full_check=True)
        graph = program.graph
        assert {node.domain for node in graph.node} == {""}
        assert not program.functions
        values = [*graph.input, *graph.output, *graph.value_info]
        types = {value.type.tensor_type.elem_type for value in values} | {
            value.data_type for value in graph.initializer
        }
        assert types <= {onnx.TensorProto.FLOAT, onnx.TensorProto.INT64}

    def test_names_and_shapes(self, path):
        graph = onnx.load(path).graph
        states = [f"{kind}_{i}" for i in range(LAYERS) for kind in ("state", "recent")]
        assert [value.name for value in graph.input] == ["input_ids", *states]
        assert [value.name for value in graph.output] == ["logits", *(f"new_{name}" for name in states)]
        for value in (*graph.input, *graph.output):
            assert value.type.tensor_type.shape.dim[0].dim_param == "batch"

    def test_tells_nothing_of_this_machine(self, path):
        assert [file.name for file in path.parent.iterdir()] == ["step.onnx"]
        assert b".py" not in path.read_bytes()

    def test_a_failure_leaves_the_old_file(self, model, tmp_path, monkeypatch):
        class Failing:
            def save(self, path, **options):
                path.write_text("half")
                raise OSError("disk full")

        monkeypatch.setattr(export, "onnx_program", lambda *args, **options: Failing())
        (tmp_path / "step.onnx").write_text("old")
        with pytest.raises(OSError, match="disk full"):
            export_step(model, tmp_path / "step.onnx")
        assert [file.name for file in tmp_path.iterdir()] == ["step.onnx"]
        assert (tmp_path / "step.onnx").read_text() == "old"


class TestRefusals:
    def test_no_state_space(self):
        with pytest.raises(ValueError, match=r"convert it with to_state_space\(\) first"):
            DecodingStep(make_model())

    def test_another_class(self, model):
        with pytest.raises(TypeError, match="must be a TNNForCausalLM; got TNNModel"):
            DecodingStep(model.model)

    def test_positions(self):
        with pytest.raises(ValueError, match=r"position_embedding must be 'none'.*got 'sinusoidal'"):
            DecodingStep(make_state_space(position_embedding="sinusoidal"))

    def test_state_space_of_bounded_length(self):
        with pytest.raises(ValueError, match="wrong after 20 of them"):
            DecodingStep(make_model().to_state_space(method="dft", length=20))

    def test_wrong_inputs(self, model):
        step = DecodingStep(model)
        with pytest.raises(ValueError, match=r"one token per row; got shape \(1, 2\)"):
            step(random_ids(1, 2), *step.initial_states(1))
        with pytest.raises(ValueError, match="must be 4 tensors; got 3"):
            step(random_ids(1, 1), *step.initial_states(1)[1:])
        with pytest.raises(ValueError, match="batch must be at least 1; got 0"):
            step.initial_states(0)

    def test_missing_folder(self, model, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"to put step\.onnx into"):
            export_step(model, tmp_path / "missing" / "step.onnx")

    def test_missing_packages(self, model, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "onnxscript", None)
        with pytest.raises(ImportError, match=r"needs onnxscript: pip install 'toeplitz-nn\[onnx\]'"):
            export_step(model, tmp_path / "step.onnx")
