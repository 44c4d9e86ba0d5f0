"""Random number generators in checkpoints, so that a resumed run draws what an uninterrupted one draws."""

from __future__ import annotations

from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

__all__ = ["RandomState"]


class RandomState(Callback):
    """Stores torch's generators in every checkpoint; restores them just before the first resumed step.

    The order of the lists and the items drawn do not depend on them (they are functions of seed and epoch);
    dropout does.
    """

    def __init__(self) -> None:
        self._to_restore: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"cpu": torch.get_rng_state()}
        if torch.cuda.is_available():
            state["cuda"] = torch.cuda.get_rng_state_all()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._to_restore = state_dict

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._to_restore is None:
            return
        torch.set_rng_state(self._to_restore["cpu"].cpu())
        if torch.cuda.is_available() and len(self._to_restore.get("cuda", ())) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all([state.cpu() for state in self._to_restore["cuda"]])
        self._to_restore = None
