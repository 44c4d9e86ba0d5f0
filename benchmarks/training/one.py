"""One measurement in a process of its own: `python -m benchmarks.training.one SPEC`."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from benchmarks.measuring.fresh import specification
from benchmarks.measuring.memory import MemoryMeter
from benchmarks.training.learners import Learner, OwnLearner, learner_of
from crossjem_pl.cli.main import quiet_libraries
from crossjem_pl.data.simulator import simulate

__all__ = ["measure_steps"]

WARMUP = 1
"""Steps that come first and are not counted; AdamW makes its moments in the first."""


def measure_steps(spec: Mapping[str, Any]) -> dict[str, float]:
    """Medians over the steps of one system, and its peak memory.

    Args:
        spec: `name`, `encoder`, `items`, `batch_size` (lists a step and process), `precision`, `device`, `threads` (of
            each process), `steps`, `processes`, `random_init`.

    Returns:
        `step_ms`, `tokenise_ms` (a part of it), `pairs_per_second` (of all processes, tokenising included), `peak_mib`
        (of the worst process, beyond the resident model) and `peak_mib_all` (of all processes together).
    """
    processes = int(spec["processes"])
    if processes == 1:
        return _summary(spec, [_steps(spec, 0)])
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_process, (dict(spec), folder), nprocs=processes)
        found = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(processes)]
    return _summary(spec, found)


def _process(rank: int, spec: dict[str, Any], folder: str) -> None:
    """One process of several: its own lists, gradients averaged with gloo."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    quiet_libraries()
    store = dist.FileStore(f"{folder}/store", spec["processes"])
    dist.init_process_group("gloo", store=store, rank=rank, world_size=spec["processes"])
    found = _steps(spec, rank)
    (Path(folder) / f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def _steps(spec: Mapping[str, Any], rank: int) -> dict[str, Any]:
    torch.manual_seed(0)
    torch.set_num_threads(spec["threads"])
    device = torch.device(spec["device"])
    changes = {"random_init": True} if spec["random_init"] else {}
    learner: Learner = learner_of(spec["name"], spec["encoder"], device, spec["precision"], changes)
    size, steps = spec["batch_size"], spec["steps"] + WARMUP
    lists = list(simulate(steps * size, spec["items"], seed=3, start=rank * steps * size))
    if spec["processes"] > 1:
        if not isinstance(learner, OwnLearner):
            raise ValueError(f"{spec['name']} is measured in one process only")
        learner.distribute()
    meter = MemoryMeter(device)
    times = [learner.step(lists[i * size : (i + 1) * size]) for i in range(steps)]
    return {"seconds": times[WARMUP:], "mib": meter.growth()}


def _summary(spec: Mapping[str, Any], found: list[dict[str, Any]]) -> dict[str, float]:
    whole, tokenising = np.median([one["seconds"] for one in found], axis=(0, 1))
    pairs = spec["processes"] * spec["batch_size"] * spec["items"]
    return {
        "step_ms": 1000 * float(whole),
        "tokenise_ms": 1000 * float(tokenising),
        "pairs_per_second": pairs / float(whole),
        "peak_mib": float(max(one["mib"] for one in found)),
        "peak_mib_all": float(sum(one["mib"] for one in found)),
    }


def main() -> None:
    """Prints the figures of the specification on the command line."""
    quiet_libraries()
    print(json.dumps(measure_steps(specification())))


if __name__ == "__main__":
    main()
