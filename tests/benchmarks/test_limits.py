"""The benchmark of limits: lists are extended fairly, told apart rightly, and the program writes what it measured."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.limits.__main__ import main
from benchmarks.limits.extended import Corpus, cut, extend, folded, measurable, relevant_items, sample
from benchmarks.limits.groups import (
    by_label,
    equal_scores,
    pieces_label,
    pieces_per_word,
    same_set_pairs,
    union_length,
)
from benchmarks.limits.kinds import breakdowns, kinds_of, same_sets, tokenizing
from benchmarks.limits.passes import limits_of, with_items_per_pass
from benchmarks.limits.reading import corpus_texts, labelled_lists, named_folders, read_models
from benchmarks.limits.scoring import per_query, score_in_batches, score_in_turn
from crossjem_pl.data.formats import write_lists
from crossjem_pl.evaluation.measures import evaluate_run
from crossjem_pl.inference import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import BM25, CrossJEM, MonoBERT
from crossjem_pl.rankers.folder import save_ranker
from crossjem_pl.text import Ragged
from tests import tiny_models
from tests.conftest import example_lists

ONE = RankingList(
    "q",
    "cheap red shoes",
    ("a", "b", "c", "d"),
    ("sofa", "red shoes", "blue shoes", "cheap lamp"),
    (0.0, 1.0, 0.0, 0.0),
    (1.0, 0.5, 2.0, 3.0),
)
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
ADDED = {"cheap red boots", "red shoes for men", "cheap shoes"}
TOKENS = {"cheap": 1, "red": 2, "shoes": 3, "lamp": 4}


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus(CORPUS)


def rows(*texts: str) -> Ragged:
    """One number per word."""
    return Ragged.from_rows([np.array([TOKENS[word] for word in text.split()]) for text in texts])


def test_a_list_gets_its_relevant_items_then_its_own_then_bm25s(corpus: Corpus) -> None:
    assert len(corpus) == 7
    found = extend(ONE, corpus, 7)
    items = found.ranking_list.items
    assert items[:4] == ("red shoes", "cheap lamp", "blue shoes", "sofa")  # first_stage 3, 2, 1
    assert set(items[4:]) == ADDED
    assert (found.added, found.unmatched) == (3, 0)
    _, scores = corpus.ranked(ONE.query)
    of = [float(scores[corpus.texts.index(text)]) for text in items[4:]]
    assert of == sorted(of, reverse=True)
    assert min(of) > 0
    assert found.ranking_list.labels == (1.0, 0, 0, 0, 0, 0, 0)
    further = extend(ONE, corpus, 9)
    assert further.ranking_list.items[:7] == items
    assert set(further.ranking_list.items[7:]) == {"hotel in rome", "paris"}
    assert (further.added, further.unmatched) == (5, 2)


def test_without_scores_the_given_order_is_the_first_stages(corpus: Corpus) -> None:
    bare = RankingList(ONE.query_id, ONE.query, ONE.item_ids, ONE.items, ONE.labels)
    assert extend(bare, corpus, 4).ranking_list.items == ("red shoes", "sofa", "blue shoes", "cheap lamp")
    assert extend(bare, corpus, 2).ranking_list.items == ("red shoes", "sofa")


def test_lists_are_nested_without_repeats_and_keep_what_is_relevant() -> None:
    lists = example_lists(12, seed=3)
    corpus = Corpus((text for one in [*lists, *example_lists(30, seed=4)] for text in one.items), seed=1)
    for one in measurable(lists, 5):
        longest = extend(one, corpus, 40).ranking_list
        assert len(longest) == 40
        added = [text for text in longest.items if text not in one.items]
        assert len({*map(folded, added), *map(folded, one.items)}) == len(added) + len(set(one.items))
        assert folded(one.query) not in map(folded, added)
        assert longest.labels is not None
        of = dict(zip(longest.item_ids, longest.labels, strict=True))
        before: set[str] = set()
        for size in (5, 9, 20, 40):
            shorter = cut(longest, size)
            assert len(shorter) == size
            assert before < set(shorter.item_ids)
            before = set(shorter.item_ids)
            relevant = [shorter.items[i] for i in relevant_items(shorter)]
            assert sorted(relevant) == sorted(one.items[i] for i in relevant_items(one))
            assert list(shorter.item_ids) == sorted(shorter.item_ids)
            assert shorter.labels == tuple(of[item] for item in shorter.item_ids)
        # nothing but the id decides where an item stands
        assert {longest.items.index(text) for text in cut(longest, 9).items} == set(range(9))


def test_the_same_seed_extends_in_the_same_way() -> None:
    lists = example_lists(6, seed=3)
    texts = [text for one in example_lists(30, seed=4) for text in one.items]
    first, again, other = ([extend(one, Corpus(texts, seed), 60) for one in lists] for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert max(one.unmatched for one in first) > 0


def test_too_small_a_corpus_says_how_many_texts_there_are(corpus: Corpus) -> None:
    with pytest.raises(ValueError, match=r"'q': 10 items .* 7 different texts make no more than 9"):
        extend(ONE, corpus, 10)
    with pytest.raises(ValueError, match="no words"):
        Corpus(["!!!"])
    with pytest.raises(ValueError, match="2 relevant items do not fit into 1"):
        extend(RankingList("q", "x", ("a", "b"), ("x", "y"), (1.0, 2.0)), corpus, 1)
    with pytest.raises(ValueError, match="has 4 items, 5"):
        cut(ONE, 5)


def test_a_query_without_words_finds_nothing_and_is_extended_all_the_same(corpus: Corpus) -> None:
    found = extend(RankingList("q", "???", ("a",), ("sofa",), (1.0,)), corpus, 4)
    assert (found.added, found.unmatched) == (3, 3)


def test_only_lists_with_something_to_find_are_drawn() -> None:
    def one(name: str, *labels: float) -> RankingList:
        ids = tuple(f"{i}" for i in range(len(labels)))
        return RankingList(name, "x", ids, tuple(f"item {i}" for i in ids), labels)

    lists = [one("none", 0, 0.5), one("all", 1, 2), one("some", 0, 2), one("long", 1, 0, 0)]
    assert [found.query_id for found in measurable(lists, 2)] == ["some", "long"]
    many = example_lists(20)
    drawn = sample(many, 5, 0)
    assert len(drawn) == 5
    assert [many.index(found) for found in drawn] == sorted(many.index(found) for found in drawn)
    assert drawn == sample(many, 5, 0) != sample(many, 5, 1)
    assert sample(many, 100, 0) == many
    with pytest.raises(ValueError, match="at least 1"):
        sample(many, 0, 0)


def test_items_of_one_set_of_tokens_are_found() -> None:
    texts = ["red shoes", "shoes red", "red red shoes", "Red Shoes", "red lamp"]
    tokens = rows("red shoes", "shoes red", "red red shoes", "red shoes", "red lamp")
    assert same_set_pairs(texts, tokens) == [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)]
    assert union_length(tokens) == 3
    scores = [1.0, 1.0, 1.0 + 1e-7, 2.0, 1.0]
    assert equal_scores(scores, same_set_pairs(texts, tokens)) == 3
    assert same_set_pairs(["a", "b"], rows("red", "lamp")) == []
    with pytest.raises(ValueError, match="2 rows of tokens for 1 texts"):
        same_set_pairs(["a"], rows("red", "lamp"))


def test_word_pieces_have_their_buckets() -> None:
    assert pieces_per_word([3, 2], [2, 2]) == 1.25
    assert pieces_per_word([0], [0]) is None
    with pytest.raises(ValueError, match="1 numbers of pieces for 2"):
        pieces_per_word([1], [1, 1])
    assert [pieces_label(ratio) for ratio in (1.0, 1.01, 1.25, 1.5, 4.0)] == [
        "1.00",
        "above 1.00, up to 1.25",
        "above 1.00, up to 1.25",
        "above 1.25, up to 1.50",
        "above 1.50",
    ]


def test_named_buckets_hold_means_and_count_what_they_leave_out() -> None:
    frame = pd.DataFrame({"a": [1.0, 0.0, 0.5], "b": [0.0, 0.0, 1.0]}, index=["x", "y", "z"])
    found = by_label("kind", {"x": "good", "y": "good"}, ["bad", "good"], frame, "RR@10")
    (bucket,) = found.buckets
    assert (bucket.label, bucket.queries, found.left_out) == ("good", 2, 1)
    assert bucket.means["a"][0] == 0.5
    assert bucket.means["a"][1:] == (0.0, 1.0)
    assert bucket.means["b"] == (0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="'good'"):
        by_label("kind", {"x": "good"}, ["bad"], frame, "RR@10")


@pytest.fixture(scope="module")
def joint(tiny_bert: str) -> CrossJEM:
    torch.manual_seed(0)
    return CrossJEM(tiny_bert, max_query_tokens=16, max_item_tokens=16, max_union_tokens=60)


def test_lists_are_told_apart_by_the_rankers_tokens(joint: CrossJEM) -> None:
    one = RankingList(
        "q",
        "cheap zebra!",
        ("a", "b", "c", "d"),
        ("red shoes", "shoes red", "red, lamp", "red,  lamp"),
        (1.0, 0.0, 0.0, 0.0),
    )
    other = RankingList("p", "red", ("a", "b"), ("sofa", "lamp"), (0.0, 0.0))
    kinds = kinds_of([one, other], joint)
    assert kinds[0].union == 4  # red, shoes, a comma that the vocabulary does not have, lamp
    assert kinds[0].pieces == (1 + 5 + 2) / 4  # zebra is letters; the mark is no word
    assert kinds[0].query_words == 2
    assert kinds[0].pairs == ((0, 1), (2, 3))
    assert (kinds[0].same_order, kinds[0].decisive) == (1, 1)
    assert (kinds[1].pairs, kinds[1].pieces, kinds[1].union) == ((), 1.0, 2)
    scores = {
        "a": [torch.tensor([1.0, 1.0, 0.0, 0.5]), torch.tensor([1.0, 0.0])],
        "b": [torch.tensor([0.0, 1.0, 3.0, 3.0]), torch.tensor([1.0, 0.0])],
    }
    same = same_sets(kinds, scores)
    assert (same.lists, same.pairs, same.same_order, same.decisive) == (1, 2, 1, 1)
    assert same.equal == {"a": 1, "b": 1}
    found = {one.property: one for one in breakdowns([one, other], kinds, scores)}
    assert [bucket.label for bucket in found["tokens in the union of the items"].buckets] == ["2", "4"]
    assert [(bucket.label, bucket.queries) for bucket in found["word pieces a word"].buckets] == [
        ("1.00", 1),
        ("above 1.50", 1),
    ]
    alike = found["different items of one set of tokens"].buckets
    assert alike[0].means["a"][0] == 0.5  # tied with b, whose id comes first in trec_eval's order
    assert alike[0].means["b"][0] == 0.25
    assert alike[1].means["a"][0] == 0
    assert found["lists"].buckets[0].queries == 2


def test_a_pass_may_hold_more_items(joint: CrossJEM, tmp_path: Path) -> None:
    words = [*tiny_models.WORDS, "4", "7"]
    lists = [RankingList.from_texts("red", words)]
    different = len(set(words))
    assert different > 60
    own = limits_of(joint, lists)
    assert (own.items, own.union_tokens, own.needed, own.passes) == (100, 60, different, 2)
    whole = with_items_per_pass(joint, 1000, lists)
    assert limits_of(whole, lists).passes == 1
    assert whole.max_union_tokens == different
    tens = limits_of(with_items_per_pass(joint, 10, lists), lists)
    assert (tens.items, tens.union_tokens, tens.needed) == (10, 60, 10)
    assert tens.passes == -(-different // 10)
    # positions for 62 tokens of a union: it cannot be raised
    narrow = CrossJEM(
        str(tiny_models.write_bert(tmp_path / "narrow", positions=60)),
        max_query_tokens=16,
        max_item_tokens=16,
        max_union_tokens=40,
    )
    kept = with_items_per_pass(narrow, 1000, lists)
    assert kept.max_union_tokens == 40
    assert limits_of(kept, lists).needed == different
    assert limits_of(kept, lists).passes == 2


def test_scores_and_metrics_are_those_of_the_reranker(joint: CrossJEM, tiny_bert: str) -> None:
    lists = example_lists(5, seed=6)
    mono = Reranker(MonoBERT(tiny_bert, max_query_tokens=16, max_item_tokens=16), "cpu")
    rerankers = {"joint": Reranker(joint, "cpu", batch_size=2), "mono": mono}
    items: list[int] = []
    found = score_in_turn(rerankers, lists, items.append)
    assert sum(items) == 2 * sum(map(len, lists))
    qrels, batches = {}, []
    for one in lists:
        assert one.labels is not None
        qrels[one.query_id] = {item: int(label) for item, label in zip(one.item_ids, one.labels, strict=True)}
    for name, reranker in rerankers.items():
        expected = [reranker.score([one])[0] for one in lists]
        batches = score_in_batches(reranker, lists, items.append)
        for got, in_batch, wanted in zip(found[name].scores, batches, expected, strict=True):
            torch.testing.assert_close(got, wanted)
            torch.testing.assert_close(in_batch, wanted, atol=1e-5, rtol=1e-5)
        assert len(found[name].milliseconds) == 5
        assert min(found[name].milliseconds) > 0
        run = {
            one.query_id: dict(zip(one.item_ids, values.tolist(), strict=True))
            for one, values in zip(lists, found[name].scores, strict=True)
        }
        reference = evaluate_run(run, qrels, ["RR@10", "AP@10"]).per_query
        measured = per_query(lists, found[name].scores)
        pd.testing.assert_frame_equal(measured.sort_index(), reference, check_exact=False, atol=1e-6)
    with pytest.raises(ValueError, match="no labels"):
        per_query([RankingList.from_texts("red", ["sofa"])], [torch.zeros(1)])


def test_tokens_are_those_of_a_joint_ranker_if_there_is_one(joint: CrossJEM, tiny_bert: str) -> None:
    mono, lexical = Reranker(MonoBERT(tiny_bert), "cpu"), Reranker(BM25(), "cpu")
    assert tokenizing({"l": lexical, "m": mono, "j": Reranker(joint, "cpu")})[0] == "j"
    assert tokenizing({"l": lexical, "m": mono})[0] == "m"
    with pytest.raises(ValueError, match="none of the models"):
        tokenizing({"l": lexical})


def write_rows(path: Path, lists: Sequence[RankingList], **columns: Sequence[Any]) -> Path:
    """Canonical rows with further columns, gzip."""
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for i, one in enumerate(lists):
            row: dict[str, Any] = {"query_id": one.query_id, "query": one.query, "item_ids": one.item_ids}
            row |= {"items": one.items, "labels": one.labels}
            file.write(json.dumps({**row, **{name: values[i] for name, values in columns.items()}}) + "\n")
    return path


@pytest.fixture(scope="module")
def models(joint: CrossJEM, tiny_bert: str, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(1)
    save_ranker(MonoBERT(tiny_bert, max_query_tokens=16, max_item_tokens=16), folder / "mono")
    save_ranker(joint, folder / "joint")
    save_ranker(BM25(), folder / "bm25")
    return {name: str(folder / name) for name in ("mono", "joint", "bm25")}


@pytest.fixture(scope="module")
def lists_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lists = example_lists(10, seed=8)
    twins = ("red shoes", "shoes red", "sofa for two", "shoes shoes red")
    lists.append(RankingList("twins", "red shoes", ("a", "b", "c", "d"), twins, (1.0, 0.0, 0.0, 0.0)))
    lists.append(RankingList("nothing", "red", ("a", "b"), ("sofa", "lamp"), (0.0, 0.0)))
    scores = [list(map(float, range(len(one)))) for one in lists]
    return write_rows(tmp_path_factory.mktemp("lists") / "dev.jsonl.gz", lists, first_stage=scores)


def arguments(models: Mapping[str, str], lists: Path, out: Path) -> list[str]:
    named = [part for name, folder in models.items() for part in ("--model", f"{name}={folder}")]
    return [*named, "--lists", str(lists), "--out", str(out), "--device", "cpu", "--threads", "1"]


def test_the_program_writes_json_page_and_plot(
    models: Mapping[str, str], lists_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = tmp_path / "train.parquet"
    write_lists(example_lists(20, seed=9), more)
    table = tmp_path / "texts.tsv"
    table.write_text("1\thotel near rome\n2\tred shoes for running\n", encoding="utf-8")
    out = tmp_path / "out"
    sizes = ["--items", "10", "5", "30", "--queries", "6", "--passes", "5", "100"]
    files = ["--corpus", str(more), "--corpus", str(table)]
    assert main([*arguments(models, lists_file, out), *sizes, *files]) == 0
    assert "wrote" in capsys.readouterr().out
    found = json.loads((out / "limits.json").read_text())
    assert found["lists"] == {"file": "dev.jsonl.gz", "all": 12, "first_stage": True}
    assert found["corpus"]["files"] == ["dev.jsonl.gz", "train.parquet", "texts.tsv"]
    assert (found["sample"]["lists"], found["sample"]["measurable"]) == (6, 11)
    assert found["sample"]["added"] > 20
    assert [(row["items"], row["model"]) for row in found["by_items"]] == [
        (size, name) for size in (5, 10, 30) for name in models
    ]
    for row in [*found["by_items"], *found["by_passes"]]:
        assert 0 <= row["RR@10"]["low"] <= row["RR@10"]["mean"] <= row["RR@10"]["high"] <= 1
        assert row["milliseconds"] > 0
    at = {(row["model"], row["items"]): row for row in found["by_items"]}
    assert at["mono", 5]["against"] == {"RR@10": None, "AP@10": None}
    difference = at["bm25", 30]["against"]["RR@10"]
    means = [at[name, 30]["RR@10"]["mean"] for name in ("bm25", "mono")]
    assert difference["mean"] == pytest.approx(means[0] - means[1])
    assert 0 < difference["p"] <= 1
    passes = {row["limits"]: row for row in found["by_passes"]}
    assert list(passes) == ["its own", "5", "100"]
    assert {row["model"] for row in found["by_passes"]} == {"joint"}
    assert passes["5"]["passes"] >= 6 > passes["100"]["passes"] == 1
    assert passes["its own"]["RR@10"] == at["joint", 30]["RR@10"]
    assert passes["its own"]["against"]["RR@10"] is None
    assert passes["5"]["against"]["RR@10"] is not None
    assert found["kinds"] == {"lists": 12, "metric": "RR@10", "without_relevant": 1}
    assert found["tokens_of"] == "joint"
    for breakdown in found["breakdowns"]:
        assert sum(bucket["queries"] for bucket in breakdown["buckets"]) == 12
        assert all(set(bucket["means"]) == set(models) for bucket in breakdown["buckets"])
    same = found["same_sets"]
    assert same["pairs"] >= 3
    assert same["equal"]["joint"] == same["pairs"]  # one embedding for a token, and the mean of the same ones
    assert same["equal"]["mono"] < same["pairs"]
    assert found["truncated"] == {"mono": 0, "joint": 0, "bm25": 0}
    page = (out / "limits.md").read_text()
    assert f"| joint | 30 | {at['joint', 30]['RR@10']['mean']:.4f} [" in page
    assert "6 lists, drawn with seed 0 from the 11" in page
    assert "| joint | 100 (its own) | 60 |" in page
    assert "though nobody has judged it" in page
    assert str(tmp_path) not in page
    assert str(lists_file.parent) not in (out / "limits.json").read_text()
    assert (out / "limits.png").stat().st_size > 1000


def test_a_smoke_run_says_so_and_needs_no_joint_ranker(
    models: Mapping[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lists = tmp_path / "dev.parquet"
    write_lists(example_lists(60, seed=2), lists)
    out = tmp_path / "out"
    assert main([*arguments({"mono": models["mono"]}, lists, out), "--smoke"]) == 0
    found = json.loads((out / "limits.json").read_text())
    assert (found["items"], found["sample"]["lists"], found["kinds"]["lists"]) == ([10, 30], 5, 50)
    assert (found["lists"]["first_stage"], found["by_passes"]) == (False, [])
    page = (out / "limits.md").read_text()
    assert "smoke run" in page
    assert "None of the models is a CROSS-JEM" in page
    assert "the order in the file" in page


def test_files_are_read_for_what_they_hold(tmp_path: Path) -> None:
    lists = example_lists(3, seed=1)
    texts = [text for one in lists for text in one.items]
    canonical = tmp_path / "lists.jsonl"
    write_lists(lists, canonical)
    assert list(corpus_texts(canonical)) == texts
    found, ordered = labelled_lists(canonical)
    assert not ordered
    assert {one.scores for one in found} == {None}  # a teacher's scores are no first stage's
    column = write_rows(tmp_path / "ordered.jsonl.gz", lists, first_stage=[one.scores for one in lists])
    found, ordered = labelled_lists(column)
    assert ordered
    assert found == lists
    table = tmp_path / "texts.jsonl"
    table.write_text('{"id": "1", "text": "red shoes"}\n{"id": "2", "text": "lamp"}\n', encoding="utf-8")
    assert list(corpus_texts(table)) == ["red shoes", "lamp"]
    mteb = tmp_path / "mteb.jsonl"
    mteb.write_text('{"query": "red", "positive": ["red shoes"], "negative": ["sofa"]}\n', encoding="utf-8")
    assert set(corpus_texts(mteb)) == {"red shoes", "sofa"}
    ((one,), _) = labelled_lists(mteb)
    assert [one.items[i] for i in relevant_items(one)] == ["red shoes"]


def test_models_are_named_and_remember_no_texts(models: Mapping[str, str]) -> None:
    assert named_folders(["a=x/y", "b=c=d"]) == {"a": "x/y", "b": "c=d"}
    for given in (["x/y"], ["=x"], ["a="], ["a=x", "a=y"]):
        with pytest.raises(ValueError, match="--model"):
            named_folders(given)
    rerankers = read_models(dict(models), torch.device("cpu"), "float32")
    assert list(rerankers) == list(models)
    ranker = rerankers["joint"].ranker
    assert isinstance(ranker, CrossJEM)
    assert ranker.tokenizer.cache_size == 0


def test_mistakes_in_the_input_end_in_a_message(
    models: Mapping[str, str], lists_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def message(lists: Path, *options: str, named: Mapping[str, str] = models) -> str:
        assert main([*arguments(named, lists, tmp_path / "out"), *options]) == 2
        return capsys.readouterr().err

    missing, broken = tmp_path / "missing.jsonl", tmp_path / "broken.jsonl"
    broken.write_text('{"query_id": "q", "query": "red", "item_ids": ["a"]}\n', encoding="utf-8")
    assert str(missing) in message(missing)
    assert str(broken) in message(broken)
    assert str(missing) in message(lists_file, "--corpus", str(missing))
    assert str(broken) in message(lists_file, "--corpus", str(broken))
    bare = tmp_path / "bare.jsonl"
    write_lists([RankingList.from_texts("red", ["sofa"])], bare)
    assert f"{bare}: list 'query' has no labels" in message(bare)
    useless = tmp_path / "useless.jsonl"
    write_lists([RankingList("q", "red", ("a", "b"), ("sofa", "lamp"), (0.0, 0.0))], useless)
    assert f"{useless}: no list has a relevant item" in message(useless)
    assert "different texts" in message(lists_file, "--items", "5", "100000")
    assert str(tmp_path / "gone") in message(lists_file, named={"a": str(tmp_path / "gone")})
    assert "--items" in message(lists_file, "--items", "1")
    assert "--passes" in message(lists_file, "--passes", "0")
    assert "--queries" in message(lists_file, "--queries", "0")
    assert "--threads" in message(lists_file, "--threads", "0")
    assert not (tmp_path / "out").exists()
