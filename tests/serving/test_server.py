"""The command `tnn serve`: a process that streams and stops as it should, and what it refuses to start with."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from http.client import HTTPConnection

import pytest
from typer.testing import CliRunner

from tnn import TNNConfig, TNNForCausalLM, TNNForMaskedLM
from tnn.cli import app
from tnn.data import byte_tokenizer
from tnn.serving import server

SIZES = {"vocab_size": 260, "hidden_size": 8, "num_hidden_layers": 1, "rpe_size": 8, "decay": 0.9}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "tiny"
    TNNForCausalLM(TNNConfig(**SIZES, eos_token_id=None)).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@contextmanager
def post(port, **body):
    """The answer of a server, whose body is not read yet; afterwards the client goes away."""
    headers = {"content-type": "application/json", "authorization": "Bearer a-secret"}
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "The ", "temperature": 0, **body}), headers)
        with closing(connection.getresponse()) as answer:
            yield answer


@pytest.mark.slow
def test_a_process_streams_and_stops(folder, tmp_path):
    """Terminated in the middle of a text, it finishes that, refuses others, and ends well. Who leaves frees a place."""
    command = [sys.executable, "-m", "tnn", "serve", str(folder), "--port", "0", "--max-streams", "2"]
    environment = {**os.environ, "TNN_API_KEY": "a-secret", "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, cwd=tmp_path, **pipes) as process:
        try:
            about, ready, line = (process.stdout.readline() for _ in range(3))
            assert about.startswith("tiny: TNNForCausalLM, ")
            assert line.startswith("curl -N http://127.0.0.1:")
            port = int(re.search(r"http://127.0.0.1:(\d+) is ready for 2 texts", ready)[1])

            for _ in range(3):
                with post(port, max_tokens=4000, stream=True) as gone:
                    gone.readline()
            with post(port, max_tokens=3000, stream=True) as stream:  # there is a place
                assert stream.readline().startswith(b"data: ")
                process.send_signal(signal.SIGTERM)
                assert process.stderr.readline() == "SIGTERM: finishing what runs\n"
                with post(port) as refused:
                    assert refused.status == 503
                    assert json.loads(refused.read())["error"]["code"] == "stopping"
                *_, last, end = stream.read().decode().strip().split("\n\n")
            assert end == "data: [DONE]"
            assert json.loads(last.removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
            assert process.wait(30) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()


def test_a_second_signal_ends_the_server_at_once(folder, monkeypatch):
    """While a text is being written, which would take long."""
    from tnn.serving import load_service

    service, results = load_service(folder), []
    opened = server.listen("127.0.0.1", 0)
    made = []
    monkeypatch.setattr(server._Server, "__init__", remember(made, server._Server.__init__))
    started = threading.Event()
    thread = threading.Thread(target=lambda: results.append(server.serve(service, opened, started.set)))
    thread.start()
    assert started.wait(20)
    with post(opened.getsockname()[1], max_tokens=4000, stream=True) as stream:
        stream.readline()
        for _ in range(2):
            made[0].handle_exit(signal.SIGINT, None)
        thread.join(30)
    assert results == [False]


def remember(made, original):
    def start(self, *arguments):
        made.append(self)
        original(self, *arguments)

    return start


# --- the command


def invoke(*arguments, **environment):
    return CliRunner().invoke(app, ["serve", *map(str, arguments)], env=environment)


def assert_one_line(done, message):
    assert (done.exit_code, done.stdout) == (1, "")
    assert re.fullmatch(rf"error: .*{message}.*\n", done.stderr), done.stderr


@pytest.fixture
def started(monkeypatch):
    """What would be served."""
    services = []
    monkeypatch.setattr(
        server, "serve", lambda service, opened, ready: services.append(service) or ready() or len(services) < 9
    )
    return services


def test_what_the_command_prints(folder, started):
    done = invoke(folder, "--port", 0, "--name", "mine", "--max-tokens", 7)
    assert done.exit_code == 0, done.output
    about, ready, line = done.stdout.splitlines()
    assert re.fullmatch(
        r"mine: TNNForCausalLM, [\d,]+ parameters, exact decoder; state of a session: at most [\d.]+ kB, however .*",
        about,
    )
    assert re.fullmatch(r"http://127.0.0.1:\d+ is ready for 64 texts at once; Ctrl-C stops it\. Try:", ready)
    assert "Authorization" not in line
    assert (started[0].name, started[0].limits.max_tokens, done.stderr) == ("mine", 7, "")


def test_keys_and_other_hosts(folder, started, tmp_path):
    done = invoke(folder, "--port", 0, "--host", "0.0.0.0")
    assert done.stderr == "warning: everybody who reaches 0.0.0.0 can use this server: it has no --api-key-file\n"
    (tmp_path / "keys").write_text("a-secret\n")
    done = invoke(folder, "--port", 0, "--host", "0.0.0.0", "--api-key-file", tmp_path / "keys")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "Bearer $TNN_API_KEY" in done.stdout
    assert "a-secret" not in done.output
    assert started[1].keys.required


def test_a_state_space(folder, started):
    done = invoke(folder, "--port", 0, "--decoder", "state-space")
    assert done.exit_code == 0, done.output
    assert ", state space; state of a session: " in done.stdout or "decoding exactly" in done.stderr


def test_a_port_that_is_taken(folder, started):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert_one_line(
            invoke(folder, "--port", port),
            f"port {port} of 127.0.0.1 cannot be opened: Address already in use; try --port",
        )


def test_what_cannot_be_served(folder, started, tmp_path):
    TNNForMaskedLM(TNNConfig(**SIZES, is_decoder=False)).save_pretrained(tmp_path / "masked")
    byte_tokenizer().save_pretrained(tmp_path / "masked")
    message = "masked cannot be served: it must be a causal language model or a classifier of texts"
    assert_one_line(invoke(tmp_path / "masked", "--port", 0), message)
    message = "--decoder state-space is for language models; .*masked has a TNNForMaskedLM"
    assert_one_line(invoke(tmp_path / "masked", "--port", 0, "--decoder", "state-space"), message)
    assert_one_line(invoke(tmp_path / "absent", "--port", 0), "absent")
    assert_one_line(invoke(folder, "--port", 0, "--max-streams", 0), "max_streams must be at least 1; got 0")
    assert_one_line(invoke(folder, "--port", 0, "--host", "nowhere.invalid"), "--host nowhere.invalid is no address")
    assert_one_line(invoke(folder, "--port", 0, "--api-key-file", tmp_path / "absent"), "No such file")
    assert_one_line(invoke(folder, "--port", 0, TNN_API_KEY="a b"), "TNN_API_KEY: key 1 must be printable ASCII")
    assert not started
