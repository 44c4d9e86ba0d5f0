"""Trains and evaluates what a table needs; finished work is not repeated, interrupted trainings go on."""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from benchmarks.contenders import takes_encoder
from benchmarks.tables.spec import System, Targets
from crossjem_pl.cli.training import RankingCLI
from crossjem_pl.data.module import RankingDataModule
from crossjem_pl.evaluation.metrics import Evaluation, evaluate_run
from crossjem_pl.evaluation.runs import read_run_folder
from crossjem_pl.rankers.base import Ranker
from crossjem_pl.rankers.encoders import PACKAGED
from crossjem_pl.training.module import RankingModule

DEFAULT_ENCODER = "distilbert/distilbert-base-uncased"
"""The encoder of the papers' students."""
TEACHER_ENCODER = "google-bert/bert-base-uncased"
"""The encoder of the papers' teachers on the public datasets."""

EXPERIMENTS = Path(os.path.relpath(Path(__file__).parents[2] / "experiments"))
SMOKE = Path(os.path.relpath(Path(__file__).with_name("smoke.yaml")))
PREPARE = {
    "msmarco": "crossjem prepare msmarco-titles --out {root}",
    "sodq": "crossjem prepare sodq --linkso FOLDER --out {root}",
}
STAGES = ("train", "val", "test")
_RANKER = "model.ranker.init_args"


def add_run_options(options: argparse.ArgumentParser, runs: str) -> None:
    """The options that a `Runner` is made from; `--options` must come last on the command line."""
    add = options.add_argument
    add("--data", type=Path, help="folder of the lists, or of the datasets' folders")
    add("--encoder", help=f"in place of {DEFAULT_ENCODER}; a smoke run takes {PACKAGED}")
    add("--teacher-encoder", help=f"default {TEACHER_ENCODER}, or --encoder if that is a local one")
    add("--scores", type=Path, help="teacher scores that are there already")
    add("--seeds", type=int, nargs="+", default=[0])
    add(
        "--several",
        nargs="+",
        metavar="SYSTEM",
        help="only these rows take all the seeds, the others the first",
    )
    add("--only", nargs="+", metavar="SYSTEM", help="only these rows")
    add("--encoder-options", nargs="+", default=[], metavar="KEY=VALUE")
    add("--runs", type=Path, default=Path(runs))
    add(
        "--options",
        nargs=argparse.REMAINDER,
        default=[],
        help="options of every run, such as -c FILE; comes last",
    )


class OneParser(RankingCLI):
    """Reads one configuration after the other. All have one parser, which takes longer to make than to use."""

    def setup_parser(self, *arguments: Any) -> None:
        if not hasattr(OneParser, "shared"):
            super().setup_parser(*arguments)
            OneParser.shared = self.parser
        self.parser = OneParser.shared


class _Parsed(OneParser):
    """Reads a configuration and builds nothing."""

    def instantiate_classes(self) -> None:
        pass


@dataclass
class Runner:
    """Runs the training commands of the systems on one dataset, `experiments/<name>.yaml`.

    Args:
        name: of the dataset.
        args: the options of `add_run_options`, and `smoke`: few simulated lists in place of the data.

    Raises:
        ValueError: if there is no such experiment.
    """

    name: str
    args: argparse.Namespace
    commands: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._path = EXPERIMENTS / f"{self.name}.yaml"
        if not self._path.is_file():
            there = sorted(file.stem for file in EXPERIMENTS.glob("*.yaml"))
            raise ValueError(f"no dataset {self.name!r}; there are {', '.join(there)}")
        config = _read(self._path)
        sources: dict[str, Any] = config["data"]
        self.data = Path(sources.get("root", "."))
        if self.args.data is not None:
            inside = self.args.data / self.data.name
            self.data = inside if inside.is_dir() else self.args.data
        self.files = {stage: sources[stage] for stage in STAGES if isinstance(sources.get(stage), str)}
        self.split = "val" if self.args.smoke else ("test" if "test" in sources else "val")
        self.taught = "train" in self.files and not self.args.smoke
        """Whether students learn from the scores of a teacher that has to be trained."""
        self.root: Path = self.args.runs / (f"{self.name}-smoke" if self.args.smoke else self.name)
        self.encoder: str | None = self.args.encoder or (PACKAGED if self.args.smoke else None)
        given = dict(pair.split("=", 1) for pair in self.args.encoder_options)
        self.encoder_options = given or (
            {"dropout": "0", "freeze_embeddings": "true"} if self.args.smoke else {}
        )

    @property
    def scores(self) -> Path:
        """The teacher's scores of the training lists."""
        return self.args.scores or self.root / "scores.parquet"

    def describe(self) -> str:
        """Dataset, split, encoder and teacher in a sentence."""
        where = "simulated" if self.args.smoke or not self.files else str(self.data)
        lines = [f"{self.name}, {self.split} lists ({where}); encoder {self.encoder or DEFAULT_ENCODER}."]
        if "train" in self.files and self.args.scores is None:
            smoke = "; a smoke run takes the simulator's scores" * self.args.smoke
            lines.append(f"Teacher: monoBERT on {self.teacher_encoder}, trained on the labels{smoke}.")
        elif self.args.scores is None:
            lines.append("The teacher's scores are the simulator's.")
        return " ".join(lines)

    @property
    def teacher_encoder(self) -> str:
        """That of the papers, unless another was given or the students' is a local one: then there may be no hub."""
        local = (
            self.args.encoder
            if self.args.encoder == PACKAGED or Path(self.args.encoder or "/dev/null").is_dir()
            else None
        )
        return str(self.args.teacher_encoder or (self.args.encoder and local) or TEACHER_ENCODER)

    def check_data(self) -> None:
        """Raises:
        FileNotFoundError: naming the file, and the command that makes it.
        """
        for stage, file in ({} if self.args.smoke else self.files).items():
            if not (self.data / file).exists():
                how = PREPARE.get(self.name, "crossjem convert SOURCE {root}/" + file).format(root=self.data)
                raise FileNotFoundError(
                    f"no {self.data / file} for the {stage} lists of {self.name}: make it with `{how}` "
                    "(docs/data.md), or give DATA=FOLDER"
                )

    def build(self, system: System, *options: str, with_scores: bool = False) -> RankingCLI:
        """Trainer, model and data of a system, nothing run; `with_scores`: training lists get the teacher's."""
        arguments = [*self.arguments(system, with_scores=with_scores), *options]
        return RankingCLI(
            RankingModule, RankingDataModule, run=False, args=arguments, save_config_callback=None
        )

    def config(self, system: System, targets: Targets = "scores") -> Any:
        """The whole configuration of a system's training, nothing built."""
        arguments = self.arguments(system, targets=targets)
        return _Parsed(
            RankingModule, RankingDataModule, run=False, args=arguments, save_config_callback=None
        ).config

    def ranker(self, system: System) -> Ranker:
        """A system's ranker with a fresh head: enough to time it."""
        return self.build(system).model.ranker

    def folder(
        self, system: System, seed: int, targets: Targets = "scores", model: Path | None = None
    ) -> Path:
        """The run's folder: the overlays' names, what distinguishes runs with equal ones as a hash, the seed."""
        name = "+".join(Path(file).stem for file in system.config) or "default"
        arguments = self.arguments(system, seed, targets, model)
        digest = hashlib.sha256(" ".join(arguments).encode()).hexdigest()[:8]
        return self.root / f"{name}-{digest}" / f"seed{seed}"

    def run(self, system: System, seed: int, targets: Targets = "scores", model: Path | None = None) -> Path:
        """Trains (or only evaluates) a system; the folder with its `<split>.trec`.

        Args:
            system: what to run.
            seed: of the weights, the order and the draws.
            targets: what training reads.
            model: model folder to evaluate, for a system that is another one's model with other options.

        Raises:
            RuntimeError: if a command fails; its own message is on the screen.
        """
        folder = self.folder(system, seed, targets, model)
        if (folder / ".done").exists():
            return folder
        arguments = self.arguments(system, seed, targets, model)
        where = ["--trainer.default_root_dir", str(folder)]
        evaluate = "validate" if self.split == "val" else "test"
        if system.learns:
            self._fit(folder, *arguments)
            if not (folder / f"{self.split}.trec").exists():  # test lists, or stopped short of a validation
                self.command(evaluate, *arguments, *where, "--model.weights", str(folder / "model"))
        else:
            self.command(evaluate, *arguments, *where)
        (folder / ".done").touch()
        return folder

    def teach(self) -> None:
        """Trains the teacher, monoBERT on the labels, and writes its scores of the training lists, if wanted."""
        if not self.taught or self.args.scores is not None:
            return
        teacher = System(
            "teacher", ("rankers/monobert.yaml", "losses/bce.yaml"), encoder=self.teacher_encoder
        )
        folder = self.root / "teacher"
        self._fit(folder, *self.arguments(teacher, targets="labels", encoder=self.teacher_encoder))
        if not self.scores.exists():
            lists = self.data / self.files["train"]
            self.command("teach", str(folder / "model"), str(lists), "--out", str(self.scores))

    def command(self, *arguments: str) -> None:
        """Runs one `crossjem` command and remembers it."""
        line = "crossjem " + " ".join(arguments)
        self.commands.append(line)
        print(f"$ {line}", flush=True)
        if subprocess.run([sys.executable, "-m", "crossjem_pl", *arguments], check=False).returncode:
            raise RuntimeError(f"this command failed: {line}")

    def evaluations(self, folders: Sequence[Path], metrics: Sequence[str]) -> list[Evaluation]:
        """The metrics of run folders, one per seed.

        Raises:
            ValueError: if a folder has no judgements.
        """
        found = []
        for folder in folders:
            stored = read_run_folder(folder, self.split)
            if not stored.scores or stored.qrels is None:
                raise ValueError(
                    f"{folder} has no {self.split}.trec with {self.split}.qrels: have the lists whole-numbered labels?"
                )
            found.append(evaluate_run(stored.scores, stored.qrels, list(metrics)))
        return found

    def per_query(self, folders: Sequence[Path], metrics: Sequence[str]) -> list[pd.DataFrame]:
        """One frame per seed, index query, columns metrics."""
        return [evaluation.per_query for evaluation in self.evaluations(folders, metrics)]

    def arguments(
        self,
        system: System,
        seed: int = 0,
        targets: Targets = "scores",
        model: Path | None = None,
        *,
        with_scores: bool = True,
        encoder: str | None = None,
    ) -> list[str]:
        """The options of a system's commands; `encoder`: in place of every other."""
        targets = system.targets or targets
        configs = [EXPERIMENTS / file for file in (*system.config, *getattr(system, f"on_{targets}"))]
        files = [self._path, *configs, *([SMOKE] if self.args.smoke else [])]
        out = [word for file in files for word in ("-c", str(file))]
        if not self.args.smoke:
            out += ["--data.root", str(self.data)]
        rankers = [_read(file).get("model", {}).get("ranker", {}) for file in (self._path, *configs)]
        classes = [ranker["class_path"] for ranker in rankers if "class_path" in ranker]
        if takes_encoder(classes[-1]):
            out += self._encoder(system, encoder)
        if targets == "scores" and with_scores and self.taught and model is None and system.learns:
            out += ["--data.teacher_scores", os.path.relpath(self.scores, self.data)]
        options = {"model.targets": targets} if system.learns else {}
        for key, value in {**options, **system.options}.items():
            out += [f"--{key}", str(value)]
        out += ["--seed_everything", str(seed), *self.args.options]
        weights = model or system.published
        return [*out, *(["--model.weights", str(weights)] if weights else [])]

    def _encoder(self, system: System, encoder: str | None) -> list[str]:
        chosen: dict[str, Any] = {"encoder": encoder or system.published or system.encoder or DEFAULT_ENCODER}
        if encoder is None and self.encoder is not None and not system.hub_model:
            chosen = {"encoder": self.encoder}
            if system.layers is not None and not self.args.smoke:
                chosen["layers"] = system.layers
        given = dict(self.encoder_options)
        if system.own_attention:
            given.pop("attn_implementation", None)
        return [
            word for key, value in {**chosen, **given}.items() for word in (f"--{_RANKER}.{key}", str(value))
        ]

    def _fit(self, folder: Path, *arguments: str) -> None:
        """Trains into the folder, from its last checkpoint if there is one, unless it has been done."""
        if (folder / ".trained").exists():
            return
        resume = ["--ckpt_path", "last"] if (folder / "checkpoints" / "last.ckpt").exists() else []
        self.command("fit", *arguments, "--trainer.default_root_dir", str(folder), *resume)
        (folder / ".trained").touch()


def _read(file: Path) -> Mapping[str, Any]:
    content: Mapping[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return content
