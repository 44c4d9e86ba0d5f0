"""The overlays `experiments/rankers/<name>.yaml` of the dual and late-interaction rankers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from jsonargparse import auto_cli
from lightning import Callback

from crossjem_pl.losses import RankingLoss, VectorLoss
from crossjem_pl.rankers import RANKERS, DualRanker, Ranker
from crossjem_pl.training.hard_negatives import MineHardNegatives
from tests.rankers import public_models
from tests.rankers.cases import LIMITS

FOLDER = Path(__file__).parents[2] / "experiments" / "rankers"
NAMES = ["ance", "colbert", "coral", "dpr", "instructor", "twinbert"]


def built(
    ranker: Ranker, loss: RankingLoss | VectorLoss, callbacks: list[Callback] | None = None
) -> tuple[Ranker, RankingLoss | VectorLoss, list[Callback]]:
    return ranker, loss, callbacks or []


@pytest.mark.parametrize("name", NAMES)
def test_the_overlay_builds_the_ranker(name: str, tmp_path: Path) -> None:
    content = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    model = content.pop("model")
    arguments = model["ranker"]["init_args"]
    assert arguments["encoder"] == "packaged:all-MiniLM-L6-v2"
    arguments["encoder"] = str(public_models.write_encoder(tmp_path / "bert"))
    arguments |= LIMITS
    if "query_layers" in arguments:
        arguments["query_layers"] = 1  # the tiny encoder has two
    given = ["--ranker", json.dumps(model.pop("ranker")), "--loss", json.dumps(model.pop("loss"))]
    callbacks = content.pop("trainer", {}).pop("callbacks+", None)
    if callbacks is not None:
        given += ["--callbacks", json.dumps(callbacks)]
    assert model.pop("targets") in ("labels", "scores")
    assert not content
    assert set(model) <= {"lr", "head_lr"}
    ranker, loss, used = auto_cli(built, args=given, as_positional=False)
    assert type(ranker) is RANKERS[name]
    assert isinstance(ranker, DualRanker) or isinstance(loss, RankingLoss)
    assert [type(callback) for callback in used] == ([MineHardNegatives] if name == "ance" else [])
