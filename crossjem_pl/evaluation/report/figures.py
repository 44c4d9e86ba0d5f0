"""The plots of a report that a comparison does not have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from crossjem_pl.evaluation import wording
from crossjem_pl.evaluation.drawing import BASELINE, COLOURS, INK, MARKERS, Plot, plot, wrapped
from crossjem_pl.evaluation.report.buckets import Breakdown
from crossjem_pl.evaluation.report.calibration import Calibration
from crossjem_pl.evaluation.report.curves import Curve, smoothed
from crossjem_pl.evaluation.report.latency import Timed, frontier

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_breakdown", "draw_calibration", "draw_losses", "draw_pareto", "draw_validations"]


def draw_losses(loss: str | None, curves: Mapping[str, Curve]) -> Plot:
    """Training loss against steps: the logged values faint, their moving mean strong."""

    def paint(axes: Axes) -> None:
        for i, (name, curve) in enumerate(curves.items()):
            colour = COLOURS[i % len(COLOURS)]
            few = len(curve.values) < 10
            axes.plot(
                curve.steps,
                curve.values,
                color=colour,
                alpha=1.0 if few else 0.3,
                linewidth=0.8,
                marker="o" if few else None,
                label=wrapped(name, 44) if few else None,
            )
            if not few:
                mean = smoothed(curve)
                axes.plot(mean.steps, mean.values, color=colour, linewidth=2, label=wrapped(name, 44))
        axes.set_xlabel("training step")
        axes.set_ylabel("training loss")
        if len(curves) > 1:
            _legend(axes)

    title = "Training loss" if loss is None else f"Training loss, {loss}"
    values = "; ".join(
        f"{name} from {smoothed(curve).values[0]:.4g} at step {curve.steps[0]:,} "
        f"to {smoothed(curve).values[-1]:.4g} at step {curve.steps[-1]:,}"
        for name, curve in curves.items()
    )
    return plot(paint, title, 3.0 + _legend_height(len(curves)), f"{title}: {values}")


def draw_validations(title: str, curves: Mapping[str, Curve]) -> Plot:
    """Monitored metrics against steps, one line for each name."""

    def paint(axes: Axes) -> None:
        for i, (name, curve) in enumerate(curves.items()):
            axes.plot(
                curve.steps,
                curve.values,
                color=COLOURS[i % len(COLOURS)],
                marker=MARKERS[i % len(MARKERS)],
                markersize=6,
                linewidth=1.6,
                label=wrapped(name, 44),
            )
        axes.set_xlim(left=0)
        axes.set_xlabel("training step")
        axes.set_ylabel("validation metric")
        _legend(axes)

    values = "; ".join(
        f"{name} {curve.values[0]:.4f} at step {curve.steps[0]:,}, best {curve.values.max():.4f} "
        f"at step {curve.steps[curve.values.argmax()]:,}"
        for name, curve in curves.items()
    )
    return plot(paint, title, 3.0 + _legend_height(len(curves)), f"{title}: {values}")


def draw_breakdown(breakdown: Breakdown) -> Plot:
    """Means and intervals by bucket, the systems beside each other."""
    systems = list(breakdown.buckets[0].means)
    places = np.arange(len(breakdown.buckets), dtype=np.float64)

    def paint(axes: Axes) -> None:
        for i, system in enumerate(systems):
            found = np.array([bucket.means[system] for bucket in breakdown.buckets])
            shift = 0.5 * ((i + 0.5) / len(systems) - 0.5)
            axes.errorbar(
                places + shift,
                found[:, 0],
                yerr=np.clip([found[:, 0] - found[:, 1], found[:, 2] - found[:, 0]], 0, None),
                fmt=MARKERS[i % len(MARKERS)],
                color=COLOURS[i % len(COLOURS)],
                markersize=6,
                elinewidth=1.3,
                capsize=3,
                label=wrapped(system, 44),
            )
        labels = [f"{bucket.label}\n({bucket.queries:,})" for bucket in breakdown.buckets]
        axes.set_xticks(places, labels, fontsize=9.5)
        axes.set_xlim(-0.5, len(places) - 0.5)
        axes.set_xlabel(wrapped(f"{breakdown.property} (lists)", 60))
        axes.set_ylabel(breakdown.metric)
        axes.grid(visible=False, axis="x")
        if len(systems) > 1:
            _legend(axes)

    title = f"{breakdown.metric} by {breakdown.property}"
    values = "; ".join(
        f"{bucket.label}: " + ", ".join(f"{name} {wording.number(bucket.means[name][0])}" for name in systems)
        for bucket in breakdown.buckets
    )
    return plot(paint, title, 3.2 + _legend_height(len(systems)), f"{title}: {values}")


def draw_calibration(found: Mapping[str, Calibration]) -> Plot:
    """Observed share of relevant items against predicted probability, the diagonal for comparison."""

    def paint(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color=BASELINE, linestyle="--", linewidth=1.2, label="perfect")
        for i, (name, one) in enumerate(found.items()):
            axes.plot(
                one.predicted,
                one.observed,
                color=COLOURS[i % len(COLOURS)],
                marker=MARKERS[i % len(MARKERS)],
                markersize=6,
                linewidth=1.4,
                label=wrapped(f"{name}, ECE {one.error:.3f}", 44),
            )
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlabel("predicted: sigmoid of the score")
        axes.set_ylabel("observed: share relevant")
        _legend(axes)

    values = "; ".join(f"{name} expected calibration error {one.error:.3f}" for name, one in found.items())
    return plot(paint, "Calibration", 3.6 + _legend_height(len(found) + 1), f"Calibration: {values}")


def draw_pareto(timed: Sequence[Timed], metric: str, items: int) -> Plot:
    """Accuracy against latency; a line joins the systems that no other beats in both."""
    best = frontier(timed)

    def paint(axes: Axes) -> None:
        from matplotlib.ticker import FuncFormatter, NullFormatter

        axes.plot(
            [one.milliseconds for one in best], [one.mean for one in best], color=BASELINE, linewidth=1.4
        )
        for i, one in enumerate(timed):
            axes.errorbar(
                one.milliseconds,
                one.mean,
                yerr=np.clip([[one.mean - one.low], [one.high - one.mean]], 0, None),
                fmt=MARKERS[i % len(MARKERS)],
                color=COLOURS[i % len(COLOURS)],
                markersize=8,
                elinewidth=1.1,
                capsize=3,
                label=wrapped(one.name, 44),
            )
        times = [one.milliseconds for one in timed]
        axes.set_xscale("log")
        axes.set_xlim(min(times) / 1.6, max(times) * 1.6)
        axes.set_xticks(sorted({float(f"{tick:.2g}") for tick in np.geomspace(min(times), max(times), 4)}))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_tick_params(which="minor", size=0)
        axes.set_xlabel(f"milliseconds for {items:,} items")
        axes.set_ylabel(metric)
        axes.margins(y=0.15)
        _legend(axes)

    title = f"{metric} against latency"
    values = "; ".join(f"{one.name} {wording.number(one.mean)} in {one.milliseconds:.1f} ms" for one in timed)
    return plot(paint, title, 3.0 + _legend_height(len(timed)), f"{title} for {items} items: {values}")


def _legend(axes: Axes) -> None:
    axes.figure.legend(loc="outside lower left", frameon=False, fontsize=10, labelcolor=INK)


def _legend_height(entries: int) -> float:
    return 0.22 * entries if entries > 1 else 0.0
