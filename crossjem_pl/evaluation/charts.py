"""Charts as SVG in one style. matplotlib, from the extra `plots`, is imported only when one is drawn."""

from __future__ import annotations

import base64
import importlib.util
import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "MISSING",
    "Curve",
    "Estimate",
    "Plot",
    "available",
    "draw_costs",
    "draw_differences",
    "draw_groups",
    "draw_lines",
    "frontier",
    "plot",
    "wrapped",
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


@dataclass(frozen=True, slots=True)
class Plot:
    """One SVG document with a description for readers who do not see it."""

    svg: str
    description: str

    @property
    def embedded(self) -> str:
        """The SVG in base64 without its paper: a dark page inverts its colours."""
        svg = self.svg.replace(f"fill: {PAPER}", "fill: none")
        return base64.b64encode(svg.encode("utf-8")).decode("ascii")


@dataclass(frozen=True)
class Estimate:
    """A mean and the ends of its interval."""

    mean: float
    low: float
    high: float

    @property
    def spread(self) -> list[list[float]]:
        """Lengths of the interval below and above the mean [2, 1], as matplotlib takes them."""
        return [[max(self.mean - self.low, 0.0)], [max(self.high - self.mean, 0.0)]]

    def __str__(self) -> str:
        return f"{self.mean:.4f} [{self.low:.4f}, {self.high:.4f}]"


class Curve(NamedTuple):
    """Values [points] against steps or another x [points], in the order of x."""

    steps: NDArray[Any]
    values: NDArray[np.float64]

    @property
    def best(self) -> str:
        """The largest value and the number of steps before it, which are counted from 0."""
        position = int(self.values.argmax())
        return f"{self.values[position]:.4f} ({self.steps[position] + 1:,})"


def available() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def plot(paint: Callable[[Axes], None], title: str, height: float, description: str) -> Plot:
    """Draws one pair of axes under a title, 5 inches wide.

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
        paint(figure.add_subplot())
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return Plot(stream.getvalue(), f"{title}: {description}")


def wrapped(text: str, width: int = 24) -> str:
    return "\n".join(textwrap.wrap(text, width))


def draw_costs(
    metric: str,
    cost: str,
    points: Mapping[str, tuple[float, Estimate]],
    form: Callable[[float], str],
    left_out: Sequence[str] = (),
) -> Plot:
    """Accuracy against a cost above 0 on a logarithmic axis; a line joins the systems of `frontier`.

    Args:
        metric: name of the accuracy.
        cost: name of the cost.
        points: system -> cost and accuracy.
        form: of a cost, in words.
        left_out: systems whose cost is not known or 0, which are named.
    """
    best = [points[name] for name in frontier(points)]

    def paint(axes: Axes) -> None:
        from matplotlib.ticker import FuncFormatter, NullFormatter

        axes.plot([x for x, _ in best], [y.mean for _, y in best], color=BASELINE, linewidth=1.4)
        for i, (name, (x, y)) in enumerate(points.items()):
            axes.errorbar(x, y.mean, yerr=y.spread, label=wrapped(name, 44), markersize=8, **_marks(i))
        costs = [x for x, _ in points.values()]
        axes.set_xscale("log")
        axes.set_xlim(min(costs) / 1.6, max(costs) * 1.6)
        axes.set_xticks(_ticks(costs))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: form(value)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_tick_params(which="minor", size=0)
        missing = f" (unknown or 0, not drawn: {', '.join(left_out)})" if left_out else ""
        axes.set_xlabel(wrapped(cost + missing, 60))
        axes.set_ylabel(metric)
        axes.margins(y=0.15)
        _legend(axes)

    values = "; ".join(f"{name} {y.mean:.4f} at {form(x)}" for name, (x, y) in points.items())
    return plot(paint, f"{metric} against {cost}", 3.0 + 0.22 * len(points), values)


def frontier(points: Mapping[str, tuple[float, Estimate]]) -> list[str]:
    """Systems than which none is as cheap and as accurate, and better in one; the cheapest first."""
    kept: list[str] = []
    for name in sorted(points, key=lambda name: (points[name][0], -points[name][1].mean)):
        if not kept or points[name][1].mean > points[kept[-1]][1].mean:
            kept.append(name)
    return kept


def draw_differences(metric: str, system: str, baseline: str, differences: ArrayLike) -> Plot:
    """Histogram of the differences per query, [queries]; those within 1e-9 are counted and not drawn."""
    values = np.asarray(differences, dtype=np.float64)
    gains, losses = values[values > 1e-9], values[values < -1e-9]
    ties = len(values) - len(gains) - len(losses)

    def paint(axes: Axes) -> None:
        edges = np.linspace(0, max(float(np.abs(values).max()), 1e-3), 11)
        axes.hist(gains, bins=list(edges), color=SYSTEM, label=f"better: {len(gains):,}")
        axes.hist(losses, bins=list(-edges[::-1]), color=LOSS, label=f"worse: {len(losses):,}")
        axes.plot([], [], " ", label=f"equal, not drawn: {ties:,}")
        axes.axvline(0, color=INK, linewidth=1)
        axes.set_xlabel(f"difference in {metric} per query")
        axes.set_ylabel("queries")
        axes.grid(visible=False, axis="x")
        _legend(axes, columns=3)

    counts = f"{len(gains)} queries better, {ties} equal, {len(losses)} worse in {metric}"
    return plot(paint, f"{system} minus {baseline}", 3.1, counts)


def draw_groups(
    title: str, labels: Sequence[str], axis: str, results: Mapping[str, Sequence[Estimate]]
) -> Plot:
    """Means and intervals of groups of lists, the systems beside each other.

    Args:
        title: of the chart; begins with the metric.
        labels: of the groups.
        axis: what parts the groups.
        results: system -> one result a group.
    """

    def paint(axes: Axes) -> None:
        for i, (name, groups) in enumerate(results.items()):
            shift = 0.5 * ((i + 0.5) / len(results) - 0.5)
            spread = np.concatenate([group.spread for group in groups], axis=1)
            means = [group.mean for group in groups]
            places = np.arange(len(labels)) + shift
            axes.errorbar(places, means, yerr=spread, label=wrapped(name, 44), markersize=6, **_marks(i))
        axes.set_xticks(range(len(labels)), labels, fontsize=9.5)
        axes.set_xlim(-0.5, len(labels) - 0.5)
        axes.set_xlabel(wrapped(axis, 60))
        axes.grid(visible=False, axis="x")
        if len(results) > 1:
            _legend(axes)

    values = "; ".join(
        f"{' '.join(label.split())}: "
        + ", ".join(f"{name} {groups[i].mean:.4f}" for name, groups in results.items())
        for i, label in enumerate(labels)
    )
    return plot(paint, title, 3.2 + 0.22 * len(results), values)


def draw_lines(
    title: str,
    axis: tuple[str, str],
    lines: Mapping[str, Curve],
    *,
    smooth: bool = False,
    diagonal: bool = False,
) -> Plot:
    """One line a name.

    Args:
        title: of the chart.
        axis: names of x and y.
        lines: name -> curve.
        smooth: draw the values faint and their moving mean strong, where there are 10 or more.
        diagonal: draw x = y from 0 to 1 for comparison.
    """

    def paint(axes: Axes) -> None:
        if diagonal:
            axes.plot([0, 1], [0, 1], color=BASELINE, linestyle="--", linewidth=1.2, label="perfect")
        for i, (name, (x, y)) in enumerate(lines.items()):
            colour, many = COLOURS[i % len(COLOURS)], smooth and len(y) >= 10
            if many:
                axes.plot(x, y, color=colour, alpha=0.3, linewidth=0.8)
            marker = None if many else MARKERS[i % len(MARKERS)]
            shown = smoothed(y) if many else y
            axes.plot(
                x, shown, color=colour, marker=marker, markersize=6, linewidth=1.7, label=wrapped(name, 44)
            )
        axes.set_xlabel(axis[0])
        axes.set_ylabel(axis[1])
        _legend(axes)

    ends = {name: (*x[[0, -1]], *y[[0, -1]]) for name, (x, y) in lines.items()}
    values = "; ".join(
        f"{n} from {y0:.4g} at {x0:g} to {y1:.4g} at {x1:g}" for n, (x0, x1, y0, y1) in ends.items()
    )
    return plot(paint, title, 3.2 + 0.22 * (len(lines) + diagonal), values)


def smoothed(values: ArrayLike) -> np.ndarray:
    """Means [points] over a moving window of a twentieth of the points (5 at least), cut off at both ends."""
    array = np.asarray(values, dtype=np.float64)
    half = max(2, len(array) // 40)
    sums, positions = np.concatenate([[0.0], np.cumsum(array)]), np.arange(len(array))
    low, high = np.maximum(positions - half, 0), np.minimum(positions + half + 1, len(array))
    return (sums[high] - sums[low]) / (high - low)


def _marks(i: int) -> dict[str, Any]:
    colour = COLOURS[i % len(COLOURS)]
    return {"fmt": MARKERS[i % len(MARKERS)], "color": colour, "elinewidth": 1.2, "capsize": 3}


def _legend(axes: Axes, columns: int = 1) -> None:
    place: Any = {"loc": "outside lower left", "frameon": False, "fontsize": 9.5, "labelcolor": INK}
    axes.figure.legend(ncols=columns, **place)


def _ticks(costs: Sequence[float]) -> list[float]:
    """Up to four numbers over the range, evenly spaced on a logarithmic axis, not so near that labels meet."""
    ticks: list[float] = []
    for tick in np.geomspace(min(costs), max(costs), 2 if max(costs) / min(costs) < 4 else 4):
        rounded = float(f"{tick:.1g}")
        if not ticks or rounded > 1.8 * ticks[-1]:
            ticks.append(rounded)
    return ticks
