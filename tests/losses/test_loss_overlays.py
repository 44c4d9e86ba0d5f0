"""`experiments/losses/<name>.yaml`: one for every loss, in which only what differs from the defaults is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from jsonargparse import auto_cli

from crossjem_pl import losses
from crossjem_pl.losses import RankingLoss, VectorLoss

OVERLAYS = sorted((Path(__file__).parents[2] / "experiments" / "losses").iterdir())


def built_loss(loss: RankingLoss | VectorLoss) -> RankingLoss | VectorLoss:
    return loss


def test_every_loss_has_an_overlay() -> None:
    named = [yaml.safe_load(path.read_text(encoding="utf-8"))["model"]["loss"] for path in OVERLAYS]
    assert {loss["class_path"] for loss in named} == {f"crossjem_pl.losses.{name}" for name in losses.LOSSES}


@pytest.mark.parametrize("path", OVERLAYS, ids=lambda path: path.stem)
def test_the_overlay_builds_the_loss(path: Path) -> None:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))["model"]
    assert set(content) == {"loss", "targets"}
    assert content["targets"] in {"labels", "scores", "both"}
    built = auto_cli(built_loss, args=["--loss", json.dumps(content["loss"])], as_positional=False)
    kind = getattr(losses, content["loss"]["class_path"].rpartition(".")[2])
    given = content["loss"].get("init_args", {})
    assert type(built) is kind
    if kind is losses.Sum:
        assert [type(term.loss).__name__ for term in built.options["terms"]] == [
            "SoftmaxCrossEntropy",
            "RankingProbabilityLoss",
        ]
        return
    assert built.options == {**kind().options, **given}
    assert not given.items() & kind().options.items(), "an overlay repeats no default"
