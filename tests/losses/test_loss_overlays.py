"""`experiments/losses/<name>.yaml`: one for every loss, and each builds the loss that it is named after."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from jsonargparse import auto_cli

from crossjem_pl.losses import LOSSES, VECTOR_LOSSES, RankingLoss, VectorLoss

FOLDER = Path(__file__).parents[2] / "experiments" / "losses"


ALL = {**LOSSES, **VECTOR_LOSSES}


def built_loss(loss: RankingLoss | VectorLoss) -> RankingLoss | VectorLoss:
    return loss


def test_every_loss_has_an_overlay() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(ALL)


@pytest.mark.parametrize("name", sorted(ALL))
def test_the_overlay_builds_the_loss(name: str) -> None:
    content = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    assert set(content) == {"model"}
    assert set(content["model"]) == {"loss", "targets"}
    assert content["model"]["targets"] in {"labels", "scores"}
    built = auto_cli(built_loss, args=["--loss", json.dumps(content["model"]["loss"])], as_positional=False)
    assert type(built) is ALL[name]
    given = content["model"]["loss"].get("init_args", {})
    assert built.options == {**ALL[name]().options, **given}
    assert not given.items() & ALL[name]().options.items(), "an overlay repeats no default"
