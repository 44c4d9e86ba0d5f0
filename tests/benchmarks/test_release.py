"""The general model is shipped only if it is better than the default on lists that it was not trained on."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from benchmarks import release
from crossjem_pl.data.formats import write_lists
from crossjem_pl.inference import Reranker
from crossjem_pl.rankers import encoders
from crossjem_pl.rankers.dual.dpr import DPR
from crossjem_pl.rankers.folder import save_ranker
from tests.conftest import example_lists


@pytest.fixture
def lists(tmp_path: Path) -> list[str]:
    """Files of lists to train on, and to check on."""
    for seed, name in enumerate(("a/train", "b/train", "c/dev")):
        write_lists(example_lists(8, seed=seed), tmp_path / f"{name}.jsonl")
    return [str(tmp_path / f"{name}.jsonl") for name in ("a/train", "b/train", "c/dev")]


@pytest.mark.parametrize("default_is_bad", [True, False])
def test_it_is_shipped_only_if_it_is_better(
    default_is_bad: bool,
    lists: list[str],
    encoder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = tmp_path / "default"
    save_ranker(DPR(encoder, shared=True, max_query_tokens=32, max_item_tokens=32), model)
    monkeypatch.setattr(encoders, "resolve", lambda name: name if Path(name).is_dir() else encoder)
    monkeypatch.setattr(release, "PACKAGED", str(model))
    gain = 0.1 if default_is_bad else -0.1
    compared = release._compared
    monkeypatch.setattr(release, "_compared", lambda *a: {**compared(*a), "difference": gain, "p": 0.2})
    out = tmp_path / "release"
    command = ["--smoke", "--out", str(out), "--data", *lists[:2], "--check", lists[2], "--license", "mit"]
    more = ["--options", "--trainer.accelerator=cpu", "--trainer.enable_progress_bar=false"]
    assert release.main([*command, *more]) == (0 if default_is_bad else 3)
    row = next(
        line for line in (out / "release.md").read_text().splitlines() if line.startswith("| c-dev | 8 |")
    )
    assert row in capsys.readouterr().out
    shipped = out / "model-for-the-hub"
    assert shipped.exists() == default_is_bad
    if default_is_bad:
        card = (shipped / "README.md").read_text()
        assert row in card
        assert "| distinct lists | 32 |" in card
        assert ", train.jsonl, train.jsonl])`" in card, "no places of this machine"
        assert Reranker(shipped).rank("red", ["red shoes", "sofa"])
    trained = yaml.safe_load((out / "config.yaml").read_text())["data"]["train"]["init_args"]["sources"]
    assert trained[1:] == lists[:2]


def test_lists_to_check_on_are_not_trained_on(lists: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert release.main(["--data", *lists, "--check", lists[2]]) == 2
    assert "is among the lists to train on" in capsys.readouterr().err
