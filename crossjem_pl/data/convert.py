"""`convert`: any source of lists to any format that can be written, with an account of what was left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from crossjem_pl.data.formats import (
    LAYOUTS,
    ReadCounts,
    detect_layout,
    read_lists,
    read_trec,
    target_format,
    write_lists,
)
from crossjem_pl.data.shards import write_shards
from crossjem_pl.data.teacher_stream import merge_scores
from crossjem_pl.files import ending, existing
from crossjem_pl.lists import RankingList

__all__ = ["SOURCES", "ConvertReport", "convert"]

SOURCES = (*LAYOUTS, "trec")
"""Names of the formats that `convert` reads, besides "auto"."""

_RUN_ENDINGS = (".run", ".run.gz", ".trec", ".trec.gz")


@dataclass(frozen=True)
class ConvertReport:
    """What `convert` did. `str()` is the text for a terminal.

    Args:
        source: the file or folder that was read.
        target: the file that was written.
        from_format: "canonical", "mteb", "columns" or "trec".
        to_format: "canonical", "run" or "qrels".
        lists: lists written.
        items: items in them.
        merged_items: items that were exact repeats inside their list and became one.
        merged_queries: texts of a `query` list that were exact repeats and became one.
        repeated_queries: rows without a query id whose query text had occurred before (ids end in -2, -3,
            ...).
        cut_items: items left out by `depth`.
        judgements_outside: judged pairs of the qrels that are in no list.
        columns_not_carried: columns of the source that the target does not hold.
    """

    source: Path
    target: Path
    from_format: str
    to_format: str
    lists: int
    items: int
    merged_items: int = 0
    merged_queries: int = 0
    repeated_queries: int = 0
    cut_items: int = 0
    judgements_outside: int = 0
    columns_not_carried: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"{self.source} ({self.from_format}) -> {self.target} ({self.to_format}): "
            f"{self.lists} lists, {self.items} items"
        ]
        notes = (
            (self.merged_items, "items merged, exact repeats inside their list"),
            (self.merged_queries, "query texts merged, exact repeats inside their row"),
            (
                self.repeated_queries,
                "lists repeat the query text of an earlier one; their ids end in -2, -3, ...",
            ),
            (self.cut_items, "items left out below the depth"),
            (self.judgements_outside, "judgements not carried, their items are in no list"),
        )
        lines += [f"  {count} {note}" for count, note in notes if count]
        if self.columns_not_carried:
            lines.append(f"  columns not carried: {', '.join(self.columns_not_carried)}")
        return "\n".join(lines)


def convert(
    source: Path,
    target: Path,
    *,
    from_format: str = "auto",
    to_format: str = "auto",
    queries: Path | None = None,
    items: Path | None = None,
    qrels: Path | None = None,
    labels_field: str | None = "labels",
    scores_field: str | None = "scores",
    depth: int | None = None,
    shard_size: int | None = None,
    teacher_scores: Path | None = None,
) -> ConvertReport:
    """Reads lists from `source` and writes them to `target`, in bounded memory.

    `target` appears whole or not at all (a folder of shards is refused by readers that stream until it is whole).

    Args:
        source: file or folder of shards, or a TREC run.
        target: file to write, or with `shard_size` a folder.
        from_format: "canonical", "mteb", "columns", "trec", or "auto": "trec" if `queries` or `items` is
            given, else by the columns.
        to_format: "canonical", "run", "qrels", or "auto": by the ending of `target`.
        queries: texts of the queries of a run, `id<TAB>text` lines or `{id, text}` rows.
        items: texts of the items of a run, in the same forms.
        qrels: judgements for a run; unjudged items get label 0.
        labels_field: column read as the labels, None for none.
        scores_field: column read as the scores, None for none (of a run: whether its scores are kept).
        depth: keep the first `depth` items of each list: a run's best, else the first of the row (an MTEB row
            has no order, so there it is refused).
        shard_size: write a folder of Parquet shards of so many lists, see `write_shards`.
        teacher_scores: Parquet of `query_id, item_id, score` in the order of the lists, or a folder of such files; its
            scores replace those of the lists, see `merge_scores`.

    Raises:
        FileNotFoundError: names a file that does not exist.
        ValueError: names file, line and field of what is malformed, or the arguments that do not go together.
    """
    source, target = existing(source), Path(target)
    if shard_size is None:
        to_format = target_format(target, to_format)
    elif to_format in ("auto", "canonical"):
        to_format = "canonical"
    else:
        raise ValueError(f"{target}: shards are in the canonical format, not in {to_format!r}")
    if from_format not in ("auto", *SOURCES):
        raise ValueError(f"unknown format to read {from_format!r}; there are: auto, {', '.join(SOURCES)}")
    for file in (source, queries, items, qrels, teacher_scores):
        if file is not None and target.exists() and Path(file).exists() and target.samefile(file):
            raise ValueError(f"{target}: the target is one of the files to read")
    if source.is_dir() and target.parent.resolve() == source.resolve():
        raise ValueError(f"{target}: the target would be a shard of the folder that is read")
    if depth is not None and depth < 1:
        raise ValueError(f"depth must be at least 1, got {depth}")
    if from_format == "auto":
        texts = queries is not None or items is not None
        run = texts or qrels is not None or (source.is_file() and ending(source) in _RUN_ENDINGS)
        from_format = "trec" if run else detect_layout(source)

    if from_format == "mteb" and depth is not None:
        raise ValueError(f"{source}: rows of the layout 'mteb' have no ranking, so depth cannot cut one")

    counts = ReadCounts()
    if from_format == "trec":
        if queries is None or items is None:
            raise ValueError(f"{source}: a TREC run needs both a queries and an items file with the texts")
        if labels_field not in (None, "labels") or scores_field not in (None, "scores"):
            raise ValueError(
                f"{source}: a TREC run has no named columns, so labels_field and scores_field name none"
            )
        lists = read_trec(source, queries, items, qrels, depth=depth, counts=counts)
    elif queries is not None or items is not None or qrels is not None:
        raise ValueError(f"{source}: queries, items and qrels go with a TREC run, not with {from_format!r}")
    else:
        lists = read_lists(
            source, from_format, labels_field=labels_field, scores_field=scores_field, counts=counts
        )
    if teacher_scores is not None:
        lists = merge_scores(lists, teacher_scores)
    kept = _Kept(lists, depth, labels_field is not None, scores_field is not None, counts)
    # every reader has checked that no query id occurs twice
    if shard_size is None:
        write_lists(kept, target, to_format, unique=False)
    else:
        write_shards(kept, target, shard_size)
    return ConvertReport(
        source,
        target,
        from_format,
        to_format,
        kept.lists,
        kept.items,
        counts.merged_items,
        counts.merged_queries,
        counts.repeated_queries,
        counts.cut_items,
        counts.judgements_outside,
        (*counts.not_carried, *_left_by_target(to_format, kept)),
    )


class _Kept:
    """Lists without what the caller does not want, counted as they pass by."""

    def __init__(
        self,
        lists: Iterator[RankingList],
        depth: int | None,
        labels: bool,
        scores: bool,
        counts: ReadCounts,
    ) -> None:
        self.lists = 0
        self.items = 0
        self.seen_labels = False
        self.seen_scores = False
        self._source = lists
        self._depth = depth
        self._labels = labels
        self._scores = scores
        self._counts = counts

    def __iter__(self) -> Iterator[RankingList]:
        for one in self._source:
            if self._depth is not None and len(one) > self._depth:
                self._counts.cut_items += len(one) - self._depth
                one = one.select(range(self._depth))
            if one.labels is not None and not self._labels:
                self._counts.leave("labels")
                one = replace(one, labels=None)
            if one.scores is not None and not self._scores:
                self._counts.leave("scores")
                one = replace(one, scores=None)
            self.lists += 1
            self.items += len(one)
            self.seen_labels |= one.labels is not None
            self.seen_scores |= one.scores is not None
            yield one


def _left_by_target(to_format: str, kept: _Kept) -> list[str]:
    """What lists hold and a run or qrels file cannot."""
    if to_format == "canonical":
        return []
    left = ["query", "items"]
    if to_format == "run" and kept.seen_labels:
        left.append("labels")
    if to_format == "qrels" and kept.seen_scores:
        left.append("scores")
    return left
