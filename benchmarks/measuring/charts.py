"""How the benchmarks' figures look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["chart", "logarithmic"]


@contextmanager
def chart(path: Path, title: str, panels: int = 1, width: float = 6.4, height: float = 4.2) -> Iterator[Any]:
    """The axes (a list of them if there are several panels) of a PNG that is written at the end.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ImportError("figures need the extra: pip install 'crossjem_pl[plots]'") from error
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, panels, figsize=(width * panels, height), dpi=150, squeeze=False)
    figure.suptitle(title, fontsize=8)
    yield axes[0, 0] if panels == 1 else list(axes[0])
    for one in axes[0]:
        one.grid(alpha=0.3)
        for side in ("top", "right"):
            one.spines[side].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)


def logarithmic(axes: Any, ticks: Sequence[int], x: str, y: str) -> None:
    """Both axes logarithmic, with the measured values as ticks below and 1, 2, 5, 10, ... on the left."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(list(ticks), [str(tick) for tick in ticks], fontsize=7)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(x)
    axes.set_ylabel(y)
