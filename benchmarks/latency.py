"""Whole-path latency of rankers on the same lists: texts in, sorted items out.

    python benchmarks/latency.py --items 10 30 100 300 700 --out runs/latency

The rankers take turns on every list, so that a machine whose speed drifts slows all of them alike; ratios are taken
round by round. Weights are those of the encoder with fresh heads: they do not change the time. Each list is new to the
ranker's token cache (`--warm` ranks a list once before it is timed, as a service with known items would).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from crossjem_pl.data.simulator import simulate
from crossjem_pl.inference import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM, MonoBERT, QueryHead, Ranker
from crossjem_pl.rankers.pretrained import PACKAGED
from crossjem_pl.training.run_folder import describe_machine

RANKERS: dict[str, Callable[[str], Ranker]] = {
    "crossjem": lambda encoder: CrossJEM(encoder, max_query_tokens=32, max_item_tokens=32),
    "crossjem-best": lambda encoder: CrossJEM(
        encoder, QueryHead(), 1, "shared", max_query_tokens=32, max_item_tokens=32
    ),
    "monobert": lambda encoder: MonoBERT(encoder, max_query_tokens=32, max_item_tokens=32),
}
BASELINE = "monobert"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, nargs="+", default=[10, 30, 100, 300, 700])
    parser.add_argument("--rankers", nargs="+", choices=sorted(RANKERS), default=sorted(RANKERS))
    parser.add_argument("--encoder", default=PACKAGED)
    parser.add_argument("--precision", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--rounds", type=int, default=15, help="lists per size (default 15)")
    parser.add_argument("--warm", action="store_true", help="rank each list once before it is timed")
    parser.add_argument("--out", type=Path, default=Path("runs/latency"))
    args = parser.parse_args()

    rerankers = {
        name: Reranker(RANKERS[name](args.encoder), precision=args.precision) for name in args.rankers
    }
    found = {
        items: measure(rerankers, items, args.rounds, args.warm)
        for items in track(args.items, description="sizes")
    }
    machine = describe_machine()
    Console(width=120).print(table(found, f"{machine}, {args.precision}, {args.rounds} lists a size"))
    args.out.mkdir(parents=True, exist_ok=True)
    result = {"machine": machine, "precision": args.precision, "warm": args.warm, "milliseconds": found}
    (args.out / "latency.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    plot(found, machine, args.precision, args.out / "latency.png")
    print(f"wrote {args.out}/latency.json and latency.png")


def measure(rerankers: dict[str, Reranker], items: int, rounds: int, warm: bool) -> dict[str, list[float]]:
    """Milliseconds of every round by ranker; two more rounds come first and are not counted."""
    times: dict[str, list[float]] = {name: [] for name in rerankers}
    for number, one in enumerate(simulate(rounds + 2, items, seed=1, split="test")):
        for name, reranker in rerankers.items():
            if warm:
                reranker.rank(one.query, one.items)
            elapsed = timed(reranker, one)
            if number >= 2:
                times[name].append(elapsed)
    return times


def timed(reranker: Reranker, one: RankingList) -> float:
    """Milliseconds from texts to sorted items."""
    start = time.perf_counter()
    reranker.rank(one.query, one.items)
    if reranker.device.type == "cuda":
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - start)


def table(found: dict[int, dict[str, list[float]]], title: str) -> Table:
    """p50, p95 and the median ratio to the baseline, by size and ranker."""
    out = Table(title=title, title_justify="left")
    for column in ("items", "ranker", "p50 ms", "p95 ms", f"{BASELINE} takes times as long"):
        out.add_column(column, justify="left" if column == "ranker" else "right")
    for items, times in found.items():
        for name, values in times.items():
            ratio = ""
            if BASELINE in times and name != BASELINE:
                ratio = f"{np.median(np.array(times[BASELINE]) / np.array(values)):.1f}"
            p50, p95 = np.percentile(values, [50, 95])
            out.add_row(str(items), name, f"{p50:.1f}", f"{p95:.1f}", ratio)
    return out


def plot(found: dict[int, dict[str, list[float]]], machine: str, precision: str, path: Path) -> None:
    """Median latency against the number of items, both logarithmic."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.0), dpi=150)
    for name in next(iter(found.values())):
        axes.plot(list(found), [np.median(times[name]) for times in found.values()], marker="o", label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(list(found), [str(items) for items in found])
    axes.minorticks_off()
    axes.set_xlabel("items of the query")
    axes.set_ylabel("milliseconds, texts in to sorted items out")
    axes.set_title(f"{machine}, {precision}", fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    main()
