"""What takes part in a measurement: this package's rankers with fresh heads, and public cross-encoders.

Weights do not change the time, so a ranker is built from its overlay in `experiments/rankers/` and an encoder.
"""

from __future__ import annotations

import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from jsonargparse import ArgumentError, ArgumentParser

from benchmarks.measuring import count_flops
from crossjem_pl.data.formats import read_lists
from crossjem_pl.data.simulator import simulate
from crossjem_pl.inference import Reranker
from crossjem_pl.inference.timing import Timings, milliseconds, take_turns
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import Cascade
from crossjem_pl.rankers.base import Ranker
from crossjem_pl.rankers.encoders import resolve

SENTENCE_TRANSFORMERS = "sentence-transformers"

_OTHER_FAMILIES = ("monot5", "rankt5", "rankinggpt")
"""Overlays that cannot take a BERT: they keep their own encoder."""

WARMUP = 2
"""Lists that come first and are not counted."""

_OVERLAYS = Path(__file__).parents[1] / "experiments" / "rankers"


def overlays() -> list[str]:
    """Names of all overlays of rankers."""
    return sorted(path.stem for path in _OVERLAYS.glob("*.yaml"))


def takes_encoder(class_path: str) -> bool:
    """Whether a ranker's class has an init argument `encoder`."""
    module, _, name = class_path.rpartition(".")
    return "encoder" in inspect.signature(getattr(importlib.import_module(module), name)).parameters


def build_ranker(name: str, encoder: str, changes: Mapping[str, Any] | None = None) -> Ranker:
    """The ranker of `experiments/rankers/<name>.yaml`, with an encoder (T5s and GPTs keep their own) and a fresh head.

    Args:
        name: of the overlay.
        encoder: hub id, folder or packaged encoder; rankers without an encoder ignore it.
        changes: further init arguments.

    Raises:
        ValueError: if there is no such overlay, or it takes no such argument.
    """
    path = _OVERLAYS / f"{name}.yaml"
    if not path.is_file():
        raise ValueError(f"no ranker {name!r}; there are {', '.join(overlays())}")
    described: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))["model"]["ranker"]
    init_args = dict(described.get("init_args", {})) | dict(changes or {})
    if name == "cascade":  # of rankers with fresh heads in place of trained folders
        return Cascade(
            build_ranker("crossjem-best", encoder), build_ranker("monobert", encoder), init_args["k"]
        )
    if takes_encoder(described["class_path"]) and name not in _OTHER_FAMILIES:
        init_args["encoder"] = encoder
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(Ranker, "ranker", required=True)
    try:
        config = parser.parse_object({"ranker": {**described, "init_args": init_args}})
    except ArgumentError as error:
        raise ValueError(f"ranker {name!r}: {error}") from error
    ranker: Ranker = parser.instantiate_classes(config).ranker
    return ranker


def measured_lists(items: int, rounds: int, warmup: int = WARMUP) -> list[RankingList]:
    """Simulated lists of `items` keywords, the same for every contender and every run."""
    return list(simulate(rounds + warmup, items, seed=1, split="test"))


def real_lists(path: Path, items: int, rounds: int, warmup: int = WARMUP) -> list[RankingList]:
    """The first lists of a file, each with so many items: its own first, then those of the lists after it.

    Raises:
        ValueError: if the file has too few items.
    """
    lists = list(islice(read_lists(path, label_column=None, score_column=None), 50 * (rounds + warmup)))
    made = []
    for first in range(rounds + warmup):
        texts = list(dict.fromkeys(text for one in lists[first:] for text in one.items))[:items]
        if len(texts) < items:
            raise ValueError(
                f"{path} has fewer than {items} different items for each of {rounds + warmup} queries"
            )
        one = lists[first]
        made.append(
            RankingList(one.query_id, one.query, tuple(f"text:{text}" for text in texts), tuple(texts))
        )
    return made


def time_in_turn(
    contenders: Iterable[Contender], batches: Iterable[Sequence[RankingList]], warmup: int = WARMUP
) -> dict[str, Timings]:
    """Every contender ranks every batch of lists, in turn; what is prepared ahead of a query is not timed."""

    def measure(contender: Contender, lists: Sequence[RankingList]) -> float:
        contender.prepare(lists)
        return milliseconds(contender.rank, lists)

    return take_turns({contender.name: contender for contender in contenders}, batches, warmup, measure)


class Contender(ABC):
    """A ranker under measurement.

    Args:
        name: in the tables.
        precision: of its matrix products.
    """

    def __init__(self, name: str, precision: str = "float32") -> None:
        self.name, self.precision = name, precision

    def prepare(self, lists: Sequence[RankingList]) -> None:  # noqa: B027 - most need nothing
        """What is done ahead of the query in production and is not timed."""

    @abstractmethod
    def rank(self, lists: Sequence[RankingList]) -> object:
        """Ranks the items of all lists, texts in, sorted items out."""

    def flops(self, lists: Sequence[RankingList]) -> int | None:
        """Floating-point operations of `rank`; None where torch does not see them."""
        self.prepare(lists)
        return count_flops(lambda: self.rank(lists)) or None


class OwnRanker(Contender):
    """One of this package's rankers behind `Reranker.rank`; by id, if the reranker has a token store.

    Its token cache is switched off, so every text is tokenised within the measured time. Rankers that encode queries
    and items apart have their item vectors computed ahead, as the paper assumes; BM25 has its statistics ahead.

    Args:
        name: in the tables.
        reranker: the ranker and its device.
        precision: of its matrix products.
        known: whether item vectors are computed ahead.
    """

    def __init__(self, name: str, reranker: Reranker, precision: str = "float32", known: bool = True) -> None:
        super().__init__(name, precision)
        self.reranker, self.known = reranker, known
        ranker: Any = reranker.ranker.requires_grad_(False)  # the counter hooks gradients
        if hasattr(ranker, "tokenizer") and not (known and hasattr(ranker, "precompute_items")):
            ranker.tokenizer.cache_size = 0

    def prepare(self, lists: Sequence[RankingList]) -> None:
        ranker: Any = self.reranker.ranker
        texts = [text for ranking_list in lists for text in ranking_list.items]
        if hasattr(ranker, "precompute_items"):
            ranker.item_cache.clear()
            if self.known:
                ranker.precompute_items(texts)
        ranker.index_items(texts)

    def rank(self, lists: Sequence[RankingList]) -> object:
        by_id = self.reranker.store is not None
        items = [ranking_list.item_ids if by_id else ranking_list.items for ranking_list in lists]
        return self.reranker.rank_batch([ranking_list.query for ranking_list in lists], items)


class SentenceTransformers(Contender):
    """`CrossEncoder.rank` of sentence-transformers as its users call it, on the same encoder with a fresh head.

    Args:
        name: in the tables.
        encoder: as for the rankers.
        device: where it runs.
        precision: its weights' data type.
        batch_size: pairs a batch; 32 is its default.
    """

    def __init__(
        self, name: str, encoder: str, device: torch.device, precision: str = "float32", batch_size: int = 32
    ) -> None:
        super().__init__(name, precision)
        try:
            from sentence_transformers import CrossEncoder
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("a peer is missing: pip install 'crossjem_pl[bench]'") from error
        self.batch_size = batch_size
        dtype = {"dtype": getattr(torch, precision)}
        self.model = CrossEncoder(resolve(encoder), num_labels=1, device=device.type, model_kwargs=dtype)

    def rank(self, lists: Sequence[RankingList]) -> object:
        if len(lists) == 1:
            return self.model.rank(lists[0].query, list(lists[0].items), batch_size=self.batch_size)
        pairs = [(ranking_list.query, text) for ranking_list in lists for text in ranking_list.items]
        scores = self.model.predict(pairs, batch_size=self.batch_size, show_progress_bar=False)
        ends = np.cumsum([len(ranking_list) for ranking_list in lists])[:-1]
        return [np.argsort(-of_list, kind="stable") for of_list in np.split(scores, ends)]
