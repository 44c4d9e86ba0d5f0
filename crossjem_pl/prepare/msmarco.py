"""Ranking lists of document titles from a dataset of ir_datasets: MS MARCO-Titles of the CROSS-JEM paper.

Appendix C of the paper: MS MARCO documents by their titles alone, 0.37M training queries with the top 10 of the
HDCT retriever and the click labels. Queries, judgements, documents and the official first stage come from
ir_datasets (`msmarco-document`), HDCT's candidates from its run files.
"""

from __future__ import annotations

import shutil
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

from crossjem_pl.data.formats import write_lists
from crossjem_pl.lists import RankingList
from crossjem_pl.prepare.collection import load, official_candidates, official_count, records
from crossjem_pl.prepare.hashing import one_line
from crossjem_pl.prepare.manifest import Manifest, fingerprint
from crossjem_pl.prepare.report import Written, count_list
from crossjem_pl.prepare.runs import Candidates, read_candidates, run_files
from crossjem_pl.prepare.shards import finish, finished_folder, partial_folder, shard_name
from crossjem_pl.prepare.titles import TitleStore
from crossjem_pl.prepare.tracking import Track, untracked

__all__ = ["PARTS", "TITLES", "prepare_titles"]

PARTS = {
    "train": "train",
    "dev": "dev",
    "trec-dl-2019": "trec-dl-2019/judged",
    "trec-dl-2020": "trec-dl-2020/judged",
}
"""Parts and their ids below the dataset's own."""
TITLES = "titles.sqlite"
LISTS_PER_SHARD = 10_000

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
    "positives_blank": "judged relevant items not added, their title is blank or the document unknown",
    "positives_outside": "judged relevant items in no list: metrics over the lists cannot miss them",
    "judged_unknown_queries": "judgements of queries that the part does not have",
    "judged_unknown_documents": "judgements of documents that the collection does not have",
    "repeated_judgements": "judgements that repeat an earlier one with the same grade",
}


@dataclass(frozen=True)
class _Part:
    """What a part is made from."""

    queries: Mapping[str, str]
    grades: Mapping[str, Mapping[str, int]]
    store: TitleStore
    depth: int | None
    add_positives: bool


def prepare_titles(
    out: Path,
    *,
    dataset: str = "msmarco-document",
    parts: Sequence[str] = tuple(PARTS),
    runs: Mapping[str, Path] | None = None,
    depth: int | None = 10,
    dev_depth: int | None = None,
    add_positives: bool = False,
    lists_per_shard: int = LISTS_PER_SHARD,
    track: Track = untracked,
) -> Iterator[Written]:
    """Writes `out/PART.parquet/` for each part, in flat memory, and yields an account of each.

    Memory holds one part's queries and judgements, not its candidates and no documents: the titles go to
    `out/titles.sqlite`, once. A run that was cut off goes on with the first shard that is missing; parts that
    are complete are not made again. One process at a time may fill a folder.

    Items stand in the first stage's order, best first; labels are the grades, 0 where unjudged. The first
    stage's scores are not kept: `scores` is the teacher's field.

    Args:
        out: folder to fill.
        dataset: id of the collection; its documents need the field `title`.
        parts: keys of `PARTS`, or ids below the dataset's own.
        runs: run file or folder by part; the other parts take the dataset's official candidates.
        depth: candidates of a training query; None keeps all.
        dev_depth: candidates of a query of the other parts; None keeps all.
        add_positives: put relevant items that the first stage missed at the end of the training lists.
        lists_per_shard: queries in a shard.
        track: shows progress.

    Raises:
        FileNotFoundError: a run does not exist.
        ValueError: arguments that do not go together; a folder made with other options; and what reading the
            dataset and the runs refuses.
    """
    runs = dict(runs or {})
    for name, value in (("depth", depth), ("dev_depth", dev_depth), ("lists_per_shard", lists_per_shard)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if not parts or len(set(parts)) != len(parts):
        raise ValueError(f"parts must be distinct and at least one, got {list(parts)}")
    for part, run in runs.items():
        if part not in parts:
            raise ValueError(f"{run}: candidates for part {part!r}, which is not among {', '.join(parts)}")
        run_files(run)
    if add_positives and "train" not in parts:
        raise ValueError("add_positives is about the part 'train', which is not among the parts")
    ids = {part: f"{dataset}/{PARTS.get(part, part)}" for part in parts}
    for part, dataset_id in ids.items():
        load(dataset_id, "docs", "queries", "qrels")
        if part not in runs:
            load(dataset_id, "scoreddocs")

    manifest = Manifest(out, "msmarco-titles")
    entries = {}
    for part, dataset_id in ids.items():
        training = part == "train"
        entries[part] = manifest.part(
            part.replace("/", "-"),
            {
                "dataset": dataset_id,
                "candidates": fingerprint(runs[part]) if part in runs else "official",
                "depth": depth if training else dev_depth,
                "add_positives": add_positives and training,
                "lists_per_shard": lists_per_shard,
            },
        )
    manifest.save()
    return _prepare(out, dataset, ids, runs, entries, manifest, track)


def _prepare(
    out: Path,
    dataset: str,
    ids: Mapping[str, str],
    runs: Mapping[str, Path],
    entries: Mapping[str, dict[str, Any]],
    manifest: Manifest,
    track: Track,
) -> Iterator[Written]:
    waiting = []
    for part, entry in entries.items():
        name = part.replace("/", "-")
        if _settle(out, name, entry):
            yield Written(finished_folder(out, name), entry["counts"], SENTENCES, "was complete")
        else:
            waiting.append(part)
    if not waiting:
        return
    with _titles(out / TITLES, dataset, track) as store:
        for part in waiting:
            candidates = read_candidates(runs[part]) if part in runs else official_candidates(ids[part])
            yield _part(
                out, part.replace("/", "-"), ids[part], candidates, store, entries[part], manifest, track
            )


def _settle(out: Path, name: str, entry: dict[str, Any]) -> bool:
    """Whether a part is complete. Brings the folders in line with the manifest.

    Raises:
        ValueError: a folder of that name that the manifest does not know as complete.
    """
    target, partial = finished_folder(out, name), partial_folder(out, name)
    if entry["complete"]:
        if not target.exists() and partial.exists():
            finish(out, name)
        if target.exists():
            return True
    elif target.exists():
        raise ValueError(
            f"{target}: is there already, but not from a finished run of this command; remove it"
        )
    # shards are used again up to the first one that is missing
    kept = []
    for shard in entry["shards"]:
        if shard["file"] is not None and not (partial / shard["file"]).exists():
            break
        kept.append(shard)
    entry.update(complete=False, shards=kept, counts={})
    if not kept and partial.exists():
        shutil.rmtree(partial)
    return False


def _titles(path: Path, dataset: str, track: Track) -> TitleStore:
    if not path.exists():
        if "title" not in load(dataset, "docs").docs_cls()._fields:
            raise ValueError(f"dataset {dataset!r}: its documents have no field 'title'")
        documents = track(records(dataset, "docs"), "titles", official_count(dataset, "docs"))
        TitleStore.build(path, dataset, ((document.doc_id, document.title) for document in documents))
    return TitleStore(path, dataset)


def _part(
    out: Path,
    name: str,
    dataset_id: str,
    candidates: Iterator[Candidates],
    store: TitleStore,
    entry: dict[str, Any],
    manifest: Manifest,
    track: Track,
) -> Written:
    totals: Counter[str] = Counter()
    queries = {record.query_id: one_line(record.text) for record in records(dataset_id, "queries")}
    grades = _grades(dataset_id, queries, store, totals)
    options = entry["options"]
    part = _Part(queries, grades, store, options["depth"], options["add_positives"])
    per_shard: int = options["lists_per_shard"]
    shards: list[dict[str, Any]] = entry["shards"]
    finished = len(shards)
    folder = partial_folder(out, name)

    known = _known(track(candidates, name, len(queries)), queries, totals)
    for number in count():
        group = islice(known, per_shard)
        first = next(group, None)
        if first is None:
            break
        if number < finished:  # written by an earlier run
            deque(group, maxlen=0)
            continue
        counts: Counter[str] = Counter()
        lists = _lists(chain((first,), group), part, counts)
        one = next(lists, None)
        file = None if one is None else shard_name(number)
        if one is not None and file is not None:
            write_lists(chain((one,), lists), folder / file, unique=False)
        shards.append({"file": file, "counts": dict(counts)})
        manifest.save()

    for shard in shards:
        totals.update(shard["counts"])
    totals["queries_without_candidates"] = len(queries) - totals.pop("queries_seen", 0)
    judged = sum(grade > 0 for of_query in grades.values() for grade in of_query.values())
    totals["positives_outside"] = judged - totals["positives"]
    if not totals["lists"]:
        told = "".join(f"; {totals[key]} {text}" for key, text in SENTENCES.items() if totals[key])
        raise ValueError(f"part {name!r} of {dataset_id}: no list can be made{told}")
    entry.update(complete=True, counts=dict(totals))
    manifest.save()
    target = finish(out, name)
    return Written(target, totals, SENTENCES, f"{finished} shards were there" if finished else "")


def _known(
    candidates: Iterable[Candidates], queries: Mapping[str, str], totals: Counter[str]
) -> Iterator[Candidates]:
    """The candidates of the part's own queries."""
    for group in candidates:
        if group.query_id in queries:
            totals["queries_seen"] += 1
            yield group
        else:
            totals["unknown_queries"] += 1


def _lists(groups: Iterable[Candidates], part: _Part, counts: Counter[str]) -> Iterator[RankingList]:
    for group in groups:
        query = part.queries[group.query_id]
        if not query:
            counts["blank_queries"] += 1
            continue
        chosen = _choose(group.item_ids, part, counts)
        grades = part.grades.get(group.query_id, {})
        if part.add_positives:
            missed = [item for item, grade in grades.items() if grade > 0 and item not in chosen]
            titles = part.store.get(missed)
            added = {item: titles[item] for item in missed if titles.get(item)}
            counts["added_positives"] += len(added)
            counts["positives_blank"] += len(missed) - len(added)
            chosen.update(added)
        if not chosen:
            counts["empty_lists"] += 1
            continue
        labels = tuple(float(grades.get(item, 0)) for item in chosen)
        one = RankingList(group.query_id, query, tuple(chosen), tuple(chosen.values()), labels)
        count_list(one, counts)
        yield one


def _choose(items: Sequence[str], part: _Part, counts: Counter[str]) -> dict[str, str]:
    """The best `depth` candidates that have a title, with their titles."""
    chosen: dict[str, str] = {}
    at = 0
    while at < len(items) and (part.depth is None or len(chosen) < part.depth):
        wanted = len(items) if part.depth is None else part.depth - len(chosen)
        block = items[at : at + wanted]
        at += len(block)
        titles = part.store.get(block)
        for item in block:
            if item not in titles:
                counts["unknown_documents"] += 1
            elif not titles[item]:
                counts["blank_titles"] += 1
            else:
                chosen[item] = titles[item]
    counts["cut_items"] += len(items) - at
    return chosen


def _grades(
    dataset_id: str, queries: Mapping[str, str], store: TitleStore, totals: Counter[str]
) -> dict[str, dict[str, int]]:
    """Judgements of the part's queries by query and document, in their stored order.

    Raises:
        ValueError: one pair with two grades.
    """
    grades: dict[str, dict[str, int]] = {}
    for record in records(dataset_id, "qrels"):
        if record.query_id not in queries:
            totals["judged_unknown_queries"] += 1
            continue
        of_query = grades.setdefault(record.query_id, {})
        before = of_query.setdefault(record.doc_id, record.relevance)
        if before != record.relevance:
            raise ValueError(
                f"{dataset_id}: the judgements give query {record.query_id!r} and document "
                f"{record.doc_id!r} the grades {before} and {record.relevance}"
            )
        totals["repeated_judgements"] += 1
    totals["repeated_judgements"] -= sum(map(len, grades.values()))
    judged = list({document for of_query in grades.values() for document in of_query})
    unknown = set(judged) - store.get(judged).keys()
    totals["judged_unknown_documents"] = sum(
        document in unknown for of_query in grades.values() for document in of_query
    )
    return grades
