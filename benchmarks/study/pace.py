"""How long one optimiser step of each system takes: what equal training time is reckoned from."""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from benchmarks.tables.runs import Runner
from benchmarks.tables.spec import System

__all__ = ["seconds_per_step"]

_WARMUP = 2
"""Steps of every round that come first and are not counted."""


class _Stopwatch(Callback):
    """Seconds between the ends of two steps: tokenising, loss, optimiser and the loop around them included."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self.ends.append(time.perf_counter())

    @property
    def seconds(self) -> list[float]:
        return [b - a for a, b in zip(self.ends[_WARMUP - 1 :], self.ends[_WARMUP:], strict=False)]


def seconds_per_step(
    runner: Runner, systems: Sequence[System], steps: int = 10, rounds: int = 2
) -> dict[str, float]:
    """Median seconds of a training step, the systems in turn, `rounds` times each.

    Kept in the runner's folder: a study that goes on later has the same numbers of steps.

    Args:
        runner: knows data and options.
        systems: what is trained.
        steps: counted ones of a round.
        rounds: how often every system has its turn.
    """
    path = runner.root / "seconds_per_step.json"
    kept = _read(path)
    keys = {system.name: _key(runner, system) for system in systems}
    missing = [system for system in systems if keys[system.name] not in kept]
    times: dict[str, list[float]] = {system.name: [] for system in missing}
    for _ in range(rounds):
        for system in missing:
            times[system.name] += _round(runner, system, steps)
            print(f"{system.name}: {median(times[system.name]):.3f} seconds a step", flush=True)
    if missing:
        # another process may have measured the other systems in the meantime
        kept = _read(path) | {keys[name]: median(values) for name, values in times.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    return {system.name: kept[keys[system.name]] for system in systems}


def _read(path: Path) -> dict[str, float]:
    found: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def _key(runner: Runner, system: System) -> str:
    return hashlib.sha256(str(runner.folder(system, 0)).encode()).hexdigest()[:12]


def _round(runner: Runner, system: System, steps: int) -> list[float]:
    watch = _Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "trainer.max_steps": str(steps + _WARMUP),
            "trainer.max_epochs": "-1",
            "trainer.limit_val_batches": "0",
            "trainer.logger": "false",
            "trainer.enable_progress_bar": "false",
            "trainer.enable_model_summary": "false",
            "trainer.default_root_dir": str(Path(folder)),
        }
        words = [word for key, value in options.items() for word in (f"--{key}", value)]
        built = runner.build(system, *words, with_scores=True)
        built.trainer.callbacks = [watch]  # type: ignore[attr-defined]
        built.trainer.fit(built.model, built.datamodule)
    return watch.seconds
