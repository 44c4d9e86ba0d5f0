"""The picture of a token overlap report. matplotlib, from the extra `plots`, is imported only when it is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crossjem_pl.data.overlap_report import OverlapReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_overlap"]

_TOTAL, _UNION = "#8a94a3", "#2563a8"
_STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#d9dee5",
    "grid.linewidth": 0.7,
}


def draw_overlap(report: OverlapReport, path: Path) -> None:
    """Writes a PNG: item tokens and their union against the number of items; lists by m / N_u.

    Raises:
        ModuleNotFoundError: without matplotlib (see `evaluation.plots.available`).
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9.6, 3.8), dpi=150, layout="constrained")
        growth, ratios = figure.subplots(1, 2)
        _growth(growth, report)
        _ratios(ratios, report)
        figure.savefig(path, metadata={"Software": None})


def _growth(axes: Axes, report: OverlapReport) -> None:
    items = [point.items for point in report.curve]
    axes.plot(items, [p.total_tokens for p in report.curve], "s--", color=_TOTAL, label="all item tokens, m")
    axes.plot(
        items, [p.union_tokens for p in report.curve], "o-", color=_UNION, label="distinct (union), $N_u$"
    )
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("first N items of a list")
    axes.set_ylabel("tokens, mean over lists")
    axes.set_title("Growth with the number of items", loc="left", fontweight="bold")
    axes.legend(frameon=False)


def _ratios(axes: Axes, report: OverlapReport) -> None:
    values = np.array([value for value, _ in report.ratios])
    counts = np.array([count for _, count in report.ratios])
    whole = report.rows[-1]
    axes.hist(values, bins=min(30, max(5, len(values))), weights=counts, color=_UNION)
    axes.axvline(whole.ratio, color="#1c2430", linewidth=1, label=f"of the means: {whole.ratio:.2f}")
    axes.set_xlabel(f"m / $N_u$ of a list, all items, L = {whole.max_item_tokens}")
    axes.set_ylabel("lists")
    axes.set_title("Overlap list by list", loc="left", fontweight="bold")
    axes.legend(frameon=False)
