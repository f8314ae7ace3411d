"""Markdown and page show every block of a document."""

from html import unescape
from typing import get_args

import pytest

from paper.harness.experiment import Claim, Table
from paper.report.document import (
    Block,
    Claims,
    Code,
    Comment,
    Contents,
    Document,
    Heading,
    Image,
    Numbers,
    Paragraph,
    Sentences,
    Subject,
)
from paper.report.markdown import to_markdown
from paper.report.page import to_html

CLAIM = Claim("It is <best>.", "does not hold", "number 2", checked="it is.")
BLOCKS = [
    (Heading("Speed & size", "speed"), ["Speed & size"]),
    (Subject("How <fast>", "speed"), ["How <fast>"]),
    (Paragraph("1 < 2"), ["1 < 2"]),
    (Paragraph("a · b", small=True), ["a · b"]),
    (Code("python -m paper alm"), ["python -m paper alm"]),
    (Numbers({"claims hold": "24"}), ["claims hold", "24"]),
    (Contents({"speed": "Speed"}), ["Speed"]),
    (Claims((CLAIM,)), ["✗", "does not hold", "It is <best>.", "number 2", "Checked: it is."]),
    (Sentences(("where", "here"), (("Depth", "7 layers"),)), ["Depth", "7 layers"]),
    (Table("Scores", (("method", "ours"), ("tnn", "3.72 ± 0.02"))), ["Scores", "method", "tnn", "3.72 ± 0.02"]),
    (Image("speed.png", "Steps <n>"), ["Steps <n>"]),
    (Comment("fingerprint 1234"), ["fingerprint 1234"]),
]


@pytest.mark.parametrize(("block", "texts"), BLOCKS)
def test_every_block_has_both_forms(block, texts, tmp_path):
    (tmp_path / "speed.png").write_bytes(b"")
    document = Document("Results", (Heading("Speed", "speed"), block))
    markdown, html = to_markdown(document), to_html(document, tmp_path)
    assert [text for text in texts if text not in markdown] == []
    assert [text for text in texts if text not in unescape(html)] == []
    assert "<best>" not in html
    assert "<n>" not in html


def test_no_kind_of_block_is_left_out():
    assert {type(block) for block, _ in BLOCKS} == set(get_args(Block))


def test_claims_without_evidence(tmp_path):
    document = Document("Results", (Claims((CLAIM,), evidence=False),))
    for text in (to_markdown(document), to_html(document, tmp_path)):
        assert "It is " in text
        assert "number 2" not in text
        assert "Checked" not in text
