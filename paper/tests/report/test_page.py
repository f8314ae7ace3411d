"""The report says what the records say, of all experiments, and the page needs nothing but itself."""

import re
from collections import Counter
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from paper import catalogue, running
from paper.__main__ import app
from paper.harness.experiment import Claim, Experiment, Outcome, Table
from paper.harness.formatting import format_mean_std
from paper.harness.judging import collect, verdict_of
from paper.harness.records import Records
from paper.harness.trial import Options, Trial
from paper.report import pages, summary
from paper.report.cost import Cost, Estimates
from paper.report.discrepancies import DISCREPANCIES
from paper.report.document import SIGNS
from paper.report.page import COLORS
from paper.report.pages import write_report
from tnn.training.figures import new_figure

EMPTY = {"img", "meta"}  # elements that are never closed
MACHINE = {"device": "cpu", "cores": 2, "threads": 1, "kernel": "available (avx2)"}
VERSIONS = {"python": "3.11.7", "torch": "2.13.0"}
SEARCH = {"rates": [1e-3, 3e-3], "steps": 300}
KNOWN = [
    "3 of 4 trials have been measured; they took 2.5 h",
    "2 CPU cores, 1 thread per trial, native kernel available (avx2)",
    "python 3.11.7, torch 2.13.0",
    "✓ holds",
    "≈ holds in part",
    "✗ does not hold",
    "first <x0> & so on.",
    "<y> 1 < 2",  # the evidence of the second claim
    "Checked: with & without 1.",
    "The scores of <second>",
    "python -m paper second --scale mini",
    "2 of 2 trials measured · 1.7 h · at most 701 MB · learning rates 0.001, 0.003 tried for 300 updates each",
    "3 of 3 trials measured · 2 of them in other experiments · 50 min 0 s · at most 702 MB",
    "Scores <b>",
    "Order: <z> & all.",
    "Nothing has been measured yet.",
    DISCREPANCIES[0].where,
    DISCREPANCIES[-1].here,
]


def experiment(name, rows, verdicts, borrowed=()):
    """Of made trials, one per row; `borrowed` are those of another experiment."""

    def plan(options):
        settings = {"search": SEARCH, "steps": options.steps or 10}
        own = [Trial(name, row, settings, lambda context: {"score": 1.0}) for row in rows]
        return [*own, *(trial for other in borrowed for trial in other.plan(options))]

    def conclude(options, records):
        found = collect(plan(options), records, "score")
        cells = [
            ("method", "published", "ours"),
            *((row, "24.67", format_mean_std(values)) for row, values in found.items()),
        ]
        claims = [
            Claim(f"{name} <x{i}> & so on.", v, f"<y> {i} < {i + 1}", f"with & without {i}.")
            for i, v in enumerate(verdicts)
        ]
        claims = claims if found else [replace(c, verdict="not measured", evidence="", checked="") for c in claims]
        figure = partial(new_figure, height=1) if found else None
        return Outcome((Table("Scores <b>", tuple(cells)),), figure, tuple(claims), ("Order: <z> & all.",))

    return Experiment(name, f"The scores of <{name}>.", tuple(rows), plan, conclude)


@pytest.fixture
def made(monkeypatch):
    """Three experiments in place of all; costs are tested elsewhere."""
    first = experiment("first", ["tnn", "s4"], ["holds", "does not hold"])
    second = experiment("second", ["tnn"], ["holds in part"], borrowed=[first])
    third = experiment("third", ["tnn"], [])
    experiments = {each.name: each for each in (first, second, third)}
    monkeypatch.setattr(catalogue, "EXPERIMENTS", experiments)
    monkeypatch.setattr(summary, "EXPERIMENTS", experiments)
    cost = Cost(10**6, 1000, 2**16)
    estimates = Estimates({"big": cost}, {name: Counter({cost: 2}) for name in experiments})
    monkeypatch.setattr(summary, "load_estimates", lambda: estimates)
    return [first, second, third]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def known(made, record, out):
    """Records of the first experiment, and of the second's own trial."""
    records = Records(out / "mini")
    trials = {trial.key: trial for each in made[:2] for trial in each.plan(Options())}
    for number, trial in enumerate(trials.values()):
        found = record(trial, score=number + 0.5)
        records.add(replace(found, seconds=3000.0, peak_memory_mb=700.0 + number, machine=MACHINE, versions=VERSIONS))
    return records


class Reader(HTMLParser):
    """Finds elements that are not closed, addresses, anchors, classes and the text."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.addresses, self.ids, self.classes, self.texts = [], set(), [], [], [], []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        values = dict(attributes)
        self.addresses += [values[name] for name in ("src", "href", "srcset", "data") if name in values]
        self.ids += [values["id"]] if "id" in values else []
        self.classes += values.get("class", "").split()
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data)


def read(out):
    return Reader((out / "report.html").read_text(encoding="utf-8"))


def test_it_needs_nothing_else(known, out):
    assert write_report(Options(), out, log=lambda text: None) == out / "report.html"
    html = (out / "report.html").read_text(encoding="utf-8")
    reader = Reader(html)
    assert not re.search(r"https?:|//|url\(|@import", re.sub(r"base64,[A-Za-z0-9+/=]+", "", html))
    assert not {"script", "link", "iframe", "object"} & reader.tags
    images = [address for address in reader.addresses if not address.startswith("#")]
    assert len(images) == 2
    assert all(address.startswith("data:image/png;base64,iVBORw0KGgo") for address in images)
    links = {address[1:] for address in reader.addresses if address.startswith("#")}
    assert links == set(reader.ids) == {"claims", "first", "second", "third", "discrepancies", "cost"}
    assert len(reader.ids) == len(links)


def test_what_is_known_is_there(known, out):
    write_report(Options(), out, log=lambda text: None)
    text = "".join(read(out).texts)
    assert [words for words in KNOWN if words not in text] == []


def test_verdicts_can_be_seen_at_a_glance(known, out):
    write_report(Options(), out, log=lambda text: None)
    classes = read(out).classes
    assert classes.count("verdict") == 2 * 3  # each claim in the summary and in its section
    assert [classes.count(color) for color in ("good", "fair", "bad")] == [2, 2, 2]


def test_the_summary_comes_first(known, out):
    write_report(Options(), out, log=lambda text: None)
    assert read(out).ids == ["claims", "first", "second", "third", "discrepancies", "cost"]


def test_the_readme_says_the_same(known, out):
    write_report(Options(), out, log=lambda text: None)
    text = (out / "README.md").read_text(encoding="utf-8")
    assert (
        "| ✓ claims hold | ≈ hold in part | ✗ do not hold | – not measured | trials measured | compute time |" in text
    )
    assert (
        "| 1             |              1 |             1 |              0 |               3 |        2.5 h |" in text
    )
    assert text.count("- ✗ **does not hold**: first <x1> & so on.\n") == 1  # in its section, without the evidence
    assert "- ✗ **does not hold**: first <x1> & so on. *<y> 1 < 2* Checked: with & without 1." in text
    assert text.count("Checked:") == 3  # of the claim that holds too
    assert "| s4     |     24.67 | 1.50 |" in text
    assert "![The scores of <first>](mini/first.png)" in text
    assert (out / "mini" / "first.png").is_file()
    assert "third.png" not in text
    assert text.count("- **") == len(DISCREPANCIES)
    assert "| second     |      3 |        3 |      2 | 50 min 0 s | 702 MB |" in text


def test_links_of_the_readme_lead_to_headings(known, out):
    write_report(Options(), out, log=lambda text: None)
    text = (out / "README.md").read_text(encoding="utf-8")
    slugs = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in re.findall("^#+ (.*)", text, re.M)]
    links = re.findall(r"\]\(#([^)]*)\)", text)
    assert len(links) == 6 + 3  # the contents, and each experiment at its claims
    assert [link for link in links if slugs.count(link) != 1] == []


def test_a_figure_is_drawn_again_only_if_it_shows_something_else(known, made, record, out):
    write_report(Options(), out, log=lambda text: None)
    first, second = out / "mini" / "first.png", out / "mini" / "second.png"
    for path in (first, second):
        path.write_bytes(b"as it was")
    write_report(Options(), out, log=lambda text: None)
    assert (first.read_bytes(), second.read_bytes()) == (b"as it was", b"as it was")
    second.unlink()
    known.add(record(made[0].plan(Options())[0], score=7.0))  # shared with the second experiment
    write_report(Options(), out, log=lambda text: None)
    assert first.read_bytes().startswith(b"\x89PNG")
    assert second.read_bytes().startswith(b"\x89PNG")


def test_studies_of_our_own_have_pages_and_no_place_in_the_report(known, out, record, monkeypatch):
    study, unknown = experiment("own", ["tnn"], ["holds"]), experiment("unknown", ["tnn"], ["holds"])
    monkeypatch.setattr("paper.report.pages.STUDIES", {each.name: each for each in (study, unknown)})
    known.add(record(study.plan(Options())[0], score=7.0))
    write_report(Options(), out, log=lambda text: None)
    assert "The scores of <own>" in (out / "mini" / "own.md").read_text(encoding="utf-8")
    assert not (out / "mini" / "unknown.md").exists()
    assert "<own>" not in (out / "README.md").read_text(encoding="utf-8")


def test_no_records(made, out):
    said = []
    write_report(Options(), out, log=said.append)
    reader = read(out)
    text = "".join(reader.texts)
    assert "None of the 4 trials has been measured yet." in text
    assert "None of the 4 trials has been measured yet." in said[0]
    assert text.count("Nothing has been measured yet.") == 3 + 1  # each section; the third has no claims either
    assert "img" not in reader.tags
    assert "- – **not measured**: first <x0> & so on.\n" in (out / "README.md").read_text(encoding="utf-8")
    assert list((out / "mini").iterdir()) == []


def test_records_of_other_settings_are_others(known, out):
    write_report(Options(steps=20), out, log=lambda text: None)
    assert "None of the 4 trials has been measured yet." in "".join(read(out).texts)


def test_paper_scale(made, out):
    write_report(Options(scale="paper"), out, log=lambda text: None)
    text = "".join(read(out).texts)
    assert "At paper scale models, data and updates are the published ones." in text
    assert "python -m paper first --scale paper" in text


def test_costs_are_added_up(made, records):
    one = f"{6 * 1e6 * 1000 * 2**16 / (0.4 * 19.5e12) / 3600:.2g}"
    recipes, experiments = summary.gather(Options(), records).estimates
    assert recipes.rows[1:] == (("big", "1,000,000", "1,000", "65,536", "3.9e+14", one, "0.0018"),)
    assert [row[:3] for row in experiments.rows[1:]] == [
        ("first", "2", "7.9e+14"),
        ("second", "2", "7.9e+14"),
        ("third", "2", "7.9e+14"),
        ("all", "6", "2.4e+15"),
    ]


def paper(out, *words):
    return CliRunner().invoke(app, [*words, "--out", str(out), "--models", str(out / "models")])


def test_the_commands(made, out, monkeypatch):
    monkeypatch.setattr(running, "versions", lambda: VERSIONS)
    done = paper(out, "all")
    assert done.exit_code == 0, done.output
    assert done.output.count(" at mini scale: ") == 3
    assert "4 of 4 trials have been measured" in done.output
    (out / "report.html").unlink()
    done = paper(out, "report")
    assert done.exit_code == 0, done.output
    assert " at mini scale: " not in done.output
    assert (out / "report.html").is_file()


def test_rows_are_of_one_experiment(made, out):
    done = paper(out, "all", "--methods", "tnn")
    assert done.exit_code == 1
    assert done.output == "error: --methods chooses rows of one experiment; all is of all\n"


def test_every_verdict_has_a_sign():
    verdicts = {verdict_of(conditions) for conditions in ([True], [False], [True, False], [None])}
    assert set(SIGNS) == set(pages.TALLY) == set(COLORS) == verdicts
