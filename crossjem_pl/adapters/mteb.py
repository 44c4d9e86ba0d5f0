"""MTEB: a ranker as a search model of its reranking tasks."""

from __future__ import annotations

from typing import Any

from crossjem_pl.adapters import Model, as_reranker, library_of_extra
from crossjem_pl.lists import RankingList

with library_of_extra("mteb"):
    from mteb.models import ModelMeta

__all__ = ["MTEBReranker"]


class MTEBReranker:
    """MTEB's `SearchProtocol`, which keeps a query's candidates together; its cross-encoder protocol takes pairs.

    Args:
        model: a model folder, a hub repository, a ranker or a reranker.
        name: "organization/model", under which MTEB stores results.
        revision: of the model, for the same purpose.
    """

    def __init__(self, model: Model, name: str = "local/crossjem_pl", revision: str = "local") -> None:
        self.reranker = as_reranker(model)
        entries = {
            "name": name,
            "revision": revision,
            "model_type": ["cross-encoder"],
            "framework": ["PyTorch"],
        }
        self.mteb_model_meta = ModelMeta.create_empty(entries)
        self._texts: dict[str, str] = {}

    def index(self, corpus: Any, **_: Any) -> None:
        """Takes the corpus: rows of `id`, `text` and `title`, if there is one, which comes first."""
        self._texts = {row["id"]: f"{row.get('title') or ''} {row['text']}".strip() for row in corpus}

    def search(
        self, queries: Any, *, top_k: int, top_ranked: dict[str, list[str]] | None = None, **_: Any
    ) -> dict[str, dict[str, float]]:
        """Scores of each query's best `top_k` candidates; a query without candidates has none.

        Args:
            queries: rows of `id`, `text` and `instruction`, if there is one, which comes last.
            top_k: how many to return for a query.
            top_ranked: the candidates' ids for each query.

        Raises:
            ValueError: if there are no candidates, one is not in the corpus, or a text is blank; names the query.
        """
        if top_ranked is None:
            raise ValueError(
                "top_ranked: a reranker needs candidates; run a reranking task, or give a task some with "
                "`convert_to_reranking`"
            )
        lists = []
        for row in queries:
            if ids := top_ranked.get(row["id"]):
                if missing := [i for i in ids if i not in self._texts]:
                    raise ValueError(f"query {row['id']!r}: candidate {missing[0]!r} is not in the corpus")
                query = f"{row['text']} {row.get('instruction') or ''}".strip()
                lists.append(RankingList(row["id"], query, tuple(ids), tuple(self._texts[i] for i in ids)))
        found: dict[str, dict[str, float]] = {row["id"]: {} for row in queries}
        for ranking_list, scores in zip(lists, self.reranker.score(lists), strict=True):
            order = scores.argsort(descending=True, stable=True)[:top_k].tolist()
            found[ranking_list.query_id] = {ranking_list.item_ids[i]: float(scores[i]) for i in order}
        return found
