"""Datasets of ir_datasets: their records as streams, with errors that say what to download and where to put it.

MacAvaney et al., "Simplified Data Wrangling with ir_datasets", SIGIR 2021.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Literal

import ir_datasets

from crossjem_pl.data.formats import ranked
from crossjem_pl.prepare.runs import Candidates, Grouping

__all__ = ["Kind", "load", "official_candidates", "official_count", "records"]

Kind = Literal["docs", "queries", "qrels", "scoreddocs"]
# what its readers raise for missing, damaged and malformed files; UnboundLocalError is how its reader of runs
# fails on a malformed first line
_ERRORS = (OSError, EOFError, zlib.error, RuntimeError, ValueError, UnboundLocalError)
_NAMES = {"docs": "documents", "queries": "queries", "qrels": "judgements", "scoreddocs": "candidates"}


def load(dataset_id: str, *kinds: Kind) -> Any:
    """The dataset, which must have all of `kinds`; nothing is downloaded yet.

    Raises:
        ValueError: an unknown id, or one that lacks a kind.
    """
    try:
        dataset = ir_datasets.load(dataset_id)
    except KeyError:
        raise ValueError(f"ir_datasets has no dataset {dataset_id!r}; see https://ir-datasets.com") from None
    for kind in kinds:
        if not dataset.has(kind):
            raise ValueError(f"dataset {dataset_id!r} of ir_datasets has no {_NAMES[kind]}")
    return dataset


def records(dataset_id: str, kind: Kind) -> Iterator[Any]:
    """The records of a kind in their stored order; ir_datasets downloads what it does not have.

    Raises:
        ValueError: names dataset and kind, for whatever stops ir_datasets (no network, a damaged or malformed
            file), with the address of the file and the place where ir_datasets expects it.
    """
    dataset = load(dataset_id, kind)
    iterator: Iterator[Any] | None = None
    number = 0
    while True:
        try:
            if iterator is None:
                iterator = iter(getattr(dataset, f"{kind}_iter")())
            record = next(iterator)
        except StopIteration:
            return
        except _ERRORS as error:
            raise ValueError(
                f"{dataset_id}: cannot read the {_NAMES[kind]} (after {number} records: "
                f"{type(error).__name__}: {error}). {_remedy(dataset_id, dataset, kind)}"
            ) from error
        number += 1
        yield record


def official_count(dataset_id: str, kind: Kind) -> int | None:
    """The number of records as ir_datasets publishes it, None if it does not."""
    count = load(dataset_id, kind).metadata().get(kind, {}).get("count")
    return None if count is None else int(count)


def official_candidates(dataset_id: str) -> Iterator[Candidates]:
    """The dataset's own first-stage results (`scoreddocs`), by score, ties by item id descending.

    Raises:
        ValueError: as `records`, and for a query that reappears or has an item twice.
    """
    grouping = Grouping("record", ranked)
    source = f"{dataset_id} scoreddocs"
    for number, record in enumerate(records(dataset_id, "scoreddocs"), 1):
        done = grouping.add(record.query_id, record.doc_id, record.score, source, number)
        if done is not None:
            yield done
    done = grouping.end()
    if done is None:
        raise ValueError(f"{source}: there are no candidates")
    yield done


def _remedy(dataset_id: str, dataset: Any, kind: Kind) -> str:
    """Which file is meant, and where ir_datasets looks for it before it downloads."""
    base, _, part = dataset_id.partition("/")
    key = kind if kind == "docs" else f"{part.removesuffix('/judged')}/{kind}"
    entry = ir_datasets.util.DownloadConfig.contents().get(base, {}).get(key)
    if entry is not None and "url" in entry and "cache_path" in entry:
        place = ir_datasets.util.home_path() / base / entry["cache_path"]
        size = entry.get("size_hint", 0) / 1e6
        return (
            f"Without a connection, download {entry['url']} ({size:,.1f} MB, MD5 {entry['expected_md5']}) "
            f"elsewhere and put it at {place}; if a damaged file is there, remove it. The environment variable "
            "IR_DATASETS_HOME moves that folder."
        )
    handler = getattr(dataset, f"{kind}_handler")()
    path = getattr(handler, f"{kind}_path", None)
    if path is None:
        return f"See https://ir-datasets.com for the files of {base!r}."
    try:
        return f"The file is {path()}."
    except _ERRORS as error:
        return f"The file is missing ({error})."
