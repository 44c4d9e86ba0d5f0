"""What the papers' tables and the study compare, read from their YAML files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

Targets = Literal["scores", "labels"]

_PATH = Path(__file__).with_name("tables.yaml")
_CONTENT: dict[str, Any] = yaml.safe_load(_PATH.read_text(encoding="utf-8"))

TABLES: list[str] = [str(name) for name in _CONTENT["tables"]]
"""Numbers of the papers' tables, and "study", which is ours."""


@dataclass(frozen=True)
class System:
    """One row.

    Args:
        name: as printed.
        config: overlays under `experiments/`, in order.
        on_scores, on_labels: further overlays where the targets are the teacher's scores, or the labels.
        targets: what the row is always trained on; None for what the table asks for.
        options: further `--key value` of the training command.
        paper: the papers' figures by column.
        encoder: hub id of an encoder of this row alone; None takes the one of the whole table.
        layers: how many layers of `ENCODER` stand for its encoder where the user names one.
        published: hub id of a model that is evaluated as it is.
        trained: whether there is something to train.
        model_of: name of another row whose model is evaluated with these options.
        own_attention: whether the ranker brings its attention, so that `attn_implementation` is not passed on.
        needs_hub: whether the row cannot run on the packaged encoder (left out of smoke runs, which say so).
    """

    name: str
    config: Sequence[str] = ()
    on_scores: Sequence[str] = ()
    on_labels: Sequence[str] = ()
    targets: Targets | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, float] = field(default_factory=dict)
    encoder: str | None = None
    layers: int | None = None
    published: str | None = None
    trained: bool = True
    model_of: str | None = None
    own_attention: bool = False
    needs_hub: bool = False

    @property
    def hub_model(self) -> str | None:
        """What the row needs from the hub, whatever encoder the user names."""
        return self.published or (self.encoder if self.needs_hub else None)

    @property
    def learns(self) -> bool:
        """Whether the row is trained on its own."""
        return self.trained and self.published is None and self.model_of is None


@dataclass(frozen=True)
class Part:
    """One table on the page.

    Args:
        caption: what it shows.
        kind: what is measured, a key of `benchmarks.tables.__main__.KINDS`.
        dataset: `experiments/<dataset>.yaml`.
        columns: metric names, as the papers have them.
        rows: the systems.
        baseline: the row that the others are compared with, if any.
        budget: how long every row is trained: "lists", on the same number of lists, or "minutes", for the same time (a
            row's seconds per optimiser step are measured first); None for what the configuration says.
        labels_too: whether every row is trained on the labels as well, for more columns.
        one_seed: whether the first of several seeds is enough here.
        note: what a reader has to know.
    """

    caption: str
    kind: str
    dataset: str
    columns: Sequence[str]
    rows: Sequence[System]
    baseline: str | None = None
    budget: Literal["lists", "minutes"] | None = None
    labels_too: bool = False
    one_seed: bool = False
    note: str = ""


def read_table(name: str) -> tuple[str, tuple[Part, ...]]:
    """Title and parts of a table.

    Raises:
        ValueError: if there is no such table.
    """
    if name not in TABLES:
        raise ValueError(f"there is no table {name}; there are {', '.join(TABLES)}")
    content = _CONTENT["tables"][int(name) if name.isdigit() else name]
    systems = {**_CONTENT["rows"], **content.get("rows", {})}
    return content["title"], tuple(_part(values, systems) for values in content["parts"])


def _part(values: Mapping[str, Any], systems: Mapping[str, Any]) -> Part:
    values = dict(values)
    columns, given, targets = values["columns"], values["rows"], values.pop("targets", None)
    rows = []
    for name, figures in (given if isinstance(given, dict) else dict.fromkeys(given, ())).items():
        paper = {column: value for column, value in zip(columns, figures, strict=False) if value is not None}
        described = {} if values["kind"] == "overlap" else systems[name]
        rows.append(System(**{"name": name, "paper": paper, "targets": targets, **described}))
    return Part(**{**values, "rows": rows})
