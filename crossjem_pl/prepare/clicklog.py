"""A user's own click log as ranking lists, in flat memory, whatever the order and the size of the log.

The rows are first sorted into buckets on disk by a hash of the query; then each bucket is taken into memory, its
rows are gathered to lists, and the lists are written in the order of the hash. So the result does not depend on
the order of the rows or the number of buckets, and neighbours in a shard have nothing to do with each other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from crossjem_pl.files import ending
from crossjem_pl.prepare.buckets import Buckets
from crossjem_pl.prepare.clicks import Columns, GoodClick, read_event
from crossjem_pl.prepare.hashing import fraction
from crossjem_pl.prepare.log_lists import Sources, gather, position, record
from crossjem_pl.prepare.log_options import LogOptions
from crossjem_pl.prepare.manifest import Manifest, fingerprint
from crossjem_pl.prepare.report import Written, count_list
from crossjem_pl.prepare.shards import ShardWriter, finished_folder
from crossjem_pl.prepare.tables import read_table
from crossjem_pl.prepare.tracking import Track, untracked

__all__ = ["LogOptions", "prepare_log"]

SPLITS = ("train", "dev", "test")
BUCKET_BYTES = 32 << 20
PACKED = 8  # how much larger than its file a gzip or Parquet log is taken to be
SENTENCES = {
    "lists_without_positive": "lists without a good click (kept)",
    "unclicked_lists": "queries left out, they have no good click",
    "short_lists": "queries left out, they have fewer keywords than min_items",
    "rows": "rows with a query and a keyword",
    "blank_rows": "rows left out, their query or keyword is blank",
    "repeated_rows": "rows repeat a query and keyword and were gathered",
    "bad_clicks": "clicks were not good ones",
}


def prepare_log(
    files: Sequence[Path], out: Path, options: LogOptions | None = None, *, track: Track = untracked
) -> list[Written]:
    """Writes `out/train.parquet/`, `out/dev.parquet/`, `out/test.parquet/` and returns an account of each.

    A keyword's label is 1 if it has `min_good_clicks` good clicks for the query, else 0. Its score is the
    teacher's, if the log has such a column; a list has scores for all of its keywords or the log is refused.
    Keywords stand in the order of their ids, which tells nothing of the labels. Which split a query goes to
    depends on its text without regard to case, so no text is in two splits.

    Args:
        files: tables with the same columns (`read_table`), or folders of them.
        out: folder to fill; a finished one of the same files and options is left as it is.
        options: see `LogOptions`.
        track: shows progress.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: names file, line and field of what is malformed or contradicts another row; no list could
            be made; or the folder holds something else.
    """
    options = LogOptions() if options is None else options
    if not files:
        raise ValueError("no log files were given")
    if len({file.resolve() for file in files}) != len(files):
        raise ValueError(f"a log file was given twice: {', '.join(map(str, files))}")
    columns, left = _columns(files, options.columns)
    good = options.good
    if columns.dwell is None and columns.quick_back is None and not good.any_click:
        raise ValueError(
            f"{files[0]}: the log has neither a dwell nor a quick_back column, which tell good clicks from "
            "others; name one of them, or take every click as good (--any-click)"
        )
    manifest = Manifest(out, "log")
    entry = manifest.part(
        "log", {**asdict(options), "buckets": None, "files": [fingerprint(file) for file in files]}
    )
    state = ""
    if entry["complete"]:
        state = "was complete"
    else:
        there = [finished_folder(out, name) for name in SPLITS if finished_folder(out, name).exists()]
        if there:
            raise ValueError(
                f"{there[0]}: is there already, but not from a finished run of this command; remove it"
            )
        manifest.save()
        buckets = Buckets(out / ".buckets", options.buckets or _bucket_count(files))
        try:
            sources = Sources()
            counts = _sort(files, columns, good, buckets, sources, track)
            written = _write(buckets, options, out, sources, track)
        finally:
            buckets.remove()
        entry.update(complete=True, counts={**written, "all": dict(counts)})
        manifest.save()
    reports = [
        Written(finished_folder(out, name), entry["counts"][name], SENTENCES, state)
        for name in SPLITS
        if name in entry["counts"]
    ]
    remark = f"columns not carried: {', '.join(left)}" if left else ""
    return [*reports, Written(out, _total(entry["counts"]), SENTENCES, remark)]


def _total(counts: dict[str, dict[str, int]]) -> dict[str, int]:
    """Counts of the whole log; those of the splits' lists are told with the splits."""
    total: Counter[str] = Counter()
    for of_part in counts.values():
        total.update(of_part)
    total.pop("lists_without_positive", None)
    return total


def _columns(files: Sequence[Path], columns: Columns) -> tuple[Columns, list[str]]:
    """The columns of the log, and those that are not carried."""
    resolved: Columns | None = None
    left: dict[str, None] = {}
    for file in files:
        row = next(read_table(file))
        of_file = columns.resolve(row.columns, str(file))
        if resolved is not None and of_file != resolved:
            differing = set(of_file.used()) ^ set(resolved.used())
            raise ValueError(
                f"{file}: other columns than in {files[0]} ({', '.join(sorted(differing))} in one of them)"
            )
        resolved = of_file
        left.update(dict.fromkeys(name for name in row.columns if name not in of_file.used()))
    assert resolved is not None  # there is a file
    return resolved, list(left)


def _bucket_count(files: Iterable[Path]) -> int:
    size = 0
    for file in files:
        for part in file.rglob("*") if file.is_dir() else [file]:
            packed = ending(part).endswith((".gz", ".parquet"))
            size += part.stat().st_size * (PACKED if packed else 1)
    return max(1, math.ceil(size / BUCKET_BYTES))


def _sort(
    files: Sequence[Path],
    columns: Columns,
    good: GoodClick,
    buckets: Buckets,
    sources: Sources,
    track: Track,
) -> Counter[str]:
    counts: Counter[str] = Counter(rows=0)
    unused = columns.unused()
    rows = (row for file in files for row in read_table(file))
    for row in track(rows, "rows", None):
        if not unused.isdisjoint(row.values):
            late = min(unused.intersection(row.values))
            raise row.error(late, "rows before have no such column; the first row of each file must have it")
        event = read_event(row, columns, good)
        if event is None:
            counts["blank_rows"] += 1
            continue
        counts["rows"] += 1
        counts["bad_clicks"] += event.clicked and not event.good
        buckets.add(position(event.query_id), record(event, sources.place(row)))
    return counts


def _write(
    buckets: Buckets, options: LogOptions, out: Path, sources: Sources, track: Track
) -> dict[str, dict[str, int]]:
    writers = {name: ShardWriter(out, name, options.lists_per_shard) for name in SPLITS}
    counts: dict[str, Counter[str]] = {name: Counter() for name in SPLITS}
    left: Counter[str] = Counter()
    for records in track(buckets.read(), "lists", buckets.count):
        for one in gather(records, options, sources, left):
            split = _split(one.query, options)
            writers[split].add(one)
            count_list(one, counts[split])
    if not any(of_split["lists"] for of_split in counts.values()):
        told = "".join(f"; {left[key]} {text}" for key, text in SENTENCES.items() if left[key])
        raise ValueError(f"{out}: no list can be made of the log{told}")
    for writer in writers.values():
        writer.close()
    return {**{name: dict(of_split) for name, of_split in counts.items() if of_split}, "left": dict(left)}


def _split(query: str, options: LogOptions) -> str:
    place = fraction(query.casefold(), f"split {options.seed}")
    if place < options.test_fraction:
        return "test"
    return "dev" if place < options.test_fraction + options.dev_fraction else "train"
