"""TREC runs and qrels: read, written, and joined with texts to lists.

A run line is `query_id Q0 item_id rank score tag`, a qrels line `query_id 0 item_id grade`, with spaces or tabs
between the fields. As in trec_eval, the order of a run is the order of its scores (ties: item id, descending); its
rank column and the order of its lines play no part.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crossjem_pl.data.rows import ROW_ENDINGS, parse_number, read_rows
from crossjem_pl.files import as_path, ending, existing, read_lines, replacing
from crossjem_pl.lists import RankingList, as_text, shown

__all__ = [
    "Entry",
    "ReadCounts",
    "group_by_query",
    "ranked",
    "read_qrels",
    "read_run",
    "read_texts",
    "read_trec",
    "write_qrels",
    "write_run",
]

_FIELD = re.compile(r"[^ \t\r\f\v]+")
_RUN = ("query_id", "Q0", "item_id", "rank", "score", "tag")
_QRELS = ("query_id", "iteration", "item_id", "grade")
_GRADE = re.compile(r"[-+]?\d{1,9}", re.ASCII)

Entry = tuple[str, str, str, float]
"""Where it is ("FILE, line 3"), query id, item id, and a score, a grade or a rank."""
Numbers = Mapping[str, Mapping[str, float]]
"""Scores or grades by query id and item id."""


_NOTES = {
    "merged_items": "exact repeats of an item inside its list, merged",
    "merged_queries": "exact repeats of a query inside its row, merged",
    "repeated_queries": "lists that repeat the query of an earlier one, whose ids end in -2, -3, ...",
    "judgements_outside": "judgements of items that are in no list, not carried",
}


@dataclass
class ReadCounts:
    """What a reader did besides reading; complete when the iterator of lists is exhausted. `_NOTES` says what each
    count means; `not_carried` are the columns of the source that no list holds, in order of appearance."""

    lists: int = 0
    items: int = 0
    merged_items: int = 0
    merged_queries: int = 0
    repeated_queries: int = 0
    judgements_outside: int = 0
    not_carried: list[str] = field(default_factory=list)

    def leave(self, *columns: str) -> None:
        """Notes columns that are not carried."""
        self.not_carried += [column for column in columns if column not in self.not_carried]

    def notes(self) -> list[str]:
        """A line for each count that is not 0 and for the columns that were not carried."""
        lines = [f"{note}: {getattr(self, name):,}" for name, note in _NOTES.items() if getattr(self, name)]
        return lines + [f"columns not carried: {', '.join(self.not_carried)}"] * bool(self.not_carried)


def ranked(scores: Mapping[str, float]) -> list[str]:
    """Item ids, best first: score descending, ties by item id descending (trec_eval's rule).

    Ids compare by code point, which is the order of their UTF-8 bytes.
    """
    return sorted(scores, key=lambda item: (scores[item], item), reverse=True)


def read_run(path: str | os.PathLike[str]) -> dict[str, dict[str, float]]:
    """Scores by query id and item id; queries in the order of the file, items in `ranked` order.

    Raises:
        ValueError: names file, line and field, for a malformed line, a score that is not finite, or an item that a
            query has twice; or an empty file.
    """
    run = _by_query(_entries(existing(path, "run"), _RUN))
    return {query_id: {item: scores[item] for item in ranked(scores)} for query_id, scores in run.items()}


def read_qrels(path: str | os.PathLike[str]) -> dict[str, dict[str, int]]:
    """Grades by query id and item id, in the order of the file, negative ones too; errors as of `read_run`."""
    qrels = _by_query(_entries(existing(path, "qrels"), _QRELS))
    return {query_id: {item: int(grade) for item, grade in of.items()} for query_id, of in qrels.items()}


def group_by_query(entries: Iterable[Entry]) -> Iterator[tuple[str, dict[str, float]]]:
    """The numbers of one query after the other, by item id, in flat memory.

    Raises:
        ValueError: names both places, for entries of one query with other queries between them, or an item that a
            query has twice.
    """
    starts: dict[str, str] = {}
    current: str | None = None
    values: dict[str, float] = {}
    for where, query_id, item_id, value in entries:
        if query_id != current:
            if current is not None:
                yield current, values
            if query_id in starts:
                raise ValueError(
                    f"{where}, field 'query_id': query {shown(query_id)} began at {starts[query_id]} already, with "
                    "other queries between; sort by query, for example with `sort -s -k1,1 RUN > SORTED`"
                )
            starts[query_id], current, values = where, query_id, {}
        _put(values, where, query_id, item_id, value)
    if current is not None:
        yield current, values


def write_run(
    run: Numbers | Iterable[RankingList], path: str | os.PathLike[str], tag: str = "crossjem_pl"
) -> int:
    """Writes scores as a run in flat memory, gzip if the name ends in .gz; returns the number of lines.

    Ranks count from 1 in `ranked` order. Scores have the shortest form that reads back as the same float64, hence as
    the same float32.

    Args:
        run: scores by query id and item id, or lists with scores.
        path: the file.
        tag: the last field of every line.

    Raises:
        ValueError: an id or tag that is empty or holds white space, a score that is not finite, a list without scores,
            or no line at all.
    """
    _check_word("tag", tag)

    def lines(query_id: str, scores: Mapping[str, float]) -> Iterator[str]:
        for rank, item in enumerate(ranked(scores), 1):
            score = float(scores[item])
            if not math.isfinite(score):
                raise ValueError(
                    f"query {shown(query_id)}, item {shown(item)}: the score {score!r} is not finite"
                )
            yield f"{query_id} Q0 {item} {rank} {score!r} {tag}"

    return _write(run, "scores", as_path(path), lines)


def write_qrels(qrels: Numbers | Iterable[RankingList], path: str | os.PathLike[str]) -> int:
    """Writes grades as qrels in flat memory, zeros too, gzip if the name ends in .gz; returns the number of lines.

    Args:
        qrels: grades by query id and item id, or lists with labels.
        path: the file.

    Raises:
        ValueError: an id that is empty or holds white space, a grade that is no integer of at most 9 digits, a list
            without labels, or no line at all.
    """

    def lines(query_id: str, grades: Mapping[str, float]) -> Iterator[str]:
        for item, grade in grades.items():
            if not float(grade).is_integer() or abs(grade) >= 10**9:
                raise ValueError(
                    f"query {shown(query_id)}, item {shown(item)}: qrels need integer grades of at most 9 digits, not "
                    f"{shown(grade)}"
                )
            yield f"{query_id} 0 {item} {int(grade)}"

    return _write(qrels, "labels", as_path(path), lines)


def read_texts(
    path: str | os.PathLike[str], wanted: Collection[str] | None = None, counts: ReadCounts | None = None
) -> dict[str, str]:
    """Texts by id.

    Args:
        path: rows with the columns `id` and `text` (JSON, CSV or Parquet, or a folder of shards), or else lines
            `id<TAB>text`, plain or gzip. The id ends at the first tab, later tabs belong to the text; there is no
            quoting and no header.
        wanted: the ids to keep (memory follows them, not the file); None keeps all.
        counts: told the columns that are not carried.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: names file and line, for a malformed line, a blank text or a repeat of an id that is kept; or an
            empty file.
    """
    source = existing(path)
    has_rows = source.is_dir() or (ending(source) in ROW_ENDINGS and not ending(source).startswith(".tsv"))
    texts: dict[str, str] = {}
    empty = True
    for where, identifier, text in _text_rows(source, counts) if has_rows else _text_lines(source):
        empty = False
        if wanted is not None and identifier not in wanted:
            continue
        if identifier in texts:
            raise ValueError(f"{where}, field 'id': id {shown(identifier)} occurs before in this source")
        try:
            texts[identifier] = as_text(text)
        except ValueError as error:
            raise ValueError(f"{where}, field 'text' of id {shown(identifier)}: {error}") from None
    if empty:
        raise ValueError(f"{source}: the file has no rows")
    return texts


def _text_rows(path: Path, counts: ReadCounts | None) -> Iterator[tuple[str, str, object]]:
    """Place, id and text of each row."""
    columns = ("id", "text")
    for row in read_rows(path, columns):
        if counts is not None:
            counts.leave(*(f"{column} (of {path.name})" for column in row.columns if column not in columns))
        yield row.where, row.identifier("id"), row.values.get("text")


def _text_lines(path: Path) -> Iterator[tuple[str, str, object]]:
    """Place, id and text of each line."""
    for number, line in read_lines(path):
        identifier, tab, text = line.partition("\t")
        if not tab or not identifier.strip():
            raise ValueError(f"{path}, line {number}: expected 'id<TAB>text', got {shown(line)}")
        yield f"{path}, line {number}", identifier, text


def read_trec(
    run: str | os.PathLike[str],
    queries: str | os.PathLike[str],
    items: str | os.PathLike[str],
    qrels: str | os.PathLike[str] | None = None,
    counts: ReadCounts | None = None,
) -> Iterator[RankingList]:
    """Streams the lists of a run: queries in the order of the file, items in `ranked` order, scores kept.

    The run is read twice: first for the ids whose texts are needed, then for the lists. So memory holds the texts of
    the run's own queries and items, and the qrels, but not the run.

    Args:
        run: the run; the lines of one query stand together.
        queries: texts of the queries, see `read_texts`.
        items: texts of the items, see `read_texts`.
        qrels: grades, which become labels; an item of the run that is not judged gets 0. None: no labels.
        counts: filled with the judgements that are in no list (the item was not retrieved, or the query is not in the
            run): such relevant items are missed by metrics that see only the lists.

    Raises:
        FileNotFoundError: one of the files does not exist.
        ValueError: names file and line, for what `read_run` and `read_texts` refuse, an id of the run without a text,
            lines of one query that do not stand together, or qrels that judge no query of the run.
    """
    files = {"query": queries, "item": items}
    source = existing(run, "run")
    for what, file in {"queries file": queries, "items file": items, "qrels": qrels or run}.items():
        existing(file, what)
    counts = counts or ReadCounts()
    grades = None if qrels is None else read_qrels(qrels)
    first: dict[str, dict[str, str]] = {"query": {}, "item": {}}  # where each id is first, for the message
    for where, query_id, item_id, _ in _entries(source, _RUN):
        first["query"].setdefault(query_id, where)
        first["item"].setdefault(item_id, where)
    if grades is not None and grades.keys().isdisjoint(first["query"]):
        raise ValueError(
            f"{qrels}: judges no query of {source}; its first query is {shown(next(iter(grades)))}, the run's "
            f"{shown(next(iter(first['query'])))}"
        )
    texts = {what: read_texts(file, first[what], counts) for what, file in files.items()}
    for what, file in files.items():
        for identifier, where in first[what].items():
            if identifier not in texts[what]:
                raise ValueError(
                    f"{where}, field '{what}_id': {what} {shown(identifier)} has no text in {file}"
                )
    counts.judgements_outside = sum(map(len, (grades or {}).values()))
    for query_id, scores in group_by_query(_entries(source, _RUN)):
        order = tuple(ranked(scores))
        labels = None
        if grades is not None:
            of_query = grades.get(query_id, {})
            labels = tuple(float(of_query.get(item, 0)) for item in order)
            counts.judgements_outside -= len(of_query.keys() & scores.keys())
        counts.lists, counts.items = counts.lists + 1, counts.items + len(order)
        item_texts = tuple(texts["item"][item] for item in order)
        numbers = tuple(scores[item] for item in order)
        yield RankingList(query_id, texts["query"][query_id], order, item_texts, labels, numbers)


def _entries(path: Path, names: tuple[str, ...]) -> Iterator[Entry]:
    """The lines of a run or of qrels."""
    name, column = ("grade", 3) if names is _QRELS else ("score", 4)
    empty = True
    for number, line in read_lines(path):
        where, empty = f"{path}, line {number}", False
        fields = _FIELD.findall(line)
        if len(fields) != len(names):
            raise ValueError(
                f"{where}: expected {len(names)} fields ({' '.join(names)}), found {len(fields)}"
            )
        text = fields[column]
        value = parse_number(text) if name == "score" or _GRADE.fullmatch(text) else None
        if value is None:
            wanted = "an integer of at most 9 digits" if name == "grade" else "a finite number"
            raise ValueError(f"{where}, field {name!r}: expected {wanted}, got {shown(text)}")
        yield where, fields[0], fields[2], value
    if empty:
        raise ValueError(f"{path}: the file has no {'judgements' if name == 'grade' else 'run lines'}")


def _by_query(entries: Iterable[Entry]) -> dict[str, dict[str, float]]:
    """All numbers in memory; the lines of a query may stand anywhere."""
    values: dict[str, dict[str, float]] = {}
    for where, query_id, item_id, value in entries:
        _put(values.setdefault(query_id, {}), where, query_id, item_id, value)
    return values


def _put(values: dict[str, float], where: str, query_id: str, item_id: str, value: float) -> None:
    if item_id in values:
        raise ValueError(
            f"{where}, field 'item_id': query {shown(query_id)} has item {shown(item_id)} before"
        )
    values[item_id] = value


def _write(
    source: Numbers | Iterable[RankingList],
    name: str,
    path: Path,
    lines: Callable[[str, Mapping[str, float]], Iterable[str]],
) -> int:
    """Writes the lines of each query, of lists those of their labels or scores; returns the number of lines."""
    count = 0
    with replacing(path) as stream:
        for entry in source.items() if isinstance(source, Mapping) else source:
            if isinstance(entry, RankingList):
                numbers = getattr(entry, name)
                if numbers is None:
                    raise ValueError(f"list {entry.query_id!r}, field {name!r}: there are none to write")
                entry = entry.query_id, dict(zip(entry.item_ids, numbers, strict=True))
            query_id, values = entry
            _check_word("query_id", query_id)
            for item in values:
                _check_word("item_id", item)
            for line in lines(query_id, values):
                stream.write(f"{line}\n".encode())
                count += 1
        if not count:
            raise ValueError(f"{path}: there is nothing to write, the run or qrels are empty")
    return count


def _check_word(name: str, value: str) -> None:
    """The fields of TREC files end at white space, so none may hold any (programs differ in what counts)."""
    if value.split() != [value]:
        raise ValueError(
            f"field {name!r}: {shown(value)} is empty or holds white space, which a TREC file cannot"
        )
