"""Other people's tools on a saved model, by the commands of docs/ecosystem.md. They see the folder and nothing else."""

import json
import math
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from tnn import TNNConfig, TNNForCausalLM
from tnn.data import byte_tokenizer
from tnn.training import evaluate

WORDS = "a toeplitz matrix has the same entry along each diagonal so few numbers describe all of it".split()  # noqa: SIM905
EOS = 2  # of our tokenizers; it stands before the text in `tnn evaluate`
LENGTH = 128
DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "ecosystem.md"
PERPLEXITY_TASK = """
task: my_text
dataset_path: json
dataset_kwargs: {data_files: {test: my-text.jsonl}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: text
metric_list: [{metric: byte_perplexity}, {metric: bits_per_byte}]
"""
CHOICE_TASK = """
task: my_choices
dataset_path: json
dataset_kwargs: {data_files: {test: my-choices.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: question
doc_to_choice: choices
doc_to_target: answer
metric_list: [{metric: acc}]
"""

pytestmark = pytest.mark.slow


def needs(module):
    return pytest.mark.skipif(find_spec(module) is None, reason=f"{module} is not installed: run `make ecosystem`")


@pytest.fixture
def model(one_thread):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "rpe_size": 8, "rpe_num_layers": 2, "decay": 0.9}
    return TNNForCausalLM(TNNConfig(vocab_size=260, **sizes, initializer="torch")).eval()


@pytest.fixture
def folder(model, tmp_path):
    model.save_pretrained(tmp_path / "model")
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def environment(folder, **changes):
    cache = {"HF_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    return {**os.environ, **cache, "OMP_NUM_THREADS": "1", **changes}


def run(*command, cwd, **changes):
    program = [sys.executable, "-m", *command]
    options = {"capture_output": True, "text": True, "timeout": 900}
    done = subprocess.run(program, cwd=cwd, env=environment(cwd, **changes), **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def harness(cwd, tasks, **arguments):
    """The results of lm-evaluation-harness by task."""
    options = ",".join(f"{key}={value}" for key, value in arguments.items())
    chosen = ["--model_args", f"pretrained=model,trust_remote_code=True,{options}", "--tasks", ",".join(tasks)]
    run("lm_eval", "--model", "hf", *chosen, "--include_path", "tasks", "--output_path", "out", cwd=cwd)
    (results,) = (cwd / "out").rglob("results*.json")
    values = json.loads(results.read_text())["results"]
    shutil.rmtree(cwd / "out")
    return values


@needs("lm_eval")
@pytest.mark.parametrize("length", [LENGTH, None], ids=["blocks", "stream"])
def test_the_harness_scores_as_tnn_does(length, model, folder, tmp_path):
    draw = random.Random(0)
    text = "".join(" ".join(draw.choices(WORDS, k=8)) + "\n" for _ in range(60))
    text = text[: len(text) // LENGTH * LENGTH]
    questions = [
        {"question": text[i : i + 30], "choices": ["entry", "it has", "of"], "answer": i % 3} for i in range(5)
    ]
    (tmp_path / "my-text.txt").write_text(text)
    (tmp_path / "my-text.jsonl").write_text(json.dumps({"text": text}) + "\n")
    (tmp_path / "my-choices.jsonl").write_text("".join(json.dumps(one) + "\n" for one in questions))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "my_text.yaml").write_text(PERPLEXITY_TASK)
    (tmp_path / "tasks" / "my_choices.yaml").write_text(CHOICE_TASK)

    theirs = harness(tmp_path, ["my_text", "my_choices"], max_length=length or 10**6, prefix_token_id=EOS)
    shown = evaluate(folder, str(tmp_path / "my-text.txt"), length=length, stream=length is None)
    bits = float(next(line for line in shown.splitlines() if line.startswith("bits per byte")).split()[-1])
    assert theirs["my_text"]["bits_per_byte,none"] == pytest.approx(bits, abs=1e-3)
    perplexity = float(next(line for line in shown.splitlines() if line.endswith("per byte")).split()[0])
    assert theirs["my_text"]["byte_perplexity,none"] == pytest.approx(perplexity, rel=1e-3)
    assert theirs["my_choices"]["acc,none"] == pytest.approx(accuracy(model, questions))


def accuracy(model, questions):
    """The share of questions whose right choice is the most probable, one choice at a time."""
    right = 0
    tokenizer = byte_tokenizer()
    for one in questions:
        scores = []
        for choice in one["choices"]:
            start, end = tokenizer(one["question"])["input_ids"], tokenizer(" " + choice)["input_ids"]
            ids = torch.tensor([start + end])
            logp = model(ids).logits.log_softmax(-1)[0, :-1].gather(1, ids[0, 1:, None]).squeeze(1)
            scores.append(logp[-len(end) :].sum().item())
        right += scores.index(max(scores)) == one["answer"]
    return right / len(questions)


@needs("trl")
@pytest.mark.filterwarnings("ignore")  # of a library of somebody else
@pytest.mark.parametrize(
    "options", [{"packing": True}, {"padding_free": True, "max_length": None}], ids=["packing", "padding-free"]
)
def test_trl_keeps_documents_apart(options, model, tmp_path):
    """The loss of documents in one row is that of each alone: nothing flows from one to the next."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    texts = [f"a toeplitz matrix has {i} entries" + " and few numbers" * (i % 3) for i in range(8)]
    settings = {"output_dir": str(tmp_path), "max_steps": 1, "per_device_train_batch_size": 4, "report_to": "none"}
    settings |= {"use_cpu": True, "bf16": False, "max_length": 256, "learning_rate": 1e-3, **options}
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(**settings),
        train_dataset=Dataset.from_dict({"text": texts}),
        processing_class=byte_tokenizer(),
    )
    batch = next(iter(trainer.get_train_dataloader()))
    ids, starts = batch["input_ids"], (batch["position_ids"][0] == 0).nonzero().flatten().tolist()
    assert len(ids) == 1
    assert len(starts) > 3
    total, count = 0.0, 0
    model.eval()
    with torch.no_grad():
        packed = model(**batch).loss.item()
        for start, end in zip(starts, [*starts[1:], ids.shape[1]], strict=True):
            alone = ids[:, start:end]
            total += model(alone, labels=alone).loss.item() * (end - start - 1)
            count += end - start - 1
    assert packed == pytest.approx(total / count, rel=1e-5)
    assert math.isfinite(trainer.train().training_loss)


@needs("uvicorn")
@needs("openai")
def test_transformers_serve_and_chat(model, folder, tmp_path):
    """By the launcher of docs/ecosystem.md: transformers looks for the class among its own names."""
    launcher = DOCUMENT.read_text().partition("<!-- serve.py -->\n```text\n")[2].partition("```")[0]
    (tmp_path / "serve.py").write_text(launcher)
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "serve.py", "serve", "./model", "--device", "cpu", "--port", str(port)]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=tmp_path, env=environment(tmp_path), stdout=log, stderr=log)
    try:
        wait_for(f"http://localhost:{port}/health", server, tmp_path / "log")
        request = {"model": "./model", "prompt": "a toeplitz", "max_tokens": 8, "temperature": 0}
        answer = post(f"http://localhost:{port}/v1/completions", request)
        tokenizer = byte_tokenizer()
        inputs = tokenizer("a toeplitz", return_tensors="pt")
        options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 1}
        alone = model.generate(**inputs, **options)[0, inputs["input_ids"].shape[1] :]
        assert answer["choices"][0]["text"] == tokenizer.decode(alone, skip_special_tokens=True)
        chat = ["transformers.cli.transformers", "chat", "./model", f"http://localhost:{port}/v1", "max_new_tokens=4"]
        program = [sys.executable, "-m", *chat]
        options = {"input": "a toeplitz\nn\n!exit\n", "capture_output": True, "text": True, "timeout": 300}
        done = subprocess.run(program, cwd=tmp_path, env=environment(tmp_path, HF_HUB_OFFLINE="0"), **options)
        assert done.returncode == 0, done.stderr
        assert "Generation stopped after reaching the token limit" in done.stdout
    finally:
        server.terminate()
        server.wait(60)


def post(url, values):
    body = json.dumps(values).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


def wait_for(url, server, log):
    for _ in range(600):
        assert server.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.5)
    pytest.fail(log.read_text())
