"""A user's own click log as ranking lists, in flat memory, whatever the order and the size of the log.

The CROSS-JEM paper, appendix C: a pair is a good click when the user clicked on the ad in response to the query
"and did not close the ad quickly". The paper gives no time. The default here, 30 seconds, is the usual one for
satisfied clicks (Kim et al., "Modeling dwell time to predict click-level satisfaction", WSDM 2014).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import Literal

from crossjem_pl.data.database import Database
from crossjem_pl.data.rows import Row, read_rows
from crossjem_pl.data.shards import Manifest, NoLists
from crossjem_pl.files import remove_leftovers
from crossjem_pl.hashing import content_id, fraction
from crossjem_pl.lists import RankingList, shown
from crossjem_pl.prepare.output import LISTS_PER_SHARD, fingerprint, one_line, write_part
from crossjem_pl.progress import track

__all__ = ["COLUMNS", "LogOptions", "prepare_log"]

COLUMNS = {
    "query": True, "keyword": True, "clicked": True, "dwell": False, "quick_back": False, "score": False,
    "query_id": False, "keyword_id": False,
}  # fmt: skip
"""Standard names of the columns, and whether a log must have them."""
KEPT = {"lists_without_positive": "lists without a good click (kept)"}
SENTENCES = {
    **KEPT,
    "unclicked_lists": "queries left out, they have no good click",
    "short_lists": "queries left out, they have fewer keywords than min_items",
    "rows": "rows with a query and a keyword",
    "blank_rows": "rows left out, their query or keyword is blank",
    "repeated_rows": "rows repeat a query and keyword and were gathered",
    "different_scores": "queries and keywords have several scores, their mean was taken",
    "bad_clicks": "clicks were not good ones",
}
"""What the account of train tells, of the whole log."""
_FLAGS = {
    **dict.fromkeys(("1", "true", "t", "yes", "y"), True),
    **dict.fromkeys(("0", "false", "f", "no", "n"), False),
}
_EVENTS = (
    "source VARCHAR, number BIGINT, query_id VARCHAR, query VARCHAR, keyword_id VARCHAR, keyword VARCHAR, good BOOL, "
    "score DOUBLE, place DOUBLE, split VARCHAR"
)
# The sum of sorted scores does not depend on the order of the rows. All lists come out in the order of a hash of their
# query ids, so that neighbours in a shard have nothing to do with each other.
_PAIRS = """
CREATE TABLE pairs AS SELECT split, place, query_id, keyword_id, min(query) AS query, min(keyword) AS keyword,
    count(*) FILTER (good) AS good, max(score) > min(score) AS different,
    list_sum(list_sort(list(score) FILTER (score IS NOT NULL))) / count(score) AS score
    FROM events GROUP BY split, place, query_id, keyword_id
"""
# ids that have two texts, with both and the rows that they are in
_TWO_TEXTS = """
SELECT min({name}), arg_min(source || ' ' || number, {name}), max({name}), arg_max(source || ' ' || number, {name})
    FROM events GROUP BY {ids} HAVING min({name}) <> max({name}) LIMIT 1
"""


@dataclass(frozen=True)
class LogOptions:
    """How the rows of a log become lists.

    Args:
        query_column, keyword_column, clicked_column: name of the column, where it is not the standard one.
        dwell_column, quick_back_column, score_column, query_id_column, keyword_id_column: name of the optional column,
            likewise.
        min_dwell: seconds from which a click is good, where only the dwell time is known.
        missing_dwell: what clicks with neither flag nor dwell time are.
        any_click: every click is good.
        min_good_clicks: good clicks that a keyword needs for label 1.
        min_items: queries with fewer keywords are left out.
        require_click: leave out queries without a good click.
        dev_fraction: share of the queries for dev.
        test_fraction: share of the queries for test.
        seed: another one draws other splits.
        lists_per_shard: lists in a shard.

    Raises:
        ValueError: names the option that is out of range.
    """

    query_column: str | None = None
    keyword_column: str | None = None
    clicked_column: str | None = None
    dwell_column: str | None = None
    quick_back_column: str | None = None
    score_column: str | None = None
    query_id_column: str | None = None
    keyword_id_column: str | None = None
    min_dwell: float = 30.0
    missing_dwell: Literal["error", "good", "bad"] = "error"
    any_click: bool = False
    min_good_clicks: int = 1
    min_items: int = 2
    require_click: bool = False
    dev_fraction: float = 0.01
    test_fraction: float = 0.01
    seed: int = 0
    lists_per_shard: int = LISTS_PER_SHARD

    def __post_init__(self) -> None:
        if min(self.min_good_clicks, self.min_items, self.lists_per_shard) < 1:
            raise ValueError("min_good_clicks, min_items and lists_per_shard must be at least 1")
        if min(self.dev_fraction, self.test_fraction) < 0 or not self.dev_fraction + self.test_fraction < 1:
            raise ValueError(
                "dev_fraction and test_fraction must be at least 0 and leave something for training"
            )
        if self.min_dwell < 0 or not math.isfinite(self.min_dwell):
            raise ValueError(f"min_dwell must be a number of seconds, got {self.min_dwell:g}")


def prepare_log(files: Sequence[Path], out: Path, options: LogOptions | None = None) -> list[Manifest]:
    """Writes `out/train.parquet/`, `out/dev.parquet/`, `out/test.parquet/` and returns an account of each.

    A keyword's label is 1 if it has `min_good_clicks` good clicks for the query, else 0. Its score is the mean of the
    teacher's, if the log has such a column; a list has scores for all of its keywords or the log is refused.
    Keywords stand in the order of their ids, which tells nothing of the labels. Which split a query goes to
    depends on its text without regard to case, so no text is in two splits.

    Args:
        files: tables with the same columns (`read_rows`), or folders of them.
        out: folder to fill; a finished one of the same files and options is left as it is.
        options: see `LogOptions`.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: names file, line and field of what is malformed or contradicts another row; no list could
            be made; or the folder holds something else.
    """
    options = LogOptions() if options is None else options
    if not files or len({file.resolve() for file in files}) != len(files):
        raise ValueError(f"log files must be different and at least one, got {', '.join(map(str, files))}")
    columns, not_carried = _columns(files, options)
    made_of = {"command": "log", **asdict(options), "files": [fingerprint(file) for file in files]}
    remove_leftovers(out / "tables")
    names, train = ["test", "dev", "train"], Manifest.read(out / "train.parquet")
    if train is not None and train.complete:  # it is written last
        names = [name for name in names if (out / f"{name}.parquet").exists()]
    log = Counter(not_carried=len(not_carried))
    sentences = {**SENTENCES, "not_carried": f"columns not carried: {', '.join(not_carried)}"}
    parts = []
    with ExitStack() as stack:

        @cache
        def database() -> Database:
            out.mkdir(parents=True, exist_ok=True)
            events = stack.enter_context(Database({"events": _EVENTS}, out))
            _read(files, columns, options, events, log)
            return events

        def make(name: str, counts: Counter[str]) -> Iterator[RankingList]:
            yield from _lists(database(), name, options, log)
            if name == "train":
                counts.update(log)

        for name in names:
            told = sentences if name == "train" else KEPT
            try:
                parts.append(
                    write_part(out, name, made_of, partial(make, name), told, options.lists_per_shard)
                )
            except NoLists:
                if name == "train":
                    raise
    return parts[::-1]


def _columns(files: Sequence[Path], options: LogOptions) -> tuple[dict[str, str], list[str]]:
    """The columns that the log has by their standard names, and those that are not carried.

    Raises:
        ValueError: names the file and the column that is missing or not in the other files.
    """
    columns: dict[str, str] = {}
    not_carried: dict[str, None] = {}
    for file in files:
        present = next(read_rows(file)).columns
        given = {standard: getattr(options, f"{standard}_column") for standard in COLUMNS}
        names = {standard: name or standard for standard, name in given.items()}
        for standard, name in names.items():
            if name not in present and (COLUMNS[standard] or given[standard]):
                raise ValueError(
                    f"{file}: no column {name!r} for the {standard}; found: {', '.join(present)}"
                )
        of_file = {standard: name for standard, name in names.items() if name in present}
        if columns and of_file != columns:
            differing = ", ".join(sorted(of_file.keys() ^ columns.keys()))
            raise ValueError(f"{file}: other columns than in {files[0]} ({differing} in one of them)")
        columns = of_file
        not_carried.update(dict.fromkeys(name for name in present if name not in of_file.values()))
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
) -> None:
    """Fills the tables `events` and `pairs`.

    Raises:
        ValueError: names file, line and field; both rows where one id has two texts.
    """
    absent = COLUMNS.keys() - columns.keys()
    for row in track((row for file in files for row in read_rows(file)), "rows"):
        if late := absent.intersection(row.values):
            raise row.error(
                min(late), "rows before have no such column; the first row of each file must have it"
            )
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
        share = fraction(query.casefold(), f"split {options.seed}")
        dev = options.test_fraction + options.dev_fraction
        split = "test" if share < options.test_fraction else "dev" if share < dev else "train"
        source, order = f"{row.path}, {row.unit}", fraction(query_id, "order")
        database.add(
            "events", source, row.number, query_id, query, keyword_id, keyword, good, score, order, split
        )
    for name, ids in (("query", "query_id"), ("keyword", "query_id, keyword_id")):
        for text, where, other, before in database.rows(_TWO_TEXTS.format(name=name, ids=ids)):
            raise ValueError(
                f"{where} and {before}: one id for the {name} {shown(text)} and for {shown(other)}"
            )
    database.execute(_PAIRS)
    pairs, different = next(database.rows("SELECT count(*), count(*) FILTER (different) FROM pairs"))
    counts.update(repeated_rows=counts["rows"] - pairs, different_scores=different)


def _lists(
    database: Database, split: str, options: LogOptions, counts: Counter[str]
) -> Iterator[RankingList]:
    """The lists of a split, in the order of a hash of their ids.

    Raises:
        ValueError: names a keyword without a score, where others of its query have one.
    """
    pairs = database.rows(
        "SELECT query_id, query, keyword_id, keyword, good, score FROM pairs "
        f"WHERE split = '{split}' ORDER BY place, query_id, keyword_id"
    )
    for (query_id, query), group in groupby(track(pairs, split), key=lambda pair: pair[:2]):
        ids, keywords, good, scores = zip(*(pair[2:] for pair in group), strict=True)
        labels = tuple(float(clicks >= options.min_good_clicks) for clicks in good)
        scored = any(score is not None for score in scores)
        if scored and None in scores:
            keyword = keywords[scores.index(None)]
            raise ValueError(
                f"query {shown(query)}: its keyword {shown(keyword)} has no score in any row, others have one"
            )
        if len(ids) < options.min_items:
            counts["short_lists"] += 1
        elif options.require_click and not any(labels):
            counts["unclicked_lists"] += 1
        else:
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
        raise row.error(field, f"expected true or false (or 1 and 0, yes and no), got {shown(value)}")
    return _FLAGS[word]


def _number(row: Row, field: str | None) -> float | None:
    return row.scalar(field) if field is not None and _given(row, field) else None
