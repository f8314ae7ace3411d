"""Sketches of texts, compared with the shares of passages counted one by one."""

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tnn.data.near_duplicates import PASSAGE, PLACES, SHARED, _passage_hashes, group_near_duplicates, sketch_of


def passages(text):
    text = text.ljust(PASSAGE, b"\0")
    return [text[start : start + PASSAGE] for start in range(len(text) - PASSAGE + 1)]


@given(st.binary(max_size=200), st.integers(0, 3))
@settings(deadline=None)
def test_equal_passages_have_equal_hashes_and_others_do_not(text, copies):
    text *= copies + 1
    hashes = _passage_hashes(np.frombuffer(text, np.uint8))
    found = passages(text)
    assert len(hashes) == len(found)
    assert len(set(hashes.tolist())) == len(set(found)) == len(set(zip(hashes.tolist(), found, strict=True)))
    assert set(sketch_of(text).tolist()) <= set(hashes.tolist())


def make_text(generator, words=600):
    return [b"word%d" % generator.randrange(10**6) for _ in range(words)]


def test_sketches_estimate_the_share_of_passages():
    generator = random.Random(0)
    for share in (0.0, 0.01, 0.05, 0.2, 1.0):
        words = make_text(generator)
        changed = [b"another" if generator.random() < share else word for word in words]
        one, other = b" ".join(words), b" ".join(changed)
        a, b = set(passages(one)), set(passages(other))
        assert abs((sketch_of(one) == sketch_of(other)).mean() - len(a & b) / len(a | b)) < 4 * 0.5 / PLACES**0.5


def test_groups_are_those_of_comparing_all_pairs():
    generator = random.Random(1)
    sketches = []
    for _ in range(20):
        words = make_text(generator)
        for _ in range(generator.randrange(1, 4)):  # each version from the one before
            words = [b"new" if generator.random() < 0.005 else word for word in words]
            sketches.append(sketch_of(b" ".join(words)))
    groups = np.array(group_near_duplicates(sketches))
    alike = np.array([[(a == b).mean() >= SHARED for b in sketches] for a in sketches])
    assert 1 < len(set(groups.tolist())) < len(sketches)
    assert ((groups[:, None] == groups) >= alike).all()
    assert [groups[number] for number in sorted(set(groups.tolist()))] == sorted(set(groups.tolist()))


def test_nothing_and_short_texts():
    assert group_near_duplicates([]) == []
    assert group_near_duplicates([sketch_of(text) for text in (b"", b"a", b"", b"b", b"a")]) == [0, 1, 0, 3, 1]
