"""Click logs: the good-click rule, gathering, splits, and tables of every kind."""

from __future__ import annotations

import csv
import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from crossjem_pl.data.formats import read_lists
from crossjem_pl.data.shards import Manifest
from crossjem_pl.hashing import content_id
from crossjem_pl.lists import RankingList
from crossjem_pl.prepare.clicklog import LogOptions, prepare_log

ALL_TRAIN: dict[str, Any] = {"dev_fraction": 0.0, "test_fraction": 0.0}
HEADER = ("query", "keyword", "clicked", "dwell")


def tsv(path: Path, *rows: Sequence[Any], header: Sequence[str] = HEADER) -> Path:
    text = "".join("\t".join(map(str, row)) + "\n" for row in (header, *rows))
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def labels(out: Path, part: str = "train") -> dict[str, dict[str, float]]:
    return {
        one.query: dict(zip(one.items, one.labels or (), strict=True))
        for one in read_lists(out / f"{part}.parquet")
    }


def prepared(files: Path | list[Path], out: Path, **options: Any) -> list[Manifest]:
    return prepare_log(
        files if isinstance(files, list) else [files], out, LogOptions(**{**ALL_TRAIN, **options})
    )


def test_the_good_click_rule(tmp_path: Path) -> None:
    header = (*HEADER, "quick_back")
    log = tsv(
        tmp_path / "log.tsv",
        ("shoes", "long", 1, 30, ""),
        ("shoes", "short", 1, 29.9, ""),
        ("shoes", "not clicked", 0, 500, "false"),
        ("shoes", "flag decides", "true", 2, "no"),
        ("shoes", "quick back", "yes", 900, 1),
        ("shoes", "empty", 0, "", ""),
        header=header,
    )
    written = prepared(log, tmp_path / "out")
    expected = {"long": 1, "short": 0, "not clicked": 0, "flag decides": 1, "quick back": 0, "empty": 0}
    assert labels(tmp_path / "out")["shoes"] == expected
    assert written[0].counts["bad_clicks"] == 2
    prepared(log, tmp_path / "b", min_dwell=10)
    assert labels(tmp_path / "b")["shoes"]["short"] == 1
    prepared(log, tmp_path / "c", any_click=True)
    assert sum(labels(tmp_path / "c")["shoes"].values()) == 4


def test_clicks_of_unknown_length_need_a_decision(tmp_path: Path) -> None:
    log = tsv(tmp_path / "log.tsv", ("q", "a", 1, ""), ("q", "b", 0, ""))
    with pytest.raises(ValueError, match=r"log.tsv, line 2, field 'dwell': .*--missing-dwell"):
        prepared(log, tmp_path / "out")
    for missing, label in (("good", 1), ("bad", 0)):
        prepared(log, tmp_path / missing, missing_dwell=missing)
        assert labels(tmp_path / missing)["q"]["a"] == label


def test_repeated_rows_and_scores(tmp_path: Path) -> None:
    header = (*HEADER, "score")
    rows = [("q", "a", 1, 1, 0.25), ("q", "a", 1, 60, 0.75), ("q", "a", 1, 60, ""), ("q", "b", 0, 0, 0.5)]
    log = tsv(tmp_path / "log.tsv", *rows, header=header)
    written = prepared(log, tmp_path / "mean")
    (one,) = read_lists(tmp_path / "mean" / "train.parquet")
    assert dict(zip(one.items, one.scores or (), strict=True)) == {"a": 0.5, "b": 0.5}
    assert labels(tmp_path / "mean")["q"] == {"a": 1, "b": 0}
    assert (written[0].counts["repeated_rows"], written[0].counts["different_scores"]) == (2, 1)
    prepared(log, tmp_path / "three", min_good_clicks=3)
    assert labels(tmp_path / "three")["q"]["a"] == 0
    log = tsv(tmp_path / "half.tsv", ("q", "a", 0, 0, 0.5), ("q", "b", 0, 0, ""), header=header)
    with pytest.raises(ValueError, match="query 'q': its keyword 'b' has no score"):
        prepared(log, tmp_path / "half")


def test_texts_ids_and_rows_without_texts(tmp_path: Path) -> None:
    names = ("text", "ad", "hit", "seconds", "qid", "kid", "page")
    log = tsv(
        tmp_path / "log.tsv.gz",
        ("größe  東京", 'a 5" pipe', 1, 40, "Q1", "K1", 7),
        ("größe 東京 ", "b", 0, 0, "Q1", "K2", 7),
        (" ", "b", 0, 0, "Q2", "K2", 7),
        ("blank keyword", "", 0, 0, "Q3", "K9", 7),
        ("short", "b", 0, 0, "Q4", "K2", 7),
        header=names,
    )
    names = {"query": "text", "keyword": "ad", "clicked": "hit", "dwell": "seconds"}
    columns = {f"{name}_column": column for name, column in names.items()}
    written = prepared(log, tmp_path / "out", **columns, query_id_column="qid", keyword_id_column="kid")
    assert list(read_lists(tmp_path / "out" / "train.parquet")) == [
        RankingList("Q1", "größe 東京", ("K1", "K2"), ('a 5" pipe', "b"), (1, 0))
    ]
    assert (written[0].counts["blank_rows"], written[0].counts["short_lists"]) == (2, 1)
    assert "columns not carried: page" in str(written[0])
    prepared(log, tmp_path / "b", **columns, min_items=1)
    one = {one.query: one for one in read_lists(tmp_path / "b" / "train.parquet")}["größe 東京"]
    assert one.query_id == content_id("größe 東京")
    assert set(one.item_ids) == {content_id('a 5" pipe'), content_id("b")}


def test_lists_without_a_good_click_are_kept_unless_told(tmp_path: Path) -> None:
    rows = [("q", "a", 0, 0), ("q", "b", 0, 0), ("r", "a", 1, 60), ("r", "b", 0, 0)]
    log = tsv(tmp_path / "log.tsv", *rows)
    assert prepared(log, tmp_path / "out")[0].counts["lists_without_positive"] == 1
    assert prepared(log, tmp_path / "b", require_click=True)[0].counts["unclicked_lists"] == 1
    assert set(labels(tmp_path / "b")) == {"r"}
    with pytest.raises(ValueError, match="no lists to write; 1 queries left out, they have no good"):
        prepared(tsv(tmp_path / "none.tsv", *rows[:2]), tmp_path / "c", require_click=True)
    assert not list((tmp_path / "c").iterdir())


def rows_of(queries: int) -> list[tuple[Any, ...]]:
    return [(f"Query {q}", f"keyword {k}", int(k == q % 5), 40) for q in range(queries) for k in range(5)]


def test_the_result_does_not_depend_on_the_order_of_the_rows(tmp_path: Path) -> None:
    rows = rows_of(400)
    options = {"dev_fraction": 0.2, "test_fraction": 0.1, "lists_per_shard": 50}
    prepared(tsv(tmp_path / "a.tsv", *rows), tmp_path / "a", **options)
    random.Random(0).shuffle(rows)
    half = [tsv(tmp_path / "b.tsv", *rows[:900]), tsv(tmp_path / "c.tsv", *rows[900:])]
    prepared(half, tmp_path / "b", **options)
    seen: set[str] = set()
    for part, share in (("train", 0.7), ("dev", 0.2), ("test", 0.1)):
        first = list(read_lists(tmp_path / "a" / f"{part}.parquet"))
        assert first == list(read_lists(tmp_path / "b" / f"{part}.parquet"))
        assert len(first) == pytest.approx(400 * share, rel=0.4)
        assert not seen & {one.query for one in first}
        seen |= {one.query for one in first}
        assert sum(sum(one.labels or ()) for one in first) == len(first)
    assert len(seen) == 400
    assert len(list((tmp_path / "a" / "train.parquet").glob("*.parquet"))) > 4


def test_one_text_is_in_one_split_whatever_its_case_and_id(tmp_path: Path) -> None:
    texts = [text for q in range(60) for text in (f"Query {q}", f"query {q}")]
    rows = [(text, f"k{k}", 1, 60, f"{text}-{n}") for text in texts for n in range(2) for k in range(2)]
    log = tsv(tmp_path / "log.tsv", *rows, header=(*HEADER, "query_id"))
    prepared(log, tmp_path / "out", dev_fraction=0.3, test_fraction=0.3)
    found = [{one.casefold() for one in labels(tmp_path / "out", part)} for part in ("train", "dev", "test")]
    assert sum(map(len, found)) == 60


def test_every_kind_of_table_reads_the_same(tmp_path: Path) -> None:
    rows = [('red, "good" shoes', "a\u2028b", True, 40.0), ('red, "good" shoes', "c", False, None)]
    cells = [["" if cell is None else cell for cell in row] for row in rows]
    with (tmp_path / "log.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([HEADER, *cells])
    records = [dict(zip(HEADER, row, strict=True)) for row in rows]
    text = "".join(json.dumps(record) + "\n" for record in records)
    (tmp_path / "log.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    pd.DataFrame(records).to_parquet(tmp_path / "log.parquet")
    tsv(tmp_path / "log.tsv", *cells)
    results = []
    for name in ("log.csv", "log.jsonl.gz", "log.parquet", "log.tsv"):
        prepared(tmp_path / name, tmp_path / f"out-{name}")
        results.append(list(read_lists(tmp_path / f"out-{name}" / "train.parquet")))
    assert results[0] == results[1] == results[2] == results[3]
    assert labels(tmp_path / "out-log.csv") == {'red, "good" shoes': {"a b": 1, "c": 0}}


HEAD = "query\tkeyword\tclicked\tdwell"
JSON = '{"query": "q", "keyword": "a", "clicked": 0, "dwell": 0}\n'


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("log.tsv", f"{HEAD}\nq\ta\t1\n", "line 2: 3 cells for 4 columns"),
        ("log.tsv", f"{HEAD}\nq\ta\tperhaps\t3\n", "line 2, field 'clicked': expected true or"),
        ("log.tsv", f"{HEAD}\nq\ta\t\t3\n", "field 'clicked': is empty"),
        ("log.tsv", f"{HEAD}\nq\ta\t1\tlong\n", "field 'dwell': expected a finite number"),
        ("log.tsv", f"{HEAD}\nq\ta\t1\t-3\n", "field 'dwell': expected seconds"),
        ("log.tsv", f"{HEAD}\n", "no rows"),
        ("log.tsv", "query\tkeyword\tdwell\nq\ta\t3\n", "no column 'clicked' for the clicked; found: query, key"),
        ("log.tsv", "query\tkeyword\tclicked\nq\ta\t1\n", "neither a dwell nor a quick_back column"),
        ("log.jsonl", JSON + JSON.replace("}", ', "score": 1}'), "line 2, field 'score': rows before have no such"),
        ("log.jsonl", JSON.replace('"q"', "3"), "field 'query': expected a non-empty string, got 3"),
        ("log.tsv", f"{HEAD}\tquery_id\nq\ta\t0\t0\t1\nr\ta\t0\t0\t1\n",
         "line 2 and .*log.tsv, line 3: one id for the query 'q' and for 'r'"),
        ("log.tsv", f"{HEAD}\tkeyword_id\nq\ta\t0\t0\t1\nq\tb\t0\t0\t1\n",
         "line 2 and .*log.tsv, line 3: one id for the keyword 'a' and for 'b'"),
        ("log.tsv", f"{HEAD}\tquery_id\nq\ta\t0\t0\t\n", "line 2, field 'query_id'"),
    ],
)  # fmt: skip
def test_malformed_logs_are_named(tmp_path: Path, name: str, text: str, problem: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=problem):
        prepared(tmp_path / name, tmp_path / "out")


def test_files_and_folders_that_do_not_fit(tmp_path: Path) -> None:
    log = tsv(tmp_path / "log.tsv", ("q", "a", 1, 60), ("q", "b", 0, 0))
    other = tsv(tmp_path / "other.tsv", ("q", "a", 1, 60, 0.5), header=(*HEADER, "score"))
    with pytest.raises(ValueError, match="other columns than in"):
        prepared([log, other], tmp_path / "out")
    for files in ([log, log], []):
        with pytest.raises(ValueError, match="different and at least one"):
            prepared(files, tmp_path / "out")
    with pytest.raises(FileNotFoundError, match="not found"):
        prepared([tmp_path / "none.tsv"], tmp_path / "out")
    cut = tsv(tmp_path / "cut.tsv.gz", *rows_of(900))
    cut.write_bytes(cut.read_bytes()[:-200])
    with pytest.raises(ValueError, match=r"cut.tsv.gz: gzip data cut off"):
        prepared(cut, tmp_path / "out2")
    assert not list((tmp_path / "out2").iterdir())


def test_a_finished_folder_is_left_alone(tmp_path: Path) -> None:
    log = tsv(tmp_path / "log.tsv", ("q", "a", 1, 60), ("q", "b", 0, 0))
    first = prepared(log, tmp_path / "out")
    again = prepared(log, tmp_path / "out")
    assert [w.counts for w in again] == [w.counts for w in first]
    assert "was complete" in str(again[0])
    with pytest.raises(ValueError, match="min_items=2, now it is 1"):
        prepared(log, tmp_path / "out", min_items=1)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "dev.parquet").touch()
    with pytest.raises(ValueError, match="is there already"):
        prepared(log, tmp_path / "foreign")


def test_options_that_make_no_sense() -> None:
    fractions = {"dev_fraction": 0.5, "test_fraction": 0.5}
    for options in ({"min_items": 0}, {"dev_fraction": -0.1}, fractions, {"min_dwell": -1}):
        with pytest.raises(ValueError, match="must"):
            LogOptions(**options)  # type: ignore[arg-type]
