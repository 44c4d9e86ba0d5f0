"""MS MARCO titles on small files of the upstream formats, through ir_datasets' own readers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from crossjem_pl.data.formats import read_lists
from crossjem_pl.data.shards import Manifest
from crossjem_pl.data.sources import FileSource
from crossjem_pl.lists import RankingList
from crossjem_pl.prepare import msmarco
from crossjem_pl.prepare.msmarco import TITLES, build_titles, open_titles, prepare_titles, titles_of
from tests.prepare.tiny_collection import register, title, write_gzip

numbers = itertools.count()


def official(*groups: tuple[str, list[int]]) -> str:
    return "".join(
        f"{query} Q0 D{document} {rank} {-rank / 2} IndriQueryLikelihood\n"
        for query, documents in groups
        for rank, document in enumerate(documents, 1)
    )


TRAIN = {
    "queries": "q1\tred shoes\nq2\tlamp\r\nq3\t東京 hotel\nq4\tno candidates\nq5\tfive\n",
    "qrels": "q1 0 D2 1\nq2 0 D7 1\nq3 0 D30 1\nq9 0 D1 1\nq5 0 D999 1\nq5 0 D999 1\n",
    "scoreddocs": official(
        ("q1", list(range(20))), ("q2", [7, 8, 5, 6]), ("q3", [1, 1000, 2]), ("q8", [1]), ("q5", [7, 8])
    ),
}
DEV = {"queries": "d1\tdev query\n", "qrels": "d1 0 D0 1\n", "scoreddocs": official(("d1", list(range(30))))}
TREC = {"queries": "t1\tgraded\n", "qrels": "t1 0 D3 3\nt1 0 D1 0\nt1 0 D2 2\n",
        "scoreddocs": official(("t1", [1, 2, 3, 4]))}  # fmt: skip


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    parts = {"train": TRAIN, "dev": DEV, "trec-dl-2019/judged": TREC}
    return register(tmp_path / "source", f"tiny-documents-{next(numbers)}", parts=parts)


def prepared(out: Path, dataset: str, **options: Any) -> dict[str, Manifest]:
    return {w.folder.name: w for w in prepare_titles(out, dataset=dataset, **options)}


def lists(path: Path) -> dict[str, RankingList]:
    return {one.query_id: one for one in read_lists(path)}


def test_every_part_from_the_official_candidates(tmp_path: Path, dataset: str) -> None:
    out = tmp_path / "out"
    written = prepared(out, dataset, parts=("train", "dev", "trec-dl-2019"), lists_per_shard=2)
    train = lists(out / "train.parquet")
    assert list(train) == ["q1", "q2", "q3"]
    assert train["q1"] == RankingList(
        "q1",
        "red shoes",
        tuple(f"D{i}" for i in (0, 1, 2, 3, 4, 5, 6, 9, 10, 11)),
        tuple(" ".join(title(i).split()) for i in (0, 1, 2, 3, 4, 5, 6, 9, 10, 11)),
        (0, 0, 1, 0, 0, 0, 0, 0, 0, 0),
    )
    assert train["q2"].item_ids == ("D5", "D6"), "blank titles are left out, the others kept"
    assert train["q2"].items == ("a tab in the title", "Größe – 東京 ünïcode")
    assert train["q2"].query == "lamp", "no carriage return of CRLF"
    assert train["q2"].labels == (0, 0), "no relevant item is put in unasked"
    assert train["q3"].query == "東京 hotel"
    assert len(list((out / "train.parquet").glob("*.parquet"))) == 2
    counts = dict(written["train.parquet"].counts)
    expected = {
        "lists": 3, "items": 14, "positives": 1, "lists_without_positive": 2, "blank_titles": 6, "unknown_documents": 1,
        "unknown_queries": 1, "empty_lists": 1, "queries_without_candidates": 1, "cut_items": 8, "positives_outside": 3,
        "judged_unknown_queries": 1,
    }  # fmt: skip
    assert {key: value for key, value in counts.items() if value} == expected
    told = str(written["train.parquet"])
    assert "3 lists, 14 items, 1 of them relevant" in told
    assert "6 candidates left out, their title is blank" in told

    assert len(lists(out / "dev.parquet")["d1"]) == 28, "all candidates, less the two with a blank title"
    graded = lists(out / "trec-dl-2019.parquet")["t1"]
    assert (graded.item_ids, graded.labels) == (("D1", "D2", "D3", "D4"), (0, 2, 3, 0))
    assert graded.scores is None, "scores are the teacher's field"
    assert [one.query_id for one in FileSource("train.parquet").read(out)] == ["q1", "q2", "q3"]


def test_positives_are_added_only_when_asked_for(tmp_path: Path, dataset: str) -> None:
    written = prepared(
        tmp_path / "out", dataset, parts=("train", "dev"), depth=2, dev_depth=1, add_positives=True
    )
    train = lists(tmp_path / "out" / "train.parquet")
    assert (train["q1"].item_ids, train["q1"].labels) == (("D0", "D1", "D2"), (0, 0, 1))
    assert train["q3"].item_ids == ("D1", "D2", "D30")
    assert train["q2"].item_ids == ("D5", "D6"), "its relevant document has no title"
    assert written["train.parquet"].counts["added_positives"] == 2
    assert lists(tmp_path / "out" / "dev.parquet")["d1"].item_ids == ("D0",)


def test_hdct_folder_with_ranks_and_dev_rows_with_texts(tmp_path: Path, dataset: str) -> None:
    folder = tmp_path / "hdct"
    folder.mkdir()
    (folder / "000.txt").write_bytes(b"q1\tD4\t2\r\nq1\tD3\t1\r\nq1\tD2\t1000\r\n")
    write_gzip(folder / "001.txt.gz", "q2\tD10\t1\n")
    rows = [f"d1\tdev query\tD{i}\thttp://page\ta title\tthe body of it\t{i == 0:d}\n" for i in (2, 0, 1)]
    (tmp_path / "dev.d100.tsv").write_text("".join(rows), encoding="utf-8")
    runs = {"train": folder, "dev": tmp_path / "dev.d100.tsv"}
    prepared(tmp_path / "out", dataset, parts=("train", "dev"), runs=runs)
    train = lists(tmp_path / "out" / "train.parquet")
    assert (train["q1"].item_ids, train["q1"].labels) == (("D3", "D4", "D2"), (0, 0, 1))
    assert train["q2"].item_ids == ("D10",)
    assert lists(tmp_path / "out" / "dev.parquet")["d1"].item_ids == ("D2", "D0", "D1")


def test_the_usual_file_of_documents(tmp_path: Path, dataset: str) -> None:
    rows = [f"D{i}\thttp://page/{i}\t{title(i).replace(chr(9), ' ')}\tThe body of {i}.\n" for i in range(40)]
    (tmp_path / "msmarco-docs.tsv").write_text("".join(rows), encoding="utf-8")
    prepared(tmp_path / "a", dataset, parts=("train",))
    prepared(tmp_path / "b", dataset, parts=("train",), documents=tmp_path / "msmarco-docs.tsv")
    assert lists(tmp_path / "a" / "train.parquet") == lists(tmp_path / "b" / "train.parquet")
    (tmp_path / "msmarco-docs.tsv").write_text("D0\ta title\n")
    with pytest.raises(
        ValueError, match=r"msmarco-docs.tsv, line 1: expected id, url, title and body between tabs"
    ):
        prepared(tmp_path / "c", dataset, parts=("train",), documents=tmp_path / "msmarco-docs.tsv")


def test_a_cut_off_run_goes_on_and_complete_parts_are_left_alone(
    tmp_path: Path, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"parts": ("dev", "train"), "lists_per_shard": 1}
    whole = prepared(tmp_path / "whole", dataset, **options)
    out, candidates = tmp_path / "out", msmarco.candidates

    def failing(dataset_id: str, run: Path | None) -> Iterator[tuple[str, list[str]]]:
        for number, found in enumerate(candidates(dataset_id)):
            if number == 2:
                raise KeyboardInterrupt
            yield found

    monkeypatch.setattr(msmarco, "candidates", failing)
    with pytest.raises(KeyboardInterrupt):
        prepared(out, dataset, **options)
    with pytest.raises(ValueError, match="not complete"):
        lists(out / "train.parquet")
    monkeypatch.setattr(msmarco, "candidates", candidates)
    store = (out / TITLES).stat().st_mtime_ns
    again = prepared(out, dataset, **options)
    assert "was complete" in str(again["dev.parquet"])
    assert again["train.parquet"].counts == whole["train.parquet"].counts
    assert lists(out / "train.parquet") == lists(tmp_path / "whole" / "train.parquet")
    assert (out / TITLES).stat().st_mtime_ns == store, "titles are written once"


def test_other_options_in_the_same_folder_are_refused(tmp_path: Path, dataset: str) -> None:
    prepared(tmp_path / "out", dataset, parts=("train",))
    with pytest.raises(ValueError, match="made with depth=10, now it is 5"):
        prepared(tmp_path / "out", dataset, parts=("train",), depth=5)
    (tmp_path / "empty.tsv").write_text("")
    with pytest.raises(ValueError, match="run is empty"):
        prepared(tmp_path / "out", dataset, parts=("dev",), runs={"dev": tmp_path / "empty.tsv"})
    prepared(tmp_path / "out", dataset, parts=("dev",))  # nothing had been made of the empty run
    other = register(tmp_path / "b", f"tiny-documents-{next(numbers)}", parts={"more": DEV})
    with pytest.raises(ValueError, match="holds the titles of"):
        prepared(tmp_path / "out", other, parts=("more",))
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "dev.parquet").touch()
    with pytest.raises(ValueError, match="is there already"):
        prepared(tmp_path / "foreign", dataset, parts=("dev",))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("q1\tD1\t1\nq1\tD1\t2\n", r"run.tsv, line 2.*'D1'"),
        ("q1\tD1\t1\nq2\tD1\t1\nq1\tD2\t2\n", r"line 3, .*'q1' began at .*line 1 already.*sort -s -k1,1"),
        ("q1\tD1\n", "line 1: not a line of a run; understood"),
        ("q1\tD1\t1\nq1\tD2\n", "line 2: malformed"),
        ("q1\tD1\tfirst\n", "line 1: not a line of a run"),
        ("", "run is empty"),
        ("q1\tD900\t1\n", "there are no lists to write; .*no such document"),
    ],
)
def test_a_bad_run_is_named_with_its_line(tmp_path: Path, dataset: str, text: str, problem: str) -> None:
    (tmp_path / "run.tsv").write_text(text)
    with pytest.raises(ValueError, match=problem):
        prepared(tmp_path / "out", dataset, parts=("train",), runs={"train": tmp_path / "run.tsv"})


def test_folders_of_runs_hold_nothing_else(tmp_path: Path, dataset: str) -> None:
    (tmp_path / "hdct" / "inner").mkdir(parents=True)
    with pytest.raises(ValueError, match="folders inside are not searched"):
        prepared(tmp_path / "out", dataset, runs={"train": tmp_path / "hdct"})
    (tmp_path / "hdct" / "hdct.zip").write_text("")
    with pytest.raises(ValueError, match=r"found hdct\.zip"):
        prepared(tmp_path / "out", dataset, runs={"train": tmp_path / "hdct"})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"depth": 0}, "depth must be at least 1"),
        ({"parts": ("trec-dl-2020",)}, "has no dataset"),
        ({"parts": ("dev",), "runs": {"train": Path("x")}}, "not among dev"),
    ],
)
def test_arguments_that_do_not_go_together(
    tmp_path: Path, dataset: str, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        prepared(tmp_path / "out", dataset, **options)
    assert not (tmp_path / "out").exists(), "nothing is written before the arguments are checked"


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ({**DEV, "qrels": "d1 0 D0 1\nd1 0 D0 0\n"}, "query 'd1' and document 'D0' the grades 1 and 0"),
        ({**DEV, "qrels": "d1 0 D0 high\n"}, "cannot read the judgements"),
        ({**DEV, "queries": "d1\tdev\tquery\n"}, "cannot read the queries .*expected 2 fields, got 3"),
        ({**DEV, "scoreddocs": "d1 Q0 D1 1 0.5 x\nd1 Q0 D1 2 0.4 x\n"}, "record 2.*'D1'"),
        ({**DEV, "scoreddocs": ""}, "no lists to write"),
        ({"queries": "d1\tq\n", "qrels": "d1 0 D0 1\n"}, "has no candidates"),
    ],
)
def test_bad_files_of_the_dataset(tmp_path: Path, part: dict[str, str], problem: str) -> None:
    name = register(tmp_path / "source", f"tiny-documents-{next(numbers)}", parts={"dev": part})
    with pytest.raises(ValueError, match=problem):
        prepared(tmp_path / "out", name, parts=("dev",))


def test_truncated_documents_leave_no_store(tmp_path: Path, dataset: str) -> None:
    packed = tmp_path / "source" / "docs.trec.gz"
    packed.write_bytes(packed.read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"cannot read the documents .*EOFError"):
        prepared(tmp_path / "out", dataset, parts=("dev",))
    assert not list((tmp_path / "out").iterdir())


def test_the_title_store_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "titles.sqlite"
    for documents, problem in (([("a", "one"), ("b", None), ("a", "two")], "twice"), ([], "no documents")):
        with pytest.raises(ValueError, match=problem):
            build_titles(path, "c", documents)
    assert list(tmp_path.iterdir()) == []
    build_titles(path, "c", [(f"D{i}", "" if i % 3 else f"t{i}") for i in range(1200)])
    with closing(open_titles(path, "c", None)) as store:
        titles = titles_of(store, [f"D{i}" for i in range(1300)])
    assert titles == {f"D{i}": "" if i % 3 else f"t{i}" for i in range(1200)}
