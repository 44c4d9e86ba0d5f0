"""The latency benchmark runs and measures all sides on the same lists. Speed is no test's matter."""

from __future__ import annotations

import argparse
import importlib
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import contenders as taking_part
from benchmarks.contenders import (
    Contender,
    LightningIR,
    OwnRanker,
    build_ranker,
    measured_lists,
    time_in_turn,
)
from benchmarks.latency import lightning_ir_worker
from benchmarks.latency.__main__ import RANKERS, contenders_of, main, peak_memory, rows_of
from benchmarks.latency.stages import STAGES, stage_milliseconds
from benchmarks.measuring import MemoryMeter, count_flops, matrix_peak
from benchmarks.program import fresh
from crossjem_pl.data.simulator import simulate
from crossjem_pl.inference import Reranker
from crossjem_pl.inference.timing import Timings
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import RANKERS as REGISTRY
from crossjem_pl.rankers import CrossJEM, MonoBERT

CPU = torch.device("cpu")


def options(encoder: str, rankers: Sequence[str], **changes: Any) -> argparse.Namespace:
    given = {"rankers": rankers, "encoder": encoder, "device": "cpu", "precision": ["float32"], "warm": False}
    return argparse.Namespace(**{**given, "exported": [], "peers": [], "lightning_ir": None, **changes})


def own(encoder: str, *rankers: str, **changes: Any) -> list[OwnRanker]:
    found = contenders_of(options(encoder, rankers, **changes))
    assert all(isinstance(contender, OwnRanker) for contender in found)
    return found  # type: ignore[return-value]


def test_the_program_writes_json_page_and_plots(encoder: str, tmp_path: Path) -> None:
    sizes = ["--items", "5", "120", "--stages", "12", "--saturated", "5", "--rounds", "2"]
    rankers = ["--rankers", "crossjem", "monobert", "dpr", "--precision", "float32", "bfloat16"]
    assert main(["--smoke", "--encoder", encoder, *sizes, *rankers, "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "latency.json").read_text())
    names = {"crossjem", "crossjem by id", "monobert", "monobert by id", "dpr", "sentence-transformers"}
    names |= {f"{name} bfloat16" for name in names}
    for times in found["milliseconds"].values():
        assert set(times) == names
        assert all(len(values) == 2 and min(values) > 0 for values in times.values())
    rows = {(row["name"], row["items"]): row for row in found["latency"]}
    assert set(rows) == {(name, items) for name in names for items in (5, 120)}
    times, row = found["milliseconds"]["120"], rows["crossjem", 120]
    assert row["p50"] == pytest.approx(np.median(times["crossjem"]))
    for suffix in ("", " bfloat16"):  # ratios are taken in the same precision
        ratio = np.median(np.array(times[f"monobert{suffix}"]) / np.array(times[f"crossjem{suffix}"]))
        assert rows[f"crossjem{suffix}", 120]["ratios"]["monobert"] == pytest.approx(ratio)
    assert 0 < row["gflop"] < rows["monobert", 120]["gflop"]
    share = 1000 * row["gflop"] / row["p50"] / found["matrix_peak_gflops"]["float32"]
    assert row["share_of_peak"] == pytest.approx(share)
    assert {one["name"] for one in found["throughput"]} == names
    assert {one["name"] for one in found["stages"]} == {
        n for n in names if n.startswith(("crossjem", "monobert"))
    }
    text = (tmp_path / "latency.md").read_text()
    for part in (
        "Not measured: lightning-ir",
        "| crossjem by id | 120 |",
        found["provenance"]["machine"],
        "--rounds 2",
    ):
        assert part in text
    assert (tmp_path / "latency.png").stat().st_size > 1000


def test_a_slow_contender_is_not_measured_at_larger_sizes(encoder: str, tmp_path: Path) -> None:
    only = ["--rankers", "crossjem", "--peers", "--saturated", "--stages", "--rounds", "1"]
    sizes = ["--items", "3", "2", "--longest", "1e-9"]
    assert main(["--smoke", "--encoder", encoder, *only, *sizes, "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "latency.json").read_text())
    assert set(found["milliseconds"]["2"]) == set(found["stopped"]) == {"crossjem", "crossjem by id"}
    assert "3" not in found["milliseconds"]


def test_mistakes_in_the_options_end_in_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--items", "0"]) == 2
    assert "--items" in capsys.readouterr().err


def test_every_neural_ranker_can_take_part(encoder: str) -> None:
    found = own(encoder, *RANKERS, "bm25")
    times = time_in_turn(found, [[one] for one in measured_lists(6, 1, 1)], 1)
    assert all(len(timings.rounds) == 1 and timings.median > 0 for timings in times.values())
    measured = {contender.reranker.ranker.name for contender in found}
    assert set(REGISTRY) - measured == {"monot5", "rankt5", "rankinggpt"}  # of other families: hub encoders


def test_an_overlay_with_wrong_arguments_is_refused(encoder: str) -> None:
    with pytest.raises(ValueError, match="ranker 'crossjem'"):
        build_ranker("crossjem", encoder, {"heads": 3})
    with pytest.raises(ValueError, match="no ranker 'nothing'"):
        build_ranker("nothing", encoder)


class Fixed(Contender):
    """Takes a given time for every item and remembers the order of the calls."""

    def __init__(self, name: str, value: float, calls: list[str]) -> None:
        super().__init__(name)
        self.value, self.calls = value, calls

    def rank(self, lists: Sequence[RankingList]) -> None:
        raise NotImplementedError

    def milliseconds(self, lists: Sequence[RankingList]) -> float:
        self.calls.append(self.name)
        return self.value * sum(map(len, lists))

    def flops(self, lists: Sequence[RankingList]) -> None:
        return None


def test_rows_come_from_rounds_in_turn() -> None:
    calls: list[str] = []
    found = [Fixed("a", 1.0, calls), Fixed("b", 2.0, calls)]
    lists = measured_lists(3, 2, 1)
    times = time_in_turn(found, [[one] for one in lists], 1)
    assert [timings.rounds for timings in times.values()] == [(3.0, 3.0), (6.0, 6.0)]
    assert calls == ["a", "b", "b", "a", "a", "b"]
    rows = rows_of(found, {"a": Timings((3.0, 6.0)), "b": Timings((6.0, 6.0))}, lists[1:], ["b"], {})
    assert [row["ratios"] for row in rows] == [{"b": 1.5}, {}]
    assert rows[0]["pairs_per_second"] == pytest.approx(1000 * 3 / 4.5)
    assert rows[0]["gflop"] is None
    assert measured_lists(4, 1) == list(simulate(3, 4, seed=1, split="test"))


@pytest.mark.parametrize("name", ["crossjem", "crossjem-best", "monobert"])
def test_stages_add_up_to_the_whole(name: str, encoder: str) -> None:
    (contender,) = own(encoder, name)
    found = stage_milliseconds(contender, measured_lists(120, 1, 1), 1)
    assert sum(found[stage] for stage in STAGES) == pytest.approx(found["all"])
    assert min(found["encoder"], found["tokenise"]) > 0
    assert (found["item-side layers"] > 0) == (name == "crossjem-best")
    assert "collate" not in vars(contender.reranker.ranker)


def test_cold_rankers_forget_and_dual_ones_know_their_items(encoder: str) -> None:
    cold, dual = own(encoder, "crossjem", "dpr")
    (warm,) = own(encoder, "crossjem", warm=True)
    lists = measured_lists(5, 1, 0)
    for contender in (cold, dual, warm):
        contender.prepare(lists)
        contender.milliseconds(lists)
    rankers: list[Any] = [contender.reranker.ranker for contender in (cold, warm, dual)]
    assert len(rankers[0].tokenizer._cache) == 0
    assert len(rankers[1].tokenizer._cache) >= 5
    assert len(rankers[2].item_cache) == 5


def test_sentence_transformers_ranks_the_same_lists(encoder: str) -> None:
    peer = taking_part.SentenceTransformers("peer", encoder, CPU, batch_size=4)
    lists = measured_lists(6, 2, 0)
    one: Any = peer.rank(lists[:1])
    several: Any = peer.rank(lists)
    assert sorted(row["corpus_id"] for row in one) == list(range(6))
    assert several[0].tolist() == [row["corpus_id"] for row in one]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_counted_operations_are_those_of_the_layers(attention: str, encoder: str) -> None:
    """monoBERT by hand: 2 (4 d^2 + 2 d f) a token, 4 d T^2 for the attention of T tokens; pooler and classifier."""
    ranker = MonoBERT(encoder, attn_implementation=attention)
    (ranking_list,) = measured_lists(40, 1, 0)
    config = ranker.encoder_config
    d, f, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
    expected = 0.0
    for run in ranker.collate([ranking_list]).runs:
        rows, length = run["input_ids"].shape
        expected += layers * rows * (2 * (4 * d * d + 2 * d * f) * length + 4 * d * length**2)
        expected += rows * 2 * (d * d + d)
    contender = OwnRanker("monobert", Reranker(ranker, CPU))
    assert contender.flops([ranking_list]) == pytest.approx(expected, rel=0.02)
    assert count_flops(lambda: torch.ones(2, 3) @ torch.ones(3, 4)) == 2 * 2 * 3 * 4


def test_memory_and_peak(encoder: str) -> None:
    assert matrix_peak(CPU, "float32", repeats=1) > 1e8
    meter = MemoryMeter(CPU)
    held = torch.ones(64 * 2**20)  # more than an allocator keeps
    assert 200 < meter.growth() < 400
    del held
    for name in ("crossjem", "sentence-transformers"):
        spec = vars(options(encoder, ["crossjem"])) | {"name": name, "memory_items": 5, "threads": 1}
        assert peak_memory(spec)["mib"] >= 0


@pytest.mark.slow
def test_memory_is_measured_in_a_process_of_its_own(encoder: str) -> None:
    spec = vars(options(encoder, ["crossjem"])) | {"name": "crossjem", "memory_items": 5, "threads": 1}
    assert fresh("benchmarks.latency", spec)["mib"] > 0
    with pytest.raises(RuntimeError, match="no ranker 'nothing'"):
        fresh("benchmarks.latency", spec | {"name": "nothing"})


def test_lightning_ir_is_timed_in_its_own_process(
    tmp_path: Path, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for the process: it answers as the worker does."""
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import json, sys\n"
        "print(json.dumps({'version': '9.' + sys.argv[3]}), flush=True)\n"
        "for line in sys.stdin:\n"
        "    items = json.loads(line)['items']\n"
        "    if len(items) > 2: sys.exit('too many')\n"
        "    print(json.dumps({'milliseconds': float(len(items[0]))}), flush=True)\n"
    )
    monkeypatch.setattr(taking_part, "_WORKER", worker)
    peer = LightningIR("lightning-ir", Path(sys.executable), encoder, CPU)
    assert peer.version == f"9.{torch.get_num_threads()}"
    assert peer.milliseconds(measured_lists(5, 1, 0)) == 5.0
    with pytest.raises(RuntimeError, match="too many"):
        peer.milliseconds(measured_lists(5, 3, 0))
    peer.close()


def test_the_worker_ranks_with_what_lightning_ir_offers(
    encoder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stand-in for lightning-ir's module: it cannot be installed where the tests run."""

    class Module:
        def __init__(self, name: str, config: object) -> None:
            assert (name, config) == (encoder, "first")

        def eval(self) -> Module:
            return self

        def to(self, device: str) -> Module:
            print("a library prints")
            return self

        def score(self, queries: list[str], items: list[list[str]]) -> SimpleNamespace:
            return SimpleNamespace(scores=torch.arange(float(sum(map(len, items)))))

    fakes = {
        "lightning_ir": SimpleNamespace(CrossEncoderModule=Module),
        "lightning_ir.models": SimpleNamespace(MonoConfig=lambda pooling_strategy: pooling_strategy),
    }
    monkeypatch.setattr(importlib, "import_module", lambda name: fakes[name])
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.2")
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"queries": ["q"], "items": [["a", "b"]]}\n'))
    stdout = sys.stdout
    lightning_ir_worker.main([encoder, "cpu", str(torch.get_num_threads())])
    monkeypatch.setattr(sys, "stdout", stdout)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == {"version": "1.2"}
    assert lines[1]["milliseconds"] > 0
    module = lightning_ir_worker.load(encoder, "cpu")
    assert lightning_ir_worker.rank(module, ["q", "p"], [["a", "b"], ["c"]]) == [[1, 0], [0]]


def test_the_recommended_overlay_is_the_recommended_form(encoder: str) -> None:
    best = build_ranker("crossjem-best", encoder)
    assert isinstance(best, CrossJEM)
    assert type(best.head).__name__ == "MatchHead"
