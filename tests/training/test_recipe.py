"""Recipes: what is read, what is refused, and what the paper's settings are."""

import pytest
import yaml

from tnn import list_presets, load_preset
from tnn.training.recipe import dump_recipe, list_recipes, load_recipe, parse_recipe, read_yaml
from tnn.training.settings import describe


@pytest.mark.parametrize("name", list_recipes())
def test_every_recipe_is_valid_and_named_for_its_file(name):
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.about
    assert parse_recipe(yaml.safe_load(dump_recipe(recipe))) == recipe


@pytest.mark.parametrize("name", sorted(set(list_recipes()) & set(list_presets())))
def test_a_recipe_with_the_name_of_a_preset_trains_that_preset(name):
    assert load_recipe(name).model.preset == name


@pytest.mark.parametrize(
    ("name", "settings"),
    {
        "wikitext103-alm": {
            "steps": 50_000, "batch_size": 128, "learning_rate": 5e-4, "schedule": "inverse-sqrt", "warmup_steps": 4000,
            "warmup_from": 1e-7, "betas": (0.9, 0.98), "epsilon": 1e-8, "weight_decay": 0.2, "clip": 1.0,
        },
        "wikitext103-blm": {
            "steps": 50_000, "batch_size": 512, "learning_rate": 5e-4, "schedule": "polynomial", "warmup_steps": 3000,
            "warmup_from": 0.0, "betas": (0.9, 0.98), "epsilon": 1e-6, "weight_decay": 0.2, "clip": 1.0,
        },
    }.items(),
)  # fmt: skip
def test_settings_of_the_paper(name, settings):
    recipe = load_recipe(name)
    assert {key: getattr(recipe.training, key) for key in settings} == settings
    assert recipe.data.length == 512


def test_models_of_the_paper():
    assert load_preset(load_recipe("wikitext103-alm").model.preset).num_hidden_layers == 7
    assert load_recipe("wikitext103-alm").model.changes == {"vocab_size": 50_264}
    assert load_recipe("wikitext103-blm").model.changes == {"vocab_size": 50_265}


@pytest.mark.parametrize(
    ("task", "batch", "warmup"),
    [
        ("mnli", 32, 0.06),
        ("qnli", 32, 0.06),
        ("qqp", 32, 0.25),
        ("sst2", 32, 0.06),
        ("mrpc", 16, 0.06),
        ("cola", 16, 0.06),
    ],
)
def test_fine_tuning_of_the_paper(task, batch, warmup):
    recipe = load_recipe(f"glue-{task}")
    assert recipe.data.tasks == (task,)
    assert recipe.learning_rates == (1e-5, 3e-5, 6e-5, 1e-4)
    assert (recipe.training.epochs, recipe.training.batch_size, recipe.training.warmup_ratio) == (3, batch, warmup)


def test_settings_are_printed():
    lines = dict(line.split(maxsplit=1) for line in describe(load_recipe("wikitext103-alm")).splitlines())
    assert (lines["updates"], lines["schedule"], lines["clipping"]) == ("50,000", "inverse-sqrt", "1")


def test_changes():
    changes = ["training.steps=7", "model.decay=1", "data.tokenizer=bpe:500", "training.arguments.fsdp=full_shard"]
    recipe = load_recipe("mini-alm", changes)
    assert recipe.training.steps == 7
    assert recipe.model.changes == {"decay": 1}
    assert recipe.data.tokenizer == "bpe:500"
    assert recipe.training.arguments == {"fsdp": "full_shard"}


def test_numbers_as_people_write_them():
    recipe = load_recipe("mini-alm", ["model.bandwidth_tolerance=1e-5", "training.learning_rate=1E-3"])
    assert recipe.model.changes == {"bandwidth_tolerance": 1e-5}
    assert recipe.training.learning_rate == 1e-3


def test_nothing_is_a_value_of_a_model():
    recipe = load_recipe("mini-alm", ["model.pad_token_id=null"])
    assert parse_recipe(yaml.safe_load(dump_recipe(recipe))) == recipe


def test_tasks_are_known_before_any_work():
    with pytest.raises(ValueError, match=r"no GLUE task 'mrcp'; did you mean 'mrpc'\?"):
        load_recipe("mini-glue", ["data.tasks=[cola, mrcp]"])


def test_fine_tuning_needs_a_trained_model():
    message = "mini-glue: model.start_from must be the folder of a trained model; got preset mini-blm"
    with pytest.raises(ValueError, match=f"^{message}$"):
        load_recipe("mini-glue", ["model.start_from=null", "model.preset=mini-blm"])


def test_a_file(tmp_path):
    path = tmp_path / "mine.yaml"
    values = yaml.safe_load(dump_recipe(load_recipe("mini-alm")))
    del values["name"]
    path.write_text(yaml.safe_dump(values))
    assert load_recipe(str(path)).name == "mine"


MISTAKES = {
    "training.stps=3": r"unknown key 'training.stps'; did you mean 'training.steps'\?",
    "steps=3": r"unknown key 'steps'; did you mean 'training.steps'\?",
    "model.decai=1": r"model: unknown key 'decai'; did you mean 'decay'\?",
    "data.lenght=3": r"unknown key 'data.lenght'; did you mean 'data.length'\?",
    "training.arguments.fdsp=x": r"unknown key 'fdsp'; did you mean 'fsdp'\?",
    "model.preset=mini-alp": r"no preset 'mini-alp'; did you mean 'mini-alm'\?",
    "training.steps=abc": "training.steps: .*integer.*; got 'abc'",
    "training.steps=0": "training.steps: .*greater than 0; got 0",
    "training.learning_rate=-1": "training.learning_rate: .*greater than 0; got -1",
    "training.schedule=linear": "training.schedule: .*'cosine' or 'constant'; got 'linear'",
    "training.epochs=2": "training: give either steps or epochs",
    "training.micro_batch_size=5": "micro_batch_size must divide batch_size; got 16 and 5",
    "training.patience=5 training.evaluate_every=null": "patience need evaluate_every",
    "training.keep_best=true training.save_every=800": "save_every must be equal .*keep_best; got 800 and 400",
    "training.arguments.max_steps=5": "arguments: max_steps is set by the other keys of training",
    "model.preset=null model.start_from=runs/x model.decai=1": r"unknown key 'decai'; did you mean 'decay'\?",
    "training.schedule=inverse-sqrt training.warmup_steps=0": "needs warmup_steps",
    "training.warmup_ratio=0.1": "warmup_steps or warmup_ratio, not both",
    "model.decay=7": r"model: decay must be in \[0, 1\]; got 7",
    "model.num_hidden_layers=abc": "num_hidden_layers",
    "model.start_from=runs/x": "give either preset or start_from",
    "task=lm": "no task 'lm'; choose from 'causal-lm', 'classification', 'forecasting', 'glue', 'image', 'lra', ",
    "task=causal-ml": r"no task 'causal-ml'; did you mean 'causal-lm'\?",
    "task=null": "task must be one of causal-lm, classification, forecasting, .*, token-classification; got None",
    "task=[glue]": r"task must be one of causal-lm, classification, .*, token-classification; got \['glue'\]",
    "learning_rates=[1e-3]": "unknown key 'learning_rates'; ",
    "data=3": "data: .*got 3",
    "data.corpus.x=3": "corpus is not a section, so data.corpus.x cannot be set",
    "training.steps": "changes must be section.key=value; got 'training.steps'",
    "data.corpus=[": "data.corpus: '\\[' is not a YAML value",
}


@pytest.mark.parametrize(("change", "message"), MISTAKES.items(), ids=MISTAKES)
def test_mistakes(change, message):
    with pytest.raises(ValueError, match=message) as error:
        load_recipe("mini-alm", change.split())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task: [", "is not YAML"),
        ("- 1", "must hold keys and values"),
        ("", "must hold keys and values"),
        ("task: causal-lm", "model is missing"),
    ],
)
def test_files_that_are_no_recipes(tmp_path, text, message):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_recipe(str(path))


def test_names_that_are_not_there():
    with pytest.raises(ValueError, match=r"no recipe 'mini-al', and not a .yaml file; did you mean 'mini-alm'\?"):
        load_recipe("mini-al")
    with pytest.raises(FileNotFoundError, match=r"no recipe file mine\.yaml"):
        load_recipe("mine.yaml")


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))


@pytest.mark.parametrize(
    ("text", "message"),
    {
        "names of names": (BOMB, "at most 100000 values"),
        "deep": ("[" * 3000 + "]" * 3000, "in at most 50 levels"),
        "deep and open": ("{a: " * 3000, "in at most 50 levels"),
        "around itself": ("a: &a [1, *a]", r"\*a is inside the part that it stands for"),
        "twice": ("name: x\nname: y", "the key 'name' is given twice"),
        "wrong tag": ("a: !!timestamp x", "a value that cannot be read"),
        "huge number": ("a: " + "9" * 5000, "a value that cannot be read: Exceeds the limit"),
        "impossible date": ("a: 2020-13-45", "a value that cannot be read: month must be in 1..12"),
    }.values(),
)
def test_yaml_that_no_recipe_needs(tmp_path, text, message):
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(ValueError, match=rf"bad\.yaml is not YAML: .*{message}"):
        load_recipe(str(tmp_path / "bad.yaml"))
    with pytest.raises(ValueError, match=r"^about: .* is not a YAML value; put it in quotes") as error:
        load_recipe("mini-alm", [f"about={{{text}}}"])
    assert len(str(error.value)) < 400


def test_names_for_parts_of_a_recipe_still_work():
    assert read_yaml("{a: &a [1, 2], b: *a, c: {<<: {d: 3}, e: 4}}") == {
        "a": [1, 2],
        "b": [1, 2],
        "c": {"d": 3, "e": 4},
    }


def test_a_recipe_that_is_not_utf8(tmp_path):
    (tmp_path / "bad.yaml").write_bytes(b"about: \xff")
    with pytest.raises(ValueError, match=r"bad\.yaml is not a UTF-8 text: see byte 7"):
        load_recipe(str(tmp_path / "bad.yaml"))


def test_long_values_are_shortened_in_messages():
    with pytest.raises(ValueError, match=r"training\.steps: .*aaa\.\.\.$") as error:
        load_recipe("mini-alm", ["training.steps=" + "a" * 5000])
    assert len(str(error.value)) < 400
