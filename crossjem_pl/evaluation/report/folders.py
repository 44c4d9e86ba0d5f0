"""What lies in the folders of the runs that a report is about, and what does not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from crossjem_pl.evaluation.report.curves import LearningCurve, read_learning_curve
from crossjem_pl.evaluation.run_folder import StoredRun, read_stored_run

__all__ = ["RunRecord", "named", "read_record", "setting"]


@dataclass(frozen=True)
class RunRecord:
    """A run as far as its folder tells.

    Args:
        path: of the folder or the TREC run file.
        name: in the report.
        stored: the scores; None where the folder has none of this split.
        no_scores: why `stored` is None, else "".
        curve: losses and validation metrics of the training; None where there is no `metrics.csv`.
        config: of `config.yaml`, {} where there is none.
        config_text: the file as it is; None where there is none.
        summary: of `summary.json`, {} where there is none.
        model: of `model/config.json`, {} where there is none.
    """

    path: Path
    name: str
    stored: StoredRun | None
    no_scores: str
    curve: LearningCurve | None
    config: Mapping[str, Any]
    config_text: str | None
    summary: Mapping[str, Any]
    model: Mapping[str, Any]

    @property
    def ranker(self) -> str | None:
        """The ranker's name, as `summary.json` has it."""
        name = self.summary.get("ranker")
        return name if isinstance(name, str) else None

    @property
    def loss(self) -> str | None:
        """Class of the loss, without its module; None where the configuration does not say."""
        path = setting(self.config, "model", "loss", "class_path")
        return path.rpartition(".")[2] if isinstance(path, str) else None

    @property
    def trained(self) -> bool:
        """Whether the run was trained in this folder and not only evaluated."""
        return self.curve is not None or "train_seconds" in self.summary

    @property
    def evaluation_config(self) -> bool:
        """Whether `config.yaml` was written by `validate` or `test`, the only ones with an option `verbose`."""
        return "verbose" in self.config

    @property
    def empty(self) -> bool:
        """Whether nothing of the run can be shown."""
        return self.stored is None and self.curve is None and not self.config and not self.summary


def read_record(path: str | Path, split: str) -> RunRecord:
    """Reads what there is of a run folder, or a TREC run file.

    Raises:
        FileNotFoundError: if there is no such folder or file.
        ValueError: naming the file, for one that is there and malformed.
    """
    path = Path(path)
    if path.is_file():
        label = path.name.removesuffix(".gz").rsplit(".", 1)[0]
        return RunRecord(path, label, read_stored_run(path, split), "", None, {}, None, {}, {})
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: there is no such run folder or run file")
    run = path / f"{split}.trec"
    stored = read_stored_run(path, split) if run.is_file() else None
    config = path / "config.yaml"
    text = config.read_text(encoding="utf-8") if config.is_file() else None
    return RunRecord(
        path,
        path.resolve().name,
        stored,
        "" if stored is not None else f"{run} is missing",
        read_learning_curve(path),
        {} if text is None else _mapping(config, _yaml(config, text)),
        text,
        _json(path / "summary.json"),
        _json(path / "model" / "config.json"),
    )


def named(records: Sequence[RunRecord], names: Mapping[Path, str]) -> list[RunRecord]:
    """The records under the names that `names` has for their paths; the others under their folders' names.

    Raises:
        ValueError: if a folder is given twice.
    """
    result: list[RunRecord] = []
    taken = set(names.values())
    for record in records:
        name = names.get(record.path)
        if name is None:
            name = str(record.path) if record.name in taken else record.name
            if name in taken:
                raise ValueError(f"the run {name!r} is given twice")
            taken.add(name)
        result.append(replace(record, name=name))
    return result


def setting(config: Mapping[str, Any], *keys: str) -> Any:
    """The value under nested keys, None where one is absent."""
    value: Any = config
    for key in keys:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def _yaml(path: Path, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not YAML: {error}") from error


def _json(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    try:
        return _mapping(path, json.loads(path.read_text(encoding="utf-8")))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not JSON: {error}") from error


def _mapping(path: Path, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected an object, got {type(value).__name__}")
    return value
