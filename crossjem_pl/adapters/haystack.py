"""Haystack: a ranker as a component."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from crossjem_pl.adapters import Model, as_reranker, library_of_extra
from crossjem_pl.inference.reranker import Activation, Reranker

with library_of_extra("haystack"):
    from haystack import Document, component, default_from_dict, default_to_dict

__all__ = ["HaystackReranker"]


@component
class HaystackReranker:
    """Sorts documents by score, best first, and sets the scores of copies.

    Args:
        model: a model folder or a hub repository, loaded at the first use; or a ranker or a reranker, with which
            a pipeline cannot be stored.
        top_k: how many documents to keep; None for all.
        activation: of the scores: None, "sigmoid" or "softmax"; see `Reranker.rank`.
    """

    def __init__(
        self,
        model: Model,
        top_k: int | None = None,
        activation: Activation | None = None,
    ) -> None:
        self.model, self.top_k, self.activation = model, top_k, activation
        self._reranker: Reranker | None = None

    def warm_up(self) -> None:
        """Loads the model, unless it is loaded."""
        self._reranker = self._reranker or as_reranker(self.model)

    @component.output_types(documents=list[Document])
    def run(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, Any]:
        """The best documents for the query under `documents`; none for none.

        Args:
            query: the query.
            documents: documents with texts.
            top_k: in place of the component's.

        Raises:
            ValueError: if the query or a document's text is blank or missing, or `top_k` is less than 1.
        """
        if not documents:
            return {"documents": []}
        self.warm_up()
        assert self._reranker is not None
        texts = [document.content or "" for document in documents]
        top_k = self.top_k if top_k is None else top_k
        ranked = self._reranker.rank(query, texts, top_k=top_k, activation=self.activation)
        return {"documents": [replace(documents[item.index], score=item.score) for item in ranked]}

    def to_dict(self) -> dict[str, Any]:
        """The component as Haystack stores it.

        Raises:
            ValueError: if the model was given as an object.
        """
        if not isinstance(self.model, (str, Path)):
            raise ValueError("model: only a model folder or a hub repository can be stored in a pipeline")
        return default_to_dict(self, model=str(self.model), top_k=self.top_k, activation=self.activation)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> HaystackReranker:
        """The component that was stored."""
        return default_from_dict(cls, data)
