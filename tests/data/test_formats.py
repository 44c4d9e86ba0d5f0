"""Reading and writing of lists: layouts, kinds of files, TREC, and what every error names."""

from __future__ import annotations

import gzip
import json
import random
import re
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ir_measures
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crossjem_pl.data.formats import (
    SCHEMA,
    ReadCounts,
    content_id,
    detect_layout,
    ranked,
    read_lists,
    read_qrels,
    read_run,
    read_texts,
    read_trec,
    target_format,
    write_list_qrels,
    write_list_run,
    write_lists,
    write_qrels,
    write_run,
)
from crossjem_pl.data.formats import canonical as canonical_module
from crossjem_pl.data.formats import rows as rows_module
from crossjem_pl.lists import RankingList

LISTS = [
    RankingList("q1", "red shoes", ("a", "b"), ("red shoe", "blue shoe"), (1, 0), (0.75, 0.1)),
    RankingList(
        "q2", "tab\there, ünïcode \u2028 日本語", ("b", "c"), ("x\ny", 'say "hi"'), None, (0.5, -2.0)
    ),
    RankingList("q3", "green", ("d",), ("green hat",)),
]
ROW = {"query_id": "q1", "query": "red", "item_ids": ["a", "b"], "items": ["x", "y"], "labels": [1, 0]}


def jsonl(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def as_kind(folder: Path, kind: str, rows: list[dict[str, Any]]) -> Path:
    """The rows in one of the kinds of files that are understood."""
    path = folder / f"data{kind}"
    if kind == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif kind.startswith(".json") and not kind.startswith(".jsonl"):
        text = json.dumps(rows, indent=1).encode()
        path.write_bytes(gzip.compress(text) if kind.endswith(".gz") else text)
    else:
        text = "\n".join(json.dumps(row) for row in rows).encode()
        path.write_bytes(gzip.compress(text) if kind.endswith(".gz") else text)
    return path


KINDS = [".jsonl", ".jsonl.gz", ".ndjson", ".json", ".json.gz", ".parquet"]


# ---- canonical


@pytest.mark.parametrize("name", ["lists.jsonl", "lists.jsonl.gz", "lists.parquet", "new/folder/lists.JSONL"])
def test_canonical_round_trip_is_exact(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert write_lists(iter(LISTS), path) == 3
    assert list(read_lists(path)) == LISTS
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_gzip_output_is_reproducible(tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"
    write_lists(LISTS, first)
    write_lists(LISTS, second)
    assert first.read_bytes() == second.read_bytes()


def test_parquet_is_written_in_row_groups_of_the_stated_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canonical_module, "GROUP_LISTS", 4)
    monkeypatch.setattr(canonical_module, "GROUP_ITEMS", 7)
    many = [RankingList(f"q{i}", "x", ("a", "b"), ("x", "y"), (i, 0)) for i in range(10)]
    write_lists(many, tmp_path / "m.parquet")
    file = pq.ParquetFile(tmp_path / "m.parquet")
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [4, 4, 2]
    assert file.schema_arrow.equals(SCHEMA)
    monkeypatch.setattr(rows_module, "PARQUET_BATCH", 3)
    assert list(read_lists(tmp_path / "m.parquet")) == many


@pytest.mark.parametrize("name", ["big.jsonl", "big.json", "big.parquet"])
def test_reading_holds_a_small_part_of_the_file(tmp_path: Path, name: str) -> None:
    ids = tuple(str(i) for i in range(20))
    noise = random.Random(0)
    texts = (tuple(noise.randbytes(100).hex() for _ in ids) for _ in range(4000))
    many = (RankingList(f"q{i}", "x", ids, items) for i, items in enumerate(texts))
    path = tmp_path / name
    if name.endswith(".json"):
        write_lists(many, tmp_path / "big.jsonl")
        body = (tmp_path / "big.jsonl").read_text().rstrip("\n").replace("\n", ",")
        path.write_text(f"[{body}]")
    else:
        write_lists(many, path)
    tracemalloc.start()
    try:
        before = pa.total_allocated_bytes()
        arrow = [pa.total_allocated_bytes() - before for _ in read_lists(path)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(arrow) == 4000
    assert peak + max(arrow) < 12 << 20  # the texts alone are 16 million bytes


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    def broken() -> Iterator[RankingList]:
        yield LISTS[0]
        raise RuntimeError("source broke")

    for name in ("out.jsonl", "out.parquet"):
        path = tmp_path / name
        path.write_text("old")
        with pytest.raises(RuntimeError, match="source broke"):
            write_lists(broken(), path)
        assert path.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.jsonl", "out.parquet"]


def test_writing_nothing_or_an_id_twice_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no lists to write"):
        write_lists([], tmp_path / "out.jsonl")
    with pytest.raises(ValueError, match=r"'q1', field 'query_id': two lists"):
        write_lists([LISTS[0], LISTS[0]], tmp_path / "out.jsonl")
    assert list(tmp_path.iterdir()) == []
    assert write_lists([LISTS[0], LISTS[0]], tmp_path / "out.jsonl", unique=False) == 2


def test_the_ending_or_the_format_picks_what_is_written(tmp_path: Path) -> None:
    assert target_format("a.run.gz") == "run"
    assert target_format("a.qrels") == "qrels"
    assert target_format("a.txt", "run") == "run"
    with pytest.raises(ValueError, match=r"a\.csv: the ending tells no format.*\.parquet"):
        target_format("a.csv")
    with pytest.raises(ValueError, match="unknown format to write 'mteb'"):
        target_format("a.jsonl", "mteb")
    with pytest.raises(ValueError, match=r"end in \.jsonl, \.jsonl\.gz, \.parquet"):
        write_lists(LISTS, tmp_path / "a.json", "canonical")
    with pytest.raises(ValueError, match="got a folder"):
        write_lists(LISTS[:1], tmp_path, "run")


def test_integer_ids_become_texts(tmp_path: Path) -> None:
    (one,) = read_lists(jsonl(tmp_path / "a.jsonl", ROW | {"query_id": 12, "item_ids": [3, 4]}))
    assert (one.query_id, one.item_ids) == ("12", ("3", "4"))


def test_another_column_as_scores_or_labels(tmp_path: Path) -> None:
    row = ROW | {"first_stage": [9.5, 8], "clicks": [0, 3], "scores": [0.1, 0.2]}
    for kind in (".jsonl", ".parquet"):
        path = as_kind(tmp_path, kind, [row])
        counts = ReadCounts()
        (one,) = read_lists(path, labels_field="clicks", scores_field="first_stage", counts=counts)
        assert (one.labels, one.scores) == ((0.0, 3.0), (9.5, 8.0))
        assert sorted(counts.not_carried) == ["labels", "scores"]
        assert (counts.lists, counts.items) == (1, 2)
        (bare,) = read_lists(path, labels_field=None, scores_field=None)
        assert (bare.labels, bare.scores) == (None, None)
        with pytest.raises(ValueError, match=r"1, field 'bm25': is missing \(found: query_id, query"):
            list(read_lists(path, scores_field="bm25"))


def test_null_labels_are_no_labels_but_a_named_column_may_not_be_null(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", ROW | {"labels": None, "clicks": None})
    assert next(iter(read_lists(path))).labels is None
    with pytest.raises(ValueError, match="line 1, field 'clicks': is null"):
        list(read_lists(path, labels_field="clicks"))


BAD_FIELDS = [
    ("query_id", None, "is null"),
    ("query_id", "", "blank"),
    ("query_id", 1.5, "expected a text, got float 1.5"),
    ("query_id", True, "expected a text, got bool"),
    ("query", " ", "blank"),
    ("query", ["red"], "expected a text, got list"),
    ("query", "half \ud83d", "half a surrogate pair"),
    ("items", "x", "expected a list, got str 'x'"),
    ("items", ["x", ""], "position 1: the text is blank"),
    ("items", ["x", None], "position 1: expected a text, got NoneType"),
    ("item_ids", ["a", "a"], "id 'a' occurs more than once"),
    ("item_ids", ["a"], "1 ids for 2 items"),
    ("item_ids", ["a", 2.0], "position 1: expected a text"),
    ("labels", [1], "1 values for 2 entries of 'items'"),
    ("labels", [1, None], "position 1: expected a number, got NoneType"),
    ("labels", [1, "0"], "position 1: expected a number, got str '0'"),
    ("labels", [1, float("nan")], "position 1: expected a finite number"),
    ("labels", [1, 10**400], "position 1: expected a finite number"),
    ("labels", 1, "expected a list, got int"),
    ("scores", [float("inf"), 0], "position 0: expected a finite number"),
]


@pytest.mark.parametrize(("field", "value", "problem"), BAD_FIELDS)
def test_a_bad_field_names_file_line_and_field(tmp_path: Path, field: str, value: Any, problem: str) -> None:
    path = jsonl(tmp_path / "bad.jsonl", ROW | {"query_id": "q0"}, ROW | {field: value})
    with pytest.raises(ValueError, match="line 2") as caught:
        list(read_lists(path))
    message = str(caught.value)
    assert message.startswith(f"{path}, line 2")
    assert f"field {field!r}" in message
    assert problem in message


def test_a_row_without_a_required_field_says_what_it_has(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "bad.jsonl", ROW, {k: v for k, v in ROW.items() if k != "item_ids"})
    with pytest.raises(
        ValueError, match=r"line 2, field 'item_ids': is missing \(found: query_id, query, items"
    ):
        list(read_lists(path))


def test_parquet_errors_name_the_row(tmp_path: Path) -> None:
    path = as_kind(tmp_path, ".parquet", [ROW, ROW | {"query_id": "q2", "items": ["x", " "]}])
    with pytest.raises(
        ValueError, match=r"data\.parquet, row 2, field 'items': position 1: the text is blank"
    ):
        list(read_lists(path))


@pytest.mark.parametrize("kind", KINDS)
def test_duplicate_query_ids_name_both_places(tmp_path: Path, kind: str) -> None:
    path = as_kind(tmp_path, kind, [ROW, ROW | {"query_id": "q2"}, ROW])
    with pytest.raises(ValueError, match="field 'query_id': id 'q1' occurs before") as caught:
        list(read_lists(path))
    message = str(caught.value)
    first, last = message.split(" occurs before, in ")
    unit = "row" if kind == ".parquet" else "line"
    if ".json" in kind and "jsonl" not in kind:  # indented: the rows start on lines of their own
        text = json.dumps([ROW, ROW | {"query_id": "q2"}, ROW], indent=1).split("\n")
        numbers = [i for i, line in enumerate(text, 1) if line == " {"]
    else:
        numbers = [1, 2, 3]
    assert first.startswith(f"{path}, {unit} {numbers[2]}, field 'query_id'")
    assert last == f"{path}, {unit} {numbers[0]}"
    assert len(list(read_lists(path, unique=False))) == 3


# ---- files


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_holds_every_layout(tmp_path: Path, kind: str) -> None:
    (one,) = read_lists(as_kind(tmp_path, kind, [ROW]))
    assert one == RankingList("q1", "red", ("a", "b"), ("x", "y"), (1, 0))
    (two,) = read_lists(as_kind(tmp_path, kind, [{"query": "red", "positive": ["x"], "negative": ["y"]}]))
    assert dict(zip(two.items, two.labels or (), strict=True)) == {"x": 1.0, "y": 0.0}
    (three,) = read_lists(as_kind(tmp_path, kind, [{"query": "red", "docs": ["x", "y"], "labels": [0.5, 2]}]))
    assert (three.items, three.labels) == (("x", "y"), (0.5, 2.0))


def test_line_ends_blank_lines_byte_order_mark_and_unicode_separators(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    second = json.dumps(ROW | {"query_id": "q2", "query": "a\u2028b\u0085c"}, ensure_ascii=False)
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(ROW).encode() + b"\r\n\r\n  \n" + second.encode() + b"\r\n")
    assert [one.query for one in read_lists(path)] == ["red", "a\u2028b\u0085c"]
    path.write_bytes(path.read_bytes() + b"{}\r\n")
    with pytest.raises(ValueError, match="line 5, field"):
        list(read_lists(path))


MALFORMED: list[tuple[str, bytes, str]] = [
    ("a.jsonl", b"", "no rows"),
    ("a.jsonl", b"\n \n", "no rows"),
    ("a.json", b"[ ]", "no rows"),
    ("a.jsonl.gz", gzip.compress(b""), "no rows"),
    ("a.jsonl", b'{"query": ', "line 1: not a JSON object on one line"),
    ("a.jsonl", b"[1]\n", "line 1: expected a JSON object, got int 1"),
    ("a.jsonl", b'"text"\n', "line 1: expected a JSON object, got str"),
    ("a.jsonl", b'{"query": 1, "query": 2}', "key 'query' occurs more than once"),
    ("a.jsonl", b"[" * 100_000, "line 1: malformed JSON array"),
    ("a.jsonl", b'{"a": ' + b"[" * 100_000, "line 1: not a JSON object"),
    ("a.jsonl", b'{"a": ' + b"1" * 5000 + b"}", "line 1: not a JSON object"),
    ("a.jsonl", b'{"a": "\xff"}', "line 1: not UTF-8"),
    ("a.json", b'[\n{"a": 1},\n{"a": "\xff"}]', "line 3: not UTF-8"),
    ("a.json", b'[\n{"a": 1},\n{"a": }]', "line 3: malformed JSON array"),
    ("a.json", b'[\n{"a": 1}\n{"a": 2}]', "line 3: malformed JSON array (expected ',' or ']'"),
    ("a.json", b'[\n{"a": 1}', "expected ',' or ']' after a row, got 'the end of the file'"),
    ("a.json", b'[{"a": 1},]', "line 1: malformed JSON array"),
    ("a.json", b'[{"a": 1}]\n7', "line 2: malformed JSON array (there is something after"),
    ("a.json", b'[{"a": 1, "a": 2}]', "key 'a' occurs more than once"),
    ("a.json", b"[3]", "line 1: expected a JSON object, got int 3"),
    ("a.json", b'[{"a": "never closed', "line 1: malformed JSON array"),
    ("a.jsonl.gz", b'{"a": 1}', "not gzip data, although the name ends in .gz"),
    ("a.parquet", b"PAR1 no", "not a readable Parquet file"),
    ("a.csv", b"query,items\n", "cannot tell the kind of file from its ending; understood: .jsonl"),
]


@pytest.mark.parametrize(("name", "content", "problem"), MALFORMED)
def test_malformed_files_are_named(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(problem)) as caught:
        list(rows_module.read_rows(path))
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.json.gz"])
def test_gzip_data_cut_off_or_damaged(tmp_path: Path, name: str) -> None:
    noise = random.Random(0)
    rows = [ROW | {"query_id": f"q{i}", "query": str(noise.random())} for i in range(2000)]
    whole = as_kind(tmp_path, name[1:], rows).read_bytes()
    path = tmp_path / name
    damaged = bytearray(whole)
    damaged[len(whole) // 2 : len(whole) // 2 + 8] = bytes(8)
    for content in (whole[: len(whole) // 2], whole[:6], whole[:-4], bytes(damaged)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.json") as caught:
            list(read_lists(path))
        assert str(caught.value).startswith(str(path))
    path.write_bytes(whole[:-4])
    with pytest.raises(ValueError, match="gzip data cut off or damaged after line"):
        list(read_lists(path))


def test_gzip_is_known_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(gzip.compress(json.dumps(ROW).encode()))
    assert len(list(read_lists(path))) == 1


def test_missing_files_are_named_at_the_call(tmp_path: Path) -> None:
    gone = tmp_path / "gone.jsonl"
    calls: list[Callable[[], object]] = [
        lambda: read_lists(gone),
        lambda: detect_layout(gone),
        lambda: read_run(gone),
        lambda: read_qrels(gone),
        lambda: read_texts(gone),
        lambda: read_trec(gone, gone, gone),
    ]
    for call in calls:
        with pytest.raises(FileNotFoundError, match=r"gone\.jsonl"):
            call()


def test_a_folder_of_shards_is_one_source_in_sorted_order(tmp_path: Path) -> None:
    for kind, names in (("jsonl", ["b.jsonl", "a.jsonl.gz"]), ("parquet", ["b.parquet", "a.parquet"])):
        folder = tmp_path / kind
        write_lists([LISTS[1], LISTS[2]], folder / names[0])
        write_lists([LISTS[0]], folder / names[1])
        (folder / "manifest.json").write_text("{}")
        (folder / ".hidden.jsonl").write_text("{}")
        assert list(read_lists(folder)) == LISTS
        write_lists([LISTS[0]], folder / f"c.{kind}")
        with pytest.raises(ValueError, match=rf"c\.{kind}, \w+ 1, field 'query_id'.*a\.{kind}.* 1$"):
            list(read_lists(folder))
    with pytest.raises(ValueError, match=r"no shards \(\*\.parquet, \*\.jsonl, \*\.jsonl\.gz\)"):
        read_lists(tmp_path)
    write_lists(LISTS, tmp_path / "jsonl" / "x.parquet")
    with pytest.raises(ValueError, match="Parquet and JSONL shards"):
        read_lists(tmp_path / "jsonl")


def test_unknown_columns_are_listed_with_the_layouts(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"question": "x", "answers": ["y"]})
    with pytest.raises(
        ValueError, match=r"no layout fits the columns question, answers; layouts understood: "
    ) as e:
        read_lists(path)
    for name in (
        "canonical (query_id, query, item_ids, items",
        "mteb (query, positive",
        "columns (query, docs",
    ):
        assert name in str(e.value)
    with pytest.raises(ValueError, match="unknown format 'csv'; layouts understood"):
        read_lists(path, "csv")
    with pytest.raises(ValueError, match="line 1, field 'docs': is missing"):
        list(read_lists(path, "columns"))


def test_two_parquet_columns_of_one_name(tmp_path: Path) -> None:
    table = pa.table([pa.array(["x"]), pa.array(["y"])], names=["query", "query"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="two columns have the same name"):
        read_lists(tmp_path / "a.parquet")


def test_extra_columns_are_told_over_all_rows(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", ROW | {"url": "u"}, ROW | {"query_id": "q2", "lang": "en", "url": "v"})
    counts = ReadCounts()
    list(read_lists(path, counts=counts))
    assert counts.not_carried == ["url", "lang"]


def test_parquet_data_damaged_behind_a_sound_footer(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_lists([RankingList(f"q{i}", "x", ("a",), (str(i) * 30,)) for i in range(500)], path)
    content = bytearray(path.read_bytes())
    content[4:1000] = b"\xff" * 996
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.parquet, after row \d+: damaged Parquet data"):
        list(read_lists(path))


# ---- MTEB rows and plain columns


def test_content_ids_are_stable_and_depend_on_the_text_alone() -> None:
    assert content_id("red shoe") == "579d4e9407130ea8368e"  # b2sum -l 80
    assert content_id("red shoe") != content_id("red shoe ")


def test_mteb_rows(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "a.jsonl", {"query": "q", "positive": ["p1", "p2"], "negative": ["n1", "n2", "n3"]}
    )
    assert detect_layout(path) == "mteb"
    (one,) = read_lists(path)
    assert one.query_id == content_id("q")
    assert one.item_ids == tuple(sorted(content_id(t) for t in ("p1", "p2", "n1", "n2", "n3")))
    assert one.item_ids == tuple(content_id(text) for text in one.items)
    assert one.labels == tuple(float(text[0] == "p") for text in one.items)


def test_mteb_fields_may_be_single_texts(tmp_path: Path) -> None:
    (one,) = read_lists(jsonl(tmp_path / "a.jsonl", {"query": "q", "positive": "p", "negative": "n"}))
    assert dict(zip(one.items, one.labels or (), strict=True)) == {"p": 1.0, "n": 0.0}
    (two,) = read_lists(jsonl(tmp_path / "a.jsonl", {"query": "q", "positive": [], "negative": ["n"]}))
    assert two.labels == (0.0,)


def test_mteb_query_lists_make_one_list_each(tmp_path: Path) -> None:
    row = {"query": ["q1", "q2", "q1"], "positive": ["p"], "negative": ["n"]}
    counts = ReadCounts()
    lists = list(read_lists(jsonl(tmp_path / "a.jsonl", row), counts=counts))
    assert [one.query_id for one in lists] == [content_id("q1"), content_id("q2")]
    assert (counts.merged_queries, counts.lists, counts.items) == (1, 2, 4)
    named = list(read_lists(jsonl(tmp_path / "a.jsonl", row | {"query_id": 5})))
    assert [one.query_id for one in named] == ["5", "5-2"]


def test_repeated_query_texts_get_numbered_ids(tmp_path: Path) -> None:
    row = {"query": "q", "positive": ["p"], "negative": ["n"]}
    counts = ReadCounts()
    lists = list(read_lists(jsonl(tmp_path / "a.jsonl", row, row, row), counts=counts))
    assert [one.query_id for one in lists] == [
        content_id("q"),
        content_id("q") + "-2",
        content_id("q") + "-3",
    ]
    assert counts.repeated_queries == 2


def test_mteb_errors(tmp_path: Path) -> None:
    good = {"query": "q", "positive": ["p"], "negative": ["n"]}
    for change, problem in (
        ({"negative": ["n", "p"]}, r"line 2, field 'negative': text is both positive and negative: 'p'"),
        ({"positive": [], "negative": []}, r"line 2, field 'positive': .*no positive and no negative"),
        ({"query": []}, r"line 2, field 'query': the list of queries is empty"),
        ({"query": ["q", ""]}, r"line 2, field 'query': position 1: the text is blank"),
        ({"positive": None}, r"line 2, field 'positive': is null"),
        ({"positive": 3}, r"line 2, field 'positive': expected a list, got int 3"),
    ):
        with pytest.raises(ValueError, match=problem):
            list(read_lists(jsonl(tmp_path / "a.jsonl", good, good | change)))
    with pytest.raises(ValueError, match="'mteb' have no field for labels"):
        read_lists(jsonl(tmp_path / "a.jsonl", good), scores_field="bm25")


def test_exact_repeats_are_merged_counted_and_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"query": "q", "positive": ["p", "p"], "negative": ["n", "n", "n"]})
    counts = ReadCounts()
    (one,) = read_lists(path, counts=counts)
    assert sorted(one.items) == ["n", "p"]
    assert (counts.merged_items, counts.items) == (3, 2)
    assert caplog.text == ""
    list(read_lists(path))
    assert "merged 3 exact repeats" in caplog.text


def test_columns_rows(tmp_path: Path) -> None:
    row = {"query": "q", "docs": ["b", "a", "b"], "labels": [1, 0, 1], "scores": [0.5, 0.25, 0.5], "note": 1}
    path = jsonl(tmp_path / "a.jsonl", row)
    assert detect_layout(path) == "columns"
    counts = ReadCounts()
    (one,) = read_lists(path, counts=counts)
    ids = (content_id("b"), content_id("a"))
    assert one == RankingList(content_id("q"), "q", ids, ("b", "a"), (1, 0), (0.5, 0.25))
    assert (counts.merged_items, counts.not_carried) == (1, ["note"])
    (bare,) = read_lists(jsonl(tmp_path / "b.jsonl", {"query_id": "7", "query": "q", "docs": ["b"]}))
    assert (bare.query_id, bare.labels, bare.scores) == ("7", None, None)


def test_columns_errors(tmp_path: Path) -> None:
    good = {"query": "q", "docs": ["a", "b"], "labels": [1, 0], "scores": [1, 0]}
    for change, problem in (
        (
            {"docs": ["a", "a"]},
            r"field 'docs': positions 0 and 1 hold the same text, 'a', with labels 1 and 0",
        ),
        ({"docs": ["a", "a"], "labels": [1, 1]}, r"field 'docs': positions 0 and 1 .* with scores 1 and 0"),
        ({"docs": [], "labels": [], "scores": []}, r"field 'docs': the list has no items"),
        ({"labels": [1]}, r"field 'labels': 1 values for 2 entries of 'docs'"),
        ({"docs": "a"}, r"field 'docs': expected a list"),
    ):
        with pytest.raises(ValueError, match=r"a\.jsonl, line 1, " + problem):
            list(read_lists(jsonl(tmp_path / "a.jsonl", good | change)))


# ---- TREC


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


def test_the_stated_tie_rule_is_the_one_that_measures_use(tmp_path: Path) -> None:
    run = {"q": {"a": 1.0, "b": 1.0, "c": 1.0}}
    write_run(run, tmp_path / "a.run")
    for relevant in "abc":
        value = ir_measures.calc_aggregate(
            [ir_measures.RR], {"q": {relevant: 1}}, read_run(tmp_path / "a.run")
        )
        assert value[ir_measures.RR] == pytest.approx(1 / (ranked(run["q"]).index(relevant) + 1))


def test_run_reading_takes_tabs_crlf_any_rank_and_interleaved_queries(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    path.write_bytes(b"q1\tQ0\tb 9 1.5 x\r\n\r\nq2 Q0 a 1 2 x\r\n q1  Q0 a 9 1e1 x\n")
    assert read_run(path) == {"q1": {"a": 10.0, "b": 1.5}, "q2": {"a": 2.0}}


BAD_RUNS = [
    (b"", "no run lines"),
    (
        b"q Q0 a 1 2 t\nq Q0 b 1 2\n",
        "line 2: expected 6 fields (query_id Q0 item_id rank score tag), found 5",
    ),
    (b"q Q0 a 1 2 t u\n", "line 1: expected 6 fields"),
    (b"q Q0 a 1 high t\n", "line 1, field 'score': expected a finite number, got 'high'"),
    (b"q Q0 a 1 nan t\n", "line 1, field 'score'"),
    (b"q Q0 a 1 inf t\n", "line 1, field 'score'"),
    (b"q Q0 \xff 1 1 t\n", "line 1: not UTF-8"),
    (b"q Q0 a 1 2 t\np Q0 a 1 2 t\nq Q0 a 2 1 t\n", "line 3, field 'item_id': query 'q' has item 'a' before"),
]


@pytest.mark.parametrize(("content", "problem"), BAD_RUNS)
def test_bad_runs(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "a.run"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.run") as caught:
        read_run(path)
    assert str(caught.value).startswith(str(path))
    assert problem in str(caught.value)


def test_bad_runs_and_qrels_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "out"
    for run, problem in (
        ({}, "the run is empty"),
        ({"q 1": {"a": 1.0}}, "field 'query_id': 'q 1' is empty or holds white space"),
        ({"q": {"a\u00a0b": 1.0}}, "field 'item_id'"),
        ({"q": {"": 1.0}}, "field 'item_id'"),
        ({"q": {"a": float("nan")}}, "query 'q', item 'a': the score nan is not finite"),
    ):
        with pytest.raises(ValueError, match=problem):
            write_run(run, path)
    with pytest.raises(ValueError, match="field 'tag'"):
        write_run({"q": {"a": 1.0}}, path, "two words")
    with pytest.raises(ValueError, match="qrels are empty"):
        write_qrels({}, path)
    with pytest.raises(ValueError, match="field 'item_id'"):
        write_qrels({"q": {"a\tb": 1}}, path)
    assert list(tmp_path.iterdir()) == []


def test_qrels_round_trip(tmp_path: Path) -> None:
    qrels = {"q2": {"a": 3, "b": 0}, "q1": {"a": -2}}
    for name in ("a.qrels", "a.qrels.gz"):
        assert write_qrels(qrels, tmp_path / name) == 3
        assert read_qrels(tmp_path / name) == qrels


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "no judgements"),
        ("q 0 a\n", "line 1: expected 4 fields (query_id iteration item_id grade), found 3"),
        ("q 0 a 1\nq 0 b 0.5\n", "line 2, field 'grade': expected an integer, got '0.5'"),
        ("q 0 a 1\n\nq 1 a 1\n", "line 3, field 'item_id': query 'q' has item 'a' before, on line 1"),
    ],
)
def test_bad_qrels(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "a.qrels"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"a\.qrels") as caught:
        read_qrels(path)
    assert str(caught.value).startswith(str(path))
    assert problem in str(caught.value)


def test_lists_become_runs_and_qrels(tmp_path: Path) -> None:
    scored = [one for one in LISTS if one.scores]
    assert write_list_run(scored, tmp_path / "a.run") == 4
    assert read_run(tmp_path / "a.run") == {"q1": {"a": 0.75, "b": 0.1}, "q2": {"b": 0.5, "c": -2.0}}
    assert write_list_qrels(LISTS[:1], tmp_path / "a.qrels") == 2
    assert (tmp_path / "a.qrels").read_text() == "q1 0 a 1\nq1 0 b 0\n"
    with pytest.raises(ValueError, match="list 'q3', field 'scores': a run needs scores"):
        write_list_run(LISTS, tmp_path / "b.run")
    with pytest.raises(ValueError, match="list 'q2', field 'labels': qrels need labels"):
        write_list_qrels(LISTS, tmp_path / "b.qrels")
    with pytest.raises(ValueError, match=r"query 'q', item 'a': qrels need integer grades, not 0\.5"):
        write_list_qrels([RankingList("q", "x", ("a",), ("y",), (0.5,))], tmp_path / "b.qrels")
    assert not list(tmp_path.glob("b*"))


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


def test_trec_files_become_lists(trec: dict[str, Any]) -> None:
    counts = ReadCounts()
    lists = list(read_trec(**trec, counts=counts))
    assert lists == [
        RankingList(
            "q2", "second\twith tab ü", ("d2", "d3", "d1"), ("two", "three", "one"), (0, 2, 0), (7, 1, 1)
        ),
        RankingList("q1", "first", ("d1",), ("one",), (0,), (0.5,)),
    ]
    assert (counts.lists, counts.items, counts.cut_items, counts.judgements_outside) == (2, 4, 0, 2)


def test_trec_depth_and_no_qrels(trec: dict[str, Any]) -> None:
    del trec["qrels"]
    counts = ReadCounts()
    lists = list(read_trec(**trec, depth=2, counts=counts))
    assert [one.item_ids for one in lists] == [("d2", "d3"), ("d1",)]
    assert [one.labels for one in lists] == [None, None]
    assert counts.cut_items == 1
    with pytest.raises(ValueError, match="depth must be at least 1, got 0"):
        read_trec(**trec, depth=0)


def test_trec_texts_as_rows(trec: dict[str, Any], tmp_path: Path) -> None:
    expected = list(read_trec(**trec))
    rows = [{"id": i, "text": t, "url": "u"} for i, t in (("d1", "one"), ("d2", "two"), ("d3", "three"))]
    for kind in KINDS:
        counts = ReadCounts()
        items = as_kind(tmp_path, kind, rows)
        assert list(read_trec(**(trec | {"items": items}), counts=counts)) == expected
        assert counts.not_carried == [f"url (of data{kind})"]


def test_trec_errors_name_id_file_and_line(trec: dict[str, Any]) -> None:
    good = {name: path.read_bytes() for name, path in trec.items()}
    cases = [
        ("items", b"d1\tone\nd2\ttwo\n", r"run, line 2, field 'item_id': item 'd3' has no text in .*items$"),
        ("queries", b"q2\tx\n", r"run, line 4, field 'query_id': query 'q1' has no text in .*queries$"),
        ("items", b"d1\tone\nd2 two\n", r"items, line 2: expected 'id<TAB>text', found no tab"),
        ("items", b"d1\tone\n\ttwo\n", r"items, line 2, field 'id': the id is blank"),
        ("items", b"d1\tone\nd2\t \n", r"items, line 2, field 'text': the text of id 'd2' is blank"),
        ("items", b"d1\tone\nd1\tuno\n", r"items, line 2, field 'id': id 'd1' occurs before"),
        ("items", b"", r"items: the file has no rows"),
        (
            "items",
            gzip.compress(b"d1\tone\nd2\ttwo\nd3\tthree\n")[:-6],
            r"items: gzip data cut off or damaged",
        ),
        (
            "run",
            b"q2 Q0 d1 1 1 t\nq1 Q0 d1 1 1 t\nq2 Q0 d2 2 0 t\n",
            r"run, line 3, .*'q2' do not stand together",
        ),
        ("run", b"q2 Q0 d1 1 1 t\nq2 Q0 d1 2 0 t\n", r"run, line 2, .*has item 'd1' before, on line 1"),
    ]
    for name, content, problem in cases:
        for other, original in good.items():
            trec[other].write_bytes(original)
        trec[name].write_bytes(content)
        with pytest.raises(ValueError, match=problem):
            list(read_trec(**trec))


def test_texts_keep_only_what_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("a\tx\nb\t\nc\tz\nb\ty\n")
    assert read_texts(path, {"a", "c", "zz"}) == {"a": "x", "c": "z"}
    with pytest.raises(ValueError, match=r"t\.tsv, line 2, field 'text': the text of id 'b' is blank"):
        read_texts(path)
