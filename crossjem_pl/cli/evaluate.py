"""`crossjem evaluate`: metrics of a TREC run against judgements."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from crossjem_pl.data.formats import read_lists
from crossjem_pl.data.trec import read_qrels, read_run
from crossjem_pl.evaluation.clicks import click_metrics
from crossjem_pl.evaluation.measures import evaluate_run

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="TREC run file")
    parser.add_argument("qrels", type=Path, help="TREC qrels file")
    parser.add_argument(
        "--metrics",
        nargs="+",
        default=["RR@10", "AP@10", "nDCG@10"],
        metavar="NAME",
        help="names of ir-measures, and AUC, PosAcc@80, NegAcc@80, Acc@80 (80%% of a query's positives are "
        "kept) or NegAcc(threshold='run')@80 (with one threshold for all queries)",
    )
    parser.add_argument(
        "--relevant-from", type=float, default=1, metavar="GRADE", help="lowest relevant grade (default 1)"
    )
    parser.add_argument(
        "--clicks",
        type=Path,
        metavar="LISTS",
        help="simulated lists, with the true relevance as scores: also the rates of clicks and quick-backs",
    )
    parser.add_argument(
        "--shown", type=int, default=10, metavar="K", help="items that users see (default 10)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="also write metrics.json and metrics.md (and clicks.json)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")


def run(args: argparse.Namespace) -> None:
    scores = read_run(args.run)
    evaluation = evaluate_run(scores, read_qrels(args.qrels), args.metrics, relevant_from=args.relevant_from)
    clicks = None if args.clicks is None else click_metrics(scores, read_lists(args.clicks), args.shown)
    if args.json:
        more = {} if clicks is None else {"clicks": clicks.to_dict()}
        print(json.dumps({**evaluation.to_dict(), **more}, ensure_ascii=False))
    else:
        print(evaluation.to_markdown())
        if clicks is not None:
            print(clicks.to_markdown())
    if args.out is not None:
        evaluation.write(args.out)
        if clicks is not None:
            text = json.dumps(clicks.to_dict(), indent=2, ensure_ascii=False)
            (args.out / "clicks.json").write_text(text + "\n", encoding="utf-8")
