"""A token overlap report as tables and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from crossjem_pl.data.distributions import Summary
from crossjem_pl.data.overlap import PAPER
from crossjem_pl.data.overlap_report import HARDLY_PAYS, PAYS_WELL, OverlapReport, OverlapRow

__all__ = ["Cells", "growth_table", "limit_table", "method", "overlap_markdown", "summary_line"]

Cells = tuple[list[str], list[list[str]]]
"""The header and the rows of a table."""


def summary_line(report: OverlapReport) -> str:
    """What was counted, in one sentence."""
    query = report.query_tokens
    cut = f", {report.cut_queries:,} cut to {report.max_query_tokens}" if report.cut_queries else ""
    shape = report.shape
    return (
        f"{report.lists:,} {'list' if report.lists == 1 else 'lists'}, "
        f"{report.limits[-1].mean_items:.1f} items a list; "
        f"queries of {query.mean:.1f} tokens ({query.p5:.0f} to {query.p95:.0f}{cut}); "
        f"encoder with {shape.layers} layers of width {shape.width}"
    )


def limit_table(report: OverlapReport) -> Cells:
    """Table 8b: m and N_u of all items by item limit, the paper's beside."""
    header = ["L", "m", "N_u", "N_u p5 / p50 / p95", "m / N_u", "by list p5 / p50 / p95", "items cut"]
    header += ["paper: m", "N_u", "m / N_u"]
    rows = []
    for row in report.limits:
        m, union = PAPER.get(row.max_item_tokens, (None, None))
        known = ["–"] * 3 if m is None or union is None else [f"{m:.2f}", f"{union:.2f}", f"{m / union:.2f}"]
        rows.append(
            [
                str(row.max_item_tokens),
                f"{row.total_tokens:.2f}",
                f"{row.union.mean:.2f}",
                _quantiles(row.union, 0),
                f"{row.ratio:.2f}",
                _quantiles(row.list_ratio, 2),
                f"{row.cut_items / (row.lists * row.mean_items):.1%}",
                *known,
            ]
        )
    return header, rows


def growth_table(report: OverlapReport) -> Cells:
    """Growth with the number of items at the largest item limit, and the predicted speed-up."""
    header = ["N", "lists", "m", "N_u", "m / N_u", "passes", "lists split", "speed-up"]
    header += ["by list p5 / p50 / p95", "paper's estimate"]
    return header, [_growth_row(row) for row in report.growth]


def method(report: OverlapReport) -> tuple[str, ...]:
    """How to read the numbers, one paragraph each."""
    shape = report.shape
    return (
        "m: summed lengths of a list's items in tokens, items cut to L; N_u: how many of these tokens are "
        "distinct; both are means over lists. Row N takes the first N items of every list that has as many.",
        f"Speed-up: operations of monoBERT, one pass of query + item + 3 tokens a pair, over those of CROSS-JEM, "
        f"passes of query + 2 + union with at most {report.max_items_per_pass} items and L_u = "
        f"{report.max_union_tokens} union tokens. A layer costs (8 d² + {6 if shape.gated else 4} d f) T + 4 d T² "
        f"for T tokens, d = {shape.width}, f = {shape.feed_forward}. Padding, tokenisation and the scoring head are "
        "not in it.",
        "Paper's estimate: section 5.2 counts the squares of query + item and query + union lengths, as if "
        "attention were all of the cost. For short sequences most of the cost is linear in the tokens, so its "
        "speed-up is too low.",
        f"Rules: below 1 the joint pass costs more, below {HARDLY_PAYS:g} it hardly pays, "
        f"from {PAYS_WELL:g} on it pays well.",
    )


def overlap_markdown(report: OverlapReport, source: str, encoder: str, plot: str | None) -> str:
    """The whole report; `plot` is the file name of its picture, if there is one."""
    limit = report.rows[-1].max_item_tokens
    parts = [
        "# Token overlap",
        f"`{source}`, encoder `{encoder}`: {summary_line(report)}.",
        f"**{report.verdict}**",
        "## By item limit, all items",
        _markdown(limit_table(report)),
        f"## By number of items, L = {limit}",
        _markdown(growth_table(report)),
    ]
    if plot is not None:
        parts.append(f"![Union size by number of items and ratio by list]({plot})")
    return "\n\n".join([*parts, "## How to read this", *method(report)]) + "\n"


def _growth_row(row: OverlapRow) -> list[str]:
    return [
        f"all ({row.mean_items:.1f})" if row.items is None else str(row.items),
        f"{row.lists:,}",
        f"{row.total_tokens:.1f}",
        f"{row.union.mean:.1f}",
        f"{row.ratio:.2f}",
        f"{row.passes:.2f}",
        f"{row.split_lists / row.lists:.1%}",
        f"{row.speedup:.1f}",
        _quantiles(row.list_speedup, 1),
        f"{row.paper_speedup:.1f}",
    ]


def _quantiles(summary: Summary, decimals: int) -> str:
    return " / ".join(f"{value:.{decimals}f}" for value in (summary.p5, summary.p50, summary.p95))


def _markdown(table: Cells) -> str:
    header, rows = table
    lines: list[Sequence[str]] = [header, ["---:"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
