"""Extrapolation: perplexity at each length, its table, JSON and figure."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tnn import TNNConfig, TNNForCausalLM
from tnn.data.tokens import Tokens
from tnn.training.extrapolation import (
    LENGTHS,
    Extrapolation,
    check_lengths,
    comparison_table,
    draw_extrapolation,
    extrapolate,
)
from tnn.training.perplexity import Perplexity, block_perplexity

EOS = 2


@pytest.fixture
def model():
    sizes = {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 1, "rpe_size": 4, "rpe_num_layers": 1}
    return TNNForCausalLM(TNNConfig(**sizes, initializer="torch")).eval()


@pytest.fixture
def tokens():
    ids = torch.randint(4, 50, (100,)).numpy().astype(np.uint16)
    return Tokens(ids, line_ends=np.array([100]), words=20, bytes=300, vocab_size=50)


def run(*perplexities, train_length=512, first=512):
    lengths = [first * 2**i for i in range(len(perplexities))]
    results = [Perplexity(n, math.log(p), 1000, 200, 4000) for n, p in zip(lengths, perplexities, strict=True)]
    return Extrapolation(train_length, tuple(results))


def test_lengths_of_the_paper():
    assert len(LENGTHS) == 19
    assert LENGTHS[:8] == (512, 768, 1024, 1280, 1536, 1792, 2048, 3072)
    assert LENGTHS[-1] == 14_336


def test_each_length_is_evaluated(model, tokens):
    result = extrapolate(model, tokens, [32, 8, 100, 8], EOS, 16)
    assert result.lengths == [8, 32, 100]
    assert result.perplexities == tuple(block_perplexity(model, tokens, n, EOS) for n in (8, 32, 100))
    assert result.average == pytest.approx(sum(p.per_token for p in result.perplexities) / 3)
    assert result.train_length == 16
    assert result.reference_length == 8  # 16 was not evaluated


def test_a_part_of_the_text(model, tokens):
    result = extrapolate(model, tokens, [8, 60], EOS, 8, max_tokens=60)
    assert {p.tokens for p in result.perplexities} == {60}


def test_ratios_are_to_the_length_of_training():
    assert run(20, 30, 40, train_length=1024).ratios == pytest.approx([2 / 3, 1, 4 / 3])
    assert run(20, 30, 40, train_length=100).ratios == pytest.approx([1, 1.5, 2])


def test_average_is_of_perplexities():
    assert run(20, 40).average == pytest.approx(30)  # as in the paper's table, not of losses


def test_table_of_large_numbers():
    table = run(29.13, 1.34e9, math.inf).to_table()
    assert "1.3400e+09" in table
    assert table.splitlines()[-1].split() == ["|", "Avg", "|", "inf", "|", "inf", "|"]
    assert len({len(line) for line in table.splitlines()}) == 1


def test_comparison_of_runs_with_other_lengths():
    rows = comparison_table({"a": run(20, 30), "b": run(40, 50, first=1024)}).splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert cells[0] == ["length", "a", "b"]
    assert cells[2:] == [
        ["512", "20.00", ""],
        ["1024", "30.00", "40.00"],
        ["2048", "", "50.00"],
        ["Avg", "25.00", "45.00"],
    ]


def test_json_comes_back(model, tokens):
    result = extrapolate(model, tokens, [8, 32], EOS, 8)
    assert Extrapolation.from_json(result.to_json()) == result
    content = json.loads(result.to_json())
    assert content["average"] == result.average
    assert content["perplexities"][1]["perplexity"] == result.perplexities[1].per_token


def test_json_of_what_has_no_number():
    overflown, undefined = Perplexity(512, 1e4, 10), Perplexity(1024, math.nan, 10)
    text = Extrapolation(512, (overflown, undefined)).to_json()
    assert "NaN" not in text
    assert "Infinity" not in text
    first, second = Extrapolation.from_json(text).perplexities
    assert first == overflown
    assert math.isnan(second.loss)
    assert replace(second, loss=0) == replace(undefined, loss=0)


def test_save(tmp_path):
    folder = tmp_path / "new" / "folder"
    for result in (run(20, 30), run(20, 25)):
        result.save(folder, "mini")
    assert sorted(p.name for p in folder.iterdir()) == [f"extrapolation.{x}" for x in ("json", "md", "png")]
    assert Extrapolation.from_json((folder / "extrapolation.json").read_text()) == run(20, 25)
    assert (folder / "extrapolation.md").read_text() == run(20, 25).to_table() + "\n"
    assert (folder / "extrapolation.png").read_bytes().startswith(b"\x89PNG")


def test_figure_of_several_runs():
    runs = {"TNN": run(24, 23.5, 23), "no decay": run(24, 25, 26, train_length=1024)}
    (axes,) = draw_extrapolation(runs).axes
    curves = [line for line in axes.lines if line.get_label().startswith(("TNN", "no decay"))]
    assert [list(line.get_xdata()) for line in curves] == [[512, 1024, 2048]] * 2
    assert list(curves[0].get_ydata()) == pytest.approx([24, 25, 26])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "no decay: 25.00 on average",  # as the lines stand
        "TNN: 23.50 on average",
    ]
    assert sorted(text.get_text() for text in axes.texts) == [" trained at 1,024", " trained at 512"]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")


def test_figure_is_logarithmic_where_a_run_explodes(tmp_path):
    (axes,) = draw_extrapolation({"gMLP": run(29, 1e9, 1e20), "TNN": run(24, 24, 24)}).axes
    assert axes.get_yscale() == "log"


@pytest.mark.parametrize("values", [(math.inf, math.inf), (20, math.inf), (20,)], ids=str)
def test_figure_of_edges(tmp_path, values):
    run(*values).save(tmp_path)
    assert (tmp_path / "extrapolation.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([], "at least one length"),
        ([8, 0], "lengths must be at least 1; got 0"),
        ([8, 101], "at most the length of the text, 100 tokens; got 101"),
    ],
)
def test_mistakes(model, tokens, lengths, message):
    with pytest.raises(ValueError, match=message):
        extrapolate(model, tokens, lengths, EOS, 8)
    with pytest.raises(ValueError, match=message):
        check_lengths(lengths, 100)


def test_lengths_longer_than_the_part_read(model, tokens):
    with pytest.raises(ValueError, match="50 tokens; got 60"):
        extrapolate(model, tokens, [60], EOS, 8, max_tokens=50)
