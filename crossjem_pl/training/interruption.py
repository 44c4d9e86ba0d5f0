"""Ctrl-C and SIGTERM end a training in order: a checkpoint, how to resume, and the usual exit status."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.utilities.exceptions import SIGTERMException

__all__ = ["StopOnSignal", "signal_exit_status"]


class StopOnSignal(Callback):
    """After SIGINT or SIGTERM, ends the step (or the validation) that is under way, writes `last.ckpt` and exits.

    The exit status is 130 or 143. A second signal ends the program at once. In a distributed run all processes stop
    after the same step, whichever of them got the signal.
    """

    def __init__(self) -> None:
        self.received: int | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.received = None

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._listen()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._listen()

    def _listen(self) -> None:
        if threading.current_thread() is threading.main_thread():  # no other thread may set handlers
            for number in (signal.SIGINT, signal.SIGTERM):  # the trainer restores the handlers that it found
                signal.signal(number, self._note)

    def _note(self, number: int, frame: Any) -> None:
        if self.received is not None:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
        self.received = number

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._stop_if_asked(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit":
            self._stop_if_asked(trainer)

    def _stop_if_asked(self, trainer: Trainer) -> None:
        if not trainer.strategy.reduce_boolean_decision(self.received is not None, all=False):
            return
        number = signal.Signals(self.received or signal.SIGTERM)
        saver = trainer.checkpoint_callback
        message = f"{number.name}: stopped after step {trainer.global_step}"
        if isinstance(saver, ModelCheckpoint) and saver.dirpath and not trainer.sanity_checking:
            path = Path(saver.dirpath) / "last.ckpt"
            trainer.save_checkpoint(path)
            message += f"; checkpoint: {path}. To resume: the same command with --ckpt_path last"
        if trainer.is_global_zero:
            print(message, file=sys.stderr, flush=True)
        raise SystemExit(128 + number if trainer.is_global_zero else 0)


@contextmanager
def signal_exit_status() -> Iterator[None]:
    """Turns what Lightning exits with after a signal (1 or 0) into KeyboardInterrupt and status 143."""
    try:
        yield
    except SIGTERMException:
        raise SystemExit(128 + signal.SIGTERM) from None
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise
