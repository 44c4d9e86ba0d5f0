"""The benchmark of limits: lists are extended fairly, and the program writes what it measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest
import torch

from benchmarks.limits.__main__ import main
from benchmarks.limits.extended import Corpus, cut, extend, folded, measurable, relevant_items
from benchmarks.statistics import differences, mean_cells
from crossjem_pl.data.formats import write_lists
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import BM25, CrossJEM, MonoBERT
from crossjem_pl.rankers.folder import save_ranker
from tests.conftest import example_lists

LABELS = (0.0, 1.0, 0.0, 0.0)
ONE = RankingList(
    "q", "cheap red shoes", tuple("abcd"), ("sofa", "red shoes", "blue shoes", "cheap lamp"), LABELS
)
USELESS = RankingList("nothing", "red", ("a", "b"), ("sofa", "lamp"), (0.0, 0.0))
CORPUS = (
    "Red Shoes ",  # in the list, but for case and space
    "cheap red shoes",  # the query
    "cheap red boots",
    "red shoes for men",
    "cheap shoes",
    "hotel in rome",
    "CHEAP SHOES",  # once already
    "paris",
)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus(CORPUS)


def test_a_list_gets_its_relevant_items_then_its_own_then_bm25s(corpus: Corpus) -> None:
    assert len(corpus) == 7
    found, added = extend(ONE, corpus, 7)
    assert found.items[:4] == ("red shoes", "sofa", "blue shoes", "cheap lamp")
    assert set(found.items[4:]) == {"cheap red boots", "red shoes for men", "cheap shoes"}
    best = [corpus.texts[i] for i in corpus.ranked(ONE.query)]
    assert sorted(found.items[4:], key=best.index) == list(found.items[4:])
    assert (added, found.labels) == (3, (1.0, 0, 0, 0, 0, 0, 0))
    further, added = extend(ONE, corpus, 9)
    assert further.items[:7] == found.items
    assert (set(further.items[7:]), added) == ({"hotel in rome", "paris"}, 5)
    assert extend(RankingList("q", "???", ("a",), ("sofa",), (1.0,)), corpus, 4)[1] == 3


def test_lists_are_nested_without_repeats_and_keep_what_is_relevant() -> None:
    lists = example_lists(12, seed=3)
    texts = [text for one in [*lists, *example_lists(30, seed=4)] for text in one.items]
    for one in measurable(lists, 5):
        longest = extend(one, Corpus(texts, seed=1), 40)[0]
        assert (
            longest == extend(one, Corpus(texts, seed=1), 40)[0] != extend(one, Corpus(texts, seed=2), 40)[0]
        )
        added = [text for text in longest.items if text not in one.items]
        assert len({*map(folded, added), *map(folded, one.items)}) == len(added) + len(set(one.items))
        assert folded(one.query) not in map(folded, added)
        before: set[str] = set()
        for size in (5, 9, 20, 40):
            shorter = cut(longest, size)
            assert len(shorter) == size
            assert before < set(shorter.item_ids)
            before = set(shorter.item_ids)
            relevant = [shorter.items[i] for i in relevant_items(shorter)]
            assert sorted(relevant) == sorted(one.items[i] for i in relevant_items(one))
            assert list(shorter.item_ids) == sorted(shorter.item_ids)  # which tells nothing of the items


def test_too_small_a_corpus_says_how_many_texts_there_are(corpus: Corpus) -> None:
    with pytest.raises(ValueError, match=r"'q': 10 items .* 7 different texts make no more than 9"):
        extend(ONE, corpus, 10)


def test_only_lists_with_something_to_find_are_drawn() -> None:
    def one(name: str, *labels: float) -> RankingList:
        ids = tuple(f"{i}" for i in range(len(labels)))
        return RankingList(name, "x", ids, tuple(f"item {i}" for i in ids), labels)

    lists = [one("none", 0, 0.5), one("all", 1, 2), one("some", 0, 2), one("long", 1, 0, 0)]
    assert [found.query_id for found in measurable(lists, 2)] == ["some", "long"]


def test_means_and_differences() -> None:
    def frame(*values: float) -> pd.DataFrame:
        return pd.DataFrame({"RR@10": list(values) * 20})

    frames = {"a": [frame(0.0, 1.0)], "b": [frame(1.0, 1.0), frame(0.5, 1.0)]}
    cell = mean_cells(frames["b"])["RR@10"]
    assert (cell["mean"], cell["seeds"]) == (pytest.approx(0.875), [1.0, 0.75])
    assert cell["low"] < 0.875 < cell["high"]
    found = differences(frames, "a", "RR@10")
    assert set(found) == {"b"}
    assert found["b"]["mean"] == pytest.approx(0.375)
    assert found["b"]["p"] < 0.001
    assert differences(frames, "nobody", "RR@10") == {}
    frames["b"][1].index += 1
    for call in (lambda: mean_cells(frames["b"]), lambda: differences(frames, "a", "RR@10")):
        with pytest.raises(ValueError, match="over different queries"):
            call()


@pytest.fixture(scope="module")
def models(tiny_bert: str, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(1)
    limits = {"max_query_tokens": 16, "max_item_tokens": 16}
    save_ranker(MonoBERT(tiny_bert, **limits), folder / "mono")  # type: ignore[arg-type]
    save_ranker(CrossJEM(tiny_bert, max_union_tokens=60, **limits), folder / "joint")  # type: ignore[arg-type]
    save_ranker(BM25(), folder / "bm25")
    return {name: str(folder / name) for name in ("mono", "joint", "bm25")}


def arguments(models: Mapping[str, str], lists: Path, out: Path) -> list[str]:
    named = [part for name, folder in models.items() for part in ("--model", f"{name}={folder}")]
    return [*named, "--lists", str(lists), "--out", str(out), "--device", "cpu", "--threads", "1"]


def test_the_program_writes_json_page_and_plot(models: Mapping[str, str], tmp_path: Path) -> None:
    lists = [*example_lists(11, seed=8), USELESS]
    lists_file, more = tmp_path / "dev.jsonl.gz", tmp_path / "m.parquet"
    write_lists(lists, lists_file)
    write_lists(example_lists(20, seed=9), more)
    out = tmp_path / "out"
    sizes = ["--items", "10", "5", "30", "--queries", "6", "--corpus", str(more)]
    assert main([*arguments(models, lists_file, out), *sizes]) == 0
    found = json.loads((out / "limits.json").read_text())
    assert found["lists"] == {"file": "dev.jsonl.gz", "all": 12}
    assert found["corpus"]["files"] == ["dev.jsonl.gz", "m.parquet"]
    assert (found["sample"]["lists"], found["sample"]["measurable"]) == (6, 11)
    at = {(row["items"], row["model"]): row for row in found["by_items"]}
    assert list(at) == [(size, name) for size in (5, 10, 30) for name in models]
    for row in at.values():
        assert 0 <= row["RR@10"]["low"] <= row["RR@10"]["mean"] <= row["RR@10"]["high"] <= 1
        assert row["ms"] > 0
    assert at[5, "mono"]["against"] == {"RR@10": None, "AP@10": None}
    means = [at[30, name]["RR@10"]["mean"] for name in ("bm25", "mono")]
    assert at[30, "bm25"]["against"]["RR@10"]["mean"] == pytest.approx(means[0] - means[1])
    page = (out / "limits.md").read_text()
    assert f"| joint | 30 | {at[30, 'joint']['RR@10']['mean']:.4f} [" in page
    assert (out / "limits.png").stat().st_size > 1000


def test_mistakes_in_the_input_end_in_a_message(
    models: Mapping[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def message(lists: Path, *options: str, named: Mapping[str, str] = models) -> str:
        assert main([*arguments(named, lists, tmp_path / "out"), *options]) == 2
        return capsys.readouterr().err

    good = tmp_path / "dev.jsonl.gz"
    write_lists(example_lists(10, seed=8), good)
    broken, bare, useless = (tmp_path / f"{name}.jsonl" for name in ("broken", "bare", "useless"))
    broken.write_text('{"query_id": "q", "query": "red", "item_ids": ["a"]}\n', encoding="utf-8")
    write_lists([RankingList.from_texts("red", ["sofa"])], bare)
    write_lists([USELESS], useless)
    for path in (tmp_path / "missing.jsonl", broken):
        assert str(path) in message(path)
    assert str(broken) in message(good, "--corpus", str(broken))
    assert f"{bare}: list 'query' has no labels" in message(bare)
    assert f"{useless}: no list has a relevant item" in message(useless)
    assert "different texts" in message(good, "--items", "5", "100000")
    assert str(tmp_path / "gone") in message(good, named={"a": str(tmp_path / "gone")})
    again = ["--model", f"mono={models['mono']}"]
    for options in (["--items", "1"], ["--queries", "0"], ["--threads", "0"], again):
        assert options[0] in message(good, *options)
    with pytest.raises(SystemExit):
        main([*arguments(models, good, tmp_path), "--model", "x/y"])
