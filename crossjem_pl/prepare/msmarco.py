"""Ranking lists of document titles from a dataset of ir_datasets: MS MARCO-Titles of the CROSS-JEM paper.

Appendix C of the paper: MS MARCO documents by their titles alone, 0.37M training queries with the top 10 of the
HDCT retriever and the click labels. Queries, judgements, documents and the official first stage come from
ir_datasets (`msmarco-document`), HDCT's candidates from its run files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from rich.progress import track

from crossjem_pl.lists import RankingList
from crossjem_pl.prepare.collection import candidates, load, open_titles, records, run_files, titles_of
from crossjem_pl.prepare.output import LISTS_PER_SHARD, Written, fingerprint, one_line, write_part

__all__ = ["PARTS", "TITLES", "prepare_titles"]

PARTS = {
    "train": "train",
    "dev": "dev",
    "trec-dl-2019": "trec-dl-2019/judged",
    "trec-dl-2020": "trec-dl-2020/judged",
}
"""Parts and their ids below the dataset's own."""
TITLES = "titles.sqlite"

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
) -> Iterator[Written]:
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
    for part, dataset_id in ids.items():
        load(
            dataset_id,
            "queries",
            "qrels",
            *["docs"] * (documents is None),
            *["scoreddocs"] * (part not in runs),
        )

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
        yield write_part(out, part.replace("/", "-"), made_of, make, SENTENCES, lists_per_shard)


def _lists(
    dataset_id: str,
    run: Path | None,
    open_store: Callable[[], Connection],
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
    items: Sequence[str], depth: int | None, store: Connection, counts: Counter[str]
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
