"""`crossjem score` on a Ray cluster of two nodes that loses a worker, a node and its driver, against one process.

    python -m tests.faults.cluster --lists 200000 --out runs/cluster            # all phases
    python -m tests.faults.cluster --lists 20000 --out runs/cluster --phases local ray-1 ray-2

All phases score the same simulated lists of 100 items with a random encoder of two layers, one thread a process:
`local` without Ray, `ray-1` and `ray-2` with so many workers, `faults` with two while one gets SIGKILL,
the node of the other is removed, and the driver gets SIGKILL and is started again. Each must write the same
files, bit for bit, in which every list stands once. Printed for each: lists a second between every worker's first part
and the last (what starts is not counted), and the highest resident memory of the driver and of any worker.
`--distinct` repeats so many simulated lists under other ids, which is faster.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from benchmarks.measuring import resident
from crossjem_pl.data.rows import read_rows
from crossjem_pl.data.shards import write_shards
from crossjem_pl.data.simulator import simulate
from crossjem_pl.hashing import file_sha256
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM
from crossjem_pl.rankers.folder import save_ranker
from tests import tiny_models
from tests.conftest import root

PHASES = ("local", "ray-1", "ray-2", "faults")
LIMITS: dict[str, Any] = {"max_query_tokens": 16, "max_item_tokens": 16, "max_union_tokens": 128}


class Run:
    """The command of one phase in a process of its own, its memory and its rate."""

    def __init__(self, folder: Path, out: Path, part: int, *options: str) -> None:
        self.out, self.peaks = out, {"driver": 0.0, "worker": 0.0}
        words = ["-m", "crossjem_pl", "score", str(folder / "model"), str(folder / "lists")]
        words += ["--out", str(out), "--lists-per-part", str(part), *options]
        with (folder / "log.txt").open("ab") as log:
            self.process = subprocess.Popen([sys.executable, *words], stdout=log, stderr=log, cwd=root())

    def until(self, parts: float) -> None:
        """Waits for so many parts, or for the end."""
        while self.process.poll() is None and len(self._parts()) < parts:
            for name, numbers in (("driver", [self.process.pid]), ("worker", workers())):
                for number in numbers:
                    with suppress(OSError):  # it has ended
                        self.peaks[name] = max(self.peaks[name], resident("VmHWM", number))
            time.sleep(0.2)

    def end(self, workers: int = 1) -> dict[str, float]:
        """Waits for the end, which has to be a good one; counts from when every worker has done its first part."""
        self.until(float("inf"))
        if self.process.wait():
            raise RuntimeError(f"{self.out.name} failed, see {self.out.parent / 'log.txt'}")
        times = sorted((path.stat().st_mtime, path) for path in self._parts())
        lists = sum(len(set(_ids(path))) for _, path in times[workers:])
        return {
            "lists/s": lists / (times[-1][0] - times[workers - 1][0]),
            **{f"{k} MiB": v for k, v in self.peaks.items()},
        }

    def _parts(self) -> list[Path]:
        return list(self.out.glob("0*.parquet"))


def workers() -> list[int]:
    """The processes of Ray that score."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::MapWorker(MapBatches(Worker)"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def disturb(run: Run, again: Any, cluster: Any, node: Any, parts: int) -> Run:
    """Takes a worker, a node and the driver away, each after more parts; returns the driver that was started again."""
    run.until(parts * 0.1)
    on_node = [pid for pid in workers() if _parent(pid) == _raylet(node)]
    others = [pid for pid in workers() if pid not in on_node]
    if not on_node or not others:
        raise RuntimeError(f"the workers are not on both nodes: {on_node}, {others}")
    os.kill(others[0], signal.SIGKILL)
    run.until(parts * 0.3)
    cluster.remove_node(node, allow_graceful=False)
    run.until(parts * 0.5)
    run.process.kill()
    run.process.wait()
    if not len(run._parts()) < parts:
        raise RuntimeError("the job ended before its driver was killed")
    return again()


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0, or raises a RuntimeError that says what differs."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--lists", type=int, default=200_000)
    options.add_argument("--distinct", type=int, help="default: all")
    options.add_argument("--part", type=int, default=1000, help="lists of a part")
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--phases", nargs="+", default=PHASES, choices=PHASES)
    args = options.parse_args(argv)
    torch.manual_seed(0)
    folder = args.out.resolve() / str(args.lists)
    save_ranker(CrossJEM(str(tiny_models.write_bert(folder / "bert")), **LIMITS), folder / "model")
    description = {"lists": args.lists, "distinct": args.distinct or args.lists, "row_groups": args.part // 4}
    write_shards(lambda start: simulated(args, start), folder / "lists", 10_000, args.part // 4, description)
    os.environ.update(
        OMP_NUM_THREADS="1", RAY_DEDUP_LOGS="0", PYTHONPATH=os.pathsep.join([str(root()), *sys.path])
    )
    parts = -(-args.lists // args.part)
    hashes: dict[str, str] = {}
    for phase in args.phases:
        out = folder / phase
        if phase == "local":
            figures = Run(folder, out, args.part).end()
        else:
            figures = on_cluster(folder, out, args.part, parts, phase)
        print(phase, {name: round(value, 1) for name, value in figures.items()}, flush=True)
        seen = list(chain.from_iterable(dict.fromkeys(_ids(path)) for path in sorted(out.glob("0*.parquet"))))
        if seen != [f"l{number}" for number in range(args.lists)]:
            raise RuntimeError(
                f"{phase}: {len(seen)} lists, {len(set(seen))} different, not each once and in order"
            )
        found = {path.name: file_sha256(path) for path in out.iterdir() if path.name[0] != "."}
        if (hashes := hashes or found) != found:
            raise RuntimeError(f"{phase}: other bytes than those of {args.phases[0]}")
    print(f"{args.lists} lists each once and the same {len(hashes)} files in {', '.join(args.phases)}")
    return 0


def on_cluster(folder: Path, out: Path, part: int, parts: int, phase: str) -> dict[str, float]:
    """A phase on two nodes of this machine, each with a raylet, an object store and workers of its own."""
    cluster = import_module("ray.cluster_utils").Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": 10**8}
    )
    try:
        node = cluster.add_node(num_cpus=2, object_store_memory=10**8)
        cluster.wait_for_nodes()
        count = "1" if phase == "ray-1" else "2"

        def start() -> Run:
            return Run(folder, out, part, "--on", "ray", "--address", cluster.address, "--workers", count)

        run = start()
        return (disturb(run, start, cluster, node, parts) if phase == "faults" else run).end(int(count))
    finally:
        cluster.shutdown()


def simulated(args: argparse.Namespace, start: int) -> Iterator[RankingList]:
    """The lists from number `start` on."""
    distinct = args.distinct or args.lists
    known = list(simulate(distinct, 100)) if distinct < args.lists else None
    made = (
        (known[n % distinct] for n in range(start, args.lists))
        if known
        else simulate(args.lists - start, 100, 0, start)
    )
    return (replace(one, query_id=f"l{number}") for number, one in enumerate(made, start))


def _ids(path: Path) -> Iterator[str]:
    return (row.values["query_id"] for row in read_rows(path, ["query_id"]))


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def _raylet(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


if __name__ == "__main__":
    raise SystemExit(main())
