"""Recipes of Long-Range Arena and of images, from the data to the score."""

import random
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForSequenceClassification, AutoTokenizer, pipeline

from tnn.data.lra.listops import evaluate_listops
from tnn.layers import count_parameters
from tnn.models import TNNForImageClassification, TNNForSequenceClassification, TNNForSequencePairClassification
from tnn.training import runs
from tnn.training.evaluation import evaluate
from tnn.training.recipe import ModelSection, list_recipes, load_recipe, parse_recipe
from tnn.training.run_recipe import train
from tnn.training.tasks.registry import find_task

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "rpe_size": 8}
LRA_RECIPES = [name for name in list_recipes() if name.startswith("lra-")]


def make(task, data, preset="mini-image", model=(), **training):
    settings = {"steps": 6, "batch_size": 4, "learning_rate": 0.003, "schedule": "cosine", "log_every": 1, **training}
    return parse_recipe(
        {
            "name": "tiny",
            "task": task,
            "model": {"preset": preset, **SIZES, **dict(model)},
            "data": data,
            "training": settings,
        }
    )


def quiet(text):
    pass


def build(recipe):
    return find_task(recipe.task).build(recipe)


@pytest.fixture
def reviews(tmp_path):
    """IMDb's layout; the good ones say so."""
    generator = random.Random(0)
    for split in ("train", "test"):
        for label, word in (("pos", "good"), ("neg", "poor")):
            (tmp_path / "imdb" / split / label).mkdir(parents=True)
            for i in range(20):
                text = " ".join(generator.choices(["a", "film", word], k=12))
                (tmp_path / "imdb" / split / label / f"{i}_7.txt").write_text(text)
    return tmp_path / "imdb"


@pytest.fixture
def lists(tmp_path):
    generator = random.Random(1)
    (tmp_path / "listops").mkdir()
    for split, count in (("train", 30), ("val", 8), ("test", 8)):
        rows = ["Source\tTarget\n"]
        for _ in range(count):
            a, b = generator.choices("0123456789", k=2)
            operator = generator.choice(["MIN", "MAX", "MED", "SM"])
            source = f"( ( ( [{operator} {a} ) {b} ) ] )"
            rows.append(f"{source}\t{evaluate_listops(source)}\n")
        (tmp_path / "listops" / f"basic_{split}.tsv").write_text("".join(rows))
    return tmp_path / "listops"


@pytest.fixture
def pairs(tmp_path):
    (tmp_path / "aan").mkdir()
    for split, count in (("train", 20), ("eval", 6), ("test", 6)):
        rows = [f"{float(i % 2)}\tid{i}\tid{i + 1}\ttext number {i}\tanother of {i}\n" for i in range(count)]
        (tmp_path / "aan" / f"new_aan_pairs.{split}.tsv").write_text("".join(rows))
    return tmp_path / "aan"


@pytest.fixture
def arrays(tmp_path):
    """Images of 32 x 32, dark ones and bright ones."""
    generator = np.random.default_rng(0)
    (tmp_path / "cifar").mkdir()
    for split, count in (("train", 120), ("test", 30)):
        labels = np.arange(count) % 2
        pixels = generator.integers(0, 50, (count, 32, 32)) + 200 * labels[:, None, None]
        np.save(tmp_path / "cifar" / f"x_{split}.npy", pixels.astype(np.uint8))
        np.save(tmp_path / "cifar" / f"y_{split}.npy", labels.astype(np.uint8))
    return tmp_path / "cifar"


@pytest.fixture
def image_folder(tmp_path):
    """Red and blue ones, of different sizes."""
    generator = np.random.default_rng(0)
    for split, count in (("train", 12), ("val", 4)):
        for name, channel in (("blue", 2), ("red", 0)):
            folder = tmp_path / "images" / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = generator.integers(0, 60, (20 + i, 24, 3))
                pixels[..., channel] += 180
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.png")
    return tmp_path / "images"


@pytest.fixture
def colours(tmp_path):
    """Colour images of 32 x 32: a bright corner shows what was cropped."""
    (tmp_path / "colours").mkdir()
    for split, count in (("train", 40), ("test", 10)):
        pixels = np.tile(np.arange(32)[:, None] * np.arange(32) // 4, (count, 3, 1, 1)).transpose(0, 2, 3, 1)
        np.save(tmp_path / "colours" / f"x_{split}.npy", pixels.astype(np.uint8))
        np.save(tmp_path / "colours" / f"y_{split}.npy", np.arange(count) % 2)
    return tmp_path / "colours"


def lra_data(task, folder, **more):
    return {"task": task, "folder": str(folder), "check_counts": False, **more}


@pytest.mark.slow
def test_text(reviews, tmp_path):
    recipe = make("lra", lra_data("text", reviews), "lra-text", steps=40, learning_rate=0.01, batch_size=8)
    metrics = train(recipe, tmp_path / "run", log=quiet)
    assert metrics["majority_eval_accuracy"] == 0.5
    assert metrics["eval_accuracy"] > 0.9  # one word tells
    output = evaluate(tmp_path / "run")
    assert f"accuracy       {metrics['eval_accuracy']:.4f} on test, 40 examples" in output
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run").eval()
    review = next((reviews / "test" / "pos").iterdir()).read_text()
    with torch.no_grad():
        logits = model(**tokenizer(review, return_tensors="pt")).logits
    (output,) = pipeline("text-classification", model=str(tmp_path / "run"))(review)
    assert output["label"] == f"LABEL_{logits.argmax()}" == "LABEL_1"


@pytest.mark.slow
def test_lists_in_both_readings(lists, tmp_path):
    for flavour, vocabulary in (("tnn", 18), ("skyformer", 32)):
        recipe = make("lra", lra_data("listops", lists, flavour=flavour), "lra-listops")
        task = build(recipe)
        assert isinstance(model := task.make_model(), TNNForSequenceClassification)
        assert model.config.vocab_size == vocabulary
        assert model.config.num_labels == 10
    metrics = train(recipe, tmp_path / "run", log=quiet)
    assert {"eval_accuracy", "test_accuracy", "majority_test_accuracy"} <= set(metrics)
    assert f"{metrics['test_accuracy']:.4f} on test, 8 examples" in evaluate(tmp_path / "run")
    for name in ("tokenizer.json", "tokenizer_config.json"):  # its ids are never learned again, from other data
        (tmp_path / "run" / name).unlink()
        with pytest.raises(ValueError, match=r"its tokenizer.json is missing|has no tokenizer files"):
            evaluate(tmp_path / "run")


@pytest.mark.slow
def test_pairs(pairs, tmp_path):
    recipe = make("lra", lra_data("retrieval", pairs), "lra-retrieval")
    assert isinstance(build(recipe).make_model(), TNNForSequencePairClassification)
    metrics = train(recipe, tmp_path / "run", log=quiet)
    assert f"{metrics['test_accuracy']:.4f} on test, 6 examples" in evaluate(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("dims", [1, 2])
def test_pixels(arrays, tmp_path, dims):
    recipe = make("lra", lra_data("image", arrays), "lra-image", {"dims": dims}, steps=30, learning_rate=0.01)
    output = []
    metrics = train(recipe, tmp_path / "run", log=output.append)
    assert metrics["test_accuracy"] > 0.9
    assert output[-1].startswith(f"validation accuracy {metrics['eval_accuracy']:.4f} (")
    assert f"{metrics['test_accuracy']:.4f} on test, 30 examples" in evaluate(tmp_path / "run")


def test_pixels_as_tokens(arrays):
    task = build(make("lra", lra_data("image", arrays, flavour="skyformer"), "lra-listops"))
    batch = task.collate([task.train[0], task.train[1]])
    model = task.make_model()
    assert model.config.vocab_size == 256
    assert model(**batch).logits.shape == (2, 10)


@pytest.mark.slow
def test_a_run_is_resumed(arrays, tmp_path):
    """With dropout, and images that are augmented differently each time."""
    data = {
        "images": str(arrays),
        "size": 32,
        "mean": [0.5],
        "std": [0.25],
        "augmentation": {"flip": 0.5, "shift": 2, "mixup": 0.8, "cutmix": 1.0, "label_smoothing": 0.1},
        "repeats": 2,
    }
    recipe = make("image", data, "mini-image", {"dropout": 0.1}, save_every=3, keep_checkpoints=5)
    complete = train(recipe, tmp_path / "complete", log=quiet)
    train(recipe, tmp_path / "parts", log=quiet)
    for name in ("config.json", "model.safetensors", "measured.json"):
        (tmp_path / "parts" / name).unlink()
    last = tmp_path / "parts" / "checkpoints" / "checkpoint-6"
    last.rename(tmp_path / "gone")
    assert train(recipe, tmp_path / "parts", resume=True, log=quiet) == complete
    weights = [TNNForImageClassification.from_pretrained(tmp_path / run).state_dict() for run in ("complete", "parts")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize("mixing", ["mixup", "cutmix"])
def test_mixed_images_need_the_same_micro_batches(tmp_path, mixing):
    def of(size, **augmentation):
        return make("image", {"images": "none", "augmentation": augmentation}, micro_batch_size=size)

    runs.begin(tmp_path, of(4, flip=0.5), {})
    runs.check(tmp_path, of(2, flip=0.5), resume=True)
    runs.begin(tmp_path, of(4, **{mixing: 0.8}), {})
    with pytest.raises(ValueError, match=r"another recipe: training.micro_batch_size was 4, and is 2 now$"):
        runs.check(tmp_path, of(2, **{mixing: 0.8}), resume=True)


@pytest.mark.slow
def test_images(image_folder, tmp_path):
    data = {"images": str(image_folder), "size": 16, "augmentation": {"crop_scale": [0.5, 1.0], "flip": 0.5}}
    recipe = make("image", data, "mini-image", {"patch_size": 4}, steps=30, learning_rate=0.01)
    metrics = train(recipe, tmp_path / "run", log=quiet)
    assert metrics["eval_accuracy"] > 0.9
    assert f"{metrics['eval_accuracy']:.4f} on validation, 8 examples" in evaluate(tmp_path / "run")
    assert f"{metrics['eval_accuracy']:.4f} on validation" in evaluate(tmp_path / "run", str(image_folder))
    assert AutoImageProcessor.from_pretrained(tmp_path / "run").crop_size["height"] == 16
    classify = pipeline("image-classification", model=str(tmp_path / "run"))
    assert classify(Image.new("RGB", (30, 20), (220, 30, 30)))[0]["label"] == "red"


@pytest.mark.parametrize("size", [16, 32])
def test_the_saved_processor_does_what_the_evaluation_does(colours, size):
    """With images that are resized, and with those that have the size already."""
    task = build(make("image", {"images": str(colours), "size": size, "crop": 0.75}, "mini-image"))
    for number in range(3):
        image = Image.fromarray(task.validation.images[number].permute(1, 2, 0).numpy())
        pixels = task.processor(image, return_tensors="pt")["pixel_values"][0]
        torch.testing.assert_close(pixels, task.validation[number]["pixel_values"], atol=0.05, rtol=0)


def test_a_recipe_crops_in_training_as_in_evaluation(colours):
    task = build(make("image", {"images": str(colours), "size": 16, "crop": 0.5}, "mini-image"))
    assert task.train.crop_fraction == task.validation.crop_fraction == 0.5


def test_more_labels_than_classes(image_folder):
    data = {"images": str(image_folder), "size": 16}
    assert build(make("image", data, "mini-image", {"num_labels": 1000})).make_model().config.num_labels == 1000
    with pytest.raises(ValueError, match=r"model.num_labels must be at least 2, the number of classes; got 1"):
        build(make("image", data, "mini-image", {"num_labels": 1}))


@pytest.mark.parametrize(
    ("recipe", "parameters"),
    [("lra-text", 66_624), ("lra-listops", 66_624), ("lra-image", 70_016), ("lra-image-large", 3_096_064)],
)
def test_encoders_of_lra(recipe, parameters, reviews, lists, arrays):
    loaded = load_recipe(recipe, ["data.check_counts=false"])
    folder = {"text": reviews, "listops": lists, "image": arrays}[loaded.data.task]
    model = build(load_recipe(recipe, [f"data.folder={folder}", "data.check_counts=false"])).make_model()
    encoder = model.model
    outside = encoder.embed_tokens if hasattr(encoder, "embed_tokens") else encoder.patch_proj
    assert count_parameters(encoder).trained - count_parameters(outside).trained == parameters


@pytest.mark.parametrize(("recipe", "parameters"), [("imagenet-tiny", 6_408_232), ("imagenet-small", 23_373_544)])
def test_models_of_imagenet(recipe, parameters, image_folder):
    loaded = load_recipe(recipe, [f"data.images={image_folder}", "model.num_labels=1000"])
    assert count_parameters(build(loaded).make_model()).trained == parameters


@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        ("lra-text", {"learning_rate": 1.05e-3, "batch_size": 32, "warmup_steps": 80, "epochs": 32, "weight_decay": 0}),
        ("lra-image", {"learning_rate": 7.25e-3, "batch_size": 50, "warmup_steps": 175, "epochs": 200}),
        (
            "lra-retrieval-large",
            {"learning_rate": 1e-2, "batch_size": 64, "warmup_steps": 25_000, "weight_decay": 0.01},
        ),
        (
            "imagenet-tiny",
            {"learning_rate": 2e-3, "batch_size": 2048, "clip": 5.0, "epochs": 300, "weight_decay": 0.05},
        ),
    ],
)
def test_settings_of_the_paper(recipe, settings):
    training = load_recipe(recipe).training
    assert {key: getattr(training, key) for key in settings} == settings


@pytest.mark.parametrize("name", LRA_RECIPES)
def test_what_all_of_lra_share(name):
    training = load_recipe(name).training
    assert (training.schedule, training.schedule_steps, training.seed) == ("cosine", 50_000, 2222)
    assert (training.betas, training.epsilon, training.clip) == ((0.9, 0.999), 1e-8, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["data.task=listop"], r"no task 'listop' in Long-Range Arena; did you mean 'listops'\?"),
        (["data.flavour=s4"], r"data.flavour: input should be 'tnn' or 'skyformer'; got 's4'"),
        (["data.foldr=here"], r"unknown key 'data.foldr'; did you mean 'data.folder'\?"),
    ],
)
def test_mistakes_in_lra_recipes(changes, message):
    with pytest.raises(ValueError, match=message):
        load_recipe("lra-listops", changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["data.augmentation.flop=0.5"], r"data: augmentation: unknown key 'flop'; did you mean 'flip'\?"),
        (["data.augmentation.flip=2"], r"flip must be in \[0, 1\]; got 2"),
        (["data.mean=[0.5]"], r"mean and std must have one number per channel"),
    ],
)
def test_mistakes_in_image_recipes(changes, message):
    with pytest.raises(ValueError, match=message):
        load_recipe("imagenet-tiny", changes)


def test_models_of_another_kind(lists, arrays, image_folder):
    with pytest.raises(ValueError, match=r"must be a text model for listops with flavour tnn; got 'lra-image'"):
        build(make("lra", lra_data("listops", lists), "lra-image")).make_model()
    with pytest.raises(ValueError, match=r"must be an image model for image with flavour tnn; got 'lra-listops'"):
        build(make("lra", lra_data("image", arrays), "lra-listops")).make_model()
    with pytest.raises(ValueError, match=r"model.preset must be an image model; got 'lra-text'"):
        build(make("image", {"images": str(image_folder), "size": 16}, "lra-text")).make_model()


def test_counts_are_checked(lists):
    with pytest.raises(ValueError, match=r"listops: the train split must have 96,000 examples, as published; got 30"):
        build(load_recipe("lra-listops", [f"data.folder={lists}"]))


@pytest.mark.slow
def test_classifiers_are_scored_on_all_labelled_examples(lists, tmp_path):
    train(make("lra", lra_data("listops", lists), "lra-listops", steps=1), tmp_path / "run", log=quiet)
    for options in ({"length": 10}, {"stream": True}, {"split": "train"}):
        with pytest.raises(ValueError, match=r"classifiers are scored on all labelled examples"):
            evaluate(tmp_path / "run", **options)


def test_all_classes_have_an_output(lists):
    with pytest.raises(ValueError, match=r"model.num_labels must be at least 10, the number of classes; got 5"):
        build(make("lra", lra_data("listops", lists), "lra-listops", {"num_labels": 5})).make_model()


@pytest.mark.slow
def test_other_classes(image_folder, tmp_path):
    """A model is not scored on classes that it does not know; but it can learn them."""
    data = {"images": str(image_folder), "size": 16}
    train(make("image", data, "mini-image", steps=1), tmp_path / "run", log=quiet)
    for split in ("train", "val"):
        (image_folder / split / "blue").rename(image_folder / split / "green")
        shutil.copytree(image_folder / split / "red", image_folder / split / "yellow")
    with pytest.raises(ValueError, match=r"has other classes than the model was trained on: 'green' differs"):
        evaluate(tmp_path / "run")
    recipe = make("image", data, steps=1)
    recipe = recipe.model_copy(update={"model": ModelSection(start_from=str(tmp_path / "run"))})
    model, old = build(recipe).make_model(), TNNForImageClassification.from_pretrained(tmp_path / "run")
    assert list(model.config.id2label.values()) == ["green", "red", "yellow"]
    assert torch.equal(model.model.patch_proj.weight, old.model.patch_proj.weight)


# --- fingerprints: data that changed are found when a run is resumed


def data_fingerprint(recipe):
    return build(recipe).fingerprints()["data"]


def replace_once(path, old, new):
    path.write_text(path.read_text().replace(old, new, 1))


def test_changed_texts_are_found(lists, pairs, reviews):
    files = {
        ("listops", "lra-listops"): (lists, lists / "basic_val.tsv", "[M", "[S"),
        ("retrieval", "lra-retrieval"): (pairs, pairs / "new_aan_pairs.test.tsv", "text", "test"),
        ("text", "lra-text"): (reviews, reviews / "train" / "pos" / "0_7.txt", "good", "fine"),
    }
    for (task, preset), (folder, path, old, new) in files.items():
        recipe = make("lra", lra_data(task, folder), preset)
        before = data_fingerprint(recipe)
        path.touch()
        assert data_fingerprint(recipe) == before
        replace_once(path, old, new)
        assert data_fingerprint(recipe) != before, task


def test_changed_pixels_are_found(arrays):
    recipe = make("lra", lra_data("image", arrays), "lra-image")
    before = data_fingerprint(recipe)
    assert data_fingerprint(recipe) == before
    pixels = np.load(arrays / "x_test.npy")
    pixels[0, 0, 0] += 1
    np.save(arrays / "x_test.npy", pixels)
    assert data_fingerprint(recipe) != before


def test_changed_images_are_found(image_folder):
    recipe = make("image", {"images": str(image_folder), "size": 16})
    before = data_fingerprint(recipe)
    (image_folder / ".notes").touch()
    assert data_fingerprint(recipe) == before
    shutil.copy(image_folder / "val" / "red" / "1.png", image_folder / "val" / "red" / "0.png")
    assert data_fingerprint(recipe) != before
