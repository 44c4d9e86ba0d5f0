"""The study's page and its plot of accuracy against cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.measuring.charts import chart
from benchmarks.measuring.pages import markdown_table
from benchmarks.study.cost import Cost
from benchmarks.tables.measures import accuracy, differences
from crossjem_pl.evaluation.page import p_value

__all__ = ["METRICS", "Trained", "accuracy_table", "cost_table", "plot_pareto"]

_MARKERS = "osD^vP*X<>"

METRICS = ("RR@10", "AP@10", "nDCG@10")

Frames = Mapping[str, Sequence[pd.DataFrame]]


@dataclass(frozen=True)
class Trained:
    """One part of the study: every system's runs.

    Args:
        frames: system -> one frame of values per query and seed, see `benchmarks.tables.measures.per_query`.
        steps: system -> optimiser steps.
        minutes: system -> steps times the measured seconds of a step, in minutes; empty where none were measured.
        lists: system -> lists seen, repeats counted.
        folders: system -> run folders.
    """

    frames: dict[str, list[pd.DataFrame]] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    minutes: dict[str, float] = field(default_factory=dict)
    lists: dict[str, int] = field(default_factory=dict)
    folders: dict[str, list[Path]] = field(default_factory=dict)


def accuracy_table(trained: Trained, baseline: str) -> list[str]:
    """Markdown lines: all metrics with 95% intervals, seeds, difference to the baseline, lists and time of training."""
    frames: Frames = trained.frames
    compared = {metric: differences(frames, baseline, metric) for metric in METRICS[:2]}
    columns = ["system", *METRICS]
    columns += [f"{metric} against {baseline} (p)" for metric in METRICS[:2]]
    rows = []
    for name, found in frames.items():
        cells = accuracy(found)
        row = [name]
        for metric in METRICS:
            cell = cells[metric]
            text = f"{100 * cell.mean:.2f} [{100 * (cell.low or 0):.2f}, {100 * (cell.high or 0):.2f}]"
            if len(cell.seeds) > 1 and metric == METRICS[0]:
                text += " (" + ", ".join(f"{100 * seed:.2f}" for seed in cell.seeds) + ")"
            row.append(text)
        for metric in METRICS[:2]:
            difference = compared[metric].get(name)
            row.append(
                ""
                if difference is None
                else f"{100 * difference.mean:+.2f} [{100 * difference.low:+.2f}, {100 * difference.high:+.2f}] "
                f"({p_value(difference.p)})"
            )
        row.append(f"{trained.lists[name]:,}")
        if trained.minutes:
            row.append(f"{trained.minutes[name]:.1f}")
        rows.append(row)
    columns += ["lists seen", *(["training, minutes"] if trained.minutes else [])]
    return markdown_table(columns, rows)


def cost_table(costs: Mapping[str, Mapping[int, Cost]], baseline: str) -> list[str]:
    """Markdown lines: median milliseconds at every size, and how many times as long the baseline's scoring takes."""
    sizes = list(next(iter(costs.values())))
    columns = ["system"]
    for items in sizes:
        columns += [
            f"{items}: scoring ms",
            f"{items}: whole ms",
            f"{items}: {baseline} / this, scoring (whole)",
        ]
    rows = []
    for name, by_size in costs.items():
        row = [name]
        for items in sizes:
            own, base = by_size[items], costs[baseline][items]
            ratios = [
                float(np.median(np.array(of_base) / np.array(of_own)))
                for of_base, of_own in ((base.scoring, own.scoring), (base.whole, own.whole))
            ]
            row += [f"{np.median(own.scoring):,.1f}", f"{np.median(own.whole):,.1f}"]
            row.append("" if name == baseline else f"{ratios[0]:.1f}x ({ratios[1]:.1f}x)")
        rows.append(row)
    return markdown_table(columns, rows)


def plot_pareto(
    trained: Trained, costs: Mapping[str, Mapping[int, Cost]], items: int, title: str, path: Path
) -> None:
    """MRR@10 with its interval against the milliseconds of scoring `items` items."""
    with chart(path, title, width=8.0) as axes:
        shown = [name for name in trained.frames if name in costs]
        for place, name in enumerate(shown):
            found = trained.frames[name]
            cell = accuracy(found)[METRICS[0]]
            x = float(np.median(costs[name][items].scoring))
            low, high = cell.low or cell.mean, cell.high or cell.mean
            axes.errorbar(
                x,
                100 * cell.mean,
                [[100 * (cell.mean - low)], [100 * (high - cell.mean)]],
                fmt=_MARKERS[place % len(_MARKERS)],
                ms=5,
                lw=0.8,
                label=name,
            )
        axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
        axes.set_xscale("log")
        axes.set_xlabel(f"scoring {items} items, milliseconds")
        axes.set_ylabel("MRR@10, per cent")
