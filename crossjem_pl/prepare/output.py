"""What every command of `crossjem prepare` writes: folders of shards, each with its manifest and an account."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

from crossjem_pl.data.shards import Manifest, ShardWriter
from crossjem_pl.hashing import fraction
from crossjem_pl.lists import RankingList

__all__ = [
    "LISTS_PER_SHARD",
    "Track",
    "Written",
    "fingerprint",
    "finished",
    "judged_list",
    "one_line",
    "untracked",
    "write_part",
    "write_splits",
]

LISTS_PER_SHARD = 10_000
T = TypeVar("T")


class Track(Protocol):
    """Passes an iterable through while it shows how far it is; `rich.progress.track` is one."""

    def __call__(self, sequence: Iterable[T], description: str, total: float | None) -> Iterable[T]: ...


def untracked(sequence: Iterable[T], description: str, total: float | None) -> Iterable[T]:
    """A `Track` that shows nothing."""
    return sequence


def one_line(text: str) -> str:
    """The text with every run of white space (tabs, line ends, U+00A0...) as one space, none at the ends."""
    return " ".join(text.split())


def fingerprint(path: Path) -> str:
    """Name and size of a file, or of the files of a folder: tells another input from the same one moved."""
    if not path.is_dir():
        return f"{path.name}, {path.stat().st_size} bytes"
    sizes = [file.stat().st_size for file in path.rglob("*") if file.is_file()]
    return f"{path.name}/, {len(sizes)} files, {sum(sizes)} bytes"


@dataclass(frozen=True)
class Written:
    """One folder of lists. `str()` is the text for a terminal.

    Args:
        path: what was written.
        counts: numbers by name; `lists`, `items` and `positives` (items with a label above 0) always count.
        sentences: what each other count means; names without a sentence are not told.
        state: a remark behind the path, such as "was complete".
    """

    path: Path
    counts: Mapping[str, int]
    sentences: Mapping[str, str] = field(default_factory=dict)
    state: str = ""

    def __str__(self) -> str:
        lists, items, positives = (self.counts.get(name, 0) for name in ("lists", "items", "positives"))
        remark = f" ({self.state})" if self.state else ""
        lines = [f"{self.path}{remark}: {lists} lists, {items} items, {positives} of them relevant"]
        for name, sentence in self.sentences.items():
            if self.counts.get(name, 0):
                lines.append(f"  {self.counts[name]} {sentence}")
        return "\n".join(lines)


def finished(
    out: Path, name: str, options: Mapping[str, Any], sentences: Mapping[str, str]
) -> Written | None:
    """The account of a part that was written before with the same options; None if it is not complete.

    Raises:
        ValueError: the part was made with other options (names one), or by something else.
    """
    folder = out / f"{name}.parquet"
    manifest = Manifest.read(folder)
    if manifest is None:
        if folder.exists():
            raise ValueError(f"{folder}: is there already, but not from this command; remove it")
        return None
    manifest.check_options(options)
    return Written(folder, manifest.counts, sentences, "was complete") if manifest.complete else None


def write_part(
    out: Path,
    name: str,
    options: Mapping[str, Any],
    lists: Iterable[RankingList],
    counts: Counter[str],
    sentences: Mapping[str, str],
    lists_per_shard: int = LISTS_PER_SHARD,
) -> Written:
    """Writes lists to `out/NAME.parquet/000000.parquet`, ... in flat memory; readers refuse it until it is complete.

    Args:
        out: the folder that the command fills.
        name: the part.
        options: what the lists depend on, plain JSON values; kept in the manifest.
        lists: at least one, each query id once.
        counts: what was counted on the way; `lists`, `items`, `positives` and `lists_without_positive` are added.
        sentences: see `Written`.
        lists_per_shard: lists of a shard.

    Raises:
        ValueError: there are no lists (tells what was left out), or the folder is not of these options.
    """

    def counted() -> Iterator[RankingList]:
        for ranking_list in lists:
            positives = sum(label > 0 for label in ranking_list.labels or ())
            counts.update(lists=1, items=len(ranking_list), positives=positives)
            counts["lists_without_positive"] += not positives
            yield ranking_list

    stream = counted()
    first = next(stream, None)
    folder = out / f"{name}.parquet"
    if first is None:
        told = "".join(f"; {counts[key]} {text}" for key, text in sentences.items() if counts[key])
        raise ValueError(f"{folder}: there are no lists to write{told}")
    for interrupted in folder.glob("*.parquet"):
        interrupted.unlink()
    writer = ShardWriter(folder, options)
    while first is not None:
        writer.write(chain([first], islice(stream, lists_per_shard - 1)))
        first = next(stream, None)
    writer.manifest.counts.update(counts)
    writer.close()
    return Written(folder, counts, sentences)


def write_splits(
    out: Path,
    command: str,
    source: Any,
    splits: Mapping[str, Callable[[Counter[str]], Iterable[tuple[str, RankingList]]]],
    dev_fraction: float,
    sentences: Mapping[str, str],
) -> Iterator[Written]:
    """Writes train, dev and test of a dataset whose lists fit into the memory, those that there are.

    Args:
        out: the folder to fill.
        command: the name of the command, and
        source: what the lists are made from, plain JSON values; both for the manifest.
        splits: makes the lists of a split, counts on the way, and gives each list with the text whose hash decides
            between train and dev: lists of one text stay together.
        dev_fraction: dev is this part of train; 0: dev is a split of its own, if there is one.
        sentences: see `Written`.

    Yields:
        An account of each part.

    Raises:
        ValueError: `dev_fraction` is outside [0, 1); otherwise as `write_part`, and what `splits` raise.
    """
    if not 0 <= dev_fraction < 1:
        raise ValueError(f"dev_fraction must be in [0, 1), got {dev_fraction:g}")
    made_of = {"command": command, "source": source, "dev_fraction": dev_fraction}
    for split, make in splits.items():
        names = ("train", "dev") if split == "train" and dev_fraction else (split,)
        before = [finished(out, name, made_of, sentences) for name in names]
        if all(before):
            yield from (part for part in before if part is not None)
            continue
        counts: Counter[str] = Counter()
        lists = list(make(counts))
        in_dev = [len(names) > 1 and fraction(key, "dev") < dev_fraction for key, _ in lists]
        for name in names:
            part = (
                ranking_list
                for (_, ranking_list), dev in zip(lists, in_dev, strict=True)
                if dev == (name != split)
            )
            yield write_part(out, name, made_of, part, counts if name == split else Counter(), sentences)


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
