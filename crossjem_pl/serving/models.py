"""A model that is served: texts become parts of passes in threads, parts become scores on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from crossjem_pl.hashing import weights_sha256
from crossjem_pl.inference import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Ranker
from crossjem_pl.rankers.neural import NeuralRanker
from crossjem_pl.serving import ServingOptions, metrics
from crossjem_pl.serving.scheduler import Part, Scheduler
from crossjem_pl.text import Encoded, Ragged, TokenizedList
from crossjem_pl.text.ragged import Ints
from crossjem_pl.text.token_store import TokenStore

__all__ = ["Prepared", "ServedModel", "load_models"]

_CACHED_TEXTS = 50_000
"""Texts whose tokens are remembered: more would let the memory of a server grow for hours."""
_BATCH_TOKENS = {"cpu": 4096, "cuda": 65536}
_QUEUED_TOKENS = 262_144
"""May wait at least, however small the shared passes."""
_WARM_UP = (1, 10, 100)


@dataclass(frozen=True)
class Prepared:
    """A request that is ready for the device.

    Args:
        whole: its list.
        positions: int64, the items of each part.
        parts: lists that can be scored apart from each other with the same scores.
        truncated: texts that lost tokens to a limit.
        tokens: of the query and the items.
    """

    whole: RankingList
    positions: list[Ints]
    parts: list[Part[RankingList]]
    truncated: int
    tokens: int

    def scores(self, results: Sequence[Tensor]) -> Tensor:
        """float32 [items], in the items' order, from the scores of each part."""
        scores = torch.empty(len(self.whole), dtype=torch.float32)
        for positions, found in zip(self.positions, results, strict=True):
            scores[torch.from_numpy(positions)] = found
        return scores


class ServedModel:
    """A reranker with its queue.

    Args:
        name: under which it is served.
        reranker: what scores; `prepare` may be called in several threads, the scheduler calls the rest.
        max_batch_tokens: see `ServingOptions`.
        store: where the ids of requests are found.

    Raises:
        ValueError: if the store does not fit the model.
    """

    def __init__(
        self,
        name: str,
        reranker: Reranker,
        max_batch_tokens: int | None = None,
        store: TokenStore | None = None,
    ) -> None:
        self.name, self.reranker, self.store = name, reranker, store
        if store is not None:
            reranker.store = store  # checks it
            reranker.store = None
        reranker.batch_size = 1_000_000  # the scheduler decides what shares a pass
        ranker = reranker.ranker
        self._reader: Ranker = getattr(ranker, "shell", ranker)
        if isinstance(self._reader, NeuralRanker):
            self._reader.tokenizer.cache_size = _CACHED_TEXTS
        budget = max_batch_tokens or _BATCH_TOKENS.get(reranker.device.type, _BATCH_TOKENS["cpu"])
        self.scheduler: Scheduler[RankingList] = Scheduler(
            reranker.score, budget, max(_QUEUED_TOKENS, 64 * budget), metrics.observe_batch
        )
        self.explains = self._warm_up()

    @cached_property
    def sha256(self) -> str:
        """Of the weights."""
        return weights_sha256(self.reranker.ranker)

    @property
    def threshold(self) -> float | None:
        """The threshold stored with the model; None if there is none that fits."""
        try:
            stored = self.reranker.threshold
        except ValueError:
            return None
        return None if stored is None else stored.threshold

    @property
    def max_item_tokens(self) -> int | None:
        """Where items are cut; None where they are not."""
        return self._reader.max_item_tokens if isinstance(self._reader, NeuralRanker) else None

    def prepare(
        self, query: str, items: Sequence[str], *, ids: bool = False, max_item_tokens: int | None = None
    ) -> Prepared:
        """Tokenises a request and splits a long list where its ranker may.

        Args:
            query: its text.
            items: texts, or ids of the store.
            ids: whether they are ids.
            max_item_tokens: cut the items already here.

        Raises:
            ValueError: for a text without tokens, a blank one, an unknown id, if there is no store, or the ranker
                cannot cut at `max_item_tokens`.
        """
        whole, reader = RankingList.from_texts(query, items, "request"), self._reader
        truncated = tokens = 0
        takes_ids = isinstance(reader, NeuralRanker) and reader.reads_token_ids()
        limit = self.max_item_tokens
        if max_item_tokens is not None and limit is not None and max_item_tokens < limit and not takes_ids:
            raise ValueError(f"{reader.name} cannot cut items at {max_item_tokens} tokens, only at {limit}")
        if ids and self.store is None:
            raise ValueError("ids: the server has no token store; it is started with --store FOLDER")
        query_tokens, lengths, encoded = 0, np.zeros(len(items), dtype=np.int64), None
        if isinstance(reader, NeuralRanker):
            queries = reader.encode_queries([whole])
            least = min(filter(None, (limit, max_item_tokens)))
            if ids:
                assert self.store is not None
                encoded = self.store.encode(items, least)
            else:
                encoded = reader.encode_items([whole])
                if least < limit:  # type: ignore[operator]
                    encoded = Encoded(*Ragged.from_rows(reader.tokenizer.ids(items)).cut(least))
            lengths, query_tokens = encoded.tokens.lengths, len(queries.tokens.values)
            truncated = queries.truncated + encoded.truncated
            tokens = query_tokens + int(lengths.sum())
            if takes_ids:
                whole = TokenizedList(
                    query_id=whole.query_id,
                    query=query,
                    item_ids=whole.item_ids,
                    items=whole.items,
                    tokens=encoded.tokens,
                )
        positions = reader.parts(whole)
        joint = "max_union_tokens" in reader.init_args
        parts = []
        for chosen in positions:
            part = whole if len(chosen) == len(whole) else whole.select(chosen.tolist())
            if joint and isinstance(part, TokenizedList):
                cost = query_tokens + len(np.unique(part.tokens.values))
            else:
                cost = query_tokens * (len(chosen) if reader.independent else 1) + int(lengths[chosen].sum())
            parts.append(Part(part, cost + 2))
        return Prepared(whole, positions, parts, truncated, tokens)

    def _warm_up(self) -> bool:
        """Runs passes of several sizes; whether the ranker can explain."""
        for count in _WARM_UP:
            items = [f"red running shoe number {i}" for i in range(count)]
            self.reranker.score([part.payload for part in self.prepare("running shoes", items).parts])
        try:
            self.reranker.explain("running shoes", ["red running shoe"])
        except ValueError:
            return False
        return True


def load_models(options: ServingOptions) -> dict[str, ServedModel]:
    """The models that are served, loaded and warmed up, by every name; the first is the main one. BM25 is always
    among them: it needs no model.

    Raises:
        FileNotFoundError, ImportError, ValueError: as `Reranker` and `TokenStore.open`; and if two have one name.
    """
    from crossjem_pl.rankers.sparse.bm25 import BM25

    store = None if options.store is None else TokenStore.open(options.store)
    named: list[tuple[tuple[str, ...], Reranker, TokenStore | None]] = []
    for folder, names in ((options.model, options.model_names), (options.second, ())):
        if folder is not None:
            reranker = Reranker(folder, options.device, options.precision)  # type: ignore[arg-type]
            named.append((names or (_name(folder),), reranker, None if named else store))
    named.append((("bm25",), Reranker(BM25(), "cpu"), None))
    models: dict[str, ServedModel] = {}
    for names, reranker, own_store in named:
        model = ServedModel(names[0], reranker, options.max_batch_tokens, own_store)
        for name in names:
            if name in models:
                raise ValueError(f"two models are named {name!r}; name the first with --model-name")
            models[name] = model
    _ = next(
        iter(models.values())
    ).sha256  # takes a moment: computed here, and not where requests are answered
    return models


def _name(folder: str) -> str:
    """The name of a folder as people read it: of `runs/shoes/model` it is "shoes"."""
    path = Path(folder.removeprefix("packaged:"))
    return path.parent.name if path.name in ("model", "best") and path.parent.name else path.name
