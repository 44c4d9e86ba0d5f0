"""Ranking lists in files: the layouts of rows that are read, the formats that are written."""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from crossjem_pl.data.rows import Row, column_names, listed, read_rows
from crossjem_pl.data.shards import record, shard_files, write_parquet
from crossjem_pl.data.trec import ReadCounts, write_qrels, write_run
from crossjem_pl.files import as_path, ending, replacing
from crossjem_pl.hashing import content_id
from crossjem_pl.lists import PairGroups, RankingList, counted, shown

__all__ = ["LAYOUTS", "TARGETS", "ListReader", "detect_layout", "read_lists", "target_format", "write_lists"]

log = logging.getLogger(__name__)

LAYOUTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "canonical": (("query", "items"), ("query_id", "item_ids", "labels", "scores")),
    "mteb": (("query", "positive", "negative"), ("query_id",)),
    "columns": (("query", "docs"), ("query_id", "item_ids", "labels", "scores")),
    "pairs": (("query", "item"), ("query_id", "item_id", "label", "score")),
    "sentences": (("sentence1", "sentence2"), ("label", "score")),
    "triplets": (("anchor", "positive"), ("negative",)),
}
"""(required columns, optional columns) of each layout, in the order in which they are tried."""

TARGETS: dict[str, tuple[str, ...]] = {
    "canonical": (".jsonl", ".jsonl.gz", ".parquet"),
    "run": (".run", ".run.gz", ".trec", ".trec.gz"),
    "qrels": (".qrels", ".qrels.gz"),
}
"""Formats that can be written, and the endings by which "auto" picks them."""

ROW_GROUP = 4096

Numbers = tuple[float, ...] | None


def detect_layout(
    path: str | os.PathLike[str], query_column: str | None = None, item_column: str | None = None
) -> str:
    """The name of the first layout whose required columns the source has.

    Args:
        path: the source.
        query_column, item_column: columns that stand for `query` and `items` (or `item`, where its values are texts).

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: no layout fits; lists the columns found and the layouts understood.
    """
    path = as_path(path)
    found = column_names(path)
    for name in filter(None, (query_column, item_column)):
        if name not in found:
            raise ValueError(f"{path}: no column {name!r} (found: {listed(found)})")
    names = [*found, *["query"] * (query_column is not None)]
    if item_column is not None:
        first = next(read_rows(path, [item_column])).values.get(item_column)
        names.append("items" if isinstance(first, list) else "item")
    for layout, (required, _) in LAYOUTS.items():
        if set(required) <= set(names):
            return layout
    raise ValueError(
        f"{path}: its columns, {listed(found)}, are none that are known. Name those of queries and items: "
        "--query-column NAME --item-column NAME (and --label-column, --score-column) of crossjem convert, split and "
        f"check. Known without: {_understood()}"
    )


def read_lists(
    path: str | os.PathLike[str],
    format: str = "auto",
    *,
    label_column: str | None = "labels",
    score_column: str | None = "scores",
    query_column: str | None = None,
    item_column: str | None = None,
    unique: bool = True,
    counts: ReadCounts | None = None,
) -> Iterator[RankingList]:
    """Streams the lists of a file, or of a folder of shards in sorted order.

    Memory is bounded, but for a JSON array, which is read whole, and for pairs and triplets, which are grouped.

    Args:
        path: .jsonl, .ndjson or .json (JSON lines or one array), .csv or .tsv with a header line, each also with .gz;
            .parquet; or a folder of .parquet, .jsonl or .jsonl.gz shards.
        format: a name of `LAYOUTS`, or "auto" (by the columns of the first row or the schema).
        label_column: column to read as the labels; None reads none. A name of your own must be there in every row.
        score_column: the same for the scores.
        query_column, item_column: columns of the queries and of the items, where they have names of their own.
        unique: check that no query id occurs twice. It costs about 200 bytes a list, the only memory that grows with
            the source; switch it off for a source that has been checked.
        counts: filled with what was merged and what was not carried. Without it merges are logged as a warning.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: names the file, the line (row of Parquet, 1-based) and the field of what is malformed; for a
            repeated query id, both lines; for an unknown layout, the columns found and the layouts understood.
    """
    source = as_path(path)
    shard_files(source)
    layout = detect_layout(source, query_column, item_column) if format == "auto" else format
    reader = ListReader(layout, label_column, score_column, counts, query_column, item_column)
    return _lists(source, reader, unique, warn=counts is None)


def _lists(source: Path, reader: ListReader, unique: bool, warn: bool) -> Iterator[RankingList]:
    def made() -> Iterator[tuple[Row, RankingList]]:
        for row in read_rows(source, reader.columns):
            yield from ((row, ranking_list) for ranking_list in reader.lists(row))
        yield from reader.rest()

    seen: dict[str, tuple[Path, int]] = {}
    for row, ranking_list in made():
        if unique:
            file, number = seen.setdefault(ranking_list.query_id, (row.path, row.number))
            if (file, number) != (row.path, row.number):
                before = f"{file}, {row.unit} {number}"
                raise row.error("query_id", f"id {shown(ranking_list.query_id)} occurs before, in {before}")
        reader.counts.lists += 1
        reader.counts.items += len(ranking_list)
        yield ranking_list
    merged = reader.counts.merged_items + reader.counts.merged_queries
    if warn and merged:
        log.warning("%s: merged %s of a text inside one list", source, counted(merged, "exact repeat"))


class ListReader:
    """Makes ranking lists of the rows of one layout.

    Rows without ids get `content_id`s of their texts; a query text that comes again in a later row gets -2, -3, ...
    after the id. Exact repeats of a text inside one list are merged and counted.

    Args:
        layout: a name of `LAYOUTS`.
        label_column, score_column, query_column, item_column: as in `read_lists`.
        counts: filled with what is merged, repeated or not carried.

    Raises:
        ValueError: an unknown layout, or a field named for a layout that has none such.
    """

    def __init__(
        self,
        layout: str,
        label_column: str | None = "labels",
        score_column: str | None = "scores",
        counts: ReadCounts | None = None,
        query_column: str | None = None,
        item_column: str | None = None,
    ) -> None:
        if layout not in LAYOUTS:
            raise ValueError(f"unknown format {layout!r}; there are: {_understood()}")
        self.layout = layout
        self.counts = ReadCounts() if counts is None else counts
        (first, second, *third), optional = LAYOUTS[layout]
        self._required = (query_column or first, item_column or second, *third)
        self._standard = ("label", "score") if "label" in optional else ("labels", "scores")
        standard = dict(zip(("labels", "scores"), self._standard, strict=True))
        self._fields = tuple(standard.get(name or "", name) for name in (label_column, score_column))
        has_numbers = self._standard[0] in optional
        if not has_numbers and not {*self._fields} <= {None, *self._standard}:
            raise ValueError(
                f"rows of the layout {layout!r} have no field for labels or scores, so label_column and "
                "score_column cannot name one"
            )
        self.columns = {*self._required, *(set(optional) - set(self._standard))}
        self.columns |= {name for name in self._fields if has_numbers and name is not None}
        self._queries: Counter[str] = Counter()
        self._groups = PairGroups()
        self._first_rows: dict[str, Row] = {}

    def lists(self, row: Row) -> list[RankingList]:
        """The lists of one row; none where the rows of a query are grouped, see `rest`.

        Raises:
            ValueError: names file, line and field.
        """
        self.counts.leave(*(column for column in row.columns if column not in self.columns))
        if self.layout in ("pairs", "sentences"):
            self._pair(row)
            return []
        if self.layout == "triplets":
            self._sides(row, self._groups, row.text(self._required[0]))
            return []
        groups = PairGroups()
        if self.layout == "mteb":
            self._mteb(row, groups)
        else:
            query_id, query, texts, labels, scores = self._values(row)
            if "item_ids" in row.values:
                ids = tuple(row.identifiers("item_ids"))
                try:
                    return [RankingList(query_id, query, ids, tuple(texts), labels, scores)]
                except ValueError as error:
                    raise ValueError(f"{row.where}: {error}") from None
            if not texts:
                raise row.error(self._required[1], "the list has no items")
            none = (None,) * len(texts)
            for text, label, score in zip(texts, labels or none, scores or none, strict=True):
                groups.add(row.where, query, text, label, score, query_id)
        self.counts.merged_items += groups.merged
        return [self._ordered(ranking_list) for _, ranking_list in groups]

    def rest(self) -> Iterator[tuple[Row, RankingList]]:
        """The lists of pairs and triplets, each with the first row of its query, when all rows were given.

        After the ValueError of a query whose rows make no list comes the next one.
        """
        self.counts.merged_items += self._groups.merged
        return map(self._with_first_row, self._groups)

    def _with_first_row(self, made: tuple[str, RankingList]) -> tuple[Row, RankingList]:
        return self._first_rows[made[0]], self._ordered(made[1])

    def _values(self, row: Row) -> tuple[str, str, list[str], Numbers, Numbers]:
        """Query id, query, items, labels and scores of a row with all items of a query."""
        field = self._required[1]
        texts = row.texts(field)
        labels, scores = (
            None
            if name is None or (name == standard and not row.has(name))
            else tuple(row.numbers(name, len(texts), field))
            for name, standard in zip(self._fields, self._standard, strict=True)
        )
        query = row.text(self._required[0])
        query_id = row.identifier("query_id") if "query_id" in row.values else self._query_id(query)
        return query_id, query, texts, labels, scores

    def _mteb(self, row: Row, groups: PairGroups) -> None:
        """MTEB's re-ranking rows (Muennighoff et al., 2023, arXiv 2210.07316): one list for each query text."""
        queries = row.one_or_more_texts(self._required[0])
        if not queries:
            raise row.error(self._required[0], "the list of queries is empty")
        distinct = list(dict.fromkeys(queries))
        self.counts.merged_queries += len(queries) - len(distinct)
        given = row.identifier("query_id") if row.has("query_id") else None
        for number, query in enumerate(distinct, 1):
            numbered = given if number == 1 else f"{given}-{number}"
            self._sides(row, groups, query, self._query_id(query) if given is None else numbered)

    def _sides(self, row: Row, groups: PairGroups, query: str, query_id: str | None = None) -> None:
        """The positives and negatives of a row, with the labels 1 and 0."""
        optional = self.layout == "triplets" and not row.has("negative")
        positive = row.one_or_more_texts("positive")
        negative = [] if optional else row.one_or_more_texts("negative")
        both = set(positive) & set(negative)
        if both:
            raise row.error("negative", f"text is both positive and negative: {shown(min(both))}")
        if not positive and not negative:
            raise row.error("positive", "the row has no positive and no negative texts")
        for label, texts in ((1.0, positive), (0.0, negative)):
            for text in texts:
                if groups.add(row.where, query, text, label, query_id=query_id) and groups is self._groups:
                    self._first_rows[row.where] = row

    def _pair(self, row: Row) -> None:
        """A row with one item of a query."""
        query, item = self._required
        options: dict[str, Any] = {}
        for name, standard in zip(self._fields, self._standard, strict=True):
            if name is not None and (name != standard or row.has(name)):
                options[standard] = row.scalar(name)
        options |= {name: row.identifier(name) for name in ("query_id", "item_id") if row.has(name)}
        if self._groups.add(row.where, row.text(query), row.text(item), **options):
            self._first_rows[row.where] = row

    def _query_id(self, query: str) -> str:
        """`content_id` of the query, with -2, -3, ... for repeats."""
        identifier = content_id(query)
        self._queries[identifier] += 1
        if self._queries[identifier] == 1:
            return identifier
        self.counts.repeated_queries += 1
        return f"{identifier}-{self._queries[identifier]}"

    def _ordered(self, ranking_list: RankingList) -> RankingList:
        """The items of positives and negatives in the order of their ids, which tells nothing of the labels."""
        if self.layout not in ("mteb", "triplets"):
            return ranking_list
        return ranking_list.select(sorted(range(len(ranking_list)), key=ranking_list.item_ids.__getitem__))


def _understood() -> str:
    layouts = (
        f"{name} ({', '.join(required)}; optional {', '.join(optional)})"
        for name, (required, optional) in LAYOUTS.items()
    )
    return "; ".join(layouts)


def target_format(path: str | os.PathLike[str], format: str = "auto") -> str:
    """The format to write: `format` itself, or by the ending of `path`.

    Raises:
        ValueError: an unknown format, or an ending that tells none.
    """
    if format in TARGETS:
        return format
    known = "; ".join(f"{name} ({', '.join(endings)})" for name, endings in TARGETS.items())
    if format != "auto":
        raise ValueError(f"unknown format to write {format!r}; there are: {known}")
    kind = ending(Path(path))
    for name, endings in TARGETS.items():
        if kind in endings:
            return name
    raise ValueError(f"{path}: the ending tells no format to write; there are: {known}")


def write_lists(
    lists: Iterable[RankingList], path: str | os.PathLike[str], format: str = "auto", *, unique: bool = True
) -> int:
    """Writes lists in flat memory and returns their number. The file appears whole or not at all.

    Args:
        lists: the lists.
        path: the file.
        format: "canonical" (.jsonl, .jsonl.gz or .parquet), "run" (a TREC run of the scores), "qrels" (of the labels),
            or "auto": by the ending.
        unique: check that no query id occurs twice (about 100 bytes a list).

    Raises:
        ValueError: no lists; two lists with one query id; a list that lacks what the format needs.
    """
    target = as_path(path)
    format = target_format(target, format)
    count = 0

    def checked() -> Iterator[RankingList]:
        nonlocal count
        seen: set[str] = set()
        for count, ranking_list in enumerate(lists, 1):  # noqa: B007 - the number that is returned
            if unique and ranking_list.query_id in seen:
                raise ValueError(
                    f"list {shown(ranking_list.query_id)}, field 'query_id': two lists to write have this id"
                )
            if unique:
                seen.add(ranking_list.query_id)
            yield ranking_list
        if not count:
            raise ValueError(f"{target}: there are no lists to write")

    if format == "run":
        write_run(checked(), target)
    elif format == "qrels":
        write_qrels(checked(), target)
    elif ending(target) not in TARGETS["canonical"]:
        raise ValueError(f"{path}: lists are written to names that end in {', '.join(TARGETS['canonical'])}")
    else:
        with replacing(target) as stream:
            if ending(target) == ".parquet":
                write_parquet(checked(), stream, ROW_GROUP)
            else:
                for ranking_list in checked():
                    row = {name: value for name, value in record(ranking_list).items() if value is not None}
                    stream.write(json.dumps(row, ensure_ascii=False).encode("utf-8") + b"\n")
    return count
