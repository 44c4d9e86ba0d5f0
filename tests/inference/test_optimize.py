from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BertModel

from crossjem_pl.inference import Reranker
from crossjem_pl.inference import optimize as module
from crossjem_pl.inference.optimize import Bounds
from crossjem_pl.inference.variants import Settings, attention_of, bucketed, no_compiler, variant
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import BM25, CrossJEM, MonoBERT, QueryHead, SetEncoder, TwinBERT
from crossjem_pl.rankers.crossjem.batch import UnionAttention, UnionPositions
from crossjem_pl.rankers.encoders import encode_tokens
from tests.rankers.literal import random_lists, sharpened

LIMITS: dict[str, Any] = {"max_query_tokens": 6, "max_item_tokens": 6}
CPU = torch.device("cpu")


@pytest.fixture
def reranker(tiny_bert: str) -> Reranker:
    torch.manual_seed(0)
    return Reranker(sharpened(CrossJEM(tiny_bert, QueryHead(), 1, "shared", **LIMITS)), "cpu")


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def lists() -> list[RankingList]:
    return random_lists(4, seed=1)


def timed_as(monkeypatch: pytest.MonkeyPatch, milliseconds: dict[str, float]) -> None:
    """Every way takes the sum of what its settings are said to take."""

    def times(self: Any, *ways: Any) -> tuple[float, ...]:
        return tuple(10 + sum(milliseconds.get(w, 0) for w in str(way.settings).split(", ")) for way in ways)

    monkeypatch.setattr(module._Search, "_time", times)


def assert_equal(a: list[Tensor], b: list[Tensor], tolerance: float) -> None:
    for one, other in zip(a, b, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance)


def test_the_fastest_way_is_taken_and_keeps_the_scores(
    reranker: Reranker, lists: list[RankingList], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed_as(monkeypatch, {"eager": -4, "1 threads": 0, "2 threads": 3})
    before = reranker.score(lists)
    weights = {name: value.clone() for name, value in reranker.ranker.state_dict().items()}
    report = reranker.optimize(lists, threads=(1, 2), compile=False)
    assert report.chosen == Settings("float32", "eager", False, 1)
    assert [trial.verdict for trial in report.trials] == ["baseline", "slower", "chosen"]
    assert (report.baseline_milliseconds, report.milliseconds) == (10, 6)
    assert report.difference <= 1e-4
    assert_equal(reranker.score(lists), before, 1e-4)
    assert attention_of(reranker.ranker) == "sdpa", "the ranker itself stays as it is"
    assert all(torch.equal(weights[name], value) for name, value in reranker.ranker.state_dict().items())
    assert "chosen: float32, eager, 1 threads; 10.0 ms a list before, 6.0 ms now" in str(report)
    assert reranker.rank("red shoes", ["dog", "red shoe"])[0].score == pytest.approx(
        max(e.score for e in reranker.explain("red shoes", ["dog", "red shoe"])), abs=1e-4
    )


def test_the_scores_come_from_the_way_that_was_chosen(
    reranker: Reranker, lists: list[RankingList], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed_as(monkeypatch, {"eager": -4})
    reranker.optimize(lists, threads=(1,), compile=False)
    kernels: list[str | None] = []
    called = nn.Module.__call__

    def watched(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self, BertModel):
            kernels.append(self.config._attn_implementation)
        return called(self, *args, **kwargs)

    monkeypatch.setattr(nn.Module, "__call__", watched)
    reranker.score(lists)
    assert set(kernels) == {"eager"}


def test_a_gain_within_the_noise_changes_nothing(
    reranker: Reranker, lists: list[RankingList], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed_as(monkeypatch, {"eager": -0.2})
    report = reranker.optimize(lists, threads=(1,), compile=False)
    assert report.chosen == Settings("float32", "sdpa", False, 1)
    assert reranker._runs_as is None


def test_lower_precision_only_if_it_is_allowed_and_ranks_alike(
    reranker: Reranker, lists: list[RankingList], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed_as(monkeypatch, {"bfloat16": -6, "float16": -8})
    report = reranker.optimize(lists, threads=(1,), compile=False)
    assert report.chosen.precision == "float32"
    assert {trial.settings.precision for trial in report.trials} == {"float32"}

    full = reranker.score(lists)
    strict = reranker.optimize(
        lists, allow=("bfloat16",), threads=(1,), compile=False, bounds=Bounds(tau=1.01)
    )
    assert strict.chosen.precision == reranker.precision == "float32"
    assert strict.trials[-1].verdict.startswith("rejected: Kendall tau is ")

    report = reranker.optimize(
        lists, allow=("bfloat16", "float16"), threads=(1,), compile=False, bounds=Bounds(tau=0.5, top10=0.5)
    )
    assert report.chosen.precision == reranker.precision == "bfloat16"
    assert report.trials[-1].verdict.startswith("skipped: float16 is for accelerators")
    assert math.isnan(report.trials[-1].milliseconds)
    low = reranker.score(lists)
    assert_equal(low, full, 0.5)
    assert max(float((a - b).abs().max()) for a, b in zip(low, full, strict=True)) == pytest.approx(
        report.difference, abs=1e-6
    )
    assert report.difference > 1e-4


def test_linear_layers_cast_once_score_as_autocast_does(tiny_bert: str, lists: list[RankingList]) -> None:
    for ranker in (
        CrossJEM(tiny_bert, QueryHead(), 1, "shared", **LIMITS),
        CrossJEM(tiny_bert, QueryHead(), 0, "item", "item", split_layers=1, **LIMITS),
        MonoBERT(tiny_bert, **LIMITS),
    ):
        expected = Reranker(ranker, "cpu", "bfloat16").score(lists)
        cast = variant(ranker, Settings("bfloat16", None, False, 1), CPU)
        layers = [m for part in cast.encoders() for m in part.modules() if isinstance(m, torch.nn.Linear)]
        assert {layer.weight.dtype for layer in layers} == {torch.bfloat16}
        assert {value.dtype for value in ranker.parameters()} == {torch.float32}
        assert_equal(Reranker(cast, "cpu", "bfloat16").score(lists), expected, 1e-6)


def test_item_vectors_are_computed_ahead_by_layers_that_are_kept_in_bfloat16(
    tiny_bert: str, lists: list[RankingList]
) -> None:
    cast = variant(TwinBERT(tiny_bert, **LIMITS), Settings("bfloat16", None, False, 1), CPU)
    assert isinstance(cast, TwinBERT)
    expected = Reranker(cast, "cpu", "bfloat16").score(lists)
    cast.precompute_items(text for one in lists for text in one.items)
    assert len(cast.item_cache) > 0
    assert_equal(Reranker(cast, "cpu", "bfloat16").score(lists), expected, 0.02)


def test_scores_that_change_are_rejected(
    reranker: Reranker, lists: list[RankingList], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed_as(monkeypatch, {"eager": -4})

    def broken(ranker: Any, settings: Settings, device: torch.device) -> Any:
        made = variant(ranker, settings, device)
        with torch.no_grad():
            made.head.scale.add_(0.01)  # type: ignore[union-attr, operator]
        return made

    monkeypatch.setattr(module, "variant", broken)
    report = reranker.optimize(lists, threads=(1,), compile=False)
    assert report.chosen.attention == "sdpa"
    assert report.trials[-1].verdict.startswith("rejected: scores differ by up to 0.0")
    assert report.trials[-1].difference > 1e-4


def test_times_are_measured(reranker: Reranker) -> None:
    report = reranker.optimize(random_lists(2, seed=3), threads=(1,), compile=False, rounds=1)
    assert all(trial.milliseconds > 0 for trial in report.trials)
    assert report.chosen in {trial.settings for trial in report.trials}
    assert torch.get_num_threads() == report.chosen.threads == 1


@pytest.mark.skipif(no_compiler(CPU) is not None, reason="no C++ compiler")
@pytest.mark.slow
def test_the_compiled_encoder_scores_the_same(tiny_bert: str) -> None:
    """In a process of its own: compiled code and the exported models' runtimes each bring an OpenMP."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
        fresh.submit(compile_and_compare, tiny_bert).result()


def compile_and_compare(encoder: str) -> None:
    torch.manual_seed(0)
    reranker = Reranker(sharpened(CrossJEM(encoder, QueryHead(), 1, "shared", **LIMITS)), "cpu")
    lists = random_lists(4, seed=1)
    before = reranker.score(lists)
    with pytest.MonkeyPatch.context() as monkeypatch:
        timed_as(monkeypatch, {"compiled": -5})
        report = reranker.optimize(lists, threads=(1,))
    assert report.trials[-1].verdict == "chosen"
    assert report.chosen.compiled
    assert_equal(reranker.score(lists), before, 1e-4)
    others = random_lists(3, seed=9)
    assert_equal(reranker.score(others), Reranker(reranker.ranker, "cpu").score(others), 1e-4)


def test_without_a_compiler_the_reason_is_told(
    reranker: Reranker, lists: list[RankingList], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed_as(monkeypatch, {})
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    trial = reranker.optimize(lists, threads=(1,)).trials[-1]
    assert trial.settings.compiled
    assert (
        trial.verdict
        == "skipped: torch.compile needs a C++ compiler on the CPU (g++ or clang++), and there is none"
    )


def test_a_compiler_that_fails_is_told(
    reranker: Reranker, lists: list[RankingList], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed_as(monkeypatch, {})
    monkeypatch.setattr(module, "no_compiler", lambda device: None)

    def failing(*_: Any, **__: Any) -> Any:
        def run(**inputs: Tensor) -> Tensor:
            raise torch._dynamo.exc.InternalTorchDynamoError("it broke\nin many lines")

        return run

    monkeypatch.setattr(torch, "compile", failing)
    assert reranker.optimize(lists, threads=(1,)).trials[-1].verdict == "skipped: it broke"


def test_other_rankers(tiny_bert: str, lists: list[RankingList], monkeypatch: pytest.MonkeyPatch) -> None:
    timed_as(monkeypatch, {})
    monkeypatch.setattr(module, "no_compiler", lambda device: None)
    own_attention = SetEncoder(tiny_bert, **LIMITS)
    assert attention_of(own_attention) is None
    report = Reranker(own_attention, "cpu").optimize(lists, threads=(1,))
    assert [trial.verdict for trial in report.trials] == [
        "baseline",
        "skipped: only crossjem's encoder is compiled, this is a setencoder ranker",
    ]
    with pytest.raises(ValueError, match=r"BM25 \(bm25\) runs no encoder in torch"):
        Reranker(BM25(), "cpu").optimize(lists)


@pytest.mark.parametrize(
    ("positions", "attention"), [("sequential", "full"), ("shared", "full"), ("item", "item")]
)
def test_padding_to_common_shapes_changes_nothing(
    positions: UnionPositions, attention: UnionAttention, tiny_bert: str, lists: list[RankingList]
) -> None:
    shapes: set[tuple[int, ...]] = set()
    ranker = CrossJEM(tiny_bert, None, 0, positions, attention, max_union_tokens=96, **LIMITS).eval()

    def run(**inputs: Tensor) -> Tensor:
        shapes.add(tuple(inputs["input_ids"].shape))
        return ranker.encoder(**inputs).last_hidden_state

    padded = bucketed(run, 80)
    for one in [*lists, *random_lists(20, seed=4)]:
        batch = ranker.collate([one])
        given = ranker.tensor_inputs(batch)[0]
        seen = given["attention_mask"]
        seen = seen if attention == "full" else seen[:, None]
        arguments = (batch.input_ids, seen, batch.segment_ids, batch.position_ids)
        names = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
        inputs = {name: x for name, x in zip(names, arguments, strict=True) if x is not None}
        with torch.no_grad():
            found, expected = padded(**inputs), encode_tokens(ranker.encoder, *arguments)
        inside = batch.attention_mask.bool()
        torch.testing.assert_close(found[inside], expected[inside], rtol=1e-5, atol=1e-5)
        assert found.shape == expected.shape
    assert {rows % 4 for rows, _ in shapes} == {0}
    assert {width for _, width in shapes} <= ({64, 80} if positions == "sequential" else {64, 128})


def test_on_a_gpu_the_encoder_runs_as_graphs_of_few_shapes(
    reranker: Reranker, lists: list[RankingList], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can be seen of it without one: the options of the compiler, the shapes, and the scores."""
    compiled: list[dict[str, Any]] = []
    shapes: list[tuple[int, ...]] = []

    def recording(function: Any, **options: Any) -> Any:
        compiled.append(options)

        def run(**inputs: Tensor) -> Tensor:
            shapes.append(tuple(inputs["input_ids"].shape))
            return function(**inputs)

        return run

    monkeypatch.setattr(torch, "compile", recording)
    made = variant(reranker.ranker, Settings("float32", "sdpa", True, 1), torch.device("cuda"))
    assert compiled == [{"mode": "reduce-overhead", "dynamic": False}]
    assert_equal(Reranker(made, "cpu").score(lists), reranker.score(lists), 1e-5)
    assert shapes
    assert all(rows % 4 == width % 64 == 0 for rows, width in shapes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lists": []}, "no lists to measure on"),
        ({"rounds": 0}, "rounds must be at least 1, got 0"),
        ({"allow": ("int8",)}, "allow: expected 'bfloat16' or 'float16', got 'int8'"),
        ({"threads": (0, 1)}, r"threads must be at least 1, got \[0, 1\]"),
        ({"threads": ()}, r"threads must be at least 1, got \[\]"),
    ],
)
def test_mistakes_are_named(reranker: Reranker, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reranker.optimize(**arguments)
