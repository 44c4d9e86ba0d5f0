"""The files of a benchmark: JSON, a Markdown page with the conditions on top, the page on the console."""

from __future__ import annotations

import importlib.metadata
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markdown import Markdown

from crossjem_pl.training.run_folder import describe_machine

__all__ = ["conditions", "describe_conditions", "markdown_table", "write"]

_PACKAGES = ("torch", "transformers", "tokenizers", "lightning", "sentence-transformers", "crossjem_pl")


def conditions(device: torch.device) -> dict[str, Any]:
    """Machine, threads, load at the start and versions, for the side of every figure."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "machine": describe_machine(),
        "device": device.type,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "tokenizers_parallelism": os.environ.get("TOKENIZERS_PARALLELISM"),
        "versions": versions,
    }


def describe_conditions(found: Mapping[str, Any]) -> list[str]:
    """Markdown lines of `conditions`; a load above half a core is remarked on."""
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    lines = [f"Machine: {found['machine']}. {versions}.", ""]
    if found["load"] > 0.5:
        lines += [f"**The machine was busy**: load {found['load']} at the start.", ""]
    return lines


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    """Markdown lines; the first `words` columns are text, the others numbers."""
    rule = ["---"] * words + ["---:"] * (len(columns) - words)
    return [f"| {' | '.join(cells)} |" for cells in (columns, rule, *rows)]


def write(found: Mapping[str, Any], page: Sequence[str], folder: Path, name: str) -> None:
    """`<name>.json` and `<name>.md` in `folder`, and the page on the console."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n".join(page) + "\n"
    (folder / f"{name}.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    Console(width=160).print(Markdown(text))
