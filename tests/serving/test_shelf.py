"""What is kept for a while: bounded in number, bytes and age; sessions that nobody else can reach."""

import pytest

from tnn.serving.errors import ApiError
from tnn.serving.keys import Keys, load_keys
from tnn.serving.sessions import Sessions
from tnn.serving.shelf import Shelf


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_the_longest_unused_goes_first(clock):
    shelf = Shelf(3, 1000, 60, clock)
    for key in "abc":
        shelf.put(key, key, 10)
    assert shelf.get("a") == "a"
    shelf.put("d", "d", 10)
    assert [*shelf] == ["c", "a", "d"]
    shelf.put("c", "new", 20)
    assert (shelf.get("c"), len(shelf), shelf.nbytes) == ("new", 3, 40)


def test_bytes_are_bounded(clock):
    shelf = Shelf(100, 50, 60, clock)
    for key in "abc":
        shelf.put(key, key, 20)
    assert ([*shelf], shelf.nbytes) == (["b", "c"], 40)
    shelf.put("b", "too large", 51)
    assert ([*shelf], shelf.nbytes) == (["c"], 20)
    shelf.put("d", "d", 50)
    assert ([*shelf], shelf.nbytes) == (["d"], 50)
    assert (shelf.pop("d"), shelf.pop("d"), shelf.nbytes) == ("d", None, 0)


def test_age_is_bounded(clock):
    shelf = Shelf(100, 1000, 60, clock)
    shelf.put("a", "a", 1)
    shelf.put("b", "b", 1)
    clock.now = 50
    assert shelf.get("a") == "a"
    clock.now = 100
    assert (shelf.get("b"), shelf.get("a"), len(shelf)) == (None, "a", 1)
    clock.now = 161
    shelf.drop_old()
    assert (len(shelf), shelf.nbytes) == (0, 0)


def test_no_room_at_all():
    shelf = Shelf(0, 1000, 60)
    shelf.put("a", "a", 1)
    assert len(shelf) == 0


# --- sessions


def fails(status, call, *arguments):
    with pytest.raises(ApiError) as error:
        call(*arguments)
    assert error.value.status == status
    return str(error.value)


def test_sessions_belong_to_their_key():
    sessions = Sessions(["a", "b"], most=10, most_bytes=10**6, seconds=60)
    session = sessions.begin("a", "new", "chat")
    assert fails(404, sessions.begin, "a", session.id, "chat")  # not before its first call is completed
    sessions.end("a", session, keep=True)
    message = fails(404, sessions.begin, "a", "session-of-nobody", "chat")
    assert fails(404, sessions.begin, "b", session.id, "chat") == message
    assert fails(404, sessions.delete, "b", session.id) == message
    assert sessions.begin("a", session.id, "chat") is session
    assert "in use" in fails(409, sessions.begin, "a", session.id, "chat")
    sessions.end("a", session, keep=False)
    assert "one of chat" in fails(400, sessions.begin, "a", session.id, "completions")
    sessions.delete("a", session.id)
    assert fails(404, sessions.begin, "a", session.id, "chat") == message


def test_ten_thousand_sessions_displace_those_of_their_own_key_alone():
    sessions = Sessions(["a", "b"], most=10, most_bytes=10**6, seconds=60)
    mine = sessions.begin("a", "new", "chat")
    sessions.end("a", mine, keep=True)
    ids = set()
    for _ in range(10_000):
        session = sessions.begin("b", "new", "chat")
        sessions.end("b", session, keep=True)
        ids.add(session.id)
    assert (len(sessions), len(ids)) == (6, 10_000)
    assert sessions.begin("a", mine.id, "chat") is mine


# --- keys


def test_keys(tmp_path):
    file = tmp_path / "keys"
    file.write_text("one\n\n  two \n")
    keys = load_keys(file, {"TNN_API_KEY": "three"})
    assert keys.required
    owners = [keys.owner_of(f"Bearer {key}") for key in ("one", "two")]
    assert owners == keys.owners
    assert len({*owners}) == 2
    assert not any("one" in owner or "two" in owner for owner in owners)
    for header in (None, "", "Bearer", "Bearer three", "Basic one", "Bearer one ", "one", "bearer \xff"):
        assert keys.owner_of(header) is None
    assert keys.owner_of("bearer one") == owners[0]
    assert Keys([]).owner_of("Bearer anything") == ""


WRONG = {
    "empty": (b"\n", "keys has no key: it must hold one per line"),
    "binary": (b"\xff", "keys is not a UTF-8 text: it must hold one key per line"),
    "spaces": (b"a\nb c", "keys: key 2 must be printable ASCII without spaces: it comes in a header"),
    "twice": (b"a\na\n", "keys has a key twice: each is one client"),
}


@pytest.mark.parametrize(("content", "message"), WRONG.values(), ids=WRONG)
def test_wrong_files_of_keys(content, message, tmp_path):
    (tmp_path / "keys").write_bytes(content)
    with pytest.raises(ValueError, match=f"{message}$"):
        load_keys(tmp_path / "keys", {})


def test_an_empty_variable():
    with pytest.raises(ValueError, match=r"^TNN_API_KEY: key 1 must be printable ASCII"):
        load_keys(None, {"TNN_API_KEY": ""})
