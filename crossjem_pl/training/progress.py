"""Progress of a training in plain lines, for logs of jobs without a terminal."""

from __future__ import annotations

import math
import time
from datetime import timedelta
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar

__all__ = ["ProgressLines"]


class ProgressLines(ProgressBar):
    """Every few seconds prints a line with the step, the loss, lists per second and the time left.

    Args:
        seconds: between two lines.
    """

    def __init__(self, seconds: float = 10.0) -> None:
        super().__init__()
        self.seconds, self.enabled = seconds, True
        self._lists = 0
        self._first_step = 0
        self._started = self._printed = 0.0

    def disable(self) -> None:
        self.enabled = False

    def enable(self) -> None:
        self.enabled = True

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self._started = self._printed = time.monotonic()
        self._lists, self._first_step = 0, trainer.global_step

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._lists += len(batch.query_ids) * trainer.world_size
        now = time.monotonic()
        if self.enabled and now - self._printed >= self.seconds:
            self._printed = now
            self._print(trainer, pl_module, now - self._started)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        values = {name: float(v) for name, v in trainer.callback_metrics.items() if name.startswith("val/")}
        if self.enabled and values and not trainer.sanity_checking:
            shown = ", ".join(f"{name} {value:.4f}" for name, value in values.items())
            print(f"validation after step {trainer.global_step}: {shown}", flush=True)

    def _print(self, trainer: Trainer, pl_module: LightningModule, seconds: float) -> None:
        step, total = trainer.global_step, trainer.estimated_stepping_batches
        line = f"epoch {trainer.current_epoch}, step {step}"
        done = step - self._first_step
        rest = f", {self._lists / seconds:.1f} lists/s"
        if math.isfinite(total):
            line += f"/{int(total)}"
            if done:
                left = timedelta(seconds=round((total - step) * seconds / done))
                rest += f", {left} left"
        loss = trainer.callback_metrics.get("train/loss")
        print(f"{line}, loss {float('nan') if loss is None else float(loss):.4f}{rest}", flush=True)
