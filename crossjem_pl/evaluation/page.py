"""The shell of a self-contained HTML page: no script, nothing loaded, for screens, phones and paper."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

from crossjem_pl.evaluation.drawing import PAPER, Plot

__all__ = ["document", "figure", "notes"]

_CSS = """
:root { color-scheme: light; --paper: #fff; --ink: #1c2430; --soft: #566173; --line: #d9dee5;
  --tint: #f4f6f9; --good: #176b3a; --bad: #a8460b; --good-tint: #e8f4ec; --note: #fff8e6;
  --note-edge: #d9a514; --link: #1d5a9e; }
@media screen and (prefers-color-scheme: dark) {
  :root { color-scheme: dark; --paper: #171c24; --ink: #e6eaf0; --soft: #a3adbc; --line: #39424f;
    --tint: #212833; --good: #5cc98a; --bad: #f0954a; --good-tint: #1b3527; --note: #332b14;
    --note-edge: #d9a514; --link: #8bbcf5; }
  .plots img { filter: invert(.9) hue-rotate(180deg); }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem 1.25rem 3rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .2rem; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .8rem; padding-top: .9rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.8rem 0 .6rem; }
p { max-width: 48rem; margin: .5rem 0; }
a { color: var(--link); }
.soft, small { color: var(--soft); }
small { font-size: .8rem; display: block; white-space: nowrap; }
.scroll { overflow-x: auto; margin: 1.2rem 0; border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .55rem .65rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
tbody tr:last-child > * { border-bottom: 0; }
thead th { background: var(--tint); font-size: .85rem; white-space: nowrap; vertical-align: bottom; }
.results td, .results thead th:not(:first-child) { text-align: right; white-space: nowrap; }
.results th:first-child { position: sticky; left: 0; background: var(--paper); min-width: 8rem; max-width: 16rem;
  overflow-wrap: anywhere; border-right: 1px solid var(--line); }
.results thead th:first-child { background: var(--tint); }
.results tbody th { font-weight: 600; }
.results tr.baseline > * { background: var(--tint); }
.best { font-weight: 700; }
.gain { font-weight: 700; color: var(--good); }
.loss { font-weight: 700; color: var(--bad); }
.notes { background: var(--note); border-left: 4px solid var(--note-edge); padding: .6rem 1rem .6rem 2rem;
  margin: 1.2rem 0; border-radius: 0 6px 6px 0; max-width: 60rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); gap: 1.2rem;
  margin: 1.2rem 0;
  align-items: start; }
.plots figure { margin: 0; border: 1px solid var(--line); border-radius: 8px; padding: .8rem; }
.plots img { display: block; width: 100%; height: auto; }
.example { border: 1px solid var(--line); border-radius: 8px; margin: 0 0 1rem; break-inside: avoid; }
.example header { padding: .6rem .9rem; background: var(--tint); border-radius: 8px 8px 0 0;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
.example header b { font-size: 1.02rem; }
.example header span { color: var(--soft); font-size: .85rem; margin-left: .5rem; }
.example > ol, .example > p { padding: .6rem .9rem .2rem 2.5rem; }
.example > p { padding: 0 .9rem .6rem; }
.sides { display: grid; grid-template-columns: 1fr 1fr; }
.sides > div { padding: .6rem .9rem; min-width: 0; }
.sides > div + div { border-left: 1px solid var(--line); }
.sides h4 { margin: 0 0 .4rem; font-size: .9rem; overflow-wrap: anywhere; }
.sides h4 span { font-weight: 400; color: var(--soft); }
ol { margin: 0; padding-left: 1.6rem; }
.example li { padding: .12rem .4rem; margin-bottom: .15rem; border-radius: 4px; overflow-wrap: anywhere; }
.example li.relevant { background: var(--good-tint); color: var(--good); font-weight: 600; }
.missing { background: var(--tint); border-left: 4px solid var(--soft); padding: .6rem 1rem;
  border-radius: 0 6px 6px 0; }
nav ul { margin: 1rem 0; padding: 0; list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; }
nav a { display: inline-block; padding: .35rem 0; }
details { border: 1px solid var(--line); border-radius: 8px; margin: 1rem 0; padding: 0 .9rem; }
summary { cursor: pointer; padding: .7rem 0; font-weight: 600; overflow-wrap: anywhere; }
details .scroll { margin-top: .3rem; }
pre { overflow-x: auto; margin: .5rem 0 1rem; padding: .8rem; background: var(--tint); border-radius: 6px;
  font: 14px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.figures td, .figures thead th:not(:first-child) { text-align: right; white-space: nowrap; }
.figures tbody th { font-weight: 600; }
.figures thead th.words, .figures td.words { text-align: left; }
.figures td.words { white-space: normal; min-width: 12rem; overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  body { padding: 1rem .8rem 2rem; }
  th, td { padding: .45rem .6rem; }
  .results th:first-child { max-width: 9rem; min-width: 7.5rem; }
  .sides { grid-template-columns: 1fr; }
  .sides > div + div { border-left: 0; border-top: 1px solid var(--line); }
}
@media print {
  @page { size: A4 landscape; margin: 12mm; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  .scroll { overflow: visible; border: 0; }
  .results { font-size: 9pt; line-height: 1.35; }
  .results th:first-child { position: static; }
  .results td, .results th, .results thead th { padding: .25rem .35rem; }
  .results thead th, .results small { font-size: 7pt; }
  .plots { grid-template-columns: 1fr 1fr 1fr; gap: .6rem; }
  .plots figure, tr { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  .example { font-size: 9pt; margin-bottom: .5rem; }
  .figures { font-size: 9pt; }
  .figures td, .figures th { padding: .25rem .4rem; }
  nav { display: none; }
  a { color: inherit; }
  a[href^="http"]::after { content: " (" attr(href) ")"; overflow-wrap: anywhere; }
  details::details-content { content-visibility: visible; block-size: auto; }
  pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: 7.5pt; line-height: 1.35; }
  .example header, .sides > div { padding: .3rem .6rem; }
}
"""


def document(title: str, body: Sequence[str]) -> str:
    """The whole document; `title` is escaped here, the parts of the body are HTML already."""
    head = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f"<style>{_CSS}</style>",
        "</head>",
        "<body>",
    ]
    return "\n".join([*head, *body, "</body>", "</html>", ""])


def figure(plot: Plot) -> str:
    """The plot as an embedded image, without its paper: a dark page turns its colours round."""
    svg = plot.svg.replace(f"fill: {PAPER}", "fill: none")
    data = base64.b64encode(svg.encode("utf-8")).decode("ascii")
    return f'<figure><img alt="{escape(plot.description)}" src="data:image/svg+xml;base64,{data}"></figure>'


def notes(texts: Sequence[str]) -> list[str]:
    """What a reader must know, as a list set off from the text; nothing where there is none."""
    if not texts:
        return []
    return ['<ul class="notes">', *(f"<li>{escape(text)}</li>" for text in texts), "</ul>"]
