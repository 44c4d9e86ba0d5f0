"""Ranking lists in three parts, train, dev and test, that share no query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal

from crossjem_pl.data.checks import normalise
from crossjem_pl.data.formats import LAYOUTS, detect_layout, read_lists, write_lists
from crossjem_pl.data.rows import Row, parse_number, read_rows
from crossjem_pl.data.trec import ReadCounts
from crossjem_pl.files import remove_leftovers, scratch_folder
from crossjem_pl.hashing import content_id, fraction
from crossjem_pl.lists import counted

__all__ = ["By", "SplitReport", "split_lists"]

By = Literal["query", "item", "group", "time"]


class SplitReport(Counter[str]):
    """The number of lists of each part, and how many of dev and test have a relevant item that is relevant in train
    too, as "dev: items in train"; `notes` say what was merged and which columns no list holds. `str()` is the text for
    a terminal."""

    notes: Sequence[str] = ()

    def __str__(self) -> str:
        def line(part: str) -> str:
            seen = self.get(f"{part}: items in train")
            shared = f"; {seen} of them with a relevant item that is relevant in train too" if seen else ""
            return f"{part}.parquet: {counted(self[part], 'list')}{shared}"

        return "\n".join([*(line(part) for part in ("train", "dev", "test") if part in self), *self.notes])


def split_lists(
    source: Path,
    out: Path,
    by: By = "query",
    column: str | None = None,
    dev: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
    label_column: str = "labels",
    score_column: str = "scores",
    query_column: str | None = None,
    item_column: str | None = None,
) -> SplitReport:
    """Writes `train.parquet`, `dev.parquet` and `test.parquet` to `out`.

    Lists whose queries are one text (Unicode NFKC, case folded, white space collapsed) always stay together. The
    shares are of queries, groups or times, and every part with a share above 0 gets at least one.

    Args:
        source: lists in any layout that `read_lists` understands.
        out: the folder; its three files must not exist.
        by: "query" draws queries; "item" keeps queries together that share a relevant item (a label above 0); "group"
            those with one value of `column`; "time" puts the latest queries into test, those before them into dev. A
            query that occurs at several times has the latest, so that nothing in train is later than dev begins.
        column: the column of the rows that holds the group, or the time: ISO 8601 (UTC without an offset) or a number.
        dev: share of dev, in [0, 1).
        test: share of test, in [0, 1).
        seed: of the draw, which does not depend on the order of the rows.
        label_column: column of the labels.
        score_column: column of the scores.
        query_column: column of the queries, if it has a name of its own.
        item_column: column of the items, likewise.

    Raises:
        FileExistsError: if one of the files is there.
        ValueError: for shares that leave nothing to train on, too few queries (or too many that hang together), a
            missing `column`, and rows that are malformed (names file, line and field).
    """
    if min(dev, test) < 0 or dev + test >= 1:
        raise ValueError(f"dev and test are shares whose sum is below 1, got {dev} and {test}")
    if (column is None) != (by in ("query", "item")):
        raise ValueError(f"by={by!r} {'needs' if column is None else 'takes no'} column")
    paths = {name: out / f"{name}.parquet" for name in ("train", "dev", "test")}
    for path in paths.values():
        if path.exists():
            raise FileExistsError(f"{path} exists; give another folder, or remove it")
    names = {"query_column": query_column, "item_column": item_column}
    options: dict[str, Any] = {**names, "label_column": label_column, "score_column": score_column}
    queries = Counter[str]()  # lists of each query
    relevant: dict[str, set[str]] = {}  # content ids of its relevant items
    counts = ReadCounts()
    for one in read_lists(source, counts=counts, **options):
        key = normalise(one.query)
        queries[key] += 1
        labelled = zip(one.items, one.labels or (), strict=False)
        relevant.setdefault(key, set()).update(content_id(normalise(i)) for i, label in labelled if label > 0)
    shares = {"test": test, "dev": dev}
    if by == "time":
        units: dict[str, Hashable] = {}
        for key, row in _rows(source, str(column), names):
            units[key] = max(_time(row, str(column)), units.get(key, -float("inf")))  # type: ignore[call-overload]
    elif by == "group":
        groups = ((key, row.identifier(str(column))) for key, row in _rows(source, str(column), names))
        units = _joined(queries, groups)
    else:
        shared = ((key, item) for key in queries for item in relevant[key]) if by == "item" else iter(())
        units = _joined(queries, shared)
    part = _parts(units, shares, str(seed), by)
    in_train = {item for key in queries if part[key] == "train" for item in relevant[key]}
    report = SplitReport()
    report.notes = counts.notes()
    remove_leftovers(out / "parts")
    out.mkdir(parents=True, exist_ok=True)
    with scratch_folder(out / "parts") as folder:
        for name in paths:
            if name == "train" or shares[name]:
                lists = read_lists(source, counts=ReadCounts(), **options)
                chosen = (one for one in lists if part[normalise(one.query)] == name)
                report[name] = write_lists(chosen, folder / f"{name}.parquet")
            if name != "train" and shares[name]:
                leaking = (key for key in queries if part[key] == name and relevant[key] & in_train)
                report[f"{name}: items in train"] = sum(queries[key] for key in leaking)
        for written in folder.iterdir():  # all or, but for a kill within these lines, nothing
            written.rename(out / written.name)
    return report


def _rows(source: Path, column: str, names: dict[str, str | None]) -> Iterator[tuple[str, Row]]:
    """The normalised query of each row, and the row with `column`."""
    query = names["query_column"] or LAYOUTS[detect_layout(source, **names)][0][0]
    for row in read_rows(source, [query, column]):
        yield from ((normalise(text), row) for text in row.one_or_more_texts(query))


def _joined(queries: Iterable[str], shared: Iterator[tuple[str, str]]) -> dict[str, Hashable]:
    """For each query the first in order of those that it hangs together with: by what both have, or over others."""
    parents: dict[tuple[bool, str], tuple[bool, str]] = {}

    def first(node: tuple[bool, str]) -> tuple[bool, str]:
        while (parent := parents.setdefault(node, node)) != node:
            parents[node] = node = parents[parent]
        return node

    for query, other in shared:
        parents[first((True, other))] = first((False, query))
    smallest: dict[tuple[bool, str], str] = {}
    for query in sorted(queries, reverse=True):
        smallest[first((False, query))] = query
    return {query: smallest[first((False, query))] for query in queries}


def _time(row: Row, column: str) -> float:
    """Seconds since 1970, or the number that stands there."""
    value = row.values.get(column)
    if isinstance(value, date):  # a datetime is one too
        value = str(value)
    if not isinstance(value, str) or parse_number(value.strip()) is not None:
        return row.scalar(column)
    try:
        time = datetime.fromisoformat(value.strip())
    except ValueError:
        raise row.error(
            column, f"neither a number nor a time as in 2026-11-21T09:30, got {value!r}"
        ) from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _parts(units: dict[str, Hashable], shares: dict[str, float], seed: str, by: By) -> dict[str, str]:
    """The part of each query: the last units, in order or drawn, are test, those before them dev, the rest train."""
    distinct = set(units.values())
    drawn = sorted(distinct) if by == "time" else sorted(distinct, key=lambda unit: fraction(str(unit), seed))  # type: ignore[type-var]
    sizes = {name: max(1, round(share * len(drawn))) if share else 0 for name, share in shares.items()}
    if sum(sizes.values()) >= len(drawn):
        raise ValueError(
            f"{len(units):,} distinct queries, {counted(len(drawn), 'part')} by {by} that must stay together, are too "
            "few: train, dev and test take at least one each; --dev 0 or --test 0 leaves a part out"
        )
    of_unit: dict[Hashable, str] = {}
    for name, size in sizes.items():
        of_unit.update((drawn.pop(), name) for _ in range(size))
    return {query: of_unit.get(unit, "train") for query, unit in units.items()}
