"""The contenders of a run: this package's rankers, exported models, public cross-encoders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.latency.contenders import ById, Contender, OwnRanker
from benchmarks.latency.peers import LIGHTNING_IR, SENTENCE_TRANSFORMERS, LightningIR, SentenceTransformers
from benchmarks.measuring.build import NEEDS_OWN_WEIGHTS, build_ranker
from crossjem_pl.inference import Reranker
from crossjem_pl.rankers.base import Ranker
from crossjem_pl.text.token_store import TokenStore

__all__ = ["BY_ID", "DEFAULT_RANKERS", "MONOBERT", "Field", "contenders_of"]

DEFAULT_RANKERS = (
    "crossjem",
    "crossjem-wide",
    "crossjem-best",
    "monobert",
    "sharedquery",
    "setencoder",
    "colbert",
    "dpr",
    "ance",
    "twinbert",
    "coral",
    "instructor",
    "meb",
)
MONOBERT = "monobert"

_LIMITS = ("crossjem", "crossjem-wide", "crossjem-best", "crossjem-positional", "crossjem-shared")

BY_ID = (*_LIMITS, MONOBERT)
"""Rankers that are measured once more with the token ids of their items in a store."""


@dataclass(frozen=True)
class Field:
    """Who takes part, and how.

    Args:
        rankers: names of overlays.
        encoder: of every ranker and peer.
        own_encoders: overlay -> another encoder (T5s and causal language models need theirs).
        random_init: build encoders from their configurations alone.
        passes: items and union tokens of a pass of CROSS-JEM; None for the model's.
        pairs_per_pass: monoBERT once more with each of these numbers of pairs in a pass.
        exported: folders of exported models (their precision is in them).
        peers: names of public cross-encoders.
        peer_batches: pairs a batch of sentence-transformers; the first keeps the plain name.
        lightning_ir: interpreter of lightning-ir's environment.
        precisions: of the rankers and of sentence-transformers; names get all but the first.
        device: where all run.
        warm: see `OwnRanker`.
        most_queries: of a batch.
    """

    rankers: Sequence[str]
    encoder: str
    device: torch.device
    precisions: Sequence[str] = ("float32",)
    own_encoders: Mapping[str, str] = field(default_factory=dict)
    random_init: bool = False
    passes: tuple[int, int] | None = None
    pairs_per_pass: Sequence[int] = ()
    exported: Sequence[Path] = ()
    peers: Sequence[str] = ()
    peer_batches: Sequence[int] = (32,)
    lightning_ir: Path | None = None
    warm: bool = False
    most_queries: int = 256

    def ranker(self, name: str, **changes: Any) -> Ranker:
        """A ranker of this field with fresh heads.

        Raises:
            ValueError: for an overlay of another family without an encoder of its own.
        """
        if name in NEEDS_OWN_WEIGHTS and name not in self.own_encoders:
            raise ValueError(
                f"{name} cannot take the encoder {self.encoder!r}: give --encoder-of {name}=FOLDER or a hub id"
            )
        if self.random_init:
            changes["random_init"] = True
        if self.passes is not None and name in _LIMITS:
            changes |= {"max_items_per_pass": self.passes[0], "max_union_tokens": self.passes[1]}
        return build_ranker(name, self.own_encoders.get(name, self.encoder), changes)


def contenders_of(given: Field, store: TokenStore | None = None) -> list[Contender]:
    """All contenders with their models loaded, this package's first.

    Args:
        given: who takes part.
        store: token ids of all items, for a path by id of each of `BY_ID`; None leaves that path out.
    """
    out: list[Contender] = []

    def add(name: str, suffix: str, precision: str, ranker: Ranker, by_id: bool = False) -> None:
        reranker = Reranker(ranker, given.device, precision, batch_size=given.most_queries)  # type: ignore[arg-type]
        out.append(OwnRanker(name + suffix, reranker, given.warm, precision))
        if by_id and store is not None:
            reranker.store = store
            out.append(ById(f"{name} by id{suffix}", reranker, given.warm, precision))

    for precision in given.precisions:
        suffix = "" if precision == given.precisions[0] else f" {precision}"
        for name in given.rankers:
            add(name, suffix, precision, given.ranker(name), name in BY_ID)
        if MONOBERT in given.rankers:
            for pairs in given.pairs_per_pass:
                ranker = given.ranker(MONOBERT, pairs_per_pass=pairs)
                add(f"{MONOBERT} ({pairs} pairs a pass)", suffix, precision, ranker)
        if SENTENCE_TRANSFORMERS in given.peers:
            for batch in given.peer_batches:
                plain = batch == given.peer_batches[0]
                name = SENTENCE_TRANSFORMERS + ("" if plain else f" (batch {batch})") + suffix
                out.append(SentenceTransformers(name, given.encoder, given.device, precision, batch))
    for folder in given.exported:
        reranker = Reranker.from_pretrained(folder, batch_size=given.most_queries)
        out.append(OwnRanker(f"exported {folder.name}", reranker, given.warm))
    if LIGHTNING_IR in given.peers:
        assert given.lightning_ir is not None
        out.append(LightningIR(LIGHTNING_IR, given.lightning_ir, given.encoder, given.device))
    return out
