"""TREC runs and qrels: exact round trips, strict numbers, the join with texts, and what every error names."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crossjem_pl.data.convert import convert
from crossjem_pl.data.formats import read_lists
from crossjem_pl.data.trec import (
    ReadCounts,
    group_by_query,
    ranked,
    read_qrels,
    read_run,
    read_texts,
    read_trec,
    write_qrels,
    write_run,
)
from crossjem_pl.lists import RankingList
from tests.data.test_formats import KINDS, LISTS, as_kind


def test_ranked_breaks_ties_by_item_id_descending() -> None:
    assert ranked({"a": 1.0, "b": 2.0, "c": 1.0, "é": 1.0}) == ["b", "é", "c", "a"]


def test_run_round_trip_keeps_every_bit(tmp_path: Path) -> None:
    noise = random.Random(1)
    floats = [struct.unpack("f", noise.randbytes(4))[0] for _ in range(500)]
    scores = [x for x in floats if x == x and abs(x) != float("inf")] + [0.1, 1 / 3, 5e-324, -0.0, 1e308]
    run = {"q1": {f"d{i}": score for i, score in enumerate(scores)}, "q0": {"日本": 1.0}}
    for name in ("a.run", "a.run.gz"):
        assert write_run(run, tmp_path / name, "mine") == len(scores) + 1
        back = read_run(tmp_path / name)
        assert back == run
        assert list(back) == ["q1", "q0"]
        assert list(back["q1"]) == ranked(run["q1"])
    fields = [line.split(" ") for line in (tmp_path / "a.run").read_text().splitlines()]
    assert [int(f[3]) for f in fields] == [*range(1, len(scores) + 1), 1]
    assert {(f[1], f[5]) for f in fields} == {("Q0", "mine")}


def test_run_reading_takes_tabs_crlf_any_rank_and_interleaved_queries(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    path.write_bytes(b"q1\tQ0\tb 9 1.5 x\r\n\r\nq2 Q0 a 1 2 x\r\n q1  Q0 a 9 1e1 x\n")
    assert read_run(path) == {"q1": {"a": 10.0, "b": 1.5}, "q2": {"a": 2.0}}


@pytest.mark.parametrize(
    ("read", "text", "problem"),
    [
        (read_run, "", "no run lines"),
        (
            read_run,
            "q Q0 a 1 2 t\nq Q0 b 1 2\n",
            "line 2: expected 6 fields (query_id Q0 item_id rank score tag)",
        ),
        (read_run, "q Q0 a 1 nan t\n", "line 1, field 'score'"),
        (read_run, "q Q0 a 1 1_000 t\n", "line 1, field 'score': expected a finite number, got '1_000'"),
        (
            read_run,
            "q Q0 a 1 2 t\np Q0 a 1 2 t\nq Q0 a 2 1 t\n",
            "line 3, field 'item_id': query 'q' has item 'a'",
        ),
        (read_qrels, "", "no judgements"),
        (read_qrels, f"q 0 a {'9' * 30}\n", "line 1, field 'grade': expected an integer of at most 9 digits"),
        (read_qrels, "q 0 a \u0661\n", "line 1, field 'grade': expected an integer"),
        (read_run, "q Q0 a 1 \u0661 t\n", "line 1, field 'score': expected a finite number"),
        (
            read_qrels,
            "q 0 a 1\nq 0 b 0.5\n",
            "line 2, field 'grade': expected an integer of at most 9 digits, got",
        ),
        (read_qrels, "q 0 a 1\n\nq 1 a 1\n", "line 3, field 'item_id': query 'q' has item 'a' before"),
    ],
)
def test_bad_runs_and_qrels(tmp_path: Path, read: Callable[[Path], Any], text: str, problem: str) -> None:
    path = tmp_path / "a.trec"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"a\.trec") as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    assert problem in str(caught.value)


def test_bad_runs_and_qrels_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "out"
    for run, problem in (
        ({}, "nothing to write"),
        ({"q 1": {"a": 1.0}}, "field 'query_id': 'q 1' is empty or holds white space"),
        ({"q": {"a\u00a0b": 1.0}}, "field 'item_id'"),
        ({"q": {"": 1.0}}, "field 'item_id'"),
        ({"q": {"a": float("nan")}}, "query 'q', item 'a': the score nan is not finite"),
    ):
        with pytest.raises(ValueError, match=problem):
            write_run(run, path)
    with pytest.raises(ValueError, match="field 'tag'"):
        write_run({"q": {"a": 1.0}}, path, "two words")
    for qrels in ({}, {"q": {"a\tb": 1}}):
        with pytest.raises(ValueError, match=r"nothing to write|field 'item_id'"):
            write_qrels(qrels, path)
    assert list(tmp_path.iterdir()) == []


def test_qrels_round_trip(tmp_path: Path) -> None:
    qrels = {"q2": {"a": 3, "b": 0}, "q1": {"a": -2}}
    for name in ("a.qrels", "a.qrels.gz"):
        assert write_qrels(qrels, tmp_path / name) == 3
        assert read_qrels(tmp_path / name) == qrels


def test_lists_become_runs_and_qrels(tmp_path: Path) -> None:
    scored = [one for one in LISTS if one.scores]
    assert write_run(scored, tmp_path / "a.run") == 4
    assert read_run(tmp_path / "a.run") == {"q1": {"a": 0.75, "b": 0.1}, "q2": {"b": 0.5, "c": -2.0}}
    assert write_qrels(LISTS[:1], tmp_path / "a.qrels") == 2
    assert (tmp_path / "a.qrels").read_text() == "q1 0 a 1\nq1 0 b 0\n"
    with pytest.raises(ValueError, match="list 'q3', field 'scores': there are none to write"):
        write_run(LISTS, tmp_path / "b.run")
    with pytest.raises(ValueError, match="list 'q2', field 'labels': there are none to write"):
        write_qrels(LISTS, tmp_path / "b.qrels")
    with pytest.raises(
        ValueError, match=r"query 'q', item 'a': qrels need integer grades of at most 9 digits, not 0\.5"
    ):
        write_qrels([RankingList("q", "x", ("a",), ("y",), (0.5,))], tmp_path / "b.qrels")
    assert not list(tmp_path.glob("b*"))


def test_entries_are_grouped_by_query_in_flat_memory() -> None:
    entries = [("line 1", "q", "a", 2.0), ("line 2", "q", "b", 1.0), ("line 3", "p", "a", 0.0)]
    assert list(group_by_query(entries)) == [("q", {"a": 2.0, "b": 1.0}), ("p", {"a": 0.0})]
    with pytest.raises(ValueError, match="line 4, field 'query_id': query 'q' began at line 1 already"):
        list(group_by_query([*entries, ("line 4", "q", "c", 0.0)]))
    with pytest.raises(ValueError, match="line 4, field 'item_id': query 'p' has item 'a' before"):
        list(group_by_query([*entries, ("line 4", "p", "a", 0.0)]))


@pytest.fixture
def trec(tmp_path: Path) -> dict[str, Any]:
    files = {
        "run": b"q2 Q0 d1 1 1.0 t\r\nq2 Q0 d3 2 1.0 t\r\nq2 Q0 d2 3 7 t\r\nq1 Q0 d1 1 0.5 t\r\n",
        "queries": "q1\tfirst\r\nq2\tsecond\twith tab ü\r\nq3\tnot in the run\r\n".encode(),
        "items": gzip.compress(b"d1\tone\nd2\ttwo\nd3\tthree\nd4\t\n"),
        "qrels": b"q2 0 d3 2\nq2 0 d9 1\nq2 0 d1 0\nq3 0 d1 1\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    return {name: tmp_path / name for name in files}


def test_trec_files_become_lists(trec: dict[str, Any], tmp_path: Path) -> None:
    counts = ReadCounts()
    lists = list(read_trec(**trec, counts=counts))
    ids, items = ("d2", "d3", "d1"), ("two", "three", "one")
    assert lists == [
        RankingList("q2", "second\twith tab ü", ids, items, (0, 2, 0), (7, 1, 1)),
        RankingList("q1", "first", ("d1",), ("one",), (0,), (0.5,)),
    ]
    assert (counts.lists, counts.items, counts.judgements_outside) == (2, 4, 2)
    rows = [{"id": i, "text": t, "url": "u"} for i, t in zip(ids, items, strict=True)]
    for kind in [*KINDS, ".csv"]:
        counts = ReadCounts()
        assert list(read_trec(**(trec | {"items": as_kind(tmp_path, kind, rows)}), counts=counts)) == lists
        assert counts.not_carried == [f"url (of data{kind})"]


def test_runs_and_lists_behind_urls(
    trec: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"file://{tmp_path}"
    lists = list(read_trec(**{name: f"{url}/{name}" for name in trec}))
    assert lists == list(read_trec(**trec))
    write_run(lists, f"{url}/a.run")
    write_qrels(lists, f"{url}/a.qrels")
    assert len(read_run(tmp_path / "a.run")) == len(read_qrels(tmp_path / "a.qrels")) == 2
    (tmp_path / "a.jsonl").write_text('{"query": "q", "items": ["x"]}\n')
    convert(Path(f"{url}/a.jsonl"), Path(f"{url}/shards"), shard_size=1)
    assert len(list(read_lists(tmp_path / "shards"))) == 1
    with pytest.raises(ValueError, match="the target is one of the files to read"):
        convert(Path(f"{url}/a.jsonl"), Path(f"{url}/a.jsonl"))
    assert not (tmp_path / "file:").exists()


def test_trec_files_without_qrels_or_that_are_gone(trec: dict[str, Any]) -> None:
    without = {name: path for name, path in trec.items() if name != "qrels"}
    assert [one.labels for one in read_trec(**without)] == [None, None]
    for name in ("run", "queries", "items", "qrels"):
        with pytest.raises(FileNotFoundError, match="gone"):
            list(read_trec(**(trec | {name: Path("gone")})))


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("items", b"d1\tone\nd2\ttwo\n", r"run, line 2, field 'item_id': item 'd3' has no text in .*items$"),
        ("queries", b"q2\tx\n", r"run, line 4, field 'query_id': query 'q1' has no text in .*queries$"),
        ("items", b"d1\tone\nd2 two\n", r"items, line 2: expected 'id<TAB>text', got 'd2 two'"),
        (
            "items",
            b"d1\tone\nd2\t \n",
            r"items, line 2, field 'text' of id 'd2': expected a non-empty string, got ' '",
        ),
        ("items", b"d1\tone\nd1\tuno\n", r"items, line 2, field 'id': id 'd1' occurs before"),
        ("items", b"", r"items: the file has no rows"),
        (
            "qrels",
            b"d1 0 q2 1\n",
            r"qrels: judges no query of .*run; its first query is 'd1', the run's 'q2'",
        ),
        (
            "run",
            b"q2 Q0 d1 1 1 t\nq1 Q0 d1 1 1 t\nq2 Q0 d2 2 0 t\n",
            r"run, line 3, .*'q2' began at .*line 1",
        ),
    ],
)
def test_trec_errors_name_id_file_and_line(
    trec: dict[str, Any], name: str, content: bytes, problem: str
) -> None:
    trec[name].write_bytes(content)
    with pytest.raises(ValueError, match=problem):
        list(read_trec(**trec))


def test_texts_keep_only_what_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("a\tx\nb\t\nc\tz\nb\ty\n")
    assert read_texts(path, {"a", "c", "zz"}) == {"a": "x", "c": "z"}
    with pytest.raises(
        ValueError, match=r"t\.tsv, line 2, field 'text' of id 'b': expected a non-empty string"
    ):
        read_texts(path)
