"""`crossjem evaluate`, `compare` and `report`: the figures of one run or of several."""

from __future__ import annotations

from collections.abc import Sequence
from json import dumps
from pathlib import Path

import pandas as pd
from rich.console import Console

from crossjem_pl.cli.command import make_table, new_console, passes_on
from crossjem_pl.evaluation.comparison import compare_runs
from crossjem_pl.evaluation.report import build_report, write_report
from crossjem_pl.evaluation.report import compare as write_comparison
from crossjem_pl.evaluation.sections import results_table

__all__ = ["compare", "evaluate", "report"]


def evaluate(
    run: Path,
    qrels: Path,
    *,
    metrics: Sequence[str] = ("RR@10", "AP@10", "nDCG@10"),
    relevant_from: float = 1,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Metrics of a TREC run against judgements.

    Args:
        run: TREC run file.
        qrels: TREC qrels file.
        metrics: names of ir-measures, and AUC, PosAcc@80, NegAcc@80, Acc@80 (80% of a query's positives are kept) or
            NegAcc(threshold='run')@80 (with one threshold for all queries).
        relevant_from: lowest relevant grade.
        out: folder, also to write metrics.json and metrics.md.
        json: print one JSON object instead of tables.
    """
    from crossjem_pl.data.trec import read_qrels, read_run
    from crossjem_pl.evaluation.metrics import evaluate_run

    found = evaluate_run(read_run(run), read_qrels(qrels), metrics, relevant_from=relevant_from)
    print(dumps(found.to_dict(), ensure_ascii=False) if json else found.to_markdown())
    if out is not None:
        found.write(out)


@passes_on(compare_runs, "names", "seed")
def compare(
    runs: Sequence[str],
    *,
    metrics: Sequence[str] = ("RR@10", "AP@10"),
    out: Path = Path("comparison"),
    json: bool = False,
    **options: object,
) -> None:
    """One table of several runs, with significance.

    Args:
        runs: run folders or TREC run files.
        metrics: names of ir-measures.
        out: folder for compare.md, compare.csv and compare.html.
        json: print a JSON object per system instead of a table.
    """
    found = write_comparison(runs, names=metrics, out=out, **options)  # type: ignore[arg-type]
    if json:
        print(found.to_frame().to_json(orient="records"))
        return
    table, console = results_table(found), new_console()
    for columns in _fitting(table, len(found.metrics), console):
        console.print(make_table(found.lists, columns, table[columns].to_numpy()))
    for note in found.notes:
        console.print(note, markup=False)
    method = "paired randomisation test, Holm-corrected"
    written = f"Wrote {out}/compare.md, compare.csv and compare.html"
    console.print(f"Δ and p against {found.baseline}: {method}. {written}", soft_wrap=True, markup=False)


def _fitting(table: pd.DataFrame, metrics: int, console: Console) -> list[list[str]]:
    """The columns of one table that fits the console, or else of one for each metric and one for the costs."""
    system, *others = table.columns
    whole = make_table("", [system, *others], table.to_numpy())
    if console.measure(whole, options=console.options.update(max_width=1000)).maximum <= console.width:
        return [[system, *others]]
    each = (len(others) - 2) // metrics
    of_metrics = [others[first : first + each] for first in range(0, len(others) - 2, each)]
    return [[system, *columns] for columns in (*of_metrics, others[-2:])]


@passes_on(compare_runs, "names", "seed")
def report(
    runs: Sequence[str],
    *,
    out: Path = Path("report"),
    metric: str = "RR@10",
    examples: int = 5,
    tokenizer: str | None = None,
    **options: object,
) -> None:
    """Runs as one page, with curves, breakdowns, calibration and examples.

    Args:
        runs: run folders or TREC run files.
        out: folder for report.html, report.md and the figures.
        metric: what is broken down.
        examples: lists of each kind.
        tokenizer: count the overlap of items in tokens of this encoder, by default in words.
    """
    from crossjem_pl.evaluation import charts
    from crossjem_pl.rankers.encoders import load_tokenizer
    from crossjem_pl.text import ShortTextTokenizer

    tokens = None if tokenizer is None else ShortTextTokenizer(load_tokenizer(tokenizer))
    with new_console().status("report"):
        found = build_report(runs, metric, examples=examples, tokenizer=tokens, **options)  # type: ignore[arg-type]
        write_report(found, out)
    for note in found.notes:
        print(note)
    plots = f" and {len(found.plots)} figures" if charts.available() else ""
    print(f"wrote {out}/report.html, report.md{plots}")
