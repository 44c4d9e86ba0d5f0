"""The latency benchmark runs and measures all sides on the same lists. Speed is no test's matter."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import contenders as taking_part
from benchmarks.contenders import Contender, OwnRanker, build_ranker, measured_lists, time_in_turn
from benchmarks.latency.__main__ import RANKERS, contenders_of, main, peak_memory, rows_of
from benchmarks.latency.stages import STAGES, stage_milliseconds
from benchmarks.measuring import MemoryMeter, count_flops, matrix_peak
from crossjem_pl.inference import Reranker
from crossjem_pl.inference.timing import Timings
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import RANKERS as REGISTRY
from crossjem_pl.rankers import MonoBERT

CPU = torch.device("cpu")


def options(encoder: str, rankers: Sequence[str], **changes: Any) -> argparse.Namespace:
    given = {"rankers": rankers, "encoder": encoder, "device": "cpu", "precision": ["float32"]}
    return argparse.Namespace(
        **{**given, "peers": [], "real": None, "uncached": False, "exported": [], **changes}
    )


def own(encoder: str, *rankers: str) -> list[OwnRanker]:
    return contenders_of(options(encoder, rankers))  # type: ignore[return-value]


def test_the_program_writes_json_and_page(encoder: str, tmp_path: Path) -> None:
    sizes = ["--items", "5", "20", "--stages", "12", "--saturated", "5", "--rounds", "1"]
    rankers = ["--rankers", "crossjem", "monobert", "dpr"]
    assert main(["--smoke", "--encoder", encoder, *sizes, *rankers, "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "latency.json").read_text())
    names = {"crossjem", "crossjem by id", "monobert", "monobert by id", "dpr", "sentence-transformers"}
    for times in found["milliseconds"].values():
        assert set(times) == names
        assert all(len(values) == 1 and min(values) > 0 for values in times.values())
    rows = {(row["name"], row["items"]): row for row in found["latency"]}
    assert set(rows) == {(name, items) for name in names for items in (5, 20)}
    times, row = found["milliseconds"]["20"], rows["crossjem", 20]
    assert row["p50"] == pytest.approx(np.median(times["crossjem"]))
    assert row["ratios"]["monobert"] == pytest.approx(times["monobert"][0] / times["crossjem"][0])
    assert 0 < row["gflop"] < rows["monobert", 20]["gflop"]
    share = 1000 * row["gflop"] / row["p50"] / found["matrix_peak_gflops"]["float32"]
    assert row["share_of_peak"] == pytest.approx(share)
    assert {one["name"] for one in found["throughput"]} == names
    assert {one["name"] for one in found["stages"]} == names - {"dpr", "sentence-transformers"}
    text = (tmp_path / "latency.md").read_text()
    assert "| crossjem by id | 20 |" in text
    assert found["provenance"]["machine"] in text


def test_exported_rankers_take_part(encoder: str, tmp_path: Path) -> None:
    given = options(encoder, ["monobert"], exported=["onnx"], items=[4], stages=[], saturated=[], rounds=1)
    found = {contender.name: contender for contender in contenders_of(given, tmp_path)}
    assert set(found) == {"monobert", "monobert by id", "monobert onnx"}
    times = time_in_turn(found.values(), [[one] for one in measured_lists(4, 1)])
    assert min(times["monobert onnx"].rounds) > 0
    assert found["monobert onnx"].flops(measured_lists(4, 1)) is None


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("real") / "lists.jsonl"
    lists = [{"query": "red", "items": [f"shoe {i} {j}" for j in range(20)]} for i in range(9)]
    path.write_text("".join(json.dumps(one) + "\n" for one in lists))
    return path


def test_known_items_and_a_file_of_lists(encoder: str, real: Path, tmp_path: Path) -> None:
    only = ["--summary", "--rankers", "ahead", "dpr", "--peers", "--items", "4", "--stages", "--rounds", "1"]
    assert main([*only, "--encoder", encoder, "--real", str(real), "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "latency.json").read_text())
    assert set(found["milliseconds"]) == {"4", "100 real"}
    assert set(found["milliseconds"]["4"]) == {"ahead", "ahead by id", "dpr", "dpr uncached"}
    assert "| ahead by id | 100 real |" in (tmp_path / "latency.md").read_text()
    work = {row["name"]: row["gflop"] for row in found["latency"] if row["lists"] == "4"}
    assert work["ahead by id"] < work["ahead"]
    assert work["dpr"] < work["dpr uncached"]
    with pytest.raises(ValueError, match="fewer than 500"):
        taking_part.real_lists(real, 500, 1)


def test_a_slow_contender_is_not_measured_at_larger_sizes(encoder: str, real: Path, tmp_path: Path) -> None:
    only = ["--rankers", "crossjem", "--peers", "--saturated", "--stages", "--rounds", "1"]
    sizes = ["--items", "3", "2", "--longest", "1e-9", "--real", str(real)]
    assert main(["--smoke", "--encoder", encoder, *only, *sizes, "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "latency.json").read_text())
    assert set(found["milliseconds"]["2"]) == set(found["stopped"]) == {"crossjem", "crossjem by id"}
    assert list(found["milliseconds"]) == ["2"]


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


class Idle(Contender):
    def rank(self, lists: Sequence[RankingList]) -> None:
        pass


def test_rows_come_from_rounds_in_turn() -> None:
    found = [Idle("a"), Idle("b"), Idle("b bfloat16", "bfloat16")]
    lists = measured_lists(3, 2, 1)
    taken = {"a": Timings((3.0, 6.0)), "b": Timings((6.0, 6.0)), "b bfloat16": Timings((1.0, 1.0))}
    rows = rows_of(found, taken, lists[1:], ["b"], {})
    assert [row["ratios"] for row in rows] == [{"b": 1.5}, {}, {}], "in the same precision"
    assert rows[0]["pairs_per_second"] == pytest.approx(1000 * 3 / 4.5)
    assert rows[0]["gflop"] is None


@pytest.mark.parametrize("name", ["crossjem", "crossjem-best", "monobert"])
def test_stages_add_up_to_the_whole(name: str, encoder: str) -> None:
    (contender,) = own(encoder, name)
    found = stage_milliseconds(contender, measured_lists(120, 1, 1), 1)
    assert sum(found[stage] for stage in STAGES) == pytest.approx(found["all"])
    assert min(found["encoder"], found["tokenise"]) > 0
    assert (found["item-side layers"] > 0) == (name == "crossjem-best")
    assert "collate" not in vars(contender.reranker.ranker)


def test_rankers_forget_texts_and_dual_ones_know_their_items(encoder: str) -> None:
    joint, dual = own(encoder, "crossjem", "dpr")
    lists = measured_lists(5, 1, 0)
    for contender in (joint, dual):
        contender.prepare(lists)
        contender.rank(lists)
    rankers: list[Any] = [contender.reranker.ranker for contender in (joint, dual)]
    assert len(rankers[0].tokenizer._cache) == 0
    assert len(rankers[1].item_cache) == 5


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
    spec = {"name": "sentence-transformers", "memory_items": 5, "threads": 1}
    assert peak_memory(vars(options(encoder, ["crossjem"])) | spec) >= 0
