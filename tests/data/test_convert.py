"""`convert`: every way from a source to a target, its report, and the examples of the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from crossjem_pl.data.convert import ConvertReport, convert
from crossjem_pl.data.formats import read_lists, write_lists
from crossjem_pl.data.trec import ReadCounts, read_qrels, read_run
from crossjem_pl.hashing import content_id
from crossjem_pl.lists import RankingList
from tests.data.test_formats import jsonl

LISTS = [
    RankingList("q1", "red shoes", ("a", "b", "c"), ("red", "blue", "hat"), (2, 0, 1), (0.25, 0.75, 0.5)),
    RankingList("q2", "green", ("a",), ("red",), (0,), (1.0,)),
]
DOCS = Path(__file__).parents[2] / "docs" / "data.md"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_lists(LISTS, tmp_path / "lists.jsonl")
    return tmp_path / "lists.jsonl"


def test_jsonl_to_parquet_and_back(tmp_path: Path, source: Path) -> None:
    report = convert(source, tmp_path / "out.parquet")
    counts = ReadCounts(2, 4)
    assert report == ConvertReport(source, tmp_path / "out.parquet", "canonical", "canonical", counts)
    assert str(report) == f"{source} (canonical) -> {tmp_path / 'out.parquet'} (canonical): 2 lists, 4 items"
    convert(tmp_path / "out.parquet", tmp_path / "back.jsonl")
    assert (tmp_path / "back.jsonl").read_bytes() == source.read_bytes()


def test_lists_to_run_and_qrels_and_back(tmp_path: Path, source: Path) -> None:
    run = convert(source, tmp_path / "a.run")
    assert (run.to_format, run.counts.not_carried) == ("run", ["query", "items", "labels"])
    assert read_run(tmp_path / "a.run")["q1"] == {"b": 0.75, "c": 0.5, "a": 0.25}
    qrels = convert(source, tmp_path / "judged.txt", to_format="qrels")
    assert (qrels.to_format, qrels.counts.not_carried) == ("qrels", ["query", "items", "scores"])
    assert read_qrels(tmp_path / "judged.txt") == {"q1": {"a": 2, "b": 0, "c": 1}, "q2": {"a": 0}}
    (tmp_path / "q.tsv").write_text("q1\tred shoes\nq2\tgreen\n")
    items = jsonl(
        tmp_path / "i.jsonl", *({"id": i, "text": t} for i, t in zip("abc", LISTS[0].items, strict=True))
    )
    back = convert(
        tmp_path / "a.run",
        tmp_path / "back.parquet",
        queries=tmp_path / "q.tsv",
        items=items,
        qrels=tmp_path / "judged.txt",
    )
    assert (back.from_format, back.counts.lists, back.counts.items) == ("trec", 2, 4)
    assert list(read_lists(tmp_path / "back.parquet")) == [LISTS[0].select([1, 2, 0]), LISTS[1]]
    assert "2 judgements not carried" not in str(back)


def test_the_report_tells_merges_repeats_and_columns(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "m.jsonl",
        {"query": ["q", "q"], "positive": ["p", "p"], "negative": ["n"], "lang": "en"},
        {"query": "q", "positive": ["p"], "negative": ["n"]},
    )
    report = convert(path, tmp_path / "out.jsonl.gz")
    assert report.from_format == "mteb"
    assert report.counts == ReadCounts(
        2, 4, merged_items=1, merged_queries=1, repeated_queries=1, not_carried=["lang"]
    )
    assert len(str(report).splitlines()) == 5, "each count has its sentence"
    assert [one.query_id for one in read_lists(report.target)] == [content_id("q"), content_id("q") + "-2"]


def test_columns_that_are_named_and_columns_that_are_left(tmp_path: Path) -> None:
    row = {"query": "q", "docs": ["a", "b"], "labels": [1, 0], "bm25": [3.5, 1], "url": "u"}
    path = jsonl(tmp_path / "c.jsonl", row)
    report = convert(path, tmp_path / "o.parquet", score_column="bm25")
    (one,) = read_lists(tmp_path / "o.parquet")
    assert (one.items, one.labels, one.scores) == (("a", "b"), (1, 0), (3.5, 1))
    assert report.counts.not_carried == ["url"]


def test_arguments_that_do_not_go_together(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "o.jsonl"
    run = tmp_path / "a.run"
    convert(source, run)
    cases: list[tuple[Path, Path, dict[str, Any], str]] = [
        (source, source, {}, "the target is one of the files to read"),
        (source, tmp_path / "o.csv", {}, "the ending tells no format"),
        (source, out, {"from_format": "csv"}, "unknown format to read 'csv'; there are: auto, canonical"),
        (source, out, {"from_format": "canonical", "qrels": source}, "go with a TREC run"),
        (run, out, {}, "needs both a queries and an items file"),
        (run, out, {"queries": source, "items": source, "score_column": "x"}, "no option can name one"),
    ]
    for origin, target, options, problem in cases:
        with pytest.raises(ValueError, match=problem):
            convert(origin, target, **options)
    for name in ("queries", "items", "qrels"):
        files: dict[str, Any] = {"queries": run, "items": run, "qrels": run} | {name: tmp_path / "gone"}
        with pytest.raises(FileNotFoundError, match="gone"):
            convert(run, out, **files)
    with pytest.raises(FileNotFoundError, match="gone"):
        convert(tmp_path / "gone", out)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.run", "lists.jsonl"]


def test_an_error_in_the_source_leaves_no_target(tmp_path: Path) -> None:
    row = {"query_id": "q", "query": "x", "item_ids": ["a"], "items": ["y"]}
    path = jsonl(tmp_path / "s.jsonl", row, row)
    with pytest.raises(ValueError, match="line 2, field 'query_id'"):
        convert(path, tmp_path / "o.parquet")
    assert [p.name for p in tmp_path.iterdir()] == ["s.jsonl"]


def test_the_rows_of_the_documentation_are_readable(tmp_path: Path) -> None:
    blocks = re.findall(r"```(json|csv)\n(.*?)```", DOCS.read_text(encoding="utf-8"), flags=re.DOTALL)
    formats = []
    for i, (kind, block) in enumerate(blocks):
        path = tmp_path / f"{i}.{kind.replace('json', 'jsonl')}"
        path.write_text(block, encoding="utf-8")
        formats.append(convert(path, tmp_path / f"{i}.parquet").from_format)
    assert formats == ["canonical", "mteb", "columns", "pairs", "triplets"]


def test_the_trec_files_of_the_documentation_are_readable(tmp_path: Path) -> None:
    blocks = re.findall(
        r"```text title=\"(.*?)\"\n(.*?)```", DOCS.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    for name, text in blocks:
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert [name for name, _ in blocks] == ["bm25.run", "queries.tsv", "items.tsv", "judged.qrels"]
    report = convert(
        tmp_path / "bm25.run",
        tmp_path / "lists.jsonl",
        queries=tmp_path / "queries.tsv",
        items=tmp_path / "items.tsv",
        qrels=tmp_path / "judged.qrels",
    )
    (one,) = read_lists(report.target)
    assert one.item_ids == ("d11", "d40", "d12")
    assert one.labels == (2.0, 0.0, 0.0)
