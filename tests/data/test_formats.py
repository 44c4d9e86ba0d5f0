"""Reading and writing of lists: layouts, kinds of files, and what every error names."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crossjem_pl import files
from crossjem_pl.data import formats as formats_module
from crossjem_pl.data import rows as rows_module
from crossjem_pl.data import shards as shards_module
from crossjem_pl.data.formats import LAYOUTS, detect_layout, read_lists, write_lists
from crossjem_pl.data.rows import parse_number, read_rows
from crossjem_pl.data.sources import FileSource
from crossjem_pl.data.trec import ReadCounts
from crossjem_pl.hashing import content_id
from crossjem_pl.lists import RankingList

LISTS = [
    RankingList("q1", "red shoes", ("a", "b"), ("red shoe", "blue shoe"), (1, 0), (0.75, 0.1)),
    RankingList(
        "q2", "tab\there, ünïcode \u2028 日本語", ("b", "c"), ("x\ny", 'say "hi"'), None, (0.5, -2.0)
    ),
    RankingList("q3", "green", ("d",), ("green hat",)),
]
ROW = {"query_id": "q1", "query": "red", "item_ids": ["a", "b"], "items": ["x", "y"], "labels": [1, 0]}
KINDS = [".jsonl", ".jsonl.gz", ".ndjson", ".json", ".json.gz", ".parquet", ".arrow", "-file.arrow"]
TABLES = [".csv", ".csv.gz", ".tsv"]


def jsonl(path: Path, *rows: Any) -> Path:
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def as_kind(folder: Path, kind: str, rows: list[dict[str, Any]]) -> Path:
    """The rows in one of the kinds of files that are understood."""
    path = folder / f"data{kind}"
    if kind == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
        return path
    if kind.endswith(".arrow"):  # as datasets saves them, or as Feather
        table = pa.Table.from_pylist(rows)
        with (pa.ipc.new_file if "file" in kind else pa.ipc.new_stream)(path, table.schema) as sink:
            sink.write_table(table)
        return path
    if kind in TABLES:
        out = io.StringIO()
        delimiter = "\t" if kind == ".tsv" else ","
        writer = csv.DictWriter(out, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
        text = out.getvalue()
    else:
        array = kind.startswith(".json") and not kind.startswith(".jsonl")
        text = json.dumps(rows, indent=1) if array else "\n".join(json.dumps(row) for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if kind.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["lists.jsonl", "lists.jsonl.gz", "lists.parquet", "new/folder/lists.JSONL"])
def test_canonical_round_trip_is_exact(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert write_lists(iter(LISTS), path) == 3
    assert list(read_lists(path)) == LISTS
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    first = path.read_bytes()
    write_lists(LISTS, path)
    assert path.read_bytes() == first, "equal lists make equal files"


def test_parquet_is_written_in_row_groups_of_the_stated_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats_module, "ROW_GROUP", 4)
    monkeypatch.setattr(shards_module, "GROUP_ITEMS", 7)
    many = [RankingList(f"q{i}", "x", ("a", "b"), ("x", "y"), (i, 0)) for i in range(10)]
    write_lists(many, tmp_path / "m.parquet")
    file = pq.ParquetFile(tmp_path / "m.parquet")
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [4, 4, 2]
    texts, numbers = pa.list_(pa.string()), pa.list_(pa.float64())
    types = dict(
        zip(shards_module.FIELDS, (pa.string(), pa.string(), texts, texts, numbers, numbers), strict=True)
    )
    assert dict(zip(file.schema_arrow.names, file.schema_arrow.types, strict=True)) == types
    assert list(read_lists(tmp_path / "m.parquet")) == many


def test_what_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no lists to write"):
        write_lists([], tmp_path / "out.jsonl")
    with pytest.raises(ValueError, match=r"'q1', field 'query_id': two lists"):
        write_lists([LISTS[0], LISTS[0]], tmp_path / "out.jsonl")
    with pytest.raises(ValueError, match=r"end in \.jsonl, \.jsonl\.gz, \.parquet"):
        write_lists(LISTS, tmp_path / "a.json", "canonical")
    with pytest.raises(ValueError, match="got a folder"):
        write_lists(LISTS[:1], tmp_path, "run")
    assert list(tmp_path.iterdir()) == []
    assert write_lists([LISTS[0], LISTS[0]], tmp_path / "out.jsonl", unique=False) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_holds_every_layout(tmp_path: Path, kind: str) -> None:
    (one,) = read_lists(as_kind(tmp_path, kind, [ROW]))
    assert one == RankingList("q1", "red", ("a", "b"), ("x", "y"), (1, 0))
    (two,) = read_lists(as_kind(tmp_path, kind, [{"query": "red", "positive": ["x"], "negative": ["y"]}]))
    assert dict(zip(two.items, two.labels or (), strict=True)) == {"x": 1.0, "y": 0.0}


@pytest.mark.parametrize("name", ["big.jsonl", "big.parquet"])
def test_reading_holds_a_small_part_of_the_file(tmp_path: Path, name: str) -> None:
    ids = tuple(str(i) for i in range(20))
    noise = random.Random(0)
    texts = (tuple(noise.randbytes(100).hex() for _ in ids) for _ in range(2400))
    many = (RankingList(f"q{i}", "x", ids, items) for i, items in enumerate(texts))
    path = tmp_path / name
    write_lists(many, path)
    tracemalloc.start()
    try:
        before = pa.total_allocated_bytes()
        arrow = [pa.total_allocated_bytes() - before for _ in read_lists(path)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(arrow) == 2400
    assert peak + max(arrow) < 8 << 20  # the texts alone are 10 million bytes


def test_line_ends_blank_lines_byte_order_mark_and_unicode_separators(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    second = json.dumps(ROW | {"query_id": "q2", "query": "a\u2028b\u0085c"}, ensure_ascii=False)
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(ROW).encode() + b"\r\n\r\n  \n" + second.encode() + b"\r\n")
    assert [one.query for one in read_lists(path)] == ["red", "a\u2028b\u0085c"]
    path.write_bytes(path.read_bytes() + b"{}\r\n")
    with pytest.raises(ValueError, match="line 5, field"):
        list(read_lists(path))


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_csv_with_any_delimiter_quotes_and_a_byte_order_mark(tmp_path: Path, delimiter: str) -> None:
    rows = [["query", "item", "label"], ['say "hi"', "a\n\nb", "1"], ["x,y;z|w\tv", "b", "0.5"]]
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows(rows)
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbf" + out.getvalue().encode())
    first, second = read_lists(path)
    assert (first.query, first.items, first.labels) == ('say "hi"', ("a\n\nb",), (1.0,))
    assert (second.query, second.items, second.labels) == ("x,y;z|w\tv", ("b",), (0.5,))


def test_tsv_has_no_quoting(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text('query\titem\n"half\tb\n')
    (one,) = read_lists(path)
    assert (one.query, one.items, one.labels) == ('"half', ("b",), None)


@pytest.mark.parametrize("text", ["1_000", "١٢", "nan", "inf", "1e999", "0x10", "1,5", "1 2"])
def test_numbers_in_text_are_strict(text: str, tmp_path: Path) -> None:
    assert parse_number(text) is None
    wanted = "number with a decimal point, as 2\\.5" if text == "1,5" else "finite number"
    with pytest.raises(ValueError, match=rf"line 2, field 'label': expected a {wanted}, got '{text}'"):
        list(read_lists(as_kind(tmp_path, ".tsv", [{"query": "q", "item": "i", "label": text}])))


def test_numbers_are_decimal_and_in_json_no_text(tmp_path: Path) -> None:
    assert [parse_number(text) for text in ("1", "-.5", "+2.", "1e-3", "")] == [1.0, -0.5, 2.0, 0.001, None]
    with pytest.raises(ValueError, match=r"line 1, field 'label': expected a finite number, got '2\.5'"):
        list(read_lists(jsonl(tmp_path / "a.jsonl", {"query": "q", "item": "i", "label": "2.5"})))


MALFORMED: list[tuple[str, bytes, str]] = [
    ("a.jsonl", b"\n \n", "no rows"),
    ("a.jsonl", b'{"query": ', "line 1: not a JSON object on one line"),
    ("a.jsonl", b'"text"\n', "line 1: expected a JSON object, got 'text'"),
    ("a.jsonl", b'{"query": 1, "query": 2}', "key 'query' occurs more than once"),
    ("a.jsonl", b'{"a": ' + b"[" * 100_000, "line 1: not a JSON object"),
    ("a.jsonl", b'{"a": "\xff"}', "line 1: not UTF-8"),
    ("a.jsonl", rb'{"\ud83d": 1}', "line 1: not a JSON object on one line (half a surrogate pair"),
    ("a.json", b'[\n{"a": 1},\n{"a": "\xff"}]', "line 3: not UTF-8"),
    ("a.json", b'[\n{"a": 1}\n{"a": 2}]', "malformed JSON array (Expecting ',' delimiter: line 3"),
    ("a.json", b'[{"a": 1}]\n7', "malformed JSON array (Extra data: line 2"),
    ("a.json", b"[3]", "row 1: expected a JSON object, got 3"),
    ("a.jsonl.gz", b'{"a": 1}', "not gzip data, although the name ends in .gz"),
    ("a.parquet", b"PAR1 no", "unreadable Parquet data"),
    ("a.csv", b"query,item\nx\n", "line 2: 1 cells for 2 columns"),
    ("a.csv", b"query,query\nx,y\n", "column names must be distinct"),
    (
        "a.csv",
        b'query,item\nx,y\nx,"y\nz,y\n',
        "line 3: malformed CSV (a quotation mark that opens a text has none",
    ),
    ("a.xlsx", b"query", "cannot tell the kind of file from its ending"),
]


@pytest.mark.parametrize(("name", "content", "problem"), MALFORMED)
def test_malformed_files_are_named(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.") as caught:
        list(read_rows(path))
    assert str(caught.value).startswith(str(path))
    assert problem in str(caught.value)


def test_values_of_any_size_make_short_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huge = "x" * 1_000_000
    good: dict[str, Any] = {"query_id": "q", "query": "red", "items": ["a"], "item_ids": ["1"]}
    rows = [{huge: 1}, *({**good, name: huge} for name in ("items", "item_ids", "labels", "scores"))]
    rows += [{**good, "labels": [huge]}, {**good, "items": [""], huge: 1}, {**good, "item_ids": [[huge]]}]
    for kind in (".jsonl", ".parquet"):
        for row in rows:
            with pytest.raises(ValueError, match=r"data\.") as caught:
                list(read_lists(as_kind(tmp_path, kind, [row])))
            assert len(str(caught.value)) < 2000
    jsonl(tmp_path / "a.jsonl", {**good, "query_id": huge}, {**good, "query_id": huge})
    with pytest.raises(ValueError, match="line 2, field 'query_id': id 'xxx") as caught:
        list(read_lists(tmp_path / "a.jsonl"))
    assert len(str(caught.value)) < 500
    monkeypatch.setattr(files, "LONGEST_LINE", 1 << 16)
    (tmp_path / "bomb.jsonl.gz").write_bytes(gzip.compress(b"0" * (1 << 20)))
    with pytest.raises(ValueError, match=r"bomb\.jsonl\.gz, line 1: longer than 0 MiB"):
        list(read_lists(tmp_path / "bomb.jsonl.gz"))


def test_a_row_that_unpacks_to_more_than_a_line_may_have_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = {"query": ["q"] * 3, "item": ["a", "b", "c" * (1 << 17)]}
    pq.write_table(pa.table(pairs), tmp_path / "bomb.parquet")
    monkeypatch.setattr(rows_module, "LONGEST_LINE", 1 << 16)
    with pytest.raises(ValueError, match=r"bomb\.parquet, row 3: longer than 0 MiB"):
        list(read_rows(tmp_path / "bomb.parquet"))


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
    (tmp_path / "packed.jsonl").write_bytes(gzip.compress(json.dumps(ROW).encode()))
    assert len(list(read_lists(tmp_path / "packed.jsonl"))) == 1, "gzip is known by its content"


def test_a_folder_of_shards_is_one_source_in_sorted_order(tmp_path: Path) -> None:
    for kind, names in (("jsonl", ["b.jsonl", "a.jsonl.gz"]), ("parquet", ["b.parquet", "a.parquet"])):
        folder = tmp_path / kind
        write_lists([LISTS[1], LISTS[2]], folder / names[0])
        write_lists([LISTS[0]], folder / names[1])
        if kind == "jsonl":
            (folder / "0.jsonl").touch()  # one shard may be empty
        (folder / "manifest.json").write_text("{}")
        (folder / ".hidden.jsonl").write_text("{}")
        assert list(read_lists(folder)) == LISTS
        write_lists([LISTS[0]], folder / f"c.{kind}")
        with pytest.raises(ValueError, match=rf"c\.{kind}, \w+ 1, field 'query_id'.*a\.{kind}.* 1$"):
            list(read_lists(folder))
    with pytest.raises(ValueError, match=r"no shards \(\*\.parquet, \*\.arrow, \*\.jsonl, \*\.jsonl\.gz\)"):
        read_lists(tmp_path)
    write_lists(LISTS, tmp_path / "jsonl" / "x.parquet")
    with pytest.raises(ValueError, match=r"shards of several kinds \(\.jsonl, \.jsonl\.gz, \.parquet\)"):
        read_lists(tmp_path / "jsonl")


def test_parquet_that_is_damaged_behind_a_sound_footer_or_repeats_a_column(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_lists([RankingList(f"q{i}", "x", ("a",), (str(i) * 30,)) for i in range(500)], path)
    content = bytearray(path.read_bytes())
    content[4:1000] = b"\xff" * 996
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.parquet: unreadable Parquet data"):
        list(read_lists(path))
    pq.write_table(pa.table([pa.array(["x"]), pa.array(["y"])], names=["query", "query"]), path)
    with pytest.raises(ValueError, match="two columns have the same name"):
        read_lists(path)


def test_integer_ids_become_texts_and_missing_ids_come_from_the_texts(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", ROW | {"query_id": 12, "item_ids": [3, 4]})
    (one,) = read_lists(path)
    assert (one.query_id, one.item_ids) == ("12", ("3", "4"))
    (bare,) = read_lists(jsonl(path, {"query": "red", "items": ["x", "y", "x"]}))
    assert bare == RankingList(content_id("red"), "red", (content_id("x"), content_id("y")), ("x", "y"))


def test_another_column_as_scores_or_labels(tmp_path: Path) -> None:
    row = ROW | {"first_stage": [9.5, 8], "clicks": [0, 3], "scores": [0.1, 0.2]}
    for kind in (".jsonl", ".parquet"):
        path = as_kind(tmp_path, kind, [row])
        counts = ReadCounts()
        (one,) = read_lists(path, label_column="clicks", score_column="first_stage", counts=counts)
        assert (one.labels, one.scores) == ((0.0, 3.0), (9.5, 8.0))
        assert sorted(counts.not_carried) == ["labels", "scores"]
        assert (counts.lists, counts.items) == (1, 2)
        (bare,) = read_lists(path, label_column=None, score_column=None)
        assert (bare.labels, bare.scores) == (None, None)
        with pytest.raises(ValueError, match=r"1, field 'bm25': is missing \(found: query_id, query"):
            list(read_lists(path, score_column="bm25"))
    path = jsonl(tmp_path / "a.jsonl", ROW | {"labels": None, "clicks": None})
    assert next(iter(read_lists(path))).labels is None
    with pytest.raises(ValueError, match="line 1, field 'clicks': is null"):
        list(read_lists(path, label_column="clicks"))


@pytest.mark.parametrize("kind", [".jsonl", ".csv", ".parquet"])
def test_columns_of_any_name(tmp_path: Path, kind: str) -> None:
    pairs = [("red", "shoe", 1, "u"), ("red", "hat", 0.5, "v")]
    names = ("keyword", "title", "clicks", "url")
    path = as_kind(tmp_path, kind, [dict(zip(names, pair, strict=True)) for pair in pairs])
    own: dict[str, Any] = {"query_column": "keyword", "item_column": "title", "label_column": "clicks"}
    expected = RankingList.from_pairs([pair[:3] for pair in pairs])
    counts = ReadCounts()
    assert list(read_lists(path, **own, counts=counts)) == expected
    assert counts.not_carried == ["url"]
    assert list(FileSource(path.name, **own).read(tmp_path)) == expected
    with pytest.raises(ValueError, match=r"no column 'topic' \(found: keyword, title"):
        read_lists(path, query_column="topic")
    with pytest.raises(ValueError, match="--query-column NAME --item-column NAME"):
        read_lists(path)
    if kind != ".csv":
        row = {"keyword": "red", "titles": ["shoe", "hat"], "labels": [1, 0.5]}
        (whole,) = read_lists(as_kind(tmp_path, kind, [row]), query_column="keyword", item_column="titles")
        assert whole == expected[0]
        row = {"keyword": "red", "titles": ["shoe", " "]}
        with pytest.raises(ValueError, match="1, field 'titles': position 1: expected a non-empty"):
            list(read_lists(as_kind(tmp_path, kind, [row]), query_column="keyword", item_column="titles"))


BAD_FIELDS = [
    ("query_id", None, "is null"),
    ("query", " ", "expected a non-empty string"),
    ("items", "x", "expected a list, got 'x'"),
    ("items", ["x", ""], "position 1: expected a non-empty string"),
    ("item_ids", ["a", "a"], "id 'a' occurs more than once"),
    ("labels", [1], "1 values for 2 entries of 'items'"),
    ("labels", [1, "0"], "position 1: expected a finite number, got '0'"),
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


@pytest.mark.parametrize(("kind", "place"), [(".jsonl", "line"), (".json", "row"), (".parquet", "row")])
def test_errors_name_the_row_and_duplicate_ids_both(tmp_path: Path, kind: str, place: str) -> None:
    path = as_kind(tmp_path, kind, [ROW, ROW | {"query_id": "q2"}, ROW])
    with pytest.raises(ValueError, match="field 'query_id': id 'q1' occurs before") as caught:
        list(read_lists(path))
    assert str(caught.value).startswith(f"{path}, {place} 3")
    assert str(caught.value).endswith(f"{path}, {place} 1")
    assert len(list(read_lists(path, unique=False))) == 3
    path = as_kind(tmp_path, kind, [ROW, ROW | {"query_id": "q2", "items": ["x", " "]}])
    with pytest.raises(
        ValueError, match=rf"{place} 2, field 'items': position 1: expected a non-empty string"
    ):
        list(read_lists(path))


def test_unknown_columns_are_listed_with_the_layouts(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"question": "x", "answers": ["y"]})
    with pytest.raises(
        ValueError, match=r"its columns, question, answers, are none .*--query-column NAME"
    ) as caught:
        read_lists(path)
    assert all(name in str(caught.value) for name in LAYOUTS)
    with pytest.raises(ValueError, match="unknown format 'csv'; there are: canonical"):
        read_lists(path, "csv")
    with pytest.raises(ValueError, match="line 1, field 'docs': is missing"):
        list(read_lists(path, "columns"))
    with pytest.raises(FileNotFoundError, match=r"gone\.jsonl"):
        read_lists(tmp_path / "gone.jsonl")


def test_mteb_rows_with_lists_of_queries_and_repeated_queries(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"query": "q", "positive": "p", "negative": ["n1", "n2"]})
    assert detect_layout(path) == "mteb"
    (one,) = read_lists(path)
    assert (one.query_id, one.item_ids) == (
        content_id("q"),
        tuple(sorted(map(content_id, ("p", "n1", "n2")))),
    )
    assert dict(zip(one.items, one.labels or (), strict=True)) == {"p": 1.0, "n1": 0.0, "n2": 0.0}
    row = {"query": ["q1", "q2", "q1"], "positive": ["p"], "negative": ["n"]}
    counts = ReadCounts()
    lists = list(read_lists(jsonl(tmp_path / "a.jsonl", row, row | {"query": "q1"}), counts=counts))
    assert [one.query_id for one in lists] == [content_id("q1"), content_id("q2"), content_id("q1") + "-2"]
    assert (counts.merged_queries, counts.repeated_queries, counts.lists, counts.items) == (1, 1, 3, 6)
    named = list(read_lists(jsonl(tmp_path / "a.jsonl", row | {"query_id": 5})))
    assert [one.query_id for one in named] == ["5", "5-2"]


def test_mteb_errors(tmp_path: Path) -> None:
    good = {"query": "q", "positive": ["p"], "negative": ["n"]}
    for change, problem in (
        ({"negative": ["n", "p"]}, r"line 2, field 'negative': text is both positive and negative: 'p'"),
        ({"positive": [], "negative": []}, r"line 2, field 'positive': .*no positive and no negative"),
        ({"positive": None}, r"line 2, field 'positive': is null"),
    ):
        with pytest.raises(ValueError, match=problem):
            list(read_lists(jsonl(tmp_path / "a.jsonl", good, good | change)))
    with pytest.raises(ValueError, match="'mteb' have no field for labels"):
        read_lists(jsonl(tmp_path / "a.jsonl", good), score_column="bm25")


def test_columns_rows_merge_exact_repeats(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    row = {"query": "q", "docs": ["b", "a", "b"], "labels": [1, 0, 1], "scores": [0.5, 0.25, 0.5], "note": 1}
    path = jsonl(tmp_path / "a.jsonl", row)
    assert detect_layout(path) == "columns"
    counts = ReadCounts()
    (one,) = read_lists(path, counts=counts)
    ids = (content_id("b"), content_id("a"))
    assert one == RankingList(content_id("q"), "q", ids, ("b", "a"), (1, 0), (0.5, 0.25))
    assert (counts.merged_items, counts.not_carried, caplog.text) == (1, ["note"], "")
    list(read_lists(path))
    assert "merged 1 exact repeat of" in caplog.text
    for change, problem in (
        ({"labels": [1, 0, 0]}, r"field 'label': query 'q', item 'b' has 0\.0 here and 1\.0 in"),
        ({"docs": [], "labels": [], "scores": []}, r"field 'docs': the list has no items"),
        ({"labels": [1]}, r"field 'labels': 1 values for 3 entries of 'docs'"),
    ):
        with pytest.raises(ValueError, match=r"a\.jsonl, line 1, .*" + problem):
            list(read_lists(jsonl(path, row | change)))


@pytest.mark.parametrize("kind", [*KINDS, *TABLES])
def test_pairs_are_grouped_by_query(tmp_path: Path, kind: str) -> None:
    columns = ("query_id", "query", "item_id", "item", "label", "bm25")
    pairs = [
        ("1", "red", "a", "shoe", 1, 2.5),
        ("2", "blue", "c", "sea", 0, 1),
        ("1", "red", "b", "hat", 0, 0.5),
    ]
    path = as_kind(tmp_path, kind, [dict(zip(columns, pair, strict=True)) for pair in pairs])
    assert detect_layout(path) == "pairs"
    counts = ReadCounts()
    assert list(read_lists(path, score_column="bm25", counts=counts)) == [
        RankingList("1", "red", ("a", "b"), ("shoe", "hat"), (1, 0), (2.5, 0.5)),
        RankingList("2", "blue", ("c",), ("sea",), (0,), (1,)),
    ]
    assert (counts.lists, counts.items, counts.not_carried) == (2, 3, [])


def test_pairs_without_ids_and_the_columns_of_sentence_transformers(tmp_path: Path) -> None:
    for item, label, problem in (
        ("hat", {}, "is missing, but other pairs"),
        ("shoe", {"label": 0}, "query 'red'"),
    ):
        rows = {"query": "red", "item": "shoe", "label": 1}, {"query": "red", "item": item, **label}
        with pytest.raises(ValueError, match=rf"a\.jsonl, line 2, field 'label': {problem}"):
            list(read_lists(jsonl(tmp_path / "a.jsonl", *rows)))
    pairs = [("red", "shoe"), ("blue", "sea"), ("red", "hat"), ("red", "shoe")]
    for columns in (("query", "item"), ("sentence1", "sentence2")):
        path = jsonl(tmp_path / "a.jsonl", *(dict(zip(columns, pair, strict=True)) for pair in pairs))
        counts = ReadCounts()
        first, second = read_lists(path, counts=counts)
        assert (first.query_id, first.items, first.labels) == (content_id("red"), ("shoe", "hat"), None)
        assert (second.item_ids, counts.merged_items) == ((content_id("sea"),), 1)
    triplets = [("red", "shoe", "sea"), ("red", "hat", ["sea", "sky"]), ("blue", "sea", None)]
    names = ("anchor", "positive", "negative")
    path = jsonl(tmp_path / "t.jsonl", *(dict(zip(names, row, strict=True)) for row in triplets))
    first, second = read_lists(path)
    assert dict(zip(first.items, first.labels or (), strict=True)) == {
        "shoe": 1,
        "hat": 1,
        "sea": 0,
        "sky": 0,
    }
    assert list(first.item_ids) == sorted(first.item_ids), "an order that tells nothing of the labels"
    assert (second.items, second.labels) == (("sea",), (1,))
