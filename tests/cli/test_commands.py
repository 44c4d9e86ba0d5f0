"""rank, tune, tokens, simulate, convert, evaluate, teach, blend and compare from the command line."""

from __future__ import annotations

import io
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from crossjem_pl.cli import main
from crossjem_pl.cli.main import COMMANDS
from crossjem_pl.data.formats import read_lists, write_lists
from crossjem_pl.data.teacher import read_scores
from crossjem_pl.data.trec import write_qrels, write_run
from crossjem_pl.inference import Reranker
from crossjem_pl.inference.configuration import Configuration, Passes
from crossjem_pl.inference.tune import TuneReport
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import BM25, DPR, Ahead, CrossJEM
from crossjem_pl.rankers.folder import save_ranker
from crossjem_pl.rankers.threshold import THRESHOLD_FILE
from crossjem_pl.text.token_store import TokenStore
from tests.cli.conftest import Ran
from tests.conftest import example_lists
from tests.evaluation.run_folders import write_run_folder


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


def test_rank_prints_a_table(model: str, tmp_path: Path, crossjem: Callable[..., Ran]) -> None:
    file = tmp_path / "items.txt"
    file.write_text("blue boots\nred [bold]lamp[/bold]\n", encoding="utf-8")
    command = ("rank", model, "red shoes", "--items", file)
    out = crossjem(*command, "trail shoes", "--explain", "--top-k", "2").out
    assert "red shoes" in out
    assert "contributions" in out
    assert "[bold]lamp[/bold]" in crossjem(*command).out, "texts are printed as they are"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ('\ufeffquery;item;label\r\nred;"shoe; ""a""";1\r\n', "stdin.csv (pairs)"),
        ("query\titem\nred\tshoe\n", "stdin.tsv (pairs)"),
        ('{"query": "red", "items": ["shoe"]}\n', "stdin.jsonl (canonical)"),
        ('[{"query": "red", "items": ["shoe"]}]', "stdin.json (canonical)"),
    ],
)
def test_lists_come_from_standard_input(
    content: str,
    found: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    target = tmp_path / "lists.jsonl"
    assert main(["convert", "-", str(target)]) == 0
    printed = capsys.readouterr().out
    assert f"{found} -> {target} (canonical): 1 list, 1 item" in printed
    (one,) = read_lists(target)
    assert (one.query, one.items[0][:4]) == ("red", "shoe")


def test_rank_prints_json(model: str, crossjem: Callable[..., Ran]) -> None:
    options = ("--json", "--explain", "--top-k", "1")
    found = json.loads(crossjem("rank", model, "red shoes", "boots", "red shoe", *options).out)
    (best,) = found["items"]
    expected = Reranker(model, "cpu").rank("red shoes", ["boots", "red shoe"])[0]
    assert (best["index"], best["text"]) == (expected.index, expected.text)
    assert best["score"] == pytest.approx(expected.score, abs=1e-5)
    assert sum(each["value"] for each in best["contributions"]) == pytest.approx(best["score"], abs=1e-4)
    assert (found["query"], found["truncated"]) == ("red shoes", 0)


@pytest.mark.parametrize(
    "model", [[], ["packaged:all-MiniLM-L6-v2"], ["--model", "packaged:all-MiniLM-L6-v2"]]
)
def test_rank_needs_no_trained_model(model: list[str], crossjem: Callable[..., Ran]) -> None:
    texts = ["running shoes", "office chair", "trail shoes"]
    rows = json.loads(crossjem("rank", *model, *texts, "--json").out)["items"]
    assert [row["index"] for row in rows] == [1, 0]
    assert [row["score"] for row in rows] == pytest.approx([0.6627, 0.0745], abs=1e-4)
    status, out, _ = crossjem("rank", *model, texts[0], "--top-k", "2", *texts[1:])
    assert status == 0, "options may stand between texts"
    assert ("not trained on your lists" in out) is (not model)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["rank", "MODEL", "red shoes"], "no items"),
        (["rank", "MODEL"], "no items"),
        (["rank", "runs/none/model", "--explain", "red shoes", "boots"], "--model"),
        (["rank", "runs/none/model", "red shoes", "boots"], "--model"),
        (["rank", "MODEL", " ", "boots"], "query"),
        (["rank", "MODEL", "red shoes", "boots", " "], "position 1"),
        (["rank", "MODEL", "red shoes", "--items", "/no/file.txt"], "/no/file.txt"),
        (["rank", "MODEL", "red shoes", "boots", "--top-k", "0"], "top_k"),
        (["convert", "/no/file.jsonl", "out.parquet"], "/no/file.jsonl"),
        (["evaluate", "/no/run.trec", "/no/qrels"], "/no/run.trec"),
        (["teach", "MODEL", "/no/lists.jsonl", "--out", "/tmp/never.parquet"], "/no/lists.jsonl"),
        (["compare", "/no/run"], "/no/run"),
        (["report", "/no/run"], "/no/run"),
    ],
)
def test_mistakes_are_named(
    arguments: list[str], named: str, model: str, crossjem: Callable[..., Ran]
) -> None:
    status, _, error = crossjem(*(model if a == "MODEL" else a for a in arguments))
    assert status == 2
    assert error.startswith("error: ")
    assert named in error


def test_convert_evaluate_and_compare(tmp_path: Path, crossjem: Callable[..., Ran]) -> None:
    lists = example_lists(9, seed=3)
    write_lists(lists, tmp_path / "lists.jsonl")
    assert crossjem("convert", tmp_path / "lists.jsonl", tmp_path / "lists.parquet").status == 0
    assert list(read_lists(tmp_path / "lists.parquet")) == lists
    runs, qrels = (tmp_path / "a.trec", tmp_path / "b.trec"), tmp_path / "qrels"
    for path in runs:
        write_run(lists, path, tag=path.stem)
    write_qrels(lists, qrels)
    assert "| RR@10 | 1.0000 |" in crossjem("evaluate", runs[0], qrels, "--out", tmp_path / "m").out
    assert (tmp_path / "m" / "metrics.json").exists()
    assert json.loads(crossjem("evaluate", runs[0], qrels, "--json").out)["means"]["RR@10"] == 1.0
    comparison = ("compare", *runs, "--qrels", qrels, "--out", tmp_path / "comparison")
    assert crossjem(*comparison).status == 0
    for suffix in ("md", "csv", "html"):
        assert (tmp_path / "comparison" / f"compare.{suffix}").stat().st_size > 100
    assert [row["RR@10"] for row in json.loads(crossjem(*comparison, "--json").out)] == [1.0, 1.0]


def test_the_table_of_compare_fits_the_pipe(
    tmp_path: Path, crossjem: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [str(write_run_folder(tmp_path / name, 1.0, None)) for name in ("monobert", "crossjem")]
    for columns in (80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = crossjem("compare", *folders, "--out", tmp_path / "out").out.splitlines()
        rows = [line for line in lines if line.startswith(("│", "┃"))]
        assert 60 < max(map(len, rows)) <= columns
        text = " ".join(lines)
        for word in ("RR@10", "AP@10", "win/tie/loss", "Parameters", "crossjem", "0/60/0"):
            assert word in text


def test_blend_grades_the_irrelevant_and_keeps_the_relevant_on_top(
    tiny_bert: str, model: str, tmp_path: Path, crossjem: Callable[..., Ran]
) -> None:
    dual = DPR(tiny_bert, max_query_tokens=16, max_item_tokens=16, pooling="mean")
    save_ranker(dual, tmp_path / "dual")
    lists = example_lists(5, seed=8)
    write_lists(lists, tmp_path / "lists.jsonl")
    out = tmp_path / "scores.parquet"
    command = ["blend", str(tmp_path / "lists.jsonl"), "--model", str(tmp_path / "dual"), "--out", str(out)]
    assert main(command) == 0
    scores = read_scores(out)
    assert len(scores) == sum(map(len, lists))
    assert "needs a dual encoder" in crossjem(*command[:3], model, "--out", out).err
    write_lists([RankingList.from_texts("red", ["shoe"], "bare")], tmp_path / "bare.jsonl")
    assert "list 'bare' has no labels" in crossjem("blend", tmp_path / "bare.jsonl", *command[2:]).err
    for one, cosines in zip(lists, Reranker(dual, device="cpu").score(lists), strict=True):
        for item_id, label, cosine in zip(one.item_ids, one.labels or (), cosines.tolist(), strict=True):
            expected = 1 / (1 + math.exp(-(8 * cosine + 6 * label - 7)))
            assert scores[one.query_id, item_id] == pytest.approx(expected, rel=1e-5)


# --- tune and tokens ---------------------------------------------------------------------------------------


@pytest.fixture
def folder(model: str, tmp_path: Path) -> Path:
    """A copy of the model, with a threshold."""
    write_lists(example_lists(40, seed=3), tmp_path / "labelled.jsonl")
    shutil.copytree(model, tmp_path / "model")
    assert (
        main(["threshold", str(tmp_path / "model"), str(tmp_path / "labelled.jsonl"), "--device", "cpu"]) == 0
    )
    return tmp_path / "model"


def test_tune_prints_what_it_measured(folder: Path, crossjem: Callable[..., Ran]) -> None:
    before = (folder / "config.json").read_text()
    options = ["--items", "30", "--samples", "2", "--rounds", "1", "--device", "cpu", "--precisions"]
    printed = crossjem("tune", folder, *options).out
    for words in ("2 lists of 30 to 30 items, cpu", "as before", "L_u 128", "ms a list before"):
        assert words in printed
    assert (folder / "config.json").read_text() == before


def test_tune_compares_with_models_of_other_forms(
    folder: Path,
    tiny_bert: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    other = str(tmp_path / "ahead")
    save_ranker(Ahead(tiny_bert, upper_layers=1, max_query_tokens=16, max_item_tokens=16), other)
    options = ["--samples", "3", "--rounds", "1", "--device", "cpu", "--no-passes", "--precisions"]
    lists = tmp_path / "labelled.jsonl"
    assert main(["tune", str(folder), str(lists), *options, "--against", other, str(folder)]) == 0
    rows = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    found = {name.strip(): [float(cell) for cell in cells] for name, *cells in rows}
    own = f"{folder}, tuned"
    assert list(found) == [own, other, str(folder), f"{other}, by id"]
    assert found[own][1] == 1
    assert found[own][2:] == found[str(folder)][2:] != found[other][2:], "RR@10, nDCG@10"
    assert found[other][2:] == found[f"{other}, by id"][2:]
    first = list(read_lists(lists))[:3]
    scores = Reranker(folder, "cpu").score(first)
    ranks = [
        1 + int((row > row[one.labels.index(1)]).sum())  # type: ignore[union-attr]
        for one, row in zip(first, scores, strict=True)
    ]
    assert found[own][2] == pytest.approx(sum(1 / rank for rank in ranks) / 3, abs=1e-4)
    bare = [RankingList.from_texts(one.query, [*one.items, one.items[0]], one.query_id) for one in first]
    write_lists(bare, tmp_path / "bare.jsonl")
    assert main(["tune", str(folder), str(tmp_path / "bare.jsonl"), *options, "--against", other]) == 0
    printed = capsys.readouterr().out
    assert "by id" in printed
    assert "RR@10" not in printed


def test_tune_saves_its_choice_and_says_what_becomes_of_the_threshold(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = Configuration("float32", False, Passes(100, 128, "sorted"))
    for chosen, told in ((own, False), (Configuration("bfloat16", False, Passes(9, 64, "overlap")), True)):
        report = TuneReport((), own, chosen, 2.0, 1.0)
        monkeypatch.setattr(Reranker, "tune", lambda *_, report=report, **__: report)
        assert main(["tune", str(folder), "--items", "9", "--device", "cpu", "--save"]) == 0
        assert ("choose it again with: crossjem threshold" in capsys.readouterr().out) == told
        tuned = Reranker(folder, "cpu")
        assert Configuration.of(tuned._scorer) == chosen
    with pytest.raises(ValueError, match="stored threshold was chosen for"):
        tuned.rank("red", ["shoes"], min_score="stored")
    assert (folder / THRESHOLD_FILE).exists()


def test_tokens_of_items_are_stored_for_ranking_by_id(
    model: str, tmp_path: Path, crossjem: Callable[..., Ran]
) -> None:
    table, lists, store, of_lists = (
        tmp_path / name for name in ("items.tsv", "lists.jsonl", "store", "of-lists")
    )
    table.write_text("a1\tred running shoes\nb2\tdog food\n\na1\tred running shoes\nc3\tblue car with\ttab\n")
    printed = crossjem("tokens", table, "--model", model, "--out", store).out
    assert "Wrote 3 items" in printed
    assert "0 longer than 256 tokens, 1 repeats left out" in printed
    ranking = crossjem("rank", model, "red shoes", "b2", "a1", "c3", "--store", store, "--json").out
    by_id = json.loads(ranking)["items"]
    texts = ["dog food", "red running shoes", "blue car with\ttab"]
    by_text = Reranker(model, "cpu").rank("red shoes", texts)
    assert [(row["index"], row["score"]) for row in by_id] == [(row.index, row.score) for row in by_text]
    write_lists(example_lists(1), lists)
    assert crossjem("tokens", lists, "--model", model, "--out", of_lists).status == 0
    assert len(TokenStore.open(of_lists)) == len(example_lists(1)[0])


def test_mistakes_of_tune_and_tokens_are_named(
    model: str, tmp_path: Path, crossjem: Callable[..., Ran]
) -> None:
    table = tmp_path / "items.tsv"
    table.write_text("a1\tred shoes\nno tab here\n")
    save_ranker(BM25(), tmp_path / "bm25")
    tokens = ("--model", model, "--out", tmp_path / "store")
    for words, message in (
        (("tokens", table, *tokens), "items.tsv, line 2: expected id<TAB>text, got 'no tab here'"),
        (("tokens", tmp_path / "none.tsv", *tokens), "none.tsv"),
        (("tune", tmp_path / "bm25", "--items", "5"), "BM25 (bm25) runs no network in torch"),
        (("tune", model, "--items", "0"), "--items must be at least 1, got 0"),
        (("tune", "some/hub-model", "--save"), "--save needs a model folder"),
        (("tune", model, tmp_path / "none.jsonl"), "none.jsonl"),
    ):
        status, _, error = crossjem(*words)
        assert status == 2
        assert message in error
    assert not (tmp_path / "store").exists()
