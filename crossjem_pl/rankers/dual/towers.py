"""Rankers that encode queries and items apart: towers, the vectors that they compare, and vectors computed ahead."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypedDict, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossjem_pl.hashing import text_keys
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Batch, check_choice, item_mask, item_places, item_scores
from crossjem_pl.rankers.dual.vectors import ItemVectors, RowFormat, TextRows, Vectors, text_rows
from crossjem_pl.rankers.encoders import EncoderOptions, encode_tokens, load_encoder
from crossjem_pl.rankers.neural import NeuralRanker, RankerOptions, Side, check_positions
from crossjem_pl.text import Encoded, ShortTextTokenizer
from crossjem_pl.text.ragged import Ints

if TYPE_CHECKING:
    from transformers import PretrainedConfig

__all__ = [
    "ACTIVATIONS",
    "DecoupledBatch",
    "DecoupledRanker",
    "DualRanker",
    "Pooling",
    "Projection",
    "ProjectionSpec",
    "TextOptions",
    "TextTower",
    "build_projections",
    "prompt_length",
]

Pooling = Literal["cls", "mean", "max", "weighted"]
Activation = Literal["identity", "tanh", "relu", "gelu", "silu", "sigmoid"]

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "identity": nn.Identity,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "sigmoid": nn.Sigmoid,
}


class ProjectionSpec(TypedDict, total=False):
    """A projection y = LayerNorm(activation(W x + b) + residual(x)).

    Args:
        size: width of y; absent or None for that of x.
        bias: whether there is a b (default True).
        activation: default "identity".
        residual: whether x is added, through a matrix of its own where the widths differ (default False).
        layer_norm: whether the result is normalised (default False).
    """

    size: int | None
    bias: bool
    activation: Activation
    residual: bool
    layer_norm: bool


class Projection(nn.Module):
    """See `ProjectionSpec`. Maps [..., width] to [..., size].

    Raises:
        ValueError: on a size below 1 or an unknown activation.
    """

    def __init__(self, width: int, spec: ProjectionSpec) -> None:
        super().__init__()
        activation = spec.get("activation", "identity")
        check_choice("activation", activation, ACTIVATIONS)
        size = spec.get("size")
        self.size = width if size is None else size
        if self.size < 1:
            raise ValueError(f"a projection's size must be at least 1, got {self.size}")
        self.linear = nn.Linear(width, self.size, bias=spec.get("bias", True))
        self.activation = ACTIVATIONS[activation]()
        self.residual: nn.Module | None = None
        if spec.get("residual", False):
            self.residual = nn.Identity() if width == self.size else nn.Linear(width, self.size, bias=False)
        self.norm = nn.LayerNorm(self.size) if spec.get("layer_norm", False) else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.activation(self.linear(x))
        if self.residual is not None:
            y = y + self.residual(x)
        return y if self.norm is None else self.norm(y)


def build_projections(width: int, specs: Sequence[ProjectionSpec]) -> nn.Sequential:
    """The projections one after the other, the first from `width`; no spec is the identity."""
    layers = nn.Sequential()
    for spec in specs:
        layer = Projection(width, spec)
        layers.append(layer)
        width = layer.size
    return layers


class TextTower(nn.Module):
    """Token rows to one vector each: v = normalise(projections(pool(encoder(row)))), the last two optional.

    Pooling over the row's used positions: "cls" takes the first position, "mean" and "max" are themselves,
    "weighted" is sum_t a_t h_t with a = softmax over t of <w, h_t>, w learned from 0 (where it is the mean).
    """

    def __init__(
        self,
        encoder: str,
        options: EncoderOptions,
        pooling: Pooling,
        specs: Sequence[ProjectionSpec] = (),
        normalize: bool = False,
    ) -> None:
        super().__init__()
        check_choice("pooling", pooling, get_args(Pooling))
        self.encoder: Any = load_encoder(encoder, options)
        width = int(self.encoder.config.hidden_size)  # type: ignore[union-attr, arg-type]
        self.pooling, self.normalize = pooling, normalize
        self.token_weight = nn.Parameter(torch.zeros(width)) if pooling == "weighted" else None
        self.projections = build_projections(width, specs)
        self.size = int(self.projections[-1].size) if specs else width  # type: ignore[arg-type]

    def forward(self, input_ids: Tensor, attention_mask: Tensor, used: Tensor) -> Tensor:
        """Vectors, float32 [rows, size], of a group of `TextRows`."""
        hidden = encode_tokens(self.encoder, input_ids, attention_mask)
        with torch.autocast(hidden.device.type, enabled=False):
            vectors = self.projections(self._pool(hidden.float(), used[:, :, None]))
            return F.normalize(vectors, dim=-1) if self.normalize else vectors

    def _pool(self, hidden: Tensor, used: Tensor) -> Tensor:
        if self.pooling == "cls":
            return hidden[:, 0]
        if self.pooling == "max":
            return hidden.masked_fill(~used, -torch.inf).amax(dim=1)
        if self.token_weight is None:
            return (hidden * used).sum(dim=1) / used.sum(dim=1)
        weight = (hidden @ self.token_weight)[:, :, None].masked_fill(~used, -torch.inf).softmax(dim=1)
        return (hidden * weight).sum(dim=1)


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


class TextOptions(RankerOptions, total=False):
    """What rankers of single texts take as keyword arguments, see `RankerOptions` too.

    Args:
        texts_per_pass: texts that go through an encoder together, sorted by length; 128 if not given.
    """

    texts_per_pass: int


class DecoupledRanker(NeuralRanker):
    """A ranker whose query and item representations do not depend on each other.

    `collate` tokenises and the encoders read each distinct text of a batch once, however many lists it is in.

    **Item vectors can be computed beforehand**: `precompute_items` keeps them by text. They are used at
    inference only (evaluation mode, no gradients), for the texts that are known; others are encoded as ever.
    Calling `train()` or loading weights forgets them. Weights changed by hand in evaluation mode are not
    noticed: call `item_cache.clear()`. The cache is no part of a model folder, a checkpoint or a copy of the
    ranker.

    `query_prompt` and `item_prompt` are put in front of every query and every item.
    """

    cls_and_sep: ClassVar[bool] = False
    independent = True
    limits: ClassVar[dict[str, int]] = {**NeuralRanker.limits, "texts_per_pass": 128}
    texts_per_pass: int

    def __init__(
        self,
        init_args: dict[str, Any],
        encoder: str,
        options: TextOptions,
        query_prompt: str = "",
        item_prompt: str = "",
    ) -> None:
        super().__init__(init_args, encoder, options)
        self.prompts: dict[Side, str] = {"query": query_prompt, "items": item_prompt}
        self.tokenizers: dict[Side, ShortTextTokenizer] = {"query": self.tokenizer, "items": self.tokenizer}
        self.formats: dict[Side, RowFormat] = {side: RowFormat.of(self.tokenizer.hf) for side in self.prompts}
        self.item_cache = ItemVectors()
        self.register_load_state_dict_post_hook(_forget_items)

    @abstractmethod
    def encode_rows(self, rows: TextRows, side: Side) -> Vectors:
        """The vectors of queries or items, float32, by row number."""

    @abstractmethod
    def compare(self, queries: Vectors, items: Vectors) -> Tensor:
        """Scores [lists, max_items] from the vectors of the lists and of their items."""

    def forward(self, batch: DecoupledBatch) -> Tensor:
        queries, items = self.query_and_item_vectors(batch)
        with torch.autocast(queries.values.device.type, enabled=False):
            return item_scores([self.compare(queries, items).flatten()], batch)

    def check_positions(self, configs: dict[Side, PretrainedConfig]) -> None:
        """Raises a ValueError if the longest row of a side needs more positions than its encoder has."""
        for side, row_format in self.formats.items():
            limit, name = self.text_limit(side), "max_query_tokens" if side == "query" else "max_item_tokens"
            needed = max(self.prompt_tokens(side) + limit + row_format.added, row_format.fill_length)
            check_positions(configs[side], needed, f"{name}={limit} with what stands around it")

    def train(self, mode: bool = True) -> Self:
        if mode:
            self.item_cache.clear()
        return super().train(mode)

    def collate(self, lists: Sequence[RankingList]) -> DecoupledBatch:
        mask = item_mask(lists)
        queries, items = self.encode_queries(lists), self.encode_items(lists)
        query_texts, item_texts = [one.query for one in lists], [text for one in lists for text in one.items]
        query_rows, query_row, query_keys = self._rows(queries, query_texts, "query")
        item_rows, item_row, item_keys = self._rows(items, item_texts, "items")
        # equal items of a list have the score of the first of them, and so tie
        list_of_item, slots = np.nonzero(mask.numpy())
        _, first, same = np.unique(
            list_of_item * len(item_row) + item_row, return_index=True, return_inverse=True
        )
        outputs = (list_of_item * mask.shape[1] + slots)[first][same]
        return DecoupledBatch(
            item_mask=mask,
            truncated_items=items.truncated,
            truncated_queries=queries.truncated,
            queries=query_rows,
            items=item_rows,
            query_row=torch.from_numpy(query_row),
            item_row=item_places(mask, item_row),
            query_keys=torch.from_numpy(query_keys),
            item_keys=item_places(mask, item_keys),
            places=item_places(mask, outputs),
        )

    @torch.no_grad()
    def precompute_items(
        self, texts: Iterable[str], batch_size: int = 1024, dtype: torch.dtype = torch.float32
    ) -> int:
        """Computes and keeps the vectors of items, for as long as the weights stay the same.

        Each text is computed once, `batch_size` at a time, and kept in `dtype`: float16 halves the memory, at a
        relative error of about 1e-3. Returns how many lost tokens to `max_item_tokens`.

        Raises:
            RuntimeError: in training mode.
            ValueError: for a text without tokens, naming it.
        """
        if self.training:
            raise RuntimeError("item vectors are for inference: call eval() before precompute_items()")
        new = [text for text in dict.fromkeys(texts) if text not in self.item_cache]
        parts, in_order, truncated = [], [], 0
        # matrices that are kept in less than float32 multiply under autocast only
        low = next((p.dtype for p in self.parameters() if p.dtype in (torch.bfloat16, torch.float16)), None)
        for rows, _, cut in self._batches(new, "items", batch_size):
            with torch.autocast(rows.groups[0]["input_ids"].device.type, low, enabled=low is not None):
                parts.append(self.encode_rows(rows, "items"))
            in_order += rows.texts
            truncated += cut
        if parts:
            self.item_cache.add(in_order, parts, dtype)
        return truncated

    def prompt_tokens(self, side: Side) -> int:
        """How many tokens the side's prompt has."""
        return prompt_length(self.tokenizers[side], self.prompts[side])

    def query_and_item_vectors(self, batch: DecoupledBatch) -> tuple[Vectors, Vectors]:
        """Vectors by list and by list and item; known items' from the cache where it may be used."""
        if self.training or torch.is_grad_enabled() or not len(self.item_cache):
            items = self.encode_rows(batch.items, "items")
        else:
            encode = partial(self.encode_rows, side="items")
            items = self.item_cache.complete(batch.items, encode, batch.item_mask.device)
        return self.encode_rows(batch.queries, "query").take(batch.query_row), items.take(batch.item_row)

    def _batches(
        self, texts: Iterable[str], side: Side, batch_size: int
    ) -> Iterator[tuple[TextRows, Tensor, int]]:
        """`batch_size` texts at a time: rows on the weights' device, each text's row, how many were cut."""
        rest, device = iter(texts), next(self.parameters()).device
        while part := list(islice(rest, batch_size)):
            encoded = self.tokenize(part, side)
            rows, row, _ = self._rows(encoded, part, side)
            yield rows.to(device), torch.from_numpy(row).to(device), encoded.truncated

    def _rows(self, encoded: Encoded, texts: Sequence[str], side: Side) -> tuple[TextRows, Ints, Ints]:
        """Rows of the distinct texts, and of every text its row number and key."""
        cost = self.padding_cost()
        rows, row = text_rows(encoded.tokens, texts, self.formats[side], self.texts_per_pass, cost)
        return rows, row, text_keys(rows.texts)[row]

    def tokenize(self, texts: Sequence[str], side: Side) -> Encoded:
        prompt, length, tokenizer = self.prompts[side], self.prompt_tokens(side), self.tokenizers[side]
        if not length:
            return tokenizer.encode(texts, self.text_limit(side))
        encoded = tokenizer.encode([prompt + text for text in texts], self.text_limit(side) + length)
        bare = np.flatnonzero(encoded.tokens.lengths <= length)
        if len(bare):
            raise tokenizer.no_tokens(texts[bare[0]])
        return encoded


class DualRanker(DecoupledRanker):
    """Scores an item by the inner product of its vector and the query's: scale * <e_q(q), e_d(d)>.

    A subclass sets `text_tower` or overrides `tower`, and calls `build(...)` at the end of its `__init__`; one that
    compares vectors in another way overrides `compare` and says so by `inner_product = False`.
    """

    inner_product: bool = True
    """Whether scores are inner products, so that negatives of the whole batch or corpus can be searched."""
    scale: float | Tensor
    text_tower: TextTower

    def build(self, scale: float | None) -> None:
        """Sets the scale and checks the limits against the towers' positions.

        None stands for 1 / sqrt(size of the vectors), which keeps the inner products of unnormalised vectors in a
        range where losses have gradients; it leaves the ranking alone.

        Raises:
            ValueError: if the scale is not positive, or a limit does not fit an encoder's positions.
        """
        if scale is not None and not 0 < scale < float("inf"):
            raise ValueError(f"scale must be positive and finite, got {scale}")
        self.scale = self.tower("items").size ** -0.5 if scale is None else scale
        self.check_positions({side: self.tower(side).encoder.config for side in self.prompts})

    def tower(self, side: Side) -> TextTower:
        """The tower of the queries or the items; the same object where they share it."""
        return self.text_tower

    def encoders(self) -> list[nn.Module]:
        towers = dict.fromkeys((self.tower("items"), self.tower("query")))
        return [tower.encoder for tower in towers]

    def encode_rows(self, rows: TextRows, side: Side) -> Vectors:
        values = torch.cat([self.tower(side)(**group) for group in rows.groups])[:, None]
        return Vectors(values, torch.ones(values.shape[:2], dtype=torch.bool, device=values.device))

    def vectors(self, batch: DecoupledBatch) -> tuple[Tensor, Tensor]:
        """See `Ranker.vectors`: float32, the scale multiplied into the queries'; anything on padding. TwinBERT's
        inner products are its scores up to a constant."""
        self.check_inner_product()
        queries, items = self.query_and_item_vectors(batch)
        return queries.values[:, 0] * self.scale, items.values[:, :, 0]

    def check_inner_product(self) -> None:
        """Raises a ValueError if scores are no inner products."""
        if not self.inner_product:
            raise ValueError(
                f"the scores of this {type(self).__name__} are not inner products of vectors, which in-batch "
                "negatives and hard-negative mining need; use one that compares by inner product or cosine"
            )

    def compare(self, queries: Vectors, items: Vectors) -> Tensor:
        return torch.einsum("ld,lid->li", queries.values[:, 0] * self.scale, items.values[:, :, 0])

    @torch.no_grad()
    def text_vectors(self, texts: Iterable[str], side: Side, batch_size: int = 1024) -> Tensor:
        """Vectors as in `vectors`, float32 [texts, size] on the weights' device, in the order of `texts`.

        Raises:
            ValueError: if scores are no inner products, there is no text, or a text has no tokens.
        """
        self.check_inner_product()
        batches = self._batches(texts, side, batch_size)
        parts = [self.encode_rows(rows, side).values[row, 0] for rows, row, _ in batches]
        if not parts:
            raise ValueError("there are no texts to encode")
        return torch.cat(parts) * (self.scale if side == "query" else 1.0)


def prompt_length(tokenizer: ShortTextTokenizer, prompt: str) -> int:
    """How many tokens `prompt` has in front of a text; its trailing blanks belong to that text."""
    bare = prompt.rstrip()
    return int(tokenizer.encode([bare], 2**31).tokens.lengths[0]) if bare else 0


def _forget_items(ranker: nn.Module, _: object) -> None:
    ranker.item_cache.clear()  # type: ignore[union-attr, operator]
