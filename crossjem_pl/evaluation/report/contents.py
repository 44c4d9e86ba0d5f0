"""What a report is made of. Sections are built once from these and written as Markdown and as HTML."""

from __future__ import annotations

import re
from dataclasses import dataclass

from crossjem_pl.evaluation.drawing import Plot
from crossjem_pl.evaluation.results import Comparison, RankedItem

__all__ = [
    "Block",
    "Differences",
    "Figure",
    "Folded",
    "HardList",
    "HardLists",
    "Missing",
    "Paragraph",
    "Preformatted",
    "Report",
    "Results",
    "Section",
    "Table",
]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Plain text; `source` is a (label, address) that stands behind it."""

    text: str
    source: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """What the report does not show, and why."""

    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """Cells of plain text; the first column names the row.

    Args:
        columns: headings.
        rows: as many cells each as there are columns.
        words: columns (counted from 0) that hold words, which are set to the left; the others hold numbers.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"a row of {len(row)} cells in a table of {len(self.columns)} columns: {row}"
                )


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot; `name` is its file's, without the ending."""

    name: str
    plot: Plot


@dataclass(frozen=True, slots=True)
class Preformatted:
    """Text that keeps its lines, such as a configuration or a command."""

    text: str
    language: str


@dataclass(frozen=True, slots=True)
class Results:
    """The table of systems and metrics."""

    comparison: Comparison


@dataclass(frozen=True, slots=True)
class Differences:
    """The lists on which systems differ most, side by side."""

    comparison: Comparison


@dataclass(frozen=True, slots=True)
class HardList:
    """A list that a run ranks badly.

    Args:
        query_id: of the list.
        query: its text; None where no run holds it.
        value: of the metric.
        top: the first items.
        found: (rank, item) of the first relevant item, counted from 1.
        relevant: relevant items among the candidates.
        candidates: items of the list.
    """

    query_id: str
    query: str | None
    value: float
    top: tuple[RankedItem, ...]
    found: tuple[int, RankedItem]
    relevant: int
    candidates: int


@dataclass(frozen=True, slots=True)
class HardLists:
    """Hard lists of one run, worst first."""

    metric: str
    lists: tuple[HardList, ...]


@dataclass(frozen=True, slots=True)
class Folded:
    """Blocks that stay closed until a reader asks for them."""

    title: str
    blocks: tuple[Block, ...]


Block = Paragraph | Missing | Table | Figure | Preformatted | Results | Differences | HardLists | Folded


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it."""

    title: str
    blocks: tuple[Block, ...]

    @property
    def anchor(self) -> str:
        """For links on the page: letters, digits and hyphens."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True, slots=True)
class Report:
    """The whole report.

    Args:
        title: names the runs.
        subtitle: says on which lists.
        notes: what a reader must know before trusting the numbers.
        sections: in reading order.
        comparison: the numbers of the table; None where no run could be evaluated.
    """

    title: str
    subtitle: str
    notes: tuple[str, ...]
    sections: tuple[Section, ...]
    comparison: Comparison | None

    def figures(self) -> tuple[Figure, ...]:
        """All figures, those of folded parts included."""
        return tuple(figure for section in self.sections for figure in _figures(section.blocks))


def _figures(blocks: tuple[Block, ...]) -> list[Figure]:
    found: list[Figure] = []
    for block in blocks:
        if isinstance(block, Figure):
            found.append(block)
        elif isinstance(block, Folded):
            found += _figures(block.blocks)
    return found
