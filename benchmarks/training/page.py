"""The training page and its plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring.charts import chart, logarithmic
from benchmarks.measuring.pages import describe_conditions, markdown_table

__all__ = ["page", "plot", "with_ratios"]

_SETTING = ("items", "batch_size", "precision", "processes")


def with_ratios(rows: Sequence[Mapping[str, Any]], baselines: Sequence[str]) -> list[dict[str, Any]]:
    """The rows with `faster` and `leaner`: baseline -> its step over this one's, its peak over this one's."""
    out = []
    for row in rows:
        same = {other["name"]: other for other in rows if all(other[k] == row[k] for k in _SETTING)}
        ratios: dict[str, Any] = {"faster": {}, "leaner": {}}
        for name in baselines:
            if name != row["name"] and name in same:
                ratios["faster"][name] = row["pairs_per_second"] / same[name]["pairs_per_second"]
                ratios["leaner"][name] = same[name]["peak_mib"] / max(row["peak_mib"], 1e-9)
        out.append({**row, **ratios})
    return out


def page(found: Mapping[str, Any], baselines: Sequence[str]) -> list[str]:
    """Markdown lines of the content of the JSON file."""
    columns = [
        "",
        "items",
        "lists",
        "precision",
        "processes",
        "step ms",
        "tokenising ms",
        "pairs/s",
        "peak MiB",
    ]
    columns += [f"pairs/s, {name} = 1" for name in baselines] + [f"{name}'s peak" for name in baselines]
    rows = []
    for row in found["rows"]:
        figures = [f"{row[key]:,.1f}" for key in ("step_ms", "tokenise_ms")]
        figures += [f"{row['pairs_per_second']:,.0f}", f"{row['peak_mib']:,.0f}"]
        ratios = [
            f"{row[kind][name]:.2f}x" if name in row[kind] else ""
            for kind in ("faster", "leaner")
            for name in baselines
        ]
        rows.append([row["name"], *(str(row[key]) for key in _SETTING), *figures, *ratios])
    return [
        "# Training",
        "",
        *describe_conditions(found["conditions"]),
        f"One optimiser step: tokenising, forward, loss, backward, AdamW. Encoder {found['encoder']}, all weights "
        f"trained, the models' own dropout; medians of {found['steps']} steps on simulated lists after one that is not "
        "counted; every line in a process of its own. Peak: memory beyond the resident model before the first step, "
        "so it holds gradients, AdamW's moments and activations. A ratio above 1 is in favour of the line's system.",
        "",
        "CROSS-JEM and monoBERT learn with RPL. sentence-transformers: its CrossEncoder and its ListNetLoss (32 "
        "pairs at a time, as monoBERT) in the same loop; its trainer's own overhead is left out, and it has no RPL.",
        "",
        *markdown_table(columns, rows),
        *(line for name, why in found["left_out"].items() for line in ("", f"Not measured: {name} {why}.")),
    ]


def plot(rows: Sequence[Mapping[str, Any]], title: str, path: Path) -> None:
    """Pairs a second and peak memory against the number of items, at the largest batch of one process."""
    size = max(row["batch_size"] for row in rows)
    precision = rows[0]["precision"]
    chosen = [
        row
        for row in rows
        if (row["batch_size"], row["precision"], row["processes"]) == (size, precision, rows[0]["processes"])
    ]
    ticks = sorted({row["items"] for row in chosen})
    with chart(path, f"{title}, {precision}, {size} lists a step", panels=2, width=4.8, height=3.6) as panels:
        for axes, key, label in zip(
            panels, ("pairs_per_second", "peak_mib"), ("pairs a second", "peak memory, MiB"), strict=True
        ):
            for name in dict.fromkeys(row["name"] for row in chosen):
                own = [row for row in chosen if row["name"] == name]
                axes.plot([row["items"] for row in own], [row[key] for row in own], marker="o", label=name)
            logarithmic(axes, ticks, "items a list", label)
        panels[0].legend(frameon=False, fontsize=7)
