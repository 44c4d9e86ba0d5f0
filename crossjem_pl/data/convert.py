"""`convert`: any source of lists to any format that can be written, with an account of what was left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossjem_pl.data.formats import LAYOUTS, TARGETS, detect_layout, read_lists, target_format, write_lists
from crossjem_pl.data.shards import write_shards
from crossjem_pl.data.teacher import join_scores
from crossjem_pl.data.trec import ReadCounts, read_trec
from crossjem_pl.files import as_path, ending, existing
from crossjem_pl.lists import RankingList, counted

__all__ = ["SOURCES", "ConvertReport", "convert"]

SOURCES = (*LAYOUTS, "trec")
"""Names of the formats that `convert` reads, besides "auto"."""


@dataclass(frozen=True)
class ConvertReport:
    """What `convert` read and wrote, with the names of the formats; `str()` is the text for a terminal."""

    source: Path
    target: Path
    from_format: str
    to_format: str
    counts: ReadCounts

    def __str__(self) -> str:
        written = f"{counted(self.counts.lists, 'list')}, {counted(self.counts.items, 'item')}"
        line = f"{self.source} ({self.from_format}) -> {self.target} ({self.to_format}): {written}"
        return "\n  ".join([line, *self.counts.notes()])


def convert(
    source: Path,
    target: Path,
    *,
    from_format: str = "auto",
    to_format: str = "auto",
    queries: Path | None = None,
    items: Path | None = None,
    qrels: Path | None = None,
    label_column: str = "labels",
    score_column: str = "scores",
    query_column: str | None = None,
    item_column: str | None = None,
    shard_size: int | None = None,
    teacher_scores: Path | None = None,
) -> ConvertReport:
    """Reads lists from `source` and writes them to `target`, in bounded memory (pairs are grouped in memory).

    `target` appears whole or not at all (a folder of shards is refused by readers until it is whole).

    Args:
        source: file or folder of shards, or a TREC run.
        target: file to write, or with `shard_size` a folder.
        from_format: canonical, mteb, columns, pairs, sentences, triplets or trec; "auto" looks at the columns, and at
            `queries`, `items` and `qrels`.
        to_format: "canonical", "run", "qrels", or "auto": by the ending of `target`.
        queries: texts of the queries of a run, `id<TAB>text` lines or `{id, text}` rows.
        items: texts of the items of a run, in the same forms.
        qrels: judgements for a run; unjudged items get label 0.
        label_column: column read as the labels.
        score_column: column read as the scores.
        query_column: column of the queries, if it has a name of its own.
        item_column: column of the items (lists of texts, or one text a row), likewise.
        shard_size: write a folder of Parquet shards of so many lists.
        teacher_scores: Parquet of `query_id, item_id, score`, or a folder of such files; its scores replace those of
            the lists.

    Raises:
        FileNotFoundError: names a file that does not exist.
        ValueError: names file, line and field of what is malformed, or the arguments that do not go together.
    """
    source, target = existing(source), as_path(target)
    if shard_size is not None and to_format not in ("auto", "canonical"):
        raise ValueError(f"{target}: shards are in the canonical format, not in {to_format!r}")
    to_format = "canonical" if shard_size is not None else target_format(target, to_format)
    for file in (source, queries, items, qrels, teacher_scores):
        if file is not None and target.exists() and as_path(file).exists() and target.samefile(as_path(file)):
            raise ValueError(f"{target}: the target is one of the files to read")
    if source.is_dir() and target.parent.resolve() == source.resolve():
        raise ValueError(f"{target}: the target would be a shard of the folder that is read")
    texts = queries is not None or items is not None or qrels is not None
    if from_format == "auto":
        run = texts or (source.is_file() and ending(source) in TARGETS["run"])
        from_format = "trec" if run else detect_layout(source, query_column, item_column)
    counts = ReadCounts()
    if from_format == "trec":
        if queries is None or items is None:
            raise ValueError(f"{source}: a TREC run needs both a queries and an items file with the texts")
        if (label_column, score_column, query_column, item_column) != ("labels", "scores", None, None):
            raise ValueError(f"{source}: a TREC run has no named columns, so no option can name one")
        lists = read_trec(source, queries, items, qrels, counts=counts)
    elif from_format not in LAYOUTS:
        raise ValueError(f"unknown format to read {from_format!r}; there are: auto, {', '.join(SOURCES)}")
    elif texts:
        raise ValueError(f"{source}: queries, items and qrels go with a TREC run, not with {from_format!r}")
    else:
        columns: dict[str, Any] = {"query_column": query_column, "item_column": item_column}
        columns |= {"label_column": label_column, "score_column": score_column}
        lists = read_lists(source, from_format, counts=counts, **columns)
    if teacher_scores is not None:
        lists = join_scores(lists, teacher_scores, exact=True)

    if to_format != "canonical":
        lists = _noting(lists, "labels" if to_format == "run" else "scores", counts)
    # every reader has checked that no query id occurs twice
    if shard_size is None:
        write_lists(lists, target, to_format, unique=False)
    else:
        write_shards(lists, target, shard_size)
    return ConvertReport(source, target, from_format, to_format, counts)


def _noting(lists: Iterator[RankingList], other: str, counts: ReadCounts) -> Iterator[RankingList]:
    """The lists, while the fields that TREC files do not hold are noted: the texts, the other numbers where given."""
    for ranking_list in lists:
        counts.leave("query", "items", *[other] * (getattr(ranking_list, other) is not None))
        yield ranking_list
