"""BEIR: a ranker as the second stage of its retrieval evaluation."""

from __future__ import annotations

from collections.abc import Mapping

from crossjem_pl.adapters import Model, as_reranker, library_of_extra
from crossjem_pl.lists import RankingList

with library_of_extra("beir"):
    from beir.reranking import Rerank

__all__ = ["BEIRReranker"]


class BEIRReranker(Rerank):
    """`Rerank` of BEIR, which scores a query's documents together where BEIR's own passes pairs on.

    Args:
        model: a model folder, a hub repository, a ranker or a reranker.
    """

    def __init__(self, model: Model) -> None:
        self.reranker = as_reranker(model)
        super().__init__(self.reranker, batch_size=self.reranker.batch_size)

    def rerank(
        self,
        corpus: Mapping[str, Mapping[str, str]],
        queries: Mapping[str, str],
        results: Mapping[str, Mapping[str, float]],
        top_k: int,
    ) -> dict[str, dict[str, float]]:
        """New scores of each query's best `top_k` documents, by id of query and document.

        Args:
            corpus: `title` and `text` by document id.
            queries: texts by query id.
            results: the first stage's scores by id of query and document.
            top_k: how many of the first stage to score.

        Raises:
            KeyError: if a query or a document is unknown.
            ValueError: if a text is blank; names the query.
        """
        lists = []
        for query_id, first in results.items():
            ids = sorted(first, key=lambda i: first[i], reverse=True)[:top_k]
            texts = [f"{corpus[i].get('title') or ''} {corpus[i].get('text') or ''}".strip() for i in ids]
            if ids:
                lists.append(RankingList(query_id, queries[query_id], tuple(ids), tuple(texts)))
        self.rerank_results: dict[str, dict[str, float]] = {query_id: {} for query_id in results}
        for ranking_list, scores in zip(lists, self.reranker.score(lists), strict=True):
            self.rerank_results[ranking_list.query_id] = dict(
                zip(ranking_list.item_ids, scores.tolist(), strict=True)
            )
        return self.rerank_results
