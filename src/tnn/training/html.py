"""The parts that our pages share: one HTML file without external resources, for light and dark mode and any screen."""

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from typing import Literal

CSS = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #5b6570; --line: #d9dee4; --paper: #fff; --shade: #f5f7f9;
  --link: #2f5d9b; --good: #1f7a46; --fair: #8a5a00; --bad: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7ea; --soft: #9aa5b1; --line: #353c45; --paper: #14171b; --shade: #1d2127;
    --link: #8db4e8; --good: #6cc592; --fair: #e0b04c; --bad: #f2887f; }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1.0625rem/1.6 Charter, Georgia, Cambria, serif; }
main { max-width: 48rem; margin: 0 auto; padding: 3rem 1.25rem 4rem; }
h1, h2, h3 { line-height: 1.2; font-weight: 600; }
h1 { margin: 0 0 1rem; font-size: 2rem; }
h2 { margin: 3rem 0 0.75rem; font-size: 1.35rem; }
h3 { margin: 1.75rem 0 0.5rem; font-size: 1.0625rem; }
p { margin: 0 0 1rem; }
a { color: var(--link); text-decoration-thickness: 1px; text-underline-offset: 0.15em; }
.facts, figcaption, summary, table, dl, nav { font: 0.875rem/1.5 system-ui, sans-serif; }
.facts, figcaption, summary, th, dt { color: var(--soft); }
code, pre { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 0.8125rem; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr)); gap: 1.25rem; margin: 2rem 0;
  padding: 1.25rem 0; border: solid var(--line); border-width: 1px 0; }
dl div { display: flex; flex-direction: column-reverse; justify-content: flex-end; }
dd { margin: 0; font-size: 1.5rem; line-height: 1.3; font-weight: 600; font-variant-numeric: tabular-nums; }
figure { margin: 1.25rem 0; }
figcaption { margin-bottom: 0.4rem; }
img { display: block; width: 100%; height: auto; padding: 0.75rem; background: #ffffff; border-radius: 6px; }
.wide { overflow-x: auto; }
.wide img { min-width: 40rem; }
pre { margin: 0 0 1rem; padding: 1rem; overflow-x: auto; background: var(--shade); border-radius: 6px;
  line-height: 1.5; }
.samples { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); gap: 0 1.25rem; }
.samples figure { min-width: 0; }
.samples pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; }
.table { overflow-x: auto; margin: 1.25rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.35rem 1.5rem 0.35rem 0; border-bottom: 1px solid var(--line); text-align: right; }
th { font-weight: 400; }
.named th { vertical-align: bottom; }
.named td { white-space: nowrap; }
.named th:first-child, .named td:first-child { position: sticky; left: 0; background: var(--paper); text-align: left; }
th:last-child, td:last-child { padding-right: 0; }
.marked { font-weight: 600; }
.texts table { min-width: 44rem; }
.texts th, .texts td { text-align: left; vertical-align: top; }
.texts td:first-child { min-width: 9rem; }
summary { cursor: pointer; padding: 0.25rem 0; }
nav ul { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; margin: 0 0 2rem; padding: 0; list-style: none; }
.claims { margin: 0 0 1.5rem; padding: 0; list-style: none; }
.claims li { display: grid; grid-template-columns: 8.5rem 1fr; padding: 0.6rem 0; }
.claims li + li { border-top: 1px solid var(--line); }
.claims p { margin: 0; }
.verdict { justify-self: start; align-self: start; margin-top: 0.2rem; padding: 0 0.6rem; border-radius: 1rem;
  background: var(--soft); color: var(--paper); font: 600 0.75rem/1.6 system-ui, sans-serif; white-space: nowrap; }
.good { background: var(--good); }
.fair { background: var(--fair); }
.bad { background: var(--bad); }
.spans p { margin: 0 0 0.25rem; overflow-wrap: anywhere; }
.spans .facts { margin-top: 1.25rem; }
mark { padding: 0 0.15rem; border-radius: 3px; color: var(--paper); }
mark small { margin-left: 0.3rem; font: 600 0.7rem/1 system-ui, sans-serif; }
@media (min-width: 48rem) { /* a wide table extends into the right margin */
  .named, .texts { width: max-content; min-width: 100%; max-width: calc(50vw + 21.5rem); }
}
@media (max-width: 36rem) {
  main { padding-top: 2rem; }
  .claims li { grid-template-columns: 1fr; gap: 0.35rem; }
}
"""

Kind = Literal["numbers", "named", "texts"]  # of a table: only numbers; numbers after a name; sentences


def document(title: str, body: str) -> str:
    """The complete page with its title; `body` is HTML.

    >>> from tnn.training.html import document
    >>> document("Results", "<p>None yet.</p>")
    '<!doctype html>...<h1>Results</h1>\\n<p>None yet.</p>...'
    """
    head = (
        '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>"
    )
    main = f"<main>\n<h1>{escape(title)}</h1>\n{body}\n</main>"
    return f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{main}\n</body>\n</html>\n'


def figure(png: bytes, caption: str, wide: bool = False) -> str:
    """An image inside the page. A wide one scrolls on a narrow screen, where it would be too small to read.

    >>> from tnn.training.html import figure
    >>> figure(b"", "Nothing")
    '<figure>\\n<figcaption>Nothing.</figcaption>\\n<div><img alt="Nothing" src="data:image/png;base64,"></div>...'
    """
    image = f'<img alt="{escape(caption)}" src="data:image/png;base64,{b64encode(png).decode()}">'
    frame = '<div class="wide">' if wide else "<div>"
    return f"<figure>\n<figcaption>{escape(caption)}.</figcaption>\n{frame}{image}</div>\n</figure>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], kind: Kind = "numbers", marked: str = "") -> str:
    """A table that scrolls if it is wider than the screen. The row whose name is `marked` is bold.

    >>> from tnn.training.html import table
    >>> table(["n"], [["1 < 2"]])
    '<div class="table numbers"><table>\\n<tr><th>n</th></tr>\\n<tr><td>1 &lt; 2</td></tr>\\n</table></div>'
    """
    lines = ["<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>"]
    for row in rows:
        start = '<tr class="marked">' if row[0] == marked else "<tr>"
        lines.append(start + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>")
    return f'<div class="table {kind}"><table>\n' + "\n".join(lines) + "\n</table></div>"


def headlines(numbers: dict[str, str]) -> str:
    """The most important numbers of a page, by their description.

    >>> from tnn.training.html import headlines
    >>> headlines({"claims hold": "12"})
    '<dl>\\n<div><dt>claims hold</dt><dd>12</dd></div>\\n</dl>'
    """
    entries = [f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in numbers.items()]
    return "<dl>\n" + "\n".join(entries) + "\n</dl>"
