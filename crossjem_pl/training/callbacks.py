"""Callbacks of every run: random state in checkpoints, orderly ends after signals, progress in plain lines."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint, ProgressBar
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import Tensor

from crossjem_pl.training.module import gathered

__all__ = ["AverageWithStart", "ProgressLines", "RandomState", "StopOnSignal", "signal_exit_status"]


class AverageWithStart(Callback):
    """Validates and exports start + share * (trained - start): the trained weights, averaged with those of the start.

    On lists of other fields an encoder trained on one field ranks worse than the encoder it started from; the average
    keeps most of both (Wortsman et al., 2022, "Robust fine-tuning of zero-shot models"). Training itself and its
    checkpoints are not touched.

    Args:
        share: of the trained weights, in (0, 1].

    Raises:
        ValueError: for another share.
    """

    def __init__(self, share: float = 0.5) -> None:
        if not 0.0 < share <= 1.0:
            raise ValueError(f"share is that of the trained weights, in (0, 1], got {share}")
        self.share = share
        self._start: dict[str, Tensor] = {}
        self._validation = ExitStack()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit" and not trainer.strategy.restore_checkpoint_after_setup:
            self._note_start(pl_module)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.strategy.restore_checkpoint_after_setup:  # which shards the weights between the two
            self._note_start(pl_module)

    def _note_start(self, module: LightningModule) -> None:
        """Before a resumed run restores its weights."""
        self._start = {name: p.detach().clone() for name, p in module.named_parameters()}

    @contextmanager
    def averaged(self, module: LightningModule) -> Iterator[None]:
        """The module has the averaged weights inside, those of the training again after it."""
        trained = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
        try:
            for name, parameter in module.named_parameters():
                start = self._start[name].to(parameter)
                parameter.data.copy_(torch.lerp(start, parameter.data, self.share))
            yield
        finally:
            for name, parameter in module.named_parameters():
                parameter.data.copy_(trained[name])

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._validation.enter_context(self.averaged(pl_module))

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._validation.close()


class RandomState(Callback):
    """Stores torch's generators, those of each process, in checkpoints; restores them before the first resumed step.

    The order of the lists and the items drawn do not depend on them (they are functions of seed and epoch); dropout
    does.
    """

    def __init__(self) -> None:
        self._to_restore: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"cpu": torch.get_rng_state()}
        if torch.cuda.is_available():
            state["cuda"] = torch.cuda.get_rng_state_all()
        return {"processes": gathered(state)}  # only the first process writes, but all call this

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        states = state_dict.get("processes", [state_dict])  # older checkpoints have the first process's alone
        rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
        self._to_restore = states[rank] if rank < len(states) else None

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._to_restore is None:
            return
        torch.set_rng_state(self._to_restore["cpu"].cpu())
        if torch.cuda.is_available() and len(self._to_restore.get("cuda", ())) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all([state.cpu() for state in self._to_restore["cuda"]])
        self._to_restore = None


class StopOnSignal(Callback):
    """After SIGINT or SIGTERM, ends the step (or the validation) that is under way, writes `last.ckpt` and exits.

    The exit status is 130 or 143. A second signal ends the program at once. In a distributed run all processes stop
    after the same step, whichever of them got the signal.
    """

    def __init__(self) -> None:
        self.received: int | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.received = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if threading.current_thread() is threading.main_thread():  # no other thread may set handlers
            for number in (signal.SIGINT, signal.SIGTERM):  # the trainer restores the handlers that it found
                signal.signal(number, self._note)

    on_sanity_check_start = on_train_start

    def _note(self, number: int, frame: Any) -> None:
        if self.received is not None:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
        self.received = number

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches == 0 or trainer.is_last_batch:
            self._stop_if_asked(trainer)  # checkpoints have no gradients: those of a begun step would be lost

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
            self._print(trainer, now - self._started)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        values = {name: float(v) for name, v in trainer.callback_metrics.items() if name.startswith("val/")}
        if self.enabled and values and not trainer.sanity_checking:
            shown = ", ".join(f"{name} {value:.4f}" for name, value in values.items())
            print(f"validation after step {trainer.global_step}: {shown}", flush=True)

    def _print(self, trainer: Trainer, seconds: float) -> None:
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
