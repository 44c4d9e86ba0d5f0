"""The latency benchmark runs and measures all sides on the same lists. Speed is no test's matter."""

from __future__ import annotations

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
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.latency import lightning_ir_worker, measure, peers
from benchmarks.latency.__main__ import main
from benchmarks.latency.contenders import Contender, OwnRanker
from benchmarks.latency.field import DEFAULT_RANKERS, Field, contenders_of
from benchmarks.latency.figures import rows_of
from benchmarks.latency.peak_memory import grow, peak_memory
from benchmarks.latency.peers import LightningIR, SentenceTransformers
from benchmarks.latency.saturated import batch_sizes, saturate
from benchmarks.latency.stages import STAGES, stage_milliseconds
from benchmarks.latency.turns import measured_lists, take_turns
from benchmarks.measuring.build import NEEDS_OWN_WEIGHTS, build_ranker, overlays
from benchmarks.measuring.fresh import fresh
from benchmarks.measuring.memory import MemoryMeter
from benchmarks.measuring.peak import matrix_peak
from benchmarks.measuring.work import Work, layer_work, pair_work, ranker_work, shape_of
from crossjem_pl.data.simulator import simulate
from crossjem_pl.evaluation.report import read_latency
from crossjem_pl.inference import Reranker
from crossjem_pl.inference.export.write import export_ranker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import RANKERS, CrossJEM, MonoBERT
from crossjem_pl.text.token_store import TokenStore
from tests import tiny_models

CPU = torch.device("cpu")
EAGER = ("crossjem", "crossjem-best", "monobert")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_models.write_bert(tmp_path_factory.mktemp("latency") / "bert", positions=512))


class Fixed(Contender):
    """Takes a given time for every list and remembers the order of the calls."""

    calls: list[str]

    def __init__(self, name: str, value: float, calls: list[str]) -> None:
        super().__init__(name)
        self.value, self.calls = value, calls

    def milliseconds(self, lists: Sequence[RankingList]) -> float:
        self.calls.append(self.name)
        return self.value * sum(len(one) for one in lists)


def test_the_program_writes_json_page_and_plots(
    encoder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    sizes = ["--items", "5", "120", "--stages", "12", "--saturated", "5", "--rounds", "2"]
    rankers = ["--rankers", "crossjem", "monobert", "dpr", "--precision", "float32", "bfloat16"]
    assert main(["--smoke", "--encoder", encoder, *sizes, *rankers, "--out", str(out)]) == 0
    found = json.loads((out / "latency.json").read_text())
    names = {"crossjem", "crossjem by id", "monobert", "monobert by id", "dpr", "sentence-transformers"}
    names |= {f"{name} bfloat16" for name in names}
    assert set(found["milliseconds"]) == {"5", "120"}
    for times in found["milliseconds"].values():
        assert set(times) == names
        assert all(len(values) == 2 and min(values) > 0 for values in times.values())
    rows = {(row["name"], row["items"]): row for row in found["latency"]}
    assert set(rows) == {(name, items) for name in names for items in (5, 120)}
    times = found["milliseconds"]["120"]
    row = rows["crossjem", 120]
    assert row["p50"] == pytest.approx(np.median(times["crossjem"]))
    assert row["ratios"]["monobert"] == pytest.approx(
        np.median(np.array(times["monobert"]) / np.array(times["crossjem"]))
    )
    assert rows["crossjem bfloat16", 120]["ratios"]["monobert"] == pytest.approx(
        np.median(np.array(times["monobert bfloat16"]) / np.array(times["crossjem bfloat16"]))
    )
    assert 0 < row["gflop"] < rows["monobert", 120]["gflop"]
    assert row["share_of_peak"] == pytest.approx(
        1000 * row["gflop"] / row["p50"] / found["matrix_peak_gflops"]["float32"]
    )
    assert {one["name"] for one in found["throughput"]} == names
    assert set(found["stages"]["12"]) == {name for name in names if name.startswith(("crossjem", "monobert"))}
    assert "transformers 4" in found["left_out"]["lightning-ir"]
    text = (out / "latency.md").read_text()
    assert "Not measured: lightning-ir" in text
    assert "| crossjem by id | 120 |" in text
    assert (out / "latency.png").stat().st_size > 1000
    assert (out / "stages.png").stat().st_size > 1000
    assert "wrote" in capsys.readouterr().out
    latency = read_latency(out / "latency.json")  # as `crossjem report --latency` does
    assert latency.precision == "float32"
    assert latency.warm is False


def test_a_slow_contender_is_not_measured_at_larger_sizes(encoder: str, tmp_path: Path) -> None:
    only = ["--rankers", "crossjem", "--peers", "--saturated", "--stages", "--rounds", "1"]
    sizes = ["--items", "3", "2", "--longest", "1e-9"]
    assert main(["--smoke", "--encoder", encoder, *only, *sizes, "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "latency.json").read_text())
    assert set(found["milliseconds"]["2"]) == set(found["stopped"]) == {"crossjem", "crossjem by id"}
    assert "3" not in found["milliseconds"]
    assert "Not measured at more than 2 items" in (tmp_path / "latency.md").read_text()


def test_mistakes_in_the_options_end_in_a_message(encoder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--items", "0"]) == 2
    assert "--items" in capsys.readouterr().err
    assert main(["--smoke", "--encoder", encoder, "--encoder-of", "t5"]) == 2
    assert "RANKER=ENCODER" in capsys.readouterr().err
    assert main(["--smoke", "--encoder", encoder, "--rankers", "rankt5", "--peers"]) == 2
    assert "--encoder-of rankt5=" in capsys.readouterr().err


def test_every_neural_ranker_can_take_part(encoder: str, tiny_models_folder: Path) -> None:
    own = {name: str(tiny_models_folder / ("gpt" if "gpt" in name else "t5")) for name in NEEDS_OWN_WEIGHTS}
    names = [
        name for name in (*DEFAULT_RANKERS, *NEEDS_OWN_WEIGHTS, "bm25") if name not in ("coral", "rankt5")
    ]
    field = Field(names, encoder, CPU, own_encoders=own, random_init=True)
    contenders = contenders_of(field)
    times = take_turns(contenders, measured_lists(6, 1, warmup=1), warmup=1)
    assert {name for name, values in times.items() if len(values) == 1 and values[0] > 0} == set(names)
    measured = {type(one.reranker.ranker).name for one in contenders if isinstance(one, OwnRanker)}
    assert set(RANKERS) - measured == {"coral", "rankt5"}  # their overlays cut 3 layers from an encoder of 2
    assert {"coral", "rankt5"} < set(overlays())


def test_an_overlay_with_wrong_arguments_is_refused(encoder: str) -> None:
    with pytest.raises(ValueError, match="ranker 'crossjem'"):
        build_ranker("crossjem", encoder, {"heads": 3})
    with pytest.raises(ValueError, match="no ranker 'nothing'"):
        build_ranker("nothing", encoder)
    best = build_ranker("crossjem-best", encoder)
    assert isinstance(best, CrossJEM)
    assert best.init_args["head"]["class"] == "MatchHead"


def test_the_contenders_take_turns_and_warm_up() -> None:
    calls: list[str] = []
    contenders = [Fixed("a", 1.0, calls), Fixed("b", 2.0, calls)]
    lists = measured_lists(3, 2, warmup=1)
    assert take_turns(contenders, lists, warmup=1) == {"a": [3.0, 3.0], "b": [6.0, 6.0]}
    assert calls == ["a", "b", "b", "a", "a", "b"]
    rows = rows_of(contenders, {"a": [3.0, 6.0], "b": [6.0, 6.0]}, lists[1:], ["b"], {"float32": 1.0})
    assert rows[0].ratios == {"b": 1.5}
    assert rows[1].ratios == {}
    assert rows[0].pairs_per_second == pytest.approx(1000 * 3 / 4.5)
    assert rows[0].gflop is None


def test_several_queries_a_batch() -> None:
    assert batch_sizes(700, 3_000) == [1, 4]
    assert batch_sizes(1400, 1_000) == [1]
    best = saturate([Fixed("a", 2.0, [])], 4, most_pairs=20, rounds=2)
    assert best[0].tried == {1: 500.0, 4: 500.0}
    assert best[0].queries == 1
    slow = saturate([Fixed("a", 2.0, [])], 4, most_pairs=20, rounds=2, longest=0.02)
    assert slow[0].tried == {1: 500.0}


def test_tables_measure_rerankers(encoder: str) -> None:
    rerankers = {"crossjem": Reranker(CrossJEM(encoder)), "monobert": Reranker(MonoBERT(encoder))}
    found = measure(rerankers, items=4, rounds=2, warm=False)
    assert {name: len(values) for name, values in found.items()} == {"crossjem": 2, "monobert": 2}


@pytest.mark.parametrize("name", ["crossjem", "crossjem-best", "monobert"])
def test_stages_add_up_to_the_whole(name: str, encoder: str) -> None:
    (contender,) = contenders_of(Field([name], encoder, CPU))
    assert isinstance(contender, OwnRanker)
    found = stage_milliseconds(contender, measured_lists(120, 1, warmup=1), warmup=1)
    assert sum(found[stage] for stage in STAGES) == pytest.approx(found["all"])
    assert found["encoder"] > 0
    assert found["tokenise"] > 0
    assert min(found[stage] for stage in STAGES) >= 0
    assert (found["item layers"] > 0) == (name == "crossjem-best")
    assert "collate" not in vars(contender.reranker.ranker)


def test_stages_without_an_encoder_call_are_an_error(encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (contender,) = contenders_of(Field(["crossjem"], encoder, CPU))
    assert isinstance(contender, OwnRanker)
    ranker = contender.reranker.ranker
    monkeypatch.setattr(ranker, "forward", lambda batch: torch.zeros(batch.item_mask.shape))
    with pytest.raises(RuntimeError, match="has no stages"):
        stage_milliseconds(contender, measured_lists(3, 1, warmup=0), warmup=0)


def test_cold_rankers_forget_and_dual_ones_know_their_items(encoder: str) -> None:
    cold, dual = contenders_of(Field(["crossjem", "dpr"], encoder, CPU))
    warm = contenders_of(Field(["crossjem"], encoder, CPU, warm=True))[0]
    lists = measured_lists(5, 1, warmup=0)
    for contender in (cold, dual, warm):
        contender.prepare(lists)
        contender.milliseconds(lists)
    assert isinstance(cold, OwnRanker)
    assert isinstance(dual, OwnRanker)
    assert isinstance(warm, OwnRanker)
    assert len(cold.reranker.ranker.tokenizer._cache) == 0  # type: ignore[arg-type, union-attr]
    assert len(warm.reranker.ranker.tokenizer._cache) >= 5  # type: ignore[union-attr, arg-type]
    assert len(dual.reranker.ranker.item_cache) == 5  # type: ignore[arg-type]


def test_by_id_gives_the_same_ranking(encoder: str, tmp_path: Path) -> None:
    (one,) = measured_lists(9, 1, warmup=0)
    ranker = build_ranker("crossjem", encoder)
    assert isinstance(ranker, CrossJEM)
    store = TokenStore.build(tmp_path / "store", zip(one.item_ids, one.items, strict=True), ranker.tokenizer)
    by_text, by_id = contenders_of(Field(["crossjem"], encoder, CPU), store)
    assert by_id.name == "crossjem by id"
    assert isinstance(by_text, OwnRanker)
    assert isinstance(by_id, OwnRanker)
    texts, ids = by_text.rank([one]), by_id.rank([one])
    assert isinstance(texts, list)
    assert isinstance(ids, list)
    assert [row.index for row in texts] == [row.index for row in ids]
    two = by_id.rank([one, one])
    assert isinstance(two, list)
    for rows in two:
        assert [row.item_id for row in rows] == [row.item_id for row in ids]
        assert [row.score for row in rows] == pytest.approx([row.score for row in ids])


@pytest.mark.slow
def test_exported_models_take_part(encoder: str, tmp_path: Path) -> None:
    export_ranker(build_ranker("crossjem", encoder), tmp_path / "onnx")
    contenders = contenders_of(Field(["crossjem"], encoder, CPU, exported=[tmp_path / "onnx"]))
    assert [one.name for one in contenders] == ["crossjem", "exported onnx"]
    assert all(one.milliseconds(measured_lists(5, 1, warmup=0)) > 0 for one in contenders)


def test_passes_and_pairs_can_be_set(encoder: str) -> None:
    field = Field(["crossjem", "monobert"], encoder, CPU, passes=(7, 50), pairs_per_pass=[3])
    rankers = {one.name: one.reranker.ranker for one in contenders_of(field) if isinstance(one, OwnRanker)}
    assert set(rankers) == {"crossjem", "monobert", "monobert (3 pairs a pass)"}
    assert rankers["crossjem"].init_args["max_items_per_pass"] == 7
    assert rankers["crossjem"].init_args["max_union_tokens"] == 50
    assert rankers["monobert (3 pairs a pass)"].init_args["pairs_per_pass"] == 3
    assert rankers["monobert"].init_args["pairs_per_pass"] == 32


def test_sentence_transformers_ranks_the_same_lists(encoder: str) -> None:
    peer = SentenceTransformers("peer", encoder, CPU, batch_size=4)
    lists = measured_lists(6, 2, warmup=0)
    one: Any = peer.rank(lists[:1])
    assert sorted(row["corpus_id"] for row in one) == list(range(6))
    several: Any = peer.rank(lists)
    assert several[0].tolist() == [row["corpus_id"] for row in one]
    assert peer.milliseconds(lists) > 0


def test_the_formula_holds_for_sentence_transformers(eager: str, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = SentenceTransformers("peer", eager, CPU, batch_size=8)
    (one,) = measured_lists(30, 1, warmup=0)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spelled_out)
    assert counted(lambda: peer.rank([one])) == pytest.approx(peer.work([one]).flops, rel=0.04)


def counted(call: Any) -> int:
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Wide enough that matrices are most of the cost, as in real encoders."""
    folder = tmp_path_factory.mktemp("flops") / "bert"
    return str(tiny_models.write_bert(folder, hidden_size=96, layers=3, positions=512))


@pytest.mark.parametrize("name", [*EAGER, "sharedquery", "setencoder", "dpr", "colbert"])
def test_the_formula_is_what_torch_counts(name: str, eager: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager attention where the ranker lets one choose; fused attention is not counted by torch on a CPU, so it is
    spelled out."""
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spelled_out)
    own = {"attn_implementation": "eager"} if name in EAGER else {}
    ranker = build_ranker(name, eager, own).eval()
    (one,) = measured_lists(120, 1, warmup=0)
    reranker = Reranker(ranker, CPU)
    if name in ("dpr", "colbert"):
        ranker.precompute_items(one.items)  # type: ignore[operator]
    work = ranker_work(ranker, [one])
    assert work is not None
    total = counted(lambda: reranker.rank(one.query, one.items))
    if name == "colbert":
        total -= similarity_of(ranker, one)
    assert total == pytest.approx(work.flops, rel=0.04)
    assert work.bytes("bfloat16") == work.bytes("float32") / 2


def spelled_out(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    assert dropout_p == 0
    assert not is_causal
    assert not enable_gqa
    logits = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        logits = logits.masked_fill(~attn_mask, -1e9)
    elif attn_mask is not None:
        logits = logits + attn_mask
    return logits.softmax(-1) @ value


def similarity_of(ranker: Any, one: RankingList) -> int:
    """The products of ColBERT's comparison, which the formula leaves out, with the query's projection."""
    batch = ranker.collate([one])
    query = batch.queries.groups[0].input_ids.shape[1]
    longest = max(int(group.used.sum(1).max()) for group in batch.items.groups)
    return 2 * query * 128 * (len(one) * longest + 96)


def test_layer_work_by_hand() -> None:
    config = tiny_config(width=4, inner=8, layers=2)
    shape = shape_of(config)
    work = layer_work(shape, tokens=10, attended=60.0, passes=3)
    assert work == Work(2 * ((8 * 16 + 4 * 32) * 10 + 4 * 4 * 60), 2 * (3 * 128 + (18 * 4 + 4 * 8) * 10), 10)
    pairs = pair_work(shape, [(2, 5)])
    assert pairs.flops == layer_work(shape, 10, 50.0).flops + 2 * 2 * (16 + 4)
    with pytest.raises(ValueError, match="does not tell its sizes"):
        shape_of(tiny_config(width=0, inner=8, layers=2))


def tiny_config(width: int, inner: int, layers: int) -> Any:
    return SimpleNamespace(
        hidden_size=width, intermediate_size=inner, num_hidden_layers=layers, model_type="bert"
    )


def test_unknown_costs_are_none() -> None:
    assert ranker_work(build_ranker("bm25", None), measured_lists(3, 1, warmup=0)) is None


def test_the_peak_is_a_rate() -> None:
    assert matrix_peak(CPU, "float32", repeats=1) > 1e8


def test_memory_grows_by_what_is_touched() -> None:
    meter = MemoryMeter(CPU)
    held = torch.ones(64 * 2**20)  # more than an allocator keeps
    grown = meter.growth()
    del held
    assert 200 < grown < 400
    assert meter.growth() == pytest.approx(grown, abs=20)


def test_memory_of_one_contender(encoder: str) -> None:
    common = {"encoder": encoder, "device": "cpu", "precision": "float32", "own_encoders": {}, "items": 5}
    common |= {"random_init": False, "passes": [5, 60], "threads": 1}
    for name in ("crossjem", "sentence-transformers"):
        assert grow({**common, "name": name})["mib"] >= 0


@pytest.mark.slow
def test_memory_is_measured_in_a_process_of_its_own(encoder: str) -> None:
    assert peak_memory(Field(["crossjem"], encoder, CPU), 5)["crossjem"] > 0
    with pytest.raises(RuntimeError, match="no ranker 'nothing'"):
        peak_memory(Field(["nothing"], encoder, CPU), 5)


def test_a_failing_process_says_why() -> None:
    with pytest.raises(RuntimeError, match="No module named"):
        fresh("benchmarks.nothing", {})


def test_lightning_ir_is_timed_in_its_own_process(
    tmp_path: Path, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is stood in for; it answers as the worker does."""
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import json, sys\n"
        "print(json.dumps({'version': '9.' + sys.argv[3]}), flush=True)\n"
        "for line in sys.stdin:\n"
        "    items = json.loads(line)['items']\n"
        "    if len(items) > 2: sys.exit('too many')\n"
        "    print(json.dumps({'milliseconds': float(len(items[0]))}), flush=True)\n"
    )
    monkeypatch.setattr(peers, "_WORKER", worker)
    peer = LightningIR("lightning-ir", Path(sys.executable), encoder, CPU)
    assert peer.version == f"9.{torch.get_num_threads()}"
    assert peer.milliseconds(measured_lists(5, 1, warmup=0)) == 5.0
    assert peer.work([]) is None
    with pytest.raises(RuntimeError, match="too many"):
        peer.milliseconds(measured_lists(5, 3, warmup=0))
    peer.close()


def test_the_worker_ranks_with_what_lightning_ir_offers(
    encoder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """lightning-ir's module is stood in for: it cannot be installed where the tests run."""

    class Module:
        def __init__(self, name: str, config: object) -> None:
            assert (name, config) == (encoder, "first")

        def eval(self) -> Module:
            return self

        def to(self, device: str) -> Module:
            print("a library talks")
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


def test_lists_are_the_same_every_time() -> None:
    assert measured_lists(4, 1) == list(simulate(3, 4, seed=1, split="test"))
