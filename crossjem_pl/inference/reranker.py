"""`Reranker`: loads a ranker, scores, sorts, filters, explains."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor

from crossjem_pl.inference.export.ranker import load_backend
from crossjem_pl.inference.variants import Precision
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Explanation, Ranker
from crossjem_pl.rankers.folder import save_ranker
from crossjem_pl.rankers.neural import NeuralRanker
from crossjem_pl.text import TokenizedList

if TYPE_CHECKING:
    from crossjem_pl.inference.optimize import Bounds, OptimizeReport
    from crossjem_pl.rankers.threshold import StoredThreshold
    from crossjem_pl.text.token_store import TokenStore

__all__ = ["Activation", "RankedId", "RankedItem", "Reranker"]

Activation = Literal["none", "sigmoid", "softmax"]

_THRESHOLD_FILE = "threshold.json"


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


@dataclass(frozen=True)
class RankedId:
    """One row of a ranking by item id.

    Args:
        index: position of the id in the list that was given.
        item_id: the item.
        score: its score after the activation.
    """

    index: int
    item_id: str
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
        store: token ids of items, for `rank_ids`.

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
        store: TokenStore | None = None,
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
        self._stored: StoredThreshold | None = None
        self._checked = False
        self._runs_as: Ranker | None = None
        self._store: TokenStore | None = None
        self.store = store

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        device: str | torch.device | None = None,
        precision: Precision = "float32",
        batch_size: int = 32,
        backend: str | None = None,
    ) -> Reranker:
        """Loads a model folder, a hub repository or an exported model, with its threshold if there is one.

        Args:
            name: where the model is.
            device, precision, batch_size: see the class.
            backend: "torch", "onnx" or "openvino"; None for what the folder holds. The latter two load what
                `crossjem export` wrote, on the CPU.

        Raises:
            FileNotFoundError: if there is no such model; says what to do.
            ImportError: if the runtime of an exported model is not installed.
            ValueError: if the folder does not hold one of our models, or not one for the backend, device and
                precision, or its `threshold.json` is malformed.
        """
        ranker, device = load_backend(str(name), backend, device, precision)
        reranker = cls(ranker, device, precision, batch_size)
        reranker._stored = _stored_threshold(str(name))
        return reranker

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes the model folder: `model.safetensors`, `config.json`, tokenizer files.

        A stored threshold goes with the model, unless the weights have changed since it was chosen.
        """
        save_ranker(self.ranker, folder)
        if self._stored is not None and self._stored.fits(self.ranker):
            from crossjem_pl.rankers.threshold import write_threshold

            write_threshold(self._stored, folder)

    @property
    def threshold(self) -> StoredThreshold | None:
        """The threshold that was stored with the model, None if there is none.

        Raises:
            ValueError: if it was chosen for other weights.
        """
        if self._stored is not None and not self._checked:
            if not self._stored.fits(self.ranker):
                raise ValueError(
                    "the stored threshold was chosen for other weights than the model has now; choose it again "
                    "with `crossjem threshold MODEL LISTS`, or pass one"
                )
            self._checked = True
        return self._stored

    @property
    def store(self) -> TokenStore | None:
        """Where `rank_ids` finds the token ids of items.

        Raises:
            ValueError: when a store is set that was built with another tokenizer or a lower limit than the
                ranker's, or the ranker does not score from plain token ids.
        """
        return self._store

    @store.setter
    def store(self, store: TokenStore | None) -> None:
        if store is not None:
            if not isinstance(self.ranker, NeuralRanker) or not self.ranker.reads_token_ids():
                raise ValueError(
                    f"{type(self.ranker).__name__} ({self.ranker.name}) cannot rank by id: it does not read its "
                    "items as plain token ids; rank their texts"
                )
            store.check_tokenizer(self.ranker.tokenizer)
            store.check_limit(self.ranker.max_item_tokens)
        self._store = store

    def rank_ids(
        self, query: str, item_ids: Sequence[str], top_k: int | None = None, activation: Activation = "none"
    ) -> list[RankedId]:
        """`rank` for items of the store, by their ids: no item is tokenised.

        Args:
            query: the query.
            item_ids: ids of items in the store, each once.
            top_k, activation: see `rank`.

        Raises:
            ValueError: if there is no store, or for an empty query, no ids, an id twice or one that is not in
                the store; names it.
        """
        return self.rank_ids_batch([query], [item_ids], top_k, activation)[0]

    def rank_ids_batch(
        self,
        queries: Sequence[str],
        item_ids: Sequence[Sequence[str]],
        top_k: int | None = None,
        activation: Activation = "none",
    ) -> list[list[RankedId]]:
        """`rank_ids` for many queries, each with its own items.

        Raises:
            ValueError: if there are not as many lists of ids as queries, and as in `rank_ids`.
        """
        _check_batch(queries, item_ids, top_k, "ids")
        if self._store is None:
            raise ValueError(
                "there is no token store to rank by id: set `reranker.store = TokenStore.open(FOLDER)`, which "
                "`crossjem tokens ITEMS --model MODEL --out FOLDER` writes"
            )
        lists = [
            _stored_list(self._store, query, ids, f"query {i}")
            for i, (query, ids) in enumerate(zip(queries, item_ids, strict=True))
        ]
        return [
            [RankedId(i, one.item_ids[i], score) for i, score in rows]
            for one, rows in zip(lists, self._sorted(lists, -math.inf, top_k, activation), strict=True)
        ]

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
        return self._rank(queries, items, -math.inf, top_k, activation)

    def filter(
        self,
        query: str,
        items: Sequence[str],
        threshold: float | None = None,
        top_k: int | None = None,
        activation: Activation = "none",
    ) -> list[RankedItem]:
        """The items of `rank` that score at least `threshold`, best first; perhaps none.

        Args:
            query: the query.
            items: item texts.
            threshold: compared with the ranker's own score, whatever the activation; None takes the one that
                was stored with the model (see `threshold`).
            top_k: return only the best `top_k` of them.
            activation: of the scores that are returned.

        Raises:
            ValueError: if no threshold is given and none is stored, or the stored one was chosen for other
                weights; if it is NaN; and as in `rank`.
        """
        return self.filter_batch([query], [items], threshold, top_k, activation)[0]

    def filter_batch(
        self,
        queries: Sequence[str],
        items: Sequence[Sequence[str]],
        threshold: float | None = None,
        top_k: int | None = None,
        activation: Activation = "none",
    ) -> list[list[RankedItem]]:
        """`filter` for many queries, each with its own items.

        Raises:
            ValueError: as in `filter` and `rank_batch`.
        """
        if threshold is None:
            stored = self.threshold
            if stored is None:
                raise ValueError(
                    "there is no threshold: choose one on labelled lists with `crossjem threshold MODEL LISTS`, "
                    "which stores it in the model folder, or pass one"
                )
            threshold = stored.threshold
        if math.isnan(threshold):
            raise ValueError("threshold: expected a number, got NaN")
        return self._rank(queries, items, threshold, top_k, activation)

    def _rank(
        self,
        queries: Sequence[str],
        items: Sequence[Sequence[str]],
        threshold: float,
        top_k: int | None,
        activation: Activation,
    ) -> list[list[RankedItem]]:
        _check_batch(queries, items, top_k, "items")
        lists = [
            RankingList.from_texts(query, texts, f"query {i}")
            for i, (query, texts) in enumerate(zip(queries, items, strict=True))
        ]
        return [
            [RankedItem(i, one.items[i], score) for i, score in rows]
            for one, rows in zip(lists, self._sorted(lists, threshold, top_k, activation), strict=True)
        ]

    def _sorted(
        self, lists: Sequence[RankingList], threshold: float, top_k: int | None, activation: Activation
    ) -> Iterator[list[tuple[int, float]]]:
        """Position and activated score of each list's items that reach the threshold, best first."""
        _check_activation(activation)
        for own in self.score(lists):
            scores = _activated(own, activation)
            order = torch.sort(scores, descending=True, stable=True).indices
            if threshold > -math.inf:
                order = order[own.double()[order] >= threshold]
            order = order[:top_k]
            yield list(zip(order.tolist(), scores[order].tolist(), strict=True))

    def score(self, lists: Sequence[RankingList], activation: Activation = "none") -> list[Tensor]:
        """Scores of each list's items, float32 [items] on the CPU, in the items' order.

        Raises:
            ValueError: for an unknown activation, or if a score is not finite; names the list.
        """
        _check_activation(activation)
        scores: list[Tensor] = []
        for first in range(0, len(lists), self.batch_size):
            scores += self._score_batch(lists[first : first + self.batch_size])
        return [_activated(own, activation) for own in scores]

    def explain(self, query: str, items: Sequence[str]) -> list[Explanation]:
        """Each item's score as an exact sum of token contributions, in the items' order.

        Raises:
            ValueError: if the ranker's score is not such a sum.
        """
        return self.ranker.explain(RankingList.from_texts(query, items))

    def optimize(
        self,
        lists: Sequence[RankingList] | None = None,
        *,
        allow: Sequence[Literal["bfloat16", "float16"]] = (),
        threads: Sequence[int] | None = None,
        compile: bool = True,
        bounds: Bounds | None = None,
        rounds: int = 5,
    ) -> OptimizeReport:
        """Measures ways to run on this machine and takes the fastest whose scores stay.

        One after the other: the number of threads, the attention kernel, the precision and `torch.compile`
        (crossjem; on a GPU with CUDA graphs over shapes in steps of 4 passes and 64 tokens), each with the
        best of the others until then. A way is timed in turn with the best so far, and replaces it if it
        takes 3% less. Before that its scores are compared with those of float32: see `Bounds`.

        What is chosen runs on a copy of the weights as they are now: call it again after a change of
        `ranker`. The number of threads is torch's for the whole process.

        Args:
            lists: lists like those to come, with as many items; None for 4 simulated ones of 100.
            allow: lower precisions that may be taken if the ranking stays.
            threads: numbers of threads to try; None for powers of two up to the processors (CPU only).
            compile: whether to try `torch.compile`, which takes up to a minute.
            bounds: what the scores must keep; None for `Bounds()`.
            rounds: how often each list is timed.

        Raises:
            ValueError: if the ranker runs no encoder in torch, there are no lists, or an argument is out of
                range.
        """
        from crossjem_pl.inference.optimize import optimize  # brings scipy, which ranking needs not

        return optimize(
            self, lists, allow=allow, threads=threads, compile=compile, bounds=bounds, rounds=rounds
        )

    def run_as(self, ranker: Ranker, precision: Precision) -> None:
        """Scores with `ranker`, the own one or a variant of it (see `variants.py`), at this precision."""
        self._runs_as = None if ranker is self.ranker else ranker
        self.precision = precision

    def _score_batch(self, lists: Sequence[RankingList]) -> list[Tensor]:
        ranker = self.ranker if self._runs_as is None else self._runs_as
        batch = self.ranker.collate(lists)
        self.truncated += batch.truncated_items + batch.truncated_queries
        lower = self.precision != "float32"
        dtype = getattr(torch, self.precision)
        with (
            torch.inference_mode(),
            torch.autocast(self.device.type, dtype=dtype if lower else None, enabled=lower),
        ):
            scores = ranker(batch.to(self.device)).float().cpu()
        finite = torch.isfinite(scores).all(1)
        if not finite.all():
            first = lists[int(finite.int().argmin())]
            raise ValueError(
                f"list {first.query_id!r}: a score is not finite; the weights are broken, or "
                f"{self.precision} is too narrow for them (bfloat16 and float32 have the wider range)"
            )
        return [row[: len(one)] for row, one in zip(scores, lists, strict=True)]


def _check_batch(queries: Sequence[str], each: Sequence[object], top_k: int | None, field: str) -> None:
    if isinstance(queries, str):
        raise ValueError(f"queries: expected a sequence of texts, got the text {queries!r}; see `rank`")
    if len(queries) != len(each):
        raise ValueError(f"{len(queries)} queries but {len(each)} lists of {field}")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {top_k}")


def _stored_list(store: TokenStore, query: str, ids: Sequence[str], query_id: str) -> TokenizedList:
    """The list of items of the store with these ids."""
    if isinstance(ids, str):
        raise ValueError(
            f"list {query_id!r}, field 'item_ids': expected a sequence of ids, got the text {ids!r}"
        )
    try:
        tokens = store.rows(ids)
    except ValueError as error:
        raise ValueError(f"list {query_id!r}, field 'item_ids': {error}") from None
    names = tuple(ids)
    return TokenizedList(query_id=query_id, query=query, item_ids=names, items=names, tokens=tokens)


def _check_activation(activation: str) -> None:
    if activation not in get_args(Activation):
        raise ValueError(f"activation must be 'none', 'sigmoid' or 'softmax', got {activation!r}")


def _activated(scores: Tensor, activation: Activation) -> Tensor:
    if activation == "sigmoid":
        return torch.sigmoid(scores)
    return torch.softmax(scores, dim=0) if activation == "softmax" else scores


def _stored_threshold(name: str) -> StoredThreshold | None:
    """That of a model folder, or of a hub repository, whose files are here since its ranker was loaded."""
    if Path(name).is_dir():
        path = Path(name) / _THRESHOLD_FILE
        if not path.exists():
            return None
    else:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(name, _THRESHOLD_FILE)
        if not isinstance(found, str):
            return None
        path = Path(found)
    from crossjem_pl.rankers.threshold import (
        read_threshold,
    )  # brings pandas and scipy, which ranking needs not

    return read_threshold(path)
