"""Throughput of `crossjem score` against the number of devices, simulated: slow nodes, failed nodes, driver, storage.

    python -m benchmarks.scale_simulation --pairs-per-second 17200 --devices 1 8 64 256

A job of `--lists` lists of `--items` items is cut into parts; a free device takes the next one. The time of a part
scatters log-normally; a share of the devices is slower by a factor; a device fails now and then, loses the part it is
at, which is done again, and comes back after a while; the driver deals one part at a time; all devices share the bytes
a second of the storage. Everything is drawn from a seed. Efficiency: pairs a second over those of as many perfect
devices.

Writes scale_simulation.json and scale_simulation.md.
"""

from __future__ import annotations

import argparse
import heapq
import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.pages import provenance, table, write
from benchmarks.program import at_least_one, parser, program

OPTIONS: dict[str, tuple[float, str]] = {
    "pairs_per_second": (17_200.0, "of a device"),
    "scatter": (0.05, "standard deviation of the logarithm of a part's time"),
    "slow_share": (0.05, "share of slow devices"),
    "slow_factor": (2.0, "how much slower they are"),
    "hours_between_failures": (200.0, "of a device, on average"),
    "minutes_to_return": (5.0, "after a failure, loading the model included"),
    "driver_ms": (20.0, "of the driver for a part"),
    "megabytes_per_second": (125.0, "that the storage reads and writes for all devices"),
    "bytes_per_pair": (46.0, "read and written"),
}

_MAY_BE_0 = ("scatter", "slow_share", "minutes_to_return", "driver_ms", "bytes_per_pair")


class Outcome(NamedTuple):
    """How a simulated job went.

    Args:
        seconds: until its last part was done.
        redone: parts that were lost with their devices.
    """

    seconds: float
    redone: int


def simulate(settings: Mapping[str, float], parts: int, part_pairs: int, devices: int, seed: int) -> Outcome:
    """Deals `parts` parts of `part_pairs` pairs to `devices` devices; `settings` as in `OPTIONS`."""
    draw = np.random.default_rng([seed, devices])
    slow = draw.permutation(devices) < round(settings["slow_share"] * devices)
    pace = np.where(slow, settings["slow_factor"], 1.0) * part_pairs / settings["pairs_per_second"]
    transfer = settings["bytes_per_pair"] * part_pairs * devices / (1e6 * settings["megabytes_per_second"])
    between = 3600 * settings["hours_between_failures"]
    fails = draw.exponential(between, devices)
    free = [(0.0, device) for device in range(devices)]
    lost: list[float] = []
    driver = end = 0.0
    redone = 0
    while parts or lost:
        now, device = heapq.heappop(free)
        if parts:
            parts -= 1
        else:
            now = max(now, heapq.heappop(lost))
        while fails[device] < now:  # while it had nothing to do
            fails[device] += draw.exponential(between)
        start = driver = max(now, driver) + settings["driver_ms"] / 1000
        done = start + max(pace[device] * math.exp(settings["scatter"] * draw.standard_normal()), transfer)
        if done > fails[device]:
            redone += 1
            heapq.heappush(lost, fails[device])
            done = fails[device] + 60 * settings["minutes_to_return"]
            fails[device] = done + draw.exponential(between)
        else:
            end = max(end, done)
        heapq.heappush(free, (done, device))
    return Outcome(end, redone)


def run(args: argparse.Namespace) -> None:
    """Simulates, prints and writes the figures."""
    settings = {name: getattr(args, name) for name in OPTIONS}
    at_least_one(args, "devices", "lists", "items", "lists_per_part", "seeds")
    for name, value in settings.items():
        if not (value > 0 or (value == 0 and name in _MAY_BE_0)):
            least = "of at least" if name in _MAY_BE_0 else "above"
            raise ValueError(f"--{name.replace('_', '-')}: expected a number {least} 0, got {value:g}")
    lists = min(args.lists, 100_000) if args.smoke else args.lists
    parts, pairs = -(-lists // args.lists_per_part), args.lists_per_part * args.items
    found: dict[str, Any] = {
        "provenance": provenance(torch.device("cpu"), args.command),
        "settings": settings,
    }
    found |= {"lists": lists, "items": args.items, "lists_per_part": args.lists_per_part, "rows": []}
    for devices in args.devices:
        outcomes = [simulate(settings, parts, pairs, devices, seed) for seed in range(args.seeds)]
        seconds = float(np.mean([outcome.seconds for outcome in outcomes]))
        row = {"devices": devices, "hours": seconds / 3600, "pairs_per_second": lists * args.items / seconds}
        row["efficiency"] = row["pairs_per_second"] / devices / settings["pairs_per_second"]
        found["rows"].append({**row, "redone": float(np.mean([outcome.redone for outcome in outcomes]))})
    write(found, page(found), args.out, "scale_simulation")


def page(found: Mapping[str, Any]) -> list[str]:
    """Markdown lines of the content of the JSON file."""
    columns: dict[str, Any] = {
        "devices": "{devices:,}",
        "hours": "{hours:,.2f}",
        "pairs/s": "{pairs_per_second:,.0f}",
    }
    columns |= {"efficiency": "{efficiency:.1%}", "parts done again": "{redone:.1f}"}
    settings = "; ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in found["settings"].items())
    sizes = f"{found['lists']:,} lists of {found['items']} in parts of {found['lists_per_part']:,}"
    return [
        "# Scoring on many devices, simulated",
        "",
        f"{sizes}; {settings}.",
        "",
        *table(found["rows"], columns),
    ]


def _options() -> argparse.ArgumentParser:
    out = parser("benchmarks.scale_simulation", __doc__, "runs/scale_simulation", encoder=None)
    out.add_argument("--devices", type=int, nargs="+", default=[1, 8, 64, 256, 1024])
    out.add_argument("--lists", type=int, default=18_600_000)
    out.add_argument("--items", type=int, default=100, help="of a list")
    out.add_argument("--lists-per-part", type=int, default=4096)
    out.add_argument("--seeds", type=int, default=5, help="simulations of a size, of which the mean is shown")
    for name, (value, text) in OPTIONS.items():
        out.add_argument(
            f"--{name.replace('_', '-')}", type=float, default=value, help=f"{text} (default {value:g})"
        )
    return out


main = partial(program, _options, run)

if __name__ == "__main__":
    raise SystemExit(main())
