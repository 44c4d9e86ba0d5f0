"""`crossjem overlap`: how much items share their tokens, and whether a joint pass pays."""

from __future__ import annotations

import argparse
import json
from itertools import islice
from pathlib import Path

from rich.markup import escape
from rich.progress import track
from rich.table import Table

from crossjem_pl.cli.console import wide_console
from crossjem_pl.data.formats import read_lists
from crossjem_pl.data.overlap import (
    HARDLY_PAYS,
    PAPER,
    PAYS_WELL,
    OverlapReport,
    OverlapRow,
    encoder_shape,
    measure_overlap,
)
from crossjem_pl.evaluation.charts import MISSING, available
from crossjem_pl.rankers.encoders import PACKAGED, load_tokenizer
from crossjem_pl.text import ShortTextTokenizer

__all__ = ["add_arguments", "run"]

Cells = tuple[list[str], list[list[str]]]
"""The header and the rows of a table."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lists", type=Path, help="file or folder of ranking lists")
    parser.add_argument("--encoder", default=PACKAGED, help=f"hub id or folder (default {PACKAGED})")
    parser.add_argument("--max-item-tokens", type=int, nargs="+", default=[12, 16, 32], metavar="L")
    parser.add_argument("--items", type=int, nargs="+", default=[10, 30, 100], metavar="N")
    parser.add_argument("--max-query-tokens", type=int, default=64, metavar="L", help="default 64")
    parser.add_argument("--max-items-per-pass", type=int, default=100, metavar="N", help="default 100")
    parser.add_argument("--max-union-tokens", type=int, default=262, metavar="L_U", help="default 262")
    parser.add_argument("--out", type=Path, default=Path("overlap"), metavar="FOLDER", help="default overlap")
    parser.add_argument("--limit", type=int, metavar="K", help="only the first K lists")


def run(args: argparse.Namespace) -> None:
    if args.limit is not None and args.limit < 1:
        raise ValueError(f"--limit must be at least 1, got {args.limit}")
    lists = islice(read_lists(args.lists, labels_field=None, scores_field=None, unique=False), args.limit)
    report = measure_overlap(
        track(lists, description="counting", total=None, show_speed=False),
        ShortTextTokenizer(load_tokenizer(args.encoder), cache_size=100_000),
        encoder_shape(args.encoder),
        max_item_tokens=args.max_item_tokens,
        items=args.items,
        max_query_tokens=args.max_query_tokens,
        max_items_per_pass=args.max_items_per_pass,
        max_union_tokens=args.max_union_tokens,
    )
    limit = report.rows[-1].max_item_tokens
    tables = {
        "By item limit L, all items of each list": _limit_table(report),
        f"By number of items N, item limit {limit}": _growth_table(report),
    }
    console = wide_console()
    console.print(_summary_line(report), soft_wrap=True)
    for title, (header, rows) in tables.items():
        table = Table(*header, title=title, title_justify="left")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    absent = sorted(set(args.items) - {row.items for row in report.growth})
    if absent:
        console.print(f"No list has {', '.join(map(str, absent))} items.")
    for paragraph in _method(report):
        console.print(f"[dim]{escape(paragraph)}[/dim]", soft_wrap=True)
    console.print(f"[bold]{escape(report.verdict)}[/bold]", soft_wrap=True)

    args.out.mkdir(parents=True, exist_ok=True)
    found = {"lists_file": str(args.lists), "encoder": args.encoder, **report.to_json()}
    (args.out / "overlap.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    parts = [
        "# Token overlap",
        f"`{args.lists}`, encoder `{args.encoder}`: {_summary_line(report)}.",
        f"**{report.verdict}**",
    ]
    for title, cells in tables.items():
        parts += [f"## {title}", _markdown(cells)]
    if available():
        _draw(report, args.out / "overlap.png")
        parts.append("![Union size by number of items and ratio by list](overlap.png)")
    text = "\n\n".join([*parts, "## How to read this", *_method(report)]) + "\n"
    (args.out / "overlap.md").write_text(text, encoding="utf-8")
    print(f"wrote {args.out}/overlap.json, overlap.md" + (", overlap.png" if available() else f"\n{MISSING}"))


def _summary_line(report: OverlapReport) -> str:
    """What was counted, in one sentence."""
    query = report.query_tokens
    cut = f", {report.cut_queries:,} cut to {report.max_query_tokens}" if report.cut_queries else ""
    return (
        f"{report.lists:,} {'list' if report.lists == 1 else 'lists'}, "
        f"{report.limits[-1].mean_items:.1f} items a list; "
        f"queries of {query.mean:.1f} tokens ({query.p5:.0f} to {query.p95:.0f}{cut}); "
        f"encoder with {report.shape.layers} layers of width {report.shape.width}"
    )


def _limit_table(report: OverlapReport) -> Cells:
    """Table 8b: m and N_u of all items by item limit, the paper's beside."""
    header = ["L", "m", "N_u", "N_u p5 / p50 / p95", "m / N_u", "by list p5 / p50 / p95", "items cut"]
    rows = []
    for row in report.limits:
        known = ["–"] * 3
        if row.max_item_tokens in PAPER:
            m, union = PAPER[row.max_item_tokens]
            known = [f"{m:.2f}", f"{union:.2f}", f"{m / union:.2f}"]
        rows.append(
            [
                str(row.max_item_tokens),
                f"{row.total_tokens:.2f}",
                f"{row.union_tokens:.2f}",
                _quantiles(row.union_by_list, 0),
                f"{row.ratio:.2f}",
                _quantiles(row.ratio_by_list, 2),
                f"{row.cut_items / (row.lists * row.mean_items):.1%}",
                *known,
            ]
        )
    return [*header, "paper: m", "N_u", "m / N_u"], rows


def _growth_table(report: OverlapReport) -> Cells:
    """Growth with the number of items at the largest item limit, and the predicted speed-up."""
    header = ["N", "lists", "m", "N_u", "m / N_u", "passes", "lists split", "speed-up"]
    return [*header, "by list p5 / p50 / p95", "paper's estimate"], [_growth(row) for row in report.growth]


def _growth(row: OverlapRow) -> list[str]:
    return [
        f"all ({row.mean_items:.1f})" if row.items is None else str(row.items),
        f"{row.lists:,}",
        f"{row.total_tokens:.1f}",
        f"{row.union_tokens:.1f}",
        f"{row.ratio:.2f}",
        f"{row.passes:.2f}",
        f"{row.split_lists / row.lists:.1%}",
        f"{row.speedup:.1f}",
        _quantiles(row.speedup_by_list, 1),
        f"{row.paper_speedup:.1f}",
    ]


def _quantiles(by_list: list[float], decimals: int) -> str:
    return " / ".join(f"{value:.{decimals}f}" for value in by_list)


def _markdown(cells: Cells) -> str:
    header, rows = cells
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---:"] * len(header), *rows))


def _method(report: OverlapReport) -> tuple[str, ...]:
    """How to read the numbers, one paragraph each; docs/checking.md has more."""
    shape = report.shape
    return (
        "m: summed lengths of a list's items in tokens, items cut to L; N_u: how many of these tokens are "
        "distinct; both are means over lists. Row N takes the first N items of every list that has as many.",
        "Speed-up: operations of the layers of monoBERT, one pass a pair, over those of CROSS-JEM, with at most "
        f"{report.max_items_per_pass} items and {report.max_union_tokens} union tokens a pass; a layer costs "
        f"(8 d² + {6 if shape.gated else 4} d f) T + 4 d T² for T tokens, d = {shape.width}, f = {shape.feed_forward}. "
        "The paper's estimate (section 5.2) counts the squares of the lengths alone, so it is too low for short ones.",
        f"Below {HARDLY_PAYS:g} a joint pass hardly pays, from {PAYS_WELL:g} on it pays well.",
    )


def _draw(report: OverlapReport, path: Path) -> None:
    """Writes a PNG: item tokens and their union against the number of items; lists by m / N_u."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.8), dpi=150, layout="constrained")
    growth, ratios = figure.subplots(1, 2)
    items = [point.items for point in report.curve]
    growth.plot(items, [point.total_tokens for point in report.curve], "s--", label="all item tokens, m")
    growth.plot(items, [point.union_tokens for point in report.curve], "o-", label="distinct (union), $N_u$")
    growth.set(
        xlabel="first N items of a list", ylabel="tokens, mean over lists", xlim=(0, None), ylim=(0, None)
    )
    growth.set_title("Growth with the number of items", loc="left")
    values, counts = zip(*report.ratios, strict=True)
    whole = report.rows[-1]
    ratios.hist(values, bins=min(30, max(5, len(values))), weights=counts)
    ratios.axvline(whole.ratio, color="black", linewidth=1, label=f"of the means: {whole.ratio:.2f}")
    ratios.set(xlabel=f"m / $N_u$ of a list, all items, L = {whole.max_item_tokens}", ylabel="lists")
    ratios.set_title("Overlap list by list", loc="left")
    for axes in (growth, ratios):
        axes.legend(frameon=False)
    figure.savefig(path, metadata={"Software": None})
