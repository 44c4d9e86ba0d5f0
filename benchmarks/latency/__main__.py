"""Latency, throughput, stages and memory of all rankers and of public cross-encoders on the same lists.

    python -m benchmarks.latency --items 10 30 100 300 700 1400 --out runs/latency

Texts in, sorted items out. The contenders take turns on every list, so a machine whose speed drifts slows all of them
alike; rounds that warm up are not counted. Every text is tokenised within the time. Rankers that encode queries and
items apart (ColBERT, DPR, ANCE, TwinBERT, CoRAL, INSTRUCTOR) have their item vectors computed ahead, as the paper's
latencies assume; with --uncached once more without. "by id": CROSS-JEM and monoBERT once more with the items' token
ids in a store, the query a text; `ahead` with its states. Weights are the encoder's with fresh heads: they do not
change the time. The figures of docs/performance.md, on lists that are simulated and on a file of yours:

    python -m benchmarks.latency --summary --real dev.jsonl.gz --out runs/performance

Writes latency.json and latency.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import contenders as taking_part
from benchmarks.contenders import (
    SENTENCE_TRANSFORMERS,
    WARMUP,
    Contender,
    OwnRanker,
    measured_lists,
    real_lists,
)
from benchmarks.latency.stages import STAGES, has_stages, stage_milliseconds
from benchmarks.measuring import MemoryMeter, matrix_peak
from benchmarks.pages import provenance, table, write
from benchmarks.program import PRECISIONS, defaults, fresh, parser, program, torch_device
from crossjem_pl.data.simulator import simulate
from crossjem_pl.inference import Reranker
from crossjem_pl.inference.export.runtimes import BACKENDS
from crossjem_pl.inference.export.write import export_ranker
from crossjem_pl.inference.timing import Timings
from crossjem_pl.lists import RankingList
from crossjem_pl.progress import track
from crossjem_pl.text.token_store import TokenStore

RANKERS = ["crossjem", "crossjem-wide", "crossjem-best", "monobert", "sharedquery", "setencoder"]
RANKERS += ["colbert", "dpr", "ance", "twinbert", "coral", "instructor", "meb", "ahead", "cascade"]
_SUMMARY = ["crossjem", "crossjem-wide", "crossjem-best", "ahead", "monobert", "colbert", "dpr"]
_REAL = 100
"""Items of a list of real texts."""
MONOBERT = "monobert"
_QUERIES = (1, 4, 16, 64, 256)
"""Queries of a batch that are tried for the throughput, as far as `--most-pairs` allows."""
_COUNTED = 3
"""Lists of a size whose operations are counted."""


def run(args: argparse.Namespace) -> None:
    """Measures, prints and writes everything that `args` asks for."""
    device = torch_device(args.device)
    full = {
        "items": [10, 30, 100, 300, 700, 1400],
        "rounds": 15,
        "saturated": [30, 700],
        "stages": [100, 700],
    }
    if args.summary:
        full |= {"items": [_REAL, 700], "rounds": 7, "saturated": [], "stages": [700]}
        args.uncached = True
    few = args.smoke or args.summary
    args.memory_items = (0 if few else 700) if args.memory_items is None else args.memory_items
    full |= {
        "rankers": _SUMMARY if args.summary else RANKERS,
        "most_pairs": 50_000 if device.type == "cuda" else 3_000,
    }
    smoke = {"items": [10, 100], "rounds": 2, "saturated": [10], "stages": [100], "most_pairs": 100}
    defaults(args, full, smoke | {"rankers": ["crossjem", "crossjem-best", MONOBERT, "dpr"]})
    about = provenance(device, args.command)
    found: dict[str, Any] = {"provenance": about, "machine": about["machine"]}
    found |= {"precision": args.precision[0], "stages": [], "throughput": [], "peak_memory_mib": {}}
    found |= {name: getattr(args, name) for name in ("encoder", "rounds", "memory_items")}
    found["matrix_peak_gflops"] = {name: matrix_peak(device, name) / 1e9 for name in args.precision}
    with tempfile.TemporaryDirectory() as folder:
        contenders = contenders_of(args, Path(folder))
        latencies(args, contenders, found)
        for items in args.stages:
            for contender in filter(has_stages, contenders):
                stages = stage_milliseconds(contender, measured_lists(items, args.rounds))
                found["stages"].append({"name": contender.name, "items": items, **stages})
        for items in args.saturated:
            found["throughput"] += throughputs(args, contenders, items)
    spec = {**vars(args), "threads": torch.get_num_threads(), "device": device.type}
    for name in [*args.rankers, *args.peers] if args.memory_items else []:
        found["peak_memory_mib"][name] = fresh(peak_memory, {**spec, "name": name})
    write(found, page(found), args.out, "latency")


def contenders_of(args: argparse.Namespace, stores: Path | None = None) -> list[Contender]:
    """All contenders with their models loaded, this package's first.

    Args:
        args: the options; of those, who takes part and how.
        stores: an empty folder for what rankers by id read of all items; None leaves that path out.
    """
    device, out = torch_device(args.device), list[Contender]()
    many = 512 if device.type == "cuda" else None  # pairs a pass that suit a GPU better than 32

    def add(
        name: str, precision: str, overlay: str, store: Path | None = None, known: bool = True, **changes: Any
    ) -> None:
        model = taking_part.build_ranker(overlay, args.encoder, changes).to(device)
        held = None if store is None else store_of(args, store, model)
        reranker = Reranker(model, device, precision, max(_QUERIES), held)  # type: ignore[arg-type]
        out.append(OwnRanker(name, reranker, precision, known))

    for precision in args.precision:
        suffix = "" if precision == args.precision[0] else f" {precision}"
        for name in args.rankers:
            add(name + suffix, precision, name)
            model: Any = out[-1].reranker.ranker  # type: ignore[attr-defined]
            if stores is not None and (name.startswith("crossjem") or name in (MONOBERT, "ahead")):
                add(f"{name} by id{suffix}", precision, name, stores / f"{name}{suffix}")
            if stores is not None and precision == "float32" and model.can_be_exported():
                for runtime in args.exported:
                    folder = stores / f"{name} {runtime}"
                    export_ranker(model, folder, runtime)
                    out.append(OwnRanker(f"{name} {runtime}", Reranker(folder, backend=runtime)))
            if args.uncached and hasattr(model, "precompute_items"):
                add(f"{name} uncached{suffix}", precision, name, known=False)
        if many and MONOBERT in args.rankers:
            add(f"{MONOBERT} ({many} pairs a pass){suffix}", precision, MONOBERT, pairs_per_pass=many)
        for batch in (32, many) if SENTENCE_TRANSFORMERS in args.peers else ():
            if batch:
                name = SENTENCE_TRANSFORMERS + (f" (batch {batch})" if batch == many else "") + suffix
                out.append(taking_part.SentenceTransformers(name, args.encoder, device, precision, batch))
    return out


def rows_of(
    contenders: Sequence[Contender],
    times: Mapping[str, Timings],
    lists: Sequence[RankingList],
    baselines: Sequence[str],
    peaks: Mapping[str, float] | None = None,
) -> list[dict[str, Any]]:
    """A row of figures per contender, of lists of one size.

    `p50`, `p95`, `p99` in milliseconds; `pairs_per_second`, one query at a time; `ratios`: baseline -> median over
    the lists of (its time / this one's), in the same precision where it was measured in it; `gflop`: counted
    operations of a list (median; None where torch does not see them) and their `share_of_peak`, of `peaks` (precision
    -> GFLOP a second).
    """
    rows = []
    for contender in contenders:
        timings, items = times[contender.name], len(lists[0])
        row: dict[str, Any] = {
            "name": contender.name,
            "items": items,
            "precision": contender.precision,
            "ratios": {},
        }
        for name in baselines:
            same = f"{name} {contender.precision}"
            against = same if same in times else name
            if against != contender.name and against in times:
                row["ratios"][name] = times[against].ratio(timings)
        row |= {"p50": timings.median, "p95": timings.p95, "p99": timings.p99}
        row |= {"pairs_per_second": 1000 * items / timings.median, "gflop": None, "share_of_peak": None}
        counted = [contender.flops([ranking_list]) for ranking_list in lists[:_COUNTED]]
        if None not in counted:
            row["gflop"] = float(np.median(counted)) / 1e9  # type: ignore[arg-type]
            if peaks is not None:
                row["share_of_peak"] = 1000 * row["gflop"] / timings.median / peaks[contender.precision]
        rows.append(row)
    return rows


def peak_memory(spec: Mapping[str, Any]) -> float:
    """MiB that ranking a list needs beyond the loaded model, in this process, which should be a fresh one.

    Args:
        spec: the options, with `name`, the contender.
    """
    peer = spec["name"] == SENTENCE_TRANSFORMERS
    only = {"rankers": [] if peer else [spec["name"]], "peers": [spec["name"]] if peer else []}
    torch.set_num_threads(spec["threads"])
    contender = contenders_of(argparse.Namespace(**{**spec, **only, "precision": spec["precision"][:1]}))[0]
    meter = MemoryMeter(torch_device(spec["device"]))
    taking_part.time_in_turn([contender], [[one] for one in measured_lists(spec["memory_items"], 1, 1)], 1)
    return meter.growth()


def store_of(args: argparse.Namespace, folder: Path, ranker: Any) -> TokenStore:
    """Token ids, and states where the ranker stores some, of the items of all lists that are going to be measured."""
    lists = [one for items in {*args.items, *args.stages} for one in measured_lists(items, args.rounds)]
    lists += [] if args.real is None else real_lists(args.real, _REAL, args.rounds)
    for items in args.saturated:
        for queries in _batch_sizes(items, args.most_pairs):
            lists += [one for batch in _batches(args, items, queries) for one in batch]
    items_of = (pair for one in lists for pair in zip(one.item_ids, one.items, strict=True))
    states = ranker.eval().store_states()
    return TokenStore.build(folder, items_of, ranker.tokenizer, ranker.max_item_tokens, states)


def latencies(args: argparse.Namespace, contenders: Sequence[Contender], found: dict[str, Any]) -> None:
    """One query at a time: `baselines`, `milliseconds`, `latency` (rows) and `stopped` of the JSON file."""
    names = [contender.name for contender in contenders]
    found["baselines"] = [name for name in (MONOBERT, SENTENCE_TRANSFORMERS) if name in names]
    found["milliseconds"], found["latency"], found["stopped"] = {}, [], {}
    parts = [(str(items), measured_lists(items, args.rounds)) for items in args.items]
    if args.real is not None:
        parts.append((f"{_REAL} real", real_lists(args.real, _REAL, args.rounds)))
    parts.sort(
        key=lambda part: len(part[1][0])
    )  # what is too slow for one size is not measured at larger ones
    for kind, lists in track(parts, description="one query at a time"):
        running = [contender for contender in contenders if contender.name not in found["stopped"]]
        if not running:
            break
        items = len(lists[0])
        times = taking_part.time_in_turn(running, [[ranking_list] for ranking_list in lists])
        found["milliseconds"][kind] = {name: list(timings.rounds) for name, timings in times.items()}
        rows = rows_of(running, times, lists[WARMUP:], found["baselines"], found["matrix_peak_gflops"])
        found["latency"] += [{**row, "lists": kind} for row in rows]
        too_slow = [name for name, timings in times.items() if timings.median > 1000 * args.longest]
        found["stopped"] |= dict.fromkeys(too_slow, items)


def throughputs(
    args: argparse.Namespace, contenders: Sequence[Contender], items: int
) -> list[dict[str, Any]]:
    """Several queries a batch: every contender's best batch, and pairs a second of all that were tried.

    A batch that would take a contender longer than three times `--longest`, at the pace of the last, is not tried.
    """
    tried: dict[str, dict[int, float]] = {contender.name: {} for contender in contenders}
    for queries in _batch_sizes(items, args.most_pairs):
        pace = {name: list(speeds.values())[-1] if speeds else np.inf for name, speeds in tried.items()}
        running = [one for one in contenders if queries * items / pace[one.name] <= 3 * args.longest]
        times = taking_part.time_in_turn(running, _batches(args, items, queries), 1) if running else {}
        for name, timings in times.items():
            tried[name][queries] = 1000 * queries * items / timings.median
    best = {name: max(speeds, key=lambda queries: speeds[queries]) for name, speeds in tried.items()}
    return [
        {
            "name": name,
            "items": items,
            "queries": queries,
            "pairs_per_second": tried[name][queries],
            "tried": tried[name],
        }
        for name, queries in best.items()
    ]


def _batch_sizes(items: int, most_pairs: int) -> list[int]:
    return [queries for queries in _QUERIES if queries == 1 or queries * items <= most_pairs]


def _batches(args: argparse.Namespace, items: int, queries: int) -> list[list[RankingList]]:
    """The batches of one size that are measured, at most three after one that is not counted."""
    lists = list(simulate(queries * (min(args.rounds, 3) + 1), items, seed=2, split="test"))
    return [lists[first : first + queries] for first in range(0, len(lists), queries)]


def page(found: Mapping[str, Any]) -> list[str]:
    """Markdown lines of the content of the JSON file."""
    peaks = ", ".join(f"{name} {peak:,.0f} GFLOP/s" for name, peak in found["matrix_peak_gflops"].items())
    lines = [
        "# Latency",
        "",
        f"Encoder {found['encoder']} with fresh heads (weights do not change the time); {found['precision']} unless a "
        f"name says otherwise; {found['rounds']} simulated lists a size after {WARMUP} that are not counted, "
        f"the contenders in turn on each; texts new to the token caches. Measured peak of matrix products: {peaks}.",
        "",
        "ColBERT, DPR, ANCE, TwinBERT, CoRAL and INSTRUCTOR have the items' vectors computed ahead, as the paper's "
        "latencies assume, but where it says uncached: only the query is encoded while the clock runs. By id: token "
        "ids of the items (of `ahead` states too) are in a store, only the query is tokenised. Real: a file's texts.",
        "",
        "## One query at a time",
        "",
        "Milliseconds, texts in to sorted items out. Ratios are medians of the ratios list by list: how many times "
        "as long the baseline takes in the same precision. GFLOP: matrix products and attentions that torch counts in "
        "one ranking, padding included.",
        "",
    ]
    columns: dict[str, Any] = {"": "{name}", "items": "{lists}"}
    columns |= {"p50 ms": "{p50:,.1f}", "p95": "{p95:,.1f}", "p99": "{p99:,.1f}"}
    columns["pairs/s"] = "{pairs_per_second:,.0f}"
    columns |= {f"{name} takes": f"{{ratios[{name}]:.2f}}x" for name in found["baselines"]}
    lines += table(
        found["latency"], columns | {"GFLOP": "{gflop:,.2f}", "share of the peak": "{share_of_peak:.0%}"}
    )
    if found["throughput"]:
        columns = {"": "{name}", "items": "{items:d}", "pairs/s, best": "{pairs_per_second:,.0f}"}
        columns |= {"queries a batch": "{queries:d}"}
        columns["all: queries a batch: pairs/s"] = lambda row: ", ".join(
            f"{n}: {x:,.0f}" for n, x in row["tried"].items()
        )
        lines += ["", "## Several queries at a time", "", *table(found["throughput"], columns)]
    if found["stages"]:
        lines += ["", "## Stages", "", "Median milliseconds inside `Reranker.rank`, clocks included.", ""]
        columns = {
            "": "{name}",
            "items": "{items:d}",
            **{stage: f"{{{stage}:,.2f}}" for stage in (*STAGES, "all")},
        }
        lines += table(found["stages"], columns)
    if found["peak_memory_mib"]:
        lines += ["", f"## Peak memory, {found['memory_items']} items", ""]
        lines += ["MiB beyond the loaded model while a list is ranked, each in a process of its own.", ""]
        rows = [{"name": name, "mib": mib} for name, mib in found["peak_memory_mib"].items()]
        lines += table(rows, {"": "{name}", "MiB": "{mib:,.1f}"})
    for name, items in found["stopped"].items():
        lines += ["", f"Not measured at more than {items} items, which took it too long: {name}."]
    return lines


def _options() -> argparse.ArgumentParser:
    out = parser("benchmarks.latency", __doc__, "runs/latency")
    names, add = taking_part.overlays(), out.add_argument
    longest = "a contender that takes longer a query is not measured at larger sizes (default 5)"
    add("--precision", nargs="+", choices=PRECISIONS, default=["float32"])
    add("--rankers", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    add("--items", type=int, nargs="+", help="items a query (default 10 30 100 300 700 1400)")
    add("--rounds", type=int, help="counted lists a size (default 15)")
    add("--longest", type=float, default=5.0, metavar="SECONDS", help=longest)
    add("--peers", nargs="*", choices=[SENTENCE_TRANSFORMERS], default=[SENTENCE_TRANSFORMERS])
    add(
        "--exported",
        nargs="*",
        choices=sorted(BACKENDS),
        default=[],
        help="runtimes in which rankers that can be exported take part once more",
    )
    add("--saturated", type=int, nargs="*", metavar="N", help="sizes with several queries a batch")
    add("--most-pairs", type=int, help="of a batch of several queries")
    add("--stages", type=int, nargs="*", metavar="N", help="sizes whose stages are timed apart")
    add("--memory-items", type=int, metavar="N", help="items of the list whose memory is measured; 0: none")
    add("--summary", action="store_true", help="the contenders and sizes of docs/performance.md")
    add("--uncached", action="store_true", help="rankers with item vectors once more without")
    add(
        "--real",
        type=Path,
        metavar="FILE",
        help=f"ranking lists whose queries get {_REAL} of their items each, too",
    )
    return out


main = partial(program, _options, run)

if __name__ == "__main__":
    raise SystemExit(main())
