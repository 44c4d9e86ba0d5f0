"""The files of a benchmark: JSON, a Markdown page that says how its figures were taken, the page on the console."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markdown import Markdown

from crossjem_pl.evaluation.page import p_value
from crossjem_pl.training.run_folder import describe_machine

_PACKAGES = ("torch", "transformers", "tokenizers", "lightning", "sentence-transformers", "crossjem_pl")
_BUSY = 0.5
"""A load of the machine above this many cores is remarked on."""


def provenance(device: torch.device, command: str) -> dict[str, Any]:
    """Machine, threads, load at the start, versions, date, commit and command of a measurement that begins now."""
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
        "versions": versions,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _commit(),
        "command": command,
    }


def write(found: Mapping[str, Any], page: Sequence[str], folder: Path, name: str) -> None:
    """`<name>.json` and `<name>.md` in `folder`, and the page on the console.

    Args:
        found: content of the JSON file; `found["provenance"]` ends the page.
        page: Markdown lines.
        folder: made if it is absent.
        name: of the files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n".join([*page, "", *_describe(found["provenance"])]) + "\n"
    (folder / f"{name}.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    Console(width=160).print(Markdown(text))
    print(f"wrote {folder}/{name}.md, {name}.json")


def table(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str | Callable[[Any], str]]) -> list[str]:
    """Markdown lines, one for each row.

    Args:
        rows: fields by name.
        columns: heading -> a format of the row's fields, such as "{p50:,.1f}", or a function of the row. A field that
            is absent or None leaves the cell empty. Columns with a plain format are text, the others numbers.
    """

    def cell(row: Mapping[str, Any], form: str | Callable[[Any], str]) -> str:
        try:
            return form.format_map(row) if isinstance(form, str) else form(row)
        except (KeyError, TypeError):
            return ""

    rule = ["---" if isinstance(form, str) and ":" not in form else "---:" for form in columns.values()]
    cells = [[cell(row, form) for form in columns.values()] for row in rows]
    return [f"| {' | '.join(line)} |" for line in (list(columns), rule, *cells)]


def interval(cell: Mapping[str, Any], scale: float = 100.0, digits: int = 2) -> str:
    """`mean [low, high]`, and the seeds' means in brackets where there are several."""
    text = f"{scale * cell['mean']:.{digits}f}"
    if cell.get("low") is not None:
        text += f" [{scale * cell['low']:.{digits}f}, {scale * cell['high']:.{digits}f}]"
    if len(cell.get("seeds", ())) > 1:
        text += f" ({', '.join(f'{scale * seed:.{digits}f}' for seed in cell['seeds'])})"
    return text


def difference(cell: Mapping[str, Any] | None, scale: float = 100.0, digits: int = 2) -> str:
    """`mean [low, high] (p)` with signs; empty for None."""
    if cell is None:
        return ""
    mean, low, high = (f"{scale * cell[key]:+.{digits}f}" for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}] ({p_value(cell['p'])})"


def _describe(found: Mapping[str, Any]) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    lines = [
        f"{found['date']}, commit {found['commit'] or 'unknown'}. Machine: {found['machine']}; {found['cores']} cores, "
        f"{found['threads']} threads. {versions}.",
        "",
        "```text",
        found["command"],
        "```",
    ]
    if found["load"] > _BUSY:
        lines += ["", f"**The machine was busy**: load {found['load']} at the start."]
    return lines


def _commit() -> str | None:
    """The commit of the source folder, with a + if files differ from it; None outside of a git checkout."""
    folder = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + "+" * bool(
            git("status", "--porcelain", "--untracked-files=no")
        )
    except (OSError, subprocess.CalledProcessError):
        return None
