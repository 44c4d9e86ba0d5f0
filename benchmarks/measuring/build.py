"""Rankers with fresh heads from the overlays in `experiments/rankers/`: enough to measure speed and memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentError, ArgumentParser

from crossjem_pl.rankers.base import Ranker

__all__ = ["NEEDS_OWN_WEIGHTS", "build_ranker", "overlays"]

_FOLDER = Path(__file__).parents[2] / "experiments" / "rankers"

NEEDS_OWN_WEIGHTS = ("monot5", "rankt5", "rankinggpt")
"""Overlays of other families than BERT's, which cannot take the common encoder."""


def overlays() -> list[str]:
    """Names of all overlays."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def build_ranker(name: str, encoder: str | None, changes: Mapping[str, Any] | None = None) -> Ranker:
    """The ranker of `experiments/rankers/<name>.yaml`.

    Args:
        name: of the overlay.
        encoder: in place of the overlay's; None keeps it. Rankers without an encoder ignore it.
        changes: further init arguments, such as `random_init`.

    Raises:
        ValueError: if there is no such overlay, or it takes no such argument.
    """
    path = _FOLDER / f"{name}.yaml"
    if not path.is_file():
        raise ValueError(f"no ranker {name!r}; there are {', '.join(overlays())}")
    described: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))["model"]["ranker"]
    init_args = dict(described.get("init_args", {}))
    if "encoder" in init_args:
        init_args |= {} if encoder is None else {"encoder": encoder}
        init_args |= changes or {}
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(Ranker, "ranker", required=True)
    try:
        config = parser.parse_object({"ranker": {**described, "init_args": init_args}})
    except ArgumentError as error:
        raise ValueError(f"ranker {name!r}: {error}") from error
    ranker: Ranker = parser.instantiate_classes(config).ranker
    return ranker
