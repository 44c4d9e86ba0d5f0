"""The section on latency and accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from crossjem_pl.evaluation.report.contents import Block, Figure, Missing, Paragraph, Section, Table
from crossjem_pl.evaluation.report.figures import draw_pareto
from crossjem_pl.evaluation.report.folders import RunRecord
from crossjem_pl.evaluation.report.latency import Latency, Timed, frontier, match, nearest_size
from crossjem_pl.evaluation.results import MetricResult

__all__ = ["latency_section"]


def latency_section(
    records: Sequence[RunRecord],
    results: Mapping[str, MetricResult],
    metric: str,
    latency: Latency,
    items: float,
    draw: bool,
) -> Section:
    """The metric against the measured latency at the list size nearest to the runs'.

    Args:
        records: the runs, of which those in `results` are looked for in the benchmark.
        results: run name -> its result on `metric`.
        metric: its name.
        latency: the benchmark's results.
        items: items of the runs' lists, their median.
        draw: whether a plot is wanted.
    """
    evaluated = [record for record in records if record.name in results]
    matched = match(evaluated, latency.rankers)
    size = nearest_size(latency, items)
    times = latency.milliseconds[size]
    timed = [
        Timed(
            name, float(np.median(times[ranker])), results[name].mean, results[name].low, results[name].high
        )
        for name, ranker in matched.items()
        if ranker in times
    ]
    blocks: list[Block] = []
    if timed:
        if draw:
            blocks.append(Figure("latency", draw_pareto(timed, metric, size)))
        blocks += [_table(timed, matched, latency, metric), Paragraph(_method(latency, size, items))]
    blocks += [Missing(text) for text in _unmatched(evaluated, matched, latency, size)]
    shared = [
        ranker for ranker in dict.fromkeys(matched.values()) if list(matched.values()).count(ranker) > 1
    ]
    for ranker in shared:
        names = ", ".join(name for name, other in matched.items() if other == ranker)
        blocks.append(
            Missing(
                f"{names} share the times of {ranker!r}: they were matched by ranker, and a benchmark of one "
                "configuration says little about another. A run folder called like the benchmark's ranker is matched "
                "with it alone."
            )
        )
    return Section("Latency and accuracy", tuple(blocks))


def _table(timed: Sequence[Timed], matched: Mapping[str, str], latency: Latency, metric: str) -> Table:
    best = {one.name for one in frontier(timed)}
    sizes = list(latency.milliseconds)
    rows = []
    for one in timed:
        ranker = matched[one.name]
        cells = [
            f"{np.median(latency.milliseconds[size][ranker]):.1f}"
            if ranker in latency.milliseconds[size]
            else "–"
            for size in sizes
        ]
        rows.append((one.name, ranker, f"{one.mean:.4f}", "yes" if one.name in best else "no", *cells))
    columns = ("Run", "Timed as", metric, "On the frontier", *(f"ms, {size:,} items" for size in sizes))
    return Table(columns, tuple(rows), words=(1,))


def _method(latency: Latency, size: int, items: float) -> str:
    rounds = {len(values) for values in latency.milliseconds[size].values()}
    count = f"{min(rounds)}" if len(rounds) == 1 else f"{min(rounds)} to {max(rounds)}"
    machine = ", ".join(part for part in (latency.machine, latency.precision) if part is not None)
    caches = {True: " Token caches were warm.", False: " Every list was new to the token caches.", None: ""}
    return (
        f"Medians of {count} rounds{' on ' + machine if machine else ''}. Drawn at {size:,} items, the measured size "
        f"nearest to the runs' lists (median {items:,.0f} items). The line joins the systems than which no other is "
        f"both faster and better.{caches[latency.warm]}"
    )


def _unmatched(
    records: Sequence[RunRecord], matched: Mapping[str, str], latency: Latency, size: int
) -> list[str]:
    texts = []
    alone = [record.name for record in records if record.name not in matched]
    if alone:
        texts.append(
            f"Not timed, by neither name, folder nor ranker: {', '.join(alone)}. The benchmark has "
            f"{', '.join(latency.rankers)}."
        )
    left = [ranker for ranker in latency.rankers if ranker not in matched.values()]
    if left:
        texts.append(f"Timed, but none of the runs: {', '.join(left)}.")
    untimed = [name for name, ranker in matched.items() if ranker not in latency.milliseconds[size]]
    if untimed:
        texts.append(f"Not timed at {size:,} items: {', '.join(untimed)}.")
    return texts
