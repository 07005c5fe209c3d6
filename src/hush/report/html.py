"""The few pieces of HTML a report is made of. Whatever comes from outside is escaped here, and only here."""

import base64
import re
from collections.abc import Iterable, Sequence
from html import escape
from string import Template

__all__ = ["Html", "details", "figures", "heading", "image", "page", "paragraph", "table", "verdict"]

_NUMBER = re.compile(r"[-−]?[\d.]+(e[-+]?\d+)?")


class Html(str):
    """Text that is HTML already; every other string is escaped where it is put in."""

    __slots__ = ()


_PAGE = Template(
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="hush $version">
<title>$title</title>
<style>
:root {
  color-scheme: light dark;
  --ink: #1a1a1a; --soft: #5a5a5a; --line: #d8d8d8; --paper: #ffffff; --good: #00664b; --bad: #a33f00; --open: #0a5a8a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #ececec; --soft: #ababab; --line: #454545; --paper: #161616;
    --good: #4cc9a0; --bad: #ff9a5c; --open: #7cc4f0;
  }
}
body {
  margin: 0 auto; max-width: 68rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif;
}
h1 { font-size: 1.5rem; margin: .5rem 0; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; overflow-wrap: anywhere; }
p { max-width: 46rem; }
.verdict { font-size: 1.1rem; border-left: .35rem solid var(--open); padding: .25rem .75rem; margin: .5rem 0; }
.good { border-color: var(--good); } .bad { border-color: var(--bad); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number { font-variant-numeric: tabular-nums; }
th:first-child, td:first-child, td.number { white-space: nowrap; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); gap: .75rem; }
figure { margin: 0; }
figure img { width: 100%; height: auto; background: #fff; border-radius: .25rem; }
figcaption, footer { color: var(--soft); font-size: .85rem; }
summary { cursor: pointer; }
</style>
</head>
<body>
$body
<footer><p>Made by hush $version.</p></footer>
</body>
</html>
"""
)


def page(title: str, body: Iterable[Html], version: str) -> Html:
    """The whole file: everything it needs is inside it."""
    return Html(_PAGE.substitute(title=_text(title), body="\n".join(body), version=_text(version)))


def heading(level: int, text: str) -> Html:
    return Html(f"<h{level}>{_text(text)}</h{level}>")


def paragraph(text: str) -> Html:
    return Html(f"<p>{_text(text)}</p>")


def verdict(text: str, good: bool | None) -> Html:
    """A sentence that stands out; `good` None where there is nothing to judge yet."""
    kind = "" if good is None else " good" if good else " bad"
    return Html(f'<p class="verdict{kind}">{_text(text)}</p>')


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """A table that scrolls sideways by itself where the window is narrow; without `columns` it has no head."""
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in columns)
    lines = [f"<thead><tr>{head}</tr></thead>"] if columns else []
    lines.append("<tbody>")
    for row in rows:
        cells = "".join(f"<td{_kind(cell)}>{_text(cell)}</td>" for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    return Html(f'<div class="scroll"><table>{"".join(lines)}</tbody></table></div>')


def _kind(cell: str) -> str:
    return ' class="number"' if _NUMBER.fullmatch(cell) else ""


def image(content: bytes, kind: str, caption: str) -> Html:
    """A picture inside the page; `kind` is svg+xml or png."""
    data = base64.b64encode(content).decode("ascii")
    words = _text(caption)
    return Html(
        f'<figure><img alt="{words}" src="data:image/{kind};base64,{data}"><figcaption>{words}</figcaption></figure>'
    )


def figures(images: Iterable[Html]) -> Html:
    """Pictures side by side, one below the other where the window is narrow."""
    return Html(f'<div class="figures">{"".join(images)}</div>')


def details(summary: str, inside: Html) -> Html:
    return Html(f"<details><summary>{_text(summary)}</summary>{inside}</details>")


def _text(value: str) -> str:
    return value if isinstance(value, Html) else escape(value, quote=True)
