"""Continuous batching: every text is what it would be alone, whatever comes and goes around it."""

import random
import threading
import time

import pytest
import torch

from tnn import TNNConfig, TNNForCausalLM
from tnn.data import byte_tokenizer
from tnn.serving import Engine, Request, Sampling
from tnn.serving.engine import Closed, QueueFull
from tnn.serving.prefixes import Prefixes
from tnn.serving.request import Failure, Piece
from tnn.serving.state_size import state_size

LENGTHS = (1, 2, 3, 7, 31, 63, 64, 65, 131)
SERVED = ["exact", "no decay", "convolution", "state space", "hybrid", "linear"]


def letters(ids):
    """A text that shows every token."""
    return "".join(chr(0x4E00 + token) for token in ids)


def alone(model, ids, most):
    """The text that the model writes by itself."""
    out = model.generate(
        torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), max_new_tokens=most, do_sample=False
    )
    return letters(out[0, len(ids) :].tolist())


def prompt(choose, length):
    return [choose.randrange(4, 260) for _ in range(length)]


def finish(engine):
    while engine.step():
        pass


def write(engine, *requests, steps=lambda: 0):
    """The pieces of each request, with so many steps of the engine between them."""
    pieces = []
    for request in requests:
        pieces.append([])
        engine.submit(request, pieces[-1].append)
        for _ in range(steps()):
            engine.step()
    finish(engine)
    return pieces


def text(pieces, row=0):
    return "".join(piece.text for piece in pieces if piece.row == row)


# --- texts


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVED)
def test_every_text_is_what_it_would_be_alone(name, model_of):
    """Prompts of many lengths come at random times, more than there are places, and some are given up."""
    model, choose = model_of(name), random.Random(SERVED.index(name))
    engine = Engine(model, letters, max_streams=4, chunk=40, prefixes=Prefixes(30, 10**8, 60))
    wanted, pieces = [], []
    for _ in range(10):
        ids, most = prompt(choose, choose.choice(LENGTHS)), choose.choice((1, 2, 17, 37))
        pieces.append([])
        job = engine.submit(Request(ids, most), pieces[-1].append)
        wanted.append((ids, most))
        for _ in range(choose.randrange(15)):
            engine.step()
        if choose.random() < 0.2:
            job.cancel()
            wanted[-1] = None
    finish(engine)
    assert (engine.running, engine.waiting, engine.nbytes) == (0, 0, 0)
    for one, own in zip(wanted, pieces, strict=True):
        if one is not None:
            assert text(own) == alone(model, *one)
            assert (own[-1].finished, own[-1].tokens) == ("length", one[1])


@pytest.mark.parametrize("name", ["exact", "state space"])
def test_a_seed_decides_whatever_else_is_running(name, model_of):
    engine, choose = Engine(model_of(name), letters, max_streams=8), random.Random(0)
    settings = [Sampling(1.0, seed=3), Sampling(0.7, top_p=0.8, seed=4), Sampling(2.0, top_k=5, seed=5)]
    requests = [Request(prompt(choose, 9), 20, one) for one in settings]
    expected = [text(write(engine, request)[0]) for request in requests]
    others = [Request(prompt(choose, n), 30, Sampling(1.0)) for n in (1, 40, 3)]
    together = write(engine, *others, *requests, steps=lambda: choose.randrange(4))
    assert [text(pieces) for pieces in together[3:]] == expected
    assert len({*expected}) == 3
    other = Request(requests[0].ids, 20, Sampling(1.0, seed=4))
    assert text(write(engine, other)[0]) != expected[0]


def test_samples_of_one_request_have_seeds_of_their_own(model_of):
    engine, ids = Engine(model_of("exact"), letters), [70, 71, 72]
    (pieces,) = write(engine, Request(ids, 12, Sampling(1.0, seed=5), samples=3))
    single = [text(write(engine, Request(ids, 12, Sampling(1.0, seed=seed)))[0]) for seed in (5, 6, 7)]
    assert [text(pieces, row) for row in range(3)] == single
    assert len({*single}) == 3


def test_a_long_prompt_does_not_stall_the_others(model_of):
    engine, seen = Engine(model_of("exact"), letters, chunk=10), []
    engine.submit(Request([70], 60), lambda piece: seen.append("short"))
    engine.step()
    engine.submit(Request([71] * 300, 5), lambda piece: seen.append("long"))
    engine.submit(Request([72] * 3, 5), lambda piece: seen.append("next"))
    finish(engine)
    assert seen.index("long") > 30
    assert seen.index("next") < 8


@pytest.mark.slow
def test_pieces_are_whole_characters_and_never_part_of_a_stop_string(model_of):
    """The same prompts as texts of bytes, each with a stop string out of the middle of its text."""
    model, tokenizer, choose = model_of("exact"), byte_tokenizer(), random.Random(0)
    engine = Engine(model, tokenizer.decode, max_streams=5)
    prompts = [prompt(choose, n) for n in LENGTHS]
    whole = [text(pieces) for pieces in write(engine, *(Request(ids, 60) for ids in prompts))]
    assert any("\N{REPLACEMENT CHARACTER}" in one for one in whole)
    stops = [one[10:13] for one in whole]
    requests = [Request(ids, 60, stop=(stop, "never")) for ids, stop in zip(prompts, stops, strict=True)]
    for one, stop, pieces in zip(whole, stops, write(engine, *requests), strict=True):
        assert text(pieces) == one[: one.index(stop)]
        assert pieces[-1].finished == "stop"
        assert pieces[-1].tokens < 60


def test_an_end_token_ends_a_text(model_of):
    model = model_of("exact")
    third = [ord(letter) - 0x4E00 for letter in alone(model, [70, 71], 3)][2]
    engine = Engine(model, letters)
    engine.eos.append(third)
    (pieces,) = write(engine, Request([70, 71], 20))
    assert (pieces[-1].finished, pieces[-1].tokens) == ("eos", 3)


def test_log_probabilities_are_those_of_the_model(model_of):
    model, ids = model_of("exact"), [70, 71, 72]
    engine = Engine(model, letters)
    scored, plain = write(engine, Request(ids, 8, logprobs=3), Request(ids, 8))
    assert text(scored) == text(plain)
    assert not any(piece.scores for piece in plain)
    scores = [score for piece in scored for score in piece.scores]
    tokens = [score.token for score in scores]
    assert letters(tokens) == text(scored)
    assert [score.offset for score in scores] == [*range(8)]
    with torch.no_grad():
        expected = model(torch.tensor([ids + tokens])).logits[0, 2:-1].log_softmax(-1)
    for k, score in enumerate(scores):
        assert score.logprob == pytest.approx(float(expected[k, score.token]), abs=1e-4)
        assert [token for token, _ in score.top] == expected[k].topk(3).indices.tolist()


# --- what is kept


def test_a_known_beginning_is_not_read_again(model_of):
    model, prefixes = model_of("exact"), Prefixes(10, 10**8, 60)
    engine, ids = Engine(model, letters, prefixes=prefixes), prompt(random.Random(0), 50)
    first = engine.submit(Request(ids, 10, owner="a"), (pieces := []).append)
    finish(engine)
    said = [ord(letter) - 0x4E00 for letter in text(pieces)]
    longer = [*ids, *said, 80, 81]
    known = {}
    for name, own, owner in (
        ("again", ids, "a"),
        ("longer", longer, "a"),
        ("other", ids, "b"),
        ("part", ids[:30], "a"),
    ):
        job = engine.submit(Request(own, 10, owner=owner), (pieces := []).append)
        finish(engine)
        assert text(pieces) == alone(model, own, 10), name
        known[name] = job.known
    assert first.known == 0
    assert known == {"again": 49, "longer": 59, "other": 0, "part": 0}


@pytest.mark.parametrize("name", SERVED)
def test_a_kept_state_goes_on(name, model_of):
    """Also by two requests at once: it is never changed."""
    model, choose = model_of(name), random.Random(1)
    engine, ids = Engine(model, letters, max_streams=3), prompt(choose, 70)
    ((*_, last),) = write(engine, Request(ids, 9, keep=True))
    said = [ord(letter) - 0x4E00 for letter in alone(model, ids, 9)]
    assert (last.kept.age, last.kept.pending) == (78, (said[-1],))
    more = [prompt(choose, n) for n in (1, 40)]
    requests = [Request([*last.kept.pending, *new], 12, start=last.kept) for new in more]
    for new, pieces in zip(more, write(engine, *requests), strict=True):
        assert text(pieces) == alone(model, [*ids, *said, *new], 12)


def test_after_a_stop_string_the_state_is_that_before_the_text(model_of):
    model, ids = model_of("exact"), [70, 71, 72]
    engine, whole = Engine(model, letters), alone(model, ids, 9)
    ((*_, last),) = write(engine, Request(ids, 9, keep=True, stop=(whole[4:6],)))
    assert (last.finished, last.kept.age, last.kept.pending) == ("stop", 2, (72,))
    ((*again, _),) = write(engine, Request([72], 9, start=last.kept))
    assert whole.startswith(text(again))


@pytest.mark.parametrize("name", SERVED)
def test_the_size_of_a_state(name, model_of):
    """What is foreseen is what a long text takes."""
    model, size = model_of(name), state_size(model_of(name))
    nbytes = []
    with torch.no_grad():
        cache = model.model.new_cache()
        for length in (640, 640, 1):
            model.model(torch.zeros(1, length, dtype=torch.long), past_key_values=cache)
            nbytes.append(cache.nbytes)
    if size.grows:
        assert nbytes[1] - nbytes[0] == 640 * size.nbytes
    else:
        assert nbytes[2] == size.nbytes
    assert size.grows == (name in ("no decay", "hybrid"))


# --- limits


def test_a_queue_that_is_full(model_of):
    engine = Engine(model_of("exact"), letters, max_streams=2, max_waiting=1)
    pieces = []
    for _ in range(3):
        engine.submit(Request([70], 5), pieces.append)
    with pytest.raises(QueueFull, match=r"^3 texts are waiting, and there is room for 1$"):
        engine.submit(Request([70], 5), pieces.append)
    finish(engine)
    assert sum(piece.finished is not None for piece in pieces) == 3
    engine.submit(Request([70], 5, samples=2), pieces.append)
    with pytest.raises(ValueError, match=r"^n must be at most 2, the texts that are written at once$"):
        engine.submit(Request([70], 5, samples=3), pieces.append)


def test_deadlines(model_of):
    """One that passes in the queue is a failure; one that passes in the text ends it."""
    engine, late, slow = Engine(model_of("exact"), letters), [], []
    engine.submit(Request([70], 5, deadline=time.monotonic() - 1), late.append)
    engine.submit(Request([70], 50, deadline=time.monotonic() + 100), slow.append)
    for _ in range(5):
        engine.step()
    assert [type(news) for news in late] == [Failure]
    object.__setattr__(engine._members[0].row.request, "deadline", 0)
    finish(engine)
    assert (slow[-1].finished, slow[-1].tokens) == ("length", 5)


def test_a_thread_works_until_it_is_closed(model_of):
    model, done = model_of("exact"), threading.Event()
    engine = Engine(model, letters)
    worker = threading.Thread(target=engine.run)
    worker.start()
    engine.submit(Request([70], 20), lambda piece: piece.finished and done.set())
    engine.close()
    with pytest.raises(Closed):
        engine.submit(Request([70], 20), print)
    worker.join(20)
    assert done.is_set()
    assert not worker.is_alive()


def test_what_fails_is_reported_and_the_engine_goes_on(model_of, monkeypatch):
    engine, news = Engine(model_of("exact"), letters, max_streams=2), []
    worker = threading.Thread(target=engine.run)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_write", lambda: 1 / 0)
        for _ in range(3):
            engine.submit(Request([70], 5), news.append)
        worker.start()
        while len(news) < 3:
            time.sleep(0.01)
    assert {one.message for one in news} == {"ZeroDivisionError: division by zero"}
    engine.submit(Request([70], 5), news.append)
    engine.close()
    worker.join(20)
    assert news[-1].finished == "length"


def test_nan_fails_one_text_alone(model_of, monkeypatch):
    model = model_of("exact")
    engine, logits = Engine(model, letters), model.token_logits
    broken, sound = [], []
    engine.submit(Request([70], 5), broken.append)
    engine.submit(Request([71], 5), sound.append)
    poison = torch.tensor([[float("nan")], [0.0]])
    with monkeypatch.context() as patch:
        patch.setattr(model, "token_logits", lambda hidden: logits(hidden) + poison)
        engine.step()
    finish(engine)
    assert broken == [Failure("internal", "the model gives NaN after 1 tokens")]
    assert text(sound) == alone(model, [71], 5)


REFUSED = {
    "gmlp": ({"mixer": "gmlp"}, "a model with the mixers gmlp cannot be served: rows of different ages cannot share"),
    "normalized": ({"rpe_input": "normalized"}, "the model has no cache, because its outputs change with the length"),
}


@pytest.mark.parametrize(("fields", "message"), REFUSED.values(), ids=REFUSED)
def test_models_that_cannot_be_served(fields, message):
    model = TNNForCausalLM(TNNConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, **fields)).eval()
    with pytest.raises(ValueError, match=f"^{message}"):
        Engine(model, letters)


def test_requests_that_cannot_be():
    with pytest.raises(ValueError, match="prompt must have at least one token"):
        Request([], 5)
    with pytest.raises(ValueError, match="a session holds one text: n must be 1; got 2"):
        Request([70], 5, samples=2, keep=True)


def test_pieces_that_say_nothing_are_not_sent(model_of):
    """The bytes of one character come as one piece."""
    engine, pieces = Engine(model_of("exact"), lambda ids: "é" * (len(ids) // 2)), []
    engine.submit(Request([70], 4), pieces.append)
    finish(engine)
    assert all(isinstance(piece, Piece) and (piece.text or piece.finished) for piece in pieces)
    assert text(pieces) == "éé"
