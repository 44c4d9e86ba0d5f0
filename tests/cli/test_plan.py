"""`crossjem plan` and `crossjem tokens` from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from crossjem_pl.cli import main, plan
from crossjem_pl.data.formats import write_lists
from crossjem_pl.inference import Reranker
from crossjem_pl.inference.plan import Split
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM, MonoBERT, QueryHead
from crossjem_pl.rankers.folder import save_ranker
from crossjem_pl.text.token_store import TokenStore
from tests.conftest import example_lists
from tests.rankers.literal import random_lists, sharpened


@pytest.fixture
def model(tiny_bert: str, tmp_path: Path) -> Path:
    torch.manual_seed(0)
    limits: dict[str, Any] = {"max_query_tokens": 6, "max_item_tokens": 6, "max_items_per_pass": 20}
    save_ranker(sharpened(CrossJEM(tiny_bert, QueryHead(), 0, "shared", **limits)), tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    texts = list(dict.fromkeys(text for one in random_lists(60, seed=5) for text in one.items))[:60]
    write_lists([RankingList.from_texts("red shoes", texts, "q")], tmp_path / "lists.jsonl")
    return tmp_path / "lists.jsonl"


def own_split(model: Path) -> Split:
    ranker = Reranker.from_pretrained(model, device="cpu").ranker
    assert isinstance(ranker, CrossJEM)
    return Split.of(ranker)


def test_the_choice_is_printed_and_saved_if_asked_for(
    model: Path, lists: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "plan",
        str(model),
        "--lists",
        str(lists),
        "--rounds",
        "1",
        "--device",
        "cpu",
        "--min-tau",
        "-1",
    ]
    assert main(command) == 0
    printed = capsys.readouterr().out
    for words in (
        "1 lists of 60 items, cpu",
        "L_u",
        "padded",
        "overlap",
        "the model's own",
        "chosen",
        "1.000",
    ):
        assert words in printed
    assert "Saved" not in printed
    assert own_split(model) == Split(20, 262, "sorted")
    assert main([*command, "--items", "40", "--min-tau", "0.999", "--save"]) == 0
    printed = capsys.readouterr().out
    assert "of 40 items" in printed
    assert "Saved in" in printed
    values = json.loads((model / "config.json").read_text())["crossjem_pl"]["init_args"]
    line = (
        f"max_items_per_pass: {values['max_items_per_pass']}, max_union_tokens: {values['max_union_tokens']}"
    )
    assert line in printed


def test_nothing_is_saved_if_nothing_fits_the_budget(
    model: Path, lists: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (model / "config.json").read_text()
    options = ["--lists", str(lists), "--rounds", "1", "--device", "cpu", "--budget-ms", "0.001", "--save"]
    assert main(["plan", str(model), *options]) == 2
    told = capsys.readouterr()
    assert "no split takes at most 0.001 ms at Kendall tau 0.9: the fastest takes" in told.err
    assert "the model's own" in told.out, "the table is printed all the same"
    assert (model / "config.json").read_text() == before


def test_a_threshold_of_the_former_split_is_pointed_out(
    model: Path,
    lists: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_lists(example_lists(40, seed=3), tmp_path / "labelled.jsonl")
    assert main(["threshold", str(model), str(tmp_path / "labelled.jsonl"), "--device", "cpu"]) == 0
    command = ["plan", str(model), "--lists", str(lists), "--rounds", "1", "--device", "cpu", "--save"]
    capsys.readouterr()
    for position, told in ((0, False), (1, True)):  # the model's own split, then another
        monkeypatch.setattr(plan, "choose_split", lambda measured, *_, chosen=position: measured[chosen])
        assert main(command) == 0
        assert ("threshold was chosen with the former split" in capsys.readouterr().out) == told


def test_simulated_lists_are_the_default(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--items", "30", "--samples", "2", "--rounds", "1", "--device", "cpu", "--threads", "1"]
    assert main(["plan", str(model), *options]) == 0
    assert "2 lists of 30 items, cpu, 1 threads, float32" in capsys.readouterr().out


def test_mistakes_of_plan_are_named(
    model: Path, tiny_bert: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_ranker(MonoBERT(tiny_bert, max_query_tokens=6, max_item_tokens=6), tmp_path / "mono")
    for arguments, message in (
        ([str(tmp_path / "mono"), "--device", "cpu"], "MonoBERT (monobert) does not split lists"),
        ([str(model), "--items", "0"], "--items must be at least 1, got 0"),
        ([str(model), "--rounds", "0"], "--rounds must be at least 1, got 0"),
        (["some/hub-model", "--save"], "--save needs a model folder"),
        ([str(model), "--lists", str(tmp_path / "none.jsonl")], "none.jsonl"),
    ):
        assert main(["plan", *arguments]) == 2
        assert message in capsys.readouterr().err


def test_tokens_of_items_are_stored_for_ranking_by_id(
    model: Path, lists: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "items.tsv"
    table.write_text("a1\tred running shoes\nb2\tdog food\n\na1\tred running shoes\nc3\tblue car with\ttab\n")
    assert main(["tokens", str(table), "--model", str(model), "--out", str(tmp_path / "store")]) == 0
    printed = capsys.readouterr().out
    assert "Wrote 3 items" in printed
    assert "0 longer than 256 tokens, 1 repeats left out" in printed
    reranker = Reranker.from_pretrained(model, device="cpu")
    reranker.store = TokenStore.open(tmp_path / "store")
    by_id = reranker.rank_ids("red shoes", ["b2", "a1", "c3"])
    by_text = reranker.rank("red shoes", ["dog food", "red running shoes", "blue car with\ttab"])
    assert [(row.index, row.score) for row in by_id] == [(row.index, row.score) for row in by_text]

    assert main(["tokens", str(lists), "--model", str(model), "--out", str(tmp_path / "of-lists")]) == 0
    assert len(TokenStore.open(tmp_path / "of-lists")) == 60


def test_mistakes_of_tokens_are_named(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "items.tsv"
    table.write_text("a1\tred shoes\nno tab here\n")
    options = ["--model", str(model), "--out", str(tmp_path / "store")]
    assert main(["tokens", str(table), *options]) == 2
    assert "items.tsv, line 2: expected id<TAB>text, got 'no tab here'" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()
    assert main(["tokens", str(tmp_path / "none.tsv"), *options]) == 2
    assert "none.tsv" in capsys.readouterr().err
