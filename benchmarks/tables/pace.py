"""How long one optimiser step of each system takes: what equal training time is reckoned from."""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from lightning.pytorch.callbacks import Callback

from benchmarks.contenders import WARMUP
from benchmarks.tables.runs import Runner
from benchmarks.tables.spec import System


class Stopwatch(Callback):
    """Seconds between the ends of two steps: tokenising, loss, optimiser and the loop around them included."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_train_batch_end(self, *_: Any) -> None:
        self.ends.append(time.perf_counter())

    @property
    def seconds(self) -> list[float]:
        """Of every step but the first `WARMUP`."""
        return [b - a for a, b in zip(self.ends[WARMUP - 1 :], self.ends[WARMUP:], strict=False)]


def seconds_per_step(
    runner: Runner, systems: Sequence[System], steps: int = 10, rounds: int = 2
) -> dict[str, float]:
    """Median seconds of a training step, the systems in turn, `rounds` times each.

    Kept in the runner's folder: a study that goes on later has the same numbers of steps.
    """
    path = runner.root / "seconds_per_step.json"

    def kept() -> dict[str, float]:
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    keys = {
        system.name: hashlib.sha256(str(runner.folder(system, 0)).encode()).hexdigest()[:12]
        for system in systems
    }
    times: dict[str, list[float]] = {name: [] for name, key in keys.items() if key not in kept()}
    for system in list(systems) * rounds:
        if system.name in times:
            times[system.name] += _step_seconds(runner, system, steps)
            print(f"{system.name}: {median(times[system.name]):.3f} seconds a step", flush=True)
    if times:
        # another process may have measured other systems in the meantime
        measured = kept() | {keys[name]: median(values) for name, values in times.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(measured, indent=2) + "\n", encoding="utf-8")
    return {name: kept()[key] for name, key in keys.items()}


def _step_seconds(runner: Runner, system: System, steps: int) -> list[float]:
    watch = Stopwatch()
    options: dict[str, Any] = {"max_steps": steps + WARMUP, "max_epochs": -1, "limit_val_batches": 0}
    options |= dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), "false")
    with tempfile.TemporaryDirectory() as folder:
        words = [w for key, value in options.items() for w in (f"--trainer.{key}", str(value))]
        built = runner.build(system, *words, "--trainer.default_root_dir", folder, with_scores=True)
        built.trainer.callbacks = [watch]  # type: ignore[attr-defined]
        built.trainer.fit(built.model, built.datamodule)
    return watch.seconds
