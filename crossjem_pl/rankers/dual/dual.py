"""What all dual encoders share: one vector per text, scores from a query's and an item's vector."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig

from crossjem_pl.rankers.dual.decoupled import (
    DecoupledBatch,
    DecoupledRanker,
    Side,
    check_positions,
    prompt_length,
)
from crossjem_pl.rankers.dual.item_vectors import Vectors
from crossjem_pl.rankers.dual.text_rows import RowFormat, TextRows
from crossjem_pl.rankers.dual.tower import TextTower
from crossjem_pl.rankers.encoders import load_tokenizer
from crossjem_pl.text import ShortTextTokenizer

__all__ = ["DualRanker", "longest_text"]


def longest_text(encoder: str | Path, max_tokens: int, prompt: str) -> int:
    """How many tokens are left for a text in a row of `max_tokens` with its prompt and special tokens.

    Raises:
        ValueError: if none is.
    """
    tokenizer = ShortTextTokenizer(load_tokenizer(str(encoder), cls_and_sep=False))
    left = max_tokens - RowFormat.of(tokenizer.hf).added - prompt_length(tokenizer, prompt)
    if left < 1:
        raise ValueError(f"{encoder}: rows of {max_tokens} tokens leave no room behind the prompt {prompt!r}")
    return left


class DualRanker(DecoupledRanker):
    """Scores an item by the inner product of its vector and the query's, times a scale.

    score(q, d) = scale * <e_q(q), e_d(d)>. A subclass says what the towers are; one that compares vectors in
    another way overrides `similarity` and says so by `inner_product = False`. Item vectors can be computed
    beforehand, see `DecoupledRanker`.

    A subclass calls `build(...)` at the end of its `__init__`.
    """

    inner_product: bool = True
    """Whether scores are inner products, so that negatives of the whole batch or corpus can be searched."""
    scale: float | Tensor

    def build(self, scale: float | None, size: int) -> None:
        """Sets the scale and checks the limits against the towers' positions.

        Args:
            scale: None for 1 / sqrt(size), which keeps the inner products of unnormalised vectors in a range
                where losses have gradients; it leaves the ranking alone.
            size: the vectors' width.

        Raises:
            ValueError: if the scale is not positive, or a limit does not fit an encoder's positions.
        """
        if scale is not None and not 0 < scale < float("inf"):
            raise ValueError(f"scale must be positive and finite, got {scale}")
        self.scale = size**-0.5 if scale is None else scale
        limits: tuple[tuple[Side, int], ...] = (
            ("query", self.max_query_tokens),
            ("items", self.max_item_tokens),
        )
        for side, limit in limits:
            needed = self.prompt_tokens(side) + limit + self.formats[side].added
            name = "max_query_tokens" if side == "query" else "max_item_tokens"
            config: PretrainedConfig = self.tower(side).encoder.config  # type: ignore[assignment]
            check_positions(config, needed, f"{name}={limit} with what stands around it")

    @abstractmethod
    def tower(self, side: Side) -> TextTower:
        """The tower of the queries or the items; the same object where they share it."""

    @property
    def encoder_config(self) -> PretrainedConfig:
        return self.tower("items").encoder.config  # type: ignore[return-value]

    def encoders(self) -> list[nn.Module]:
        towers = dict.fromkeys((self.tower("items"), self.tower("query")))
        return [tower.encoder for tower in towers]

    def encode_query_rows(self, rows: TextRows) -> Vectors:
        return self._encode_rows(rows, "query")

    def encode_item_rows(self, rows: TextRows) -> Vectors:
        return self._encode_rows(rows, "items")

    def vectors(self, batch: DecoupledBatch) -> tuple[Tensor, Tensor]:
        """Vectors whose inner product is the score (up to a constant of the ranker).

        Returns:
            float32 [lists, size] with the scale multiplied in, and [lists, max_items, size], anything on
            padding.

        Raises:
            ValueError: if the ranker compares vectors in another way.
        """
        self.check_inner_product()
        queries, items = self._pair(batch)
        return queries * self.scale, items

    def check_inner_product(self) -> None:
        """Raises a ValueError if scores are no inner products."""
        if not self.inner_product:
            raise ValueError(
                f"the scores of this {type(self).__name__} are not inner products of vectors, which in-batch "
                "negatives and hard-negative mining need; use one that compares by inner product or cosine"
            )

    def similarity(self, queries: Tensor, items: Tensor) -> Tensor:
        """Scores [lists, max_items] from vectors [lists, size] and [lists, max_items, size]."""
        return torch.einsum("ld,lid->li", queries * self.scale, items)

    def forward(self, batch: DecoupledBatch) -> Tensor:
        queries, items = self._pair(batch)
        with torch.autocast(queries.device.type, enabled=False):
            return self.similarity(queries, items).masked_fill(~batch.item_mask, 0.0)

    @torch.no_grad()
    def text_vectors(self, texts: Iterable[str], side: Side, batch_size: int = 1024) -> Tensor:
        """Vectors as in `vectors`, float32 [texts, size] on the weights' device, in the order of `texts`.

        Raises:
            ValueError: if scores are no inner products, there is no text, or a text has no tokens.
        """
        self.check_inner_product()
        encode = self.encode_query_rows if side == "query" else self.encode_item_rows
        parts = [encode(rows).values[row] for rows, row, _ in self._batches(texts, side, batch_size)]
        if not parts:
            raise ValueError("there are no texts to encode")
        return torch.cat(parts) * (self.scale if side == "query" else 1.0)

    def _pair(self, batch: DecoupledBatch) -> tuple[Tensor, Tensor]:
        queries = self.encode_query_rows(batch.queries).values[batch.query_row]
        return queries, self.item_vectors(batch).values[batch.item_row]

    def _encode_rows(self, rows: TextRows, side: Side) -> Vectors:
        values = torch.cat([self.tower(side)(group) for group in rows.groups])
        return Vectors(values, torch.ones(len(values), dtype=torch.int64, device=values.device))
