"""monoBERT: the pointwise cross-encoder, one pass per (query, item) pair. The standard and the teacher."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, Unpack, get_args

import numpy as np
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification

from crossjem_pl.rankers.base import check_choice, init_arguments, register
from crossjem_pl.rankers.encoders import architectures, has_segments, load_encoder, require_safetensors
from crossjem_pl.rankers.folder import PublicFolders, length_limit
from crossjem_pl.rankers.neural import check_positions
from crossjem_pl.rankers.pairwise.pairs import PairOptions, PairRanker
from crossjem_pl.text import Ragged
from crossjem_pl.text.ragged import Ints, side_by_side

__all__ = ["ItemOrder", "MonoBERT"]

ItemOrder = Literal["text", "alphabetical"]


@register
class MonoBERT(PairRanker, PublicFolders):
    """Pointwise cross-encoder (Nogueira and Cho, 2019): score = classifier([CLS]) of `[CLS] q [SEP] item
    [SEP]`.

    It is transformers' sequence classifier with one label, so that every family's own pooling and head is
    used.

    Args:
        encoder: hub id, folder, or `packaged:all-MiniLM-L6-v2`.
        item_order: "text", or "alphabetical" to feed every item's word pieces in alphabetical order: the paper's
            test of how much word order matters (CROSS-JEM, Table 8a).
        options: see `PairOptions`.

    Raises:
        ValueError: if a pair may need more positions than the encoder has.
    """

    name = "monobert"

    def __init__(
        self,
        encoder: str,
        item_order: ItemOrder = "text",
        **options: Unpack[PairOptions],
    ) -> None:
        init_args = init_arguments(locals(), options)
        super().__init__(init_args, encoder, options)
        check_choice("item_order", item_order, get_args(ItemOrder))
        self.item_order = item_order
        self.model = load_encoder(encoder, options, AutoModelForSequenceClassification, num_labels=1)
        # a model whose tokenizer marks no segments has learned pairs without them
        self._segments = has_segments(self.model) and "token_type_ids" in self.tokenizer.hf.model_input_names
        separator = self.tokenizer.hf.sep_token_id
        # RoBERTa's pairs have two separators in the middle, as their tokenizer's own pairs show
        self._middle = max(self.tokenizer.hf("a", "b").input_ids.count(separator) - 1, 1)
        special = 2 + self._middle
        check_positions(
            self.encoder_config,
            self.max_query_tokens + self.max_item_tokens + special,
            f"max_query_tokens={self.max_query_tokens} + max_item_tokens={self.max_item_tokens} + {special} special "
            "tokens",
        )

    def encoders(self) -> list[nn.Module]:
        return [self.model.base_model]  # type: ignore[list-item]

    @classmethod
    def adopts(cls, folder: Path, config: dict[str, Any]) -> bool:
        """Sequence classifiers with one label: what sentence-transformers calls a CrossEncoder."""
        named = any(name.endswith("ForSequenceClassification") for name in architectures(config))
        names = config.get("id2label", {0: "", 1: ""})
        labels = config.get("num_labels", len(names) if isinstance(names, dict) else None)
        return named and labels == 1

    @classmethod
    def from_public(cls, folder: Path) -> Self:
        """The ranker with the weights of a cross-encoder; scores are its logits, before any activation.

        Query and item may each take half of the longest pair.

        Raises:
            ValueError: if the weights are not safetensors.
        """
        require_safetensors(folder)
        half = (length_limit(folder) - 4) // 2
        return cls(str(folder), max_query_tokens=half, max_item_tokens=half)

    def save_assets(self, folder: str) -> dict[str, Any]:
        config = super().save_assets(folder)
        logits = {"activation_fn": "torch.nn.modules.linear.Identity"}  # CrossEncoder's default is a sigmoid
        if self.item_order == "alphabetical":
            return config
        return {**config, "architectures": [type(self.model).__name__], "sentence_transformers": logits}

    def save_public(self, folder: Path) -> str:
        """The weights have the names of transformers' sequence classifier."""
        return "" if self.item_order == "alphabetical" else "model."

    def pair_rows(self, queries: Ragged, items: Ragged) -> Ragged:
        if self.item_order == "alphabetical":
            items = items.sorted_by(self._alphabetical_ranks)
        cls, sep = self.tokenizer.hf.cls_token_id, self.tokenizer.hf.sep_token_id
        return side_by_side([cls], queries, [sep] * self._middle, items, [sep])

    def more_inputs(self, rows: Ragged, queries: Ragged) -> dict[str, Ints]:
        if not self._segments:
            return {}
        column = np.arange(rows.lengths.max())
        in_item = (column > (queries.lengths + self._middle)[:, None]) & (column < rows.lengths[:, None])
        return {"token_type_ids": in_item.astype(np.int64)}

    def score_run(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """The classifier's logit of each pair, float32 [pairs], from int64 [pairs, length]."""
        segments = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        output = self.model(input_ids=input_ids, attention_mask=attention_mask, **segments)
        return output.logits[:, 0].float()

    @property
    def run_axes(self) -> dict[str, tuple[str, ...]]:
        axes = super().run_axes
        return {**axes, "token_type_ids": axes["input_ids"]} if self._segments else axes

    @cached_property
    def _alphabetical_ranks(self) -> np.ndarray:
        """int64 [vocabulary]: the place of each word piece in the alphabet."""
        pieces = self.tokenizer.hf.get_vocab()
        ranks = np.zeros(max(pieces.values()) + 1, dtype=np.int64)
        ranks[[pieces[piece] for piece in sorted(pieces)]] = np.arange(len(pieces))
        return ranks
