"""Each adapter against its real library: the scores are those of `Reranker` for the query's whole list."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from crossjem_pl.inference import Reranker
from crossjem_pl.rankers import CrossJEM, QueryHead
from crossjem_pl.rankers.folder import save_ranker
from tests.conftest import root
from tests.rankers.literal import sharpened

LIBRARIES = {
    "beir": "beir",
    "haystack": "haystack",
    "langchain": "langchain_core",
    "llamaindex": "llama_index.core",
    "mteb": "mteb",
    "pyterrier": "pyterrier",
    "rerankers": "rerankers",
}
"""What each adapter imports."""
QUERY = "red running shoes"
TEXTS = ["blue boots", "red shoes", "a cheap flight to paris", "shoe store", "dog food"]
PAGE = (root() / "docs" / "adapters.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"^## (\w+)\n.*?^```python\n(.*?)^```", PAGE, flags=re.S | re.M))


def installed(adapter: str) -> bool:
    library = LIBRARIES[adapter]
    return find_spec(library.partition(".")[0]) is not None and find_spec(library) is not None


def module(adapter: str) -> Any:
    if not installed(adapter) and "TEST_ADAPTERS" not in os.environ:
        pytest.skip(f"{LIBRARIES[adapter]} is not installed: make test-adapters")
    return importlib.import_module(f"crossjem_pl.adapters.{adapter}")


@pytest.fixture(scope="module")
def folder(tiny_bert: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ranker whose scores depend on the whole list: five items a pass, each attends to the others."""
    torch.manual_seed(0)
    ranker = CrossJEM(tiny_bert, QueryHead(), max_query_tokens=6, max_item_tokens=6, max_union_tokens=64)
    path = tmp_path_factory.mktemp("adapters") / "runs" / "quickstart" / "model"
    save_ranker(sharpened(ranker), path)
    return path


@pytest.fixture(scope="module")
def reranker(folder: Path) -> Reranker:
    return Reranker(folder, "cpu")


def expected(reranker: Reranker, texts: list[str] = TEXTS, **options: Any) -> list[tuple[str, Any]]:
    ranked = reranker.rank(QUERY, texts, **options)
    return [(item.text, pytest.approx(item.score, abs=1e-5)) for item in ranked]


def test_the_scores_depend_on_the_list(reranker: Reranker) -> None:
    best = reranker.rank(QUERY, TEXTS)[0]
    assert abs(best.score - reranker.rank(QUERY, [best.text])[0].score) > 1e-3


# --- libraries of pipelines: (adapter, options) -> a function of texts that gives (text, score), best first --


def langchain(made: Any, **options: Any) -> Callable[[list[str]], list[tuple[str, float]]]:
    from langchain_core.documents import Document

    def run(texts: list[str]) -> list[tuple[str, float]]:
        given = [Document(text, metadata={"place": i}, id=str(i)) for i, text in enumerate(texts)]
        compressor = made.LangChainReranker(**options)
        ranked = compressor.compress_documents(given, QUERY)
        assert list(ranked) == asyncio.run(compressor.acompress_documents(given, QUERY))
        assert all(document.metadata.keys() == {"place"} for document in given)
        assert all(given[d.metadata["place"]].id == d.id for d in ranked)
        return [(document.page_content, document.metadata["relevance_score"]) for document in ranked]

    return run


def llamaindex(made: Any, **options: Any) -> Callable[[list[str]], list[tuple[str, float]]]:
    from llama_index.core.schema import NodeWithScore, TextNode

    def run(texts: list[str]) -> list[tuple[str, float]]:
        nodes = [NodeWithScore(node=TextNode(text=text, metadata={"shop": "red"}), score=7) for text in texts]
        ranked = made.LlamaIndexReranker(**options).postprocess_nodes(nodes, query_str=QUERY)
        assert all(node.score == 7 for node in nodes)
        assert all(any(one.node is node.node for node in nodes) for one in ranked)
        return [(node.text, node.score) for node in ranked]

    return run


def haystack(
    made: Any, *, top_n: int | None = None, **options: Any
) -> Callable[..., list[tuple[str, float]]]:
    from haystack import Document, Pipeline

    def run(texts: list[str]) -> list[tuple[str, float]]:
        pipeline = Pipeline()
        pipeline.add_component("reranker", made.HaystackReranker(**options, top_k=top_n))
        documents = [Document(content=text, meta={"place": i}) for i, text in enumerate(texts)]
        inputs = {"reranker": {"query": QUERY, "documents": documents}}
        ranked = pipeline.run(inputs)["reranker"]["documents"]
        assert all(document.score is None for document in documents)
        if isinstance(options["model"], Path):
            loaded = Pipeline.loads(pipeline.dumps(), allowed_modules=[made.__name__])
            assert loaded.run(inputs)["reranker"]["documents"] == ranked
        return [(document.content, document.score) for document in ranked]

    return run


def rerankers(made: Any, *, model: Any, top_n: int | None = None, **options: Any) -> Callable[..., Any]:
    def run(texts: list[str]) -> list[tuple[str, float]]:
        ids = [f"d{i}" for i in range(len(texts))]
        ranked = made.RerankersRanker(model, **options).rank(QUERY, texts, doc_ids=ids)
        assert [result.rank for result in ranked] == list(range(1, len(texts) + 1))
        assert all(result.text == texts[int(result.doc_id[1:])] for result in ranked)
        return [(result.text, result.score) for result in ranked.top_k(top_n or len(texts))]

    return run


PIPELINES = {each.__name__: each for each in (langchain, llamaindex, haystack, rerankers)}


@pytest.mark.parametrize("adapter", PIPELINES)
@pytest.mark.parametrize("options", [{}, {"top_n": 2}, {"activation": "sigmoid"}], ids=str)
def test_documents_come_sorted_with_the_rankers_scores(
    adapter: str, options: dict[str, Any], folder: Path, reranker: Reranker
) -> None:
    made = module(adapter)
    arguments = {("top_k" if name == "top_n" else name): value for name, value in options.items()}
    for model in (folder, reranker):
        run = PIPELINES[adapter](made, model=model, **options)
        assert run(TEXTS) == expected(reranker, **arguments)
        assert run([]) == []
        with pytest.raises(Exception, match="items"):
            run(["red shoes", " "])


def test_nodes_show_metadata_only_when_asked(reranker: Reranker) -> None:
    made = module("llamaindex")
    from llama_index.core.schema import MetadataMode

    run = llamaindex(made, model=reranker, metadata_mode=MetadataMode.EMBED)
    texts = [f"shop: red\n\n{text}" for text in TEXTS]
    assert [score for _, score in run(TEXTS)] == [score for _, score in expected(reranker, texts)]
    with pytest.raises(ValueError, match="query"):
        made.LlamaIndexReranker(reranker).postprocess_nodes([])


def test_haystack_says_when_a_component_cannot_be_stored(reranker: Reranker) -> None:
    made = module("haystack")
    with pytest.raises(ValueError, match="model folder"):
        made.HaystackReranker(reranker).to_dict()


def test_rerankers_takes_documents_and_scores_one_alone(reranker: Reranker) -> None:
    made = module("rerankers").RerankersRanker(reranker)
    from rerankers import Document

    documents = [Document(text, doc_id=i) for i, text in enumerate(TEXTS)]
    assert [(r.text, r.score) for r in made.rank(QUERY, documents)] == expected(reranker)
    assert made.score(QUERY, TEXTS[1]) == expected(reranker, TEXTS[1:2])[0][1]
    with pytest.raises(ValueError, match="2 ids for 5"):
        made.rank(QUERY, TEXTS, doc_ids=[1, 2])


# --- libraries of evaluation: many queries ------------------------------------------------------------------


def test_pyterrier_sets_scores_and_ranks_of_each_query(reranker: Reranker) -> None:
    made = module("pyterrier")
    import pandas as pd
    import pyterrier as pt

    columns = ["qid", "query", "docno", "title"]
    rows = [["q2", QUERY, f"d{i}", text] for i, text in enumerate(TEXTS)]
    rows[2:2] = [
        ["q1", "dog", f"d{i}", text] for i, text in enumerate(TEXTS[2:])
    ]  # queries need not be together
    frame = pd.DataFrame(rows, columns=columns).assign(rank=0, first_stage=1.5)
    stage = made.PyTerrierReranker(reranker, text_field="title")
    found = (pt.Transformer.identity() >> stage)(frame)
    assert list(found["first_stage"]) == [1.5] * 8
    for qid, query, texts in (("q1", "dog", TEXTS[2:]), ("q2", QUERY, TEXTS)):
        own = found[found["qid"] == qid].sort_values("rank")
        ranked = reranker.rank(query, texts)
        assert list(own["title"]) == [item.text for item in ranked]
        assert list(own["score"]) == pytest.approx([item.score for item in ranked], abs=1e-5)
        assert list(own["rank"]) == list(range(len(texts)))
    empty = stage(frame.iloc[:0])
    assert len(empty) == 0
    assert {"score", "rank"} <= set(empty.columns)
    qrels = pd.DataFrame([["q1", "d2", 1], ["q2", "d1", 1]], columns=["qid", "docno", "label"])
    topics = frame[["qid", "query"]].drop_duplicates()
    table = pt.Experiment([pt.Transformer.from_df(frame) >> stage], topics, qrels, ["recip_rank"])
    assert 0 < table["recip_rank"][0] <= 1
    with pytest.raises(pt.validate.InputValidationError):
        stage(frame.drop(columns="title"))
    with pytest.raises(ValueError, match="'q1', field 'query'"):
        stage(frame.assign(query=[str(i) for i in range(8)], qid="q1"))
    with pytest.raises(ValueError, match="'qid': a row has none"):
        stage(frame.assign(qid=[None, *frame["qid"][1:]]))


def test_beir_scores_the_best_of_the_first_stage(reranker: Reranker) -> None:
    made = module("beir")
    corpus = {str(i): {"title": t.split()[0], "text": " ".join(t.split()[1:])} for i, t in enumerate(TEXTS)}
    corpus["3"] = {"title": None, "text": TEXTS[3]}  # type: ignore[dict-item]
    first = {"q": {str(i): float(i) for i in range(5)}, "r": {"1": 0.5}, "none": {}}
    queries = {"q": QUERY, "r": "dog", "none": "cat"}
    found = made.BEIRReranker(reranker).rerank(corpus, queries, first, top_k=3)
    assert {TEXTS[int(i)]: score for i, score in found["q"].items()} == dict(expected(reranker, TEXTS[2:]))
    assert found["r"]["1"] == pytest.approx(reranker.rank("dog", [TEXTS[1]])[0].score, abs=1e-5)
    assert found["none"] == {}


def test_mteb_evaluates_with_whole_lists(reranker: Reranker) -> None:
    made = module("mteb")
    import mteb
    from datasets import Dataset
    from mteb.mocks.mock_tasks import MockRerankingTask

    model = made.MTEBReranker(reranker, name="me/tiny", revision="3")
    assert isinstance(model, mteb.SearchProtocol)
    rows = [{"id": str(i), "title": "", "text": text} for i, text in enumerate(TEXTS)]
    model.index(Dataset.from_list(rows))
    queries = Dataset.from_list([{"id": "q", "text": "red", "instruction": "running shoes"}])
    found = model.search(queries, top_k=4, top_ranked={"q": ["0", "1", "2", "3", "4"]})
    assert [(TEXTS[int(i)], score) for i, score in found["q"].items()] == expected(reranker)[:4]
    with pytest.raises(ValueError, match="'9' is not in the corpus"):
        model.search(queries, top_k=4, top_ranked={"q": ["9"]})
    with pytest.raises(ValueError, match="top_ranked"):
        model.search(queries, top_k=4)
    (result,) = mteb.evaluate(model, [MockRerankingTask()], cache=None)
    assert 0 < result.get_score() <= 1


# --- all ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", EXAMPLES)
def test_the_example_of_the_page_runs(
    library: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module(library.lower())
    monkeypatch.chdir(folder.parents[2])
    exec(compile(EXAMPLES[library], "adapters.md", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_every_adapter_has_an_extra_and_an_example() -> None:
    files = {path.stem for path in (root() / "crossjem_pl" / "adapters").glob("[a-z]*.py")}
    assert files == set(LIBRARIES) == {library.lower() for library in EXAMPLES}
    pyproject = (root() / "pyproject.toml").read_text(encoding="utf-8")
    assert all(re.search(rf"^{name} = \[", pyproject, flags=re.M) for name in LIBRARIES)


@pytest.mark.parametrize("adapter", LIBRARIES)
def test_a_missing_library_is_an_error_that_names_the_extra(
    adapter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = {name.partition(".")[0] for name in LIBRARIES.values()}
    for name in {
        *LIBRARIES.values(),
        *roots,
        *(name for name in sys.modules if name.partition(".")[0] in roots),
    }:
        monkeypatch.setitem(sys.modules, name, None)  # nor is the library of another one imported
    monkeypatch.delitem(sys.modules, f"crossjem_pl.adapters.{adapter}", raising=False)
    with pytest.raises(ImportError, match=rf"pip install 'crossjem_pl\[{adapter}\]'") as error:
        importlib.import_module(f"crossjem_pl.adapters.{adapter}")
    assert LIBRARIES[adapter].partition(".")[0] in str(error.value.__cause__)
