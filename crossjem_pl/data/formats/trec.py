"""TREC runs and qrels: read, written, and joined with texts to lists.

A run line is `query_id Q0 item_id rank score tag`, a qrels line `query_id 0 item_id grade`, fields parted by
spaces or tabs. As in trec_eval, the order of a run is its scores' order, and neither its rank column nor its
lines': score descending, equal scores by item id descending.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from crossjem_pl.data.formats.counts import ReadCounts
from crossjem_pl.data.formats.texts import read_texts
from crossjem_pl.files import existing, read_lines, replacing
from crossjem_pl.lists import RankingList

__all__ = [
    "ranked",
    "read_qrels",
    "read_run",
    "read_trec",
    "write_list_qrels",
    "write_list_run",
    "write_qrels",
    "write_run",
]

_FIELD = re.compile(r"[^ \t\r\f\v]+")
_RUN = ("query_id", "Q0", "item_id", "rank", "score", "tag")
_QRELS = ("query_id", "iteration", "item_id", "grade")


def ranked(scores: Mapping[str, float]) -> list[str]:
    """Item ids, best first: score descending, ties by item id descending (trec_eval's rule).

    Ids compare by code point, which is the order of their UTF-8 bytes.
    """
    return sorted(scores, key=lambda item: (scores[item], item), reverse=True)


def read_run(path: str | os.PathLike[str]) -> dict[str, dict[str, float]]:
    """Scores by query id and item id; queries in the order of the file, items in `ranked` order.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: names file, line and field, for a malformed line, a score that is not finite, or an item
            that a query has twice; or an empty file.
    """
    source = existing(path, "run")
    run: dict[str, dict[str, float]] = {}
    for number, query_id, item_id, score in _run_lines(source):
        scores = run.setdefault(query_id, {})
        if item_id in scores:
            raise _twice(source, number, query_id, item_id)
        scores[item_id] = score
    return {query_id: {item: scores[item] for item in ranked(scores)} for query_id, scores in run.items()}


def write_run(
    run: Mapping[str, Mapping[str, float]], path: str | os.PathLike[str], tag: str = "crossjem_pl"
) -> int:
    """Writes a run, gzip if the name ends in .gz; returns the number of lines.

    Ranks count from 1 in `ranked` order. Scores have the shortest form that reads back as the same float64,
    hence as the same float32.

    Raises:
        ValueError: an id or tag that is empty or holds white space, a score that is not finite, or no line at
            all.
    """
    return _write_run(run.items(), Path(path), tag)


def write_list_run(
    lists: Iterable[RankingList], path: str | os.PathLike[str], tag: str = "crossjem_pl"
) -> int:
    """Writes the `scores` of lists as a run, in flat memory; returns the number of lines.

    Raises:
        ValueError: names a list that has no scores; otherwise as `write_run`.
    """

    def entries() -> Iterator[tuple[str, dict[str, float]]]:
        for one in lists:
            if one.scores is None:
                raise ValueError(
                    f"list {one.query_id!r}, field 'scores': a run needs scores and there are none"
                )
            yield one.query_id, dict(zip(one.item_ids, one.scores, strict=True))

    return _write_run(entries(), Path(path), tag)


def read_qrels(path: str | os.PathLike[str]) -> dict[str, dict[str, int]]:
    """Grades by query id and item id, in the order of the file. Negative grades are kept as they are.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: names file, line and field, for a malformed line, a grade that is no integer, or a pair
            that is judged twice; or an empty file.
    """
    source = existing(path, "qrels")
    qrels: dict[str, dict[str, int]] = {}
    for number, (query_id, _, item_id, grade) in _fields(source, _QRELS):
        grades = qrels.setdefault(query_id, {})
        if item_id in grades:
            raise _twice(source, number, query_id, item_id)
        try:
            grades[item_id] = int(grade)
        except ValueError:
            raise ValueError(
                f"{source}, line {number}, field 'grade': expected an integer, got {grade!r}"
            ) from None
    if not qrels:
        raise ValueError(f"{source}: the file has no judgements")
    return qrels


def write_qrels(qrels: Mapping[str, Mapping[str, int]], path: str | os.PathLike[str]) -> int:
    """Writes qrels, gzip if the name ends in .gz; returns the number of lines.

    Raises:
        ValueError: an id that is empty or holds white space, a grade that is no integer, or no line at all.
    """
    return _write_qrels(qrels.items(), Path(path))


def write_list_qrels(lists: Iterable[RankingList], path: str | os.PathLike[str]) -> int:
    """Writes the `labels` of lists as qrels, zeros too, in flat memory; returns the number of lines.

    Raises:
        ValueError: names a list that has no labels or a label that is no integer; otherwise as `write_qrels`.
    """

    def entries() -> Iterator[tuple[str, dict[str, float]]]:
        for one in lists:
            if one.labels is None:
                raise ValueError(
                    f"list {one.query_id!r}, field 'labels': qrels need labels and there are none"
                )
            yield one.query_id, dict(zip(one.item_ids, one.labels, strict=True))

    return _write_qrels(entries(), Path(path))


def read_trec(
    run: str | os.PathLike[str],
    queries: str | os.PathLike[str],
    items: str | os.PathLike[str],
    qrels: str | os.PathLike[str] | None = None,
    *,
    depth: int | None = None,
    counts: ReadCounts | None = None,
) -> Iterator[RankingList]:
    """Streams the lists of a run: queries in the order of the file, items in `ranked` order, scores kept.

    The run is read twice: first for the ids whose texts are needed, then for the lists. So memory holds the
    texts of the run's own queries and items, and the qrels, but not the run.

    Args:
        run: the run; the lines of one query stand together.
        queries: texts of the queries, see `read_texts`.
        items: texts of the items, see `read_texts`.
        qrels: grades, which become labels; an item of the run that is not judged gets 0. None: no labels.
        depth: keep the `depth` best items of each query; None keeps all.
        counts: filled with the items that `depth` cut and the judgements that are in no list (the item was
            not retrieved, or was cut, or the query is not in the run): such relevant items are missed by
            metrics that see only the lists.

    Raises:
        FileNotFoundError: one of the files does not exist.
        ValueError: names file and line, for what `read_run` and `read_texts` refuse, an id of the run without
            a text, or lines of one query that do not stand together; or a `depth` below 1.
    """
    if depth is not None and depth < 1:
        raise ValueError(f"depth must be at least 1, got {depth}")
    sources = existing(run, "run"), existing(queries, "queries file"), existing(items, "items file")
    if qrels is not None:
        existing(qrels, "qrels")
    return _lists(*sources, qrels, depth, ReadCounts() if counts is None else counts)


def _lists(
    run: Path,
    queries: Path,
    items: Path,
    qrels: str | os.PathLike[str] | None,
    depth: int | None,
    counts: ReadCounts,
) -> Iterator[RankingList]:
    grades = None if qrels is None else read_qrels(qrels)
    query_texts, item_texts = _run_texts(run, queries, items, counts)
    judged = 0
    for query_id, scores in _blocks(run):
        order = ranked(scores)
        if depth is not None:
            counts.cut_items += max(0, len(order) - depth)
            order = order[:depth]
        labels = None
        if grades is not None:
            of_query = grades.get(query_id, {})
            labels = tuple(float(of_query.get(item, 0)) for item in order)
            judged += sum(item in of_query for item in order)
        counts.lists += 1
        counts.items += len(order)
        yield RankingList(
            query_id,
            query_texts[query_id],
            tuple(order),
            tuple(item_texts[item] for item in order),
            labels,
            tuple(scores[item] for item in order),
        )
    if grades is not None:
        counts.judgements_outside += sum(len(of_query) for of_query in grades.values()) - judged


def _run_texts(
    run: Path, queries: Path, items: Path, counts: ReadCounts
) -> tuple[dict[str, str], dict[str, str]]:
    """The texts that the run needs; the ids remember the line they first stand on, for the message."""
    query_lines: dict[str, int] = {}
    item_lines: dict[str, int] = {}
    for number, query_id, item_id, _ in _run_lines(run):
        query_lines.setdefault(query_id, number)
        item_lines.setdefault(item_id, number)
    both = []
    for what, file, lines in (("query", queries, query_lines), ("item", items, item_lines)):
        texts = read_texts(file, lines.keys(), counts)
        for identifier, number in lines.items():
            if identifier not in texts:
                raise ValueError(
                    f"{run}, line {number}, field '{what}_id': {what} {identifier!r} has no text in {file}"
                )
        both.append(texts)
    return both[0], both[1]


def _blocks(run: Path) -> Iterator[tuple[str, dict[str, float]]]:
    """The scores of one query after the other."""
    done: set[str] = set()
    current: str | None = None
    scores: dict[str, float] = {}
    for number, query_id, item_id, score in _run_lines(run):
        if query_id != current:
            if current is not None:
                yield current, scores
                done.add(current)
            if query_id in done:
                raise ValueError(
                    f"{run}, line {number}, field 'query_id': the lines of query {query_id!r} do not stand "
                    "together; sort the run by query"
                )
            current, scores = query_id, {}
        if item_id in scores:
            raise _twice(run, number, query_id, item_id)
        scores[item_id] = score
    if current is not None:
        yield current, scores


def _fields(path: Path, names: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    for number, line in read_lines(path):
        found = _FIELD.findall(line)
        if len(found) != len(names):
            raise ValueError(
                f"{path}, line {number}: expected {len(names)} fields ({' '.join(names)}), found {len(found)}"
            )
        yield number, found


def _run_lines(path: Path) -> Iterator[tuple[int, str, str, float]]:
    empty = True
    for number, (query_id, _, item_id, _, text, _) in _fields(path, _RUN):
        empty = False
        try:
            score = float(text)
        except ValueError:
            score = math.nan
        if not math.isfinite(score):
            raise ValueError(f"{path}, line {number}, field 'score': expected a finite number, got {text!r}")
        yield number, query_id, item_id, score
    if empty:
        raise ValueError(f"{path}: the file has no run lines")


def _twice(path: Path, number: int, query_id: str, item_id: str) -> ValueError:
    """The error for a pair that occurs twice; the first line is looked up again only now."""
    first = next(n for n, line in read_lines(path) if _FIELD.findall(line)[0:3:2] == [query_id, item_id])
    return ValueError(
        f"{path}, line {number}, field 'item_id': query {query_id!r} has item {item_id!r} before, "
        f"on line {first}"
    )


def _write_run(entries: Iterable[tuple[str, Mapping[str, float]]], path: Path, tag: str) -> int:
    _check_word("tag", tag)
    count = 0
    with replacing(path) as stream:
        for query_id, scores in entries:
            _check_word("query_id", query_id)
            for item in scores:
                _check_word("item_id", item)
                if not math.isfinite(scores[item]):
                    raise ValueError(
                        f"query {query_id!r}, item {item!r}: the score {scores[item]!r} is not finite"
                    )
            for rank, item in enumerate(ranked(scores), 1):
                line = f"{query_id} Q0 {item} {rank} {float(scores[item])!r} {tag}\n"
                stream.write(line.encode("utf-8"))
                count += 1
        if not count:
            raise ValueError(f"{path}: there is nothing to write, the run is empty")
    return count


def _write_qrels(entries: Iterable[tuple[str, Mapping[str, float]]], path: Path) -> int:
    count = 0
    with replacing(path) as stream:
        for query_id, grades in entries:
            _check_word("query_id", query_id)
            for item, grade in grades.items():
                _check_word("item_id", item)
                if not float(grade).is_integer():
                    raise ValueError(
                        f"query {query_id!r}, item {item!r}: qrels need integer grades, not {grade!r}"
                    )
                stream.write(f"{query_id} 0 {item} {int(grade)}\n".encode())
                count += 1
        if not count:
            raise ValueError(f"{path}: there is nothing to write, the qrels are empty")
    return count


def _check_word(field: str, value: str) -> None:
    """TREC files part fields by white space, so no field may hold any (programs differ in what kinds
    count)."""
    if value.split() != [value]:
        raise ValueError(
            f"field {field!r}: {value!r} is empty or holds white space, which a TREC file cannot"
        )
