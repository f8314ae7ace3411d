"""The HTTP server: OpenAI's formats, limits, keys, sessions, and one line of JSON for whatever is wrong."""

import json
import re
import time

import pytest
import torch
from starlette.testclient import TestClient

from tnn import TNNConfig, TNNForSequenceClassification
from tnn.data import byte_tokenizer
from tnn.data.labelled_texts import Columns
from tnn.serving import Limits, Service, make_app
from tnn.serving import gate as gate_module
from tnn.serving.keys import Keys

GREEDY = {"max_tokens": 20, "temperature": 0}


@pytest.fixture
def client_of(model_of, tokenizer):
    """client_of(keys=..., max_tokens=...): a client of a server that runs in this process."""
    opened = []

    def make(name="exact", *, keys=(), **limits):
        service = Service("tiny", model_of(name), tokenizer, keys=Keys(keys), limits=Limits(**limits))
        client = TestClient(make_app(service), raise_server_exceptions=False)
        client.service = service
        opened.append(client)
        return client.__enter__()

    yield make
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def client(client_of):
    return client_of()


def complete(client, prompt="The ", status=200, **fields):
    answer = client.post("/v1/completions", json={"prompt": prompt, **GREEDY, **fields})
    assert answer.status_code == status, answer.text
    return answer.json()


def chat(client, *contents, status=200, **fields):
    """The user and the assistant in turn."""
    messages = [{"role": ("user", "assistant")[k % 2], "content": text} for k, text in enumerate(contents)]
    answer = client.post("/v1/chat/completions", json={"messages": messages, **GREEDY, **fields})
    assert answer.status_code == status, answer.text
    return answer.json()


def events(client, route, **body):
    answer = client.post(route, json={"stream": True, **GREEDY, **body})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    *parts, end = answer.text.split("\n\n")
    assert end == ""
    assert parts[-1] == "data: [DONE]"
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-1]]


def error_of(answer, status):
    """The message of an error, which is one line in OpenAI's form."""
    assert answer.status_code == status, answer.text
    assert "\n" not in answer.text
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return error["message"]


def generated(model, ids):
    """The tokens that the model writes by itself."""
    mask = torch.ones(1, len(ids), dtype=torch.long)
    out = model.generate(torch.tensor([ids]), attention_mask=mask, max_new_tokens=20, do_sample=False)
    return out[0, len(ids) :].tolist()


def alone(model, prompt):
    return byte_tokenizer().decode(generated(model, byte_tokenizer()(prompt)["input_ids"]), skip_special_tokens=True)


def conversation(*contents):
    """As the template of these tests writes it."""
    return "".join(f"{('user', 'assistant')[k % 2]}: {text}\n" for k, text in enumerate(contents)) + "assistant: "


def metric(client, name):
    return float(re.search(rf"^{name} (\S+)$", client.get("/metrics").text, re.MULTILINE)[1])


# --- texts


def test_a_completion(client, model_of):
    answer = complete(client)
    assert answer["object"] == "text_completion"
    assert answer["model"] == "tiny"
    text = alone(model_of("exact"), "The ")
    assert answer["choices"] == [{"index": 0, "text": text, "logprobs": None, "finish_reason": "length"}]
    details = {"cached_tokens": 0}
    total = {"prompt_tokens": 4, "completion_tokens": 20, "total_tokens": 24, "prompt_tokens_details": details}
    assert answer["usage"] == total
    again = complete(client)
    assert again["choices"] == answer["choices"]
    assert again["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}


@pytest.mark.slow
def test_several_prompts_and_samples(client, model_of):
    answer = complete(client, ["a", "The "], n=2)
    texts = [alone(model_of("exact"), prompt) for prompt in ("a", "a", "The ", "The ")]
    assert [choice["text"] for choice in answer["choices"]] == texts
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    ids = byte_tokenizer()("The ")["input_ids"]
    assert complete(client, ids)["choices"][0]["text"] == texts[2]
    assert [choice["text"] for choice in complete(client, [ids, ids])["choices"]] == texts[2:]
    sampled = complete(client, n=2, temperature=1, seed=3)["choices"]
    assert sampled[1]["text"] == complete(client, temperature=1, seed=4)["choices"][0]["text"] != sampled[0]["text"]


def test_a_stream_is_the_same_text(client):
    whole = complete(client, logprobs=2, n=2)
    chunks = events(client, "/v1/completions", prompt="The ", logprobs=2, n=2, stream_options={"include_usage": True})
    *parts, last = chunks
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert all(chunk["usage"] is None for chunk in parts)
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 40)
    for k, choice in enumerate(whole["choices"]):
        own = [chunk["choices"][0] for chunk in parts if chunk["choices"][0]["index"] == k]
        assert "".join(one["text"] for one in own) == choice["text"]
        assert [one["finish_reason"] for one in own] == [None] * (len(own) - 1) + ["length"]
        for name, values in choice["logprobs"].items():
            streamed = [value for one in own for value in one["logprobs"][name]]
            assert len(streamed) == len(values)
            if name in ("tokens", "text_offset"):
                assert streamed == values


def test_log_probabilities_of_completions(client):
    scores = complete(client, logprobs=2, max_tokens=3)["choices"][0]["logprobs"]
    assert [len(values) for values in scores.values()] == [3] * 4
    for token, value, top in zip(scores["tokens"], scores["token_logprobs"], scores["top_logprobs"], strict=True):
        assert top[token] == value == max(top.values())
        assert len(top) == 2


def test_stop_strings(client):
    whole = complete(client)["choices"][0]["text"]
    for stop in (whole[5:8], ["never", whole[5:8]]):
        answer = complete(client, stop=stop)
        assert answer["choices"][0]["text"] == whole[: whole.index(whole[5:8])]
        assert answer["choices"][0]["finish_reason"] == "stop"


def test_a_chat(client, model_of):
    answer = chat(client, "Hello", logprobs=True, top_logprobs=1)
    (choice,) = answer["choices"]
    text = alone(model_of("exact"), conversation("Hello"))
    assert (answer["object"], choice["finish_reason"]) == ("chat.completion", "length")
    assert choice["message"] == {"role": "assistant", "content": text, "refusal": None}
    scores = choice["logprobs"]["content"]
    assert b"".join(bytes(score["bytes"]) for score in scores).decode(errors="replace")[:5] == text[:5]
    assert all(score["top_logprobs"][0]["logprob"] == score["logprob"] for score in scores)
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    body = {"messages": [{"role": "user", "content": parts}], "max_completion_tokens": 20, "temperature": 0}
    assert client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"] == text


def test_a_stream_of_a_chat(client):
    text = chat(client, "Hello")["choices"][0]["message"]["content"]
    chunks = events(client, "/v1/chat/completions", messages=[{"role": "user", "content": "Hello"}])
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert (deltas[0], deltas[-1]) == ({"role": "assistant", "content": ""}, {})
    assert "".join(delta["content"] for delta in deltas[:-1]) == text
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]


def test_a_tokenizer_without_a_template(client):
    client.service.tokenizer.chat_template = None
    message = chat(client, "Hello", status=400)["error"]["message"]
    assert message.startswith("the tokenizer of this model has no chat template: put its chat_template.jinja into")


def test_a_template_that_refuses(client):
    client.service.tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    assert chat(client, "Hello", status=400)["error"]["message"].endswith(
        "refuses these messages: roles must alternate"
    )


# --- sessions


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exact", "state space"])
@pytest.mark.parametrize("stopped", [False, True])
def test_a_session_of_completions_is_one_text(client_of, model_of, name, stopped):
    """Each answer is that of the model to all tokens before it; where a stop string ended one, to its text."""
    client, tokenizer, ids, session = client_of(name), byte_tokenizer(), [], "new"
    for prompt in ("The ", "é and ", "more"):
        ids += tokenizer(prompt)["input_ids"]
        new = generated(model_of(name), ids)
        whole = tokenizer.decode(new, skip_special_tokens=True)
        stop = {"stop": whole[4:6]} if stopped else {}
        answer = complete(client, prompt, session=session, **stop)
        said, session = answer["choices"][0]["text"], answer["session"]
        assert said == (whole[: whole.index(whole[4:6])] if stopped else whole)
        assert answer["usage"]["prompt_tokens"] == len(ids)
        ids += tokenizer(said)["input_ids"] if stopped else new
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 10


def test_a_session_of_a_chat(client):
    """Only what is new is sent, and only that is read."""
    id, contents = "new", []
    for question in ("Hello", "And?", "So?"):
        answer = chat(client, question, session=id, max_tokens=3)
        id = answer["session"]
        contents += [question, answer["choices"][0]["message"]["content"]]
        known = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert answer["usage"]["prompt_tokens"] - known < 40
    said = client.service.sessions.begin("", id, "chat")
    assert said.text == conversation(*contents).removesuffix("\nassistant: ")
    assert [message["content"] for message in said.messages] == contents


def test_a_template_that_rewrites_the_past(client):
    """What the session has read is not how the conversation begins: it is read again."""
    client.service.tokenizer.chat_template = "{{ messages | length }} {{ messages[-1].content }}:"
    first = chat(client, "Hello", session="new")
    second = chat(client, "And?", session=first["session"])
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["usage"]["prompt_tokens"] == len("3 And?:")


def test_sessions_are_reached_by_their_key_alone(client_of):
    client = client_of(keys=("one", "two"))
    bodies = {"/v1/completions": {"prompt": "a", **GREEDY, "session": "new"}}
    one, two = ({"Authorization": f"Bearer {key}"} for key in ("one", "two"))
    session = client.post("/v1/completions", json=bodies["/v1/completions"], headers=one).json()["session"]
    own = {"prompt": "a", **GREEDY, "session": session}
    missing = error_of(client.post("/v1/completions", json=own | {"session": "session-none"}, headers=two), 404)
    assert error_of(client.post("/v1/completions", json=own, headers=two), 404) == missing
    assert error_of(client.delete(f"/v1/sessions/{session}", headers=two), 404) == missing
    assert client.post("/v1/completions", json=own, headers=one).status_code == 200
    other = client.post("/v1/completions", json={"prompt": "a", **GREEDY}, headers=two).json()
    assert other["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert client.delete(f"/v1/sessions/{session}", headers=one).status_code == 204
    assert error_of(client.post("/v1/completions", json=own, headers=one), 404) == missing


def test_a_call_that_fails_leaves_its_session_as_it_was(client, monkeypatch):
    id = complete(client, "The ", session="new")["session"]
    with monkeypatch.context() as patch:
        patch.setattr(client.service.engine, "_write", lambda: 1 / 0)
        failed = complete(client, "more", session=id, status=500)
    assert failed["error"]["message"] == "ZeroDivisionError: division by zero"
    fresh = complete(client, "The ", session="new")["session"]
    expected = complete(client, "more", session=fresh)["choices"]
    assert complete(client, "more", session=id)["choices"] == expected


def test_sessions_that_are_too_many_go(client_of):
    client = client_of(max_sessions=2)
    ids = [complete(client, session="new", max_tokens=1)["session"] for _ in range(3)]
    assert complete(client, session=ids[0], status=404)["error"]["code"] == "session_not_found"
    assert complete(client, session=ids[2], max_tokens=1)["session"] == ids[2]
    assert metric(client, "tnn_sessions") == 2


# --- what is wrong


WRONG = {
    "not JSON": ("{", "the body is not JSON: "),
    "no object": ("[]", "the body must be a JSON object"),
    "no prompt": ({}, "prompt: Field required"),
    "unknown": ({"temprature": 1}, "unknown field 'temprature'; did you mean 'temperature'?"),
    "empty": ({"prompt": ""}, "prompt must have at least one token"),
    "no ids": ({"prompt": []}, "prompt: "),
    "an id": ({"prompt": [5, 260]}, "prompt: token ids must be below 260; got 260"),
    "half a character": ('{"prompt": "\\ud800"}', "prompt: character 0 is half of one, and no Unicode"),
    "a word": ({"n": "x"}, "n: should be a valid integer, unable to parse string as an integer; got 'x'"),
    "hot": ({"temperature": 3}, "temperature: should be less than or equal to 2; got 3"),
    "nearly cold": ({"temperature": 1e-7}, "temperature: must be 0, or at least 1e-06; got 1e-07"),
    "NaN": ('{"prompt": "a", "top_p": NaN}', "top_p: "),
    "an empty stop": ({"stop": ""}, "stop: "),
    "options": ({"stream_options": {"include_usage": True}}, "stream_options needs stream to be true"),
    "echo": ({"echo": True}, "echo: should be False; got True"),
    "penalty": ({"presence_penalty": 1}, "presence_penalty: should be less than or equal to 0; got 1"),
    "long": ({"max_tokens": 5000}, "max_tokens must be at most 4096; got 5000"),
    "many": ({"n": 65}, "a call may ask for 64 texts; got 65"),
    "two in a session": ({"session": "new", "n": 2}, "a session holds one text: n must be 1 with it, and it is 2"),
    "prompts in a session": ({"session": "new", "prompt": ["a", "b"]}, "a session holds one text: give one prompt"),
    "a large number": ('{"prompt": "a", "seed": 1' + "0" * 400 + "}", "seed: should be less than 9223372036854775808"),
}


@pytest.mark.parametrize(("body", "message"), WRONG.values(), ids=WRONG)
def test_wrong_bodies(client, body, message):
    prompt = {} if message.startswith("prompt: Field") else {"prompt": "a"}
    content = body if isinstance(body, str) else json.dumps({**prompt, **body})
    headers = {"content-type": "application/json"}
    assert error_of(client.post("/v1/completions", content=content, headers=headers), 400).startswith(message)
    assert complete(client, max_tokens=1)


def test_numbers_and_nesting_that_no_parser_takes(client):
    for content in ('{"n": 1' + "0" * 5000 + "}", "[" * 100_000):
        error_of(client.post("/v1/completions", content=content, headers={"content-type": "application/json"}), 400)


def test_other_routes_and_models(client):
    assert error_of(client.get("/v1/nothing"), 404).startswith(
        "there is no /v1/nothing: this server has /v1/completions"
    )
    answer = client.put("/v1/completions", json={})
    assert error_of(answer, 405) == "PUT /v1/completions: Method Not Allowed"
    assert answer.headers["allow"] == "POST"
    assert complete(client, model="gpt-4", status=404)["error"]["code"] == "model_not_found"
    assert complete(client, model="tiny")
    assert error_of(client.post("/v1/predict", json={}), 404)


def test_bodies_that_are_too_large(client_of):
    client = client_of(max_body=1000)
    assert error_of(client.post("/v1/completions", json={"prompt": "a" * 2000}), 413).endswith("at most 1,000 bytes")
    pieces = (b"x" * 100 for _ in range(30))  # without a content-length
    assert error_of(client.post("/v1/completions", content=pieces), 413)
    assert complete(client)


def test_prompts_that_are_too_long(client_of):
    client = client_of(max_prompt_tokens=10)
    answer = complete(client, "a" * 11, status=400)["error"]
    assert answer["message"] == "prompt must have at most 10 tokens; got 11"
    assert answer["code"] == "context_length_exceeded"
    assert complete(client, "a" * 10)


def test_a_queue_that_is_full(client_of, monkeypatch):
    client = client_of(max_streams=1, max_queue=0)
    monkeypatch.setattr(type(client.service.engine), "_free", 0)  # the place is taken
    answer = client.post("/v1/completions", json={"prompt": "a"})
    assert error_of(answer, 429) == "0 texts are waiting, and there is room for 0"
    assert answer.headers["retry-after"] == "1"
    monkeypatch.undo()
    assert complete(client)


def test_no_time(client_of, monkeypatch):
    client = client_of(timeout=1)
    engine = client.service.engine
    monkeypatch.setattr(engine, "_admit", lambda: time.sleep(0.2))  # nobody gets a place
    assert error_of(client.post("/v1/completions", json={"prompt": "a"}), 504).startswith("there was no time to begin")


def test_a_body_that_does_not_come(client, monkeypatch):
    import asyncio

    monkeypatch.setattr(gate_module, "BODY_SECONDS", 0.05)
    sent = []

    async def never():
        await asyncio.sleep(10)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "headers": [], "path": "/v1/completions", "method": "POST"}
    asyncio.run(gate_module.Gate(None, client.service)(scope, never, send))
    assert sent[0]["status"] == 408
    assert json.loads(sent[1]["body"])["error"]["code"] == "slow_body"


def test_keys_are_asked_for(client_of):
    client = client_of(keys=("a secret",))
    assert client.get("/health").status_code == 200
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "a secret"}):
        for call in (client.get("/metrics", headers=headers), client.post("/v1/completions", json={}, headers=headers)):
            assert error_of(call, 401) == "give a key of this server: Authorization: Bearer KEY"
            assert call.headers["www-authenticate"] == "Bearer"
    assert client.get("/v1/models", headers={"Authorization": "Bearer a secret"}).status_code == 200


def test_a_server_that_stops(client):
    client.service.stop()
    answer = client.get("/health")
    assert (answer.status_code, answer.json()) == (503, {"status": "stopping"})
    assert complete(client, status=503)["error"]["code"] == "stopping"
    assert complete(client, status=503, session="new")["error"]["code"] == "stopping"


def test_what_is_not_expected(client, monkeypatch):
    monkeypatch.setattr(client.service, "encode", None)
    assert error_of(client.post("/v1/completions", json={"prompt": "a"}), 500) == "unexpected TypeError"


# --- about the server


def test_models(client):
    entry = client.get("/v1/models").json()["data"][0]
    assert (entry["id"], entry["object"], entry["decoder"]) == ("tiny", "model", "exact")
    assert entry["state"]["bytes"] > 1000
    assert client.get("/v1/models/tiny").json() == entry
    assert error_of(client.get("/v1/models/other"), 404) == "this server has the model 'tiny', and not 'other'"


def test_metrics(client):
    complete(client, "The ")
    complete(client, "The ", session="new")
    client.get("/v1/nothing")
    text = client.get("/metrics").text
    assert all(re.fullmatch(r'#.*|\w+({\w+="[^"]*"(,\w+="[^"]*")*})? \S+', line) for line in text.splitlines())
    assert 'tnn_requests_total{route="/v1/completions",status="200"} 2' in text
    assert 'tnn_requests_total{route="other",status="404"} 1' in text
    expected = {"tnn_prompt_tokens_total": 5, "tnn_known_prompt_tokens_total": 3, "tnn_generated_tokens_total": 40}
    expected |= {"tnn_sessions": 1, "tnn_running_streams": 0, "tnn_time_to_first_token_seconds_count": 2}
    assert {name: metric(client, name) for name in expected} == expected


def test_the_openapi_page(client_of):
    page = client_of(keys=("a",)).get("/openapi.json", headers={"Authorization": "Bearer a"}).json()
    assert {*page["paths"]["/v1/completions"]["post"]["responses"]} >= {"200", "400", "401", "413", "429", "503"}
    assert not any("422" in one["responses"] for path in page["paths"].values() for one in path.values())
    assert page["paths"]["/v1/completions"]["post"]["security"] == [{"key": []}]
    assert "security" not in page["paths"]["/health"]["get"]
    assert "/v1/predict" not in page["paths"]


# --- classifiers


@pytest.fixture(scope="module")
def classifier():
    torch.manual_seed(0)
    sizes = {"vocab_size": 260, "hidden_size": 16, "num_hidden_layers": 1, "rpe_size": 8, "is_decoder": False}
    names = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
    return TNNForSequenceClassification(TNNConfig(**sizes, **names)).eval()


def predictor(classifier, columns=None, **limits):
    service = Service("tiny", classifier, byte_tokenizer(), columns=columns, limits=Limits(**limits))
    return TestClient(make_app(service), raise_server_exceptions=False)


def test_labels(classifier):
    with predictor(classifier) as client:
        texts = ["A fine film.", "Dull."] * 20
        answer = client.post("/v1/predict", json={"texts": texts}).json()
        assert answer["model"] == "tiny"
        assert [row["text"] for row in answer["predictions"]] == texts
        with torch.no_grad():
            logits = classifier(torch.tensor([byte_tokenizer()("Dull.")["input_ids"]])).logits[0].softmax(-1)
        row = answer["predictions"][1]
        assert row["prediction"] == ("bad", "good")[logits.argmax()]
        assert row["probabilities"]["good"] == pytest.approx(float(logits[1]), abs=1e-5)
        assert client.get("/v1/models").json()["data"][0]["kind"] == "TNNForSequenceClassification"
        message = error_of(client.post("/v1/completions", json={"prompt": "a"}), 404)
        assert message == "there is no /v1/completions: this server has /v1/predict"


def test_texts_that_cannot_be_labelled(classifier):
    with predictor(classifier, max_texts=2) as client:
        for body, message in {
            '{"texts": ["a", " "]}': "texts: entry 2: the text is empty",
            '{"texts": [["a", "b"]]}': "texts: entry 1 must be one text, as in the training",
            '{"texts": ["a", "b", "c"]}': "texts must be at most 2; got 3",
            '{"texts": []}': "texts: ",
            '{"text": "a"}': "texts: Field required",
        }.items():
            headers = {"content-type": "application/json"}
            assert error_of(client.post("/v1/predict", content=body, headers=headers), 400).startswith(message)


def test_pairs(classifier):
    with predictor(classifier, Columns(text="question", pair="answer")) as client:
        (row,) = client.post("/v1/predict", json={"texts": [["Why?", "So."]]}).json()["predictions"]
        assert [*row][:3] == ["question", "answer", "prediction"]
        message = error_of(client.post("/v1/predict", json={"texts": ["Why?"]}), 400)
        assert message == "texts: entry 1 must be a pair of texts, as in the training"
