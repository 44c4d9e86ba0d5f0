"""`crossjem threshold`: finds the score below which items are filtered, and stores it with the model."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.markup import escape
from rich.progress import track
from rich.table import Table

from crossjem_pl.cli.console import wide_console
from crossjem_pl.data.formats import read_lists
from crossjem_pl.evaluation.threshold import choose_threshold
from crossjem_pl.inference import Reranker
from crossjem_pl.rankers.threshold import StoredThreshold, write_threshold

__all__ = ["add_arguments", "run"]

_BLOCK = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="model folder, which gets the file threshold.json")
    parser.add_argument("lists", type=Path, help="labelled ranking lists that the model was not trained on")
    rule = parser.add_mutually_exclusive_group()
    rule.add_argument(
        "--keep",
        type=float,
        metavar="SHARE",
        help="the highest threshold that keeps this share of the positives per query, on average (default 0.8)",
    )
    rule.add_argument(
        "--precision",
        type=float,
        metavar="SHARE",
        help="the lowest at which this share of the kept is positive",
    )
    parser.add_argument(
        "--relevant-from",
        type=float,
        default=1,
        metavar="LABEL",
        help="lowest label of a positive (default 1)",
    )
    parser.add_argument("--device", help="cpu, cuda, ... (default: a GPU if there is one)")


def run(args: argparse.Namespace) -> None:
    if not args.model.is_dir():
        raise FileNotFoundError(
            f"no model folder {args.model}: the threshold is stored beside the weights. Write a hub model to a "
            "folder first (`Reranker.from_pretrained(name).save_pretrained(folder)`)"
        )
    lists = list(read_lists(args.lists))
    if unlabelled := [ranking_list.query_id for ranking_list in lists if ranking_list.labels is None]:
        raise ValueError(f"{args.lists}: list {unlabelled[0]!r} has no labels, and a threshold needs them")
    reranker = Reranker.from_pretrained(args.model, device=args.device)
    scores = []
    for first in track(range(0, len(lists), _BLOCK), description="scoring"):
        scores += reranker.score(lists[first : first + _BLOCK])
    stored = choose_threshold(
        lists,
        scores,
        reranker.ranker,
        rule="keep" if args.precision is None else "precision",
        target=args.precision if args.precision is not None else 0.8 if args.keep is None else args.keep,
        relevant_from=args.relevant_from,
        data=args.lists.name,
        score_precision=reranker.precision,
    )
    path = write_threshold(stored, args.model)
    console = wide_console()
    console.print(_table(stored))
    for line in _notes(stored, reranker.truncated):
        console.print(escape(line), soft_wrap=True)
    console.print(f"Wrote {escape(str(path))}", soft_wrap=True)


def _table(stored: StoredThreshold) -> Table:
    table = Table(title=f"threshold {stored.threshold:.6g}: {stored.meaning}", title_justify="left")
    table.add_column("")
    names = [f"{kind}_accuracy" for kind in ("positive", "negative", "overall")]
    for name in names:
        table.add_column(name.replace("_", " "), justify="right")
    for prefix, threshold in (("", "this threshold"), ("own_", "each list its own")):
        for suffix, over in (("", "all pairs"), ("_per_list", "mean over lists")):
            figures = [f"{prefix}{name}{suffix}" for name in names]
            if figures[0] in stored.figures:
                table.add_row(f"{threshold}, {over}", *(_share(stored, name) for name in figures))
    return table


def _notes(stored: StoredThreshold, truncated: int) -> list[str]:
    figures = stored.figures
    notes = [
        f"AUC {_share(stored, 'auc')} over all pairs, {_share(stored, 'auc_per_list')} mean over lists. "
        f"Kept per list: {figures['kept_per_list']:.1f} of {figures['items_per_list']:.1f} items; "
        f"{_share(stored, 'lists_left_empty')} of the lists keep none.",
        f"Kept share of a list's positives {_interval(stored, 'kept_share')}; "
        f"precision {_interval(stored, 'precision')} (95% bootstrap intervals over lists).",
        f"It rests on {stored.lists:,} lists with {stored.positives:,} positives and {stored.negatives:,} "
        "negatives, and holds for lists like these: same source of queries, same number of candidates.",
    ]
    if stored.rule == "keep":
        notes.insert(
            0,
            '"Each list its own" is the CROSS-JEM paper\'s measure: thresholds from the labels, for comparison only.',
        )
    if stored.lists_without_positives:
        notes.append(
            f"{stored.lists_without_positives:,} of the lists have no positive: they count in the values over all "
            "pairs and the precision, and neither in the kept share nor among the lists with their own threshold."
        )
    if truncated:
        notes.append(f"{truncated} texts were longer than the model's limits and were cut")
    return notes


def _share(stored: StoredThreshold, name: str) -> str:
    value = stored.figures[name]
    return "–" if value is None else f"{value:.4f}"


def _interval(stored: StoredThreshold, name: str) -> str:
    return f"{_share(stored, name)} [{_share(stored, f'{name}_low')}, {_share(stored, f'{name}_high')}]"
