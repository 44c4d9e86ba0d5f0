"""A table as a Markdown page: ours beside the paper's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.tables.measures import Cell, Difference
from benchmarks.tables.spec import Part, System
from crossjem_pl.evaluation.page import p_value

__all__ = ["figures_table", "line", "overlap_table"]

MILLISECONDS = "ms"


def line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def figures_table(
    part: Part,
    found: Mapping[str, Mapping[str, Cell]],
    compared: Mapping[str, Difference],
    not_run: Mapping[str, str],
) -> list[str]:
    """One row per system: every column with its interval, the paper's figure, and the difference to the baseline."""
    papers = [
        column for column in part.columns if any(dict(system.paper).get(column) for system in part.systems)
    ]
    head = ["system", *part.columns, *(f"paper's {column}" for column in papers)]
    if compared:
        head.append(f"{part.columns[0]} against {part.baseline} (p)")
    rows = [line(head), line(["---", *(["---:"] * (len(head) - 1))])]
    for system in part.systems:
        cells = found.get(system.name, {})
        row = [system.name, *(_cell(cells.get(column), column) for column in part.columns)]
        row += [_paper(system, column) for column in papers]
        if compared:
            row.append(_difference(compared.get(system.name)))
        rows.append(line(row))
    rows += ["", *(f"Not run: {name}: {why}" for name, why in not_run.items())]
    return rows


def overlap_table(part: Part, rows: Sequence[tuple[str, float, float]]) -> list[str]:
    """m, N_u and their ratio for every limit L, beside the paper's."""
    paper = dict(part.paper)
    out = [
        line(["L", "m", "N_u", "m / N_u", "paper's m", "paper's N_u", "paper's m / N_u"]),
        line(["---:"] * 7),
    ]
    for limit, total, union in rows:
        theirs = paper.get(limit)
        reported = (
            ["", "", ""]
            if theirs is None
            else [*(f"{x:.2f}" for x in theirs), f"{theirs[0] / theirs[1]:.2f}"]
        )
        out.append(line([limit, f"{total:.2f}", f"{union:.2f}", f"{total / union:.2f}", *reported]))
    return out


def _cell(cell: Cell | None, column: str) -> str:
    if cell is None:
        return "–"
    scale = 1.0 if column.endswith(MILLISECONDS) else 100.0
    text = f"{scale * cell.mean:.2f}"
    if cell.low is not None and cell.high is not None:
        text += f" [{scale * cell.low:.2f}, {scale * cell.high:.2f}]"
    if len(cell.seeds) > 1:
        text += " (" + ", ".join(f"{scale * seed:.2f}" for seed in cell.seeds) + ")"
    return text


def _paper(system: System, column: str) -> str:
    value = dict(system.paper).get(column)
    return "" if value is None else f"{value:.2f}"


def _difference(found: Difference | None) -> str:
    if found is None:
        return ""
    mean, low, high = (f"{100 * value:+.2f}" for value in (found.mean, found.low, found.high))
    return f"{mean} [{low}, {high}] ({p_value(found.p)})"
