"""A model that is served: texts become parts of passes in threads, parts become scores on the device."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crossjem_pl.hashing import weights_sha256
from crossjem_pl.inference import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Explanation, Ranker
from crossjem_pl.rankers.neural import NeuralRanker
from crossjem_pl.rankers.sparse.bm25 import BM25
from crossjem_pl.serving import ServingOptions, metrics
from crossjem_pl.serving.scheduler import Part, Scheduler
from crossjem_pl.text import TokenizedList
from crossjem_pl.text.ragged import Ints
from crossjem_pl.text.token_store import TokenStore

__all__ = ["TOKENISERS", "Scored", "ServedModel", "load_models"]

TOKENISERS = ThreadPoolExecutor(2, thread_name_prefix="tokeniser")
_BATCH_TOKENS = {"cpu": 4096, "cuda": 65536}
_QUEUED_TOKENS = 262_144
"""May wait at least, however small the shared passes."""
_WARM_UP = (1, 10, 100)


@dataclass
class Scored:
    """The scores of a request's items with what the answer tells beside them.

    Args:
        model: the name of the model.
        items: texts, or ids of the token store.
        raw: the ranker's own scores, float32 [items], in the request's order.
        probabilities: of relevance, in [0, 1], float64 [items].
        truncated: texts that lost tokens to a length limit.
        tokens, characters: of the queries and the items.
        milliseconds: of tokenising, waiting and computing.
        explanations: of each item, where the request asks for them.
    """

    model: str
    items: Sequence[str]
    raw: Tensor
    probabilities: Tensor
    truncated: int
    tokens: int
    characters: int
    milliseconds: dict[str, float]
    explanations: list[Explanation] | None

    def order(self) -> list[int]:
        """Items by their own scores, best first; equal ones keep the request's order."""
        return torch.sort(self.raw, descending=True, stable=True).indices.tolist()

    def shown(self, raw: bool) -> list[float]:
        """What an answer gives as scores."""
        return (self.raw if raw else self.probabilities).tolist()


class ServedModel:
    """A reranker with its queue.

    Args:
        name: under which it is served.
        reranker: what scores; several threads tokenise, the scheduler's does the rest.
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
        self.name, self.reranker, self._store = name, reranker, store
        reranker.store = store  # checks it
        self._reads_states = reranker.reads_states
        reranker.store = None
        reranker.batch_size = 1_000_000  # the scheduler decides what shares a pass
        self._reader: Ranker = getattr(reranker.ranker, "shell", reranker.ranker)
        budget = max_batch_tokens or _BATCH_TOKENS.get(reranker.device.type, _BATCH_TOKENS["cpu"])
        self.scheduler: Scheduler[RankingList] = Scheduler(
            reranker.score, budget, max(_QUEUED_TOKENS, 64 * budget), metrics.observe_batch
        )
        self.sha256 = weights_sha256(reranker.ranker)
        """Of the weights."""
        for count in _WARM_UP:
            _, parts, *_ = self.prepare(["running shoes"], [f"red running shoe {i}" for i in range(count)])
            reranker.score([part.payload for part in parts])
        stored = None
        with contextlib.suppress(ValueError):  # it hashes the weights: not in a request
            stored = reranker.threshold
        self.threshold = None if stored is None else stored.threshold
        """The threshold stored with the model; None if there is none that fits."""
        self.explains = True
        """Whether a score is a sum over tokens, so that `explain` can show it."""
        try:
            reranker.explain("running shoes", ["red running shoe"])
        except ValueError:
            self.explains = False

    @property
    def max_item_tokens(self) -> int | None:
        """Where items are cut; None where they are not."""
        return self._reader.max_item_tokens if isinstance(self._reader, NeuralRanker) else None

    async def score(
        self, queries: Sequence[str], items: Sequence[str], *, ids: bool = False, explain: bool = False
    ) -> Scored:
        """The scores of a request.

        Args:
            queries: one for all items, or one for each; the items of equal ones are a list.
            items: texts, or ids of the store.
            ids: whether they are ids.
            explain: whether to explain the scores of one query.

        Raises:
            ValueError: for a text without tokens, a blank one, an unknown id, or if there is no store.
            Overloaded: if the queue is full.
        """
        start, loop = time.perf_counter(), asyncio.get_running_loop()
        positions, parts, truncated, tokens = await loop.run_in_executor(
            TOKENISERS, self.prepare, queries, items, ids
        )
        tokenised = time.perf_counter()
        job = self.scheduler.submit(parts)
        scores = torch.empty(len(items), dtype=torch.float32)
        for own, found in zip(positions, await job.future, strict=True):
            scores[torch.from_numpy(own)] = found
        explanations = None
        if explain:
            thread = self.scheduler.thread
            explanations = await loop.run_in_executor(thread, self.reranker.explain, queries[0], items)
        times = {
            "tokenization": 1000 * (tokenised - start),
            "queue": 1000 * (job.started - job.arrived),
            "inference": 1000 * job.computed,
        }
        metrics.observe_times(len(items), truncated, times)
        probabilities = self.reranker.ranker.probabilities(scores.double())  # float64: high scores stay apart
        characters = sum(map(len, queries)) + sum(map(len, items))
        return Scored(
            self.name, items, scores, probabilities, truncated, tokens, characters, times, explanations
        )

    def prepare(
        self, queries: Sequence[str], items: Sequence[str], ids: bool = False
    ) -> tuple[list[Ints], list[Part[RankingList]], int, int]:
        """Tokenises a request, see `score`, and splits long lists where the ranker may.

        Returns:
            Of each part the positions of its items, int64, and what is scored: lists that can be scored apart from
            each other with the same scores; how many texts lost tokens to a limit; the tokens of queries and items.
        """
        store = self._store if ids else None
        if ids and store is None:
            raise ValueError("ids: the server has no token store; it is started with --store FOLDER")
        rows = {queries[0]: np.arange(len(items))}
        if len(queries) > 1:
            names, inverse = np.unique(np.array(queries, dtype=object), return_inverse=True)
            rows = {query: np.flatnonzero(inverse == i) for i, query in enumerate(names)}
        positions: list[Ints] = []
        parts: list[Part[RankingList]] = []
        truncated = tokens = 0
        reader = self._reader
        for query, own in rows.items():
            whole = RankingList.from_texts(query, [items[i] for i in own.tolist()], "request")
            query_tokens, lengths = 0, np.zeros(len(own), dtype=np.int64)
            if isinstance(reader, NeuralRanker):
                encoded_query = reader.encode_queries([whole])
                limit = reader.max_item_tokens
                encoded = reader.encode_items([whole]) if store is None else store.encode(items, limit)
                query_tokens, lengths = len(encoded_query.tokens.values), encoded.tokens.lengths
                truncated += encoded_query.truncated + encoded.truncated
                tokens += query_tokens + int(lengths.sum())
                if reader.reads_token_ids():
                    states = store.states(items) if store is not None and self._reads_states else None
                    texts = ("request", query, whole.item_ids, whole.items)
                    whole = TokenizedList(*texts, tokens=encoded.tokens, states=states)
            for chosen in reader.parts(whole):
                part = whole if len(chosen) == len(whole) else whole.select(chosen.tolist())
                if isinstance(part, TokenizedList) and "max_union_tokens" in reader.init_args:
                    cost = query_tokens + len(np.unique(part.tokens.values))
                else:
                    copies = len(chosen) if reader.independent else 1
                    cost = query_tokens * copies + int(lengths[chosen].sum())
                positions.append(own[chosen])
                parts.append(Part(part, cost + 2))
        return positions, parts, truncated, tokens


def load_models(options: ServingOptions) -> dict[str, ServedModel]:
    """The models that are served, loaded and warmed up, by every name; the first is the main one. BM25 is always
    among them: it needs no model.

    Raises:
        FileNotFoundError, ImportError, ValueError: as `Reranker` and `TokenStore.open`; and if two have one name.
    """
    models: dict[str, ServedModel] = {}

    def add(names: Sequence[str], reranker: Reranker, store: TokenStore | None = None) -> None:
        model = ServedModel(names[0], reranker, options.max_batch_tokens, store)
        for name in names:
            if name in models:
                raise ValueError(f"two models are named {name!r}; name the first with --model-name")
            models[name] = model

    store = None if options.store is None else TokenStore.open(options.store)
    precision: Any = options.precision
    main = Reranker(options.model, options.device, precision)
    add(options.model_names or [_name(options.model)], main, store)
    if options.second is not None:
        add([_name(options.second)], Reranker(options.second, options.device, precision))
    add(["bm25"], Reranker(BM25(), "cpu"))
    return models


def _name(folder: str) -> str:
    """The name of a folder as people read it: of `runs/shoes/model` it is "shoes"."""
    path = Path(folder.removeprefix("packaged:"))
    return path.parent.name if path.name in ("model", "best") and path.parent.name else path.name
