"""GLUE: files in the official layouts, the input format, metrics against their definitions."""

import gzip
import lzma
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from tnn.data import byte_tokenizer
from tnn.data.blocks import collate
from tnn.data.glue import GLUE_TASKS, Example, GlueDataset, encode, load_glue, majority_score, score

TOKENIZER = byte_tokenizer()
MNLI = "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse "
STSB = "index genre filename year old_index source1 source2 sentence1 sentence2"

# For each task: the first lines of the official train and test files, and the example of the former.
LAYOUTS = {
    "cola": ("gj04|0|*|They drank the pub.", "index|sentence\n0|A.", Example("They drank the pub.", None, 0)),
    "sst2": ("sentence|label\nno wit , |0", "index|sentence\n0|A.", Example("no wit ,", None, 0)),
    "mrpc": (
        "\ufeffQuality|#1 ID|#2 ID|#1 String|#2 String\n1|10|11|He said so .|So he said .",
        "index|#1 ID|#2 ID|#1 String|#2 String\n0|1|2|A.|B.",
        Example("He said so .", "So he said .", 1),
    ),
    "qnli": (
        "index|question|sentence|label\n0|Who?|Nobody.|not_entailment",
        "index|question|sentence\n0|A.|B.",
        Example("Who?", "Nobody.", 1),
    ),
    "qqp": (
        "id|qid1|qid2|question1|question2|is_duplicate\n5|1|2|Why?|Why not?|0",
        "id|question1|question2\n0|A.|B.",
        Example("Why?", "Why not?", 0),
    ),
    "mnli": (
        MNLI.replace(" ", "|") + "sentence1|sentence2|label1|gold_label\n"
        "0|1|2|fiction|(|(|(|(|It rains.|It is wet.|neutral|contradiction",
        MNLI.replace(" ", "|") + "sentence1|sentence2\n0|1|2|fiction|(|(|(|(|A.|B.",
        Example("It rains.", "It is wet.", 2),
    ),
    "rte": (
        "index|sentence1|sentence2|label\n0|It rains.|It is wet.|entailment",
        "index|sentence1|sentence2\n0|A.|B.",
        Example("It rains.", "It is wet.", 0),
    ),
    "stsb": (
        STSB.replace(" ", "|") + "|score\n0|news|MSRvid|2012|1|none|none|A plane.|A bird.|2.400",
        STSB.replace(" ", "|") + "\n0|news|MSRvid|2012|1|none|none|A.|B.",
        Example("A plane.", "A bird.", 2.4),
    ),
    "wnli": (
        "index|sentence1|sentence2|label\n0|It fell.|The cup fell.|1",
        "index|sentence1|sentence2\n0|A.|B.",
        Example("It fell.", "The cup fell.", 1),
    ),
}


def write(root, task, split, lines):
    path = root / GLUE_TASKS[task].folder / GLUE_TASKS[task].files[split]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(lines.replace("|", "\t").encode())
    return path


# --- files


@pytest.mark.parametrize("task", GLUE_TASKS)
def test_official_layouts(tmp_path, task):
    labelled, unlabelled, example = LAYOUTS[task]
    for split in GLUE_TASKS[task].files:
        write(tmp_path, task, split, unlabelled if split.startswith("test") else labelled)
    loaded = load_glue(task, tmp_path)
    assert list(loaded) == list(GLUE_TASKS[task].files)
    for split, examples in loaded.items():
        hidden = Example("A.", None if example.second is None else "B.", None)
        assert examples == [hidden if split.startswith("test") else example]
    assert type(loaded["train"][0].label) is (float if task == "stsb" else int)


def test_splits_of_mnli():
    assert GLUE_TASKS["mnli"].files == {
        "train": "train.tsv",
        "validation_matched": "dev_matched.tsv",
        "validation_mismatched": "dev_mismatched.tsv",
        "test_matched": "test_matched.tsv",
        "test_mismatched": "test_mismatched.tsv",
    }
    assert (GLUE_TASKS["mnli"].num_labels, GLUE_TASKS["cola"].num_labels, GLUE_TASKS["stsb"].num_labels) == (3, 2, 1)


def test_quotes_and_stray_line_ends_are_text(tmp_path):
    write(tmp_path, "sst2", "train", 'sentence|label\r\n"open|1\r\nstill \r here\u2028|0\r\nclose"|1\n\n')
    assert load_glue("sst2", tmp_path)["train"] == [
        Example('"open', None, 1),
        Example("still \r here", None, 0),
        Example('close"', None, 1),
    ]


def test_broken_rows(tmp_path):
    header, row = LAYOUTS["qqp"][0].split("\n")
    write(tmp_path, "qqp", "train", f"{header}\n7|1|2|a question cut\nin two?|\n{row}\n")
    assert load_glue("qqp", tmp_path)["train"] == [LAYOUTS["qqp"][2]]
    write(tmp_path, "rte", "train", LAYOUTS["rte"][0] + "\n1|only one|\n")
    with pytest.raises(ValueError, match=r"RTE.train\.tsv, line 3: needs 4 columns; got 3"):
        load_glue("rte", tmp_path)


def test_only_the_splits_that_exist_or_are_asked_for(tmp_path):
    write(tmp_path, "qnli", "validation", LAYOUTS["qnli"][0])
    write(tmp_path, "qnli", "test", LAYOUTS["qnli"][1])
    assert list(load_glue("qnli", str(tmp_path))) == ["validation", "test"]
    assert list(load_glue("qnli", tmp_path, ["validation"])) == ["validation"]
    with pytest.raises(FileNotFoundError, match=r"there is no .*QNLI.train\.tsv: qnli needs it"):
        load_glue("qnli", tmp_path, ["train"])
    with pytest.raises(ValueError, match="a split of qnli must be one of 'train', 'validation', 'test'; got 'dev'"):
        load_glue("qnli", tmp_path, ["dev"])


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"CoLA.train\.tsv"):
        load_glue("cola", tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"cola must hold parquet files"):
        load_glue("cola", f"hf:{tmp_path}")


@pytest.mark.parametrize(
    ("name", "hint"), [("cloa", "did you mean 'cola'"), ("SST2", "'sst2'"), ("x", "'cola', 'sst2'")]
)
def test_unknown_task(tmp_path, name, hint):
    with pytest.raises(ValueError, match=hint):
        load_glue(name, tmp_path)
    with pytest.raises(ValueError, match=hint):
        score(name, [0], [0])
    with pytest.raises(ValueError, match=hint):
        majority_score(name, [0], [0])


@pytest.mark.parametrize(
    ("task", "old", "new", "message"),
    [
        ("rte", "entailment", "Entailment", "line 2: a label must be one of entailment, not_entailment; got 'Entail"),
        ("cola", "|0|", "|2|", "line 1: a label must be one of 0, 1; got '2'"),
        ("stsb", "2.400", "5.1", "line 2: a label must be a number from 0 to 5; got '5.1'"),
        ("stsb", "2.400", "nan", "line 2: a label must be a number from 0 to 5; got 'nan'"),
        ("stsb", "2.400", "much", "line 2: a label must be a number from 0 to 5; got 'much'"),
        ("sst2", "sentence|label\n", "", "no column 'sentence' in its first line, 'no wit ,  | 0'"),
        ("wnli", "label", "gold", "no column 'label'"),
    ],
)
def test_bad_files(tmp_path, task, old, new, message):
    write(tmp_path, task, "train", LAYOUTS[task][0].replace(old, new))
    with pytest.raises(ValueError, match=r"train\.tsv") as caught:
        load_glue(task, tmp_path)
    assert message in str(caught.value)


def test_a_table_without_examples(tmp_path):
    write(tmp_path, "sst2", "train", "sentence|label\n")
    with pytest.raises(ValueError, match=r"train\.tsv holds no examples"):
        load_glue("sst2", tmp_path)


def test_a_file_that_is_not_text(tmp_path):
    write(tmp_path, "sst2", "train", "").write_bytes(b"sentence\tlabel\n\xff\t1\n")
    with pytest.raises(ValueError, match=r"train\.tsv is not a UTF-8 text"):
        load_glue("sst2", tmp_path)


# --- the datasets library


@pytest.fixture
def _own_cache(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def table(task, label, hidden=False):
    from datasets import Dataset

    names = GLUE_TASKS[task].hub_texts or GLUE_TASKS[task].texts
    columns = {name: [f"{name} "] for name in names}
    return Dataset.from_dict(columns | {"label": [(-1.0 if task == "stsb" else -1) if hidden else label], "idx": [0]})


@pytest.mark.usefixtures("_own_cache")
@pytest.mark.parametrize(
    ("task", "first", "second", "label"),
    [
        ("cola", "sentence", None, 1),
        ("mrpc", "sentence1", "sentence2", 0),
        ("qqp", "question1", "question2", 1),
        ("mnli", "premise", "hypothesis", 2),
        ("qnli", "question", "sentence", 1),
        ("stsb", "sentence1", "sentence2", 3.5),
    ],
)
@pytest.mark.parametrize("form", ["disk", "parquet"])
def test_the_hubs_columns(tmp_path, form, task, first, second, label):
    from datasets import DatasetDict

    tables = DatasetDict({split: table(task, label, split.startswith("test")) for split in GLUE_TASKS[task].files})
    folder = tmp_path / "glue" / task
    if form == "disk":
        tables.save_to_disk(folder)
    else:
        folder.mkdir(parents=True)
        for split, part in tables.items():
            part.to_parquet(folder / f"{split}-00000-of-00001.parquet")
    loaded = load_glue(task, f"hf:{tmp_path / 'glue'}")
    assert set(loaded) == set(GLUE_TASKS[task].files)
    for split, examples in loaded.items():
        assert examples == [Example(first, second, None if split.startswith("test") else label)]


@pytest.mark.usefixtures("_own_cache")
def test_bad_tables(tmp_path):
    from datasets import DatasetDict

    DatasetDict({"train": table("cola", 2)}).save_to_disk(tmp_path / "cola")
    with pytest.raises(ValueError, match=r"cola of hf:.*: a label must be one of 0, 1; got 2"):
        load_glue("cola", f"hf:{tmp_path}")
    with pytest.raises(FileNotFoundError, match="no split 'validation' of cola; it has train"):
        load_glue("cola", f"hf:{tmp_path}", ["validation"])
    DatasetDict({"train": table("rte", 1)}).save_to_disk(tmp_path / "qnli")
    with pytest.raises(ValueError, match=r"qnli of hf:.*: no column 'question'; it has sentence1"):
        load_glue("qnli", f"hf:{tmp_path}")


def test_a_task_of_a_name_on_the_hub(monkeypatch):
    asked = []
    monkeypatch.setattr("datasets.load_dataset", lambda *names: asked.append(names) or {"train": table("sst2", 1)})
    assert load_glue("sst2", "hf:nyu-mll/glue") == {"train": [Example("sentence", None, 1)]}
    assert asked == [("nyu-mll/glue", "sst2")]


# --- input format


def words(ids):
    return TOKENIZER.decode(ids)


def test_one_text_and_two():
    assert words(encode(Example("A b", None, 0), TOKENIZER, 512)["input_ids"]) == "<s>A b</s>"
    assert words(encode(Example("A", "b", 0), TOKENIZER, 512)["input_ids"]) == "<s>A</s></s>b</s>"
    assert words(encode(Example("A", "", 0), TOKENIZER, 512)["input_ids"]) == "<s>A</s></s></s>"  # still a pair


@pytest.mark.parametrize("tokenizer", [TOKENIZER, byte_tokenizer(mask=True)], ids=["plain", "mask"])
def test_names_of_special_tokens_stay_text(tokenizer):
    text = "</s> <mask> <s>"
    ids = encode(Example(text, text, None), tokenizer, 512)["input_ids"].tolist()
    body = [4 + byte for byte in text.encode()]
    assert ids == [0, *body, 2, 2, *body, 2]


def test_labels():
    assert encode(Example("a", None, 1), TOKENIZER, 8)["labels"].dtype == torch.long
    label = encode(Example("a", "b", 3.0), TOKENIZER, 8)["labels"]
    assert (label.dtype, label.shape, label.item()) == (torch.float32, (), 3.0)
    assert set(encode(Example("a", None, None), TOKENIZER, 8)) == {"input_ids"}


def cut_one_by_one(first, second, room):
    while len(first) + len(second) > room:
        if len(first) > len(second):
            first = first[:-1]
        else:
            second = second[:-1]
    return first, second


@given(first=st.integers(0, 20), second=st.integers(0, 20), max_length=st.integers(6, 30))
def test_the_longer_text_is_cut(first, second, max_length):
    example = Example("abcdefghijklmnopqrst"[:first], "ABCDEFGHIJKLMNOPQRST"[:second], 0)
    a, b = cut_one_by_one(example.first, example.second, max_length - 4)
    ids = encode(example, TOKENIZER, max_length)["input_ids"]
    assert len(ids) <= max_length
    assert words(ids) == f"<s>{a}</s></s>{b}</s>"
    alone = encode(Example(example.first, None, 0), TOKENIZER, max_length)["input_ids"]
    assert words(alone) == f"<s>{example.first[: max_length - 2]}</s>"


def test_too_short_for_two_texts():
    with pytest.raises(ValueError, match="max_length must be at least 6, for two texts; got 5"):
        encode(Example("a", None, 0), TOKENIZER, 5)


def test_a_dataset_is_its_examples_encoded(monkeypatch):
    monkeypatch.setattr("tnn.data.glue.TOKENIZED_AT_ONCE", 2)
    examples = [Example("a" * i, "b" if i % 2 else None, i % 2) for i in range(5)]
    dataset = pickle.loads(pickle.dumps(GlueDataset(examples, TOKENIZER, 8)))
    assert len(dataset) == 5
    for item, example in zip(dataset, examples, strict=True):
        expected = encode(example, TOKENIZER, 8)
        assert item.keys() == expected.keys()
        assert all(torch.equal(item[key], expected[key]) for key in item)


@pytest.mark.parametrize("labels", [[1, 0, 1], [2.5, 0.0, 5.0]])
def test_batches_are_padded_on_the_right(labels):
    dataset = GlueDataset([Example("abc"[:i], None, x) for i, x in enumerate(labels)], TOKENIZER, 16)
    (batch,) = DataLoader(dataset, batch_size=3, collate_fn=collate(TOKENIZER.pad_token_id))
    assert batch["input_ids"].tolist() == [[0, 2, 1, 1], [0, 101, 2, 1], [0, 101, 102, 2]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    assert batch["labels"].tolist() == labels
    assert batch["labels"].dtype == (torch.long if labels[0] == 1 else torch.float32)


@pytest.mark.parametrize("task", ["rte", "stsb"])
def test_a_model_takes_a_batch(task):
    from tnn import TNNConfig, TNNForSequenceClassification

    labels = [1, 0] if task == "rte" else [4.2, 0.5]
    examples = [Example("It rains.", "It is wet.", labels[0]), Example("A", "b", labels[1])]
    dataset = GlueDataset(examples, TOKENIZER, 64)
    sizes = {
        "vocab_size": len(TOKENIZER),
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_labels": GLUE_TASKS[task].num_labels,
    }
    model = TNNForSequenceClassification(TNNConfig(is_decoder=False, **sizes)).eval()
    with torch.no_grad():
        out = model(**collate(TOKENIZER.pad_token_id)(list(dataset)))
        alone = model(dataset[1]["input_ids"][None]).logits
    assert out.loss.isfinite()
    assert torch.allclose(out.logits[1:], alone, atol=1e-5)


# --- scores

BITS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=30)
# Few different values, so that there are ties; and values that a float32 model can output.
VALUES = st.sampled_from([0.0, 1.0, 2.5, 5.0]) | st.floats(-1e6, 1e6, width=32)
PAIRS = st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=30)


def counts(pairs):
    return [sum(pair == (x, y) for pair in pairs) for x, y in ((1, 1), (1, 0), (0, 1), (0, 0))]


def slow_pearson(x, y):
    if len(set(x)) == 1 or len(set(y)) == 1:
        return 0.0
    dx = [a - math.fsum(x) / len(x) for a in x]
    dy = [b - math.fsum(y) / len(y) for b in y]
    spread = math.sqrt(math.fsum(a * a for a in dx) * math.fsum(b * b for b in dy))
    return math.fsum(a * b for a, b in zip(dx, dy, strict=True)) / spread


def slow_ranks(x):
    """1 + the number of smaller values + half of the number of other equal values."""
    return [1 + sum(b < a for b in x) + (sum(b == a for b in x) - 1) / 2 for a in x]


@given(pairs=BITS)
def test_scores_of_two_classes(pairs):
    x, y = zip(*pairs, strict=True)
    tp, fp, fn, tn = counts(pairs)
    f1 = 2 * tp / (2 * tp + fp + fn) if tp + fp + fn else 0.0
    below = math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    accuracy = pytest.approx((tp + tn) / len(pairs))
    assert score("mrpc", x, y) == {"f1": pytest.approx(f1), "accuracy": accuracy}
    assert score("qqp", x, y) == {"accuracy": accuracy, "f1": pytest.approx(f1)}
    assert score("cola", x, y)["matthews"] == pytest.approx((tp * tn - fp * fn) / below if below else 0.0, abs=1e-12)
    for task in ("sst2", "qnli", "rte", "wnli"):
        assert score(task, x, y) == {"accuracy": accuracy}


@given(pairs=PAIRS)
def test_correlations(pairs):
    x, y = zip(*pairs, strict=True)
    scores = score("stsb", x, y)
    assert list(scores) == ["pearson", "spearman"]
    assert scores["pearson"] == pytest.approx(slow_pearson(x, y), abs=1e-6)
    assert scores["spearman"] == pytest.approx(slow_pearson(slow_ranks(x), slow_ranks(y)), abs=1e-9)


def test_headlines_come_first():
    heads = {task: next(iter(score(task, [1, 0], [1, 0]))) for task in GLUE_TASKS}
    assert heads == dict.fromkeys(GLUE_TASKS, "accuracy") | {"mrpc": "f1", "cola": "matthews", "stsb": "pearson"}


def test_known_scores():
    assert score("mnli", torch.tensor([0, 1, 2, 2]), np.array([0, 1, 2, 0])) == {"accuracy": 0.75}
    assert score("stsb", [1, 2, 3], [0, 1, 5])["spearman"] == pytest.approx(1)
    assert score("cola", [1, 0], [0, 1])["matthews"] == pytest.approx(-1)
    assert all(type(value) is float for value in score("mrpc", [1], [1]).values())


@pytest.mark.parametrize("constant", [0, 1])
def test_constant_predictions_have_no_correlation(constant):
    assert score("cola", [constant] * 3, [0, 1, 1]) == {"matthews": 0.0}
    assert score("cola", [constant] * 3, [constant] * 3) == {"matthews": 0.0}
    assert score("stsb", [constant + 0.1] * 3, [0, 1, 1]) == {"pearson": 0.0, "spearman": 0.0}
    assert score("mrpc", [constant] * 3, [0, 0, 0])["f1"] == 0.0


@pytest.mark.parametrize(
    ("task", "predictions", "labels", "message"),
    [
        ("cola", [], [], "predictions must be a 1-D array that is not empty"),
        ("cola", [[0.1, 0.9]], [1], r"got shape \(1, 2\)"),  # logits
        ("cola", [1, 0], [1], "one prediction per label; got 2 predictions and 1 labels"),
        ("mnli", [3], [1], "predictions of MNLI must be classes from 0 to 2; got 3"),
        ("cola", [0.5], [1], "predictions of CoLA must be classes from 0 to 1; got 0.5"),
        ("cola", [1], [-1], "labels of CoLA must be classes"),
        ("rte", [1], [None], "labels of RTE must be classes from 0 to 1; got nan"),
        ("stsb", [math.nan, 1], [1, 2], "predictions of STS-B must be finite numbers; got nan"),
    ],
)
def test_bad_scores(task, predictions, labels, message):
    with pytest.raises(ValueError, match=message):
        score(task, predictions, labels)


def test_majority():
    assert majority_score("mrpc", [1, 1, 0, 1], [1, 0, 1]) == {"f1": pytest.approx(6 / 7), "accuracy": 0.75}
    assert majority_score("rte", [1, 1, 0, 1], [0, 0, 1]) == {"accuracy": 0.25}  # the majority of the training labels
    assert majority_score("mnli", [2, 2, 0], [0, 2, 2, 1]) == {"accuracy": pytest.approx(2 / 3)}
    assert majority_score("cola", [0, 1], [1]) == {"matthews": 0.0}
    assert majority_score("stsb", [0.1, 3.3, 5], [0.1, 0.2, 0.7]) == {"pearson": 0.0, "spearman": 0.0}
    with pytest.raises(ValueError, match="training_labels must be a 1-D array"):
        majority_score("rte", [1], [])


@pytest.mark.parametrize(("suffix", "compress"), [(".xz", lzma.compress), (".gz", gzip.compress)])
def test_compressed_files(tmp_path, suffix, compress):
    (tmp_path / "SST-2").mkdir()
    text = "sentence\tlabel\na charming journey\t1\n"
    (tmp_path / "SST-2" / f"dev.tsv{suffix}").write_bytes(compress(text.encode()))
    assert load_glue("sst2", tmp_path) == {"validation": [Example("a charming journey", None, 1)]}
