"""What a table consists of, read from `table<N>.yaml` beside this file."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

__all__ = ["TABLES", "Part", "System", "TableSpec", "read_system", "read_table"]

TABLES = sorted(int(path.stem.removeprefix("table")) for path in Path(__file__).parent.glob("table*.yaml"))
"""Numbers of the tables that have a description."""


@dataclass(frozen=True)
class System:
    """One row.

    Args:
        name: as printed.
        config: overlays under `experiments/`, in order.
        options: further `--key value` of the training command.
        paper: the paper's figures by column, in its units (per cent, milliseconds).
        encoder: hub id of an encoder of its own; None takes the one of the whole table.
        layers: how many layers of `ENCODER` stand for its own encoder where the user names one.
        trained: False evaluates the encoder as published.
        model_of: name of another system of the table whose model is evaluated with these options.
        own_attention: whether the ranker brings its attention, so that `attn_implementation` is not passed on.
        needs_hub: whether it cannot run on the packaged encoder (left out of smoke runs, which say so).
    """

    name: str
    config: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    paper: tuple[tuple[str, float], ...] = ()
    encoder: str | None = None
    layers: int | None = None
    trained: bool = True
    model_of: str | None = None
    own_attention: bool = False
    needs_hub: bool = False


@dataclass(frozen=True)
class Part:
    """One table on the page.

    Args:
        caption: what it shows.
        kind: what is measured, a key of `benchmarks.tables.parts.KINDS`.
        dataset: `experiments/<dataset>.yaml`.
        columns: metric names, as the paper has them.
        systems: the rows.
        baseline: the system that the others are compared with, if any.
        paper: the paper's rows where there are no systems (overlap).
        note: what a reader has to know.
    """

    caption: str
    kind: str
    dataset: str
    columns: tuple[str, ...] = ()
    systems: tuple[System, ...] = ()
    baseline: str | None = None
    paper: tuple[tuple[str, tuple[float, ...]], ...] = ()
    note: str = ""


@dataclass(frozen=True)
class TableSpec:
    number: int
    title: str
    parts: tuple[Part, ...]


def read_table(number: int) -> TableSpec:
    """The description of a table of the paper.

    Raises:
        ValueError: if there is no such table, or its file holds a field that is not known.
    """
    if number not in TABLES:
        raise ValueError(f"there is no table {number}; there are {', '.join(map(str, TABLES))}")
    path = Path(__file__).with_name(f"table{number}.yaml")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    parts = tuple(_part(part, path) for part in content["parts"])
    return TableSpec(number, content["title"], parts)


def _part(values: dict[str, Any], path: Path) -> Part:
    systems = tuple(read_system(system, path) for system in values.pop("systems", []))
    known = _known(Part, values, path)
    known["columns"] = tuple(known.get("columns", ()))
    known["paper"] = tuple((str(name), tuple(row)) for name, row in known.get("paper", {}).items())
    part = Part(**known, systems=systems)
    names = {system.name for system in systems}
    for name in (part.baseline, *(system.model_of for system in systems)):
        if name is not None and name not in names:
            raise ValueError(f"{path}: {name!r} is no system of {part.caption!r}")
    return part


def read_system(values: dict[str, Any], path: Path) -> System:
    """A row from its fields in a YAML file.

    Raises:
        ValueError: naming the file, if it holds a field that is not known.
    """
    known = _known(System, values, path)
    known["config"] = tuple(known.get("config", ()))
    known["options"] = tuple((key, str(value)) for key, value in known.get("options", {}).items())
    known["paper"] = tuple((key, float(value)) for key, value in known.get("paper", {}).items())
    return System(**known)


def _known(cls: type, values: dict[str, Any], path: Path) -> dict[str, Any]:
    unknown = set(values) - {field.name for field in fields(cls)}
    if unknown:
        raise ValueError(f"{path}: {cls.__name__} has no field {', '.join(sorted(unknown))}")
    return dict(values)
