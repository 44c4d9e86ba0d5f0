"""`crossjem tokens`: the token ids of items by their ids, for ranking without a tokenizer."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from crossjem_pl.files import ending, read_lines

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "items", type=Path, help="id<TAB>text lines (.tsv, .tsv.gz), or ranking lists of any layout"
    )
    parser.add_argument("--model", required=True, help="model folder or encoder whose tokenizer is used")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder to write")
    parser.add_argument(
        "--max-tokens", type=int, default=256, metavar="L", help="tokens kept of an item (default 256)"
    )


def run(args: argparse.Namespace) -> None:
    from rich.progress import track

    from crossjem_pl.rankers.encoders import load_tokenizer
    from crossjem_pl.text import ShortTextTokenizer
    from crossjem_pl.text.token_store import TokenStore

    tokenizer = ShortTextTokenizer(load_tokenizer(args.model, cls_and_sep=False), cache_size=0)
    pairs = track(_pairs(args.items), description="tokenising", total=None)
    store = TokenStore.build(args.out, pairs, tokenizer, args.max_tokens)
    notes = [f"{store.truncated:,} longer than {store.max_tokens} tokens"]
    if store.repeated:
        notes.append(f"{store.repeated:,} repeats left out")
    print(f"Wrote {len(store):,} items to {args.out}: {', '.join(notes)}")


def _pairs(path: Path) -> Iterator[tuple[str, str]]:
    if ending(path) in (".tsv", ".tsv.gz"):
        for number, line in read_lines(path):
            item_id, tab, text = line.rstrip("\r\n").partition("\t")
            if not tab or not item_id.strip() or not text.strip():
                raise ValueError(f"{path}, line {number}: expected id<TAB>text, got {line.strip()!r}")
            yield item_id, text
        return
    from crossjem_pl.data.formats import read_lists

    for one in read_lists(path, labels_field=None, scores_field=None):
        yield from zip(one.item_ids, one.items, strict=True)
