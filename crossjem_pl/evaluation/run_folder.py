"""A run as it lies on disk: a folder that training wrote, or a bare TREC run file."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossjem_pl.data.formats import read_lists, read_qrels, read_run

__all__ = ["StoredRun", "read_stored_run", "read_texts_of", "unique_names"]


@dataclass(frozen=True)
class StoredRun:
    """Scores of one system on one split, and what its folder tells about it.

    Args:
        path: the folder or the run file.
        split: of a folder; None for a file.
        scores: query id -> item id -> score.
        qrels: of the folder; None where it has none.
        lists: the file with the texts of the split; None where there is none.
        ranker: from `summary.json`, as are the rest; None where it does not say.
    """

    path: Path
    split: str | None
    scores: dict[str, dict[str, float]]
    qrels: dict[str, dict[str, int]] | None
    lists: Path | None
    ranker: str | None = None
    parameters: int | None = None
    trained_lists: int | None = None
    train_seconds: float | None = None
    machine: str | None = None
    seed: int | None = None


def read_stored_run(path: str | Path, split: str) -> StoredRun:
    """Reads `<split>.trec`, `<split>.qrels` and `summary.json` of a folder, or a TREC run file.

    Raises:
        FileNotFoundError: if the path or the folder's run of this split is absent.
        ValueError: naming the file, for a malformed run, qrels or summary.
    """
    path = Path(path)
    if path.is_file():
        return StoredRun(path, None, read_run(path), None, None)
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: there is no such run folder or run file")
    run = path / f"{split}.trec"
    if not run.is_file():
        there = sorted(file.name for file in path.glob("*.trec"))
        raise FileNotFoundError(f"{run} is missing; runs of this folder: {', '.join(there) or 'none'}")
    qrels, lists, summary = path / f"{split}.qrels", path / f"{split}_lists.parquet", path / "summary.json"
    return StoredRun(
        path,
        split,
        read_run(run),
        read_qrels(qrels) if qrels.is_file() else None,
        lists if lists.is_file() else None,
        **(_read_summary(summary) if summary.is_file() else {}),
    )


def unique_names(runs: Sequence[StoredRun]) -> list[str]:
    """A name per run: the ranker's, with the folder's where several share it, then with the whole path."""
    names = [run.ranker or _label(run.path) for run in runs]
    for detail in (_label, str):
        shared = {name for name in names if names.count(name) > 1}
        base = [run.ranker or _label(run.path) for run in runs]
        names = [
            f"{base[i]} ({detail(run.path)})" if name in shared else name
            for i, (run, name) in enumerate(zip(runs, names, strict=True))
        ]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"the run {twice!r} is given twice")
    return names


def read_texts_of(
    runs: Sequence[StoredRun], queries: Collection[str]
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Texts of some queries and of their items, from the first run that holds the query's list.

    Returns:
        (query id -> text, query id -> item id -> text); queries that no run has texts of are absent.

    Raises:
        ValueError: naming the file and line, for a malformed list.
    """
    query_texts: dict[str, str] = {}
    item_texts: dict[str, dict[str, str]] = {}
    for path in dict.fromkeys(run.lists for run in runs if run.lists is not None):
        wanted = set(queries) - set(query_texts)
        if not wanted:
            break
        for one in read_lists(path, "canonical", labels_field=None, scores_field=None):
            if one.query_id in wanted:
                query_texts[one.query_id] = one.query
                item_texts[one.query_id] = dict(zip(one.item_ids, one.items, strict=True))
    return query_texts, item_texts


def _label(path: Path) -> str:
    if path.is_dir():
        return path.resolve().name
    return path.name.removesuffix(".gz").rsplit(".", 1)[0]


_SUMMARY: dict[str, tuple[type, ...]] = {
    "ranker": (str,),
    "parameters": (int,),
    "trained_lists": (int,),
    "train_seconds": (float, int),
    "machine": (str,),
    "seed": (int,),
}


def _read_summary(path: Path) -> dict[str, Any]:
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from error
    if not isinstance(summary, dict):
        raise ValueError(f"{path}: expected an object, got {type(summary).__name__}")
    found: dict[str, Any] = {key: summary[key] for key in _SUMMARY if summary.get(key) is not None}
    for key, value in found.items():
        if not isinstance(value, _SUMMARY[key]) or isinstance(value, bool):
            raise ValueError(f"{path}, field {key!r}: expected {_SUMMARY[key][0].__name__}, got {value!r}")
        if not isinstance(value, str) and key != "seed" and not 0 <= found[key] < float("inf"):
            raise ValueError(f"{path}, field {key!r}: expected a number of at least 0, got {value!r}")
    return found
