"""A user's own click log as ranking lists, in flat memory, whatever the order and the size of the log.

The CROSS-JEM paper, appendix C: a pair is a good click when the user clicked on the ad in response to the query
"and did not close the ad quickly". The paper gives no time. The default here, 30 seconds, is the usual one for
satisfied clicks (Kim et al., "Modeling dwell time to predict click-level satisfaction", WSDM 2014).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Literal

from crossjem_pl.data.database import Database
from crossjem_pl.data.rows import Row, read_rows
from crossjem_pl.hashing import content_id, fraction
from crossjem_pl.lists import RankingList
from crossjem_pl.prepare.output import (
    LISTS_PER_SHARD,
    Track,
    Written,
    fingerprint,
    finished,
    one_line,
    untracked,
    write_part,
)

__all__ = ["COLUMNS", "LogOptions", "prepare_log"]

COLUMNS = {
    "query": True, "keyword": True, "clicked": True, "dwell": False, "quick_back": False, "score": False,
    "query_id": False, "keyword_id": False,
}  # fmt: skip
"""Standard names of the columns, and whether a log must have them."""
OF_PART = {"lists_without_positive": "lists without a good click (kept)"}
OF_LOG = {
    "unclicked_lists": "queries left out, they have no good click",
    "short_lists": "queries left out, they have fewer keywords than min_items",
    "rows": "rows with a query and a keyword",
    "blank_rows": "rows left out, their query or keyword is blank",
    "repeated_rows": "rows repeat a query and keyword and were gathered",
    "bad_clicks": "clicks were not good ones",
}
SENTENCES = {**OF_PART, **OF_LOG}
_FLAGS = {
    **dict.fromkeys(("1", "true", "t", "yes", "y"), True),
    **dict.fromkeys(("0", "false", "f", "no", "n"), False),
}
_EVENTS = (
    "source INT, number BIGINT, query_id VARCHAR, query VARCHAR, keyword_id VARCHAR, keyword VARCHAR, good BOOL, "
    "score DOUBLE, place DOUBLE, split VARCHAR"
)
# The sum of sorted scores does not depend on the order of the rows. All lists come out in the order of a hash of their
# query ids, so that neighbours in a shard have nothing to do with each other.
_PAIRS = """
CREATE TABLE pairs AS SELECT split, place, query_id, keyword_id, min(query) AS query, min(keyword) AS keyword,
    count(*) FILTER (good) AS good, count(score) AS scored,
    list_sum(list_sort(list(score) FILTER (score IS NOT NULL))) / count(score) AS score
    FROM events GROUP BY split, place, query_id, keyword_id
"""


@dataclass(frozen=True)
class LogOptions:
    """How the rows of a log become lists.

    Args:
        columns: names of columns by their standard name (`COLUMNS`), where they differ from it.
        min_dwell: seconds from which a click is good, where only the dwell time is known.
        missing_dwell: what a click is of which neither a quick back nor a dwell time is known.
        any_click: every click is good.
        min_good_clicks: good clicks that a (query, keyword) needs for label 1.
        scores: "agree": the teacher scores of a (query, keyword) must be equal; "mean": their mean counts.
        min_items: queries with fewer keywords are left out.
        require_click: queries without a good click are left out.
        dev_fraction: share of the queries for dev.
        test_fraction: share of the queries for test.
        seed: another one draws other splits.
        lists_per_shard: lists in a shard.

    Raises:
        ValueError: names the option that is out of range.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    min_dwell: float = 30.0
    missing_dwell: Literal["error", "good", "bad"] = "error"
    any_click: bool = False
    min_good_clicks: int = 1
    scores: Literal["agree", "mean"] = "agree"
    min_items: int = 2
    require_click: bool = False
    dev_fraction: float = 0.01
    test_fraction: float = 0.01
    seed: int = 0
    lists_per_shard: int = LISTS_PER_SHARD

    def __post_init__(self) -> None:
        for name in ("min_good_clicks", "min_items", "lists_per_shard"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if min(self.dev_fraction, self.test_fraction) < 0 or not self.dev_fraction + self.test_fraction < 1:
            raise ValueError(
                "dev_fraction and test_fraction must be at least 0 and leave something for training, got "
                f"{self.dev_fraction:g} and {self.test_fraction:g}"
            )
        if self.min_dwell < 0 or not math.isfinite(self.min_dwell):
            raise ValueError(f"min_dwell must be a number of seconds, got {self.min_dwell:g}")


def prepare_log(
    files: Sequence[Path], out: Path, options: LogOptions | None = None, *, track: Track = untracked
) -> list[Written]:
    """Writes `out/train.parquet/`, `out/dev.parquet/`, `out/test.parquet/` and returns an account of each.

    A keyword's label is 1 if it has `min_good_clicks` good clicks for the query, else 0. Its score is the
    teacher's, if the log has such a column; a list has scores for all of its keywords or the log is refused.
    Keywords stand in the order of their ids, which tells nothing of the labels. Which split a query goes to
    depends on its text without regard to case, so no text is in two splits.

    Args:
        files: tables with the same columns (`read_rows`), or folders of them.
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
    columns, not_carried = _columns(files, options)
    made_of = {"command": "log", **asdict(options), "files": [fingerprint(file) for file in files]}
    # train is written last: where it is complete, the others are
    before = {name: finished(out, name, made_of, OF_PART) for name in ("train", "dev", "test")}
    parts = [part for part in before.values() if part is not None]
    if before["train"] is None:
        parts = _prepare(files, columns, out, options, made_of, track)
    total = sum((Counter(part.counts) for part in parts), Counter())
    remark = f"columns not carried: {', '.join(not_carried)}" if not_carried else ""
    return [*parts, Written(out, total, OF_LOG, remark)]


def _prepare(
    files: Sequence[Path],
    columns: Mapping[str, str],
    out: Path,
    options: LogOptions,
    made_of: Mapping[str, Any],
    track: Track,
) -> list[Written]:
    out.mkdir(parents=True, exist_ok=True)
    log: Counter[str] = Counter()
    parts: list[Written] = []
    with Database({"events": _EVENTS}, out) as database:
        sources = _read(files, columns, options, database, log, track)
        _check(database, sources, columns, options)
        database.execute(_PAIRS)
        _check_scores(database, sources)
        log["repeated_rows"] = log["rows"] - database.value("SELECT count(*) FROM pairs")
        for name in ("test", "dev", "train"):
            lists = iter(track(_lists(database, name, options, log), name, None))
            first = next(lists, None)
            if first is None and name != "train":
                continue
            counts = log if name == "train" else Counter[str]()
            some = lists if first is None else chain([first], lists)
            told = SENTENCES if first is None else OF_PART
            parts.insert(0, write_part(out, name, made_of, some, counts, told, options.lists_per_shard))
    return parts


def _columns(files: Sequence[Path], options: LogOptions) -> tuple[dict[str, str], list[str]]:
    """The columns that the log has by their standard names, and those that are not carried.

    Raises:
        ValueError: names the file and the column that is missing, named twice, or not in the other files.
    """
    columns: dict[str, str] = {}
    not_carried: dict[str, None] = {}
    for file in files:
        present = next(read_rows(file)).columns
        of_file = {}
        for standard, required in COLUMNS.items():
            name = options.columns.get(standard, standard)
            if name in present:
                of_file[standard] = name
            elif required or standard in options.columns:
                raise ValueError(
                    f"{file}: no column {name!r} for the {standard}; found: {', '.join(present)}"
                )
        names = list(of_file.values())
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"{file}: column {twice!r} is named for two things")
        if columns and of_file != columns:
            differing = ", ".join(sorted(of_file.keys() ^ columns.keys()))
            raise ValueError(f"{file}: other columns than in {files[0]} ({differing} in one of them)")
        columns = of_file
        not_carried.update(dict.fromkeys(name for name in present if name not in names))
    if not {"dwell", "quick_back"} & columns.keys() and not options.any_click:
        raise ValueError(
            f"{files[0]}: the log has neither a dwell nor a quick_back column, which tell good clicks from "
            "others; name one of them, or take every click as good (--any-click)"
        )
    return columns, list(not_carried)


def _read(
    files: Sequence[Path],
    columns: Mapping[str, str],
    options: LogOptions,
    database: Database,
    counts: Counter[str],
    track: Track,
) -> list[str]:
    """Fills the table `events`; returns the sources that its rows number."""
    sources: dict[str, int] = {}
    absent = COLUMNS.keys() - columns.keys()
    counts["rows"] = 0
    for row in track((row for file in files for row in read_rows(file)), "rows", None):
        if not absent.isdisjoint(row.values):
            late = min(absent.intersection(row.values))
            raise row.error(late, "rows before have no such column; the first row of each file must have it")
        query, keyword = (
            one_line(row.text(columns[name])) if _given(row, columns[name]) else ""
            for name in ("query", "keyword")
        )
        clicked, good = _click(row, columns, options)
        score = _number(row, columns.get("score"))
        if not query or not keyword:
            counts["blank_rows"] += 1
            continue
        counts["rows"] += 1
        counts["bad_clicks"] += clicked and not good
        query_id, keyword_id = (
            row.identifier(columns[name]).strip() if name in columns else content_id(text)
            for name, text in (("query_id", query), ("keyword_id", keyword))
        )
        place = fraction(query.casefold(), f"split {options.seed}")
        dev = options.test_fraction + options.dev_fraction
        split = "test" if place < options.test_fraction else "dev" if place < dev else "train"
        source = sources.setdefault(f"{row.path}, {row.unit}", len(sources))
        order = fraction(query_id, "order")
        database.add(
            "events", source, row.number, query_id, query, keyword_id, keyword, good, score, order, split
        )
    return list(sources)


def _check(
    database: Database, sources: Sequence[str], columns: Mapping[str, str], options: LogOptions
) -> None:
    """Refuses rows that contradict each other.

    Raises:
        ValueError: names both rows where one id has two texts, or one pair two scores that should agree.
    """
    checks = [("query_id", "query_id", "query"), ("keyword_id", "query_id, keyword_id", "keyword")]
    if options.scores == "agree":
        checks.append(("score", "query_id, keyword_id", "score"))
    for name, ids, value in checks:
        if name not in columns:
            continue
        found = database.rows(
            f"SELECT source, number, query_id, keyword_id, query, keyword, {value}, first_value({value}) OVER w, "
            f"first_value(source) OVER w, first_value(number) OVER w FROM events SEMI JOIN (SELECT {ids} FROM events "
            f"GROUP BY {ids} HAVING min({value}) <> max({value})) USING ({ids}) WHERE {value} IS NOT NULL "
            f"WINDOW w AS (PARTITION BY {ids} ORDER BY source, number) "
            f"QUALIFY {value} <> first_value({value}) OVER w ORDER BY source, number LIMIT 1"
        )
        for source, number, query_id, keyword_id, query, keyword, this, other, *first in found:
            where = f"{sources[source]} {number}, field {columns[name]!r}"
            before = f"{sources[first[0]]} {first[1]}"
            if name == "score":
                raise ValueError(
                    f"{where}: query {query!r} and keyword {keyword!r} have the score {this:g}, and {other:g} in "
                    f"another row ({before}); take their mean with --scores mean"
                )
            identifier = query_id if name == "query_id" else keyword_id
            raise ValueError(f"{where}: id {identifier!r} is of {this!r}, and of {other!r} in {before}")


def _check_scores(database: Database, sources: Sequence[str]) -> None:
    """Refuses queries of which some keywords have a score and others not.

    Raises:
        ValueError: names the row.
    """
    for source, number, query, keyword in database.rows(
        "SELECT source, number, query, keyword FROM events SEMI JOIN (SELECT query_id, keyword_id FROM pairs WHERE "
        "scored = 0 AND query_id IN (SELECT query_id FROM pairs WHERE scored > 0)) USING (query_id, keyword_id) "
        "ORDER BY source, number LIMIT 1"
    ):
        raise ValueError(
            f"{sources[source]} {number}, field 'score': keyword {keyword!r} of query {query!r} has no score in any "
            "row, other keywords of the query have one"
        )


def _lists(
    database: Database, split: str, options: LogOptions, counts: Counter[str]
) -> Iterator[RankingList]:
    """The lists of a split, in the order of a hash of their ids."""
    pairs = database.rows(
        "SELECT query_id, query, keyword_id, keyword, good, score FROM pairs "
        f"WHERE split = '{split}' ORDER BY place, query_id, keyword_id"
    )
    for (query_id, query), group in groupby(pairs, key=lambda pair: pair[:2]):
        ids, keywords, good, scores = zip(*(pair[2:] for pair in group), strict=True)
        labels = tuple(float(clicks >= options.min_good_clicks) for clicks in good)
        if len(ids) < options.min_items:
            counts["short_lists"] += 1
        elif options.require_click and not any(labels):
            counts["unclicked_lists"] += 1
        else:
            scored = scores[0] is not None
            yield RankingList(query_id, query, ids, keywords, labels, scores if scored else None)


def _click(row: Row, columns: Mapping[str, str], options: LogOptions) -> tuple[bool, bool]:
    """Whether there was a click, and a good one: the quick-back flag decides, and the dwell time where there is none.

    Raises:
        ValueError: names file, line and field of a value that is not what it should be.
    """
    clicked = _flag(row, columns["clicked"])
    if clicked is None:
        raise row.error(columns["clicked"], "is empty; expected whether the keyword's ad was clicked")
    if not clicked or options.any_click:
        return clicked, clicked
    quick_back = _flag(row, columns.get("quick_back"))
    if quick_back is not None:
        return True, not quick_back
    dwell = _number(row, columns.get("dwell"))
    if dwell is not None:
        if dwell < 0:
            raise row.error(columns["dwell"], f"expected seconds, got {dwell:g}")
        return True, dwell >= options.min_dwell
    if options.missing_dwell == "error":
        raise row.error(
            columns.get("dwell") or columns["quick_back"],
            "the click has neither a quick-back flag nor a dwell time; say what such clicks are with "
            "--missing-dwell good or --missing-dwell bad",
        )
    return True, options.missing_dwell == "good"


def _given(row: Row, field: str) -> bool:
    """Whether the row has the field, neither null nor blank."""
    value = row.values.get(field)
    return value is not None and bool(str(value).strip())


def _flag(row: Row, field: str | None) -> bool | None:
    if field is None or not _given(row, field):
        return None
    value = row.values[field]
    word = f"{value:g}" if isinstance(value, float) else str(value).strip().lower()
    if word not in _FLAGS:
        raise row.error(field, f"expected true or false (or 1 and 0, yes and no), got {value!r}")
    return _FLAGS[word]


def _number(row: Row, field: str | None) -> float | None:
    return row.scalar(field) if field is not None and _given(row, field) else None
