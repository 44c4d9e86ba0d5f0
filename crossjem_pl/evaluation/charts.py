"""Charts as SVG in one style. matplotlib, from the extra `plots`, is imported only when one is drawn."""

from __future__ import annotations

import base64
import importlib.util
import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "MISSING",
    "Plot",
    "available",
    "draw_costs",
    "draw_differences",
    "draw_groups",
    "draw_lines",
    "frontier",
    "plot",
    "smoothed",
]

MISSING = "Plots need matplotlib: pip install 'crossjem_pl[plots]'."

BASELINE, SYSTEM, LOSS = "#8a94a3", "#2563a8", "#c4610c"  # told apart by colour-blind readers and in grey
INK, GRID, PAPER = "#1c2430", "#d9dee5", "#ffffff"
COLOURS = ("#2563a8", "#c4610c", "#176b3a", "#8a3ffc", "#1c2430", "#b0217f", "#00808c", "#8a6d00")
MARKERS = "osD^vPX*<"
_STYLE: dict[Any, Any] = {
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "svg.fonttype": "path",
    "svg.hashsalt": "crossjem_pl",
    "text.parse_math": False,
    "font.size": 11.0,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0.0,
    "ytick.major.size": 0.0,
}


class Plot(NamedTuple):
    """One SVG document with a description for readers who do not see it."""

    svg: str
    description: str

    @property
    def embedded(self) -> str:
        """The SVG in base64 without its paper: a dark page inverts its colours."""
        return base64.b64encode(self.svg.replace(f"fill: {PAPER}", "fill: none").encode()).decode("ascii")


def available() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def plot(title: str, height: float, paint: Callable[[Axes], str]) -> Plot:
    """Draws one pair of axes under a title, 5 inches wide; `paint` returns the description.

    Raises:
        ModuleNotFoundError: without matplotlib; says which extra brings it.
    """
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(MISSING) from error
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(5.0, height), layout="constrained")
        figure.suptitle(wrapped(title, 46), x=0.02, ha="left", fontsize=12, fontweight="bold")
        description = paint(figure.add_subplot())
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return Plot(stream.getvalue(), f"{title}: {description}")


def wrapped(text: str, width: int = 44) -> str:
    return "\n".join(textwrap.wrap(text, width))


def draw_costs(
    metric: str, cost: str, points: pd.DataFrame, form: Callable[[float], str], left_out: Sequence[str] = ()
) -> Plot:
    """Accuracy against a cost above 0 on a logarithmic axis; a line joins the systems of `frontier`.

    Args:
        metric: name of the accuracy.
        cost: name of the cost.
        points: index system, columns `cost` and the accuracy's `mean`, `low`, `high`.
        form: of a cost, in words.
        left_out: systems whose cost is not known or 0, which are named.
    """

    def paint(axes: Axes) -> str:
        from matplotlib.ticker import FuncFormatter, NullFormatter

        best, costs = points.loc[frontier(points)], points["cost"]
        axes.plot(best["cost"], best["mean"], color=BASELINE, linewidth=1.4)
        for i, name in enumerate(points.index):
            _estimates(axes, i, str(name), points["cost"].iloc[[i]], points.iloc[[i]])
        axes.set_xscale("log")
        axes.set_xlim(costs.min() / 1.6, costs.max() * 1.6)
        axes.set_xticks(_ticks(costs.min(), costs.max()))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: form(value)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_tick_params(which="minor", size=0)
        missing = f" (unknown or 0, not drawn: {', '.join(left_out)})" if left_out else ""
        axes.margins(y=0.15)
        _label(axes, cost + missing, metric)
        values = zip(points.index, points["mean"], costs, strict=True)
        return "; ".join(f"{name} {mean:.4f} at {form(x)}" for name, mean, x in values)

    return plot(f"{metric} against {cost}", 3.0 + 0.22 * len(points), paint)


def frontier(points: pd.DataFrame) -> list[str]:
    """Systems (index) than which none has as low a `cost` and as high a `mean`, and better in one; cheapest first."""
    ordered = points.sort_values(["cost", "mean"], ascending=[True, False], kind="stable")
    before = ordered["mean"].cummax().shift(fill_value=-np.inf)
    return [str(name) for name in ordered.index[ordered["mean"] > before]]


def draw_differences(metric: str, system: str, baseline: str, differences: pd.Series) -> Plot:
    """Histogram of the differences per query, [queries]; those within 1e-9 are counted and not drawn."""
    gains, losses = differences[differences > 1e-9], differences[differences < -1e-9]
    ties = len(differences) - len(gains) - len(losses)

    def paint(axes: Axes) -> str:
        edges = np.linspace(0, max(float(differences.abs().max()), 1e-3), 11)
        axes.hist(gains, bins=list(edges), color=SYSTEM, label=f"better: {len(gains):,}")
        axes.hist(losses, bins=list(-edges[::-1]), color=LOSS, label=f"worse: {len(losses):,}")
        axes.plot([], [], " ", label=f"equal, not drawn: {ties:,}")
        axes.axvline(0, color=INK, linewidth=1)
        axes.grid(visible=False, axis="x")
        _label(axes, f"difference in {metric} per query", "queries", columns=3)
        return f"{len(gains)} queries better, {ties} equal, {len(losses)} worse in {metric}"

    return plot(f"{system} minus {baseline}", 3.1, paint)


def draw_groups(title: str, axis: str, results: pd.DataFrame) -> Plot:
    """Means and intervals of groups of lists, the systems beside each other.

    Args:
        title: of the chart; begins with the metric.
        axis: what parts the groups.
        results: index (group, system), columns `mean`, `low`, `high`.
    """
    groups, systems = (results.index.unique(level).tolist() for level in (0, 1))

    def paint(axes: Axes) -> str:
        for i, name in enumerate(systems):
            shift = 0.5 * ((i + 0.5) / len(systems) - 0.5)
            drawn: Any = results.xs(name, level=1)
            _estimates(axes, i, name, np.arange(len(groups)) + shift, drawn.loc[groups])
        axes.set_xticks(range(len(groups)), groups, fontsize=9.5)
        axes.set_xlim(-0.5, len(groups) - 0.5)
        axes.grid(visible=False, axis="x")
        _label(axes, axis, "")
        means = zip(*zip(*results.index, strict=True), results["mean"], strict=True)
        return "; ".join(f"{' '.join(group.split())}, {name} {mean:.4f}" for group, name, mean in means)

    return plot(title, 3.2 + 0.22 * len(systems), paint)


def draw_lines(
    title: str,
    axis: tuple[str, str],
    lines: Mapping[str, pd.Series],
    *,
    smooth: bool = False,
    diagonal: bool = False,
) -> Plot:
    """One line a name.

    Args:
        title: of the chart.
        axis: names of x and y.
        lines: name -> values by x.
        smooth: draw the values faint and their moving mean strong, where there are 10 or more.
        diagonal: draw x = y from 0 to 1 for comparison.
    """

    def paint(axes: Axes) -> str:
        if diagonal:
            axes.plot([0, 1], [0, 1], color=BASELINE, linestyle="--", linewidth=1.2, label="perfect")
        for i, (name, line) in enumerate(lines.items()):
            colour, marker, values = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)], line.to_numpy()
            if smooth and len(line) >= 10:
                axes.plot(line.index, values, color=colour, alpha=0.3, linewidth=0.8)
                marker, values = "", smoothed(values)
            style: Any = {"color": colour, "marker": marker, "markersize": 6, "linewidth": 1.7}
            axes.plot(line.index, values, label=wrapped(name), **style)
        _label(axes, *axis)
        return "; ".join(
            f"{name} from {line.iloc[0]:.4g} at {line.index[0]:g} to {line.iloc[-1]:.4g} at {line.index[-1]:g}"
            for name, line in lines.items()
        )

    return plot(title, 3.2 + 0.22 * (len(lines) + diagonal), paint)


def smoothed(values: NDArray[Any]) -> NDArray[np.float64]:
    """Means [points] over a moving window of a twentieth of the points (5 at least), cut off at both ends."""
    window = 2 * max(2, len(values) // 40) + 1
    return pd.Series(values).rolling(window, min_periods=1, center=True).mean().to_numpy()


def _estimates(axes: Axes, i: int, name: str, x: Any, results: pd.DataFrame) -> None:
    """Draws the means of system i with their intervals."""
    spread = [results["mean"] - results["low"], results["high"] - results["mean"]]
    style: Any = {"color": COLOURS[i % len(COLOURS)], "elinewidth": 1.2, "capsize": 3, "markersize": 7}
    spread = [side.clip(lower=0) for side in spread]
    axes.errorbar(
        x, results["mean"], yerr=spread, fmt=MARKERS[i % len(MARKERS)], label=wrapped(name), **style
    )


def _label(axes: Axes, x: str, y: str, columns: int = 1) -> None:
    """Names the axes and adds the legend below them."""
    axes.set_xlabel(wrapped(x, 60))
    axes.set_ylabel(y)
    place: Any = {"loc": "outside lower left", "frameon": False, "fontsize": 9.5, "labelcolor": INK}
    axes.figure.legend(ncols=columns, **place)


def _ticks(low: float, high: float) -> list[float]:
    """Up to four numbers over the range, evenly spaced on a logarithmic axis, not so near that labels meet."""
    ticks: list[float] = []
    for tick in np.geomspace(low, high, 2 if high / low < 4 else 4):
        rounded = float(f"{tick:.1g}")
        if not ticks or rounded > 1.8 * ticks[-1]:
            ticks.append(rounded)
    return ticks
