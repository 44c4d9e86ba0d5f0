"""Ranking lists of document titles from a dataset of ir_datasets: MS MARCO-Titles of the CROSS-JEM paper.

Appendix C of the paper: MS MARCO documents by their titles alone, 0.37M training queries with the top 10 of the
HDCT retriever and the click labels. Queries, judgements, documents and the official first stage come from
ir_datasets (MacAvaney et al., SIGIR 2021; `msmarco-document`), HDCT's candidates from its run files.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from crossjem_pl.data.rows import parse_number
from crossjem_pl.data.shards import Manifest
from crossjem_pl.data.trec import Entry, group_by_query, ranked
from crossjem_pl.files import ending, existing, read_lines, replacing_path
from crossjem_pl.lists import RankingList
from crossjem_pl.prepare.download import Remote, fetch
from crossjem_pl.prepare.output import LISTS_PER_SHARD, fingerprint, one_line, write_part
from crossjem_pl.progress import track

__all__ = ["PARTS", "TITLES", "candidates", "load", "prepare_titles", "records", "titles_of"]

PARTS = {
    "train": "train",
    "dev": "dev",
    "trec-dl-2019": "trec-dl-2019/judged",
    "trec-dl-2020": "trec-dl-2020/judged",
}
"""Parts and their ids below the dataset's own."""
TITLES = "titles.sqlite"
LICENCE = (
    "MS MARCO is for non-commercial research; its terms: https://microsoft.github.io/msmarco/Datasets.html (other "
    "datasets: https://ir-datasets.com)"
)

SENTENCES = {
    "lists_without_positive": "lists without a relevant item (kept: a teacher's scores need none)",
    "blank_titles": "candidates left out, their title is blank; the next ones took their places",
    "unknown_documents": "candidates left out, the collection has no such document",
    "blank_queries": "queries left out, their text is blank",
    "empty_lists": "queries left out, none of their candidates has a title",
    "unknown_queries": "queries of the run left out, the part has no such query",
    "queries_without_candidates": "queries of the part have no candidates and are in no list",
    "cut_items": "candidates left out below the depth",
    "added_positives": "relevant items added that the first stage had not found",
    "positives_outside": "judged relevant items in no list: metrics over the lists cannot miss them",
    "judged_unknown_queries": "judgements of queries that the part does not have",
}

# what its readers raise for missing, damaged and malformed files; UnboundLocalError is how its reader of runs
# fails on a malformed first line
_ERRORS = (OSError, EOFError, zlib.error, RuntimeError, ValueError, UnboundLocalError)
_NAMES = {"docs": "documents", "queries": "queries", "qrels": "judgements", "scoreddocs": "candidates"}
_RUN_ENDINGS = tuple(name + packed for name in (".txt", ".tsv", ".run", ".trec") for packed in ("", ".gz"))
_LAYOUTS = (
    "a TREC run, six fields (query_id Q0 item_id rank score tag); three fields (query_id item_id rank); or the "
    "tab-separated text rows of HDCT's dev.d100.tsv (query_id, query, item_id, url, title, body, label)"
)


def prepare_titles(
    out: Path,
    *,
    dataset: str = "msmarco-document",
    documents: Path | None = None,
    parts: Sequence[str] = tuple(PARTS),
    runs: Mapping[str, Path] | None = None,
    depth: int | None = 10,
    dev_depth: int | None = None,
    add_positives: bool = False,
    lists_per_shard: int = LISTS_PER_SHARD,
    yes: bool = False,
) -> Iterator[Manifest]:
    """Writes `out/PART.parquet/` for each part, in flat memory, and yields an account of each.

    Memory holds one part's queries and judgements, not its candidates and no documents: the titles go to
    `out/titles.sqlite`, once. A run that was cut off goes on with the first part that is not complete. One process at
    a time may fill a folder.

    Items stand in the first stage's order, best first; labels are the grades, 0 where unjudged. The first
    stage's scores are not kept: `scores` is the teacher's field.

    Args:
        out: folder to fill.
        dataset: id of the collection; its documents need the field `title`.
        documents: `msmarco-docs.tsv` (id, url, title, body), in place of the dataset's own file of documents.
        parts: keys of `PARTS`, or ids below the dataset's own.
        runs: run file or folder by part; the other parts take the dataset's official candidates.
        depth: candidates of a training query; None keeps all.
        dev_depth: candidates of a query of the other parts; None keeps all.
        add_positives: put relevant items that the first stage missed at the end of the training lists.
        lists_per_shard: lists in a shard.
        yes: download what ir_datasets does not have without asking.

    Raises:
        FileNotFoundError: a run does not exist.
        ValueError: arguments that do not go together; a folder made with other options; and what reading the
            dataset and the runs refuses.
    """
    runs = runs or {}
    for name, value in (("depth", depth), ("dev_depth", dev_depth), ("lists_per_shard", lists_per_shard)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    for part, run in runs.items():
        if part not in parts:
            raise ValueError(f"{run}: candidates for part {part!r}, which is not among {', '.join(parts)}")
        run_files(run)
    ids = {part: f"{dataset}/{PARTS.get(part, part)}" for part in parts}
    needed: dict[Remote, None] = {}
    for part, dataset_id in ids.items():
        kinds = ("queries", "qrels", *["docs"] * (documents is None), *["scoreddocs"] * (part not in runs))
        load(dataset_id, *kinds)
        needed |= dict.fromkeys(file for kind in kinds if (file := remote_file(dataset_id, kind)))
    unfinished = [part for part in parts if not _is_complete(out, part)]
    fetch(list(needed) if unfinished else [], LICENCE, yes)
    for part, dataset_id in ids.items():
        options: dict[str, Any] = {
            "depth": depth if part == "train" else dev_depth,
            "add_positives": add_positives and part == "train",
        }
        made_of = {
            "command": "msmarco-titles",
            "dataset": dataset_id,
            "candidates": fingerprint(runs[part]) if part in runs else "official",
            **options,
            "lists_per_shard": lists_per_shard,
        }
        titles = partial(open_titles, out / TITLES, dataset, documents)
        make = partial(_lists, dataset_id, runs.get(part), titles, **options)
        yield write_part(out, _name(part), made_of, make, SENTENCES, lists_per_shard)


def _name(part: str) -> str:
    return part.replace("/", "-")


def _is_complete(out: Path, part: str) -> bool:
    manifest = Manifest.read(out / f"{_name(part)}.parquet")
    return manifest is not None and manifest.complete


def _lists(
    dataset_id: str,
    run: Path | None,
    open_store: Callable[[], sqlite3.Connection],
    counts: Counter[str],
    *,
    depth: int | None,
    add_positives: bool,
) -> Iterator[RankingList]:
    """The lists of a part, in the order of its candidates."""
    store = open_store()
    queries = {record.query_id: one_line(record.text) for record in records(dataset_id, "queries")}
    all_grades = _grades(dataset_id, queries, counts)
    counts["queries_without_candidates"] = len(queries)
    counts["positives_outside"] = sum(
        grade > 0 for grades in all_grades.values() for grade in grades.values()
    )
    with closing(store):
        for query_id, item_ids in track(candidates(dataset_id, run), dataset_id, len(queries)):
            query, grades = queries.get(query_id), all_grades.get(query_id, {})
            if query is None:
                counts["unknown_queries"] += 1
                continue
            counts["queries_without_candidates"] -= 1
            if not query:
                counts["blank_queries"] += 1
                continue
            chosen = _choose(item_ids, depth, store, counts)
            if add_positives:
                missed = [item for item, grade in grades.items() if grade > 0 and item not in chosen]
                added = {item: title for item, title in titles_of(store, missed).items() if title}
                counts["added_positives"] += len(added)
                chosen.update((item, added[item]) for item in missed if item in added)
            if not chosen:
                counts["empty_lists"] += 1
                continue
            labels = tuple(float(grades.get(item, 0)) for item in chosen)
            counts["positives_outside"] -= sum(label > 0 for label in labels)
            yield RankingList(query_id, query, tuple(chosen), tuple(chosen.values()), labels)


def _choose(
    items: Sequence[str], depth: int | None, store: sqlite3.Connection, counts: Counter[str]
) -> dict[str, str]:
    """The best `depth` candidates that have a title, with their titles."""
    chosen: dict[str, str] = {}
    at = 0
    while at < len(items) and (depth is None or len(chosen) < depth):
        block = items[at : None if depth is None else at + depth - len(chosen)]
        at += len(block)
        titles = titles_of(store, block)
        chosen.update((item, titles[item]) for item in block if titles.get(item))
        blank = sum(not title for title in titles.values())
        counts.update(unknown_documents=len(block) - len(titles), blank_titles=blank)
    counts["cut_items"] += len(items) - at
    return chosen


def _grades(dataset_id: str, queries: Mapping[str, str], counts: Counter[str]) -> dict[str, dict[str, int]]:
    """Judgements of the part's queries by query and document, in their stored order.

    Raises:
        ValueError: one pair with two grades.
    """
    grades: dict[str, dict[str, int]] = {}
    for record in records(dataset_id, "qrels"):
        if record.query_id not in queries:
            counts["judged_unknown_queries"] += 1
            continue
        before = grades.setdefault(record.query_id, {}).setdefault(record.doc_id, record.relevance)
        if before != record.relevance:
            raise ValueError(
                f"{dataset_id}: the judgements give query {record.query_id!r} and document "
                f"{record.doc_id!r} the grades {before} and {record.relevance}"
            )
    return grades


def load(dataset_id: str, *kinds: str) -> Any:
    """The dataset, which must have all of `kinds`; nothing is downloaded yet.

    Raises:
        ValueError: an unknown id, or one that lacks a kind.
    """
    import ir_datasets  # makes a folder when it is imported

    try:
        dataset = ir_datasets.load(dataset_id)
    except KeyError:
        raise ValueError(f"ir_datasets has no dataset {dataset_id!r}; see https://ir-datasets.com") from None
    for kind in kinds:
        if not dataset.has(kind):
            raise ValueError(f"dataset {dataset_id!r} of ir_datasets has no {_NAMES[kind]}")
    return dataset


def records(dataset_id: str, kind: str) -> Iterator[Any]:
    """The records of a kind in their stored order; ir_datasets downloads what it does not have.

    Raises:
        ValueError: names dataset and kind, for whatever stops ir_datasets (no network, a damaged or malformed
            file), with the address of the file and the place where ir_datasets expects it.
    """
    dataset = load(dataset_id, kind)
    number = 0
    try:
        for record in getattr(dataset, f"{kind}_iter")():
            number += 1
            yield record
    except _ERRORS as error:
        raise ValueError(
            f"{dataset_id}: cannot read the {_NAMES[kind]} (after {number} records: "
            f"{type(error).__name__}: {error}). {_remedy(dataset_id, kind)}"
        ) from error


def remote_file(dataset_id: str, kind: str) -> Remote | None:
    """The file of a kind, where ir_datasets downloads it from, and where it looks for it before it does."""
    import ir_datasets

    base, _, part = dataset_id.partition("/")
    key = kind if kind == "docs" else f"{part.removesuffix('/judged')}/{kind}"
    entry = ir_datasets.util.DownloadConfig.contents().get(base, {}).get(key)
    if entry is None or not {"url", "cache_path"} <= entry.keys():
        return None
    path = Path(ir_datasets.util.home_path()) / base / entry["cache_path"]
    headers = entry.get("download_args", {}).get("headers", {})
    return Remote(entry["url"], path, int(entry.get("size_hint", 0)), f"md5:{entry['expected_md5']}", headers)


def _remedy(dataset_id: str, kind: str) -> str:
    """What to do about a file that cannot be read."""
    file = remote_file(dataset_id, kind)
    if file is None:
        return f"See https://ir-datasets.com for the files of {dataset_id.partition('/')[0]!r}."
    return (
        f"Without a connection, put this file there: {file}; if a damaged file is there, remove it. The environment "
        "variable IR_DATASETS_HOME moves that folder."
    )


def run_files(path: Path) -> list[Path]:
    """The run file itself, or the run files of a folder in sorted order (HDCT comes as 000.txt, 001.txt, ...).

    Raises:
        FileNotFoundError: there is nothing.
        ValueError: a folder without run files, or with files of other endings between them.
    """
    if not existing(path, "run").is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.is_file() and file.name[0] != ".")
    foreign = [file.name for file in files if ending(file) not in _RUN_ENDINGS]
    if not files or foreign:
        found = ", ".join(foreign[:3]) or "no files (folders inside are not searched)"
        raise ValueError(
            f"{path}: expected a folder of run files ({', '.join(_RUN_ENDINGS)}) alone, found {found}"
        )
    return files


def candidates(dataset_id: str, run: Path | None = None) -> Iterator[tuple[str, list[str]]]:
    """Streams (query id, item ids) of a run file, plain or gzip, or of a folder of run files; without one, of the
    dataset's own first stage (`scoreddocs`).

    Order: TREC runs by score, three fields by rank, ties by item id descending; text rows as the lines stand.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: as `records`; names file and line, for a malformed line, an item that a query has twice, lines of
            one query that do not stand together, damaged gzip data, or an empty file.
    """
    if run is None:
        entries: Iterable[Entry] = (
            (f"{dataset_id} scoreddocs, record {number}", record.query_id, record.doc_id, record.score)
            for number, record in enumerate(records(dataset_id, "scoreddocs"), 1)
        )
    else:
        entries = (entry for file in run_files(run) for entry in _run_entries(file))
    for query_id, values in group_by_query(entries):
        yield query_id, ranked(values)


def _run_entries(file: Path) -> Iterator[Entry]:
    """The candidates of a file, with a number that is larger for better ones; its first line tells the layout."""
    layout = 0
    for number, line in read_lines(file):
        words, cells = line.split(), [cell.strip() for cell in line.split("\t")]
        value: float | None = None
        if layout in (0, 6) and len(words) == 6 and (value := parse_number(words[4])) is not None:
            found, query_id, item_id = 6, words[0], words[2]
        elif layout in (0, 3) and len(words) == 3 and words[2].isascii() and words[2].isdigit():
            found, query_id, item_id, value = 3, words[0], words[1], -float(words[2])
        elif layout in (0, 7) and len(cells) in (6, 7) and cells[0] and cells[2]:
            found, query_id, item_id, value = 7, cells[0], cells[2], -float(number)
        else:
            problem = (
                "malformed, or of another layout than the first line" if layout else "not a line of a run"
            )
            raise ValueError(f"{file}, line {number}: {problem}; understood: {_LAYOUTS}")
        layout = found
        yield f"{file}, line {number}", query_id, item_id, value
    if not layout:
        raise ValueError(f"{file}: the run is empty")


def build_titles(path: Path, source: str, documents: Iterable[tuple[str, str | None]]) -> None:
    """Writes (id, title) pairs to an SQLite file, whose B-tree takes ids in any order in flat memory.

    It appears whole or not at all; blank titles are kept as "".

    Raises:
        ValueError: an id that occurs twice, or no documents.
    """
    rows = ((identifier, one_line(title or "")) for identifier, title in documents)
    with replacing_path(path) as temporary, closing(sqlite3.connect(temporary)) as connection:
        # a cut-off build is thrown away, so it needs no journal and no waiting for the disk
        connection.executescript(
            "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-65536; "
            "CREATE TABLE titles (id TEXT PRIMARY KEY, title TEXT NOT NULL) WITHOUT ROWID; "
            "CREATE TABLE collection (name TEXT NOT NULL)"
        )
        try:
            count = connection.executemany("INSERT INTO titles VALUES (?, ?)", rows).rowcount
        except sqlite3.IntegrityError:
            raise ValueError(f"{source}: a document id occurs twice") from None
        if count < 1:
            raise ValueError(f"{source}: the collection has no documents")
        connection.execute("INSERT INTO collection VALUES (?)", (source,))
        connection.commit()


def open_titles(path: Path, dataset: str, documents: Path | None) -> sqlite3.Connection:
    """Titles by document id, of `msmarco-docs.tsv` or else of the dataset; written to `path` if there is nothing.

    Raises:
        ValueError: names file and line of a malformed document; or the titles are of another source.
    """
    source = fingerprint(existing(documents, "document file")) if documents else dataset
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        build_titles(path, source, track(_documents(dataset, documents), "titles"))
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        ((before,),) = connection.execute("SELECT name FROM collection")
    except sqlite3.DatabaseError as error:
        before = str(error)
    if before != source:
        connection.close()
        raise ValueError(
            f"{path}: holds the titles of {before!r}, not of {source!r}; remove it, or choose another folder"
        )
    return connection


def _documents(dataset: str, file: Path | None) -> Iterator[tuple[str, str | None]]:
    """(id, title) of each document; the file has id, url, title and body between tabs."""
    if file is None:
        if "title" not in load(dataset, "docs").docs_cls()._fields:
            raise ValueError(f"dataset {dataset!r}: its documents have no field 'title'")
        yield from ((document.doc_id, document.title) for document in records(dataset, "docs"))
        return
    for number, line in read_lines(file):
        fields = line.split("\t")
        if len(fields) != 4:
            raise ValueError(f"{file}, line {number}: expected id, url, title and body between tabs")
        yield fields[0].strip(), fields[2]


def titles_of(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, str]:
    """Titles of the ids that the collection has; "" where the title is blank."""
    titles: dict[str, str] = {}
    for start in range(0, len(ids), 500):
        some = ids[start : start + 500]
        marks = ",".join("?" * len(some))
        titles.update(connection.execute(f"SELECT id, title FROM titles WHERE id IN ({marks})", some))
    return titles
