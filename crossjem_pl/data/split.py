"""Ranking lists in three parts, train, dev and test, that share no query."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Literal

from crossjem_pl.data.checks import normalise
from crossjem_pl.data.formats import LAYOUTS, detect_layout, read_lists, write_lists
from crossjem_pl.data.rows import Row, parse_number, read_rows
from crossjem_pl.hashing import fraction

__all__ = ["By", "split_lists"]

By = Literal["query", "group", "time"]


def split_lists(
    source: Path,
    out: Path,
    by: By = "query",
    column: str | None = None,
    dev: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
    labels_field: str = "labels",
    scores_field: str = "scores",
) -> dict[str, int]:
    """Writes `train.parquet`, `dev.parquet` and `test.parquet` to `out`; returns the number of lists of each.

    Lists whose queries are one text (Unicode NFKC, case folded, white space collapsed) always stay together. The
    shares are of queries, groups or times, and every part with a share above 0 gets at least one.

    Args:
        source: lists in any layout that `read_lists` understands.
        out: the folder; its three files must not exist.
        by: "query" draws queries; "group" draws the values of `column`, all queries of which stay together, and groups
            that share a query count as one; "time" puts the latest queries into test, those before them into dev. A
            query that occurs at several times has the latest, so that nothing in train is later than dev begins.
        column: the column of the rows that holds the group, or the time: ISO 8601 (UTC without an offset) or a number.
        dev: share of dev, in [0, 1).
        test: share of test, in [0, 1).
        seed: of the draw, which does not depend on the order of the rows.
        labels_field: column of the labels.
        scores_field: column of the scores.

    Raises:
        FileExistsError: if one of the files is there.
        ValueError: for shares that leave nothing to train on, too few queries, a missing `column`, and rows that are
            malformed (names file, line and field).
    """
    if min(dev, test) < 0 or dev + test >= 1:
        raise ValueError(f"dev and test are shares whose sum is below 1, got {dev} and {test}")
    if (column is None) != (by == "query"):
        raise ValueError(f"by={by!r} {'needs' if column is None else 'takes no'} column")
    paths = {name: out / f"{name}.parquet" for name in ("train", "dev", "test")}
    for path in paths.values():
        if path.exists():
            raise FileExistsError(f"{path} exists; give another folder, or remove it")
    shares = {"test": test, "dev": dev}
    part = _parts(_units(source, by, column), shares, str(seed), in_order=by == "time")
    counts = {}
    for name, path in paths.items():
        if name != "train" and not shares[name]:
            continue
        lists = read_lists(source, labels_field=labels_field, scores_field=scores_field)
        counts[name] = write_lists((one for one in lists if part[normalise(one.query)] == name), path)
    return counts


def _units(source: Path, by: By, column: str | None) -> dict[str, Hashable]:
    """What is drawn as a whole, by normalised query: the query itself, its group, or its time."""
    query = LAYOUTS[detect_layout(source)][0][0]
    units: dict[str, Hashable] = {}
    groups: dict[Hashable, Hashable] = {}  # a group to one that it was joined with

    def first(group: Hashable) -> Hashable:
        while (other := groups.setdefault(group, group)) != group:
            group = other
        return group

    for row in read_rows(source, [query] if column is None else [query, column]):
        key = normalise(row.text(query))
        if column is None:
            units[key] = key
        elif by == "time":
            units[key] = max(_time(row, column), units.get(key, -float("inf")))  # type: ignore[call-overload]
        else:
            group = first(row.identifier(column))
            groups[first(units.setdefault(key, group))] = group
    return units if by != "group" else {key: first(group) for key, group in units.items()}


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


def _parts(units: dict[str, Hashable], shares: dict[str, float], seed: str, in_order: bool) -> dict[str, str]:
    """The part of each query: the last units, in order or drawn, are test, those before them dev, the rest train."""
    distinct = set(units.values())
    drawn = sorted(distinct) if in_order else sorted(distinct, key=lambda unit: fraction(str(unit), seed))  # type: ignore[type-var]
    sizes = {name: max(1, round(share * len(drawn))) if share else 0 for name, share in shares.items()}
    if sum(sizes.values()) >= len(drawn):
        raise ValueError(f"{len(drawn)} distinct queries, groups or times are too few for these parts")
    of_unit: dict[Hashable, str] = {}
    for name, size in sizes.items():
        of_unit.update((drawn.pop(), name) for _ in range(size))
    return {query: of_unit.get(unit, "train") for query, unit in units.items()}
