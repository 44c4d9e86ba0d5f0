"""`crossjem prepare`: public datasets and click logs as ranking lists."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

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
_LOG = [option for option in fields(LogOptions) if option.metadata]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_subparsers(dest="dataset_name", metavar="WHAT", required=True)
    _add_titles(what.add_parser("msmarco-titles", help="MS MARCO document titles"))
    sodq = what.add_parser("sodq", help="Stack Overflow duplicate questions by their titles")
    source = sodq.add_mutually_exclusive_group(required=True)
    source.add_argument("--linkso", type=Path, metavar="FOLDER", help="LinkSO's own files")
    source.add_argument("--mteb", metavar="FOLDER_OR_ID", help="MTEB's files, or the id of a hub dataset")
    sodq.add_argument("--tags", nargs="+", choices=TAGS, help="tags of LinkSO (default: all three)")
    rows = {name: what.add_parser(name, help=hub) for name, hub in HUB.items()}
    for name, sub in rows.items():
        default = f"default: {HUB[name]}, from the hub"
        sub.add_argument("--mteb", metavar="FOLDER_OR_ID", default=HUB[name], help=default)
    text = (
        f"take dev out of the training queries (default: MTEB's own dev split, or {DEV_FRACTION:g} of train)"
    )
    for sub in (sodq, *rows.values()):
        sub.add_argument("--dev-fraction", type=float, metavar="F", help=text)
    log = what.add_parser("log", help="your own click log: a query, a keyword and a click in each row")
    log.add_argument("files", nargs="+", type=Path, metavar="FILE")
    for name, required in COLUMNS.items():
        text = "name of the column" if required else "name of the optional column"
        log.add_argument(f"--{name.replace('_', '-')}-column", metavar="NAME", help=text)
    for option in _LOG:
        kind: dict[str, Any] = {"type": type(option.default), "choices": option.metadata["choices"] or None}
        if option.default is False:
            kind = {"action": "store_true"}
        text = f"{option.metadata['help']} (default {option.default})"
        log.add_argument(f"--{option.name.replace('_', '-')}", default=option.default, help=text, **kind)
    for sub in what.choices.values():
        sub.add_argument("--out", type=Path, required=True, metavar="DIR")


def _add_titles(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    text = "run file or folder of run files with the candidates of a part (default train; others: the official ones)"
    add("--hdct", nargs="+", metavar="[PART=]RUN", default=[], help=text)
    add("--dataset", default="msmarco-document", help="id of ir_datasets (default %(default)s)")
    add("--documents", type=Path, metavar="FILE", help="msmarco-docs.tsv in place of ir_datasets' documents")
    text = f"{', '.join(PARTS)} (default: all four), or ids below the dataset's"
    add("--parts", nargs="+", metavar="PART", default=tuple(PARTS), help=text)
    add("--depth", type=int, default=10, metavar="K", help="candidates of a training query (10)")
    add("--dev-depth", type=int, metavar="K", help="candidates of the other parts' queries (default: all)")
    text = "add relevant documents that the first stage missed to train"
    add("--add-positives", action="store_true", help=text)
    add("--lists-per-shard", type=int, default=LISTS_PER_SHARD, metavar="N", help="(default %(default)s)")


def run(args: argparse.Namespace) -> None:
    for written in _written(args):
        print(written, flush=True)


def _written(args: argparse.Namespace) -> Iterable[Written]:
    if args.dataset_name == "msmarco-titles":
        names = ("dataset", "documents", "parts", "depth", "dev_depth", "add_positives", "lists_per_shard")
        options = {name: getattr(args, name) for name in names}
        return prepare_titles(args.out, runs=_runs(args.hdct), **options)
    if args.dataset_name == "log":
        columns = {name: getattr(args, f"{name}_column") for name in COLUMNS}
        named = {name: column for name, column in columns.items() if column is not None}
        return prepare_log(
            args.files,
            args.out,
            LogOptions(named, **{option.name: getattr(args, option.name) for option in _LOG}),
        )
    if getattr(args, "linkso", None) is not None:
        dev_fraction = DEV_FRACTION if args.dev_fraction is None else args.dev_fraction
        return prepare_linkso(args.linkso, args.out, tags=args.tags or TAGS, dev_fraction=dev_fraction)
    if getattr(args, "tags", None):
        raise ValueError("--tags goes with --linkso: MTEB's rows do not tell the tag")
    folder = dataset_folder(args.mteb)
    return prepare_reranking(folder, args.out, args.dataset_name, dev_fraction=args.dev_fraction)


def _runs(arguments: Iterable[str]) -> dict[str, Path]:
    """The run of each part."""
    runs: dict[str, Path] = {}
    for argument in arguments:
        part, sign, path = argument.partition("=")
        if not sign or Path(argument).exists():
            part, path = "train", argument
        if part in runs:
            raise ValueError(f"--hdct: two runs for part {part!r}: {runs[part]} and {path}")
        runs[part] = Path(path)
    return runs
