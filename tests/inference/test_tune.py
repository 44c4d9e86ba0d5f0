from __future__ import annotations

import json
import shutil
import string
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from crossjem_pl.inference import Reranker
from crossjem_pl.inference import tune as module
from crossjem_pl.inference.agreement import agreement
from crossjem_pl.inference.configuration import (
    Configuration,
    Passes,
    Scorer,
    configured,
    save_configuration,
    unavailable,
)
from crossjem_pl.inference.timing import Timings
from crossjem_pl.inference.tune import Bounds, candidate_passes
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import BM25, CrossJEM, MonoBERT, QueryHead
from crossjem_pl.rankers.folder import write_config
from tests.rankers.literal import random_lists, sharpened

LIMITS: dict[str, Any] = {"max_query_tokens": 6, "max_item_tokens": 6}
CPU = torch.device("cpu")


@pytest.fixture
def reranker(tiny_bert: str) -> Reranker:
    torch.manual_seed(0)
    limits = {"max_items_per_pass": 60, "max_union_tokens": 64, **LIMITS}
    ranker = CrossJEM(tiny_bert, QueryHead(), union_positions="item", union_attention="item", **limits)
    return Reranker(sharpened(ranker), "cpu")


@pytest.fixture(scope="module")
def lists() -> list[RankingList]:
    bare = dict.fromkeys(text for one in random_lists(120, seed=5) for text in one.items)
    letters = string.ascii_lowercase + string.digits
    texts = [f"{letters[i % 36]}{letters[i * 7 % 36]} {text}" for i, text in enumerate(bare)]
    return [RankingList.from_texts("red shoes", texts[:150]), RankingList.from_texts("car", texts[150:290])]


def timed_as(monkeypatch: pytest.MonkeyPatch, milliseconds: dict[str, float]) -> None:
    """Every configuration takes 10 ms and what its parts are said to add."""

    def times(self: Any, scorers: Mapping[Configuration, Any]) -> dict[Configuration, Timings]:
        return {
            c: Timings((10 + sum(ms for part, ms in milliseconds.items() if part in str(c)),))
            for c in scorers
        }

    monkeypatch.setattr(module._Search, "_time", times)


def assert_close(a: Sequence[Tensor], b: Sequence[Tensor], tolerance: float) -> None:
    for one, other in zip(a, b, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance)


def test_the_fastest_that_keeps_the_ranking_is_chosen(
    reranker: Reranker, lists: list[RankingList], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed_as(monkeypatch, {"N 150": -4, "bfloat16": -3, "overlap": -1})
    weights = {name: value.clone() for name, value in reranker.ranker.state_dict().items()}
    before = reranker.score(lists)
    report = reranker.tune(lists, bounds=Bounds(tau=0.3, top10=0.1))
    assert report.before == Configuration("float32", False, Passes(60, 64, "sorted"))
    assert report.chosen.precision == reranker.precision == "bfloat16"
    assert report.chosen.passes is not None
    assert report.chosen.passes[0] == 150
    assert (report.milliseconds_before, report.milliseconds) == (10, 2)
    verdicts = [trial.verdict for trial in report.trials]
    assert verdicts[0] == "as before"
    assert verdicts.count("chosen") == 2, "one of the passes, one of the precisions"
    assert all(torch.equal(weights[name], value) for name, value in reranker.ranker.state_dict().items())
    found = agreement(before, reranker.score(lists))
    assert [t.agreement for t in report.trials if t.verdict == "chosen"][-1] == found
    assert "10.0 ms a list before, 2.0 ms now: bfloat16, N 150" in str(report)


def test_candidates_that_change_the_ranking_are_rejected(
    reranker: Reranker, lists: list[RankingList], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed_as(monkeypatch, {"bfloat16": -3, "N 150": -3})
    report = reranker.tune(lists, bounds=Bounds(tau=1.01))
    assert report.chosen == report.before
    assert {trial.verdict.partition(" is")[0] for trial in report.trials[1:]} == {"rejected: Kendall tau"}
    close, far = agreement([torch.arange(3.0)], [torch.arange(3.0) + 1e-3]), [torch.tensor([3.0, 1.0, 2.0])]
    assert "differ by up to 0.001" in (Bounds().broken(True, close, 1.0) or "")
    assert Bounds().broken(True, close, 100.0) is None, "relative to large scores"
    assert Bounds().broken(False, close, 1.0) is None
    assert "Kendall tau" in (Bounds().broken(False, agreement([torch.arange(3.0)], far), 1.0) or "")


def test_a_gain_within_the_noise_changes_nothing(
    reranker: Reranker, lists: list[RankingList], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed_as(monkeypatch, {"bfloat16": -0.2})
    report = reranker.tune(lists, passes=False)
    assert [trial.verdict for trial in report.trials] == ["as before", "slower"]
    assert reranker.precision == "float32"


def test_times_are_measured(reranker: Reranker) -> None:
    report = reranker.tune(random_lists(2, seed=3), precisions=("bfloat16", "float16"), rounds=1)
    _, skipped, timed = report.trials
    assert timed.milliseconds > 0
    assert skipped.verdict.startswith("skipped: float16 is for GPUs")
    assert report.milliseconds > 0


def test_calls_of_other_threads_are_not_disturbed(
    reranker: Reranker, lists: list[RankingList], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed_as(monkeypatch, {"bfloat16": -5})
    full = reranker.score(lists)
    low = Reranker(reranker.ranker, "cpu", "bfloat16").score(lists)
    stop, found, errors = threading.Event(), [], []

    def rank() -> None:
        try:
            while not stop.is_set():
                found.append(reranker.score(lists))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=rank) for _ in range(2)]
    for thread in threads:
        thread.start()
    reranker.tune(lists, passes=False, bounds=Bounds(tau=0, top10=0))
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors
    assert found
    for scores in found:
        differences = [
            max(float((a - b).abs().max()) for a, b in zip(scores, each, strict=True)) for each in (full, low)
        ]
        assert min(differences) < 1e-5, "every call is wholly in one of the two configurations"


def test_candidate_passes_all_split_differently(
    reranker: Reranker, lists: list[RankingList], tiny_bert: str
) -> None:
    scorer = Scorer(reranker.ranker, CPU)
    found = candidate_passes(scorer, lists)
    assert found[0] == Passes(60, 64, "sorted") == Passes.of(reranker.ranker)
    assert {each.pass_order for each in found} == {"sorted", "overlap"}
    assert any(each.max_items_per_pass == 150 for each in found), "the longest list may be one pass"
    assert len(set(found)) == len(found) > 6
    assert candidate_passes(scorer, [one.select(range(5)) for one in lists]) == found[:1], "one pass anyway"
    sequential = CrossJEM(
        tiny_bert, QueryHead(), max_query_tokens=108, max_item_tokens=6, max_union_tokens=40
    )
    limits = candidate_passes(Scorer(sequential, CPU), lists)
    assert max(each.max_union_tokens for each in limits) == 160 - 110, "the encoder's positions"
    assert candidate_passes(Scorer(MonoBERT(tiny_bert, **LIMITS), CPU), lists) == []


def test_configurations(reranker: Reranker, lists: list[RankingList]) -> None:
    plain = Scorer(reranker.ranker, CPU)
    passes = configured(plain, Configuration(passes=Passes(20, 48, "overlap")))
    shared = dict(reranker.ranker.named_parameters())
    assert all(shared[name] is value for name, value in passes.ranker.named_parameters())
    assert Configuration.of(passes).passes == Passes(20, 48, "overlap")
    assert Configuration.of(plain).passes == Passes(60, 64, "sorted"), "the ranker itself stays as it is"
    low = configured(passes, Configuration("bfloat16"))
    assert Configuration.of(low) == Configuration("bfloat16", False, Passes(20, 48, "overlap"))
    assert low.network is not None
    layers = [m for part in low.network.encoders() for m in part.modules() if isinstance(m, torch.nn.Linear)]
    assert {layer.weight.dtype for layer in layers} == {torch.bfloat16}
    assert {value.dtype for value in low.ranker.parameters()} == {torch.float32}
    autocast = Scorer(passes.ranker, CPU, "bfloat16").score(lists)[0]
    assert_close(low.score(lists)[0], autocast, 1e-6)


def test_the_choice_is_saved_with_the_model(
    reranker: Reranker, lists: list[RankingList], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = Configuration("bfloat16", False, Passes(20, 48, "overlap"))
    reranker.save_pretrained(tmp_path / "a")
    before = json.loads((tmp_path / "a" / "config.json").read_text())
    save_configuration(tmp_path / "a", chosen, CPU)
    reranker.configure(chosen)
    reranker.save_pretrained(tmp_path / "b")
    for folder in (tmp_path / "a", tmp_path / "b"):
        again = Reranker(folder, "cpu")
        assert Configuration.of(again._scorer) == chosen
        assert_close(again.score(lists), reranker.score(lists), 1e-6)
        assert Reranker(folder, "cpu", "float32").precision == "float32", "an argument goes first"
    after = json.loads((tmp_path / "a" / "config.json").read_text())
    assert after["crossjem_pl"].pop("inference")["device"] == "cpu"
    for config in (before, after):
        del config["crossjem_pl"]["sha256"]
        for name in Passes._fields:
            del config["crossjem_pl"]["init_args"][name]
    assert after == before, "nothing else has changed"
    save_configuration(tmp_path / "a", chosen, torch.device("cuda"))
    assert Reranker(tmp_path / "a", "cpu").precision == "float32", "tuned on another kind of device"
    with pytest.raises(FileNotFoundError, match=r"config\.json is missing"):
        save_configuration(tmp_path, chosen, CPU)
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    config["crossjem_pl"]["inference"] = "fast"
    write_config(config, tmp_path / "b" / "config.json")
    with pytest.raises(ValueError, match=r"config\.json, field 'inference': 'fast'"):
        Reranker(tmp_path / "b", "cpu")


@pytest.mark.slow
def test_the_compiled_network_scores_the_same(tiny_bert: str) -> None:
    scorer = Scorer(MonoBERT(tiny_bert, **LIMITS).eval(), CPU)
    if unavailable(scorer, Configuration(compiled=True)) is not None:
        pytest.skip("no C++ compiler")
    compiled = configured(scorer, Configuration(compiled=True))
    for some in (random_lists(4, seed=1), random_lists(3, seed=9)):
        assert_close(compiled.score(some)[0], scorer.score(some)[0], 1e-5)


def test_why_a_network_is_not_compiled_is_told(
    tiny_bert: str, lists: list[RankingList], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Reranker(MonoBERT(tiny_bert, **LIMITS), "cpu")
    options: dict[str, Any] = {"precisions": (), "compile": True, "rounds": 1}

    def failing(*_: Any, **__: Any) -> Any:
        def run(**inputs: Tensor) -> Tensor:
            raise torch._dynamo.exc.InternalTorchDynamoError("it broke\nin many lines")

        return run

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "which", lambda name: "/usr/bin/g++")
        patched.setattr(torch, "compile", failing)
        assert model.tune(lists, **options).trials[-1].verdict == "skipped: it broke"
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    verdict = model.tune(lists, **options).trials[-1].verdict
    assert verdict.startswith("skipped: torch.compile needs a C++ compiler on the CPU")
    model.save_pretrained(tmp_path)
    save_configuration(tmp_path, Configuration(compiled=True), CPU)
    assert Reranker(tmp_path, "cpu").rank("red", ["dog"]), "where nothing compiles it runs as it is"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lists": []}, "no lists to measure on"),
        ({"rounds": 0}, "rounds must be at least 1, got 0"),
        ({"precisions": ("int8",)}, "precisions: expected float32, bfloat16 or float16"),
    ],
)
def test_mistakes_are_named(reranker: Reranker, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reranker.tune(**arguments)
    with pytest.raises(ValueError, match=r"BM25 \(bm25\) runs no network in torch"):
        Reranker(BM25(), "cpu").tune()


def test_agreement_of_rankings() -> None:
    first = [torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.arange(20.0)]
    same = agreement(first, [2 * scores for scores in first])
    assert (same.tau, same.top10, same.difference) == (1.0, 1.0, 19.0)
    assert agreement(first[:1], [torch.tensor([3.0, 4.0, 2.0, 1.0])]).tau == pytest.approx(2 / 3)
    assert agreement(first[1:], [-first[1]]).top10 == 0.0
    assert agreement([torch.ones(3)], [torch.zeros(3)]).tau == 1.0, "equal up to a shift"
    with pytest.raises(ValueError, match="no lists to compare"):
        agreement([], [])
