"""How the benchmarks' charts look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def chart(
    path: Path, title: str, panels: int = 1, width: float = 6.4, height: float = 4.2
) -> Iterator[list[Any]]:
    """The axes of a PNG that is written at the end.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ImportError("charts need the extra: pip install 'crossjem_pl[plots]'") from error
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, panels, figsize=(width * panels, height), dpi=150, squeeze=False)
    figure.suptitle(title, fontsize=8)
    yield list(axes[0])
    for panel in axes[0]:
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)


def logarithmic(axes: Any, ticks: Sequence[float], x: str, y: str | None = None) -> None:
    """A logarithmic x axis with these ticks; the y axis likewise, with 1, 2, 5, 10, ..., if it has a label here."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log")
    axes.set_xticks(list(ticks), [f"{tick:g}" for tick in ticks], fontsize=7)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(x)
    if y is not None:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_ylabel(y)
