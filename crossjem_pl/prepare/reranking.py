"""Re-ranking datasets of MTEB: rows `query, positive, negative`, one file or more for each split.

Muennighoff et al., "MTEB: Massive Text Embedding Benchmark", EACL 2023. SODQ is
`mteb/stackoverflowdupquestions-reranking`, with a train and a test file; its validation file was withdrawn because it
was the test file again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

from crossjem_pl.data.formats import LAYOUTS, ListReader, ReadCounts, write_lists
from crossjem_pl.data.rows import JSON_ENDINGS, Row, column_names, read_rows
from crossjem_pl.files import ending, existing
from crossjem_pl.lists import RankingList
from crossjem_pl.prepare.hashing import fraction, one_line
from crossjem_pl.prepare.manifest import Manifest, fingerprint
from crossjem_pl.prepare.report import Written, count_list
from crossjem_pl.prepare.tracking import Track, untracked

__all__ = ["DEV_FRACTION", "prepare_reranking", "split_files"]

DEV_FRACTION = 0.05
_SPLITS = {"train": "train", "validation": "dev", "valid": "dev", "val": "dev", "dev": "dev", "test": "test"}
SENTENCES = {
    "blank_queries": "query texts left out, they are blank",
    "blank_items": "items left out, their text is blank",
    "both": "texts that a row has as positive and as negative, kept as positive",
    "one_sided": "rows left out, they have no positive or no negative (as MTEB's evaluator does)",
    "merged_items": "items merged, exact repeats inside their list",
    "merged_queries": "query texts merged, exact repeats inside their row",
    "repeated_queries": "lists repeat the query text of an earlier one; their ids end in -2, -3, ...",
}


def prepare_reranking(
    folder: Path, out: Path, command: str, *, dev_fraction: float | None = None, track: Track = untracked
) -> Iterator[Written]:
    """Writes `out/train.parquet`, `dev.parquet` and `test.parquet`, those that the source has; yields accounts.

    Labels are 1 and 0. Items stand in the order of their ids, which tells nothing of the labels; one list for
    each text of a `query` list.

    Args:
        folder: files of the splits, see `split_files`.
        out: folder to fill.
        command: name of the command, for the manifest.
        dev_fraction: dev is this part of the training rows, by a hash of the query. None: the source's own
            validation split, or `DEV_FRACTION` if there is a train split and no validation split. 0: none.
        track: shows progress.

    Raises:
        FileNotFoundError: no such folder.
        ValueError: no split, rows of another layout, or a malformed row (names file, line and field).
    """
    if dev_fraction is not None and not 0 <= dev_fraction < 1:
        raise ValueError(f"dev_fraction must be in [0, 1), got {dev_fraction:g}")
    files = split_files(folder)
    if dev_fraction is None:
        dev_fraction = DEV_FRACTION if "train" in files and "dev" not in files else 0.0
    elif dev_fraction and "train" not in files:
        raise ValueError(f"{folder}: there is no train split to take a dev split from")
    elif dev_fraction:
        files.pop("dev", None)
    for group in files.values():
        for file in group:
            _check_layout(file)
    manifest = Manifest(out, command)
    return _prepare(files, out, manifest, dev_fraction, track)


def split_files(folder: Path) -> dict[str, list[Path]]:
    """The files of "train", "dev" and "test", by the first split name in each file's path below `folder`:
    `train.jsonl.gz`, `data/test-00000-of-00001.parquet`, `validation/0000.parquet`...

    Raises:
        FileNotFoundError: no such folder.
        ValueError: no file of a split, or files of one split with different endings (the same rows twice).
    """
    existing(folder, "folder of the dataset")
    known = (*JSON_ENDINGS, ".parquet")
    found: dict[str, list[Path]] = {}
    for file in sorted(folder.rglob("*")):
        inner = file.relative_to(folder)
        if any(part[0] == "." for part in inner.parts) or not file.is_file() or ending(file) not in known:
            continue
        words = re.split(r"[^a-z]+", str(inner).lower())
        split = next((_SPLITS[word] for word in words if word in _SPLITS), None)
        if split is not None:
            found.setdefault(split, []).append(file)
    if not found:
        raise ValueError(
            f"{folder}: no file of a split; expected names such as train.jsonl.gz, validation.jsonl.gz or "
            f"data/test-00000-of-00001.parquet (endings {', '.join(known)})"
        )
    for split, files in found.items():
        kinds = {ending(file): file.name for file in files}
        if len(kinds) > 1:
            raise ValueError(
                f"{folder}: files of several kinds for {split} ({', '.join(kinds.values())}); keep one kind"
            )
    return {split: found[split] for split in ("train", "dev", "test") if split in found}


def _check_layout(file: Path) -> None:
    columns = column_names(file)
    required, _ = LAYOUTS["mteb"]
    if not set(required) <= set(columns):
        raise ValueError(
            f"{file}: expected the columns {', '.join(required)}, found {', '.join(columns) or 'none'}. "
            "Repositories of MTEB whose names end in -reranking hold such rows, those with corpus, queries and "
            "qrels do not"
        )


def _prepare(
    files: dict[str, list[Path]], out: Path, manifest: Manifest, dev_fraction: float, track: Track
) -> Iterator[Written]:
    for split, group in files.items():
        share = dev_fraction if split == "train" else 0.0
        for name, low, high in (("dev", 0.0, share), (split, share, 1.0)):
            if low == high:
                continue
            options = {"source": [fingerprint(file) for file in group], "from": low, "to": high}
            entry = manifest.part(name, options)
            counts: Counter[str] = Counter()
            merged = ReadCounts()
            lists = _lists(group, low, high, counts, merged)
            path = out / f"{name}.parquet"
            first = next(lists, None)
            if first is None:
                remedy = " (choose a larger dev_fraction, or 0 for no dev split)" if high == share else ""
                raise ValueError(f"{group[0]}: no list for {name}{remedy}")
            write_lists(track(chain((first,), lists), name, None), path, unique=False)
            for key in ("merged_items", "merged_queries", "repeated_queries"):
                counts[key] = getattr(merged, key)
            entry.update(complete=True, counts=dict(counts))
            manifest.save()
            yield Written(path, counts, SENTENCES)


def _lists(
    files: Iterable[Path], low: float, high: float, counts: Counter[str], merged: ReadCounts
) -> Iterator[RankingList]:
    """Lists of the rows whose query hashes into [low, high)."""
    reader = ListReader("mteb", counts=merged)
    seen: dict[str, str] = {}
    for file in files:
        for row in read_rows(file):
            queries = _texts(row, "query")
            if not low <= fraction(queries[0] if queries else "", "dev") < high:
                continue
            cleaned = _clean(row, queries, counts)
            if cleaned is None:
                continue
            for one in reader.lists(cleaned):
                if one.query_id in seen:
                    raise row.error("query_id", f"id {one.query_id!r} occurs before, in {seen[one.query_id]}")
                seen[one.query_id] = row.where
                count_list(one, counts)
                yield one


def _clean(row: Row, queries: list[str], counts: Counter[str]) -> Row | None:
    """The row with one-line texts, without blank ones and without negatives that are positives too."""
    positive, negative = _texts(row, "positive"), _texts(row, "negative")
    kept = []
    for name, texts in (("blank_queries", queries), ("blank_items", positive), ("blank_items", negative)):
        counts[name] += texts.count("")
        kept.append([text for text in texts if text])
    queries, positive, negative = kept
    both = set(positive) & set(negative)
    counts["both"] += len(both)
    negative = [text for text in negative if text not in both]
    if queries and not (positive and negative):
        counts["one_sided"] += 1
    if not (queries and positive and negative):
        return None
    return replace(row, values={**row.values, "query": queries, "positive": positive, "negative": negative})


def _texts(row: Row, field: str) -> list[str]:
    """The texts of a field as lines, blank ones too."""
    value = row.values.get(field)
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(text, str) for text in values):
        raise row.error(field, f"expected a text or a list of texts, got {type(value).__name__}")
    return [one_line(text) for text in values]
