"""rank, simulate, convert, evaluate, teach and compare from the command line."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from crossjem_pl.cli import main
from crossjem_pl.cli.main import COMMANDS
from crossjem_pl.data.formats import read_lists, write_lists, write_qrels, write_run
from crossjem_pl.data.teacher import read_provenance, read_scores
from crossjem_pl.inference import Reranker
from crossjem_pl.rankers import DPR, CrossJEM
from crossjem_pl.rankers.folder import save_ranker
from tests.conftest import example_lists


@pytest.fixture(scope="module")
def model(tiny_bert: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model")
    save_ranker(CrossJEM(tiny_bert, max_query_tokens=16, max_item_tokens=16, max_union_tokens=128), folder)
    return str(folder)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    assert command in capsys.readouterr().out


def test_rank_prints_a_table(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "items.txt"
    file.write_text("blue boots\nred [bold]lamp[/bold]\n", encoding="utf-8")
    assert (
        main(["rank", model, "red shoes", "trail shoes", "--items", str(file), "--explain", "--top-k", "2"])
        == 0
    )
    out = capsys.readouterr().out
    assert "red shoes" in out
    assert "contributions" in out
    assert main(["rank", model, "red shoes", "--items", str(file)]) == 0
    assert "[bold]lamp[/bold]" in capsys.readouterr().out, "texts are printed as they are"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["rank", "MODEL", "red shoes"], "no items"),
        (["rank", "MODEL", " ", "boots"], "query"),
        (["rank", "MODEL", "red shoes", "boots", " "], "position 1"),
        (["rank", "MODEL", "red shoes", "--items", "/no/file.txt"], "/no/file.txt"),
        (["rank", "MODEL", "red shoes", "boots", "--top-k", "0"], "top_k"),
        (["convert", "/no/file.jsonl", "out.parquet"], "/no/file.jsonl"),
        (["evaluate", "/no/run.trec", "/no/qrels"], "/no/run.trec"),
        (["teach", "MODEL", "/no/lists.jsonl", "--out", "/tmp/never.parquet"], "/no/lists.jsonl"),
        (["compare", "/no/run"], "/no/run"),
    ],
)
def test_mistakes_are_named(
    arguments: list[str], named: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([model if a == "MODEL" else a for a in arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert named in error


def test_simulate_writes_three_splits(
    tiny_bert: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--lists", "6", "--items", "20", "--held-out", "3", "--tokenizer", tiny_bert]
    assert main(["simulate", *sizes, "--out", str(tmp_path)]) == 0
    assert "ratio" in capsys.readouterr().out
    counts = {
        split: len(list(read_lists(tmp_path / f"{split}.parquet"))) for split in ("train", "dev", "test")
    }
    assert counts == {"train": 6, "dev": 3, "test": 3}


def test_convert_evaluate_and_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lists = example_lists(9, seed=3)
    write_lists(lists, tmp_path / "lists.jsonl")
    assert main(["convert", str(tmp_path / "lists.jsonl"), str(tmp_path / "lists.parquet")]) == 0
    assert list(read_lists(tmp_path / "lists.parquet")) == lists
    write_run(lists, tmp_path / "a.trec")
    write_run(lists, tmp_path / "b.trec", tag="b")
    write_qrels(lists, tmp_path / "qrels")
    assert (
        main(["evaluate", str(tmp_path / "a.trec"), str(tmp_path / "qrels"), "--out", str(tmp_path / "m")])
        == 0
    )
    assert "| RR@10 | 1.0000 |" in capsys.readouterr().out
    assert (tmp_path / "m" / "metrics.json").exists()
    runs = [str(tmp_path / "a.trec"), str(tmp_path / "b.trec")]
    out = ["--qrels", str(tmp_path / "qrels"), "--out", str(tmp_path / "comparison")]
    assert main(["compare", *runs, *out]) == 0
    for suffix in ("md", "csv", "html"):
        assert (tmp_path / "comparison" / f"compare.{suffix}").stat().st_size > 100


def test_teach_goes_on_where_it_stopped_and_shares_the_work(model: str, tmp_path: Path) -> None:
    lists = example_lists(11, seed=6)
    source = tmp_path / "lists.jsonl"
    write_lists(lists, source)
    whole, shared = tmp_path / "whole.parquet", tmp_path / "shared.parquet"
    assert main(["teach", model, str(source), "--out", str(whole), "--block", "4"]) == 0
    for shard in ("1", "0"):
        assert not shared.exists()
        command = ["teach", model, str(source), "--out", str(shared), "--block", "4", "--shards", "2"]
        assert main([*command, "--shard", shard]) == 0
    first, second = read_scores(whole), read_scores(shared)
    assert first.keys() == {(one.query_id, i) for one in lists for i in one.item_ids}
    assert first == pytest.approx(second, abs=1e-6)
    assert all(0 <= score <= 1 for score in first.values())
    assert read_provenance(whole)["lists_sha256"] == read_provenance(shared)["lists_sha256"]
    assert not list(tmp_path.glob("*.parts"))


def test_teach_does_not_mix_models_or_lists(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "lists.jsonl", tmp_path / "scores.parquet"
    write_lists(example_lists(5, seed=6), source)
    assert main(["teach", model, str(source), "--out", str(out)]) == 0
    write_lists(example_lists(5, seed=7), source)
    assert main(["teach", model, str(source), "--out", str(out)]) == 2
    assert "another lists" in capsys.readouterr().err


def test_blend_grades_the_irrelevant_and_keeps_the_relevant_on_top(tiny_bert: str, tmp_path: Path) -> None:
    dual = DPR(tiny_bert, max_query_tokens=16, max_item_tokens=16, pooling="mean")
    save_ranker(dual, tmp_path / "dual")
    lists = example_lists(5, seed=8)
    write_lists(lists, tmp_path / "lists.jsonl")
    out = tmp_path / "scores.parquet"
    command = ["blend", str(tmp_path / "lists.jsonl"), "--model", str(tmp_path / "dual"), "--out", str(out)]
    assert main(command) == 0
    scores = read_scores(out)
    assert len(scores) == sum(map(len, lists))
    for one, cosines in zip(lists, Reranker(dual, device="cpu").score(lists), strict=True):
        for item_id, label, cosine in zip(one.item_ids, one.labels or (), cosines.tolist(), strict=True):
            expected = 1 / (1 + math.exp(-(8 * cosine + 6 * label - 7)))
            assert scores[one.query_id, item_id] == pytest.approx(expected, rel=1e-5)


def test_blend_refuses_other_models_and_lists_without_labels(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_lists(example_lists(2), tmp_path / "lists.jsonl")
    command = ["blend", str(tmp_path / "lists.jsonl"), "--model", model, "--out", str(tmp_path / "s.parquet")]
    assert main(command) == 2
    assert "needs a dual encoder" in capsys.readouterr().err
