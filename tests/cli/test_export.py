"""`crossjem export` from the command line."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
import torch
from torch import Tensor

from crossjem_pl.data.formats import write_lists
from crossjem_pl.evaluation.threshold import choose_threshold
from crossjem_pl.inference import Reranker
from crossjem_pl.inference.configuration import Configuration, save_configuration
from crossjem_pl.inference.export import write
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import Ranker
from crossjem_pl.rankers.folder import save_ranker
from crossjem_pl.rankers.threshold import THRESHOLD_FILE, read_threshold, write_threshold
from tests.cli.conftest import Ran
from tests.conftest import example_lists
from tests.inference.test_export import build

pytestmark = pytest.mark.usefixtures("traced_once")


@pytest.fixture(scope="module")
def model(tiny_bert: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with a threshold."""
    folder = tmp_path_factory.mktemp("model")
    ranker = build("monobert", tiny_bert)
    save_ranker(ranker, folder)
    lists = example_lists(6)
    write_threshold(choose_threshold(lists, Reranker(ranker, "cpu").score(lists), ranker), folder)
    return folder


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    path = tmp_path / "samples.jsonl"
    write_lists(example_lists(4, seed=9), path)
    return path


def test_it_writes_compares_and_keeps_the_threshold(
    model: Path, samples: Path, tmp_path: Path, crossjem: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    out = tmp_path / "onnx"
    options = ("--to", "onnx", "--out", out, "--lists", samples, "--samples", 3)
    printed = crossjem("export", model, *options).out
    for part in ("3 lists", "torch float32", "onnx float32", "weights, MB", "as fast", f"Wrote {out}"):
        assert part in printed
    exported, original = Reranker.from_pretrained(out), Reranker.from_pretrained(model, "cpu")
    assert exported.threshold is not None
    assert original.threshold is not None
    assert exported.threshold.threshold == original.threshold.threshold
    assert crossjem("rank", out, "red shoes", "boots", "sofa").status == 0


def test_a_model_that_is_tuned_to_bfloat16_is_compared_in_float32(
    model: Path, samples: Path, tmp_path: Path, crossjem: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned, out = shutil.copytree(model, tmp_path / "tuned"), tmp_path / "out"
    save_configuration(tuned, Configuration("bfloat16"), torch.device("cpu"))
    precisions: list[str] = []
    score = Reranker.score

    def watched(self: Reranker, lists: Sequence[RankingList]) -> list[Tensor]:
        precisions.append(self.precision)
        return score(self, lists)

    monkeypatch.setattr(Reranker, "score", watched)
    command = ("export", tuned, "--to", "onnx", "--out", out, "--lists", samples)
    assert "threshold goes with it" in crossjem(*command).out
    assert set(precisions) == {"float32"}
    write_threshold(replace(read_threshold(tuned / THRESHOLD_FILE), score_precision="bfloat16"), tuned)
    assert (
        "not carried over: the stored threshold was chosen for scores in bfloat16" in crossjem(*command).out
    )
    assert Reranker(out).threshold is None


def test_int8_scores_get_no_threshold_of_others(
    model: Path, samples: Path, tmp_path: Path, crossjem: Callable[..., Ran]
) -> None:
    out = tmp_path / "openvino"
    printed = crossjem("export", model, "--to", "openvino", "--int8", "--out", out, "--lists", samples).out
    assert "openvino int8" in printed
    assert f"crossjem threshold {out}" in printed
    assert Reranker.from_pretrained(out).threshold is None


def test_an_export_that_scores_otherwise_is_refused(
    model: Path, samples: Path, tmp_path: Path, crossjem: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = write._write_graph

    def wrong(ranker: Ranker, path: Path) -> None:
        trace(ranker, path)
        graph = onnx.load(str(path))
        (last,) = (each for each in graph.graph.initializer if each.name.endswith("classifier.weight"))
        last.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(last) * 2, last.name))
        onnx.save(graph, str(path))

    monkeypatch.setattr(write, "_write_graph", wrong)
    status, _, error = crossjem(
        "export", model, "--to", "onnx", "--out", tmp_path / "wrong", "--lists", samples
    )
    assert status == 2
    assert "must not be used" in error


def test_mistakes_are_named(model: Path, tmp_path: Path, crossjem: Callable[..., Ran]) -> None:
    for mistake, named in (
        (("--samples", 0), "--samples"),
        (("--lists", "/no/lists.jsonl"), "/no/lists.jsonl"),
    ):
        status, _, error = crossjem("export", model, "--to", "onnx", "--out", tmp_path / "out", *mistake)
        assert status == 2
        assert named in error
    assert not (tmp_path / "out").exists()
