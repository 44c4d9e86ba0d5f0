"""One plot as SVG, in one style. matplotlib, from the extra `plots`, is imported only when one is drawn."""

from __future__ import annotations

import importlib.util
import io
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "BASELINE",
    "COLOURS",
    "GRID",
    "INK",
    "LOSS",
    "MARKERS",
    "MISSING",
    "PAPER",
    "SYSTEM",
    "Plot",
    "available",
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
    return Plot(stream.getvalue(), description)


def wrapped(text: str, width: int = 24) -> str:
    return "\n".join(textwrap.wrap(text, width))
