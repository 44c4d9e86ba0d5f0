"""What every command of `crossjem prepare` writes: folders of shards, each with its manifest and an account."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from crossjem_pl.data.shards import Manifest, NoLists, write_shards
from crossjem_pl.hashing import fraction
from crossjem_pl.lists import RankingList

__all__ = [
    "LISTS_PER_SHARD",
    "fingerprint",
    "judged_list",
    "one_line",
    "write_part",
    "write_splits",
]

LISTS_PER_SHARD = 10_000


def one_line(text: str) -> str:
    """The text with every run of white space (tabs, line ends, U+00A0...) as one space, none at the ends."""
    return " ".join(text.split())


def fingerprint(path: Path) -> str:
    """Name and size of a file, or of the files of a folder: tells another input from the same one moved."""
    if not path.is_dir():
        return f"{path.name}, {path.stat().st_size} bytes"
    sizes = [file.stat().st_size for file in path.rglob("*") if file.is_file()]
    return f"{path.name}/, {len(sizes)} files, {sum(sizes)} bytes"


def write_part(
    out: Path,
    name: str,
    options: Mapping[str, Any],
    make: Callable[[Counter[str]], Iterable[RankingList]],
    sentences: Mapping[str, str],
    lists_per_shard: int = LISTS_PER_SHARD,
) -> Manifest:
    """Writes `out/NAME.parquet/000000.parquet`, ... in flat memory; readers refuse the folder until it is complete.

    A complete part of the same options is left as it is, an interrupted one is written again.

    Args:
        out: the folder that the command fills.
        name: the part.
        options: what the lists depend on, plain JSON values; kept in the manifest.
        make: makes the lists, at least one, each query id once, and counts what it leaves out; `lists`, `items`,
            `positives` and `lists_without_positive` are counted here.
        sentences: see `Manifest`.
        lists_per_shard: lists of a shard.

    Raises:
        NoLists: tells what was left out.
        ValueError: the folder is not of these options.
    """
    folder, counts = out / f"{name}.parquet", Counter[str]()

    def counted() -> Iterator[RankingList]:
        for ranking_list in make(counts):
            positives = sum(label > 0 for label in ranking_list.labels or ())
            counts.update(lists=1, items=len(ranking_list), positives=positives)
            counts["lists_without_positive"] += not positives
            yield ranking_list

    try:
        manifest = write_shards(counted(), folder, lists_per_shard, options=options, counts=counts)
    except NoLists as error:
        told = Manifest(folder, {}, counts=counts, sentences=sentences).told()
        raise NoLists("; ".join([str(error), *told])) from None
    manifest.sentences = sentences
    return manifest


def write_splits(
    out: Path,
    command: str,
    source: Any,
    splits: Mapping[str, Callable[[Counter[str]], Iterable[tuple[str, RankingList]]]],
    dev_fraction: float,
    sentences: Mapping[str, str],
) -> Iterator[Manifest]:
    """Writes train, dev and test of a dataset, those that there are, and yields an account of each.

    Args:
        out: the folder to fill.
        command: the name of the command, and
        source: what the lists are made from, plain JSON values; both for the manifest.
        splits: makes the lists of a split, counts on the way, and gives each list with the text whose hash decides
            between train and dev: lists of one text stay together.
        dev_fraction: dev is this part of train; 0: dev is a split of its own, if there is one.
        sentences: see `Manifest`.

    Raises:
        ValueError: `dev_fraction` is outside [0, 1); otherwise as `write_part`, and what `splits` raise.
    """
    if not 0 <= dev_fraction < 1:
        raise ValueError(f"dev_fraction must be in [0, 1), got {dev_fraction:g}")

    def lists(name: str, counts: Counter[str]) -> Iterator[RankingList]:
        split = "train" if dev_fraction and name == "dev" else name
        for key, ranking_list in splits[split](counts if split == name else Counter()):
            if split != "train" or (fraction(key, "dev") < dev_fraction) == (name == "dev"):
                yield ranking_list

    made_of = {"command": command, "source": source, "dev_fraction": dev_fraction}
    for name in ("train", "dev", "test"):
        if name in splits or (name == "dev" and dev_fraction):
            yield write_part(out, name, made_of, partial(lists, name), sentences)


def judged_list(
    query_id: str,
    query: str | None,
    candidates: Sequence[str],
    texts: Mapping[str, str],
    grades: Mapping[str, float],
    counts: Counter[str],
) -> RankingList | None:
    """A list of the candidates that have a text, in their order; None if the query or all of them have none.

    Unjudged candidates have label 0. Counts `untitled_queries`, `untitled_items` and `empty_lists`.
    """
    kept = [item for item in candidates if texts.get(item)]
    if not query:
        counts["untitled_queries"] += 1
        return None
    counts["untitled_items"] += len(candidates) - len(kept)
    if not kept:
        counts["empty_lists"] += 1
        return None
    labels = tuple(float(grades.get(item, 0)) for item in kept)
    return RankingList(query_id, query, tuple(kept), tuple(texts[item] for item in kept), labels)
