"""`crossjem prepare` from the command line, and the examples of its page."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from crossjem_pl.data.formats import read_lists
from crossjem_pl.lists import RankingList
from tests.cli.conftest import Ran
from tests.conftest import root
from tests.prepare.test_linkso import linkso
from tests.prepare.tiny_collection import register

PAGE = (root() / "docs" / "prepare.md").read_text(encoding="utf-8")
WHAT = ["msmarco-titles", "sodq", "askubuntu", "scidocs", "log", "augment"]


def test_every_dataset_and_option_is_on_the_page(crossjem: Callable[..., Ran]) -> None:
    for what in WHAT:
        assert f"crossjem prepare {what}" in PAGE
        options = set(re.findall(r"--[a-z][a-z-]+", crossjem("prepare", what, "--help").out)) - {"--help"}
        assert options
        assert not {option for option in options if f"`{option}" not in PAGE and f" {option}" not in PAGE}


def test_titles_and_the_loading_of_the_folder(tmp_path: Path, crossjem: Callable[..., Ran]) -> None:
    part = {
        "queries": "q1\tred shoes\n",
        "qrels": "q1 0 D2 1\n",
        "scoreddocs": "q1 Q0 D1 1 -1.5 x\nq1 Q0 D2 2 -2.5 x\nq1 Q0 D7 3 -3.5 x\n",
    }
    dataset = register(tmp_path / "source", "tiny-documents-cli", parts={"train": part, "dev": part})
    (tmp_path / "hdct").mkdir()
    (tmp_path / "hdct" / "000.txt").write_text("q1\tD5\t1\nq1\tD2\t2\nq1\tD3\t3\n")
    command = ["prepare", "msmarco-titles", "--dataset", dataset, "--parts", "train", "dev", "--depth", "2"]
    command += ["--out", str(tmp_path / "out"), "--hdct", str(tmp_path / "hdct")]
    out = crossjem(*command).out
    assert "train.parquet: 1 list, 2 items, 1 of them relevant" in out
    assert "1 candidates left out, their title is blank" in out
    (train,) = read_lists(tmp_path / "out" / "train.parquet")
    (dev,) = read_lists(tmp_path / "out" / "dev.parquet")
    assert (train.item_ids, dev.item_ids) == (("D5", "D2"), ("D1", "D2"))
    assert "made with candidates='official'" in crossjem(*command, f"dev={tmp_path / 'hdct'}").err
    assert "two runs for part 'train'" in crossjem(*command[:-2], "--hdct", "a", "b").err
    assert crossjem("convert", tmp_path / "out" / "train.parquet", tmp_path / "all.jsonl").status == 0


def test_sodq_from_both_sources(tmp_path: Path, crossjem: Callable[..., Ran]) -> None:
    folder, mteb = linkso(tmp_path / "linkso"), tmp_path / "mteb"
    command = ("prepare", "sodq", "--linkso", folder, "--dev-fraction", 0)
    assert "train.parquet: 2 lists" in crossjem(*command, "--tags", "java", "--out", tmp_path / "out").out
    assert "javascript_qid2all.txt" in crossjem(*command, "--out", tmp_path / "three").err
    mteb.mkdir()
    (mteb / "test.jsonl").write_text('{"query": "q", "positive": ["p"], "negative": ["n"]}\n')
    for what in ("sodq", "askubuntu", "scidocs"):
        told = crossjem("prepare", what, "--mteb", mteb, "--out", tmp_path / what).out
        assert "test.parquet: 1 list, 2 items, 1 of them relevant" in told
    error = crossjem("prepare", "scidocs", "--mteb", mteb, "--out", tmp_path / "sodq").err
    assert "made with command='sodq'" in error
    error = crossjem("prepare", "sodq", "--mteb", mteb, "--tags", "java", "--out", tmp_path / "scidocs").err
    assert "--tags goes with --linkso" in error


def test_the_log_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crossjem: Callable[..., Ran]
) -> None:
    monkeypatch.chdir(tmp_path)
    (table,) = re.findall(r'^```text title="clicks.tsv"\n(.*?)^```', PAGE, flags=re.S | re.M)
    assert "\t" in table
    (tmp_path / "clicks.tsv").write_text(table, encoding="utf-8")
    found = re.findall(r"^crossjem (prepare log clicks.tsv .*)$", PAGE, flags=re.M)
    assert len(found) == 1
    out = crossjem(*shlex.split(found[0])).out
    assert "1 clicks were not good ones" in out
    assert "1 rows repeat a query and keyword" in out
    (expected,) = re.findall(r'^```json title="train.parquet"\n(.*?)^```', PAGE, flags=re.S | re.M)
    assert RankingList(**json.loads(expected)) in read_lists("data/ads/train.parquet")
