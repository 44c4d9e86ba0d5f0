"""Trains and evaluates what a table needs; finished work is not repeated, interrupted trainings go on."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchmarks.tables.spec import System
from crossjem_pl.cli.training import RankingCLI
from crossjem_pl.data.module import RankingDataModule
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Ranker
from crossjem_pl.training.module import RankingModule

__all__ = ["DEFAULT_ENCODER", "Dataset", "Runner", "read_dataset"]

DEFAULT_ENCODER = "distilbert/distilbert-base-uncased"
"""The encoder of the paper's tables."""

EXPERIMENTS = Path(os.path.relpath(Path(__file__).parents[2] / "experiments"))
SMOKE = Path(os.path.relpath(Path(__file__).with_name("smoke.yaml")))
PREPARE = {
    "msmarco": "crossjem prepare msmarco-titles --out {root}",
    "sodq": "crossjem prepare sodq --linkso FOLDER --out {root}",
}


@dataclass(frozen=True)
class Dataset:
    """`experiments/<name>.yaml` as far as the runs need it.

    Args:
        name: of the file.
        root: folder of its lists.
        files: stage -> file or folder under `root`; stages with another source are absent.
        split: the stage that figures are taken on: "test" where the dataset has one, else "val".
        wants_teacher: whether students learn from scores that a teacher has to be trained for.
    """

    name: str
    root: Path
    files: dict[str, str]
    split: str
    wants_teacher: bool


def read_dataset(name: str, data: Path | None) -> Dataset:
    """The dataset with its folder replaced by `data`, or by the folder of its name inside `data`.

    Raises:
        ValueError: if there is no such experiment.
    """
    path = EXPERIMENTS / f"{name}.yaml"
    if not path.is_file():
        there = sorted(file.stem for file in EXPERIMENTS.glob("*.yaml"))
        raise ValueError(f"no dataset {name!r}; there are {', '.join(there)}")
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    sources: dict[str, Any] = config["data"]
    root = Path(sources.get("root", "."))
    if data is not None:
        root = data / root.name if (data / root.name).is_dir() else data
    files = {stage: value for stage, value in sources.items() if stage in STAGES and isinstance(value, str)}
    split = "test" if "test" in sources else "val"
    return Dataset(name, root, files, split, wants_teacher="train" in files)


STAGES = ("train", "val", "test")


@dataclass
class Runner:
    """Runs the training commands of the systems.

    Args:
        dataset: what they are trained and evaluated on.
        encoder: for every ranker that has one; None takes the systems' own, and `DEFAULT_ENCODER` where they name
            none.
        teacher_encoder: of the teacher; None for the same.
        scores: teacher scores that are there already; None trains a teacher where the dataset wants one.
        overlays: further configuration files, for every run.
        encoder_options: `key=value` for rankers that have an encoder: dropout, attn_implementation, ...
        options: further `--key value` of every run.
        runs: folder of all runs.
        smoke: few simulated lists in place of the data.
    """

    dataset: Dataset
    encoder: str | None
    teacher_encoder: str | None
    scores: Path | None
    overlays: Sequence[Path]
    encoder_options: Sequence[str]
    options: Sequence[str]
    runs: Path
    smoke: bool
    commands: list[str] = field(default_factory=list)

    @property
    def split(self) -> str:
        return "val" if self.smoke else self.dataset.split

    @property
    def root(self) -> Path:
        return self.runs / (f"{self.dataset.name}-smoke" if self.smoke else self.dataset.name)

    @property
    def shared_encoder(self) -> str:
        """The encoder of the rankers that have none of their own."""
        return self.encoder or DEFAULT_ENCODER

    def describe(self) -> str:
        """Dataset, split and where the lists are from."""
        where = "simulated" if self.smoke or not self.dataset.files else str(self.dataset.root)
        return f"{self.dataset.name}, {self.split} lists ({where})"

    def lists(self) -> list[RankingList]:
        """The lists of the split that figures are taken on."""
        return self.build(System(self.dataset.name)).datamodule.lists(self.split)

    def ranker(self, system: System) -> Ranker:
        """A system's ranker with fresh heads: enough to time it."""
        return self.build(system).model.ranker

    def build(self, system: System, *options: str, with_scores: bool = False) -> RankingCLI:
        """Trainer, model and data of a system, nothing run.

        Args:
            system: what to build.
            options: further `--key value`.
            with_scores: whether the training lists get the teacher's scores, if the system reads any.
        """
        arguments = [*self._arguments(system, 0, None, with_scores), *options]
        return RankingCLI(
            RankingModule, RankingDataModule, run=False, args=arguments, save_config_callback=None
        )

    def check_data(self) -> None:
        """Raises:
        FileNotFoundError: naming the file, and the command that makes it.
        """
        if self.smoke:
            return
        for stage, file in self.dataset.files.items():
            if not (self.dataset.root / file).exists():
                how = PREPARE.get(self.dataset.name, "crossjem convert SOURCE {root}/" + file)
                raise FileNotFoundError(
                    f"no {self.dataset.root / file} for the {stage} lists of {self.dataset.name}: make it with "
                    f"`{how.format(root=self.dataset.root)}` (docs/data.md), or give DATA=FOLDER"
                )

    def folder(self, system: System, seed: int, model: Path | None = None) -> Path:
        """The run's folder: the overlays' names, what distinguishes runs with equal ones as a hash, the seed."""
        name = "+".join(Path(file).stem for file in system.config) or "default"
        digest = hashlib.sha256(" ".join(self._arguments(system, seed, model)).encode()).hexdigest()[:8]
        return self.root / f"{name}-{digest}" / f"seed{seed}"

    def run(self, system: System, seed: int, model: Path | None = None) -> Path:
        """Trains (or only evaluates) a system; the folder with its `<split>.trec`.

        Args:
            system: what to run.
            seed: of the weights, the order and the draws.
            model: model folder to evaluate, for a system that is another one's model with other options.

        Raises:
            RuntimeError: if a command fails; its own message is on the screen.
        """
        folder = self.folder(system, seed, model)
        done = folder / ".done"
        if done.exists():
            return folder
        arguments = self._arguments(system, seed, model)
        where = ["--trainer.default_root_dir", str(folder)]
        if system.trained and model is None:
            resumed = (folder / "checkpoints" / "last.ckpt").exists() and not (folder / ".trained").exists()
            if not (folder / ".trained").exists():
                resume = ["--ckpt_path", "last"] if resumed else []
                self.command("fit", *arguments, *where, *resume)
                (folder / ".trained").touch()
            if not (folder / f"{self.split}.trec").exists():  # test lists, or stopped short of a validation
                evaluate = "validate" if self.split == "val" else "test"
                self.command(evaluate, *arguments, *where, "--model.weights", str(folder / "model"))
        else:
            self.command("validate" if self.split == "val" else "test", *arguments, *where)
        done.touch()
        return folder

    def command(self, *arguments: str) -> None:
        """Runs one `crossjem` command and remembers it."""
        line = "crossjem " + " ".join(arguments)
        self.commands.append(line)
        print(f"$ {line}", flush=True)
        if subprocess.run([sys.executable, "-m", "crossjem_pl", *arguments], check=False).returncode:
            raise RuntimeError(f"this command failed: {line}")

    def _arguments(
        self, system: System, seed: int, model: Path | None, with_scores: bool = True
    ) -> list[str]:
        out = ["-c", str(EXPERIMENTS / f"{self.dataset.name}.yaml")]
        configs = [EXPERIMENTS / file for file in system.config]
        for file in [*configs, *([SMOKE] if self.smoke else []), *self.overlays]:
            out += ["-c", str(file)]
        if not self.smoke:
            out += ["--data.root", str(self.dataset.root)]
        out += self._encoder(system, configs)
        taught = self.dataset.wants_teacher and not self.smoke and model is None
        if with_scores and taught and self._reads_scores(configs, system):
            out += ["--data.teacher_scores", os.path.relpath(self._scores(), self.dataset.root)]
        for key, value in system.options:
            out += [f"--{key}", value]
        out += ["--seed_everything", str(seed), "--data.seed", str(seed), *self.options]
        if model is not None:
            out += ["--model.weights", str(model)]
        return out

    def _encoder(self, system: System, configs: list[Path]) -> list[str]:
        """The options that choose the encoder of a ranker that has one."""
        dataset = EXPERIMENTS / f"{self.dataset.name}.yaml"
        rankers = [_ranker(file) for file in (dataset, *configs)]
        last: dict[str, Any] = next((ranker for ranker in reversed(rankers) if "class_path" in ranker), {})
        if "encoder" not in last.get("init_args", {}):
            return []
        chosen: dict[str, str | None] = {"encoder": system.encoder or DEFAULT_ENCODER}
        if self.encoder is not None and not system.needs_hub:
            chosen = {
                "encoder": self.encoder,
                "layers": None if system.layers is None else str(system.layers),
            }
        given: dict[str, str] = dict(pair.split("=", 1) for pair in self.encoder_options)
        if system.own_attention:
            given.pop("attn_implementation", None)
        return [*_ranker_options(chosen), *_ranker_options(given)]

    def _reads_scores(self, configs: list[Path], system: System) -> bool:
        files = [EXPERIMENTS / f"{self.dataset.name}.yaml", *configs]
        targets = [
            yaml.safe_load(file.read_text(encoding="utf-8")).get("model", {}).get("targets") for file in files
        ]
        given = [value for key, value in system.options if key == "model.targets"]
        return (
            next((value for value in reversed([*targets, *given]) if value is not None), "scores") == "scores"
        )

    def _scores(self) -> Path:
        return self.scores if self.scores is not None else self.root / "scores.parquet"

    def teach(self) -> None:
        """Trains the teacher, monoBERT on the labels, and writes its scores of the training lists, if wanted."""
        if self.smoke or self.scores is not None or not self.dataset.wants_teacher:
            return
        folder, out = self.root / "teacher", self._scores()
        if not (folder / ".trained").exists():
            encoder = self.teacher_encoder or self.encoder or DEFAULT_ENCODER
            given = dict(pair.split("=", 1) for pair in self.encoder_options)
            chosen = [*_ranker_options({"encoder": encoder}), *_ranker_options(given)]
            overlays = [f for file in self.overlays for f in ("-c", str(file))]
            dataset = ["-c", str(EXPERIMENTS / f"{self.dataset.name}.yaml")]
            teacher = [
                "-c",
                str(EXPERIMENTS / "rankers/monobert.yaml"),
                "-c",
                str(EXPERIMENTS / "losses/bce.yaml"),
            ]
            resume = ["--ckpt_path", "last"] if (folder / "checkpoints" / "last.ckpt").exists() else []
            self.command(
                "fit",
                *dataset,
                *teacher,
                *overlays,
                *("--data.root", str(self.dataset.root)),
                *chosen,
                *self.options,
                *("--trainer.default_root_dir", str(folder)),
                *resume,
            )
            (folder / ".trained").touch()
        if not out.exists():
            lists = self.dataset.root / self.dataset.files["train"]
            self.command("teach", str(folder / "model"), str(lists), "--out", str(out))


def _ranker(file: Path) -> dict[str, Any]:
    found = yaml.safe_load(file.read_text(encoding="utf-8")).get("model", {}).get("ranker", {})
    return dict(found)


def _ranker_options(values: Mapping[str, str | None]) -> list[str]:
    return [
        word
        for key, value in values.items()
        if value is not None
        for word in (f"--model.ranker.init_args.{key}", value)
    ]
