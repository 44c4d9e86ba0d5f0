"""LangChain: a ranker as a document compressor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crossjem_pl.adapters import Model, as_reranker, library_of_extra
from crossjem_pl.inference.reranker import Activation, Reranker

with library_of_extra("langchain"):
    from langchain_core.documents import BaseDocumentCompressor, Document
    from pydantic import ConfigDict

__all__ = ["LangChainReranker"]


class LangChainReranker(BaseDocumentCompressor):
    """Sorts documents by score, best first, and writes it to `metadata["relevance_score"]` of copies.

    Args:
        model: a model folder, a hub repository, a ranker or a reranker.
        top_n: how many documents to keep; None for all.
        activation: of the scores: None, "sigmoid" or "softmax"; see `Reranker.rank`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    reranker: Reranker
    top_n: int | None
    activation: Activation | None

    def __init__(
        self,
        model: Model,
        *,
        top_n: int | None = None,
        activation: Activation | None = None,
    ) -> None:
        super().__init__(reranker=as_reranker(model), top_n=top_n, activation=activation)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> list[Document]:
        """The best documents for the query; none for none.

        Raises:
            ValueError: if the query or a document's text is blank, or `top_n` is less than 1.
        """
        if not documents:
            return []
        texts = [document.page_content for document in documents]
        ranked = self.reranker.rank(query, texts, top_k=self.top_n, activation=self.activation)
        return [
            documents[item.index].model_copy(
                update={"metadata": {**documents[item.index].metadata, "relevance_score": item.score}}
            )
            for item in ranked
        ]
