"""`fit`, `validate`, `test` and `predict`: Lightning's CLI over our module and data module."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from lightning import Trainer
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint, RichProgressBar
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import CSVLogger

from crossjem_pl.data.module import RankingDataModule
from crossjem_pl.training.module import RankingModule
from crossjem_pl.training.random_state import RandomState
from crossjem_pl.training.run_folder import RunFolder, set_aside_metrics

__all__ = ["SUBCOMMANDS", "run_training"]

SUBCOMMANDS = ("fit", "validate", "test", "predict")


class _Parser(LightningArgumentParser):
    """Ends a mistake in one message: the generated usage alone would fill several screens."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        print(f"error: {message}\nAll options: {self.prog.replace(' [options]', '')} --help", file=sys.stderr)
        raise SystemExit(2)


class RankingCLI(LightningCLI):
    """LightningCLI whose run folder is `trainer.default_root_dir`: config, metrics, checkpoints, model and runs."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_lightning_class_args(RunFolder, "run_folder")
        parser.add_lightning_class_args(RandomState, "random_state")
        parser.add_lightning_class_args(ModelCheckpoint, "checkpoint")
        parser.set_defaults({"trainer.log_every_n_steps": 10})
        parser.set_defaults({"checkpoint.every_n_train_steps": 250, "checkpoint.save_last": True})

    def before_instantiate_classes(self) -> None:
        config = self._chosen(self.config)
        root = Path(config.trainer.default_root_dir or "runs/default")
        config.trainer.default_root_dir = str(root)
        config.checkpoint.dirpath = config.checkpoint.dirpath or str(root / "checkpoints")
        # our loader splits lists by rank itself, and evaluation counts each query once
        config.trainer.use_distributed_sampler = False
        if int(os.environ.get("LOCAL_RANK", "0")) == 0 and self.subcommand == "fit":
            set_aside_metrics(root)

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        chosen = self._chosen(self.config_init).trainer
        callbacks = list(chosen.callbacks or [])
        if chosen.enable_progress_bar is not False:
            callbacks.append(RichProgressBar())
        if chosen.logger in (None, True):
            fitting = self.subcommand == "fit"
            kwargs["logger"] = CSVLogger(chosen.default_root_dir, name="", version="") if fitting else False
        if kwargs.get("logger", chosen.logger):
            callbacks.append(LearningRateMonitor("step"))
        return super().instantiate_trainer(callbacks=callbacks, **kwargs)

    def _chosen(self, config: Any) -> Any:
        """The part of the configuration that belongs to the subcommand."""
        return config if self.subcommand is None else config[self.subcommand]


def run_training(argv: Sequence[str]) -> None:
    """Runs one of `SUBCOMMANDS` with the arguments of the command line."""
    RankingCLI(
        RankingModule,
        RankingDataModule,
        seed_everything_default=0,
        save_config_kwargs={"overwrite": True},
        parser_class=_Parser,
        parser_kwargs={"prog": "lightning"},
        args=list(argv),
    )
