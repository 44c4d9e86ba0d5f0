"""Rankers that encode queries and items apart, so that item vectors can be computed beforehand."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PretrainedConfig

from crossjem_pl.hashing import text_keys
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Batch, item_mask
from crossjem_pl.rankers.dual.item_vectors import ItemVectors, Vectors
from crossjem_pl.rankers.dual.text_rows import RowFormat, TextRows, text_rows
from crossjem_pl.rankers.encoders import first_position
from crossjem_pl.rankers.neural import NeuralRanker
from crossjem_pl.text import Encoded, ShortTextTokenizer
from crossjem_pl.text.ragged import Ints

__all__ = ["DecoupledBatch", "DecoupledRanker", "Side", "check_positions", "prompt_length"]

Side = Literal["query", "items"]


@dataclass
class DecoupledBatch(Batch):
    """The distinct queries and items of some lists.

    Args:
        queries: one row per distinct query text.
        items: one row per distinct item text.
        query_row: int64 [lists], the row of each list's query.
        item_row: int64 [lists, max_items], the row of each item; 0 on padding.
        query_keys: int64 [lists], a hash of the query's text, the same in every process.
        item_keys: int64 [lists, max_items], likewise of the items; 0 on padding.
    """

    queries: TextRows
    items: TextRows
    query_row: Tensor
    item_row: Tensor
    query_keys: Tensor
    item_keys: Tensor


class DecoupledRanker(NeuralRanker):
    """A ranker whose query and item representations do not depend on each other.

    `collate` tokenises and the encoders read each distinct text of a batch once, however many lists it is in.

    **Item vectors can be computed beforehand**: `precompute_items` keeps them by text. They are used at
    inference only (evaluation mode, no gradients), for the texts that are known; others are encoded as ever.
    Calling `train()` or loading weights forgets them. Weights changed by hand in evaluation mode are not
    noticed: call `item_cache.clear()`. The cache is no part of a model folder, a checkpoint or a copy of the
    ranker.

    Args:
        init_args: the subclass's init arguments (see `Ranker`).
        encoder: where the tokenizer comes from.
        max_query_tokens: limit of a query, without its prompt and special tokens.
        max_item_tokens: limit of an item, likewise.
        texts_per_pass: texts that go through an encoder together; they are sorted by length first.
        query_prompt: text put in front of every query.
        item_prompt: text put in front of every item.
    """

    cls_and_sep: ClassVar[bool] = False

    def __init__(
        self,
        init_args: dict[str, Any],
        encoder: str,
        max_query_tokens: int,
        max_item_tokens: int,
        texts_per_pass: int,
        query_prompt: str = "",
        item_prompt: str = "",
    ) -> None:
        super().__init__(init_args, encoder, max_query_tokens, max_item_tokens)
        if texts_per_pass < 1:
            raise ValueError(f"texts_per_pass must be at least 1, got {texts_per_pass}")
        self.texts_per_pass = texts_per_pass
        self.prompts: dict[Side, str] = {"query": query_prompt, "items": item_prompt}
        self.tokenizers: dict[Side, ShortTextTokenizer] = {"query": self.tokenizer, "items": self.tokenizer}
        self.formats: dict[Side, RowFormat] = {side: RowFormat.of(self.tokenizer.hf) for side in self.prompts}
        self.item_cache = ItemVectors()
        self.register_load_state_dict_post_hook(_forget_items)

    @abstractmethod
    def encode_query_rows(self, rows: TextRows) -> Vectors:
        """The vectors of the queries, float32, by row number."""

    @abstractmethod
    def encode_item_rows(self, rows: TextRows) -> Vectors:
        """The vectors of the items, float32, by row number."""

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def train(self, mode: bool = True) -> Self:
        if mode:
            self.item_cache.clear()
        return super().train(mode)

    def collate(self, lists: Sequence[RankingList]) -> DecoupledBatch:
        mask = item_mask(lists)
        queries, items = self.encode_queries(lists), self.encode_items(lists)
        query_rows, query_row, query_keys = self._rows(queries, [one.query for one in lists], "query")
        item_rows, item_row, item_keys = self._rows(
            items, [text for one in lists for text in one.items], "items"
        )
        at = torch.zeros(2, *mask.shape, dtype=torch.int64)
        at[:, mask] = torch.from_numpy(np.stack((item_row, item_keys)))
        return DecoupledBatch(
            item_mask=mask,
            truncated_items=items.truncated,
            truncated_queries=queries.truncated,
            queries=query_rows,
            items=item_rows,
            query_row=torch.from_numpy(query_row),
            item_row=at[0],
            query_keys=torch.from_numpy(query_keys),
            item_keys=at[1],
        )

    @torch.no_grad()
    def precompute_items(
        self, texts: Iterable[str], batch_size: int = 1024, dtype: torch.dtype = torch.float32
    ) -> int:
        """Computes and keeps the vectors of items, for as long as the weights stay the same.

        Args:
            texts: item texts, each computed once; those already known are left out.
            batch_size: texts tokenised and encoded at a time.
            dtype: what they are kept in; float16 halves the memory, at a relative error of about 1e-3.

        Returns:
            How many of them lost tokens to `max_item_tokens`.

        Raises:
            RuntimeError: in training mode.
            ValueError: for a text without tokens, naming it.
        """
        if self.training:
            raise RuntimeError("item vectors are for inference: call eval() before precompute_items()")
        new = [text for text in dict.fromkeys(texts) if text not in self.item_cache]
        kept, in_order, truncated = [], [], 0
        # matrices that are kept in less than float32 multiply under autocast only
        low = next((p.dtype for p in self.parameters() if p.dtype in (torch.bfloat16, torch.float16)), None)
        for rows, _, cut in self._batches(new, "items", batch_size):
            with torch.autocast(self.device.type, low, enabled=low is not None):
                kept.append(self.encode_item_rows(rows).to(self.device, dtype))
            in_order += rows.texts
            truncated += cut
        if kept:
            self.item_cache.add(in_order, Vectors.cat(kept))
        return truncated

    def prompt_tokens(self, side: Side) -> int:
        """How many tokens the side's prompt has."""
        return prompt_length(self.tokenizers[side], self.prompts[side])

    def item_vectors(self, batch: DecoupledBatch) -> Vectors:
        """The vectors of the batch's distinct items, known ones from the cache where it may be used."""
        if self.training or torch.is_grad_enabled() or not len(self.item_cache):
            return self.encode_item_rows(batch.items)
        return self.item_cache.complete(batch.items, self.encode_item_rows, batch.item_mask.device)

    def _batches(
        self, texts: Iterable[str], side: Side, batch_size: int
    ) -> Iterator[tuple[TextRows, Tensor, int]]:
        """`batch_size` texts at a time: rows on the weights' device, each text's row, how many were cut."""
        rest = iter(texts)
        while part := list(islice(rest, batch_size)):
            encoded = self._tokens(part, side)
            rows, row, _ = self._rows(encoded, part, side)
            yield rows.to(self.device), torch.from_numpy(row).to(self.device), encoded.truncated

    def _rows(self, encoded: Encoded, texts: Sequence[str], side: Side) -> tuple[TextRows, Ints, Ints]:
        """Rows of the distinct texts, and of every text its row number and key."""
        rows, row = text_rows(encoded.tokens, texts, self.formats[side], self.texts_per_pass)
        keys = text_keys(rows.texts)
        return rows, row, keys[row]

    def _tokens(self, texts: Sequence[str], side: Side) -> Encoded:
        """Token ids of prompt and text, cut to the side's limit.

        Raises:
            ValueError: for a text without tokens, naming it.
        """
        limit = self.max_query_tokens if side == "query" else self.max_item_tokens
        tokenizer, prompt = self.tokenizers[side], self.prompts[side]
        length = self.prompt_tokens(side)
        if not length:
            return tokenizer.encode(texts, limit)
        encoded = tokenizer.encode([prompt + text for text in texts], limit + length)
        bare = np.flatnonzero(encoded.tokens.lengths <= length)
        if len(bare):
            raise ValueError(f"the text {texts[bare[0]]!r} has no tokens")
        return encoded

    def _encode(self, lists: Sequence[RankingList], texts: list[str], field: str, limit: int) -> Encoded:
        side: Side = "query" if field == "query" else "items"
        try:
            return self._tokens(texts, side)
        except ValueError:
            for one in lists:  # name the list that holds the text
                try:
                    self._tokens([one.query] if side == "query" else one.items, side)
                except ValueError as error:
                    raise ValueError(f"list {one.query_id!r}, field {field!r}: {error}") from None
            raise


def prompt_length(tokenizer: ShortTextTokenizer, prompt: str) -> int:
    """How many tokens `prompt` has in front of a text; its trailing blanks belong to that text."""
    bare = prompt.rstrip()
    return int(tokenizer.encode([bare], 2**31).tokens.lengths[0]) if bare else 0


def check_positions(config: PretrainedConfig, needed: int, what: str) -> None:
    """Raises a ValueError if an encoder has fewer than `needed` positions. T5's are relative: no limit."""
    available = getattr(config, "max_position_embeddings", None)
    if available is not None and needed > available - first_position(config):
        raise ValueError(
            f"{what} needs {needed} positions, the encoder has {available - first_position(config)}"
        )


def _forget_items(module: nn.Module, _: object) -> None:
    assert isinstance(module, DecoupledRanker)
    module.item_cache.clear()
