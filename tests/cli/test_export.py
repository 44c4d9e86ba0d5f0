"""`crossjem export` from the command line."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
import torch

from crossjem_pl.cli import main
from crossjem_pl.data.formats import write_lists
from crossjem_pl.evaluation.threshold import choose_threshold
from crossjem_pl.inference import Reranker
from crossjem_pl.inference.configuration import Configuration, save_configuration
from crossjem_pl.inference.export import write
from crossjem_pl.rankers import Ranker
from crossjem_pl.rankers.folder import save_ranker
from crossjem_pl.rankers.threshold import THRESHOLD_FILE, read_threshold, write_threshold
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
    model: Path,
    samples: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    out = tmp_path / "onnx"
    options = ["--lists", str(samples), "--samples", "3"]
    assert main(["export", str(model), "--to", "onnx", "--out", str(out), *options]) == 0
    printed = capsys.readouterr().out
    for part in ("3 lists", "torch float32", "onnx float32", "weights, MB", "as fast", f"Wrote {out}"):
        assert part in printed
    exported, original = Reranker.from_pretrained(out), Reranker.from_pretrained(model, "cpu")
    assert exported.threshold is not None
    assert original.threshold is not None
    assert exported.threshold.threshold == original.threshold.threshold
    assert main(["rank", str(out), "red shoes", "boots", "sofa"]) == 0


def test_a_model_that_is_tuned_to_bfloat16_is_compared_in_float32(
    model: Path,
    samples: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tuned = shutil.copytree(model, tmp_path / "tuned")
    save_configuration(tuned, Configuration("bfloat16"), torch.device("cpu"))
    precisions: list[str] = []
    score = Reranker.score
    monkeypatch.setattr(
        Reranker, "score", lambda self, lists: precisions.append(self.precision) or score(self, lists)
    )
    arguments = ["--to", "onnx", "--out", str(tmp_path / "out"), "--lists", str(samples)]
    assert main(["export", str(tuned), *arguments]) == 0
    assert set(precisions) == {"float32"}
    assert "threshold goes with it" in capsys.readouterr().out
    stored = read_threshold(tuned / THRESHOLD_FILE)
    write_threshold(replace(stored, score_precision="bfloat16"), tuned)
    assert main(["export", str(tuned), *arguments]) == 0
    assert (
        "not carried over: the stored threshold was chosen for scores in bfloat16" in capsys.readouterr().out
    )
    assert Reranker(tmp_path / "out").threshold is None


def test_int8_scores_get_no_threshold_of_others(
    model: Path, samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "openvino"
    arguments = ["--to", "openvino", "--int8", "--out", str(out), "--lists", str(samples)]
    assert main(["export", str(model), *arguments]) == 0
    printed = capsys.readouterr().out
    assert "openvino int8" in printed
    assert f"crossjem threshold {out}" in printed
    assert Reranker.from_pretrained(out).threshold is None


def test_an_export_that_scores_otherwise_is_refused(
    model: Path,
    samples: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trace = write._write_graph

    def wrong(ranker: Ranker, path: Path) -> None:
        trace(ranker, path)
        graph = onnx.load(str(path))
        (last,) = (each for each in graph.graph.initializer if each.name.endswith("classifier.weight"))
        last.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(last) * 2, last.name))
        onnx.save(graph, str(path))

    monkeypatch.setattr(write, "_write_graph", wrong)
    out = str(tmp_path / "wrong")
    assert main(["export", str(model), "--to", "onnx", "--out", out, "--lists", str(samples)]) == 2
    assert "must not be used" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--to", "onnx", "--samples", "0"], "--samples"),
        (["--to", "onnx", "--lists", "/no/lists.jsonl"], "/no/lists.jsonl"),
    ],
)
def test_mistakes_are_named(
    arguments: list[str], named: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(model), "--out", str(tmp_path / "out"), *arguments]) == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
