"""A comparison as one self-contained HTML page: no script, nothing loaded, for screens, phones and paper."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

from crossjem_pl.evaluation import wording
from crossjem_pl.evaluation.plots import Plot
from crossjem_pl.evaluation.results import Comparison, Difference, Example, RankedItem, SystemResult

__all__ = ["page"]

_CSS = """
:root { color-scheme: light; --ink: #1c2430; --soft: #566173; --line: #d9dee5; --tint: #f4f6f9;
  --good: #176b3a; --bad: #a8460b; --good-tint: #e8f4ec; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem 1.25rem 3rem; background: #fff; color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .2rem; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .8rem; padding-top: .9rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.8rem 0 .6rem; }
p { max-width: 48rem; margin: .5rem 0; }
.soft, small { color: var(--soft); }
small { font-size: .8rem; display: block; white-space: nowrap; }
.scroll { overflow-x: auto; margin: 1.2rem 0; border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .55rem .8rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
tbody tr:last-child > * { border-bottom: 0; }
thead th { background: var(--tint); font-size: .85rem; white-space: nowrap; vertical-align: bottom; }
.results td, .results thead th:not(:first-child) { text-align: right; white-space: nowrap; }
.results th:first-child { position: sticky; left: 0; background: #fff; min-width: 8rem; max-width: 16rem;
  overflow-wrap: anywhere; border-right: 1px solid var(--line); }
.results thead th:first-child { background: var(--tint); }
.results tbody th { font-weight: 600; }
.results tr.baseline > * { background: var(--tint); }
.best { font-weight: 700; }
.gain { font-weight: 700; color: var(--good); }
.loss { font-weight: 700; color: var(--bad); }
.notes { background: #fff8e6; border-left: 4px solid #d9a514; padding: .6rem 1rem .6rem 2rem;
  margin: 1.2rem 0; border-radius: 0 6px 6px 0; max-width: 60rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1.2rem;
  align-items: start; }
.plots figure { margin: 0; border: 1px solid var(--line); border-radius: 8px; padding: .8rem; }
.plots img { display: block; width: 100%; height: auto; }
.example { border: 1px solid var(--line); border-radius: 8px; margin: 0 0 1rem; break-inside: avoid; }
.example header { padding: .6rem .9rem; background: var(--tint); border-radius: 8px 8px 0 0;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
.example header b { font-size: 1.02rem; }
.example header span { color: var(--soft); font-size: .85rem; margin-left: .5rem; }
.sides { display: grid; grid-template-columns: 1fr 1fr; }
.sides > div { padding: .6rem .9rem; min-width: 0; }
.sides > div + div { border-left: 1px solid var(--line); }
.sides h4 { margin: 0 0 .4rem; font-size: .9rem; overflow-wrap: anywhere; }
.sides h4 span { font-weight: 400; color: var(--soft); }
ol { margin: 0; padding-left: 1.6rem; }
.sides li { padding: .12rem .4rem; margin-bottom: .15rem; border-radius: 4px; overflow-wrap: anywhere; }
.sides li.relevant { background: var(--good-tint); color: var(--good); font-weight: 600; }
@media (max-width: 40rem) {
  body { padding: 1rem .8rem 2rem; font-size: 15px; }
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
  .example header, .sides > div { padding: .3rem .6rem; }
}
"""


def page(comparison: Comparison, plots: Sequence[Plot]) -> str:
    """The whole document. All texts of the runs are escaped; plots are embedded as images."""
    title = "Comparison of " + ", ".join(system.name for system in comparison.systems)
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f"<style>{_CSS}</style>",
        "</head>",
        "<body>",
        "<h1>Comparison</h1>",
        f'<p class="soft">{escape(_subtitle(comparison))}</p>',
        _table(comparison),
    ]
    if comparison.notes:
        parts.append('<ul class="notes">')
        parts += [f"<li>{escape(note)}</li>" for note in comparison.notes]
        parts.append("</ul>")
    parts += [f'<p class="soft">{escape(paragraph)}</p>' for paragraph in wording.method(comparison)]
    if plots:
        parts += ["<h2>Plots</h2>", '<div class="plots">', *(_figure(plot) for plot in plots), "</div>"]
    parts += _examples(comparison)
    return "\n".join([*parts, "</body>", "</html>", ""])


def _subtitle(comparison: Comparison) -> str:
    against = f", against {comparison.baseline}" if len(comparison.systems) > 1 else ""
    systems = "1 system" if len(comparison.systems) == 1 else f"{len(comparison.systems)} systems"
    return f"{systems} on {wording.where(comparison)}{against}"


def _table(comparison: Comparison) -> str:
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


def _figure(plot: Plot) -> str:
    data = base64.b64encode(plot.svg.encode("utf-8")).decode("ascii")
    return f'<figure><img alt="{escape(plot.description)}" src="data:image/svg+xml;base64,{data}"></figure>'


def _examples(comparison: Comparison) -> list[str]:
    if not comparison.examples:
        return []
    metric = escape(comparison.metrics[0])
    parts = [
        "<h2>Where the rankings differ most</h2>",
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
        f"<ol>{''.join(_item(item) for item in top)}</ol></div>"
        for name, value, top in sides
    ]
    return (
        f'<section class="example"><header><b>{escape(title)}</b><span>{example.relevant} relevant of '
        f'{example.candidates}</span></header><div class="sides">{"".join(columns)}</div></section>'
    )


def _item(item: RankedItem) -> str:
    text = escape(item.text if item.text is not None else item.item_id)
    if not item.relevant:
        return f"<li>{text}</li>"
    grade = f" (grade {item.grade})" if item.grade > 1 else ""
    return f'<li class="relevant">{text}{grade} ✓</li>'
