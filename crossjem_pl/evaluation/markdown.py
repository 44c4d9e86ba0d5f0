"""A comparison as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from crossjem_pl.evaluation import wording
from crossjem_pl.evaluation.results import Comparison, Difference, Example, RankedItem, SystemResult

__all__ = ["differences", "escape", "line", "ranked_item", "results_table", "to_markdown"]


def to_markdown(comparison: Comparison) -> str:
    """The table, its notes and method, and the example lists side by side."""
    parts = ["# Comparison", f"{wording.where(comparison)}.", results_table(comparison)]
    if comparison.notes:
        parts.append("\n".join(f"- {escape(note)}" for note in comparison.notes))
    parts += [escape(paragraph) for paragraph in wording.method(comparison)]
    if comparison.examples:
        parts += [
            f"## Where the rankings differ most ({escape(comparison.metrics[0])})",
            *differences(comparison),
        ]
    return "\n\n".join(parts) + "\n"


def differences(comparison: Comparison) -> list[str]:
    """The example lists, under a heading of the third level for each system."""
    parts = []
    for system in comparison.others:
        examples = [one for one in comparison.examples if one.system == system.name]
        if examples:
            parts.append(f"### {escape(system.name)} against {escape(comparison.baseline)}")
            parts += [_example(one, comparison.baseline) for one in examples]
    return parts


def results_table(comparison: Comparison) -> str:
    """One row per system: metrics with intervals, differences and p-values, parameters, training time."""
    tested = len(comparison.systems) > 1
    header, align = ["System"], ["---"]
    for metric in comparison.metrics:
        header.append(f"{escape(metric)} [95% CI]")
        align.append("---:")
        if tested:
            header += [f"Δ {escape(metric)} [95% CI]", "p (t-test)", "win/tie/loss"]
            align += ["---:"] * 3
    header += ["Parameters", "Training"]
    align += ["---:", "---:"]
    rows = [_row(comparison, system, tested) for system in comparison.systems]
    return "\n".join(line(cells) for cells in (header, align, *rows))


def _row(comparison: Comparison, system: SystemResult, tested: bool) -> list[str]:
    name = escape(system.name)
    cells = [f"{name} (baseline)" if tested and system.name == comparison.baseline else name]
    for metric in comparison.metrics:
        found = system.metrics[metric]
        cells.append(
            f"{wording.number(found.mean)} [{wording.number(found.low)}, {wording.number(found.high)}]"
        )
        if tested:
            cells += _difference(found.difference)
    return [*cells, wording.parameters(system.parameters), wording.training_time(system.train_seconds)]


def _difference(found: Difference | None) -> list[str]:
    if found is None:
        return ["–"] * 3
    mark = r"\*" if found.significant else ""
    counts = found.counts
    p, p_t = wording.p_value(found.p_randomisation_holm), wording.p_value(found.p_t_holm)
    return [
        f"{wording.signed(found.mean)}{mark} [{wording.signed(found.low)}, {wording.signed(found.high)}]",
        f"{escape(p)} ({escape(p_t)})",
        f"{counts.wins}/{counts.ties}/{counts.losses}",
    ]


def _example(example: Example, baseline: str) -> str:
    title = escape(example.query) if example.query is not None else f"query {escape(example.query_id)}"
    lines = [
        f"**{title}** ({example.relevant} relevant of {example.candidates})",
        "",
        line(
            [
                "",
                f"{escape(example.system)} ({wording.number(example.value)})",
                f"{escape(baseline)} ({wording.number(example.baseline_value)})",
            ]
        ),
        line(["---:", "---", "---"]),
    ]
    for rank in range(max(len(example.top), len(example.baseline_top))):
        lines.append(line([str(rank + 1), _cell(example.top, rank), _cell(example.baseline_top, rank)]))
    return "\n".join(lines)


def _cell(items: Sequence[RankedItem], rank: int) -> str:
    return ranked_item(items[rank]) if rank < len(items) else ""


def ranked_item(item: RankedItem) -> str:
    """The item's text, marked where it is relevant."""
    text = escape(item.text if item.text is not None else item.item_id)
    if not item.relevant:
        return text
    return f"✓ **{text}**" + (f" (grade {item.grade})" if item.grade > 1 else "")


def line(cells: Sequence[str]) -> str:
    """One row of a table; the cells are escaped already."""
    return f"| {' | '.join(cells)} |"


def escape(text: str) -> str:
    """The text as it is, whatever Markdown or HTML it holds, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>#|~$&])", r"\\\1", " ".join(text.split()))
