"""What all rankers with a Hugging Face encoder share: tokenizer, model folder, length limits, masked attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Ranker
from crossjem_pl.rankers.encoders import EncoderOptions, first_position, load_tokenizer
from crossjem_pl.text import (
    Encoded,
    ItemStates,
    Ragged,
    ShortTextTokenizer,
    TokenizedList,
    distinct_rows,
)
from crossjem_pl.text.ragged import Ints, side_by_side

if TYPE_CHECKING:
    from transformers import PretrainedConfig

__all__ = [
    "NeuralRanker",
    "RankerOptions",
    "Side",
    "check_positions",
    "distinct_in",
    "linear_float32",
    "list_runs",
]

Side = Literal["query", "items"]


_RUN_COST = 64
"""Tokens of padding that a further run must spare on one CPU thread. With 6 layers of width 384 on an AMD EPYC
(Zen 4) 16 to 64 measured alike, and 100 or more slower."""

_TOKENS_PER_RUN = 1 << 14


class RankerOptions(EncoderOptions, total=False):
    """What neural rankers take as keyword arguments: how the encoder is loaded, and limits of at least 1.

    Args:
        max_query_tokens: longer queries are cut, counted in the batch and reported; 64 if not given. Prompts and
            special tokens come on top.
        max_item_tokens: longer items likewise; 32 if not given.
    """

    max_query_tokens: int
    max_item_tokens: int


class NeuralRanker(Ranker):
    """A ranker whose first init argument is `encoder`, where its tokenizer comes from, and which accepts `random_init`.

    The `limits` are taken out of `options` and become attributes; what is left is for `load_encoder`.

    Raises:
        ValueError: if a limit is below 1.
    """

    cls_and_sep: ClassVar[bool] = True
    """Whether the tokenizer must have [CLS] and [SEP]."""
    limits: ClassVar[dict[str, int]] = {"max_query_tokens": 64, "max_item_tokens": 32}
    """Names of the limits and their defaults."""
    max_query_tokens: int
    max_item_tokens: int
    encoder: Any
    run_cost: int | None = None
    """Tokens of padding that a further run of the network must spare; None: by the device, see `padding_cost`."""

    def __init__(self, init_args: dict[str, Any], encoder: str, options: Any) -> None:
        super().__init__(init_args)
        for name, default in self.limits.items():
            value = init_args[name] = options.pop(name, default)
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
            setattr(self, name, value)
        self.tokenizer = ShortTextTokenizer(
            load_tokenizer(encoder, self.cls_and_sep, trained=bool(init_args.get("random_init")))
        )

    @classmethod
    def reads_token_ids(cls) -> bool:
        """Whether items may come as token ids (`TokenizedList`): not if the ranker tokenises in its own way."""
        return cls.tokenize is NeuralRanker.tokenize

    def store_states(self) -> ItemStates | None:
        """What a token store keeps for this ranker beside the items' token ids; None for nothing."""
        return None

    def padding_cost(self) -> int | None:
        """`run_cost`; where it says nothing, 64 tokens per thread on a CPU, and None, one single run, elsewhere."""
        if self.run_cost is None and next(self.parameters()).device.type == "cpu":
            return _RUN_COST * torch.get_num_threads()
        return self.run_cost

    @property
    def encoder_config(self) -> PretrainedConfig:
        """The Hugging Face configuration that the model folder stores."""
        return self.encoders()[0].config  # type: ignore[return-value]

    def encoders(self) -> list[nn.Module]:
        return [self.encoder]

    def tokenize(self, texts: Sequence[str], side: Side) -> Encoded:
        """Token ids of queries or items, cut to the side's limit.

        Raises:
            ValueError: for a text without tokens, naming it.
        """
        return self.tokenizer.encode(texts, self.text_limit(side))

    def text_limit(self, side: Side) -> int:
        """How many tokens a query or an item may have."""
        return self.max_query_tokens if side == "query" else self.max_item_tokens

    def encode_queries(self, lists: Sequence[RankingList]) -> Encoded:
        """Token ids of the queries, one row per list."""
        return self._encode(lists, "query")

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
        return self._encode(lists, "items")

    def _encode(self, lists: Sequence[RankingList], side: Side) -> Encoded:
        texts = [[one.query] if side == "query" else one.items for one in lists]
        try:
            return self.tokenize([text for part in texts for text in part], side)
        except ValueError:
            for one, part in zip(lists, texts, strict=True):  # name the list that holds the text
                try:
                    self.tokenize(part, side)
                except ValueError as error:
                    raise ValueError(f"list {one.query_id!r}, field {side!r}: {error}") from None
            raise

    def save_assets(self, folder: str) -> dict[str, Any]:
        self.tokenizer.hf.save_pretrained(folder)
        return self.encoder_config.to_dict()

    @classmethod
    def from_folder(cls, folder: str, init_args: dict[str, Any]) -> Self:
        return cls(**{**init_args, "encoder": folder, "layers": None, "random_init": True})


def check_positions(config: PretrainedConfig, needed: int, what: str) -> None:
    """Raises a ValueError if an encoder has fewer than `needed` positions. T5's are relative: no limit."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and needed > positions - first_position(config):
        raise ValueError(
            f"{what} need {needed} positions, the encoder has {positions - first_position(config)}; lower a limit"
        )


def distinct_in(keys: Ints, rows: Ragged) -> tuple[Ints, Ints]:
    """Rows of `keys` int64 [rows] that are equal are scored once, and so tie: see `distinct_rows`, keys first."""
    return distinct_rows(side_by_side(Ragged(keys, np.ones_like(keys)), rows))


def list_runs(tokens: Ints) -> Iterator[tuple[int, int]]:
    """Ranges of lists that go through the encoder together, up to about 16,384 tokens of `tokens` int64 [lists]."""
    starts = np.flatnonzero(np.diff(np.cumsum(tokens) // _TOKENS_PER_RUN, prepend=-1))
    return pairwise([*starts.tolist(), len(tokens)])


def linear_float32(layer: nn.Linear, states: Tensor) -> Tensor:
    """`layer(states)`, float32 [..., out], outside any autocast and whatever precision its weights are stored in."""
    with torch.autocast(states.device.type, enabled=False):
        bias = None if layer.bias is None else layer.bias.float()
        return F.linear(states.float(), layer.weight.float(), bias)
