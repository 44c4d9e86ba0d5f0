"""Exported rankers score what torch scores."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from crossjem_pl.hashing import weights_sha256
from crossjem_pl.inference import Reranker
from crossjem_pl.inference.agreement import agreement
from crossjem_pl.inference.export.ranker import load_exported
from crossjem_pl.inference.export.runtimes import BACKENDS
from crossjem_pl.inference.export.write import export_ranker, read_description
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import BM25, DPR, CrossJEM, LinearHead, MonoBERT, QueryHead, Ranker
from tests.conftest import example_lists, root
from tests.rankers import encoder_families
from tests.tiny_models import write_bert

LIMITS: dict[str, Any] = {"max_query_tokens": 16, "max_item_tokens": 16}
SMALL: dict[str, Any] = {"max_items_per_pass": 6, "max_union_tokens": 24, **LIMITS}
BUILDERS: dict[str, Callable[[str], Ranker]] = {
    "paper": lambda bert: CrossJEM(bert, LinearHead(True, True), **SMALL),
    "best-own-places": lambda bert: CrossJEM(bert, form="best", own_places=True, **SMALL),
    "monobert": lambda bert: MonoBERT(bert, pairs_per_pass=7, **LIMITS),
}
pytestmark = pytest.mark.usefixtures("traced_once")
ITEMS = ["blue boots", "red shoes", "a cheap flight to paris", "shoe store", "dog food"]


def build(name: str, bert: str) -> Any:
    """The ranker in eval mode, with weights large enough for every part to show in the scores."""
    torch.manual_seed(0)
    ranker = BUILDERS[name](bert).eval()
    for parameter in ranker.parameters():
        if parameter.ndim == 2:
            parameter.data.mul_(3.0)
    return ranker


def shapes() -> list[list[RankingList]]:
    """One list of one item, batches of one, several passes, uneven lists."""
    one = [
        RankingList.from_texts("car", ["dog"]),
        RankingList.from_texts("red shoe near me", ["boots in paris"]),
    ]
    return [
        one[:1],
        one,
        *(example_lists(n, seed, most) for seed, n, most in ((1, 1, 3), (2, 5, 9), (3, 2, 60))),
    ]


def same_scores(ranker: Ranker, exported: Ranker) -> None:
    for lists in shapes():
        with torch.no_grad():
            expected = ranker(ranker.collate(lists))
        found = exported(exported.collate(lists))
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def ranker(tiny_bert: str) -> CrossJEM:
    return build("best-own-places", tiny_bert)


@pytest.fixture(scope="module", params=sorted(BACKENDS))
def folder(
    request: pytest.FixtureRequest, ranker: CrossJEM, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    made: Path = tmp_path_factory.mktemp(request.param) / "exported"
    export_ranker(ranker, made, request.param, model="the model")
    return made


# --- scores ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", sorted(BACKENDS))
@pytest.mark.parametrize("name", BUILDERS)
def test_exported_scores_equal_torchs(name: str, to: str, tiny_bert: str, tmp_path: Path) -> None:
    ranker = build(name, tiny_bert)
    export_ranker(ranker, tmp_path, to)
    same_scores(ranker, load_exported(tmp_path))


def test_another_family_scores_the_same(tmp_path: Path) -> None:
    """Rotary positions and windows of attention, under full attention and the query head."""
    encoder = encoder_families.write(tmp_path / "encoder", "modernbert")
    ranker = CrossJEM(encoder, QueryHead(), max_items_per_pass=6, max_union_tokens=40, **LIMITS).eval()
    export_ranker(ranker, tmp_path / "out")
    same_scores(ranker, load_exported(tmp_path / "out"))


def test_threads_of_one_run_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime's ScatterND adds from many threads without a lock: now and then sums of the same row go missing."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    ranker = CrossJEM(str(write_bert(tmp_path / "bert", hidden_size=384)), form="best", **LIMITS).eval()
    export_ranker(ranker, tmp_path / "out")
    exported, lists = load_exported(tmp_path / "out"), example_lists(4, seed=3, most_items=200)
    with torch.no_grad():
        expected = ranker(ranker.collate(lists))
    for _ in range(20):
        torch.testing.assert_close(exported(exported.collate(lists)), expected, rtol=1e-4, atol=1e-4)


def test_every_axis_of_the_graph_is_dynamic(ranker: CrossJEM, tmp_path: Path) -> None:
    export_ranker(ranker, tmp_path)
    graph = onnx.load(str(tmp_path / "model.onnx")).graph
    axes = {i.name: tuple(d.dim_param for d in i.type.tensor_type.shape.dim) for i in graph.input}
    assert axes == ranker.run_axes


def test_other_rankers_are_refused(tiny_bert: str, tmp_path: Path) -> None:
    for other in (DPR(tiny_bert, **LIMITS), BM25()):
        with pytest.raises(ValueError, match=r"cannot be exported; these rankers can: .*crossjem, monobert"):
            export_ranker(other, tmp_path)
    assert not list(tmp_path.iterdir())


def test_export_leaves_the_ranker_as_it_was(tiny_bert: str, tmp_path: Path) -> None:
    ranker = build("monobert", tiny_bert).train()
    ranker.model.dropout.eval()
    before = [module.training for module in ranker.modules()]
    export_ranker(ranker, tmp_path)
    assert [module.training for module in ranker.modules()] == before
    assert {*before} == {True, False}


# --- the folder --------------------------------------------------------------------------------------------


def test_a_reranker_finds_out_what_the_folder_holds(ranker: CrossJEM, folder: Path) -> None:
    expected = Reranker(ranker, "cpu").rank("red running shoes", ITEMS)
    backend = read_description(folder).backend
    for asked in (None, backend):
        exported = Reranker.from_pretrained(folder, backend=asked)
        ranked = exported.rank("red running shoes", ITEMS)
        assert [item.index for item in ranked] == [item.index for item in expected]
        assert [item.score for item in ranked] == pytest.approx([item.score for item in expected], abs=1e-4)
        assert (exported.device.type, exported.truncated) == ("cpu", 0)
    exported.rank("red shoes", ["shoes " * 40, "boots"])
    assert exported.truncated == 1


def test_the_description_says_what_it_was_made_from(ranker: CrossJEM, folder: Path) -> None:
    found = read_description(folder)
    assert (found.ranker, found.model, found.precision) == ("crossjem", "the model", "float32")
    assert found.weights_sha256 == weights_sha256(ranker)
    assert found.versions["torch"] == torch.__version__
    assert set(found.files) == {path.name for path in folder.iterdir()} - {"export.json"}
    assert not (folder / "model.safetensors").exists()


def test_threads_rank_at_once(ranker: CrossJEM, folder: Path) -> None:
    exported, original = Reranker.from_pretrained(folder), Reranker(ranker, "cpu")
    lists = example_lists(24, seed=5)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda one: exported.score([one])[0], lists))
    for one, scores in zip(lists, found, strict=True):
        torch.testing.assert_close(scores, original.score([one])[0], rtol=1e-4, atol=1e-4)


def test_signals_arrive_after_models_are_freed(ranker: CrossJEM, tmp_path: Path) -> None:
    """In a process of its own: a runtime that unmaps its signal stack would take the whole test run with it."""
    export_ranker(ranker, tmp_path, "openvino")
    code = f"""
import gc, signal
from crossjem_pl.inference import Reranker

models = [Reranker({str(tmp_path)!r}) for _ in range(2)]
while models:
    del models[0]  # the oldest first
    gc.collect()
arrived = []
signal.signal(signal.SIGUSR1, lambda *_: arrived.append(1))
signal.raise_signal(signal.SIGUSR1)
assert arrived
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=root()).returncode == 0


def test_exported_models_do_not_explain_or_save(folder: Path, tmp_path: Path) -> None:
    exported = Reranker.from_pretrained(folder)
    with pytest.raises(ValueError, match="load 'the model'"):
        exported.explain("red shoes", ITEMS)
    with pytest.raises(ValueError, match="copy its folder"):
        exported.save_pretrained(tmp_path)


def test_the_wrong_backend_device_or_precision_is_named(folder: Path, tiny_bert: str) -> None:
    other = next(name for name in BACKENDS if name != read_description(folder).backend)
    for backend in (other, "torch"):
        with pytest.raises(ValueError, match=f"not for {backend}"):
            Reranker.from_pretrained(folder, backend=backend)
    with pytest.raises(ValueError, match="tensorflow"):
        Reranker.from_pretrained(folder, backend="tensorflow")
    with pytest.raises(ValueError, match="run on the CPU, not on cuda"):
        Reranker.from_pretrained(folder, device="cuda")
    with pytest.raises(ValueError, match="not in float16"):
        Reranker.from_pretrained(folder, precision="float16")
    with pytest.raises(ValueError, match=f"crossjem export .* --to {other}"):
        Reranker.from_pretrained(tiny_bert, backend=other)


def test_openvino_computes_in_bfloat16_where_asked(ranker: CrossJEM, tmp_path: Path) -> None:
    export_ranker(ranker, tmp_path, "openvino")
    exported = Reranker.from_pretrained(tmp_path, precision="bfloat16")
    expected = Reranker(ranker, "cpu").score(example_lists(4))
    found = agreement(expected, exported.score(example_lists(4)))
    assert found.difference < 0.2 * max(float(one.abs().max()) for one in expected)


def test_a_changed_file_is_noticed(ranker: CrossJEM, tmp_path: Path) -> None:
    export_ranker(ranker, tmp_path)
    graph = tmp_path / "model.onnx"
    graph.write_bytes(graph.read_bytes() + b" ")
    with pytest.raises(ValueError, match=r"model\.onnx is damaged"):
        load_exported(tmp_path)
    graph.unlink()
    with pytest.raises(ValueError, match=r"names the file model\.onnx, which is missing"):
        load_exported(tmp_path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"format": 99}, "field 'format'"),
        ({"files": "model.onnx"}, "field 'files'"),
        ({"ranker": "no-such"}, "unknown ranker 'no-such'"),
        ({"ranker": "bm25", "init_args": {}}, "bm25 is not a ranker that can be exported"),
        ({"backend": "no-such"}, "no backend 'no-such'"),
    ],
)
def test_a_damaged_description_is_named(
    change: dict[str, Any], named: str, folder: Path, tmp_path: Path
) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    path = tmp_path / "export.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=named):
        Reranker.from_pretrained(tmp_path)
    path.write_text("{")
    with pytest.raises(ValueError, match=r"export\.json, line 1: not valid JSON"):
        Reranker.from_pretrained(tmp_path)


def test_an_export_that_fails_leaves_the_former(
    ranker: CrossJEM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_ranker(ranker, tmp_path / "a", model=str(tmp_path / "model"))
    before = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    assert str(tmp_path).encode() not in b"".join(before.values())
    monkeypatch.setattr(CrossJEM, "save_assets", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export_ranker(ranker, tmp_path / "a")
    assert {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_export_replaces_an_export_and_nothing_else(ranker: CrossJEM, tmp_path: Path) -> None:
    export_ranker(ranker, tmp_path / "a", "openvino")
    (tmp_path / "a" / "threshold.json").write_text("{}")
    export_ranker(ranker, tmp_path / "a", "onnx")
    assert not {"model.xml", "model.bin", "threshold.json"} & {p.name for p in (tmp_path / "a").iterdir()}
    same_scores(ranker, load_exported(tmp_path / "a"))
    (tmp_path / "a" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"holds other files than an exported model \(notes\.txt\)"):
        export_ranker(ranker, tmp_path / "a")
    Reranker(ranker, "cpu").save_pretrained(tmp_path / "model")
    kept = sorted(p.name for p in (tmp_path / "model").iterdir())
    with pytest.raises(ValueError, match="holds other files"):
        export_ranker(ranker, tmp_path / "model")
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == kept
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="is a file"):
        export_ranker(ranker, tmp_path / "file")


# --- int8 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", sorted(BACKENDS))
@pytest.mark.parametrize("name", ["paper", "best-own-places", "monobert"])
def test_int8_ranks_alike_in_a_smaller_file(name: str, to: str, tiny_bert: str, tmp_path: Path) -> None:
    ranker = build(name, tiny_bert)
    sizes = {}
    for int8 in (False, True):
        folder = tmp_path / str(int8)
        description = export_ranker(ranker, folder, to, int8)
        assert description.precision == ("int8" if int8 else "float32")
        # onnx has one file; OpenVINO's weights are in the last
        sizes[int8] = (folder / BACKENDS[to].files[-1]).stat().st_size
    assert sizes[True] < sizes[False]
    lists = [one for one in example_lists(12, seed=4, most_items=40) if len(one) >= 10]
    expected = Reranker(ranker, "cpu").score(lists)
    found = agreement(expected, Reranker(tmp_path / "True").score(lists))
    assert 0 < found.difference < 0.2 * max(float(one.abs().max()) for one in expected)
    assert found.tau > 0.8


# --- without the extra -------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["onnxscript", "onnxruntime"])
def test_a_missing_package_names_the_extra(
    missing: str, ranker: CrossJEM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.import_module

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == missing:
            raise ImportError(f"No module named {name!r}")
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ImportError, match=rf"{missing} .*pip install 'crossjem_pl\[export\]'"):
        export_ranker(ranker, tmp_path / "new")
    assert not (tmp_path / "new").exists()
