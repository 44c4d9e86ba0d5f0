"""What is read: models by name, labelled lists with their first stage's order, the texts of a corpus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from crossjem_pl.data.formats import detect_layout, read_lists, read_texts
from crossjem_pl.data.rows import JSON_ENDINGS, column_names
from crossjem_pl.files import ending, existing
from crossjem_pl.inference import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.dual.towers import DecoupledRanker
from crossjem_pl.rankers.neural import NeuralRanker

__all__ = ["FIRST_STAGE", "corpus_texts", "labelled_lists", "named_folders", "read_models"]

FIRST_STAGE = "first_stage"
"""Column of the first stage's scores."""


def named_folders(given: Sequence[str]) -> dict[str, str]:
    """`NAME=FOLDER` arguments as name -> folder, in their order.

    Raises:
        ValueError: for an argument of another form, or a name that comes twice.
    """
    folders: dict[str, str] = {}
    for argument in given:
        name, equals, folder = argument.partition("=")
        if not (name and equals and folder):
            raise ValueError(f"--model: expected NAME=FOLDER, got {argument!r}")
        if name in folders:
            raise ValueError(f"--model: the name {name!r} is given twice")
        folders[name] = folder
    return folders


def read_models(folders: dict[str, str], device: torch.device, precision: str) -> dict[str, Reranker]:
    """The models, their caches of token ids off: no text that was seen before is faster than a new one.

    Raises:
        FileNotFoundError: if there is no such model.
        ValueError: if a folder holds none, or not one for the device and precision.
    """
    rerankers = {}
    for name, folder in folders.items():
        rerankers[name] = Reranker.from_pretrained(folder, device, precision)  # type: ignore[arg-type]
        ranker = rerankers[name].ranker
        if isinstance(ranker, NeuralRanker):
            ranker.tokenizer.cache_size = 0
        if isinstance(ranker, DecoupledRanker):
            for tokenizer in ranker.tokenizers.values():
                tokenizer.cache_size = 0
    return rerankers


def labelled_lists(path: Path) -> tuple[list[RankingList], bool]:
    """All lists of a file, and whether their `scores` are those of the first stage.

    The column `first_stage` is read as the scores if there is one; otherwise no scores are read, since `scores` may
    well be a teacher's.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: names the file and line of what is malformed, or the list that has no labels.
    """
    existing(path)
    ordered = FIRST_STAGE in column_names(path) and detect_layout(path) != "mteb"
    lists = list(read_lists(path, scores_field=FIRST_STAGE if ordered else None))
    for one in lists:
        if one.labels is None:
            raise ValueError(f"{path}: list {one.query_id!r} has no labels, so nothing can be measured on it")
    return lists, ordered


def corpus_texts(path: Path) -> Iterator[str]:
    """The item texts of a file of lists, or the texts of a table of ids and texts; repeats included.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: names the file and line of what is malformed.
    """
    existing(path)
    has_rows = path.is_dir() or ending(path) in (*JSON_ENDINGS, ".parquet")
    if not has_rows or {"id", "text"} <= set(column_names(path)):
        yield from read_texts(path).values()
        return
    for one in read_lists(path, labels_field=None, scores_field=None, unique=False):
        yield from one.items
