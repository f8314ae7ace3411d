"""Image models: patches, grids and sequences, loading, training, the pipeline."""

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    AutoModel,
    AutoModelForImageClassification,
    Trainer,
    TrainingArguments,
    ViTImageProcessorPil,
    pipeline,
)

from tnn import TNNForImageClassification, TNNImageConfig, TNNImageModel

FORMS = {
    "grid": {"patch_size": 4},
    "product": {"patch_size": 4, "form": "product"},
    "sequence": {"patch_size": 4, "dims": 1},
    "pixels": {"patch_size": 1, "num_channels": 1, "image_size": 8, "position_embedding": "sinusoidal"},
    "lra": {
        "patch_size": 1,
        "num_channels": 1,
        "image_size": 8,
        "norm": "batch",
        "inner_norm": "layer",
        "final_norm": "batch",
        "pool_norm": None,
        "pooling": "last",
        "position_embedding": "sinusoidal",
    },
    "attention": {"patch_size": 4, "dims": 1, "mixer": "attention"},
}
forms = pytest.mark.parametrize("form", FORMS)


def tiny(**changes):
    defaults = {"image_size": 16, "hidden_size": 16, "num_hidden_layers": 2, "rpe_size": 8, "num_labels": 5}
    return TNNForImageClassification(TNNImageConfig(**(defaults | changes))).eval()


def images_for(model, batch=2):
    return torch.randn(batch, model.config.num_channels, model.config.image_size, model.config.image_size)


@forms
def test_round_trip(form, tmp_path):
    model = tiny(**FORMS[form])
    model.save_pretrained(tmp_path)
    loaded = AutoModelForImageClassification.from_pretrained(tmp_path)
    images = images_for(model)
    assert torch.equal(loaded(images).logits, model(images).logits)
    assert type(AutoModel.from_pretrained(tmp_path)) is TNNImageModel
    half = AutoModelForImageClassification.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert (half(images).logits.float() - model(images).logits).abs().max() < 0.1


@forms
def test_training_step_reaches_every_parameter(form):
    model = tiny(**FORMS[form]).train()
    out = model(images_for(model), labels=torch.tensor([0, 4]))
    out.loss.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_patches_are_rows_of_pixels_with_channels_last():
    model = tiny(patch_size=2, image_size=4)
    image = torch.arange(3 * 4 * 4).reshape(1, 3, 4, 4)
    patches = model.model._patches(image)
    assert patches.shape == (1, 2, 2, 12)
    expected = [image[0, c, 2 + row, 0 + column] for row in range(2) for column in range(2) for c in range(3)]
    assert patches[0, 1, 0].tolist() == [int(v) for v in expected]


def test_operator_of_the_grid_has_two_axes():
    """Row and column neighbours reach a patch, those off both do not, in one layer of the sum form."""
    config = TNNImageConfig(image_size=16, patch_size=4, hidden_size=8, num_hidden_layers=1, rpe_size=4)
    model = TNNImageModel(config).eval()
    image = torch.randn(1, 3, 16, 16, requires_grad=True)
    model(image).last_hidden_state[0, 1 * 4 + 2].sum().backward()
    reached = image.grad[0].abs().sum(0).unfold(0, 4, 4).unfold(1, 4, 4).sum((-1, -2)) > 0  # (4, 4) patches
    expected = torch.zeros(4, 4, dtype=torch.bool)
    expected[1], expected[:, 2] = True, True
    assert torch.equal(reached, expected)


def test_images_of_other_sizes():
    model = tiny(patch_size=4)
    assert model(torch.randn(1, 3, 24, 8)).logits.shape == (1, 5)


@pytest.mark.slow
@forms
def test_compile_and_export_equal_eager(form):
    torch._dynamo.reset()
    model = tiny(**FORMS[form])
    images = images_for(model)
    expected = model(images).logits
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(images).logits, expected, atol=1e-5, rtol=1e-5)
    program = torch.export.export(model, (images,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    more = images_for(model, batch=5)
    torch.testing.assert_close(program.module()(more).logits, model(more).logits, atol=1e-5, rtol=1e-5)


def test_gradient_checkpointing_and_hidden_states():
    model = tiny(patch_size=4).train()
    images, labels = images_for(model), torch.tensor([1, 2])
    gradients = []
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable()
        model.zero_grad()
        model(images, labels=labels).loss.backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)
    assert [h.shape for h in model(images, output_hidden_states=True).hidden_states] == [(2, 16, 16)] * 3


@pytest.mark.slow
def test_trainer_and_resume(tmp_path):
    torch.manual_seed(0)
    model = tiny(patch_size=4)
    examples = [{"pixel_values": torch.randn(3, 16, 16), "labels": i % 5} for i in range(16)]
    state = {name: value.clone() for name, value in model.state_dict().items()}

    def train(folder, resume=None):
        model.load_state_dict(state)
        arguments = TrainingArguments(
            output_dir=str(folder),
            max_steps=4,
            save_steps=2,
            per_device_train_batch_size=4,
            learning_rate=1e-2,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        Trainer(model=model, args=arguments, train_dataset=examples).train(resume_from_checkpoint=resume)
        return [p.detach().clone() for p in model.parameters()]

    whole = train(tmp_path / "whole")
    resumed = train(tmp_path / "part", str(tmp_path / "whole" / "checkpoint-2"))
    assert all(torch.equal(a, b) for a, b in zip(whole, resumed, strict=True))


def test_pipeline(tmp_path):
    tiny(patch_size=4, id2label={i: f"class {i}" for i in range(5)}).save_pretrained(tmp_path)
    ViTImageProcessorPil(size={"height": 16, "width": 16}).save_pretrained(tmp_path)
    classify = pipeline("image-classification", model=str(tmp_path))
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (30, 40, 3), dtype=np.uint8))
    out = classify(image, top_k=5)
    assert {o["label"] for o in out} == {f"class {i}" for i in range(5)}
    assert abs(sum(o["score"] for o in out) - 1) < 1e-5


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 3, 18, 16), "multiples of the patch size 4; got 18 x 16"),
        ((1, 3, 0, 16), "multiples of the patch size 4; got 0 x 16"),
        ((1, 1, 16, 16), r"pixel_values must be \(batch, 3, height, width\); got shape \(1, 1, 16, 16\)"),
        ((3, 16, 16), r"pixel_values must be \(batch, 3, height, width\); got shape \(3, 16, 16\)"),
    ],
)
def test_bad_images(shape, message):
    with pytest.raises(ValueError, match=message):
        tiny(patch_size=4)(torch.randn(shape))


def test_bad_label():
    with pytest.raises(ValueError, match=r"labels must be in 0 .. 4; got 5"):
        tiny(patch_size=4)(torch.randn(1, 3, 16, 16), labels=torch.tensor([5]))
