"""LinkSO's files: its layout, its splits, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crossjem_pl.data.formats import read_lists
from crossjem_pl.lists import RankingList
from crossjem_pl.prepare.linkso import prepare_linkso
from crossjem_pl.prepare.report import Written

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
        "valid_qid": "3\r\n6\r\n",
        "test_qid": "3\n7\n",
        **files,
    }
    (folder / tag).mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / tag / f"{tag}_{name}.txt").write_bytes(text.encode("utf-8"))
    return folder


def prepared(folder: Path, out: Path, **options: Any) -> dict[str, Written]:
    return {w.path.stem: w for w in prepare_linkso(folder, out, **{"tags": ("java",), **options})}


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
    assert [one.query_id for one in lists(tmp_path / "out" / "dev.parquet")] == ["java-3"]
    assert [one.query_id for one in lists(tmp_path / "out" / "test.parquet")] == ["java-3", "java-7"]
    train, dev = written["train"].counts, written["dev"].counts
    assert (train["untitled_items"], train["without_candidates"]) == (2, 1), "14 is blank, 15 has no line"
    assert (dev["untitled_queries"], dev["also_in_test"]) == (1, 1)
    assert "1 lists are test lists too" in str(written["dev"])


def test_tags_are_joined_and_dev_can_come_from_train(tmp_path: Path) -> None:
    folder = linkso(tmp_path / "in")
    ids = range(100, 300)
    python = {
        "cosidf": "qid1\tqid2\tscore\tlabel\n" + "".join(f"{i}\t12\t0.5\t1\n" for i in (*ids, 3)),
        "qid2all": "12\tone\t\t\n3\tthree\t\t\n" + "".join(f"{i}\ttitle {i}\t\t\n" for i in ids),
        "train_qid": "".join(f"{i}\n" for i in ids),
        "valid_qid": "3\n",
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
    prepared(folder, tmp_path / "again", tags=("java", "python"), dev_fraction=0.3)
    assert lists(tmp_path / "again" / "dev.parquet") == lists(tmp_path / "out" / "dev.parquet")
    with pytest.raises(ValueError, match="other options"):
        prepared(folder, tmp_path / "out", tags=("java", "python"))


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (
            {"cosidf": "1\t11\t0.4\t0\n"},
            r"cosidf.txt, line 1: expected the header qid1 qid2 score label .*'1\\t11",
        ),
        ({"cosidf": "qid1\tqid2\tscore\tlabel\n1\t11\t1\n"}, "line 2: expected 4 fields .*found 3"),
        ({"cosidf": "qid1\tqid2\tscore\tlabel\n1\t11\thigh\t1\n"}, "line 2: expected numbers"),
        (
            {"cosidf": COSIDF + "1\t11\t0.1\t0\n"},
            "line 12: question '1' has candidate '11' before, on line 2",
        ),
        ({"cosidf": "qid1\tqid2\tscore\tlabel\n"}, "no candidates"),
        ({"qid2all": "1 a title\n"}, "qid2all.txt, line 1: expected question id, title"),
        ({"qid2all": TITLES + "1\tagain\t\t\n"}, "line 12: question '1' occurs before"),
        ({"train_qid": "1\n1\n"}, "train_qid.txt, line 2: id '1' occurs before, on line 1"),
        (
            {"train_qid": "1\n7\n"},
            "train_qid.txt, line 2: question '7' is in java_test_qid.txt as well, line 2",
        ),
        ({"train_qid": "1 7\n"}, "expected one question id"),
        ({"test_qid": "\n"}, "test_qid.txt: the file has no question ids"),
        ({"train_qid": "5\n"}, r"train.parquet: there are no lists to write"),
    ],
)
def test_malformed_files_are_named(tmp_path: Path, files: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        prepared(linkso(tmp_path / "in", **files), tmp_path / "out")


def test_missing_files_are_told_with_those_that_are_there(tmp_path: Path) -> None:
    folder = linkso(tmp_path / "in")
    (folder / "java" / "java_cosidf.txt").rename(folder / "java" / "candidates.txt")
    with pytest.raises(
        FileNotFoundError, match=r"java_cosidf.txt.*java_valid_qid.txt or .*found in .*candidates"
    ):
        prepared(folder, tmp_path / "out")
    with pytest.raises(FileNotFoundError, match="LinkSO folder not found"):
        prepared(tmp_path / "none", tmp_path / "out")
    with pytest.raises(ValueError, match="between 0 and 1"):
        prepared(folder, tmp_path / "out", dev_fraction=1.0)
    with pytest.raises(ValueError, match="distinct"):
        prepared(folder, tmp_path / "out", tags=())
