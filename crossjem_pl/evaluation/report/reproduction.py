"""The section that says with what the runs were made."""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

import crossjem_pl
from crossjem_pl.evaluation import wording
from crossjem_pl.evaluation.report.contents import (
    Block,
    Folded,
    Missing,
    Paragraph,
    Preformatted,
    Section,
    Table,
)
from crossjem_pl.evaluation.report.folders import RunRecord, setting

__all__ = ["reproduction_section"]

_PACKAGES = ("torch", "lightning", "transformers", "ir-measures", "numpy")
_LIGHTNING = re.compile(r"^# lightning\.pytorch==(\S+)")


def reproduction_section(records: Sequence[RunRecord]) -> Section:
    """Machine, seed, versions, data and configuration of every run, closed until they are asked for."""
    folders = [record for record in records if record.path.is_dir()]
    blocks: list[Block] = [
        Missing(f"{record.name} is a bare run file: nothing is known of how it was made.")
        for record in records
        if record not in folders
    ]
    for record in folders:
        lacking = [
            name
            for name, there in (
                ("config.yaml", record.config_text is not None),
                ("summary.json", bool(record.summary)),
            )
            if not there
        ]
        if lacking:
            blocks.append(Missing(f"{record.name}: {' and '.join(lacking)} missing in {record.path}."))
    if folders:
        blocks.append(Folded("Settings, machine, versions and data", (_table(folders), Paragraph(_writer()))))
    for record in folders:
        if record.config_text is not None:
            title = f"Configuration of {record.name}"
            blocks.append(Folded(title, (*_again(record), Preformatted(record.config_text.rstrip(), "yaml"))))
    return Section("Reproduction", tuple(blocks))


def _again(record: RunRecord) -> list[Block]:
    """How to repeat the run with its configuration."""
    program = "fit"
    blocks: list[Block] = []
    if record.evaluation_config:
        split = None if record.stored is None else record.stored.split
        program = "validate" if split == "val" else "test"
        if record.trained:
            blocks.append(
                Missing(
                    "This file was written by a later evaluation in the same folder, not by the training: loss, "
                    "targets and optimiser may be those of that command."
                )
            )
    command = f"lightning {program} -c {shlex.quote(str(record.path / 'config.yaml'))}"
    again = f"{command} --trainer.default_root_dir {shlex.quote(str(record.path) + '-again')}"
    text = "To run it again, where the data lies at the same paths:"
    return [*blocks, Paragraph(text), Preformatted(again, "text")]


def _table(records: Sequence[RunRecord]) -> Table:
    rows = []
    for label, read in _ROWS:
        values = [read(record) for record in records]
        if any(value is not None for value in values):
            rows.append((label, *("–" if value is None else str(value) for value in values)))
    columns = ("", *(record.name for record in records))
    return Table(columns, tuple(rows), words=tuple(range(1, len(columns))))


def _writer() -> str:
    found = []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return (
        f"This report was written by crossjem_pl {crossjem_pl.__version__} on Python {platform.python_version()} with "
        f"{', '.join(found)}; the runs may have been made with other versions, of which the table has those that "
        "their folders tell."
    )


def _summary(key: str) -> Callable[[RunRecord], Any]:
    return lambda record: record.summary.get(key)


def _config(*keys: str) -> Callable[[RunRecord], Any]:
    return lambda record: setting(record.config, *keys)


def _seconds(record: RunRecord) -> str | None:
    seconds = record.summary.get("train_seconds")
    return wording.training_time(seconds) if isinstance(seconds, int | float) else None


def _count(key: str) -> Callable[[RunRecord], str | None]:
    def read(record: RunRecord) -> str | None:
        value = record.summary.get(key)
        return f"{value:,}" if isinstance(value, int) else None

    return read


def _seed(record: RunRecord) -> Any:
    seed = record.summary.get("seed")
    return seed if seed is not None else setting(record.config, "seed_everything")


def _lightning(record: RunRecord) -> str | None:
    found = _LIGHTNING.match(record.config_text or "")
    return None if found is None else found.group(1)


_ROWS: tuple[tuple[str, Callable[[RunRecord], Any]], ...] = (
    ("folder", lambda record: record.path),
    ("ranker", _summary("ranker")),
    ("encoder", _config("model", "ranker", "init_args", "encoder")),
    ("started from", _config("model", "weights")),
    ("loss", lambda record: record.loss),
    ("targets", _config("model", "targets")),
    ("parameters", _count("parameters")),
    ("seed", _seed),
    ("trained lists", _count("trained_lists")),
    ("training time", _seconds),
    ("machine", _summary("machine")),
    ("precision", _summary("precision")),
    ("processes", _summary("processes")),
    ("data.root", _config("data", "root")),
    ("data.train", _config("data", "train")),
    ("data.val", _config("data", "val")),
    ("data.test", _config("data", "test")),
    ("data.teacher_scores", _config("data", "teacher_scores")),
    ("crossjem_pl", lambda record: setting(record.model, "crossjem_pl", "version")),
    ("lightning", _lightning),
    ("transformers", lambda record: setting(record.model, "transformers_version")),
)
