"""LinkSO's files: its layout, its splits, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crossjem_pl.data.formats import read_lists
from crossjem_pl.data.shards import Manifest
from crossjem_pl.lists import RankingList
from crossjem_pl.prepare.linkso import prepare_linkso

COSIDF = (
    "qid1\tqid2\tscore\tlabel\n"
    "1\t11\t0.4\t0\n1\t12\t0.758667145794\t1\n1\t13\t0.4\t0\n1\t14\t0.3\t0\n1\t15\t0.2\t0\n"
    "2\t11\t0.9\t0\n3\t12\t0.9\t1\n4\t11\t1.0\t0\n6\t15\t0.5\t0\n7\t11\t0.5\t1\n"
)
TITLES = (
    "1\thow to sort a list\tbody\tanswer\n2\tgrößer 東京 ?\tbody with\ttabs\tin it\r\n3\tread a file\t\t\n"
    "4\tin no split\tb\ta\n5\tno candidates\tb\ta\n7\tthird\tb\ta\n"
    "11\tsorting lists\tb\ta\n12\tsort  list\tb\ta\n13\tsort dict\tb\ta\n14\t \tb\ta\n99\tnot wanted\tb\ta\n"
)


def linkso(folder: Path, tag: str = "java", **files: str) -> Path:
    texts = {
        "qid2all": TITLES,
        "cosidf": COSIDF,
        "train_qid": "1\n2\n5\n",
        "test_qid": "3\r\n6\r\n7\r\n",
        **files,
    }
    (folder / tag).mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / tag / f"{tag}_{name}.txt").write_bytes(text.encode("utf-8"))
    return folder


def prepared(folder: Path, out: Path, **options: Any) -> dict[str, Manifest]:
    options = {"tags": ("java",), "dev_fraction": 0.0, **options}
    return {w.folder.stem: w for w in prepare_linkso(folder, out, **options)}


def lists(path: Path) -> list[RankingList]:
    return list(read_lists(path))


def test_splits_titles_and_counts(tmp_path: Path) -> None:
    written = prepared(linkso(tmp_path / "in"), tmp_path / "out")
    assert lists(tmp_path / "out" / "train.parquet") == [
        RankingList(
            "java-1",
            "how to sort a list",
            ("12", "11", "13"),
            ("sort list", "sorting lists", "sort dict"),
            (1, 0, 0),
        ),
        RankingList("java-2", "größer 東京 ?", ("11",), ("sorting lists",), (0,)),
    ]
    assert [one.query_id for one in lists(tmp_path / "out" / "test.parquet")] == ["java-3", "java-7"]
    train, test = written["train"].counts, written["test"].counts
    assert (train["untitled_items"], train["empty_lists"]) == (2, 1), "14 is blank, 15 has no line"
    assert test["untitled_queries"] == 1
    assert "1 questions left out, they have no title" in str(written["test"])
    assert "dev" not in written


def test_tags_are_joined_and_dev_comes_from_train(tmp_path: Path) -> None:
    folder = linkso(tmp_path / "in")
    ids = range(100, 300)
    python = {
        "cosidf": "qid1\tqid2\tscore\tlabel\n" + "".join(f"{i}\t12\t0.5\t1\n" for i in (*ids, 3)),
        "qid2all": "12\tone\t\t\n3\tthree\t\t\n" + "".join(f"{i}\ttitle {i}\t\t\n" for i in ids),
        "train_qid": "".join(f"{i}\n" for i in ids),
        "test_qid": "3\n",
    }
    linkso(folder, "python", **python)
    prepared(folder, tmp_path / "out", tags=("java", "python"), dev_fraction=0.3)
    made = {
        split: {one.query_id for one in lists(tmp_path / "out" / f"{split}.parquet")}
        for split in ("train", "dev", "test")
    }
    assert made["test"] == {"java-3", "java-7", "python-3"}
    assert made["train"] | made["dev"] == {"java-1", "java-2", *(f"python-{i}" for i in ids)}
    assert not made["train"] & made["dev"]
    assert 30 < len(made["dev"]) < 90
    again = prepared(folder, tmp_path / "out", tags=("java", "python"), dev_fraction=0.3)
    assert all("was complete" in str(part) for part in again.values())
    with pytest.raises(ValueError, match=r"made with dev_fraction=0.3, now it is 0.0"):
        prepared(folder, tmp_path / "out", tags=("java", "python"))


def test_the_header_names_columns_in_any_order_and_case_or_is_not_there(tmp_path: Path) -> None:
    _, *bare = COSIDF.splitlines()
    rows = [line.split("\t") for line in bare]
    turned = ["Label\tQID2\t rank\tScore \tqid1", *(f"{d}\t{b}\t0\t{c}\t{a}" for a, b, c, d in rows)]
    for name, text in (("whole", COSIDF), ("turned", "\n".join(turned)), ("none", "\n".join(bare))):
        prepared(linkso(tmp_path / name / "in", cosidf=text), tmp_path / name)
        for part in ("train", "test"):
            assert lists(tmp_path / name / f"{part}.parquet") == lists(tmp_path / "whole" / f"{part}.parquet")


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"cosidf": "qid1\tqid2\tscore\tlabel\n1\t11\t1\n"}, "line 2: expected qid1, qid2, score, label"),
        ({"cosidf": "1\t11\thigh\t1\n"}, "line 1: expected qid1, qid2, score, label"),
        ({"cosidf": COSIDF + "1\t11\t0.1\t0\n"}, "line 12: question '1' has candidate '11' before"),
        ({"qid2all": "1 a title\n"}, "qid2all.txt, line 1: expected question id, title"),
        ({"qid2all": TITLES + "1\tagain\t\t\n"}, "line 12: question '1' has another title before"),
        ({"train_qid": "1\n1\n"}, "'1' is twice"),
        ({"train_qid": "1\n7\n"}, "'7' is twice in java_train_qid.txt and java_test_qid.txt"),
        ({"train_qid": "5\n"}, "train.parquet: there are no lists to write; 1 questions"),
    ],
)
def test_malformed_files_are_named(tmp_path: Path, files: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        prepared(linkso(tmp_path / "in", **files), tmp_path / "out")


def test_missing_files_are_told_with_those_that_are_there(tmp_path: Path) -> None:
    folder = linkso(tmp_path / "in")
    (folder / "java" / "java_cosidf.txt").rename(folder / "java" / "candidates.txt")
    with pytest.raises(FileNotFoundError, match=r"java_cosidf.txt: not found, only candidates.txt"):
        prepared(folder, tmp_path / "out")
    with pytest.raises(FileNotFoundError, match="LinkSO folder not found"):
        prepared(tmp_path / "none", tmp_path / "out")
