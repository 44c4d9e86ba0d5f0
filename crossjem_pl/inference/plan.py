"""How to split long lists into passes: latency and agreement of CROSS-JEM's limits, measured on this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch

from crossjem_pl.inference.agreement import agreement
from crossjem_pl.inference.reranker import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.crossjem.model import CrossJEM
from crossjem_pl.text import PassOrder

__all__ = [
    "MeasuredSplit",
    "Split",
    "choose_split",
    "joint_ranker",
    "measure_splits",
    "possible_splits",
    "save_split",
]

_ITEMS = (50, 100, 200, 350)
_UNIONS = (96, 128, 192, 262, 512)
_ORDERS: tuple[PassOrder, ...] = ("sorted", "overlap")


@dataclass(frozen=True)
class Split:
    """The three arguments of `CrossJEM` that decide how a list is split.

    Args:
        max_items_per_pass: N.
        max_union_tokens: L_u.
        pass_order: see `plan_passes`.
    """

    max_items_per_pass: int
    max_union_tokens: int
    pass_order: PassOrder

    @classmethod
    def of(cls, ranker: CrossJEM) -> Split:
        return cls(ranker.max_items_per_pass, ranker.max_union_tokens, ranker.pass_order)


@dataclass(frozen=True)
class MeasuredSplit:
    """A split on some lists.

    Args:
        split: the split.
        own: whether it is the one that the model came with.
        passes: passes of a list, mean.
        tokens: tokens of all passes of a list, padding left out, mean.
        padded_tokens: the same with each pass padded to the list's longest, mean.
        milliseconds: median time to rank one list whose tokens are at hand.
        tau: mean Kendall tau with the ranking by the model's own split.
        top10: mean share of its ten best items that are kept.
    """

    split: Split
    own: bool
    passes: float
    tokens: float
    padded_tokens: float
    milliseconds: float
    tau: float
    top10: float


def possible_splits(ranker: CrossJEM, lists: Sequence[RankingList]) -> list[Split]:
    """The model's own split first, then others that split at least one of the lists otherwise.

    N and L_u go through fixed values up to the longest list and the largest union (or what the encoder's
    positions allow), with "sorted" and "overlap". Of splits that deal all lists alike only one is kept.

    Raises:
        ValueError: if there are no lists.
    """
    if not lists:
        raise ValueError("no lists to plan for")
    longest = max(map(len, lists))
    union = max(_union_size(ranker, one) for one in lists)
    most = union if ranker.union_limit is None else min(union, ranker.union_limit)
    own = Split.of(ranker)
    grid = [own] + [
        Split(items, tokens, order)
        for items in sorted({n for n in (*_ITEMS, own.max_items_per_pass) if n < longest} | {longest})
        for tokens in sorted({u for u in (*_UNIONS, own.max_union_tokens) if u < most} | {most})
        if tokens >= ranker.max_item_tokens
        for order in _ORDERS
    ]
    different: dict[bytes, Split] = {}
    for split in grid:
        dealt = [ranker.with_limits(*_arguments(split)).collate([one]).item_pass for one in lists]
        different.setdefault(torch.cat(dealt).numpy().tobytes(), split)
    return list(different.values())


def measure_splits(
    reranker: Reranker,
    lists: Sequence[RankingList],
    splits: Sequence[Split],
    rounds: int = 3,
    progress: Callable[[Sequence[int]], Iterable[int]] = iter,
) -> list[MeasuredSplit]:
    """Ranks every list by every split, the splits taking turns, one more round going before the timed ones.

    Args:
        reranker: of a crossjem ranker.
        lists: what to rank.
        splits: see `possible_splits`.
        rounds: how often each list is timed with each split.
        progress: wraps the round numbers.

    Raises:
        ValueError: if the ranker is not crossjem's, there are no lists or splits, or rounds is below 1.
    """
    ranker = joint_ranker(reranker)
    if not lists or not splits or rounds < 1:
        raise ValueError(f"{len(lists)} lists by {len(splits)} splits in {rounds} rounds: nothing to measure")
    rerankers = [
        Reranker(ranker.with_limits(*_arguments(split)), reranker.device, reranker.precision)
        for split in splits
    ]
    own = reranker.score(lists)
    found = [agreement(own, other.score(lists)) for other in rerankers]
    times: list[list[float]] = [[] for _ in splits]
    for number in progress(range(rounds + 1)):
        for one in lists:
            for other, elapsed in zip(rerankers, times, strict=True):
                start = time.perf_counter()
                other.rank(one.query, one.items)  # its scores are on the CPU: the device has finished
                if number > 0:
                    elapsed.append(time.perf_counter() - start)
    measured = []
    for split, other, agreed, elapsed in zip(splits, rerankers, found, times, strict=True):
        passes, tokens, padded = _sizes(other, lists)
        milliseconds = 1000 * median(elapsed)
        measured.append(
            MeasuredSplit(
                split,
                split == Split.of(ranker),
                passes,
                tokens,
                padded,
                milliseconds,
                agreed.tau,
                agreed.top10,
            )
        )
    return measured


def choose_split(
    measured: Sequence[MeasuredSplit], budget: float | None = None, min_tau: float = 0.9
) -> MeasuredSplit | None:
    """The fastest split that agrees with the model's own; None if none takes at most `budget` milliseconds.

    Args:
        measured: see `measure_splits`.
        budget: None for no limit.
        min_tau: least Kendall tau with the ranking by the model's own split.
    """
    able = [one for one in measured if one.tau >= min_tau and (budget is None or one.milliseconds <= budget)]
    return min(able, key=lambda one: one.milliseconds, default=None)


def save_split(folder: str | Path, split: Split) -> None:
    """Writes the split into the `config.json` of a crossjem model folder: from then on it is the model's own.

    Raises:
        FileNotFoundError: if there is no such folder or it has no `config.json`.
        ValueError: if it is not a crossjem model folder.
    """
    path = Path(folder) / "config.json"
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there: the split is saved in a model folder")
    config = json.loads(path.read_text(encoding="utf-8"))
    own = config.get("crossjem_pl", {})
    if own.get("ranker") != CrossJEM.name:
        raise ValueError(f"{folder} is not the folder of a crossjem model")
    for name, value in zip(
        ("max_items_per_pass", "max_union_tokens", "pass_order"), _arguments(split), strict=True
    ):
        own["init_args"][name] = value
    partial = path.with_name(f".{path.name}.partial")
    text = json.dumps(config, indent=2, ensure_ascii=False, allow_nan=False)
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(path)


def joint_ranker(reranker: Reranker) -> CrossJEM:
    """The reranker's ranker.

    Raises:
        ValueError: if it is not crossjem's, or an exported one.
    """
    if not isinstance(reranker.ranker, CrossJEM):
        raise ValueError(
            f"{type(reranker.ranker).__name__} ({reranker.ranker.name}) does not split lists into passes: "
            "only crossjem models in torch are planned"
        )
    return reranker.ranker


def _arguments(split: Split) -> tuple[int, int, PassOrder]:
    return split.max_items_per_pass, split.max_union_tokens, split.pass_order


def _union_size(ranker: CrossJEM, one: RankingList) -> int:
    return len(np.unique(ranker.encode_items([one]).tokens.values))


def _sizes(reranker: Reranker, lists: Sequence[RankingList]) -> tuple[float, float, float]:
    """Passes, tokens and padded tokens of a list, means."""
    batches = [joint_ranker(reranker).collate([one]) for one in lists]
    counts = [
        (len(batch.input_ids), int(batch.attention_mask.sum()), batch.input_ids.numel()) for batch in batches
    ]
    passes, tokens, padded = (sum(column) / len(counts) for column in zip(*counts, strict=True))
    return passes, tokens, padded
