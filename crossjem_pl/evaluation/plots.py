"""Plots of a comparison as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from crossjem_pl.evaluation import wording
from crossjem_pl.evaluation.drawing import (
    BASELINE,
    COLOURS,
    INK,
    LOSS,
    MARKERS,
    MISSING,
    SYSTEM,
    Plot,
    available,
    plot,
    wrapped,
)
from crossjem_pl.evaluation.results import Comparison, MetricResult, SystemResult
from crossjem_pl.evaluation.significance import win_tie_loss

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["MISSING", "Plot", "available", "draw"]


def draw(comparison: Comparison) -> list[Plot]:
    """Means with intervals per metric, accuracy against size and training time, differences per query.

    Accuracy is drawn against what at least two systems tell. The first metric is the one drawn against cost
    and per query.

    Raises:
        ModuleNotFoundError: without matplotlib (see `available`).
    """
    plots = [_means(comparison, metric) for metric in comparison.metrics]
    costs = (("parameters", "Parameters"), ("train_seconds", "Training time"))
    for field, label in costs:
        if sum(bool(getattr(system, field)) for system in comparison.systems) > 1:
            plots.append(_against_cost(comparison, field, label))
    return plots + [_per_query(comparison, system) for system in comparison.others]


def _means(comparison: Comparison, metric: str) -> Plot:
    systems = sorted(comparison.systems, key=lambda system: system.metrics[metric].mean)
    found = [system.metrics[metric] for system in systems]
    means = np.array([one.mean for one in found])

    def paint(axes: Axes) -> None:
        colours = [BASELINE if system.name == comparison.baseline else SYSTEM for system in systems]
        axes.barh(range(len(systems)), means, height=0.62, color=colours)
        axes.errorbar(
            means,
            range(len(systems)),
            xerr=_spread(found),
            fmt="none",
            ecolor=INK,
            elinewidth=1.1,
            capsize=3,
        )
        for row, one in enumerate(found):
            axes.annotate(
                wording.number(one.mean),
                (max(one.high, one.mean), row),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
        axes.set_yticks(range(len(systems)), [wrapped(system.name) for system in systems])
        axes.set_xlim(0, 1.18 * max(max(one.high for one in found), 0.01))
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)

    values = "; ".join(
        f"{system.name} {wording.number(system.metrics[metric].mean)}" for system in systems[::-1]
    )
    return plot(
        paint,
        f"{metric}, mean and 95% interval",
        0.9 + 0.42 * len(systems),
        f"{metric} of each system: {values}",
    )


def _against_cost(comparison: Comparison, field: str, label: str) -> Plot:
    metric = comparison.metrics[0]
    ordered = sorted(comparison.systems, key=lambda system: system.metrics[metric].mean, reverse=True)
    systems = [system for system in ordered if getattr(system, field)]
    # a logarithmic axis has no place for 0, as a ranker without parameters has
    left_out = [system.name for system in ordered if not getattr(system, field)]
    read: Callable[[Any], str] = wording.parameters if field == "parameters" else wording.training_time

    def paint(axes: Axes) -> None:
        from matplotlib.ticker import FuncFormatter, NullFormatter

        costs = [float(getattr(system, field)) for system in systems]
        for i, (cost, system) in enumerate(zip(costs, systems, strict=True)):
            found = system.metrics[metric]
            axes.errorbar(
                cost,
                found.mean,
                yerr=_spread([found]),
                fmt=MARKERS[i % len(MARKERS)],
                color=COLOURS[i % len(COLOURS)],
                markersize=8,
                elinewidth=1.1,
                capsize=3,
                label=wrapped(system.name, 44),
            )
        axes.set_xscale("log")
        axes.set_xlim(min(costs) / 1.6, max(costs) * 1.6)
        axes.set_xticks(_ticks(costs))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: read(value)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_tick_params(which="minor", size=0)
        missing = f" (unknown or 0, not drawn: {', '.join(left_out)})" if left_out else ""
        axes.set_xlabel(wrapped(label + missing, 60))
        axes.figure.legend(loc="outside lower left", frameon=False, fontsize=9)

    values = "; ".join(
        f"{system.name} {wording.number(system.metrics[metric].mean)} at {read(getattr(system, field))}"
        for system in systems
    )
    title = f"{metric} against {label.lower()}"
    return plot(paint, title, 2.9 + 0.2 * len(systems), f"{title}: {values}")


def _per_query(comparison: Comparison, system: SystemResult) -> Plot:
    metric = comparison.metrics[0]
    values = comparison.per_query
    differences = (values[system.name, metric] - values[comparison.baseline, metric]).to_numpy(
        dtype=np.float64
    )
    counts = win_tie_loss(differences)

    def paint(axes: Axes) -> None:
        reach = max(float(np.abs(differences).max()), 1e-3)
        edges = np.linspace(0, reach, 11)
        gains, losses = differences[differences > 1e-9], differences[differences < -1e-9]
        axes.hist(gains, bins=list(edges), color=SYSTEM, label=f"better: {counts.wins:,}")
        axes.hist(losses, bins=list(-edges[::-1]), color=LOSS, label=f"worse: {counts.losses:,}")
        axes.plot([], [], " ", label=f"equal, not drawn: {counts.ties:,}")
        axes.axvline(0, color=INK, linewidth=1)
        axes.set_xlabel(f"difference in {metric} per query")
        axes.set_ylabel("queries")
        axes.figure.legend(loc="outside lower left", ncols=3, frameon=False, fontsize=9)
        axes.grid(visible=False, axis="x")

    return plot(
        paint,
        f"{system.name} minus {comparison.baseline}",
        3.1,
        f"Differences per query in {metric}, {system.name} minus {comparison.baseline}: "
        f"{counts.wins} better, {counts.ties} equal, {counts.losses} worse",
    )


def _spread(found: Sequence[MetricResult]) -> np.ndarray:
    """Lengths of the interval below and above the means [2, metrics]."""
    below, above = [one.mean - one.low for one in found], [one.high - one.mean for one in found]
    return np.clip([below, above], 0, None)


def _ticks(costs: list[float]) -> list[float]:
    """Up to four numbers over the range, evenly spaced on a logarithmic axis, not so near that labels meet."""
    ticks: list[float] = []
    for tick in np.geomspace(min(costs), max(costs), 2 if max(costs) / min(costs) < 4 else 4):
        rounded = float(f"{tick:.1g}")
        if not ticks or rounded > 1.8 * ticks[-1]:
            ticks.append(rounded)
    return ticks
