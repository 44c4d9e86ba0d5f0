"""The latency page and its plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.latency.figures import Row
from benchmarks.latency.saturated import Throughput
from benchmarks.latency.stages import STAGES
from benchmarks.measuring.charts import chart, logarithmic
from benchmarks.measuring.pages import describe_conditions, markdown_table

__all__ = ["page", "plot_latency", "plot_stages"]

_DECOUPLED = (
    "ColBERT, DPR, ANCE, TwinBERT, CoRAL and INSTRUCTOR have the items' vectors computed ahead, as the paper's "
    "latencies assume: only the query is encoded while the clock runs. By id: the items' token ids are in a store "
    "(a token store), only the query is tokenised."
)

_STYLES = ("-", "--", ":", "-.")
"""A style for every ten colours."""


def page(
    found: Mapping[str, Any],
    rows: Sequence[Row],
    throughput: Sequence[Throughput],
    baselines: Sequence[str],
) -> list[str]:
    """Markdown lines.

    Args:
        found: the content of the JSON file.
        rows: one per size and contender.
        throughput: of several queries a batch; may be empty.
        baselines: names that have a column of ratios.
    """
    cache = "known to the token caches" if found["warm"] else "new to the token caches"
    peaks = ", ".join(f"{name} {peak:,.0f} GFLOP/s" for name, peak in found["matrix_peak_gflops"].items())
    lines = [
        "# Latency",
        "",
        *describe_conditions(found["conditions"]),
        f"Encoder {found['encoder']} with fresh heads (weights do not change the time); {found['precision']} unless a "
        f"name says otherwise; {found['rounds']} simulated lists a size after {found['warmup']} that are not counted, "
        f"the contenders in turn on each; texts {cache}. Measured peak of matrix products: {peaks}.",
        "",
        _DECOUPLED,
        "",
        "## One query at a time",
        "",
        "Milliseconds, texts in to sorted items out. Ratios are medians of the ratios list by list: how many times "
        "as long the baseline takes in the same precision. GFLOP and MB are the model's by formula "
        "(benchmarks/measuring/work.py), padding included.",
        "",
        *_latencies(rows, baselines),
    ]
    if throughput:
        lines += ["", "## Several queries at a time", "", *_throughputs(throughput)]
    if found["stages"]:
        lines += [
            "",
            "## Stages",
            "",
            "Median milliseconds inside `Reranker.rank`; clocks included. For monoBERT "
            '"union and plan" is sorting by length and padding.',
            "",
            *_stages(found["stages"]),
        ]
    if found["peak_memory_mib"]:
        rows_of_memory = [[name, f"{mib:,.1f}"] for name, mib in found["peak_memory_mib"].items()]
        lines += [
            "",
            f"## Peak memory, {found['memory_items']} items",
            "",
            "MiB beyond the loaded model while a list is ranked, each in a process of its own.",
            "",
            *markdown_table(["", "MiB"], rows_of_memory),
        ]
    for name, items in found["stopped"].items():
        lines += ["", f"Not measured at more than {items} items, which took it too long: {name}."]
    for name, reason in found["left_out"].items():
        lines += ["", f"Not measured: {name} {reason}."]
    return lines


def plot_latency(rows: Sequence[Row], title: str, path: Path) -> None:
    """Median latency against the number of items."""
    sizes = sorted({row.items for row in rows})
    with chart(path, title, width=8.0, height=5.0) as axes:
        for number, name in enumerate(dict.fromkeys(row.name for row in rows)):
            own = [row for row in rows if row.name == name]
            x, y = [row.items for row in own], [row.p50 for row in own]
            axes.plot(x, y, ls=_STYLES[number // 10 % len(_STYLES)], marker="o", ms=3, label=name)
        logarithmic(axes, sizes, "items of the query", "milliseconds, texts in to sorted items out")
        axes.legend(frameon=False, fontsize=6, loc="center left", bbox_to_anchor=(1.0, 0.5))


def plot_stages(stages: Mapping[str, Mapping[str, Mapping[str, float]]], title: str, path: Path) -> None:
    """Shares of the stages as stacked bars, a panel per size."""
    with chart(path, title, panels=len(stages), width=5.5, height=3.4) as panels:
        for axes, (items, by_name) in zip(
            panels if len(stages) > 1 else [panels], stages.items(), strict=True
        ):
            names = list(by_name)
            left = [0.0] * len(names)
            for stage in STAGES:
                values = [max(by_name[name][stage], 0.0) for name in names]
                axes.barh(names, values, left=left, label=stage)
                left = [a + b for a, b in zip(left, values, strict=True)]
            axes.invert_yaxis()
            axes.set_title(f"{items} items", fontsize=8)
            axes.set_xlabel("milliseconds")
            axes.tick_params(axis="y", labelsize=7)
        axes.legend(frameon=False, fontsize=6, loc="best")


def _latencies(rows: Sequence[Row], baselines: Sequence[str]) -> list[str]:
    columns = ["", "items", "p50 ms", "p95", "p99", "pairs/s", *(f"{name} takes" for name in baselines)]
    columns += ["GFLOP", "MB", "% of peak"]
    cells = []
    for row in rows:
        ratios = [f"{row.ratios[name]:.2f}x" if name in row.ratios else "" for name in baselines]
        work = ["", "", ""]
        if row.gflop is not None and row.megabytes is not None and row.share_of_peak is not None:
            work = [f"{row.gflop:,.2f}", f"{row.megabytes:,.0f}", f"{100 * row.share_of_peak:.0f}"]
        times = [f"{value:,.1f}" for value in (row.p50, row.p95, row.p99)]
        cells.append([row.name, str(row.items), *times, f"{row.pairs_per_second:,.0f}", *ratios, *work])
    return markdown_table(columns, cells)


def _throughputs(found: Sequence[Throughput]) -> list[str]:
    rows = [
        [
            one.name,
            str(one.items),
            f"{one.pairs_per_second:,.0f}",
            str(one.queries),
            ", ".join(f"{queries}: {pairs:,.0f}" for queries, pairs in one.tried.items()),
        ]
        for one in found
    ]
    columns = ["", "items", "pairs/s, best", "queries a batch", "all: queries a batch: pairs/s"]
    return markdown_table(columns, rows)


def _stages(stages: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[str]:
    rows = [
        [name, items, *(f"{times[stage]:,.2f}" for stage in (*STAGES, "all"))]
        for items, by_name in stages.items()
        for name, times in by_name.items()
    ]
    return markdown_table(["", "items", *STAGES, "all"], rows)
