"""A report as Markdown."""

from __future__ import annotations

import html
from collections.abc import Sequence

from crossjem_pl.evaluation import wording
from crossjem_pl.evaluation.markdown import differences, escape, line, ranked_item, results_table
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

__all__ = ["to_markdown"]


def to_markdown(report: Report, figures: str = "figures") -> str:
    """The report with its plots linked as `<figures>/<name>.svg`."""
    parts = [f"# {escape(report.title)}", escape(report.subtitle)]
    if report.notes:
        parts.append("\n".join(f"- {escape(note)}" for note in report.notes))
    for section in report.sections:
        parts.append(f"## {escape(section.title)}")
        parts += _blocks(section.blocks, figures)
    return "\n\n".join(parts) + "\n"


def _blocks(blocks: Sequence[Block], figures: str) -> list[str]:
    parts: list[str] = []
    for block in blocks:
        match block:
            case Paragraph(text, source):
                link = "" if source is None else f" ([{escape(source[0])}]({source[1]}))"
                parts.append(escape(text) + link)
            case Missing(text):
                parts.append(f"*{escape(text)}*")
            case Table():
                parts.append(_table(block))
            case Figure(name, plot):
                parts.append(f"![{escape(plot.description)}]({figures}/{name}.svg)")
            case Preformatted(text, language):
                parts.append(_fenced(text, language))
            case Results(comparison):
                parts.append(results_table(comparison))
            case Differences(comparison):
                parts += differences(comparison)
            case HardLists(metric, lists):
                parts += [_hard_list(metric, one) for one in lists]
            case Folded(title, inner):
                parts.append(f"<details><summary>{html.escape(title)}</summary>")
                parts += _blocks(inner, figures)
                parts.append("</details>")
    return parts


def _table(table: Table) -> str:
    align = ["---" if i == 0 or i in table.words else "---:" for i in range(len(table.columns))]
    rows = [line([escape(cell) for cell in row]) for row in (table.columns, *table.rows)]
    return "\n".join([rows[0], line(align), *rows[1:]])


def _fenced(text: str, language: str) -> str:
    """A fence longer than any that the text holds."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


def _hard_list(metric: str, one: HardList) -> str:
    title = escape(one.query) if one.query is not None else f"query {escape(one.query_id)}"
    rank, item = one.found
    lines = [
        f"**{title}** ({escape(metric)} {wording.number(one.value)}, {one.relevant} relevant of {one.candidates})",
        "",
        *(f"{i}. {ranked_item(shown)}" for i, shown in enumerate(one.top, 1)),
    ]
    if rank > len(one.top):
        lines += ["", f"First relevant item, at rank {rank:,}: {ranked_item(item)}"]
    return "\n".join(lines)
