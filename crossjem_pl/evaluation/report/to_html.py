"""A report as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby

from crossjem_pl.evaluation import wording
from crossjem_pl.evaluation.html import differences, ranked_item, results_table
from crossjem_pl.evaluation.page import document, figure, notes
from crossjem_pl.evaluation.report.contents import (
    Block,
    Differences,
    Figure,
    Folded,
    HardList,
    HardLists,
    Missing,
    Paragraph,
    Preformatted,
    Report,
    Results,
    Table,
)

__all__ = ["to_html"]


def to_html(report: Report) -> str:
    """The whole document: plots embedded, all texts of the runs escaped, nothing loaded, no script."""
    links = [f'<li><a href="#{escape(one.anchor)}">{escape(one.title)}</a></li>' for one in report.sections]
    parts = [
        f"<h1>{escape(report.title)}</h1>",
        f'<p class="soft">{escape(report.subtitle)}</p>',
        f'<nav aria-label="Sections"><ul>{"".join(links)}</ul></nav>',
        *notes(report.notes),
    ]
    for section in report.sections:
        parts.append(f'<h2 id="{escape(section.anchor)}">{escape(section.title)}</h2>')
        parts += _blocks(section.blocks)
    return document(report.title, parts)


def _blocks(blocks: Sequence[Block]) -> list[str]:
    parts: list[str] = []
    for drawn, group in groupby(blocks, lambda block: isinstance(block, Figure)):
        if drawn:  # neighbouring plots stand side by side where there is room
            plots = [figure(block.plot) for block in group if isinstance(block, Figure)]
            parts += ['<div class="plots">', *plots, "</div>"]
        else:
            for block in group:
                parts += _block(block)
    return parts


def _block(block: Block) -> list[str]:
    match block:
        case Paragraph(text, source):
            return [f'<p class="soft">{escape(text)}{_link(source)}</p>']
        case Missing(text):
            return [f'<p class="missing">{escape(text)}</p>']
        case Table():
            return [_table(block)]
        case Figure(_, plot):
            return [figure(plot)]
        case Preformatted(text, _):
            return [f'<pre tabindex="0">{escape(text)}</pre>']
        case Results(comparison):
            return [results_table(comparison)]
        case Differences(comparison):
            return differences(comparison)
        case HardLists(metric, lists):
            return [_hard_list(metric, one) for one in lists]
        case Folded(title, inner):
            return [f"<details><summary>{escape(title)}</summary>", *_blocks(inner), "</details>"]


def _link(source: tuple[str, str] | None) -> str:
    return "" if source is None else f' (<a href="{escape(source[1])}">{escape(source[0])}</a>)'


def _table(table: Table) -> str:
    styles = [' class="words"' if i in table.words else "" for i in range(len(table.columns))]
    header = "".join(
        f'<th scope="col"{style}>{escape(column)}</th>'
        for column, style in zip(table.columns, styles, strict=True)
    )
    rows = []
    for name, *cells in table.rows:
        shown = [f"<td{style}>{escape(cell)}</td>" for cell, style in zip(cells, styles[1:], strict=True)]
        rows.append(f'<tr><th scope="row">{escape(name)}</th>{"".join(shown)}</tr>')
    label = escape(table.columns[0] or "Settings")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table class="figures">'
        f"<thead><tr>{header}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _hard_list(metric: str, one: HardList) -> str:
    title = one.query if one.query is not None else f"query {one.query_id}"
    rank, item = one.found
    below = ""
    if rank > len(one.top):
        below = (
            f'<p class="soft">First relevant item, at rank {rank:,}:</p>'
            f'<ol start="{rank}">{ranked_item(item)}</ol>'
        )
    return (
        f'<section class="example"><header><b>{escape(title)}</b><span>{escape(metric)} '
        f"{wording.number(one.value)}, {one.relevant} relevant of {one.candidates}</span></header>"
        f"<ol>{''.join(ranked_item(shown) for shown in one.top)}</ol>{below}</section>"
    )
