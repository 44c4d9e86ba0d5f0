"""`check`: what ranking lists hold, and what is wrong with them.

Each list is read once and put into two tables, `lists` and `items`. What concerns a single row is noted while it is
read; every other kind of problem is a query over the tables, which may be larger than the memory.
"""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from crossjem_pl.data.database import Database
from crossjem_pl.data.formats import ListReader, detect_layout
from crossjem_pl.data.rows import Row, read_rows
from crossjem_pl.data.shards import shard_files
from crossjem_pl.lists import RankingList
from crossjem_pl.text import ShortTextTokenizer

__all__ = [
    "KINDS",
    "CheckReport",
    "FileReport",
    "Kind",
    "Problem",
    "check",
    "normalise",
]

Grade = Literal["error", "warning", "note"]
Progress = Callable[[Iterable[tuple[Row, RankingList]], str], Iterable[tuple[Row, RankingList]]]

EXAMPLES = 3
"""How many occurrences of a problem are shown."""
_EXAMPLE_LENGTH = 200
_MANY = 0.01  # texts cut and tokens unknown are a warning above this share
_ENOUGH = 10  # lists from which the order of labels and the sign of scores are judged
_TABLES = {
    "all_lists": "source INT, list BIGINT, place VARCHAR, query_id VARCHAR, query VARCHAR, text VARCHAR, words INT, "
    "tokens INT, unknown INT, labelled BOOL, scored BOOL",
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


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of problem.

    Args:
        grade: "error" (cannot be read, or makes a result wrong), "warning" (most likely a mistake) or "note".
        unit: what is counted.
        text: the problem in a few words.
        sql: a query for the list, the position in it, and what to tell of each occurrence; "" if it is found otherwise.
        of: the figure that it is a part of.
    """

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
    "malformed-row": Kind("error", "rows", "the row is not a list"),
    "blank-text": Kind("error", "texts", "blank query or item"),
    "repeated-item-id": Kind("error", "items", "item id occurs before in the same list"),
    "not-finite": Kind("error", "numbers", "label or score is NaN, infinite or no number"),
    "unequal-lengths": Kind("error", "fields", "ids, labels or scores in another number than the items"),
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
    """A kind of problem that was found.

    Args:
        code: key of `KINDS`.
        grade: how bad it is.
        text: the problem in a few words.
        count: how often it was found, in `unit`.
        unit: what was counted.
        of: how many there are in all, where that is known.
        examples: the first three occurrences, each with its place.
    """

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
        figures: numbers and distributions (`Summary`) by name; None where there is nothing to count.
            rows, refused_rows: rows read, and those with mistakes, whose lists are in none of the other figures.
            lists, items, items_per_list: how many; items a list.
            queries, item_texts: words and tokens a text, nothing cut (an item counts once in every list that has it);
            pieces_per_word, near 1.2 for English under an English WordPiece vocabulary, 2 and more where words are
            rare to the encoder; the limit in tokens, cut_texts longer than it, and cut_tokens beyond it.
            distinct_queries, distinct_items, distinct_item_ids: by normalised text, and by id.
            labels, scores: over items. label_counts: (label, items) ascending, None above 50 distinct labels.
            positives: items with a label above 0 a list, over lists with labels.
            first_positive, first_positive_random: mean rank of the first positive in the stored order and in random
            order, over lists with positives and others.
            agreement: share of the (positive, other) pairs of a list in which the positive has the higher score, ties
            counted half, over all lists.
            seen_items: distinct item texts that the training lists have as well.
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
    labels_field: str | None = "labels",
    scores_field: str | None = "scores",
    progress: Progress | None = None,
) -> CheckReport:
    """Reads lists once, goes on after malformed rows, and grades what it finds.

    Memory grows neither with the lists nor with their texts: about 1 GB at the most, and temporary files about as large
    as the lists. Texts are compared normalised: Unicode NFKC, case-folded, white space collapsed.

    Args:
        lists: the training lists, a file or folder in any layout that `read_lists` understands.
        tokenizer: of the encoder that is to be trained.
        tests: other lists, checked in the same way and compared with the first.
        max_query_tokens, max_item_tokens: limits, to count what they would cut.
        labels_field: column of the labels, None for none. A name other than "labels" must be in every row.
        scores_field: the same for the scores.
        progress: wraps the lists of a source, given with its name, to show how far it is.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: no layout fits a source, its first row cannot be read at all, or a limit is below 1.
    """
    limits = {"max_query_tokens": max_query_tokens, "max_item_tokens": max_item_tokens}
    for name, limit in limits.items():
        if limit < 1:
            raise ValueError(f"{name} must be at least 1, got {limit}")
    reports = []
    with Database(_TABLES) as database:
        for number, path in enumerate((lists, *tests)):
            source = _Source(path, labels_field, scores_field)
            pairs = source.lists() if progress is None else progress(source.lists(), str(path))
            for index, (row, ranking_list) in enumerate(pairs):
                _add(database, number, index, source.place(row), ranking_list, tokenizer)
            database.execute(_VIEWS.format(source=number))
            reports.append(_report(database, source, number, max_query_tokens, max_item_tokens))
    return CheckReport(tuple(reports))


class _Source:
    """Reads on after a malformed row: its mistakes are noted, the lists of the other rows come out.

    Only what breaks the file itself (a line that is no JSON, damaged gzip or Parquet) ends the reading of that file.
    """

    def __init__(self, path: Path, labels_field: str | None, scores_field: str | None) -> None:
        self.path = path
        self.rows = self.refused_rows = 0
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}
        self._fields = (labels_field, scores_field)
        self._reader = ListReader(detect_layout(path), labels_field, scores_field)

    def note(self, code: str, example: str, count: int = 1) -> None:
        """Counts occurrences of a problem; the first examples are kept."""
        self.counts[code] += count
        examples = self.examples.setdefault(code, [])
        if len(examples) < EXAMPLES:
            examples.append(example)

    def place(self, row: Row) -> str:
        """ "line 3", with the name of the shard in front where the source is a folder."""
        inside = f"{row.unit} {row.number}"
        return inside if row.path == self.path else f"{row.path.name}, {inside}"

    def lists(self) -> Iterator[tuple[Row, RankingList]]:
        """The lists with the rows that they come from."""
        for file in shard_files(self.path):
            rows = read_rows(file, self._reader.columns)
            while True:
                try:
                    row = next(rows, None)
                except ValueError as error:
                    self.note("unreadable-file", str(error))
                    break
                if row is None:
                    break
                self.rows += 1
                try:
                    found = self._reader.lists(row)
                except ValueError as error:
                    self.refused_rows += 1
                    self._refuse(row, str(error))
                else:
                    yield from ((row, ranking_list) for ranking_list in found)
        try:
            yield from self._reader.rest()
        except ValueError as error:
            self.note("malformed-row", str(error))
        merged = self._reader.counts.merged_items + self._reader.counts.merged_queries
        if merged:
            self.note("merged-repeats", str(self.path), merged)
        for column in self._reader.counts.not_carried:
            self.note("columns-not-read", column)

    def _refuse(self, row: Row, error: str) -> None:
        """Notes all mistakes of a row that have a kind of their own, or else the error that was raised."""
        before = self.counts.total()
        place = self.place(row)
        for field in (
            "query",
            "items",
            "docs",
            "positive",
            "negative",
            "item",
            "anchor",
            "sentence1",
            "sentence2",
        ):
            for position, value in _entries(row.values.get(field)):
                if isinstance(value, str) and not value.strip():
                    self.note("blank-text", f"{place}, field {field!r}{position}")
        items = row.values.get("items", row.values.get("docs"))
        for column in filter(None, ("item_ids", *self._fields)):
            values = row.values.get(column)
            if not isinstance(values, list):
                continue
            if isinstance(items, list) and len(values) != len(items):
                problem = f"{len(values)} values for {len(items)} items"
                self.note("unequal-lengths", f"{place}, field {column!r}: {problem}")
            if column == "item_ids":
                for value, count in Counter(map(str, values)).items():
                    if count > 1:
                        self.note("repeated-item-id", f"{place}, field {column!r}: id {value!r}", count - 1)
                continue
            for position, value in _entries(values):
                if not isinstance(value, (int, float)) or not math.isfinite(value):
                    self.note("not-finite", f"{place}, field {column!r}{position}: {value!r}")
        if self.counts.total() == before:
            self.note("malformed-row", error.replace(row.where, place))


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """A value, or the entries of a list, with the words for their place."""
    if isinstance(value, list):
        yield from ((f", position {i}", entry) for i, entry in enumerate(value))
    else:
        yield "", value


def _add(
    database: Database,
    source: int,
    index: int,
    place: str,
    ranking_list: RankingList,
    tokenizer: ShortTextTokenizer,
) -> None:
    """Puts a list into the tables."""
    texts = (ranking_list.query, *ranking_list.items)
    lengths = []
    for text, ids in zip(texts, tokenizer.ids(texts), strict=True):
        unknown = (
            int((ids == tokenizer.hf.unk_token_id).sum()) if tokenizer.hf.unk_token_id is not None else 0
        )
        lengths.append((normalise(text), len(text.split()), len(ids), unknown))
    labels, scores = ranking_list.labels, ranking_list.scores
    database.add(
        "all_lists", source, index, place, ranking_list.query_id, ranking_list.query, *lengths[0],
        labels is not None, scores is not None,
    )  # fmt: skip
    for i, (item_id, item) in enumerate(zip(ranking_list.item_ids, ranking_list.items, strict=True)):
        database.add(
            "all_items", source, index, i, item_id, item, *lengths[i + 1],
            None if labels is None else labels[i], None if scores is None else scores[i],
        )  # fmt: skip


def _report(
    database: Database, source: _Source, number: int, max_query_tokens: int, max_item_tokens: int
) -> FileReport:
    figures = _figures(database, source, number, max_query_tokens, max_item_tokens)
    counts, again = source.counts, figures["items"] - figures["distinct_item_ids"]
    names = ("labelled", "scored", "mixed", "mixed and scored")
    of = dict(
        zip(
            names,
            database.row(
                "SELECT count(*) FILTER (labelled > 0), count(*) FILTER (scored > 0), count(*) FILTER (pairs > 0), "
                "count(*) FILTER (pairs > 0 AND scored > 0) FROM per_list"
            ),
            strict=True,
        )
    )
    of |= {name: figures[name] for name in ("lists", "items")}
    of["texts"] = figures["lists"] + figures["items"]
    of["ids that come again"] = again
    of["positive items"] = database.value("SELECT count(*) FROM items WHERE label > 0")
    for code, kind in KINDS.items():
        if not kind.sql or (number == 0 and code.startswith("leaked-")):
            continue
        sql = kind.sql.replace("{limit}", str(max_query_tokens if code == "cut-queries" else max_item_tokens))
        counts[code] = database.value(f"SELECT count(*) FROM ({sql})")
        if counts[code]:
            found = f"SELECT place || ': ' || lists.query_id || detail FROM ({sql}) JOIN lists USING (list)"
            rows = database.rows(f"{found} ORDER BY list, position LIMIT {EXAMPLES}")
            source.examples[code] = [example for (example,) in rows]

    # some kinds are problems only where most lists have them
    numbered = counts["item-id-texts"] >= 20 and counts["item-id-texts"] > again / 2
    counts["item-id-texts" if numbered else "numbered-items"] = 0
    if figures["agreement"] is None or figures["agreement"] >= 0.5 or of["mixed and scored"] < _ENOUGH:
        counts["scores-reversed"] = 0
    mixed = database.rows("SELECT n, positives, count(*) FROM per_list WHERE pairs > 0 GROUP BY ALL")
    by_chance = sum(lists / math.comb(n, positives) for n, positives, lists in mixed)
    if of["mixed"] < _ENOUGH or not 2 * by_chance < 0.9 * of["mixed"] <= counts["positives-first"]:
        counts["positives-first"] = 0

    problems = []
    for code, kind in KINDS.items():
        if not counts[code]:
            continue
        many = code in ("cut-queries", "cut-items", "unknown-tokens") and counts[code] > _MANY * of[kind.of]
        grade: Grade = "warning" if many else kind.grade
        examples = tuple(textwrap.shorten(text, _EXAMPLE_LENGTH) for text in source.examples[code])
        problems.append(Problem(code, grade, kind.text, counts[code], kind.unit, of.get(kind.of), examples))
    problems.sort(key=lambda problem: ("error", "warning", "note").index(problem.grade))
    return FileReport(str(source.path), "train" if number == 0 else "test", figures, tuple(problems))


def _figures(
    database: Database, source: _Source, number: int, max_query_tokens: int, max_item_tokens: int
) -> dict[str, Any]:
    lists, queries = database.row("SELECT count(*), count(DISTINCT text) FROM lists")
    items, texts, ids = database.row(
        "SELECT count(*), count(DISTINCT text), count(DISTINCT item_id) FROM items"
    )
    first, first_random, agreement = database.row(
        "SELECT avg(first + 1) FILTER (pairs > 0), avg((n + 1) / (positives + 1)) FILTER (pairs > 0), "
        "sum(agreeing) FILTER (pairs > 0) / sum(pairs) FILTER (scored > 0) FROM per_list"
    )
    labels = (
        "SELECT label, count(*) FROM items WHERE label IS NOT NULL GROUP BY label ORDER BY label LIMIT 51"
    )
    counts = list(database.rows(labels))
    seen = "SELECT count(DISTINCT text) FROM items WHERE text IN (SELECT text FROM training_items)"
    return {
        "rows": source.rows,
        "refused_rows": source.refused_rows,
        "lists": lists,
        "items": items,
        "items_per_list": database.summary("n", "per_list"),
        "queries": _lengths(database, "lists", max_query_tokens),
        "item_texts": _lengths(database, "items", max_item_tokens),
        "distinct_queries": queries,
        "distinct_items": texts,
        "distinct_item_ids": ids,
        "labels": database.summary("label", "items"),
        "label_counts": counts if counts and len(counts) <= 50 else None,
        "positives": database.summary("positives", "per_list WHERE labelled > 0"),
        "first_positive": first,
        "first_positive_random": first_random,
        "scores": database.summary("score", "items"),
        "agreement": agreement,
        "seen_items": database.value(seen) if number else None,
    }


def _lengths(database: Database, table: str, limit: int) -> dict[str, Any]:
    pieces, cut_texts, cut_tokens = database.row(
        f"SELECT sum(tokens) / sum(words), count(*) FILTER (tokens > {limit}), "
        f"coalesce(sum(tokens - {limit}) FILTER (tokens > {limit}), 0)::BIGINT FROM {table}"
    )
    return {
        "words": database.summary("words", table),
        "tokens": database.summary("tokens", table),
        "pieces_per_word": pieces,
        "limit": limit,
        "cut_texts": cut_texts,
        "cut_tokens": cut_tokens,
    }
