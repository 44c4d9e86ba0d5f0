"""`fit`, `validate`, `test` and `predict`: Lightning's CLI over our module and data module."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import torch
import yaml
from jsonargparse import Namespace, set_parsing_settings
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint, RichProgressBar
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins import CheckpointIO
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from crossjem_pl.data.module import RankingDataModule
from crossjem_pl.files import read_yaml, replacing
from crossjem_pl.process import quiet_libraries
from crossjem_pl.rankers.base import DEFAULT_PREFIXES, Ranker, allow_only
from crossjem_pl.training.callbacks import ProgressLines, RandomState, StopOnSignal, signal_exit_status
from crossjem_pl.training.module import RankingModule
from crossjem_pl.training.run_folder import (
    AtomicCheckpointIO,
    RunFolder,
    last_whole_checkpoint,
    locked,
    set_aside,
    written_files,
)

__all__ = ["RankingCLI", "configured_ranker", "experiment_files", "run_training"]

_PACKAGE = Path(__file__).parents[1]
_CONFIG = ("-c", "--config")
_ALLOW_CLASSES = "--allow-classes"
_LOADERS = (
    "torch.hub",
    "torch.load",
    "torch.serialization",
    "torch.package",
    "torch.jit",
    "torch.utils.cpp_extension",
)
"""Of what is allowed, what runs code that files or addresses hold."""
_NOT_ALLOWED = "Add the import path to import_path_allowlist in set_parsing_settings to allow it."
"""The end of jsonargparse's message."""


class _Parser(LightningArgumentParser):
    """Ends a mistake in one message: the generated usage alone would fill several screens."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        message = message.replace(_NOT_ALLOWED, f"If you trust it: {_ALLOW_CLASSES}=PREFIX")
        print(f"error: {message}\nAll options: {self.prog.replace(' [options]', '')} --help", file=sys.stderr)
        raise SystemExit(2)


class SaveRunConfig(SaveConfigCallback):
    """Writes `config.yaml` of a training so that `-c` reads it again; an evaluation writes it only if there is none."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        path = Path(trainer.default_root_dir) / "config.yaml"
        dry = bool(getattr(trainer, "fast_dev_run", False))
        if dry or not trainer.is_global_zero or (stage != "fit" and path.exists()):
            return
        written = yaml.safe_load(self.parser.dump(self.config, skip_none=False))
        written.pop("ckpt_path", None)  # what a run is, not where it went on
        if written["checkpoint"]["dirpath"] == str(path.parent / "checkpoints"):
            written["checkpoint"]["dirpath"] = None  # follows the run folder
        # the parser writes a source, which may also be given as a path, as the text of a Python object
        for name, value in vars(self.config.data).items():
            if isinstance(value, Namespace):
                written["data"][name] = value.as_dict()
        with replacing(path) as file:
            file.write(yaml.safe_dump(written, sort_keys=False).encode())


class RankingCLI(LightningCLI):
    """LightningCLI whose run folder is `trainer.default_root_dir`: config, metrics, checkpoints, model and runs."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        with ExitStack() as self._held:  # the lock of the folder, as long as the run lasts
            super().__init__(*arguments, **options)

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        known = ", ".join(DEFAULT_PREFIXES)
        parser.epilog = (
            f"{_ALLOW_CLASSES}[=PREFIX,...]: only import classes and metrics of {known} and these prefixes. "
            "--on ray [--address A] [--workers N] [--gpus-per-worker X] [--max-failures N]: in workers of a Ray "
            "cluster that sees the same files, joined at A or started here; all start again when one is lost"
        )
        parser.add_instantiator(self._ranker, Ranker)
        parser.add_lightning_class_args(RunFolder, "run_folder")
        parser.add_lightning_class_args(RandomState, "random_state")
        parser.add_lightning_class_args(ModelCheckpoint, "checkpoint")
        parser.set_defaults({"trainer.log_every_n_steps": 10})
        parser.set_defaults({"checkpoint.every_n_train_steps": 250, "checkpoint.save_last": True})

    def _ranker(self, cls: type[Ranker], *arguments: Any, **options: Any) -> Ranker:
        with torch.device("meta") if self._weights_come_from_the_first else nullcontext():
            return cls(*arguments, **options)

    def _parse_ckpt_path(self) -> None:
        """Lightning's reads the checkpoint for hyper-parameters; ours hold none."""

    def _add_instantiators(self) -> None:
        """Lightning's write the configuration out for hyper-parameters; ours hold none."""

    def before_instantiate_classes(self) -> None:
        config = self._chosen(self.config)
        root = Path(config.trainer.default_root_dir or "runs/default")
        config.trainer.default_root_dir = str(root)
        config.checkpoint.dirpath = config.checkpoint.dirpath or str(root / "checkpoints")
        # our loader splits lists by rank itself, and evaluation counts each query once
        config.trainer.use_distributed_sampler = False
        if self.subcommand is not None and config.get("ckpt_path") == "last":
            found = last_whole_checkpoint(Path(config.checkpoint.dirpath))
            config.ckpt_path = "last" if found is None else str(found)
        first = getattr(rank_zero_only, "rank", 0) == 0 and os.environ.get("NODE_RANK", "0") == "0"
        sharded = str(getattr(config.trainer.strategy, "class_path", "")).endswith(".ModelParallelStrategy")
        self._weights_come_from_the_first = sharded and not first
        if self._weights_come_from_the_first:
            config.model.weights = None
        writes = first and self.subcommand is not None and not config.trainer.fast_dev_run
        self._begins = writes and self.subcommand == "fit"
        if writes:
            self._held.enter_context(locked(root))

    def after_instantiate_classes(self) -> None:
        """Makes room for a training, now that no option and no missing file can end it before it begins."""
        if self._begins:
            self.datamodule.check_files()
            config = self._chosen(self.config)
            self._set_aside(config, Path(config.trainer.default_root_dir))

    def _set_aside(self, config: Any, root: Path) -> None:
        """Clears the folder for a training, unless that needs what an earlier one left there."""
        resumes = config.get("ckpt_path") not in (None, "last")
        left = set() if resumes else {path.resolve() for path in written_files(root)}
        for name, value in vars(config.as_flat()).items():
            path = Path(value).resolve() if isinstance(value, str) and name != "checkpoint.dirpath" else root
            if left & {path, *path.parents}:
                raise ValueError(
                    f"--{name} {value} is in the folder of this run, which begins anew: give another "
                    "--trainer.default_root_dir"
                )
        set_aside(root, resumes)

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        chosen = self._chosen(self.config_init).trainer
        callbacks = list(chosen.callbacks or [])
        if chosen.enable_progress_bar is not False:
            callbacks.append(RichProgressBar() if sys.stdout.isatty() else ProgressLines())
        callbacks.append(StopOnSignal())
        plugins, loggers = _several(chosen.plugins), _several(chosen.logger)
        kwargs["plugins"] = [*kwargs.get("plugins", ()), *plugins]
        if not any(isinstance(plugin, CheckpointIO) for plugin in plugins):
            kwargs["plugins"].append(AtomicCheckpointIO())
        if self.subcommand == "fit" and chosen.logger is not False:
            loggers.insert(0, CSVLogger(chosen.default_root_dir, name="", version=""))
        kwargs["logger"] = loggers or False
        if loggers:
            callbacks.append(LearningRateMonitor("step"))
        return super().instantiate_trainer(callbacks=callbacks, **kwargs)

    def _chosen(self, config: Any) -> Any:
        """The part of the configuration that belongs to the subcommand."""
        return config if self.subcommand is None else config[self.subcommand]


def _several(given: Any) -> list[Any]:
    """A list of what may be given alone, as several, or as a switch, which is none of them."""
    return [
        one for one in (given if isinstance(given, list) else [given]) if not isinstance(one, bool | None)
    ]


def configured_ranker(files: Sequence[str]) -> Ranker:
    """The ranker that a training with these configurations would start from."""
    arguments = experiment_files([word for file in files for word in ("--config", file)])
    options: dict[str, Any] = {"run": False, "save_config_callback": None, "parser_class": _Parser}
    ranker: Ranker = RankingCLI(RankingModule, RankingDataModule, args=arguments, **options).model.ranker
    return ranker


def run_training(argv: Sequence[str]) -> None:
    """Runs fit, validate, test or predict with the arguments of the command line, here or with `--on ray` on Ray.

    Raises:
        ImportError: without Ray, if it is asked for.
    """
    parser = argparse.ArgumentParser(prog=f"crossjem {argv[0]}", add_help=False, allow_abbrev=False)
    parser.add_argument("--on", choices=("local", "ray"), default="local")
    options, argv = parser.parse_known_args(argv)
    if options.on == "local":
        _train(argv, RankingCLI)
        return
    parser.add_argument("--address")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--gpus-per-worker", type=float, default=0.0)
    parser.add_argument("--max-failures", type=int, default=0)
    options, argv = parser.parse_known_args(argv, options)
    _on_ray(argv, options)


def _on_ray(argv: Sequence[str], options: argparse.Namespace) -> None:
    """Runs the same arguments in every worker of a cluster; all start again when one of them is lost."""
    from crossjem_pl.inference.score import ray_cluster

    folder = Path.cwd()

    def work() -> None:
        os.chdir(folder)
        lightning = import_module("ray.train.lightning")

        class OnRay(RankingCLI):
            def instantiate_trainer(self, **kwargs: Any) -> Trainer:
                if self._chosen(self.config_init).trainer.strategy in ("auto", "ddp"):
                    kwargs["strategy"] = lightning.RayDDPStrategy()
                return super().instantiate_trainer(plugins=[lightning.RayLightningEnvironment()], **kwargs)

        quiet_libraries()
        _train(argv, OnRay)

    resources = {"CPU": 1, "GPU": options.gpus_per_worker}
    with (
        ray_cluster(options.address, "training", "ray.train.torch", True) as (ray, torch_on_ray),
        TemporaryDirectory() as storage,  # for Ray's own notes: checkpoints are in the run folder
    ):
        workers = ray.train.ScalingConfig(
            num_workers=options.workers, use_gpu=options.gpus_per_worker > 0, resources_per_worker=resources
        )
        failures = ray.train.FailureConfig(max_failures=options.max_failures)
        run = ray.train.RunConfig(storage_path=storage, failure_config=failures)
        torch_on_ray.TorchTrainer(work, scaling_config=workers, run_config=run).fit()


def _train(argv: Sequence[str], cli: type[RankingCLI]) -> None:
    argv = _limit_classes(argv)

    class Chosen(cli):  # type: ignore[misc, valid-type]
        """Of one subcommand: the options of the others take as long to describe."""

        @staticmethod
        def subcommands() -> dict[str, set[str]]:
            return {argv[0]: LightningCLI.subcommands()[argv[0]]}

    with signal_exit_status():
        Chosen(
            RankingModule,
            RankingDataModule,
            seed_everything_default=0,
            save_config_callback=SaveRunConfig,
            auto_configure_optimizers=False,  # RankingModule does: --model.optimizer
            parser_class=_Parser,
            parser_kwargs={"prog": "lightning"},
            args=experiment_files(argv),
        )


def _limit_classes(argv: Sequence[str]) -> list[str]:
    """Takes `--allow-classes[=PREFIX,...]` out of the arguments and limits what configurations may import to it.

    It must hold before the first configuration is read, so it is no option of the parser.
    """
    given = [word for word in argv if word.partition("=")[0] == _ALLOW_CLASSES]
    if given:
        more = [prefix for word in given for prefix in word.partition("=")[2].split(",") if prefix]
        allow_only([*DEFAULT_PREFIXES, *more])
        # a dictionary may hold what it likes, so nothing in one is built
        set_parsing_settings(
            import_path_denylist=["*", *_LOADERS],
            import_path_allowlist=[*DEFAULT_PREFIXES, *more],
            instantiate_subclass_spec_in_any=False,
        )
    return [word for word in argv if word not in given]


def experiment_files(argv: Sequence[str]) -> list[str]:
    """The arguments, with the path of the file in place of each packaged experiment's name.

    `-c packaged:rankers/bm25`, `-c rankers/bm25` and `-c experiments/rankers/bm25.yaml` name one file; an existing
    file of that name comes before it, except with `packaged:`.

    Raises:
        ValueError: for a name without a file; lists the experiments.
    """
    out = list(argv)
    for index, argument in enumerate(argv):
        option, equals, value = argument.partition("=")
        if option in _CONFIG and equals:
            out[index] = f"{option}={_experiment(value)}"
        elif index and argv[index - 1] in _CONFIG:
            out[index] = _experiment(argument)
    return out


def _experiment(name: str) -> str:
    if Path(name).exists() and not Path(name).is_dir() and not name.startswith("packaged:"):
        read_yaml(Path(name))  # names the file, which the parser's message does not
        return name
    folder = _PACKAGE / "experiments"
    if not folder.is_dir():  # in a clone it is beside the package
        folder = _PACKAGE.parent / "experiments"
    short = name.removeprefix("packaged:").removeprefix("experiments/").removesuffix(".yaml")
    files = {path.relative_to(folder).with_suffix("").as_posix(): path for path in folder.rglob("*.yaml")}
    if short not in files:
        raise ValueError(
            f"no file {name}, and no experiment of that name; there are {', '.join(sorted(files))}"
        )
    return str(files[short])
