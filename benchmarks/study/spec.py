"""What the study compares, read from `study.yaml` beside this file."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from benchmarks.tables.spec import System, read_system

__all__ = ["Study", "read_study"]

_PATH = Path(__file__).with_name("study.yaml")
_RANKER = "model.ranker.init_args"


@dataclass(frozen=True)
class Study:
    """Args:
    baseline: name of the system that the others are compared with.
    systems: the rivals.
    ablation: heads x item layers x unions of CROSS-JEM, everything else equal.
    ablation_baseline: the row that the others of the ablation are compared with.
    """

    baseline: str
    systems: tuple[System, ...]
    ablation: tuple[System, ...]
    ablation_baseline: str


def read_study() -> Study:
    """The study as the file has it.

    Raises:
        ValueError: if it holds a field that is not known, or a baseline that is no system.
    """
    content = yaml.safe_load(_PATH.read_text(encoding="utf-8"))
    systems = tuple(read_system(values, _PATH) for values in content["systems"])
    ablation = tuple(_ablation(content["ablation"]))
    for name, rows in ((content["baseline"], systems), (content["ablation"]["baseline"], ablation)):
        if name not in {system.name for system in rows}:
            raise ValueError(f"{_PATH}: the baseline {name!r} is no system")
    return Study(content["baseline"], systems, ablation, content["ablation"]["baseline"])


def _ablation(axes: dict[str, Any]) -> list[System]:
    out = []
    for layers, (head, kind), union in product(axes["item_layers"], axes["heads"].items(), axes["unions"]):
        if layers and not union.get("added_layers", True):
            continue
        options = {
            f"{_RANKER}.head": f"crossjem_pl.rankers.{kind}",
            f"{_RANKER}.item_layers": layers,
            **{
                f"{_RANKER}.{key}": value
                for key, value in union.items()
                if key not in ("name", "added_layers")
            },
            **axes["options"],
        }
        plural = "" if layers == 1 else "s"
        name = f"{head}, {layers} item layer{plural}, {union['name']}"
        out.append(read_system({"name": name, "config": axes["config"], "options": options}, _PATH))
    return out
