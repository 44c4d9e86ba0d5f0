"""Reads a run folder that training wrote, or a bare TREC run file."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from crossjem_pl.data.formats import read_lists
from crossjem_pl.data.rows import read_rows
from crossjem_pl.data.trec import read_qrels, read_run
from crossjem_pl.files import read_lines, read_yaml
from crossjem_pl.lists import shown
from crossjem_pl.rankers.encoders import read_json

__all__ = [
    "LearningCurve",
    "Run",
    "model_of",
    "read_learning_curve",
    "read_run_folder",
    "read_texts_of",
    "with_names",
]

Texts = tuple[dict[str, str], dict[str, dict[str, str]]]
"""Query id -> text, and query id -> item id -> text."""


@dataclass(frozen=True)
class LearningCurve:
    """The course of a training: values against steps (index, int64).

    Args:
        loss: of the training steps that were logged; None where none was.
        metrics: monitored metric -> its validations; the names are without "val/".
        files: the files that it was put together from, oldest first.
    """

    loss: pd.Series | None
    metrics: dict[str, pd.Series]
    files: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """A run as far as its folder tells; {} and None stand for what it lacks. Training files are read when asked for.

    Args:
        path: of the folder or the TREC run file.
        split: of a folder; None for a file.
        scores: query id -> item id -> score.
        qrels: of the folder.
        lists: the file with the texts of the split.
        summary: of `summary.json`.
        model: the first digits of the hash of the weights that wrote the scores, from the run's last column.
        name: unique among the runs that are compared, see `with_names`.
    """

    path: Path
    split: str | None
    scores: dict[str, dict[str, float]]
    qrels: Mapping[str, Mapping[str, float]] | None = None
    lists: Path | None = None
    summary: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    name: str = ""

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of `config.yaml`."""
        path = self.path / "config.yaml"
        value = read_yaml(path) if path.exists() else {}
        if not isinstance(value, dict | None):
            raise ValueError(f"{path}: expected an object, got {type(value).__name__}")
        return value or {}

    @cached_property
    def config_text(self) -> str | None:
        """The text of `config.yaml`."""
        path = self.path / "config.yaml"
        return path.read_text(encoding="utf-8") if path.is_file() else None

    @cached_property
    def curve(self) -> LearningCurve | None:
        """Losses and validation metrics of the training."""
        return read_learning_curve(self.path)

    @property
    def label(self) -> str:
        """The folder's name, or the file's without its endings."""
        if self.split is not None:
            return self.path.resolve().name
        return self.path.name.removesuffix(".gz").rsplit(".", 1)[0]

    @property
    def loss(self) -> str | None:
        """Class of the loss, without its module; None where the configuration does not say."""
        path = self.setting("model", "loss", "class_path")
        return path.rpartition(".")[2] if isinstance(path, str) else None

    @property
    def trained(self) -> bool:
        """Whether the run was trained in this folder and not only evaluated."""
        return self.curve is not None or "train_seconds" in self.summary

    @property
    def program(self) -> str:
        """Which of `lightning fit`, `validate` and `test` wrote the configuration; only the last two are verbose."""
        return "fit" if "verbose" not in self.config else "validate" if self.split == "val" else "test"

    @property
    def method(self) -> str:
        """What runs of one method share and seeds do not change: ranker and configuration; else the path."""
        if not self.config:
            return str(self.path)
        config = {
            key: dict(value) if isinstance(value, dict) else value for key, value in self.config.items()
        }
        for part, name in (("data", "seed"), ("trainer", "default_root_dir"), ("checkpoint", "dirpath")):
            if isinstance(config.get(part), dict):
                config[part].pop(name, None)
        config.pop("seed_everything", None)
        return json.dumps([self.summary.get("ranker"), config], sort_keys=True, default=str)

    def setting(self, *keys: str) -> Any:
        """The value of the configuration under nested keys, None where one is absent."""
        value: Any = self.config
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value


def read_run_folder(path: str | Path, split: str) -> Run:
    """Reads what there is of a run folder, or a TREC run file.

    Args:
        path: folder or file.
        split: which run of a folder: `<split>.trec`, `<split>.qrels`, `<split>_lists.parquet`.

    Raises:
        FileNotFoundError: if there is no such folder or file.
        ValueError: naming the file, for one that is there and malformed.
    """
    path = Path(path)
    if path.is_file():
        return Run(path, None, read_run(path), model=model_of(path))
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: there is no such run folder or run file")
    run, qrels, lists = path / f"{split}.trec", path / f"{split}.qrels", path / f"{split}_lists.parquet"
    return Run(
        path,
        split,
        read_run(run) if run.is_file() else {},
        read_qrels(qrels) if qrels.is_file() else _grades(lists) if lists.is_file() else None,
        lists if lists.is_file() else None,
        _summary(path / "summary.json"),
        model_of(run) if run.is_file() else None,
    )


def _grades(lists: Path) -> dict[str, dict[str, float]]:
    """The labels of lists whose grades are fractions, for which there is no file of qrels."""
    labelled = (
        (one.query_id, one.item_ids, one.labels) for one in read_lists(lists, "canonical") if one.labels
    )
    return {query: dict(zip(items, labels, strict=True)) for query, items, labels in labelled}


def with_names(runs: Sequence[Run]) -> list[Run]:
    """The runs under unique names: their own or the ranker's, with the folder's where several share it, or the path.

    Raises:
        ValueError: if a run is given twice.
    """
    base = [run.name or str(run.summary.get("ranker") or run.label) for run in runs]
    names = base
    for details in ([run.label for run in runs], [str(run.path) for run in runs]):
        names = [
            f"{base[i]} ({details[i]})" if names.count(name) > 1 else name for i, name in enumerate(names)
        ]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"the run {twice!r} is given twice")
    return [replace(run, name=name) for run, name in zip(runs, names, strict=True)]


def read_texts_of(runs: Sequence[Run], queries: Collection[str]) -> Texts:
    """Texts of some queries and of their items, from the first run that holds the query's list.

    Queries that no run has texts of are absent.

    Raises:
        ValueError: naming the file and line, for a malformed list.
    """
    query_texts: dict[str, str] = {}
    item_texts: dict[str, dict[str, str]] = {}
    for path in dict.fromkeys(run.lists for run in runs if run.lists is not None):
        wanted = set(queries) - set(query_texts)
        if not wanted:
            break
        for ranking_list in read_lists(path, "canonical", label_column=None, score_column=None):
            if ranking_list.query_id in wanted:
                query_texts[ranking_list.query_id] = ranking_list.query
                items = zip(ranking_list.item_ids, ranking_list.items, strict=True)
                item_texts[ranking_list.query_id] = dict(items)
    return query_texts, item_texts


def read_learning_curve(folder: Path) -> LearningCurve | None:
    """Reads `metrics-1.csv`, `metrics-2.csv`, ... and `metrics.csv`; None where there is none of them.

    A resumed run starts from a checkpoint, so its file may repeat steps of the file before: the later file counts
    from its first step on.

    Raises:
        ValueError: naming the file and the column, for a file without steps or with a value that is no number.
    """
    earlier = (path for path in folder.glob("metrics-*.csv") if path.stem[8:].isdecimal())
    paths = sorted(earlier, key=lambda path: int(path.stem[8:]))
    paths += [folder / "metrics.csv"] if (folder / "metrics.csv").is_file() else []
    frames = {path.name: frame for path in paths if not (frame := _read_metrics(path)).empty}
    if not frames:
        return None
    whole = pd.DataFrame()
    for frame in frames.values():
        kept = whole if whole.empty else whole[whole["step"] < frame["step"].min()]
        whole = pd.concat([kept, frame], ignore_index=True)
    curves: dict[str, pd.Series] = {}
    for column in whole.columns.drop("step"):
        rows = whole.dropna(subset=[column]).sort_values("step", kind="stable")
        if len(rows):
            curves[column] = rows.set_index(rows["step"].astype(int))[column].astype(float)
    loss = curves.pop("train/loss", None)
    metrics = {name.removeprefix("val/"): curve for name, curve in curves.items()}
    return LearningCurve(loss, metrics, tuple(frames))


def _read_metrics(path: Path) -> pd.DataFrame:
    """The rows with a training loss or a validation metric: `step` and those columns."""
    found: list[dict[str, float]] = []
    columns: list[str] = []
    for row in read_rows(path, empty=True) if path.stat().st_size else ():
        if "step" not in row.columns:
            raise ValueError(f"{path} has no column 'step'")
        columns = [name for name in row.columns if name == "train/loss" or name.startswith("val/")]
        values = {name: row.scalar(name) for name in ("step", *columns) if row.has(name)}
        found += [values] if "step" in values and len(values) > 1 else []
    return pd.DataFrame(found, columns=["step", *columns])


def model_of(run: Path) -> str | None:
    """The hash of the model in the tag of a run's first line, None for a tag of another form."""
    _, line = next(iter(read_lines(run)), (1, ""))
    found = re.search(r"-([0-9a-f]{12})$", line.strip())
    return found and found[1]


def _summary(path: Path) -> dict[str, Any]:
    summary = read_json(path)
    for key in ("parameters", "trained_lists", "train_seconds", "relevant_from"):
        value = summary.get(key)
        number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
        if value is not None and not number:
            raise ValueError(f"{path}, field {key!r}: expected a number of at least 0, got {shown(value)}")
    return summary
