"""rerankers: a ranker under that library's interface."""

from __future__ import annotations

from collections.abc import Sequence

from crossjem_pl.adapters import Model, as_reranker, library_of_extra
from crossjem_pl.inference.reranker import Activation

with library_of_extra("rerankers"):
    from rerankers.documents import Document
    from rerankers.models.ranker import BaseRanker
    from rerankers.results import RankedResults, Result
    from rerankers.utils import prep_docs

__all__ = ["RerankersRanker"]


class RerankersRanker(BaseRanker):
    """`rank` and `score` of rerankers.

    Args:
        model_name_or_path: a model folder, a hub repository, a ranker or a reranker.
        verbose: not used; the interface asks for it.
        activation: of the scores: None, "sigmoid" or "softmax"; see `Reranker.rank`.
    """

    def __init__(
        self,
        model_name_or_path: Model,
        verbose: int = 1,
        *,
        activation: Activation | None = None,
    ) -> None:
        self.reranker = as_reranker(model_name_or_path)
        self.verbose, self.activation = verbose, activation

    def score(self, query: str, doc: str) -> float:
        """The score of a document that is alone in its list."""
        return self.reranker.rank(query, [doc], activation=self.activation)[0].score

    def rank(
        self,
        query: str,
        docs: str | Document | Sequence[str] | Sequence[Document],
        doc_ids: Sequence[str] | Sequence[int] | None = None,
    ) -> RankedResults:
        """All documents, best first, with scores and ranks from 1; none for none.

        Raises:
            ValueError: if the query or a text is blank, or there are not as many ids as documents.
        """
        given = [docs] if isinstance(docs, (str, Document)) else list(docs)
        if doc_ids is not None and len(doc_ids) != len(given):
            raise ValueError(f"doc_ids: {len(doc_ids)} ids for {len(given)} documents")
        if not given:
            return RankedResults([], query, has_scores=True)
        documents = prep_docs(given, doc_ids)
        texts = [document.text for document in documents]
        ranked = self.reranker.rank(query, texts, activation=self.activation)
        results = [Result(documents[item.index], item.score, rank) for rank, item in enumerate(ranked, 1)]
        return RankedResults(results, query, has_scores=True)
