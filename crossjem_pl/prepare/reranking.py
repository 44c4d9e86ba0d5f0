"""Re-ranking datasets of MTEB and in the layout of BEIR, from a folder or the Hugging Face hub.

Muennighoff et al., "MTEB: Massive Text Embedding Benchmark", EACL 2023. Two layouts of their files are read:

    rows `query, positive, negative`, one file or more for each split;
    corpus (id, title, text), queries (id, text), qrels (query-id, corpus-id, score), top_ranked (query-id, corpus-ids).

SODQ is `mteb/stackoverflowdupquestions-reranking`, with a train and a test file; its validation file was withdrawn
because it was the test file again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from crossjem_pl.data.formats import ListReader
from crossjem_pl.data.rows import ROW_ENDINGS, Row, listed, read_rows
from crossjem_pl.data.shards import Manifest
from crossjem_pl.files import ending, existing
from crossjem_pl.lists import RankingList, shown
from crossjem_pl.prepare.download import hub_dataset
from crossjem_pl.prepare.linkso import DEV_FRACTION
from crossjem_pl.prepare.output import fingerprint, judged_list, one_line, write_splits
from crossjem_pl.progress import track

__all__ = ["dataset_folder", "prepare_reranking"]

_SPLITS = {"train": "train", "validation": "dev", "valid": "dev", "val": "dev", "dev": "dev", "test": "test"}
_ROWS = ("query", "positive", "negative")
SENTENCES = {
    "untitled_queries": "queries left out, they have no text",
    "untitled_items": "items left out, they have no text",
    "empty_lists": "queries left out, none of their candidates has a text",
    "both": "texts that a row has as positive and as negative, kept as positive",
    "one_sided": "queries left out, they have no positive or no negative (as MTEB's evaluator does)",
    "merged_items": "items merged, exact repeats inside their list",
    "merged_queries": "query texts merged, exact repeats inside their row",
    "repeated_queries": "lists repeat the query text of an earlier one; their ids end in -2, -3, ...",
}


def dataset_folder(name: str, out: Path, yes: bool = False) -> Path:
    """The folder `name`, or `out/source` with the files of the dataset `name` of the hub, see `hub_dataset`.

    Raises:
        ValueError: `name` is no folder, and the hub cannot be reached or has no such dataset; says what to download.
    """
    return Path(name) if Path(name).is_dir() else hub_dataset(name, out / "source", ROW_ENDINGS, yes)


def prepare_reranking(
    folder: Path, out: Path, command: str, *, dev_fraction: float | None = None
) -> Iterator[Manifest]:
    """Writes `out/train.parquet/`, `dev.parquet/` and `test.parquet/`, those that the source has; yields accounts.

    Labels are 1 and 0, or the grades of the qrels. Items stand in the order of their ids, which tells nothing of the
    labels; one list for each text of a `query` list.

    Args:
        folder: files of the splits, by the first split name in each file's path: `train.jsonl.gz`,
            `data/test-00000-of-00001.parquet`, `qrels/test.tsv`, `validation/0000.parquet`...
        out: folder to fill.
        command: name of the command, for the manifest.
        dev_fraction: dev is this part of the training queries, by a hash of the text. None: the source's own
            validation split, or `DEV_FRACTION` if there is a train split and no validation split. 0: none.

    Raises:
        FileNotFoundError: no such folder.
        ValueError: no split, rows of another layout, or a malformed row (names file, line and field).
    """
    splits, tables = _files(existing(folder, "folder of the dataset"))
    if dev_fraction is None:
        dev_fraction = DEV_FRACTION if "train" in splits and "dev" not in splits else 0.0
    elif dev_fraction and "train" not in splits:
        raise ValueError(f"{folder}: there is no train split to take a dev split from")
    elif dev_fraction:
        splits.pop("dev", None)
    source = [fingerprint(file) for group in (splits | tables).values() for file in group]
    makers = {
        split: partial(_judged_lists, files, _of_split(tables, split, folder))
        if tables
        else partial(_row_lists, files)
        for split, files in splits.items()
    }
    return write_splits(out, command, source, makers, dev_fraction, SENTENCES)


def _files(folder: Path) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    """Files of "train", "dev" and "test" (rows, or judgements), and the other tables of the second layout."""
    splits: dict[str, list[Path]] = {}
    tables: dict[str, list[Path]] = {}
    for file in sorted(folder.rglob("*")):
        inner = file.relative_to(folder)
        if ending(file) not in ROW_ENDINGS or any(part[0] == "." for part in inner.parts):
            continue
        words = re.split(r"[^a-z_]+", str(inner).lower())
        table = next((word for word in words if word in ("corpus", "queries", "top_ranked")), None)
        split = _split(file, folder)
        if table is not None:
            tables.setdefault(table, []).append(file)
        elif split is not None:
            splits.setdefault(split, []).append(file)
    if not splits:
        raise ValueError(
            f"{folder}: no file of a split; expected names such as train.jsonl.gz, validation.jsonl.gz or "
            f"data/test-00000-of-00001.parquet (endings {', '.join(ROW_ENDINGS)})"
        )
    for name, files in (splits | tables).items():
        if len({ending(file) for file in files}) > 1:
            kinds = ", ".join(file.name for file in files)
            raise ValueError(f"{folder}: files of several kinds for {name} ({kinds}); keep one kind")
    if tables and not {"corpus", "queries"} <= tables.keys():
        raise ValueError(
            f"{folder}: expected files of a corpus and of queries, found {', '.join(tables)} alone"
        )
    return splits, tables


def _split(file: Path, folder: Path) -> str | None:
    """The first split name in a file's path below the folder."""
    words = re.split(r"[^a-z]+", str(file.relative_to(folder)).lower())
    return next((_SPLITS[word] for word in words if word in _SPLITS), None)


def _row_lists(files: Iterable[Path], counts: Counter[str]) -> Iterator[tuple[str, RankingList]]:
    """The lists of rows, each with the first query text of its row: paraphrases stay together."""
    reader = ListReader("mteb")
    for row in track((row for file in files for row in read_rows(file)), "rows"):
        texts = {field: _texts(row, field) for field in _ROWS}
        key = next(iter(texts["query"]), "")
        counts["untitled_queries"] += texts["query"].count("")
        counts["untitled_items"] += texts["positive"].count("") + texts["negative"].count("")
        texts = {field: [text for text in values if text] for field, values in texts.items()}
        both = {*texts["positive"]} & {*texts["negative"]}
        counts["both"] += len(both)
        texts["negative"] = [text for text in texts["negative"] if text not in both]
        if not texts["query"]:
            continue
        if not (texts["positive"] and texts["negative"]):
            counts["one_sided"] += 1
            continue
        yield from ((key, ranking_list) for ranking_list in reader.lists(replace(row, values=texts)))
    for name in ("merged_items", "merged_queries", "repeated_queries"):
        counts[name] += getattr(reader.counts, name)


def _texts(row: Row, field: str) -> list[str]:
    """The texts of a field as lines, blank ones too."""
    value = row.values.get(field)
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(text, str) for text in values):
        raise row.error(
            field,
            f"expected a text or a list of texts, got {type(value).__name__} (columns: {listed(row.columns)})",
        )
    return [one_line(text) for text in values]


def _line(row: Row, field: str) -> str:
    """The text of a field as a line, "" where there is none."""
    value = row.values.get(field)
    if not isinstance(value, str | None):
        raise row.error(field, f"expected a text, got {shown(value)}")
    return one_line(value or "")


def _of_split(tables: Mapping[str, Sequence[Path]], split: str, folder: Path) -> dict[str, Sequence[Path]]:
    """The files of each table that name the split, or all where none does."""
    return {
        name: [file for file in files if _split(file, folder) == split] or files
        for name, files in tables.items()
    }


def _judged_lists(
    qrels: Iterable[Path], tables: Mapping[str, Sequence[Path]], counts: Counter[str]
) -> Iterator[tuple[str, RankingList]]:
    """Lists of the judged queries: the candidates of `top_ranked`, or else all judged items, in the order of their ids.
    Memory holds the texts of the candidates, not the corpus."""
    grades: dict[str, dict[str, float]] = {}
    for row in (row for file in qrels for row in read_rows(file)):
        of_query = grades.setdefault(row.identifier("query-id"), {})
        item, grade = row.identifier("corpus-id"), row.scalar("score")
        if of_query.setdefault(item, grade) != grade:
            raise row.error("score", f"item {shown(item)} has the grade {of_query[item]:g} in an earlier row")
    ranked = {
        row.identifier("query-id"): row.identifiers("corpus-ids")
        for file in tables.get("top_ranked", ())
        for row in read_rows(file)
    }
    candidates = {
        query_id: sorted({*ranked.get(query_id, of_query)}) for query_id, of_query in grades.items()
    }
    queries = _by_id(tables["queries"], candidates)
    items = _by_id(tables["corpus"], {item for of_query in candidates.values() for item in of_query})
    for query_id, ids in candidates.items():
        ranking_list = judged_list(query_id, queries.get(query_id), ids, items, grades[query_id], counts)
        if ranking_list is None:
            continue
        labels = ranking_list.labels or ()
        if max(labels) <= 0 or min(labels) > 0:
            counts["one_sided"] += 1
        else:
            yield ranking_list.query, ranking_list


def _by_id(files: Iterable[Path], wanted: Collection[str]) -> dict[str, str]:
    """One-line texts of the wanted ids; the title where the text is blank."""
    texts: dict[str, str] = {}
    for row in (row for file in files for row in read_rows(file)):
        identifier = row.identifier("_id" if "_id" in row.values else "id")
        if identifier in wanted:
            text = _line(row, "text") or _line(row, "title")
            if texts.setdefault(identifier, text) != text:
                raise row.error("text", f"id {shown(identifier)} has another text in an earlier row")
    return texts
