"""Runs one public client against a server: `python clients.py NAME URL` prints [[index, score], ...] as JSON.

It runs in an environment of its own, see `make test-clients`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import version

KEY, MODEL = "secret", "rerank-v3.5"
QUERY, TEXTS = "red shoe", ["blue shoes near me", "cat food", "red running shoe", "paris hotel"]
Ranking = list[tuple[int, float]]
CLIENTS: dict[str, tuple[str, Callable[[str], Ranking]]] = {}


def client(package: str) -> Callable[[Callable[[str], Ranking]], Callable[[str], Ranking]]:
    def enter(function: Callable[[str], Ranking]) -> Callable[[str], Ranking]:
        CLIENTS[function.__name__] = (package, function)
        return function

    return enter


def of_texts(found: list[tuple[str, float]]) -> Ranking:
    return [(TEXTS.index(text), score) for text, score in found]


@client("cohere")
def cohere_v2(url: str) -> Ranking:
    import cohere

    found = cohere.ClientV2(KEY, base_url=url).rerank(model=MODEL, query=QUERY, documents=TEXTS)
    return [(row.index, row.relevance_score) for row in found.results]


@client("cohere")
def cohere_v1(url: str) -> Ranking:
    import cohere

    documents = [{"text": text} for text in TEXTS]
    found = cohere.Client(KEY, base_url=url).rerank(
        model=MODEL, query=QUERY, documents=documents, return_documents=True
    )
    assert [row.document.text for row in found.results] == [TEXTS[row.index] for row in found.results]
    return [(row.index, row.relevance_score) for row in found.results]


@client("langchain-cohere")
def langchain_cohere(url: str) -> Ranking:
    from langchain_cohere import CohereRerank
    from langchain_core.documents import Document

    rerank = CohereRerank(model=MODEL, cohere_api_key=KEY, base_url=url, top_n=4)
    found = rerank.compress_documents([Document(text) for text in TEXTS], QUERY)
    return of_texts([(row.page_content, row.metadata["relevance_score"]) for row in found])


def llama_index(postprocessor: object) -> Ranking:
    from llama_index.core.schema import NodeWithScore, TextNode

    nodes = [NodeWithScore(node=TextNode(text=text), score=0.0) for text in TEXTS]
    found = postprocessor.postprocess_nodes(nodes, query_str=QUERY)  # type: ignore[attr-defined]
    return of_texts([(row.node.get_content(), row.score) for row in found])


@client("llama-index-postprocessor-cohere-rerank")
def llama_index_cohere(url: str) -> Ranking:
    from llama_index.postprocessor.cohere_rerank import CohereRerank

    return llama_index(CohereRerank(model=MODEL, api_key=KEY, base_url=url, top_n=4))


@client("llama-index-postprocessor-tei-rerank")
def llama_index_tei(url: str) -> Ranking:
    from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

    return llama_index(TextEmbeddingInference(base_url=url, auth_token=f"Bearer {KEY}", top_n=4))


@client("llama-index-postprocessor-jinaai-rerank")
def llama_index_jina(url: str) -> Ranking:
    from llama_index.postprocessor.jinaai_rerank import JinaRerank

    return llama_index(JinaRerank(model=MODEL, api_key=KEY, base_url=f"{url}/v1", top_n=4))


def haystack(ranker: object) -> Ranking:
    from haystack import Document

    documents = [Document(content=text) for text in TEXTS]
    found = ranker.run(query=QUERY, documents=documents)["documents"]  # type: ignore[attr-defined]
    return of_texts([(row.content, row.score) for row in found])


@client("cohere-haystack")
def haystack_cohere(url: str) -> Ranking:
    from haystack.utils import Secret
    from haystack_integrations.components.rankers.cohere import CohereRanker

    return haystack(CohereRanker(model=MODEL, api_key=Secret.from_token(KEY), api_base_url=url))


@client("huggingface-api-haystack")
def haystack_tei(url: str) -> Ranking:
    from haystack.utils import Secret
    from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker

    return haystack(HuggingFaceTEIRanker(url=url, token=Secret.from_token(KEY)))


def litellm(url: str, provider: str) -> Ranking:
    import litellm

    found = litellm.rerank(f"{provider}/{MODEL}", QUERY, TEXTS, api_base=url, api_key=KEY, top_n=4)
    return [(row["index"], row["relevance_score"]) for row in found.results]


@client("litellm")
def litellm_cohere(url: str) -> Ranking:
    return litellm(f"{url}/v2/rerank", "cohere")


@client("litellm")
def litellm_jina(url: str) -> Ranking:
    return litellm(f"{url}/v1/rerank", "jina_ai")


@client("litellm")
def litellm_vllm(url: str) -> Ranking:
    return litellm(url, "hosted_vllm")


@client("litellm")
def litellm_tei(url: str) -> Ranking:
    return litellm(url, "huggingface")


def api_ranker(url: str, provider: str) -> Ranking:
    from rerankers.models.api_rankers import APIRanker

    found = APIRanker(MODEL, KEY, provider, url=url).rank(QUERY, TEXTS)
    return [(row.doc_id, row.score) for row in found.results]


@client("rerankers")
def rerankers_cohere(url: str) -> Ranking:
    return api_ranker(f"{url}/v2/rerank", "cohere")


@client("rerankers")
def rerankers_jina(url: str) -> Ranking:
    return api_ranker(f"{url}/v1/rerank", "jina")


@client("rerankers")
def rerankers_tei(url: str) -> Ranking:
    return api_ranker(f"{url}/rerank", "text-embeddings-inference")


if __name__ == "__main__":
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    name, address = sys.argv[1:]
    package, run = CLIENTS[name]
    print(json.dumps({"version": f"{package} {version(package)}", "ranking": run(address)}))
