"""A comparison as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from crossjem_pl.evaluation import wording
from crossjem_pl.evaluation.results import Comparison, Difference, Example, RankedItem, SystemResult

__all__ = ["to_markdown"]


def to_markdown(comparison: Comparison) -> str:
    """The table, its notes and method, and the example lists side by side."""
    parts = ["# Comparison", f"{wording.where(comparison)}.", _table(comparison)]
    if comparison.notes:
        parts.append("\n".join(f"- {_escape(note)}" for note in comparison.notes))
    parts += [_escape(paragraph) for paragraph in wording.method(comparison)]
    if comparison.examples:
        parts.append(f"## Where the rankings differ most ({_escape(comparison.metrics[0])})")
    for system in comparison.others:
        examples = [one for one in comparison.examples if one.system == system.name]
        if examples:
            parts.append(f"### {_escape(system.name)} against {_escape(comparison.baseline)}")
            parts += [_example(one, comparison.baseline) for one in examples]
    return "\n\n".join(parts) + "\n"


def _table(comparison: Comparison) -> str:
    tested = len(comparison.systems) > 1
    header, align = ["System"], ["---"]
    for metric in comparison.metrics:
        header.append(f"{_escape(metric)} [95% CI]")
        align.append("---:")
        if tested:
            header += [f"Δ {_escape(metric)} [95% CI]", "p (t-test)", "win/tie/loss"]
            align += ["---:"] * 3
    header += ["Parameters", "Training"]
    align += ["---:", "---:"]
    rows = [_row(comparison, system, tested) for system in comparison.systems]
    return "\n".join(_line(cells) for cells in (header, align, *rows))


def _row(comparison: Comparison, system: SystemResult, tested: bool) -> list[str]:
    name = _escape(system.name)
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
        f"{_escape(p)} ({_escape(p_t)})",
        f"{counts.wins}/{counts.ties}/{counts.losses}",
    ]


def _example(example: Example, baseline: str) -> str:
    title = _escape(example.query) if example.query is not None else f"query {_escape(example.query_id)}"
    lines = [
        f"**{title}** ({example.relevant} relevant of {example.candidates})",
        "",
        _line(
            [
                "",
                f"{_escape(example.system)} ({wording.number(example.value)})",
                f"{_escape(baseline)} ({wording.number(example.baseline_value)})",
            ]
        ),
        _line(["---:", "---", "---"]),
    ]
    for rank in range(max(len(example.top), len(example.baseline_top))):
        lines.append(_line([str(rank + 1), _item(example.top, rank), _item(example.baseline_top, rank)]))
    return "\n".join(lines)


def _item(items: Sequence[RankedItem], rank: int) -> str:
    if rank >= len(items):
        return ""
    item = items[rank]
    text = _escape(item.text if item.text is not None else item.item_id)
    if not item.relevant:
        return text
    return f"✓ **{text}**" + (f" (grade {item.grade})" if item.grade > 1 else "")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    """The text as it is, whatever Markdown or HTML it holds, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>#|~$&])", r"\\\1", " ".join(text.split()))
