"""The committed records give the numbers and verdicts that they gave when they were measured.

verdicts.json was made before the code was rearranged. Words may change; table cells, verdicts and numbers may not.
"""

import json
import re
import shutil
from pathlib import Path

import pytest

from paper.harness.records import Records
from paper.harness.trial import Options
from paper.report.pages import write_report
from paper.report.summary import gather

EXPECTED = json.loads(Path(__file__).with_name("verdicts.json").read_text(encoding="utf-8"))
RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def summary():
    return gather(Options(), Records(RESULTS / "mini"))


def numbers(*texts):
    """As they are written, in any order."""
    return sorted(number for text in texts for number in re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?", text))


def cells(table):
    """Of the rows below the head, as one line each."""
    return [" | ".join(row) for row in table.rows[1:]]


def facts(section):
    outcome = section.outcome
    return {
        "trials": [len(section.known), len(section.trials)],
        "facts": numbers(*section.facts()),
        "tables": [cells(table) for table in outcome.tables],
        "claims": [
            {"verdict": claim.verdict, "evidence": numbers(claim.evidence), "checked": numbers(claim.checked)}
            for claim in outcome.claims
        ],
        "notes": numbers(*outcome.notes),
    }


@pytest.mark.parametrize("name", EXPECTED["experiments"])
def test_numbers_and_verdicts_are_the_same(summary, name):
    (section,) = [section for section in summary.sections if section.experiment.name == name]
    assert facts(section) == EXPECTED["experiments"][name]


def test_no_experiment_is_missing(summary):
    assert {section.name for section in summary.sections} == set(EXPECTED["experiments"])


def test_the_summary_is_the_same(summary):
    assert summary.tally() == EXPECTED["tally"]
    assert sorted(cells(summary.spent)) == sorted(EXPECTED["spent"])
    assert [cells(table) for table in summary.estimates] == EXPECTED["estimates"]


def test_the_committed_pages_are_those_of_the_records(tmp_path):
    """`python -m paper report` writes them anew; no figure is drawn again."""
    out = shutil.copytree(RESULTS, tmp_path / "results")
    write_report(Options(), out, log=lambda text: None)
    changed = [
        str(path.relative_to(out))
        for path in sorted(out.rglob("*.*"))
        if path.read_bytes() != (RESULTS / path.relative_to(out)).read_bytes()
    ]
    assert changed == []
