"""`check`: what ranking lists hold, and what is wrong with them.

Each list is read once and put into two tables, `lists` and `items`. What concerns a single row is noted while it is
read; every other kind of problem is a query over the tables, which may be larger than the memory.
"""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from crossjem_pl.data.database import Database
from crossjem_pl.data.formats import ListReader, detect_layout
from crossjem_pl.data.rows import Row, read_rows
from crossjem_pl.data.shards import shard_files
from crossjem_pl.lists import RankingList
from crossjem_pl.progress import track
from crossjem_pl.text import ShortTextTokenizer

__all__ = ["KINDS", "CheckReport", "FileReport", "Kind", "Problem", "check", "normalise"]

Grade = Literal["error", "warning", "note"]
T = TypeVar("T")

_EXAMPLES, _EXAMPLE_LENGTH = 3, 200
_MANY = 0.01  # texts cut and tokens unknown are a warning above this share
_ENOUGH = 10  # lists from which the order of labels and the sign of scores are judged
_TABLES = {
    "all_lists": "source INT, list BIGINT, place VARCHAR, query_id VARCHAR, query VARCHAR, text VARCHAR, words INT, "
    "tokens INT, unknown INT",
    "all_items": "source INT, list BIGINT, position INT, item_id VARCHAR, item VARCHAR, text VARCHAR, words INT, "
    "tokens INT, unknown INT, label DOUBLE, score DOUBLE",
}
# midrank: of a score in its list, so that positives' midranks less their least sum count the pairs in which a positive
# is above another item, ties half (Mann and Whitney, 1947)
_VIEWS = """
CREATE OR REPLACE VIEW lists AS SELECT * FROM all_lists WHERE source = {source};
CREATE OR REPLACE VIEW items AS SELECT * FROM all_items WHERE source = {source};
CREATE OR REPLACE VIEW training_lists AS SELECT * FROM all_lists WHERE source = 0;
CREATE OR REPLACE VIEW training_items AS SELECT * FROM all_items WHERE source = 0;
CREATE OR REPLACE VIEW texts AS SELECT list, -1 AS position, 'query' AS name, query AS raw, tokens, unknown FROM lists
    UNION ALL SELECT list, position, 'item ' || item_id, item, tokens, unknown FROM items;
CREATE OR REPLACE TABLE per_list AS SELECT list, n, labelled, scored, positives, first, last, lowest, low, high,
    positives * (n - positives) AS pairs,
    CASE WHEN scored > 0 THEN above - positives * (positives + 1) / 2 END AS agreeing FROM (
    SELECT list, count(*) AS n, count(label) AS labelled, count(score) AS scored, min(label) AS lowest,
        count(*) FILTER (label > 0) AS positives, min(position) FILTER (label > 0) AS first,
        max(position) FILTER (label > 0) AS last, min(score) AS low, max(score) AS high,
        sum(midrank) FILTER (label > 0) AS above FROM (
        SELECT *, rank() OVER (PARTITION BY list ORDER BY score)
            + (count(*) OVER (PARTITION BY list, score) - 1) / 2 AS midrank FROM items) GROUP BY list);
"""


class Kind(NamedTuple):
    """One kind of problem: "error" (makes a result wrong), "warning" (most likely a mistake) or "note"; what is
    counted; the problem in a few words; a query for list, position and detail of each occurrence ("": found while
    reading); and the total that the occurrences are a part of."""

    grade: Grade
    unit: str
    text: str
    sql: str = ""
    of: str = ""


def _again(partition: str, table: str, detail: str, condition: str = "true") -> str:
    """Rows that a row of the same partition precedes."""
    position = "position" if table == "items" else "0"
    return (
        f"SELECT list, {position} AS position, {detail} AS detail FROM {table} WINDOW w AS (PARTITION BY {partition} "
        f"ORDER BY list, {position}) QUALIFY row_number() OVER w > 1 AND {condition}"
    )


def _lists(condition: str, detail: str = "''") -> str:
    return f"SELECT list, 0 AS position, {detail} AS detail FROM per_list WHERE {condition}"


def _texts(condition: str, detail: str) -> str:
    return f"SELECT list, position, ', ' || name || ': ' || {detail} AS detail FROM texts WHERE {condition}"


_FIRST = "', first in ' || first_value(place) OVER w"
_OTHER_TEXT = _again(
    "item_id", "items", "', item ' || item_id || ': ' || item", "text <> first_value(text) OVER w"
)
_SAME_ITEM = "', items ' || first_value(item_id) OVER w || ' and ' || item_id || ': ' || item"
_TWO_LABELS = f"{_SAME_ITEM} || format(', labels {{:g}} and {{:g}}', first_value(label) OVER w, label)"
_NOT_REPEATED = (
    "(SELECT *, row_number() OVER (PARTITION BY query_id ORDER BY list) AS times FROM lists) lists"
)

# fmt: off
KINDS: dict[str, Kind] = {
    "unreadable-file": Kind("error", "files", "reading stopped here, the rest of the file was not checked"),
    "malformed-row": Kind("error", "rows", "the row is not a list and was left out"),
    "repeated-query-id": Kind(
        "error", "lists", "query id occurs before", _again("query_id", "lists", _FIRST)),
    "no-tokens": Kind(
        "error", "texts", "text has no tokens for this encoder", _texts("tokens = 0", "raw")),
    "leaked-positive": Kind(
        "error", "pairs", "query with the same positive item is in the training lists",
        "SELECT list, position, ', item ' || item_id || ': ' || item AS detail FROM items JOIN lists USING (list) "
        "WHERE label > 0 AND (lists.text, items.text) IN (SELECT (l.text, i.text) FROM training_items i "
        "JOIN training_lists l USING (list) WHERE i.label > 0)", of="positive items"),
    "repeated-query": Kind(
        "warning", "lists", "query text occurs before under another id",
        _again("text", _NOT_REPEATED, f"', ' || query || {_FIRST}", "times = 1")),
    "leaked-query": Kind(
        "warning", "lists", "query text is in the training lists",
        "SELECT list, 0 AS position, ', ' || query AS detail FROM lists "
        "WHERE text IN (SELECT text FROM training_lists)", of="lists"),
    "conflicting-labels": Kind(
        "warning", "items", "text occurs before in the same list with another label",
        _again("list, text", "items", _TWO_LABELS, "label <> first_value(label) OVER w")),
    "item-id-texts": Kind(
        "warning", "items", "item id has another text than before", _OTHER_TEXT, "ids that come again"),
    "no-positive": Kind(
        "warning", "lists", "no item has a label above 0", _lists("labelled > 0 AND positives = 0"), "labelled"),
    "all-positive": Kind(
        "warning", "lists", "every item has a label above 0", _lists("lowest > 0 AND n > 1"), "labelled"),
    "labels-missing": Kind(
        "warning", "lists", "no labels, though other lists have them",
        _lists("labelled = 0 AND (SELECT max(labelled) FROM per_list) > 0")),
    "scores-missing": Kind(
        "warning", "lists", "no scores, though other lists have them",
        _lists("scored = 0 AND (SELECT max(scored) FROM per_list) > 0")),
    "constant-scores": Kind(
        "warning", "lists", "all scores of the list are equal",
        _lists("low = high AND n > 1", "format(', all {:g}', low)"), "scored"),
    "scores-outside": Kind(
        "warning", "lists", "scores outside 0 to 1, so they are no probabilities",
        _lists("low < 0 OR high > 1", "format(', {:g} to {:g}', low, high)"), "scored"),
    "scores-reversed": Kind(
        "warning", "lists", "positives are scored below the others in most of the pairs",
        _lists("agreeing < pairs / 2"), "mixed and scored"),
    "positives-first": Kind(
        "warning", "lists", "positives stand before all others: the order tells the labels",
        _lists("pairs > 0 AND last + 1 = positives"), "mixed"),
    "cut-queries": Kind(
        "note", "queries", "longer than the limit, will be cut",
        _texts("tokens > {limit} AND position < 0", "tokens || ' tokens, limit {limit}'"), "lists"),
    "cut-items": Kind(
        "note", "items", "longer than the limit, will be cut",
        _texts("tokens > {limit} AND position >= 0", "tokens || ' tokens, limit {limit}'"), "items"),
    "unknown-tokens": Kind(
        "note", "texts", "with tokens that the encoder does not know", _texts("unknown > 0", "raw"), "texts"),
    "repeated-item": Kind(
        "note", "items", "text occurs before in the same list under another id",
        _again("list, text", "items", _SAME_ITEM)),
    "merged-repeats": Kind("note", "texts", "exact repeats inside one row, merged while reading"),
    "numbered-items": Kind(
        "note", "items", "item ids look like numbers inside their list, not like identifiers", _OTHER_TEXT,
        "ids that come again"),
    "no-targets": Kind(
        "note", "lists", "neither labels nor scores in any list: nothing to train on",
        _lists("(SELECT max(labelled) + max(scored) FROM per_list) = 0")),
    "single-item": Kind("note", "lists", "one item only, nothing to rank", _lists("n = 1")),
    "columns-not-read": Kind("note", "columns", "not read"),
}
# fmt: on
"""Every problem by its code. The grade of cut texts and unknown tokens rises to a warning above 1%."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A kind of problem that was found: its code in `KINDS`, grade and text; how often, in which unit, of how many in
    all (None: not known); and the first three occurrences, each with its place."""

    code: str
    grade: Grade
    text: str
    count: int
    unit: str
    of: int | None
    examples: tuple[str, ...]


@dataclass(frozen=True)
class FileReport:
    """One source.

    Args:
        source: as it was named.
        role: training lists, or lists compared with them.
        figures: numbers and distributions (`Summary`) by name (docs/checking.md), None where nothing is counted.
        problems: what was found, errors first.
    """

    source: str
    role: Literal["train", "test"]
    figures: dict[str, Any]
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class CheckReport:
    """The training lists first, then the test lists in the order in which they were named."""

    files: tuple[FileReport, ...]

    def counts(self) -> dict[Grade, int]:
        """How many problems of each grade were found, each kind in each file counted once."""
        found = Counter(problem.grade for file in self.files for problem in file.problems)
        return {"error": found["error"], "warning": found["warning"], "note": found["note"]}

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {"problems": self.counts(), **asdict(self)}


def normalise(text: str) -> str:
    """The text in NFKC, case-folded, its white space collapsed to single blanks."""
    if text.isascii():
        return " ".join(text.lower().split())
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())


def check(
    lists: Path,
    tokenizer: ShortTextTokenizer,
    *,
    tests: Sequence[Path] = (),
    max_query_tokens: int = 64,
    max_item_tokens: int = 32,
    label_column: str | None = "labels",
    score_column: str | None = "scores",
    query_column: str | None = None,
    item_column: str | None = None,
) -> CheckReport:
    """Reads lists once, goes on after malformed rows, and grades what it finds.

    Memory grows neither with the lists nor with their texts: about 1 GB at the most, and temporary files about as large
    as the lists. Texts are compared normalised: Unicode NFKC, case-folded, white space collapsed.

    Args:
        lists: the training lists, a file or folder in any layout that `read_lists` understands.
        tokenizer: of the encoder that is to be trained.
        tests: other lists, checked in the same way and compared with the first.
        max_query_tokens, max_item_tokens: limits, to count what they would cut.
        label_column: column of the labels. A name other than "labels" must be in every row.
        score_column: the same for the scores.
        query_column: column of the queries, if it has a name of its own.
        item_column: column of the items, likewise.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: no layout fits a source, its first row cannot be read at all, or a limit is below 1.
    """
    if min(max_query_tokens, max_item_tokens) < 1:
        raise ValueError("max_query_tokens and max_item_tokens must be at least 1")
    limits = {"lists": max_query_tokens, "items": max_item_tokens}
    reports = []
    with Database(_TABLES) as database:
        for number, path in enumerate((lists, *tests)):
            layout = detect_layout(path, query_column, item_column)
            reader = ListReader(layout, label_column, score_column, None, query_column, item_column)
            source = _Source(path, reader)
            progress = track(source.lists(), path.name)
            for index, (row, ranking_list) in enumerate(progress):
                _add(database, (number, index), source.place(row), ranking_list, tokenizer)
            database.execute(_VIEWS.format(source=number))
            reports.append(_report(database, source, number > 0, limits))
    return CheckReport(tuple(reports))


class _Source:
    """Reads on after a malformed row, whose mistake is noted; the lists of the other rows come out.

    Only what breaks the file itself (a line that is no JSON, damaged gzip or Parquet) ends the reading of that file.
    """

    def __init__(self, path: Path, reader: ListReader) -> None:
        self.path = path
        self.rows = 0
        self.counts: Counter[str] = Counter()
        self.examples: defaultdict[str, list[str]] = defaultdict(list)
        self._reader = reader

    def place(self, row: Row) -> str:
        """ "line 3", with the name of the shard in front where the source is a folder."""
        inside = f"{row.unit} {row.number}"
        return inside if row.path == self.path else f"{row.path.name}, {inside}"

    def lists(self) -> Iterator[tuple[Row, RankingList]]:
        """The lists with the rows that they come from."""
        for file in shard_files(self.path):
            for row in self._sound("unreadable-file", read_rows(file, self._reader.columns, empty=True)):
                self.rows += 1
                try:
                    yield from ((row, ranking_list) for ranking_list in self._reader.lists(row))
                except ValueError as error:
                    self._note("malformed-row", str(error).replace(row.where, self.place(row)))
        if not self.rows and not self.counts:
            self._note("unreadable-file", f"{self.path}: the file has no rows")
        yield from self._sound("malformed-row", self._reader.rest())
        counts = self._reader.counts
        if merged := counts.merged_items + counts.merged_queries:
            self._note("merged-repeats", str(self.path), merged)
        for column in counts.not_carried:
            self._note("columns-not-read", column)

    def _sound(self, code: str, made: Iterator[T]) -> Iterator[T]:
        """What an iterator gives; a ValueError is noted, and what the iterator gives after it comes too."""
        while True:
            try:
                yield next(made)
            except StopIteration:
                return
            except ValueError as error:
                self._note(code, str(error))

    def _note(self, code: str, example: str, count: int = 1) -> None:
        """Counts occurrences of a problem; the first examples are kept."""
        self.counts[code] += count
        self.examples[code] += [example][: _EXAMPLES - len(self.examples[code])]


def _add(
    database: Database,
    index: tuple[int, int],
    place: str,
    ranking_list: RankingList,
    tokenizer: ShortTextTokenizer,
) -> None:
    """Puts a list into the tables, with the numbers of its source and of itself."""
    texts, unknown = (ranking_list.query, *ranking_list.items), tokenizer.hf.unk_token_id
    tokens = tokenizer.whole(texts)
    rows_of_ids = (tokens.row(i) for i in range(len(texts)))
    query, *items = [
        (text, normalise(text), len(text.split()), len(ids), 0 if unknown is None else int((ids == unknown).sum()))
        for text, ids in zip(texts, rows_of_ids, strict=True)
    ]  # fmt: skip
    labels, scores = ranking_list.labels, ranking_list.scores
    database.add("all_lists", *index, place, ranking_list.query_id, *query)
    nothing = (None,) * len(ranking_list)
    rows = zip(ranking_list.item_ids, items, labels or nothing, scores or nothing, strict=True)
    for position, (item_id, item, label, score) in enumerate(rows):
        database.add("all_items", *index, position, item_id, *item, label, score)


def _report(database: Database, source: _Source, is_test: bool, limits: Mapping[str, int]) -> FileReport:
    """The figures and the problems of the source that the views show."""
    figures, counts = _figures(database, source, is_test, limits), source.counts
    totals = database.record(
        "SELECT count(*) AS lists, sum(n)::BIGINT AS items, (count(*) + sum(n))::BIGINT AS texts, "
        "count(*) FILTER (labelled > 0) AS labelled, count(*) FILTER (scored > 0) AS scored, "
        'count(*) FILTER (pairs > 0) AS mixed, count(*) FILTER (pairs > 0 AND scored > 0) AS "mixed and scored", '
        'sum(positives)::BIGINT AS "positive items" FROM per_list'
    )
    again = totals["ids that come again"] = figures["items"] - figures["distinct_item_ids"]
    for code, kind in KINDS.items():
        if not kind.sql or (code.startswith("leaked-") and not is_test):
            continue
        sql = kind.sql.replace("{limit}", str(limits["lists" if code == "cut-queries" else "items"]))
        counts[code] = database.value(f"SELECT count(*) FROM ({sql})")
        if counts[code]:
            examples = (
                f"SELECT place || ': ' || lists.query_id || detail FROM ({sql}) JOIN lists USING (list)"
            )
            rows = database.rows(f"{examples} ORDER BY list, position LIMIT {_EXAMPLES}")
            source.examples[code] = [example for (example,) in rows]

    # some kinds are problems only where most lists have them
    numbered = counts["item-id-texts"] >= 20 and counts["item-id-texts"] > again / 2
    counts["item-id-texts" if numbered else "numbered-items"] = 0
    agreement = figures["agreement"]
    if agreement is None or agreement >= 0.5 or totals["mixed and scored"] < _ENOUGH:
        counts["scores-reversed"] = 0
    mixed = database.rows("SELECT n, positives, count(*) FROM per_list WHERE pairs > 0 GROUP BY ALL")
    by_chance = sum(lists / math.comb(n, positives) for n, positives, lists in mixed)
    if totals["mixed"] < _ENOUGH or not 2 * by_chance < 0.9 * totals["mixed"] <= counts["positives-first"]:
        counts["positives-first"] = 0

    problems = []
    for code, kind in KINDS.items():
        if not counts[code]:
            continue
        many = (
            code in ("cut-queries", "cut-items", "unknown-tokens") and counts[code] > _MANY * totals[kind.of]
        )
        grade: Grade = "warning" if many else kind.grade
        shown = tuple(textwrap.shorten(text, _EXAMPLE_LENGTH) for text in source.examples[code])
        problems.append(Problem(code, grade, kind.text, counts[code], kind.unit, totals.get(kind.of), shown))
    problems.sort(key=lambda problem: ("error", "warning", "note").index(problem.grade))
    return FileReport(str(source.path), "test" if is_test else "train", figures, tuple(problems))


def _figures(database: Database, source: _Source, is_test: bool, limits: Mapping[str, int]) -> dict[str, Any]:
    """The figures of the source that the views show, by name."""
    labels = list(
        database.rows(
            "SELECT label, count(*) FROM items WHERE label IS NOT NULL GROUP BY ALL ORDER BY ALL LIMIT 11"
        )
    )
    lengths = {
        table: {
            "words": database.summary("words", table),
            "tokens": database.summary("tokens", table),
            **database.record(
                f"SELECT sum(tokens) / sum(words) AS tokens_per_word, {limit} AS limit, "
                f"count(*) FILTER (tokens > {limit}) AS cut_texts, "
                f"coalesce(sum(tokens - {limit}) FILTER (tokens > {limit}), 0)::BIGINT AS cut_tokens FROM {table}"
            ),
        }
        for table, limit in limits.items()
    }
    figures = {
        "rows": source.rows,
        "refused_rows": source.counts["malformed-row"],
        **database.record("SELECT count(*) AS lists, count(DISTINCT text) AS distinct_queries FROM lists"),
        **database.record(
            "SELECT count(*) AS items, count(DISTINCT text) AS distinct_items, "
            "count(DISTINCT item_id) AS distinct_item_ids FROM items"
        ),
        "items_per_list": database.summary("n", "per_list"),
        "queries": lengths["lists"],
        "item_texts": lengths["items"],
        "labels": database.summary("label", "items"),
        "label_counts": labels if 0 < len(labels) <= 10 else None,
        "positives": database.summary("positives", "per_list WHERE labelled > 0"),
        "scores": database.summary("score", "items"),
        **database.record(
            "SELECT avg(first + 1) FILTER (pairs > 0) AS first_positive, "
            "avg((n + 1) / (positives + 1)) FILTER (pairs > 0) AS first_positive_random, "
            "sum(agreeing) FILTER (pairs > 0) / sum(pairs) FILTER (scored > 0) AS agreement FROM per_list"
        ),
    }
    seen = "SELECT count(DISTINCT text) FROM items WHERE text IN (SELECT text FROM training_items)"
    return {**figures, "seen_items": database.value(seen)} if is_test else figures
