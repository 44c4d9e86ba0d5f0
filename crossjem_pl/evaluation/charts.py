"""Charts as SVG in one style. matplotlib, from the extra `plots`, is imported only when one is drawn."""

from __future__ import annotations

import base64
import importlib.util
import io
import textwrap
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "MISSING",
    "Plot",
    "available",
    "draw_groups",
    "draw_lines",
    "plot",
]

MISSING = "Plots need matplotlib: pip install 'crossjem_pl[plots]'."

COLOURS = ("#2563a8", "#c4610c", "#176b3a", "#8a3ffc", "#1c2430", "#b0217f", "#00808c", "#8a6d00")
"""Told apart by colour-blind readers and in grey."""
MARKERS = "osD^vPX*<"
_PAPER = "#ffffff"
_STYLE: list[Any] = [
    "seaborn-v0_8-whitegrid",
    {"svg.fonttype": "path", "svg.hashsalt": "crossjem_pl", "text.parse_math": False, "font.size": 11.0},
]


class Plot(NamedTuple):
    """One SVG document with a description for readers who do not see it."""

    svg: str
    description: str

    @property
    def embedded(self) -> str:
        """The SVG in base64 without its paper: a dark page inverts its colours."""
        return base64.b64encode(self.svg.replace(f"fill: {_PAPER}", "fill: none").encode()).decode("ascii")


def available() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def plot(title: str, height: float, paint: Callable[[Axes], str]) -> Plot:
    """Draws one pair of axes under a title, 5 inches wide; `paint` returns the description.

    Raises:
        ModuleNotFoundError: without matplotlib; says which extra brings it.
    """
    try:
        from matplotlib import style
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(MISSING) from error
    from matplotlib.figure import Figure

    with style.context(_STYLE):
        figure = Figure(figsize=(5.0, height), layout="constrained")
        figure.suptitle(wrapped(title, 46), x=0.02, ha="left", fontsize=12, fontweight="bold")
        description = paint(figure.add_subplot())
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return Plot(stream.getvalue(), f"{title}: {description}")


def wrapped(text: str, width: int = 44) -> str:
    return "\n".join(textwrap.wrap(text, width))


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
            x = np.arange(len(groups)) + 0.5 * ((i + 0.5) / len(systems) - 0.5)
            drawn: Any = results.xs(name, level=1).loc[groups]
            spread = [drawn["mean"] - drawn["low"], drawn["high"] - drawn["mean"]]
            style: Any = {"ls": "", "elinewidth": 1.2, "capsize": 3, "markersize": 7, **_series_style(i)}
            axes.errorbar(x, drawn["mean"], [s.clip(lower=0) for s in spread], label=wrapped(name), **style)
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
        smooth: draw the values faint and their moving mean over a twentieth of them strong, where there are 10 or more.
        diagonal: draw x = y from 0 to 1 for comparison.
    """

    def paint(axes: Axes) -> str:
        if diagonal:
            axes.plot([0, 1], [0, 1], color="grey", linestyle="--", linewidth=1.2, label="perfect")
        for i, (name, line) in enumerate(lines.items()):
            style, drawn = _series_style(i), line
            if smooth and len(line) >= 10:
                axes.plot(line.index, line, color=style["color"], alpha=0.3, linewidth=0.8)
                window = 2 * max(2, len(line) // 40) + 1
                drawn, style["marker"] = line.rolling(window, min_periods=1, center=True).mean(), ""
            axes.plot(drawn.index, drawn, label=wrapped(name), markersize=6, linewidth=1.7, **style)
        _label(axes, *axis)
        return "; ".join(
            f"{name} from {line.iloc[0]:.4g} at {line.index[0]:g} to {line.iloc[-1]:.4g} at {line.index[-1]:g}"
            for name, line in lines.items()
        )

    return plot(title, 3.2 + 0.22 * (len(lines) + diagonal), paint)


def _series_style(i: int) -> dict[str, Any]:
    """Colour and marker of system i."""
    return {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}


def _label(axes: Axes, x: str, y: str) -> None:
    """Names the axes and adds the legend below them."""
    axes.set_xlabel(wrapped(x, 60))
    axes.set_ylabel(y)
    place: Any = {"loc": "outside lower left", "frameon": False, "fontsize": 9.5}
    axes.figure.legend(**place)
