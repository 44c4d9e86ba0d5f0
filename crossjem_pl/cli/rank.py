"""`crossjem rank`: a ranked table of items for one query."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from crossjem_pl.inference import RankedItem, Reranker
    from crossjem_pl.rankers.base import Explanation

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "crossjem rank [options] [MODEL] QUERY ITEM [ITEM ...]"
    parser.add_argument(
        "texts",
        nargs="+",
        metavar="MODEL QUERY ITEM",
        help="the first is a model if it is a model folder or starts with `packaged:`; then the query and the items "
        "(ids with --store). Without a model: the packaged sentence encoder, all-MiniLM-L6-v2",
    )
    parser.add_argument(
        "--model", help="model folder, packaged name or hub repository; then the first text is the query"
    )
    parser.add_argument(
        "--items", dest="items_file", type=Path, metavar="FILE", help="text file, one item per line"
    )
    parser.add_argument("--store", type=Path, metavar="FOLDER", help="items are ids of this token store")
    parser.add_argument("--top-k", type=int, metavar="K", help="print only the best K")
    parser.add_argument("--activation", choices=["none", "sigmoid", "softmax"], default="none")
    filtering = parser.add_mutually_exclusive_group()
    filtering.add_argument(
        "--filter",
        action="store_true",
        help="print only items at or above the threshold that `crossjem threshold` stored with the model",
    )
    filtering.add_argument(
        "--threshold", type=float, metavar="SCORE", help="print only items with at least this score"
    )
    parser.add_argument("--explain", action="store_true", help="what each token adds to the score")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--device", help="cpu, cuda, ... (default: a GPU if there is one)")


def run(args: argparse.Namespace) -> None:
    model, texts = _model_and_texts(args.model, args.texts)
    items = [*texts[1:], *(_read_items(args.items_file) if args.items_file else [])]
    if not texts or not items:
        raise ValueError("no items: give them after the query, or with --items FILE")
    args.query = texts[0]
    from crossjem_pl.inference import Reranker
    from crossjem_pl.rankers.encoders import PACKAGED

    reranker = Reranker(model or PACKAGED, device=args.device)
    if args.store is not None:
        from crossjem_pl.text.token_store import TokenStore

        reranker.store = TokenStore.open(args.store)
    ranked = reranker.rank(
        args.query,
        items,
        top_k=args.top_k,
        min_score="stored" if args.filter else args.threshold,
        activation=None if args.activation == "none" else args.activation,
    )
    explanations = reranker.explain(args.query, items) if args.explain else None
    if args.json:
        print(json.dumps(_as_json(args.query, ranked, explanations, reranker.truncated), ensure_ascii=False))
        return
    from crossjem_pl.cli.console import wide_console

    console = wide_console()
    console.print(_table(args.query, ranked, explanations))
    if args.filter or args.threshold is not None:
        console.print(_filtered(args, reranker, len(ranked), len(items)), soft_wrap=True)
    if model is None:
        print(f"scores: cosine by {PACKAGED}, not trained on your lists; see crossjem fit")


def _model_and_texts(model: str | None, texts: list[str]) -> tuple[str | None, list[str]]:
    """The model, None for the default, and the query with its items."""
    first = texts[0]
    if model is not None:
        return model, texts
    files = ("config.json", "modules.json", "export.json")
    if first.startswith("packaged:") or any((Path(first) / file).is_file() for file in files):
        return first, texts[1:]
    if "/" in first and not any(letter.isspace() for letter in first):
        raise ValueError(
            f"{first!r} looks like a model, but no such folder holds one (config.json). For a model of the Hugging "
            f"Face hub, or if {first!r} is the query: crossjem rank --model MODEL QUERY ITEM ..."
        )
    return None, texts


def _read_items(path: Path) -> list[str]:
    if not path.exists():
        raise FileNotFoundError(f"no file {path}")
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            raise ValueError(f"{path}, line {number}: blank line; each line is one item")
    return lines


def _as_json(
    query: str, ranked: list[RankedItem], explanations: list[Explanation] | None, truncated: int
) -> dict[str, object]:
    rows = [asdict(row) for row in ranked]
    if explanations is not None:
        for row in rows:
            row["contributions"] = [asdict(c) for c in explanations[row["index"]].contributions]
    return {"query": query, "items": rows, "truncated": truncated}


def _filtered(args: argparse.Namespace, reranker: Reranker, kept: int, items: int) -> str:
    """Which items are shown and why."""
    limit = "" if args.top_k is None else f"the best {args.top_k} of "
    stored = reranker.threshold if args.threshold is None else None
    if stored is None:
        return f"{kept} of {items} items: {limit}those that score at least {args.threshold:g}"
    return (
        f"{kept} of {items} items: {limit}those that score at least {stored.threshold:.6g}, which "
        f"{stored.meaning} (on {stored.lists:,} lists)"
    )


def _table(query: str, ranked: list[RankedItem], explanations: list[Explanation] | None) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=f"query: {escape(query)}", title_justify="left")
    table.add_column("rank", justify="right")
    table.add_column("score", justify="right")
    table.add_column("item")
    if explanations is not None:
        table.add_column("contributions (they sum to the score)")
    for rank, row in enumerate(ranked, start=1):
        cells = [str(rank), f"{row.score:.4f}", escape(row.text)]
        if explanations is not None:
            cells.append(_contributions(explanations[row.index]))
        table.add_row(*cells)
    return table


def _contributions(explanation: Explanation) -> str:
    from rich.markup import escape

    parts = sorted(explanation.contributions, key=lambda c: -abs(c.value))
    shown = [f"{escape(c.token)} {c.value:+.3f}" for c in parts if c.part == "item"]
    rest = sum(c.value for c in parts if c.part != "item")
    if any(c.part != "item" for c in parts):
        shown.append(f"[dim]query and bias {rest:+.3f}[/dim]")
    return ", ".join(shown)
