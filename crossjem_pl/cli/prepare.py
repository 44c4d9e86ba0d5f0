"""`crossjem prepare`: public datasets and click logs as ranking lists."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from rich.progress import track

from crossjem_pl.prepare.clicklog import COLUMNS, LogOptions, prepare_log
from crossjem_pl.prepare.linkso import DEV_FRACTION, TAGS, prepare_linkso
from crossjem_pl.prepare.msmarco import PARTS, prepare_titles
from crossjem_pl.prepare.output import LISTS_PER_SHARD, Written
from crossjem_pl.prepare.reranking import dataset_folder, prepare_reranking

__all__ = ["add_arguments", "run"]

HUB = {
    "askubuntu": "mteb/askubuntudupquestions-reranking",
    "scidocs": "mteb/scidocs-reranking",
}
_TITLES = (
    "Ranking lists of document titles: training queries with the first stage's best candidates, dev and TREC "
    "queries with all of them. Interrupt it when you like: the same command goes on with what is not complete."
)
_SODQ = "Stack Overflow duplicate questions by their titles, from LinkSO's files or from MTEB's."
_LOG = (
    "Ranking lists from tables with a query, a keyword and a click in each row (.tsv, .csv, .jsonl, .parquet; "
    "the first three also with .gz). Label 1 is a good click: clicked and not closed quickly."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_subparsers(dest="dataset_name", metavar="WHAT", required=True)
    _add_titles(what.add_parser("msmarco-titles", help="MS MARCO document titles", description=_TITLES))
    sodq = what.add_parser("sodq", help="Stack Overflow duplicate questions", description=_SODQ)
    source = sodq.add_mutually_exclusive_group(required=True)
    source.add_argument("--linkso", type=Path, metavar="FOLDER", help="LinkSO's own files")
    source.add_argument("--mteb", metavar="FOLDER_OR_ID", help="MTEB's files, or the id of a hub dataset")
    sodq.add_argument("--tags", nargs="+", choices=TAGS, help="tags of LinkSO (default: all three)")
    rows = {name: what.add_parser(name, help=hub, description=f"Rows of {hub}.") for name, hub in HUB.items()}
    for name, sub in rows.items():
        default = f"default: {HUB[name]}, from the hub"
        sub.add_argument("--mteb", metavar="FOLDER_OR_ID", default=HUB[name], help=default)
    for sub in (sodq, *rows.values()):
        sub.add_argument(
            "--dev-fraction",
            type=float,
            metavar="F",
            help="take dev out of the training queries, 0 for no dev (default: MTEB's validation split if there is "
            f"one, else {DEV_FRACTION:g} of a train split)",
        )
    _add_log(what.add_parser("log", help="your own click log", description=_LOG))
    for sub in what.choices.values():
        sub.add_argument("--out", type=Path, required=True, metavar="DIR")


def run(args: argparse.Namespace) -> None:
    for written in _written(args):
        print(written, flush=True)


def _written(args: argparse.Namespace) -> Iterable[Written]:
    if args.dataset_name == "msmarco-titles":
        return _titles(args)
    if args.dataset_name == "log":
        columns = {name: getattr(args, f"{name}_column") for name in COLUMNS}
        options = {
            field.name: getattr(args, field.name) for field in fields(LogOptions) if field.name != "columns"
        }
        named = {name: column for name, column in columns.items() if column is not None}
        return prepare_log(args.files, args.out, LogOptions(named, **options), track=track)
    if getattr(args, "linkso", None) is not None:
        dev_fraction = DEV_FRACTION if args.dev_fraction is None else args.dev_fraction
        tags = args.tags or TAGS
        return prepare_linkso(args.linkso, args.out, tags=tags, dev_fraction=dev_fraction, track=track)
    if getattr(args, "tags", None):
        raise ValueError("--tags goes with --linkso: MTEB's rows do not tell the tag")
    folder = dataset_folder(args.mteb)
    return prepare_reranking(folder, args.out, args.dataset_name, dev_fraction=args.dev_fraction, track=track)


def _add_titles(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--hdct",
        nargs="+",
        metavar="[PART=]RUN",
        default=[],
        help="run file or folder of run files with the candidates of a part (default part: train); the other "
        "parts take the dataset's official candidates",
    )
    add("--dataset", default="msmarco-document", help="id of ir_datasets (default %(default)s)")
    add("--documents", type=Path, metavar="FILE", help="msmarco-docs.tsv in place of ir_datasets' documents")
    add(
        "--parts",
        nargs="+",
        metavar="PART",
        help=f"{', '.join(PARTS)} (default: all four), or ids below the dataset's",
    )
    add("--depth", type=int, default=10, metavar="K", help="candidates of a training query (10)")
    add("--dev-depth", type=int, metavar="K", help="candidates of the other parts' queries (default: all)")
    add(
        "--add-positives",
        action="store_true",
        help="add relevant documents that the first stage missed to train",
    )
    add("--lists-per-shard", type=int, default=LISTS_PER_SHARD, metavar="N", help="(default %(default)s)")


def _titles(args: argparse.Namespace) -> Iterable[Written]:
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
        documents=args.documents,
        parts=args.parts or tuple(PARTS),
        runs=runs,
        depth=args.depth,
        dev_depth=args.dev_depth,
        add_positives=args.add_positives,
        lists_per_shard=args.lists_per_shard,
        track=track,
    )


def _add_log(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    columns = parser.add_argument_group("columns", "names where they differ from the standard ones")
    for name, required in COLUMNS.items():
        text = None if required else "optional"
        columns.add_argument(f"--{name.replace('_', '-')}-column", metavar="NAME", help=text)
    good = parser.add_argument_group("good clicks")
    lists = parser.add_argument_group("lists")
    texts = {
        "min_dwell": "without a quick-back flag, a click of so many seconds is good",
        "missing_dwell": "clicks with neither flag nor dwell time: error, good or bad",
        "any_click": "every click is good",
        "min_good_clicks": "good clicks that a keyword needs for label 1",
        "scores": "scores of one query and keyword in several rows: must agree, or their mean",
        "min_items": "queries with fewer keywords are left out",
        "require_click": "leave out queries without a good click",
        "dev_fraction": "share of the queries",
        "test_fraction": "share of the queries",
        "seed": "of the splits",
        "lists_per_shard": "lists in a shard",
    }
    choices = {"missing_dwell": ("error", "good", "bad"), "scores": ("agree", "mean")}
    for field in fields(LogOptions):
        if field.name == "columns":
            continue
        group = good if "click" in field.name or "dwell" in field.name else lists
        option, text = f"--{field.name.replace('_', '-')}", f"{texts[field.name]} (default {field.default})"
        if field.default is False:
            group.add_argument(option, action="store_true", help=texts[field.name])
        elif field.name in choices:
            group.add_argument(option, choices=choices[field.name], default=field.default, help=text)
        else:
            group.add_argument(option, type=type(field.default), default=field.default, help=text)
