"""The page says what was measured, and needs nothing but itself."""

import math
import re
from base64 import b64decode
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO

import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from tnn.training.extrapolation import Extrapolation
from tnn.training.perplexity import Perplexity
from tnn.training.report import DemoResults, format_time, page, printable
from tnn.training.speed import Speed

EMPTY = {"img", "meta"}  # elements that are never closed
TEXT = "if a < b and c:\n\treturn '<script>alert(1)</script>' & \"ä\"\x00\x1b[2J"


def perplexity(length, value):
    return Perplexity(length, math.log(value), tokens=234_920, words=30_000, bytes=234_920)


def png(height):
    file = BytesIO()
    Figure(figsize=(2, height), dpi=10).savefig(file, format="png")
    return file.getvalue()


@pytest.fixture(scope="module")
def results():
    return DemoResults(
        facts=["16 November 2026", "2 CPU threads", "tnn demo --out 'a&b'"],
        settings="recipe  demo <1>\nseed    0",
        parameters=675_200,
        steps=750,
        tokens_per_step=4096,
        seconds=150.4,
        extrapolation=Extrapolation(512, (perplexity(512, 4.0), perplexity(2048, 3.9), perplexity(14_336, 3.96))),
        temperature=0.8,
        prompt="class <Q>:\n    def ",
        samples={"exact": TEXT, "state-space": TEXT},
        speeds=[Speed(d, n, v / n) for n in (512, 4096) for d, v in (("exact", 4e6), ("recompute", 5e4))],
        state_space=[{"layer": 0, "states": 14, "residual": 7.01e-4, "bound": 7.4e-3, "poles": 9}],
        training_figure=png(1),
        extrapolation_figure=png(2),
        kernels_figure=png(3),
    )


class Reader(HTMLParser):
    """Finds elements that are not closed, addresses, and the text."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.addresses, self.texts = [], set(), [], []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href", "srcset", "data")]
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data)


def test_it_needs_nothing_else(results):
    html = page(results)
    reader = Reader(html)
    assert html.startswith("<!doctype html>")
    assert not re.search(r"https?:|//|url\(|@import", re.sub(r"base64,[A-Za-z0-9+/=]+", "", html))
    assert not {"script", "link", "iframe", "object"} & reader.tags
    images = [address.removeprefix("data:image/png;base64,") for address in reader.addresses]
    assert [imread(BytesIO(b64decode(image, validate=True))).shape[:2] for image in images] == [
        (10, 20),
        (20, 20),
        (30, 20),
    ]


@pytest.mark.parametrize(
    "words",
    [
        "675,200",
        "2 min 30 s",
        "20,426",  # 750 * 4096 / 150.4
        "4.000",
        "perplexity per byte of the test text, 2.00 bits",
        "perplexity at 14,336 tokens, relative to 512",
        "0.990",
        "At 14,336 bytes, 28 times the length,",
        "234,920",
        "tokens/s, exact, after 4,096 tokens",
        "977",  # 4e6 / 4096
        "12.2",  # 5e4 / 4096
        "7.0e-04",
        "2 CPU threads",
        "they generated the same text",
        "temperature 0.8",
    ],
)
def test_what_was_measured_is_there(results, words):
    assert words in "".join(Reader(page(results)).texts)


def test_texts_stay_texts(results):
    read = "".join(Reader(page(results)).texts)
    assert read.count("class <Q>:\n    def if a < b and c:\n\treturn '<script>alert(1)</script>' & \"ä\"��[2J") == 2
    assert "recipe  demo <1>\nseed    0" in read
    assert "tnn demo --out 'a&b'" in read


def test_a_layer_is_counted_from_one_as_in_the_figure(results):
    assert "<tr><td>1</td><td>14</td>" in page(results)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (("abc", "abd"), "their first 2 characters are the same"),
        (("abc", "abcd"), "their first 3 characters are the same"),
        (("a", "b"), "their first 0 characters are the same"),
        (("", ""), "they generated the same text"),
    ],
)
def test_decoders_that_part(results, texts, words):
    assert words in page(replace(results, samples=dict(zip(("exact", "state-space"), texts, strict=True))))


def test_a_training_of_unknown_duration(results):
    unknown = replace(results, seconds=None)
    assert len(unknown.headlines()) == len(results.headlines()) - 2
    assert "in training" not in page(unknown)


def test_a_model_that_fails_at_length(results):
    broken = Extrapolation(512, (perplexity(512, 4.0), Perplexity(1024, math.inf, 10, 2, 10)))
    assert "perplexity is inf times that at 512" in page(replace(results, extrapolation=broken)).replace("\n", " ")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "0 s"), (59.6, "1 min 0 s"), (60, "1 min 0 s"), (3599.9, "1 h 0 min"), (90_061, "25 h 1 min")],
)
def test_duration(seconds, words):
    assert format_time(seconds) == words


def test_printable():
    assert printable("a\tb\nü\r\x00\x7f\ud800") == "a\tb\nü����"
