"""MTEB's re-ranking rows from folders and hub ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from crossjem_pl.data.formats import read_lists
from crossjem_pl.data.shards import Manifest
from crossjem_pl.hashing import content_id
from crossjem_pl.lists import RankingList
from crossjem_pl.prepare.reranking import prepare_reranking
from tests.data.test_formats import jsonl

ROW = {"query": "mount an ISO", "positive": ["mounting ISO images"], "negative": ["burn an ISO", "format"]}


def prepared(folder: Path, out: Path, **options: Any) -> dict[str, Manifest]:
    return {w.folder.stem: w for w in prepare_reranking(folder, out, "sodq", **options)}


def lists(path: Path) -> list[RankingList]:
    return list(read_lists(path))


def test_test_split_alone_and_odd_rows(tmp_path: Path) -> None:
    jsonl(
        tmp_path / "in" / "test.jsonl.gz",
        ROW,
        {"query": ["one\ttab", "ünï 東京", "one tab"], "positive": "a", "negative": ["b", "b", " ", "a"]},
        {"query": "no positive", "positive": [], "negative": ["x"]},
        {"query": " ", "positive": ["a"], "negative": ["x"]},
        {"query": "mount an ISO", "positive": ["p"], "negative": ["n"]},
    )
    written = prepared(tmp_path / "in", tmp_path / "out")
    assert list(written) == ["test"]
    made = lists(tmp_path / "out" / "test.parquet")
    assert [one.query for one in made] == ["mount an ISO", "one tab", "ünï 東京", "mount an ISO"]
    texts = dict(zip(made[0].items, made[0].labels or (), strict=True))
    assert texts == {"mounting ISO images": 1, "burn an ISO": 0, "format": 0}
    assert list(made[0].item_ids) == sorted(content_id(text) for text in texts)
    assert dict(zip(made[1].items, made[1].labels or (), strict=True)) == {"a": 1, "b": 0}
    assert made[3].query_id == f"{content_id('mount an ISO')}-2"
    counts = {name: count for name, count in written["test"].counts.items() if name != "items" and count}
    assert counts == {
        "lists": 4, "positives": 4, "both": 1, "untitled_items": 1, "untitled_queries": 1, "one_sided": 1,
        "merged_queries": 1, "merged_items": 2, "repeated_queries": 1,
    }  # fmt: skip


def test_dev_is_the_validation_split_or_a_part_of_train(tmp_path: Path) -> None:
    rows = [{"query": f"q{i}", "positive": ["p"], "negative": ["n"]} for i in range(300)]
    folder = tmp_path / "in"
    jsonl(folder / "train.jsonl", *rows)
    jsonl(folder / "test.jsonl", ROW)
    prepared(folder, tmp_path / "a")
    parts = {
        name: {one.query for one in lists(tmp_path / "a" / f"{name}.parquet")} for name in ("train", "dev")
    }
    assert parts["train"] | parts["dev"] == {row["query"] for row in rows}
    assert not parts["train"] & parts["dev"]
    assert 4 < len(parts["dev"]) < 35, "5%"
    assert set(prepared(folder, tmp_path / "b", dev_fraction=0)) == {"train", "test"}
    with pytest.raises(ValueError, match=r"dev.parquet: there are no lists to write"):
        prepared(folder, tmp_path / "c", dev_fraction=1e-9)
    jsonl(folder / "validation.jsonl", ROW)
    prepared(folder, tmp_path / "d")
    assert [one.query for one in lists(tmp_path / "d" / "dev.parquet")] == ["mount an ISO"]
    assert len(lists(tmp_path / "d" / "train.parquet")) == 300
    prepared(folder, tmp_path / "e", dev_fraction=0.5)
    assert len(lists(tmp_path / "e" / "dev.parquet")) > 100, "asked for, it comes from train"


def test_parquet_shards_below_folders(tmp_path: Path) -> None:
    tests = ["data/test-00000-of-00002.parquet", "data/test-00001-of-00002.parquet"]
    for name in (*tests, "train/0000.parquet"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame([{**ROW, "query": name}]).to_parquet(tmp_path / "in" / name)
    prepared(tmp_path / "in", tmp_path / "out", dev_fraction=0)
    assert [one.query for one in lists(tmp_path / "out" / "test.parquet")] == tests
    assert len(lists(tmp_path / "out" / "train.parquet")) == 1


JUDGED = {
    "corpus": [{"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(("one", " ", "three", "four"))],
    "queries": [{"_id": "q1", "text": "first\tquery"}, {"_id": "q2", "text": "second"}, {"_id": "q3", "text": " "}],
    "qrels": [{"query-id": q, "corpus-id": d, "score": s} for q, d, s in
              (("q1", "d2", 2), ("q1", "d0", 0), ("q2", "d3", 1), ("q3", "d0", 1), ("q4", "d0", 1), ("q1", "d9", 0))],
    "top_ranked": [{"query-id": "q1", "corpus-ids": ["d3", "d2", "d1", "d9"]},
                   {"query-id": "q2", "corpus-ids": ["d3"]}],
}  # fmt: skip


@pytest.mark.parametrize("top_ranked", [True, False])
@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_corpus_queries_and_judgements(tmp_path: Path, kind: str, top_ranked: bool) -> None:
    names = {"corpus": "corpus/test-00000-of-00001", "queries": "queries/test-00000-of-00001"}
    names |= {"qrels": "data/test-00000-of-00001", "top_ranked": "top_ranked/test-00000-of-00001"}
    if kind == "jsonl":
        names = {"corpus": "corpus", "queries": "queries", "qrels": "qrels/test", "top_ranked": "top_ranked"}
    for table, rows in JUDGED.items():
        path = tmp_path / "in" / f"{names[table]}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if table == "top_ranked" and not top_ranked:
            continue
        if kind == "parquet":
            pd.DataFrame(rows).to_parquet(path)
        else:
            jsonl(path, *rows)
    written = prepared(tmp_path / "in", tmp_path / "out")
    (one,) = lists(tmp_path / "out" / "test.parquet")
    kept = (
        (("d2", "d3"), ("three", "four"), (2, 0)) if top_ranked else (("d0", "d2"), ("one", "three"), (0, 2))
    )
    assert one == RankingList("q1", "first query", *kept)
    counts = [written["test"].counts[name] for name in ("one_sided", "untitled_queries", "untitled_items")]
    assert counts == [1, 2, 2 if top_ranked else 1]


def test_judgements_in_the_layout_of_beir(tmp_path: Path) -> None:
    for table in ("corpus", "queries"):
        jsonl(tmp_path / "in" / f"{table}.jsonl", *JUDGED[table])
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row.values())) for row in JUDGED["qrels"])]
    (tmp_path / "in" / "qrels").mkdir()
    (tmp_path / "in" / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    prepared(tmp_path / "in", tmp_path / "out")
    assert [one.query_id for one in lists(tmp_path / "out" / "test.parquet")] == ["q1"]
    jsonl(tmp_path / "in" / "queries.jsonl", {"_id": "q1", "text": 5})
    with pytest.raises(ValueError, match=r"queries\.jsonl, line 1, field 'text': expected a text, got 5"):
        prepared(tmp_path / "in", tmp_path / "more")
    (tmp_path / "in" / "queries.jsonl").unlink()
    with pytest.raises(ValueError, match="expected files of a corpus and of queries, found corpus alone"):
        prepared(tmp_path / "in", tmp_path / "out")


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (
            [{"_id": "1", "text": "corpus"}],
            r"line 1, field 'query': expected a text .*\(columns: _id, text\)",
        ),
        ([{**ROW, "positive": 3}], "line 1, field 'positive': expected a text or a list of texts, got int"),
        ([ROW, {**ROW, "query": None}], "line 2, field 'query'"),
        ([], "no rows"),
    ],
)
def test_other_rows_are_refused(tmp_path: Path, rows: list[Any], problem: str) -> None:
    jsonl(tmp_path / "in" / "test.jsonl", *rows)
    with pytest.raises(ValueError, match=problem):
        prepared(tmp_path / "in", tmp_path / "out")


def test_folders_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="not found"):
        prepared(tmp_path / "none", tmp_path / "out")
    (tmp_path / "in").mkdir()
    with pytest.raises(ValueError, match=r"no file of a split; expected names such as train\.jsonl\.gz"):
        prepared(tmp_path / "in", tmp_path / "out")
    jsonl(tmp_path / "in" / "test.jsonl", ROW)
    with pytest.raises(ValueError, match="no train split"):
        prepared(tmp_path / "in", tmp_path / "out", dev_fraction=0.1)
    jsonl(tmp_path / "in" / "train.jsonl", ROW)
    with pytest.raises(ValueError, match=r"in \[0, 1\)"):
        prepared(tmp_path / "in", tmp_path / "out", dev_fraction=2)
    jsonl(tmp_path / "in" / "test.jsonl.gz", ROW)
    with pytest.raises(ValueError, match="several kinds for test"):
        prepared(tmp_path / "in", tmp_path / "out")
