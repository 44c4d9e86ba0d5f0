"""Peak memory of ranking one list, in a fresh process: `python -m benchmarks.latency.peak_memory SPEC`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch

from benchmarks.latency.field import Field, contenders_of
from benchmarks.latency.turns import measured_lists
from benchmarks.measuring.fresh import fresh, specification
from benchmarks.measuring.memory import MemoryMeter
from crossjem_pl.cli.main import quiet_libraries

__all__ = ["grow", "peak_memory"]


def peak_memory(given: Field, items: int) -> dict[str, float]:
    """MiB that ranking a list of `items` needs beyond the loaded model, by ranker; a process each, first precision."""
    common = {
        "encoder": given.encoder,
        "device": given.device.type,
        "precision": given.precisions[0],
        "own_encoders": dict(given.own_encoders),
        "random_init": given.random_init,
        "passes": given.passes,
        "threads": torch.get_num_threads(),
        "items": items,
    }
    out = {}
    for name in (*given.rankers, *(peer for peer in given.peers if peer != "lightning-ir")):
        out[name] = float(fresh(__name__, {**common, "name": name})["mib"])
    return out


def grow(spec: Mapping[str, Any]) -> dict[str, float]:
    """What `peak_memory` measures for one name, in this process: two lists, the first of which is not special."""
    torch.set_num_threads(spec["threads"])
    device = torch.device(spec["device"])
    peer = spec["name"] == "sentence-transformers"
    given = Field(
        rankers=[] if peer else [spec["name"]],
        encoder=spec["encoder"],
        device=device,
        precisions=[spec["precision"]],
        own_encoders=spec["own_encoders"],
        random_init=spec["random_init"],
        passes=None if spec["passes"] is None else (spec["passes"][0], spec["passes"][1]),
        peers=[spec["name"]] if peer else [],
    )
    (contender,) = contenders_of(given)
    lists = measured_lists(spec["items"], 1, warmup=1)
    meter = MemoryMeter(device)
    for one in lists:
        contender.prepare([one])
        contender.milliseconds([one])
    return {"mib": meter.growth()}


def main() -> None:
    """Prints the figures of the specification on the command line."""
    quiet_libraries()
    print(json.dumps(grow(specification())))


if __name__ == "__main__":
    main()
