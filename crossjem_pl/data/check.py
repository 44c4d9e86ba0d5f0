"""`check`: what ranking lists hold, and what is wrong with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from crossjem_pl.data.distributions import IntegerCounts, Summary
from crossjem_pl.data.formats.rows import Row
from crossjem_pl.data.inspection import (
    Findings,
    Grade,
    LabelFigures,
    LabelInspector,
    LeakageFigures,
    LeakageInspector,
    LengthFigures,
    LengthInspector,
    Problem,
    RepeatFigures,
    RepeatInspector,
    RowReader,
    ScoreFigures,
    ScoreInspector,
    TrainingTexts,
)
from crossjem_pl.lists import RankingList
from crossjem_pl.text import ShortTextTokenizer

__all__ = ["CheckReport", "Figures", "FileReport", "check"]

Progress = Callable[[Iterable[tuple[Row, RankingList]], str], Iterable[tuple[Row, RankingList]]]


@dataclass(frozen=True)
class Figures:
    """What a source holds. Summaries are None where there is nothing to summarise.

    Args:
        rows: rows read.
        refused_rows: rows with mistakes; their lists are in none of the other figures.
        lists: lists.
        items: items in them.
        items_per_list: their distribution.
        queries, item_texts: lengths.
        repeats: distinct texts and ids.
        labels, scores: distributions.
        leakage: comparison with the training lists; None for the training lists themselves.
    """

    rows: int
    refused_rows: int
    lists: int
    items: int
    items_per_list: Summary | None
    queries: LengthFigures
    item_texts: LengthFigures
    repeats: RepeatFigures
    labels: LabelFigures
    scores: ScoreFigures
    leakage: LeakageFigures | None


@dataclass(frozen=True)
class FileReport:
    """One source: `source` as it was named, its `role`, figures, and problems by grade."""

    source: str
    role: Literal["train", "test"]
    figures: Figures
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

    Memory does not grow with the lists, but with the number of distinct texts: a 64-bit hash and 8 further
    bytes for every query id, query, item id, item and (query, positive item), of which a sixteenth takes ten
    times that (`HashMap`). 10 million items under as many ids take about 0.5 GB, for a moment twice that.

    Texts are compared normalised: Unicode NFKC, case-folded, white space collapsed.

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
    training: TrainingTexts | None = None
    reports = []
    for path in (lists, *tests):
        findings, texts = Findings(), TrainingTexts()
        rows = RowReader(path, findings, labels_field, scores_field)
        lengths = LengthInspector(findings, tokenizer, max_query_tokens, max_item_tokens)
        labels, scores = LabelInspector(findings), ScoreInspector(findings)
        repeats = RepeatInspector(findings, texts)
        leakage = None if training is None else LeakageInspector(findings, training)
        sizes, items = IntegerCounts(), 0
        for row, one in rows if progress is None else progress(rows, str(path)):
            where = rows.place(row)
            sizes.add([len(one)])
            items += len(one)
            if len(one) == 1:
                findings.add("single-item", f"{where}: {one.query_id}")
            repeats.look(where, row, one)
            lengths.look(where, one)
            labels.look(where, one)
            scores.look(where, one)
            if leakage is not None:
                leakage.look(where, one)
        queries, item_texts = lengths.figures()
        figures = Figures(
            rows=rows.rows,
            refused_rows=rows.refused_rows,
            lists=sum(sizes.counts.values()),
            items=items,
            items_per_list=sizes.summary(),
            queries=queries,
            item_texts=item_texts,
            repeats=repeats.figures(),
            labels=labels.figures(),
            scores=scores.figures(),
            leakage=None if leakage is None else leakage.figures(),
        )
        if figures.lists and not figures.labels.lists and not figures.scores.lists:
            findings.add("no-targets", str(path), figures.lists)
        role: Literal["train", "test"] = "train" if training is None else "test"
        reports.append(FileReport(str(path), role, figures, findings.problems()))
        training = texts if training is None else training
    return CheckReport(tuple(reports))
