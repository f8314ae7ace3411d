"""Files of tagged words: their forms, and what is refused."""

import gzip

import pytest

from tnn.data.conll import read_conll


def read(path, text, *columns, **options):
    path.write_text(text, encoding="utf-8")
    return [(" ".join(s.words), " ".join(s.tags), s.lines) for s in read_conll(path, *columns, **options)]


def test_sentences_documents_and_comments(tmp_path):
    text = "-DOCSTART- -X- O\n\n# a comment of five words\nin IN O\nRome NNP B-LOC\n \n\n#tag NN O\n# NN O\n"
    text += "-DOCSTART- -X- O\na DT O"
    expected = [("in Rome", "O B-LOC", [4, 5]), ("#tag #", "O O", [8, 9]), ("a", "O", [11])]
    assert read(tmp_path / "a.conll", text) == expected
    assert read(tmp_path / "a.TXT", text.replace("\n", "\r\n")) == expected
    assert read(tmp_path / "a.bio", "\ufeff" + text, 1, 2)[0][1] == "IN NNP"
    (tmp_path / "a.iob.gz").write_bytes(gzip.compress(text.encode()))
    assert next(read_conll(tmp_path / "a.iob.gz")).words == ["in", "Rome"]


def test_tabs_keep_blanks_inside_of_words(tmp_path):
    assert read(tmp_path / "a.conll", "1 000\tB-N\neuros\tO\n") == [("1 000 euros", "B-N O", [1, 2])]
    assert read(tmp_path / "a.conll", "a\u00a0b B-N\n") == [("a\u00a0b", "B-N", [1])]


def test_words_alone(tmp_path):
    assert read(tmp_path / "a.conll", "in\nRome\n", tags=False) == [("in Rome", "", [1, 2])]


def test_conll_u(tmp_path):
    text = "# text = du\n1-2\tdu\t_\t_\n1\tde\tde\tADP\n2\tle\tle\tDET\n2.1\tx\t_\t_\n\n"
    assert read(tmp_path / "a.conllu", text, 2, 4) == [("de le", "ADP DET", [3, 4])]


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("in O\nRome\n", (), r"same number of columns on each line; line 2 has 1, and line 1 has 2$"),
        ("in O\n\nnew york B-LOC\n", (), r"line 3 has 3, and line 1 has 2$"),
        ("in\nRome\n", (), r"a.conll must have a word and its tag on each line; it has one column$"),
        ("in O\n", (2, -1), r"it has 2 columns, and both are number 2$"),
        ("in O\n", (3,), r"data.word_column must be from 1 to 2 in .*a.conll, or below 0; got 3$"),
        ("in O\n", (1, 0), r"data.tag_column must be from 1 to 2 in .*a.conll, or below 0; got 0$"),
        ("in\tO\nRome\t\n", (), r"a.conll, line 2: the tag is missing$"),
        ("in\tO\n \tO\n", (), r"a.conll, line 2: the word is missing$"),
        ("\n\n", (), r"a.conll has no words$"),
        ("-DOCSTART- O\n", (), r"a.conll has no words$"),
        ('{"text": "a"}\n', (), r"it looks like JSON; JSONL files end in .jsonl$"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, text, columns, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "a.conll", text, *columns)


def test_files_of_other_kinds(tmp_path):
    (tmp_path / "a.md").write_text("in O\n")
    with pytest.raises(ValueError, match=r"a.md is not a file of tagged words: its name must end in .conll"):
        list(read_conll(tmp_path / "a.md"))
    (tmp_path / "a.conll").write_bytes(b"in O\n\xff O\n")
    with pytest.raises(ValueError, match=r"a.conll is not a UTF-8 text: see byte 5"):
        list(read_conll(tmp_path / "a.conll"))
