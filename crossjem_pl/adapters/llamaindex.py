"""LlamaIndex: a ranker as a node postprocessor."""

from __future__ import annotations

from crossjem_pl.adapters import Model, as_reranker, library_of_extra
from crossjem_pl.inference.reranker import Activation, Reranker

with library_of_extra("llamaindex"):
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

__all__ = ["LlamaIndexReranker"]


class LlamaIndexReranker(BaseNodePostprocessor):
    """Sorts nodes by score, best first; the nodes that were given keep their scores.

    Args:
        model: a model folder, a hub repository, a ranker or a reranker.
        top_n: how many nodes to keep; None for all.
        activation: of the scores: None, "sigmoid" or "softmax"; see `Reranker.rank`.
        metadata_mode: which metadata stand before a node's text; none, since rankers of short texts would cut the text.
    """

    top_n: int | None
    activation: Activation | None
    metadata_mode: MetadataMode
    _reranker: Reranker = PrivateAttr()

    def __init__(
        self,
        model: Model,
        *,
        top_n: int | None = None,
        activation: Activation | None = None,
        metadata_mode: MetadataMode = MetadataMode.NONE,
    ) -> None:
        super().__init__(top_n=top_n, activation=activation, metadata_mode=metadata_mode)
        self._reranker = as_reranker(model)

    @classmethod
    def class_name(cls) -> str:
        """The name that LlamaIndex stores."""
        return "CrossJEMReranker"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise ValueError("query_bundle: a query is needed to rank nodes")
        if not nodes:
            return []
        texts = [node.node.get_content(metadata_mode=self.metadata_mode) for node in nodes]
        ranked = self._reranker.rank(
            query_bundle.query_str, texts, top_k=self.top_n, activation=self.activation
        )
        return [NodeWithScore(node=nodes[item.index].node, score=item.score) for item in ranked]
