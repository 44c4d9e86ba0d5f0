"""The scaling page and its plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring.charts import chart, logarithmic
from benchmarks.measuring.pages import describe_conditions, markdown_table
from benchmarks.scaling.cost import Exponent
from benchmarks.scaling.sweep import Point

__all__ = ["page", "plot"]

Fits = Mapping[str, Mapping[str, Exponent]]


def page(
    found: Mapping[str, Any],
    by_items: Sequence[Point],
    by_union: Sequence[Point],
    fits: Mapping[str, Fits],
    baseline: str,
) -> list[str]:
    """Markdown lines.

    Args:
        found: the content of the JSON file.
        by_items: points over the number of items.
        by_union: points over the size of the union, at one number of items.
        fits: "items", "tail" and "union" -> exponents by system.
        baseline: the pointwise system.
    """
    return [
        "# Scaling",
        "",
        *describe_conditions(found["conditions"]),
        f"Encoder {found['encoder']}, {found['precision']}; {found['rounds']} lists a size after {found['warmup']} "
        "that are not counted, the systems in turn on each; cold token caches. `crossjem` and `crossjem-best` split "
        f"long lists into passes; `{found['one_pass']}` reads all items in one pass (one position for the whole "
        "union), as the cost formula of the paper's section 5.2 has it: (L_q + L_k N/C)^2 L against (L_q + L_k)^2 L N.",
        "",
        "## Number of items",
        "",
        *_points(by_items, baseline, "items"),
        "",
        "Exponents k of cost = a N^k (least squares on logarithms, with standard errors). The formula's is that of "
        "one pass.",
        "",
        *_exponents({"all sizes": fits["items"], f"{found['tail']} items and more": fits["tail"]}),
        "",
        f"## Size of the union, {found['union_items']} items",
        "",
        "Items of four words, queries of three, drawn from pools of words that are one token each: all lists have as "
        "many tokens, the union is as large as the pool makes it.",
        "",
        *_points(by_union, baseline, "words in the pool"),
        "",
        "Exponents over the size of the union:",
        "",
        *_exponents({"": fits["union"]}),
    ]


def plot(by_items: Sequence[Point], by_union: Sequence[Point], title: str, path: Path) -> None:
    """Latency against items and against the union; thin lines: operations, scaled to the last point."""
    with chart(path, title, panels=2, width=5.2, height=4.0) as panels:
        for axes, points, size, label in (
            (panels[0], by_items, lambda point: point.tokens.items, "items of the query"),
            (panels[1], by_union, lambda point: point.tokens.union, "distinct tokens of all items"),
        ):
            for name in dict.fromkeys(point.name for point in points):
                own = [point for point in points if point.name == name]
                x = [size(point) for point in own]
                (line,) = axes.plot(x, [point.milliseconds for point in own], marker="o", ms=3, label=name)
                scale = own[-1].milliseconds / own[-1].gflop
                axes.plot(x, [scale * point.gflop for point in own], lw=0.7, ls="--", color=line.get_color())
            ticks = sorted({round(size(point)) for point in points})
            logarithmic(axes, ticks, label, "milliseconds (dashed: operations, scaled)")
        panels[0].legend(frameon=False, fontsize=7)


def _points(points: Sequence[Point], baseline: str, size: str) -> list[str]:
    at = {(point.name, point.size): point for point in points}
    columns = ["", size, "union", "C", "p50 ms", "GFLOP", "paper's cost"]
    columns += [f"{baseline} / this: ms", "GFLOP", "paper's cost"]
    rows = []
    for point in points:
        other = at[baseline, point.size]
        figures = [f"{point.milliseconds:,.1f}", f"{point.gflop:,.2f}", f"{point.paper_cost:,.0f}"]
        ratios = ["", "", ""]
        if point.name != baseline:
            ratios = [
                f"{other.milliseconds / point.milliseconds:.2f}x",
                f"{other.gflop / point.gflop:.2f}x",
                f"{other.paper_cost / point.paper_cost:.2f}x",
            ]
        sizes = [str(point.size), f"{point.tokens.union:.0f}", f"{point.tokens.compression:.1f}"]
        rows.append([point.name, *sizes, *figures, *ratios])
    return markdown_table(columns, rows)


def _exponents(fits: Mapping[str, Fits]) -> list[str]:
    rows = [
        [name, over, *(str(by_kind[kind]) for kind in ("measured", "flops", "paper"))]
        for over, by_name in fits.items()
        for name, by_kind in by_name.items()
    ]
    return markdown_table(["", "over", "measured", "operations", "paper's formula"], rows, words=2)
