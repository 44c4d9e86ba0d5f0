"""Every experiment file is parsed and its objects are built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from jsonargparse import ArgumentParser

from crossjem_pl.cli import main
from crossjem_pl.cli.experiments import experiment_files
from crossjem_pl.cli.training import RankingCLI
from crossjem_pl.data.formats import write_lists
from crossjem_pl.data.module import RankingDataModule
from crossjem_pl.rankers import RANKERS
from crossjem_pl.training.module import RankingModule
from tests.conftest import example_lists, root
from tests.tiny_models import write_bert

FILES = sorted((root() / "experiments").rglob("*.yaml"))
TINY = {"RankT5": "t5", "MonoT5": "t5", "RankingGPT": "gpt"}


def test_every_ranker_has_an_overlay() -> None:
    assert set(RANKERS) <= {path.stem for path in FILES if path.parent.name == "rankers"}


def shrunk(config: dict[str, Any], models: Path) -> dict[str, Any]:
    """The configuration with the tiny encoder of its kind in place of the real ones."""
    ranker = config.get("model", {}).get("ranker")
    if ranker and ranker.get("class_path", "").endswith(".CrossJEM"):
        limits = {"max_query_tokens": 16, "max_union_tokens": 128, "max_item_tokens": 16}
        ranker["init_args"] = {**ranker.get("init_args", {}), **limits}
    if ranker and "init_args" in ranker:
        folder = models / TINY.get(ranker.get("class_path", "").split(".")[-1], "bert")
        for key, value in ranker["init_args"].items():
            if key == "encoder" or (key.endswith("_encoder") and value):
                ranker["init_args"][key] = str(folder)
            if key in ("layers", "query_layers"):
                ranker["init_args"][key] = 1
    return config


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(root() / "experiments")))
def test_parses_and_builds(path: Path, tiny_models_folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    base = yaml.safe_load((root() / "experiments" / "quickstart.yaml").read_text(encoding="utf-8"))
    merged = tmp_path / "base.yaml"
    merged.write_text(yaml.safe_dump(shrunk(base, tiny_models_folder)))
    overlay = tmp_path / path.name
    overlay.write_text(
        yaml.safe_dump(shrunk(yaml.safe_load(path.read_text(encoding="utf-8")), tiny_models_folder))
    )
    args = ["-c", str(merged), "-c", str(overlay)]
    if path.parent.name == "trainers":  # its values are checked while parsing; its devices are not here
        args += ["--trainer.accelerator=cpu", "--trainer.devices=1", "--trainer.strategy=auto"]
        args += ["--trainer.precision=32-true"]
    whole = RankingCLI(RankingModule, RankingDataModule, run=False, args=args, save_config_callback=None)
    assert isinstance(whole.model, RankingModule)
    assert whole.datamodule.sources


FORMS = sorted(path.stem for path in FILES if path.stem.startswith("crossjem"))


def built(dataset: str, form: str, encoder: Path, *options: str) -> RankingModule:
    """The module of a dataset's file under the overlay of a form, with a tiny encoder."""
    files = [root() / "experiments" / f"{dataset}.yaml", root() / "experiments" / "rankers" / f"{form}.yaml"]
    args = [arg for path in files for arg in ("-c", str(path))]
    args += ["--model.ranker.init_args.encoder", str(encoder), *options]
    return RankingCLI(RankingModule, RankingDataModule, run=False, args=args, save_config_callback=None).model


@pytest.mark.parametrize("name", FORMS)
def test_a_form_of_crossjem_wins_over_the_form_before_it(name: str, tiny_models_folder: Path) -> None:
    """The quickstart has the recommended form; an overlay of another must not keep a part of it."""
    values = {"max_query_tokens": 16, "max_item_tokens": 16, "max_union_tokens": 128}
    options = [f"--model.ranker.init_args.{k}={v}" for k, v in values.items()]
    options += ["--model.ranker.init_args.dropout=0", "--model.ranker.init_args.freeze_embeddings=true"]
    modules = [
        built(dataset, name, tiny_models_folder / "bert", *options)
        for dataset in ("quickstart", "debian-titles")
    ]
    arguments = [{**module.ranker.init_args, "head_lr": module.head_lr} for module in modules]
    assert arguments[0] == arguments[1]


@pytest.mark.parametrize(
    ("dataset", "n_items", "union"), [("msmarco", 10, 360), ("sodq", 30, 265), ("sponsored", 100, 262)]
)
@pytest.mark.parametrize("form", ["crossjem", "crossjem-positional", "crossjem-best"])
def test_a_form_keeps_the_limits_of_the_dataset(
    dataset: str, n_items: int, union: int, form: str, tmp_path: Path
) -> None:
    """Table 5 of the paper: N and L_u belong to the dataset."""
    ranker = built(dataset, form, write_bert(tmp_path / "bert", positions=512)).ranker
    assert (ranker.max_items_per_pass, ranker.max_union_tokens) == (n_items, union)


def test_no_experiment_is_read_with_unknown_keys(tmp_path: Path) -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(RankingDataModule, "data")
    with pytest.raises(Exception, match="n_itemz"):
        parser.parse_object({"data": {"n_itemz": 3}})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sodq", "msmarco", "sponsored"])
def test_the_papers_experiments_make_a_step(name: str, tmp_path: Path) -> None:
    """As a user tries them: their own files, other lists, a tiny encoder."""
    encoder = write_bert(tmp_path / "bert", positions=512)
    for split, seed in (("train", 1), ("dev", 2), ("test", 3)):
        write_lists(example_lists(9, seed=seed), tmp_path / f"{split}.parquet")
    command = ["fit", "-c", str(root() / "experiments" / f"{name}.yaml"), "--data.root", str(tmp_path)]
    if name == "sponsored":  # as with a log of one's own
        for stage, split in (("train", "train"), ("val", "dev"), ("test", "test")):
            command += [f"--data.{stage}", f"{split}.parquet"]
    command += ["--model.ranker.init_args.encoder", str(encoder), "--trainer.fast_dev_run", "1"]
    command += ["--trainer.default_root_dir", str(tmp_path / "run"), "--trainer.accelerator", "cpu"]
    assert main(command) == 0


@pytest.mark.parametrize("name", ["packaged:rankers/bm25", "rankers/bm25", "experiments/rankers/bm25.yaml"])
@pytest.mark.parametrize("option", ["-c", "--config="])
def test_packaged_experiments_have_plain_names(
    name: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = str(root() / "experiments" / "rankers" / "bm25.yaml")
    given = [option + name] if option.endswith("=") else [option, name]
    expected = [option + file] if option.endswith("=") else [option, file]
    assert experiment_files(["fit", *given, "--model.lr", "1"]) == ["fit", *expected, "--model.lr", "1"]
    own = tmp_path / name
    own.parent.mkdir(parents=True, exist_ok=True)
    own.touch()
    assert experiment_files(given) == (expected if "packaged:" in name else given), (
        "an existing file comes first"
    )


def test_an_unknown_experiment_lists_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "-c", "quikstart"]) == 2
    assert "losses/rpl" in capsys.readouterr().err
