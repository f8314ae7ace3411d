"""Random damage to bytes and to nested values."""

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

ODD = [  # values that a hand, a script or an attacker may write
    *(None, True, False, 0, -1, 1, 2, 0.5, -0.0, 1e-45, 1e308, float("inf"), float("-inf"), float("nan")),
    *(2**31, 2**32 + 1, 2**63, 10**30, "", " ", "x", "0", "-1", "nan", "1e400", "\u0661", "é\u0000\ufeff", "\ud800"),
    *([], {}, [None], [[]], {"": None}, [1, 2, 3], {"a": {"b": 1}}, "a" * 5000, [0] * 1000),
]


def damaged(data: bytes, rng: Random) -> bytes:
    """Another version of a file: cut, emptied, bits flipped, pieces doubled, zeroed, overwritten or inserted."""
    place, size = rng.randrange(len(data) + 1), rng.choice([1, 1, 2, 8, 64])
    noise = rng.randbytes(size)
    return rng.choice(
        [
            b"",
            data[:place],
            data[place:],
            data[: len(data) // 2],
            data[:place] + bytes([(data[place : place + 1] or b"\0")[0] ^ 1 << rng.randrange(8)]) + data[place + 1 :],
            data[:place] + noise + data[place + size :],
            data[:place] + noise + data[place:],
            data[:place] + data[max(0, place - size) :],
            data[:place] + bytes(size) + data[place + size :],
            data + noise,
            rng.randbytes(len(data) % 4096),
        ]
    )


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value inside dictionaries and lists."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield (*path, key)
        yield from places(inner, (*path, key))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value at a path."""
    result = copy.deepcopy(value)
    at(result, path[:-1])[path[-1]] = new
    return result


def without(value: Any, path: tuple[Any, ...]) -> Any:
    result = copy.deepcopy(value)
    del at(result, path[:-1])[path[-1]]
    return result


def shuffled(value: Any, rng: Random) -> Any:
    """The same dictionaries, with their keys in another order."""
    if isinstance(value, dict):
        keys = rng.sample(list(value), len(value))
        return {key: shuffled(value[key], rng) for key in keys}
    return [shuffled(inner, rng) for inner in value] if isinstance(value, list) else value


def reprinted(value: Any, rng: Random) -> str:
    """The same value as JSON, written in another way."""
    text = json.dumps(shuffled(value, rng), indent=rng.choice([None, 0, 1, 7]), ensure_ascii=rng.random() < 0.5)
    return rng.choice(["", "\n", " \t\r\n"]) + text + rng.choice(["", "\n\n", "   "])


def is_equal(a: Any, b: Any) -> bool:
    """Equality that tells 1 from True and from 1.0, and has nan equal to nan."""
    return repr(a) == repr(b)
