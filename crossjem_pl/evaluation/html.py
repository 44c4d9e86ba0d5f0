"""A comparison as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from crossjem_pl.evaluation import wording
from crossjem_pl.evaluation.drawing import Plot
from crossjem_pl.evaluation.page import document, figure, notes
from crossjem_pl.evaluation.results import Comparison, Difference, Example, RankedItem, SystemResult

__all__ = ["differences", "page", "ranked_item", "results_table"]


def page(comparison: Comparison, plots: Sequence[Plot]) -> str:
    """The whole document. All texts of the runs are escaped; plots are embedded as images."""
    title = "Comparison of " + ", ".join(system.name for system in comparison.systems)
    parts = [
        "<h1>Comparison</h1>",
        f'<p class="soft">{escape(_subtitle(comparison))}</p>',
        results_table(comparison),
    ]
    parts += notes(comparison.notes)
    parts += [f'<p class="soft">{escape(paragraph)}</p>' for paragraph in wording.method(comparison)]
    if plots:
        parts += ["<h2>Plots</h2>", '<div class="plots">', *(figure(plot) for plot in plots), "</div>"]
    if comparison.examples:
        parts += ["<h2>Where the rankings differ most</h2>", *differences(comparison)]
    return document(title, parts)


def _subtitle(comparison: Comparison) -> str:
    against = f", against {comparison.baseline}" if len(comparison.systems) > 1 else ""
    systems = "1 system" if len(comparison.systems) == 1 else f"{len(comparison.systems)} systems"
    return f"{systems} on {wording.where(comparison)}{against}"


def results_table(comparison: Comparison) -> str:
    """One row per system: metrics with intervals, differences and p-values, parameters, training time."""
    tested = len(comparison.systems) > 1
    header = ["<th>System</th>"]
    for metric in comparison.metrics:
        header.append(f"<th>{escape(metric)}<small>mean, 95% CI</small></th>")
        if tested:
            header.append(
                f"<th>Δ {escape(metric)}<small>95% CI</small>"
                "<small>p (t-test)</small><small>win / tie / loss</small></th>"
            )
    header += ["<th>Parameters</th>", "<th>Training</th>"]
    rows = [_row(comparison, system, tested) for system in comparison.systems]
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Results"><table class="results">'
        f"<thead><tr>{''.join(header)}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _row(comparison: Comparison, system: SystemResult, tested: bool) -> str:
    is_baseline = tested and system.name == comparison.baseline
    label = escape(system.name) + ("<small>baseline</small>" if is_baseline else "")
    cells = [f'<th scope="row">{label}</th>']
    for metric in comparison.metrics:
        found = system.metrics[metric]
        best = found.mean >= max(other.metrics[metric].mean for other in comparison.systems)
        cells.append(
            f"<td>{_strong(wording.number(found.mean), 'best' if best and tested else None)}"
            f"<small>{wording.number(found.low)} – {wording.number(found.high)}</small></td>"
        )
        if tested:
            cells.append(_difference(found.difference))
    lists = "" if system.trained_lists is None else f"<small>{system.trained_lists:,} lists</small>"
    cells += [
        f"<td>{wording.parameters(system.parameters)}</td>",
        f"<td>{wording.training_time(system.train_seconds)}{lists}</td>",
    ]
    return f"{'<tr class=baseline>' if is_baseline else '<tr>'}{''.join(cells)}</tr>"


def _difference(found: Difference | None) -> str:
    if found is None:
        return "<td>–</td>"
    counts = found.counts
    mean = wording.signed(found.mean)
    shown = _strong(f"{mean}*", "gain" if found.mean > 0 else "loss") if found.significant else mean
    return (
        f"<td>{shown}"
        f"<small>{wording.signed(found.low)} to {wording.signed(found.high)}</small>"
        f"<small>p {escape(wording.p_value(found.p_randomisation_holm))} "
        f"({escape(wording.p_value(found.p_t_holm))})</small>"
        f"<small>{counts.wins:,} / {counts.ties:,} / {counts.losses:,}</small></td>"
    )


def _strong(text: str, style: str | None) -> str:
    return text if style is None else f'<span class="{style}">{text}</span>'


def differences(comparison: Comparison) -> list[str]:
    """The example lists side by side, under a heading of the third level for each system."""
    metric = escape(comparison.metrics[0])
    parts = [
        f'<p class="soft">First five items of the lists with the largest differences in {metric}; '
        "relevant items are green with a ✓.</p>",
    ]
    for system in comparison.others:
        examples = [one for one in comparison.examples if one.system == system.name]
        if examples:
            parts.append(f"<h3>{escape(system.name)} against {escape(comparison.baseline)}</h3>")
            parts += [_example(one, comparison) for one in examples]
    return parts


def _example(example: Example, comparison: Comparison) -> str:
    title = example.query if example.query is not None else f"query {example.query_id}"
    sides = (
        (example.system, example.value, example.top),
        (comparison.baseline, example.baseline_value, example.baseline_top),
    )
    columns = [
        f"<div><h4>{escape(name)} <span>{escape(comparison.metrics[0])} {wording.number(value)}</span></h4>"
        f"<ol>{''.join(ranked_item(item) for item in top)}</ol></div>"
        for name, value, top in sides
    ]
    return (
        f'<section class="example"><header><b>{escape(title)}</b><span>{example.relevant} relevant of '
        f'{example.candidates}</span></header><div class="sides">{"".join(columns)}</div></section>'
    )


def ranked_item(item: RankedItem) -> str:
    """A list element with the item's text, marked where it is relevant."""
    text = escape(item.text if item.text is not None else item.item_id)
    if not item.relevant:
        return f"<li>{text}</li>"
    grade = f" (grade {item.grade})" if item.grade > 1 else ""
    return f'<li class="relevant">{text}{grade} ✓</li>'
