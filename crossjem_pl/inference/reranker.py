"""`Reranker`: loads a ranker, scores, sorts, explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Ranker
from crossjem_pl.rankers.explanations import Explanation
from crossjem_pl.rankers.folder import load_ranker, save_ranker

__all__ = ["Activation", "RankedItem", "Reranker"]

Activation = Literal["none", "sigmoid", "softmax"]
Precision = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class RankedItem:
    """One row of a ranking.

    Args:
        index: position of the item in the list that was given.
        text: the item.
        score: its score after the activation.
    """

    index: int
    text: str
    score: float


class Reranker:
    """The inference face of any ranker.

    Lists longer than one pass of a joint ranker are split into passes that run in one batch; no token is
    dropped but for the limits of single texts, which `truncated` counts.

    Args:
        ranker: what scores; it is put into eval mode and moved to `device`.
        device: "cpu", "cuda", ...; None takes a GPU if there is one.
        precision: of the matrix products; scores are float32 always. "bfloat16" on a CPU pays only with AMX
            or AVX-512 bf16.
        batch_size: lists per forward pass.

    Example:
        >>> reranker = Reranker.from_pretrained("runs/quickstart/model")  # doctest: +SKIP
        >>> reranker.rank("running shoes", ["trail shoes", "office chair"])[0].text  # doctest: +SKIP
        'trail shoes'
    """

    def __init__(
        self,
        ranker: Ranker,
        device: str | torch.device | None = None,
        precision: Precision = "float32",
        batch_size: int = 32,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if precision not in get_args(Precision):
            raise ValueError(f"precision must be one of {', '.join(get_args(Precision))}, got {precision!r}")
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.ranker = ranker.eval().to(self.device)
        self.precision = precision
        self.batch_size = batch_size
        self.truncated = 0
        """How many texts have lost tokens to their length limit since the start."""

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        device: str | torch.device | None = None,
        precision: Precision = "float32",
        batch_size: int = 32,
    ) -> Reranker:
        """Loads a model folder or a hub repository.

        Raises:
            FileNotFoundError: if there is no such model; says what to do.
            ValueError: if the folder does not hold one of our models.
        """
        return cls(load_ranker(str(name)), device, precision, batch_size)

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes the model folder: `model.safetensors`, `config.json`, tokenizer files."""
        save_ranker(self.ranker, folder)

    def rank(
        self, query: str, items: Sequence[str], top_k: int | None = None, activation: Activation = "none"
    ) -> list[RankedItem]:
        """The items of one query, best first; equal scores keep the order of the input.

        Args:
            query: the query.
            items: item texts.
            top_k: return only the best `top_k`.
            activation: "none" (the ranker's own score), "sigmoid", or "softmax" over the list.

        Raises:
            ValueError: for an empty query, no items or a blank item; names the field and position.
        """
        return self.rank_batch([query], [items], top_k, activation)[0]

    def rank_batch(
        self,
        queries: Sequence[str],
        items: Sequence[Sequence[str]],
        top_k: int | None = None,
        activation: Activation = "none",
    ) -> list[list[RankedItem]]:
        """`rank` for many queries, each with its own items.

        Raises:
            ValueError: if there are not as many item lists as queries, and as in `rank`.
        """
        if isinstance(queries, str):
            raise ValueError(f"queries: expected a sequence of texts, got the text {queries!r}; see `rank`")
        if len(queries) != len(items):
            raise ValueError(f"{len(queries)} queries but {len(items)} lists of items")
        if top_k is not None and top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {top_k}")
        lists = [
            RankingList.from_texts(query, texts, f"query {i}")
            for i, (query, texts) in enumerate(zip(queries, items, strict=True))
        ]
        ranked = []
        for one, scores in zip(lists, self.score(lists, activation), strict=True):
            order = torch.sort(scores, descending=True, stable=True).indices[:top_k].tolist()
            values = scores.tolist()
            ranked.append([RankedItem(i, one.items[i], values[i]) for i in order])
        return ranked

    def score(self, lists: Sequence[RankingList], activation: Activation = "none") -> list[Tensor]:
        """Scores of each list's items, float32 [items] on the CPU, in the items' order.

        Raises:
            ValueError: for an unknown activation, or if a score is not finite; names the list.
        """
        if activation not in get_args(Activation):
            raise ValueError(f"activation must be 'none', 'sigmoid' or 'softmax', got {activation!r}")
        scores: list[Tensor] = []
        for first in range(0, len(lists), self.batch_size):
            scores += self._score_batch(lists[first : first + self.batch_size])
        if activation == "sigmoid":
            return [torch.sigmoid(s) for s in scores]
        if activation == "softmax":
            return [torch.softmax(s, dim=0) for s in scores]
        return scores

    def explain(self, query: str, items: Sequence[str]) -> list[Explanation]:
        """Each item's score as an exact sum of token contributions, in the items' order.

        Raises:
            ValueError: if the ranker's score is not such a sum.
        """
        return self.ranker.explain(RankingList.from_texts(query, items))

    def _score_batch(self, lists: Sequence[RankingList]) -> list[Tensor]:
        batch = self.ranker.collate(lists)
        self.truncated += batch.truncated_items + batch.truncated_queries
        lower = self.precision != "float32"
        dtype = getattr(torch, self.precision)
        with (
            torch.inference_mode(),
            torch.autocast(self.device.type, dtype=dtype if lower else None, enabled=lower),
        ):
            scores = self.ranker(batch.to(self.device)).float().cpu()
        for row, one in zip(scores, lists, strict=True):
            if not torch.isfinite(row).all():
                raise ValueError(
                    f"list {one.query_id!r}: a score is not finite; the weights are broken, or "
                    f"{self.precision} is too narrow for them (bfloat16 and float32 have the wider range)"
                )
        return [row[: len(one)] for row, one in zip(scores, lists, strict=True)]
