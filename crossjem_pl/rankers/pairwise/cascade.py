"""Cascade: one ranker over all items, another over the best of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Batch, Ranker, init_arguments, item_mask, item_scores, register
from crossjem_pl.rankers.folder import load_architecture, load_ranker, save_architecture
from crossjem_pl.rankers.neural import NeuralRanker

__all__ = ["Cascade", "CascadeBatch"]

_STAGES = ("first", "second")


@dataclass
class CascadeBatch(Batch):
    """What the first ranker reads, and the lists, from which the second takes the items that the first ranks best.

    Args:
        first: the first ranker's batch.
        lists: the lists.
        by_text: int64 [lists, max_items], the items' positions in the order of their texts, padding last.
    """

    first: Batch
    lists: list[RankingList]
    by_text: Tensor


@register
class Cascade(Ranker):
    """The first ranker scores all items of a list, the second the `k` that the first ranks best.

    The score of these k is the second's. With m the lowest of them, g the first ranker's score and g_k its lowest among
    the k, every other item gets m' - (g_k - g), m' the next float32 below m: it ranks below the k, in the first
    ranker's order. Items that tie at the border are taken in the order of their texts, so that scores depend on no
    order of the items; equal texts tie. A list of at most k items is the second ranker's alone.

    The two are trained apart; a cascade is not trained. Which items the second ranker reads is known only when the
    first has scored, so `forward` waits for these scores and tokenises between the two networks: a cascade cannot be
    compiled or exported as a whole, unlike its parts. Texts are counted as cut that either ranker cuts, or would.

    Args:
        first, second: model folders or hub repositories; or rankers.
        k: how many items the second ranker scores.

    Raises:
        FileNotFoundError: if there is no such model.
        ValueError: if `k` is below 1, or a folder holds no ranker.
    """

    name = "cascade"
    trainable = False

    def __init__(self, first: Ranker | str, second: Ranker | str, k: int = 20) -> None:
        init_args = init_arguments(locals())
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        stages = dict(zip(_STAGES, (first, second), strict=True))
        init_args |= {name: one if isinstance(one, str) else name for name, one in stages.items()}
        super().__init__(init_args)
        self.first, self.second = (
            load_ranker(one) if isinstance(one, str) else one for one in stages.values()
        )
        self.k = k
        self.requires_grad_(False)
        self.score_kind = self.second.score_kind  # type: ignore[misc]

    def encoders(self) -> list[nn.Module]:
        return [*self.first.encoders(), *self.second.encoders()]

    def index_items(self, items: Iterable[str]) -> None:
        texts = list(items)
        self.first.index_items(texts)
        self.second.index_items(texts)

    def one_pass_items(self, ranking_list: RankingList) -> int:
        return self.first.one_pass_items(ranking_list)

    def collate(self, lists: Sequence[RankingList]) -> CascadeBatch:
        mask, first = item_mask(lists), self.first.collate(lists)
        by_text = torch.arange(mask.shape[1]).repeat(len(lists), 1)
        places = torch.zeros_like(by_text)
        for i, one in enumerate(lists):
            order = sorted(range(len(one)), key=one.items.__getitem__)
            by_text[i, : len(one)] = torch.tensor(order)
            number: dict[str, int] = {}
            own = [number.setdefault(text, j) for j, text in enumerate(one.items)]
            places[i, : len(one)] = torch.tensor(own) + i * mask.shape[1]
        cut_items, cut_queries = first.truncated_items, first.truncated_queries
        if isinstance(self.second, NeuralRanker):
            cut_items = max(cut_items, self.second.encode_items(lists).truncated)
            cut_queries = max(cut_queries, self.second.encode_queries(lists).truncated)
        return CascadeBatch(mask, cut_items, cut_queries, first, list(lists), by_text, places=places)

    def forward(self, batch: CascadeBatch) -> Tensor:
        coarse = self.first(batch.first).masked_fill(~batch.item_mask, -torch.inf)
        order = coarse.gather(1, batch.by_text).sort(dim=1, descending=True, stable=True).indices
        best = batch.by_text.gather(1, order)[:, : self.k]  # positions; padding comes last
        chosen = [
            one.select([position for position in row if position < len(one)])
            for one, row in zip(batch.lists, best.tolist(), strict=True)
        ]
        fine = self.second(self.second.collate(chosen).to(coarse.device))
        inside = batch.item_mask.gather(1, best)
        lowest, border = (
            values.masked_fill(~inside, torch.inf).amin(1, keepdim=True)
            for values in (fine, coarse.gather(1, best))
        )
        scores = torch.nextafter(lowest, torch.full_like(lowest, -torch.inf)) - (border - coarse)
        scores = scores.scatter(1, best, torch.where(inside, fine, 0.0))
        return item_scores([scores.flatten()], batch)

    def save_assets(self, folder: str) -> dict[str, Any]:
        for name in _STAGES:
            save_architecture(getattr(self, name), Path(folder) / name)
        return {}

    @classmethod
    def from_folder(cls, folder: str, init_args: dict[str, Any]) -> Self:
        first, second = (load_architecture(Path(folder) / name) for name in _STAGES)
        return cls(first, second, init_args["k"])
