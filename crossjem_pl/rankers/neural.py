"""What all rankers with a Hugging Face encoder share: tokenizer, model folder, length limits."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from transformers import PretrainedConfig

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Ranker
from crossjem_pl.rankers.encoders import load_tokenizer
from crossjem_pl.text import Encoded, Ragged, ShortTextTokenizer, TokenizedList

__all__ = ["NeuralRanker"]


class NeuralRanker(Ranker):
    """A ranker whose first init argument is `encoder` and which accepts `random_init`.

    Args:
        init_args: the subclass's init arguments (see `Ranker`).
        encoder: where the tokenizer comes from.
        max_query_tokens: longer queries are cut, counted in the batch and reported.
        max_item_tokens: longer items likewise.
    """

    cls_and_sep: ClassVar[bool] = True
    """Whether the tokenizer must have [CLS] and [SEP]."""

    def __init__(
        self, init_args: dict[str, Any], encoder: str, max_query_tokens: int, max_item_tokens: int
    ) -> None:
        super().__init__(init_args)
        for field, value in (("max_query_tokens", max_query_tokens), ("max_item_tokens", max_item_tokens)):
            if value < 1:
                raise ValueError(f"{field} must be at least 1, got {value}")
        self.tokenizer = ShortTextTokenizer(load_tokenizer(encoder, self.cls_and_sep))
        self.max_query_tokens = max_query_tokens
        self.max_item_tokens = max_item_tokens

    @classmethod
    def reads_token_ids(cls) -> bool:
        """Whether items may come as token ids (`TokenizedList`): not if the ranker tokenises in its own way."""
        return cls.encode_items is NeuralRanker.encode_items and cls._encode is NeuralRanker._encode

    @property
    @abstractmethod
    def encoder_config(self) -> PretrainedConfig:
        """The Hugging Face configuration that the model folder stores."""

    def encode_queries(self, lists: Sequence[RankingList]) -> Encoded:
        """Token ids of the queries, one row per list."""
        return self._encode(lists, [one.query for one in lists], "query", self.max_query_tokens)

    def encode_items(self, lists: Sequence[RankingList]) -> Encoded:
        """Token ids of all items, list after list; a `TokenizedList` brings its own.

        Raises:
            ValueError: for a text without tokens, naming the list; or if some lists have texts and others
                token ids.
        """
        tokenized = [one.tokens for one in lists if isinstance(one, TokenizedList)]
        if tokenized and len(tokenized) < len(lists):
            raise ValueError("lists of texts and lists of token ids cannot be scored together")
        if tokenized:
            return Encoded(*Ragged.joined(tokenized).cut(self.max_item_tokens))
        texts = [text for one in lists for text in one.items]
        return self._encode(lists, texts, "items", self.max_item_tokens)

    def _encode(self, lists: Sequence[RankingList], texts: list[str], field: str, limit: int) -> Encoded:
        try:
            return self.tokenizer.encode(texts, limit)
        except ValueError as error:
            for one in lists:  # name the list that holds the text
                for text in [one.query] if field == "query" else one.items:
                    try:
                        self.tokenizer.encode([text], limit)
                    except ValueError:
                        raise ValueError(f"list {one.query_id!r}, field {field!r}: {error}") from None
            raise

    def save_assets(self, folder: str) -> dict[str, Any]:
        self.tokenizer.hf.save_pretrained(folder)
        return self.encoder_config.to_dict()

    @classmethod
    def from_folder(cls, folder: str, init_args: dict[str, Any]) -> Self:
        return cls(**{**init_args, "encoder": folder, "layers": None, "random_init": True})
