"""What a report is made of, written as one HTML page and as Markdown by the templates beside this module."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any, ClassVar

import jinja2
import pandas as pd

from crossjem_pl.evaluation.charts import Plot

__all__ = [
    "Block",
    "Code",
    "Example",
    "Examples",
    "Figure",
    "Folded",
    "RankedItem",
    "Ranking",
    "Report",
    "Section",
    "Table",
    "Text",
    "escape_markdown",
    "p_value",
    "parameters",
    "render",
    "training_time",
]


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text; `missing` where it says what the report does not show and why; `source` is (label, address)."""

    kind: ClassVar[str] = "text"
    text: str
    missing: bool = False
    source: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Cells of plain text; the first column names the row.

    Args:
        columns: headings.
        rows: as many cells each as there are columns.
        words: columns (counted from 0) that hold words, which are set to the left; the others hold numbers.
        strong: (row, column) of cells that stand out on the page.
    """

    kind: ClassVar[str] = "table"
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[int, ...] = ()
    strong: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot; `name` is its file's, without the ending. Neighbours stand side by side."""

    kind: ClassVar[str] = "figure"
    name: str
    plot: Plot


@dataclass(frozen=True, slots=True)
class Code:
    """Text that keeps its lines, such as a configuration or a command."""

    kind: ClassVar[str] = "code"
    text: str
    language: str

    @property
    def fence(self) -> str:
        """Back-ticks for Markdown, more than any row of them in the text."""
        return "`" * max(3, 1 + max(map(len, re.findall("`+", self.text)), default=0))


@dataclass(frozen=True, slots=True)
class RankedItem:
    """An item of a ranking; `text` is None where the runs hold no texts, `grade` 0 where it is not judged."""

    rank: int
    item_id: str
    text: str | None
    grade: int
    relevant: bool

    @property
    def label(self) -> str:
        return self.item_id if self.text is None else self.text


@dataclass(frozen=True, slots=True)
class Ranking:
    """Some items of a list as a system ranks them, and the metric's value of the whole list."""

    system: str
    value: float
    items: tuple[RankedItem, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """A list as one or more systems rank it.

    Args:
        query_id: of the list.
        query: its text; None where no run holds it.
        sides: the rankings.
        relevant: relevant items among the candidates.
        candidates: items of the list.
    """

    query_id: str
    query: str | None
    sides: tuple[Ranking, ...]
    relevant: int
    candidates: int

    @property
    def title(self) -> str:
        return f"query {self.query_id}" if self.query is None else self.query

    @property
    def rows(self) -> list[tuple[int, list[RankedItem | None]]]:
        """The rankings side by side: (rank, the item of each or None)."""
        sides = [{item.rank: item for item in side.items} for side in self.sides]
        return [(rank, [side.get(rank) for side in sides]) for rank in sorted(set().union(*sides))]


@dataclass(frozen=True, slots=True)
class Examples:
    """Lists under a heading of the third level."""

    kind: ClassVar[str] = "examples"
    title: str
    metric: str
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class Folded:
    """Blocks that stay closed until a reader asks for them."""

    kind: ClassVar[str] = "folded"
    title: str
    blocks: tuple[Block, ...]


Block = Text | Table | Figure | Code | Examples | Folded


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
        results: one row per system, see `Comparison.to_frame`; None where no run could be evaluated.
    """

    title: str
    subtitle: str
    notes: tuple[str, ...]
    sections: tuple[Section, ...]
    results: pd.DataFrame | None

    def figures(self) -> list[Figure]:
        """All figures, in reading order."""
        return [block for section in self.sections for block in section.blocks if isinstance(block, Figure)]


def render(report: Report, template: str, figures: str | None = None) -> str:
    """The report through `templates/<template>`: "report.html" or "report.md".

    All texts of the runs are escaped. The HTML page holds its plots, loads nothing and has no script. Markdown links
    the plots as `<figures>/<name>.svg`; without `figures` it has none.
    """
    text = _environment().get_template(template).render(report=report, figures=figures)
    return text if template.endswith(".html") else re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def p_value(p: float) -> str:
    """.0312 for 0.03124."""
    return "<.0001" if p < 0.0001 else "1.0" if p > 0.99995 else f"{p:.4f}"[1:]


def parameters(count: float | None) -> str:
    """22.7M for 22,713,216."""
    if count is None:
        return "–"
    for size, unit in ((1_000_000_000, "B"), (1_000_000, "M"), (1_000, "K")):
        if count >= 0.9995 * size:  # 999,900 is 1M, not 1000K
            scaled = count / size
            return f"{scaled:,.0f}{unit}" if scaled >= 999.5 else f"{scaled:.3g}{unit}"
    return f"{count:g}"


def training_time(seconds: float | None) -> str:
    """1 h 02 min for 3,725."""
    if seconds is None:
        return "–"
    if seconds < 59.5:
        return f"{seconds:.3g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = max(1, round(seconds / 60))
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60:02d} min"


def escape_markdown(text: object) -> str:
    """The text as it is, whatever Markdown or HTML it holds, on one line."""
    return re.sub(r"([\\`*_{}<>#|~$&]|\](?=[(\[:]))", r"\\\1", " ".join(str(text).split()))


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("crossjem_pl.evaluation"),
        autoescape=lambda name: name is not None and name.endswith(".html"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(md=escape_markdown, number="{:.4f}".format, neighbours=_neighbours)
    return environment


def _neighbours(blocks: Iterable[Block]) -> list[list[Any]]:
    """Neighbouring figures together, every other block alone."""
    groups = [list(group) for _, group in groupby(blocks, lambda block: block.kind == "figure")]
    return [
        part for group in groups for part in ([group] if group[0].kind == "figure" else [[b] for b in group])
    ]
