"""`crossjem simulate`, `convert`, `split` and `tokens`: commands that write ranking lists or their items."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from crossjem_pl.cli.command import passes_on
from crossjem_pl.data import convert as conversion
from crossjem_pl.data.split import split_lists
from crossjem_pl.files import ending, read_lines
from crossjem_pl.lists import RankingList, counted

__all__ = ["convert", "simulate", "split", "tokens"]


@passes_on(conversion.convert)
def convert(source: Path, target: Path, **options: object) -> None:
    """Ranking lists from one file layout to another.

    Args:
        source: file or folder of shards, or a TREC run.
        target: file to write, or with --shard-size a folder.
    """
    print(conversion.convert(source, target, **options))  # type: ignore[arg-type]


@passes_on(split_lists)
def split(source: Path, out: Path, **options: object) -> None:
    """Train, dev and test out of one set of lists.

    Args:
        source: lists or pairs in any layout, a file or folder.
        out: folder for train.parquet, dev.parquet and test.parquet.
    """
    print(f"{out}:\n{split_lists(source, out, **options)}")  # type: ignore[arg-type]


def simulate(
    *,
    out: Path,
    lists: int = 5000,
    items: int = 100,
    held_out: int = 500,
    seed: int = 0,
    shard_size: int | None = None,
) -> None:
    """Simulated sponsored-search lists as Parquet, in flat memory.

    Args:
        out: folder to write.
        lists: training lists.
        items: keywords per list.
        held_out: lists each of dev and test.
        seed: another one gives other lists.
        shard_size: write each split as a folder of shards of so many lists; a call that was interrupted goes on where
            it stopped.
    """
    from crossjem_pl.data.formats import write_lists
    from crossjem_pl.data.shards import write_shards
    from crossjem_pl.data.simulator import SPLITS, Split
    from crossjem_pl.data.simulator import simulate as simulated
    from crossjem_pl.progress import track

    def make(part: Split, count: int, start: int) -> Iterable[RankingList]:
        made = simulated(count - start, items, seed, start=start, split=part)
        return track(made, description=f"{part:5}", total=count - start)

    for part in SPLITS:
        count = lists if part == "train" else held_out
        if shard_size is None:
            path = out / f"{part}.parquet"
            written = write_lists(make(part, count, 0), path, unique=False)  # ids are numbered
            print(f"{path}: {counted(written, 'list')} of {items} keywords")
        else:
            options = {"generator": "simulator", "items": items, "seed": seed, "split": part, "lists": count}
            print(write_shards(partial(make, part, count), out / part, shard_size, options=options))


def tokens(items: Path, *, model: str, out: Path, max_tokens: int = 256, states: bool = False) -> None:
    """The token ids of items by their ids, for ranking without a tokenizer.

    Args:
        items: id<TAB>text lines (.tsv, .tsv.gz), or ranking lists of any layout.
        model: model folder or encoder whose tokenizer is used.
        out: folder to write.
        max_tokens: tokens kept of an item.
        states: also what the model's lower layers make of the items, for a model of the form "ahead", whose own
            limit of items then holds.
    """
    from crossjem_pl.progress import track
    from crossjem_pl.rankers.encoders import load_tokenizer
    from crossjem_pl.text import ShortTextTokenizer
    from crossjem_pl.text.token_store import TokenStore

    own = None
    if states:
        from crossjem_pl.rankers.folder import load_ranker
        from crossjem_pl.rankers.neural import NeuralRanker

        ranker = load_ranker(model).eval()
        if not isinstance(ranker, NeuralRanker) or (own := ranker.store_states()) is None:
            raise ValueError(
                f"--states: {model} holds a {ranker.name} ranker, which has no states of items; `ahead` has"
            )
        max_tokens = ranker.max_item_tokens
    tokenizer = ShortTextTokenizer(load_tokenizer(model, cls_and_sep=False), cache_size=0)
    pairs = track(items_of(items), description="tokenising")
    store = TokenStore.build(out, pairs, tokenizer, max_tokens, own)
    repeated = f", {store.repeated:,} repeats left out" if store.repeated else ""
    print(
        f"Wrote {len(store):,} items to {out}: {store.truncated:,} longer than {max_tokens} tokens{repeated}"
    )


def items_of(path: Path) -> Iterator[tuple[str, str]]:
    """Id and text of each item of a table or of ranking lists."""
    if ending(path) in (".tsv", ".tsv.gz"):
        for number, line in read_lines(path):
            item_id, tab, text = line.partition("\t")
            if not tab or not item_id.strip() or not text.strip():
                raise ValueError(f"{path}, line {number}: expected id<TAB>text, got {line.strip()!r}")
            yield item_id, text
        return
    from crossjem_pl.data.formats import read_lists

    for ranking_list in read_lists(path, label_column=None, score_column=None):
        yield from zip(ranking_list.item_ids, ranking_list.items, strict=True)
