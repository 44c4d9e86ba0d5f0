"""`crossjem prepare`: public datasets and click logs as ranking lists."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from rich.progress import track

from crossjem_pl.prepare.clicklog import LogOptions, prepare_log
from crossjem_pl.prepare.clicks import MIN_DWELL, Columns, GoodClick
from crossjem_pl.prepare.hub import dataset_folder
from crossjem_pl.prepare.linkso import TAGS, prepare_linkso
from crossjem_pl.prepare.report import Written
from crossjem_pl.prepare.reranking import DEV_FRACTION, prepare_reranking

__all__ = ["add_arguments", "run"]

HUB = {
    "askubuntu": "mteb/askubuntudupquestions-reranking",
    "scidocs": "mteb/scidocs-reranking",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_subparsers(dest="dataset_name", metavar="WHAT", required=True)
    _add_titles(what.add_parser("msmarco-titles", help="MS MARCO document titles", description=_TITLES))
    sodq = what.add_parser("sodq", help="Stack Overflow duplicate questions", description=_SODQ)
    source = sodq.add_mutually_exclusive_group(required=True)
    source.add_argument("--linkso", type=Path, metavar="FOLDER", help="LinkSO's own files")
    source.add_argument("--mteb", metavar="FOLDER_OR_ID", help="MTEB's files, or the id of a hub dataset")
    sodq.add_argument("--tags", nargs="+", choices=TAGS, help="tags of LinkSO (default: all three)")
    _add_common(sodq, "LinkSO: its own validation questions; MTEB: ")
    for name, repository in HUB.items():
        sub = what.add_parser(name, help=f"{repository} of MTEB", description=f"Rows of {repository}.")
        sub.add_argument(
            "--mteb", metavar="FOLDER_OR_ID", default=repository, help=f"default: {repository}, from the hub"
        )
        _add_common(sub, "")
    _add_log(what.add_parser("log", help="your own click log", description=_LOG))


def run(args: argparse.Namespace) -> None:
    if args.dataset_name == "msmarco-titles":
        written = _titles(args)
    elif args.dataset_name == "log":
        written = _log(args)
    elif getattr(args, "linkso", None) is not None:
        written = prepare_linkso(
            args.linkso, args.out, tags=args.tags or TAGS, dev_fraction=args.dev_fraction, track=track
        )
    else:
        if getattr(args, "tags", None):
            raise ValueError("--tags goes with --linkso: MTEB's rows do not tell the tag")
        folder = dataset_folder(args.mteb)
        written = prepare_reranking(
            folder, args.out, args.dataset_name, dev_fraction=args.dev_fraction, track=track
        )
    for report in written:
        print(report, flush=True)


_TITLES = (
    "Ranking lists of document titles: training queries with the first stage's best candidates, dev and TREC "
    "queries with all of them. Interrupt it when you like: the same command goes on where it stopped."
)
_SODQ = "Stack Overflow duplicate questions by their titles, from LinkSO's files or from MTEB's."
_LOG = (
    "Ranking lists from tables with a query, a keyword and a click in each row (.tsv, .csv, .jsonl, .parquet; "
    "the first three also with .gz). Label 1 is a good click: clicked and not closed quickly."
)


def _add_common(parser: argparse.ArgumentParser, standard: str) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument(
        "--dev-fraction",
        type=float,
        metavar="F",
        help="take dev out of the training queries (default: "
        f"{standard}the validation split if there is one, else {DEV_FRACTION:g} of a train split)",
    )


def _add_titles(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument(
        "--hdct",
        nargs="+",
        metavar="[PART=]RUN",
        default=[],
        help="run file or folder of run files with the candidates of a part (default part: train); the other "
        "parts take the dataset's official candidates",
    )
    parser.add_argument(
        "--dataset", default="msmarco-document", help="id of ir_datasets (default %(default)s)"
    )
    parser.add_argument(
        "--parts",
        nargs="+",
        metavar="PART",
        help="train, dev, trec-dl-2019, trec-dl-2020 (default: all four), or ids below the dataset's",
    )
    parser.add_argument(
        "--depth", type=int, default=10, metavar="K", help="candidates of a training query (10)"
    )
    parser.add_argument(
        "--dev-depth", type=int, metavar="K", help="candidates of the other parts' queries (default: all)"
    )
    parser.add_argument(
        "--add-positives",
        action="store_true",
        help="add relevant documents that the first stage missed to the training lists",
    )
    parser.add_argument(
        "--lists-per-shard", type=int, default=10_000, metavar="N", help="queries in a shard (default 10000)"
    )


def _titles(args: argparse.Namespace) -> Iterable[Written]:
    from crossjem_pl.prepare.msmarco import PARTS, prepare_titles  # ir_datasets makes a folder on import

    runs: dict[str, Path] = {}
    for argument in args.hdct:
        part, sign, path = argument.partition("=")
        if not sign or Path(argument).exists():
            part, path = "train", argument
        if part in runs:
            raise ValueError(f"--hdct: two runs for part {part!r}: {runs[part]} and {path}")
        runs[part] = Path(path)
    return prepare_titles(
        args.out,
        dataset=args.dataset,
        parts=args.parts or tuple(PARTS),
        runs=runs,
        depth=args.depth,
        dev_depth=args.dev_depth,
        add_positives=args.add_positives,
        lists_per_shard=args.lists_per_shard,
        track=track,
    )


def _add_log(parser: argparse.ArgumentParser) -> None:
    standard = LogOptions()
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    columns = parser.add_argument_group("columns", "names where they differ from the standard ones")
    for name in ("query", "keyword", "clicked"):
        columns.add_argument(f"--{name}-column", default=name, metavar="NAME")
    for name, text in (
        ("dwell", "seconds on the ad's page"),
        ("quick-back", "whether the ad was closed quickly"),
        ("score", "a teacher's score"),
        ("query-id", "an id of the query (default: from its text)"),
        ("keyword-id", "an id of the keyword (default: from its text)"),
    ):
        columns.add_argument(f"--{name}-column", metavar="NAME", help=f"optional: {text}")
    good = parser.add_argument_group("good clicks")
    good.add_argument(
        "--min-dwell",
        type=float,
        default=MIN_DWELL,
        metavar="SECONDS",
        help="without a quick-back flag, a click of so long is good (default %(default)g)",
    )
    good.add_argument(
        "--missing-dwell",
        choices=["error", "good", "bad"],
        default="error",
        help="clicks with neither flag nor dwell time (default: an error)",
    )
    good.add_argument("--any-click", action="store_true", help="every click is good")
    good.add_argument(
        "--min-good-clicks",
        type=int,
        default=standard.min_good_clicks,
        metavar="K",
        help="good clicks that a keyword needs for label 1 (default %(default)s)",
    )
    lists = parser.add_argument_group("lists")
    lists.add_argument(
        "--scores",
        choices=["agree", "mean"],
        default=standard.scores,
        help="scores of one query and keyword in several rows (default %(default)s, else an error)",
    )
    lists.add_argument("--min-items", type=int, default=standard.min_items, metavar="N", help="(default 2)")
    lists.add_argument("--require-click", action="store_true", help="leave out queries without a good click")
    lists.add_argument("--dev-fraction", type=float, default=standard.dev_fraction, help="(default 0.01)")
    lists.add_argument("--test-fraction", type=float, default=standard.test_fraction, help="(default 0.01)")
    lists.add_argument("--seed", type=int, default=0, help="of the splits (default 0)")
    lists.add_argument("--lists-per-shard", type=int, default=standard.lists_per_shard, metavar="N")
    lists.add_argument(
        "--buckets", type=int, metavar="N", help="temporary files (default: one for 32 MiB of the log)"
    )


def _log(args: argparse.Namespace) -> Iterable[Written]:
    columns = Columns(
        args.query_column,
        args.keyword_column,
        args.clicked_column,
        args.dwell_column,
        args.quick_back_column,
        args.score_column,
        args.query_id_column,
        args.keyword_id_column,
    )
    options = LogOptions(
        columns=columns,
        good=GoodClick(args.min_dwell, args.missing_dwell, args.any_click),
        min_good_clicks=args.min_good_clicks,
        scores=args.scores,
        min_items=args.min_items,
        require_click=args.require_click,
        dev_fraction=args.dev_fraction,
        test_fraction=args.test_fraction,
        seed=args.seed,
        lists_per_shard=args.lists_per_shard,
        buckets=args.buckets,
    )
    return prepare_log(args.files, args.out, options, track=track)
