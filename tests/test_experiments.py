"""Every experiment file is parsed and its objects are built."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from benchmarks.tables.runs import OneParser
from crossjem_pl.cli import main
from crossjem_pl.cli.training import RankingCLI, experiment_files
from crossjem_pl.data.formats import write_lists
from crossjem_pl.data.module import RankingDataModule
from crossjem_pl.rankers import RANKERS, MonoBERT, encoders
from crossjem_pl.rankers.folder import save_ranker
from crossjem_pl.rankers.pairwise import rankinggpt, rankt5
from crossjem_pl.training.module import RankingModule
from tests.conftest import example_lists, root
from tests.tiny_models import write_bert, write_gpt, write_t5

EXPERIMENTS = root() / "experiments"
FILES = sorted(EXPERIMENTS.rglob("*.yaml"))


@pytest.fixture(scope="module", autouse=True)
def tiny_encoders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A tiny encoder of its kind in place of each real one."""
    folder = tmp_path_factory.mktemp("encoders")
    write_bert(folder / "bert", layers=3, positions=512)
    write_t5(folder / "t5", layers=3)
    write_gpt(folder / "gpt", positions=512)

    def resolve(name: str) -> str:
        kind = "t5" if "t5" in name else "gpt" if "GPT" in name else "bert"
        return name if Path(name).is_dir() else str(folder / kind)

    with pytest.MonkeyPatch.context() as patch:
        for module in (encoders, rankinggpt, rankt5):
            patch.setattr(module, "resolve", resolve)
        yield


def built(*files: Path, options: Sequence[str] = ()) -> RankingCLI:
    """The objects of a configuration."""
    args = [arg for path in files for arg in ("-c", str(path))] + [*options]
    return OneParser(RankingModule, RankingDataModule, run=False, args=args, save_config_callback=None)


def test_every_ranker_has_an_overlay() -> None:
    assert set(RANKERS) <= {path.stem for path in FILES if path.parent.name == "rankers"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(EXPERIMENTS)))
def test_parses_and_builds(path: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    options = []
    if path.parent.name == "trainers":  # its values are checked while parsing; its devices are not here
        options = ["--trainer.accelerator=cpu", "--trainer.devices=1", "--trainer.strategy=auto"]
        options += ["--trainer.precision=32-true"]
    if path.stem == "cascade":
        save_ranker(MonoBERT("bert"), tmp_path)
        options = [f"--model.ranker.init_args.{stage}={tmp_path}" for stage in ("first", "second")]
    whole = built(EXPERIMENTS / "own-lists.yaml", path, options=options)
    assert isinstance(whole.model, RankingModule)
    assert whole.datamodule.sources


def test_overlays_with_callbacks_leave_each_others() -> None:
    files = [
        EXPERIMENTS / f"{name}.yaml" for name in ("quickstart", "rankers/ance", "trainers/average-with-start")
    ]
    found = {type(callback).__name__ for callback in built(*files).trainer.callbacks}
    assert {"MineHardNegatives", "AverageWithStart"} <= found


@pytest.mark.parametrize("name", sorted(path.stem for path in FILES if path.stem.startswith("crossjem")))
def test_a_form_of_crossjem_wins_over_the_form_before_it(name: str) -> None:
    """The quickstart has the recommended form; an overlay of another must not keep a part of it."""
    values = {"max_query_tokens": 16, "max_item_tokens": 16, "max_union_tokens": 128}
    values |= {"dropout": 0, "freeze_embeddings": "true"}
    options = [f"--model.ranker.init_args.{k}={v}" for k, v in values.items()]
    modules = [
        built(
            EXPERIMENTS / f"{dataset}.yaml", EXPERIMENTS / "rankers" / f"{name}.yaml", options=options
        ).model
        for dataset in ("quickstart", "debian-titles")
    ]
    arguments = [{**module.ranker.init_args, "head_lr": module.head_lr} for module in modules]
    assert arguments[0] == arguments[1]


@pytest.mark.parametrize(
    ("dataset", "n_items", "union"), [("msmarco", 10, 360), ("sodq", 30, 265), ("sponsored", 100, 262)]
)
@pytest.mark.parametrize("form", ["crossjem", "crossjem-positional", "crossjem-best"])
def test_a_form_keeps_the_limits_of_the_dataset(dataset: str, n_items: int, union: int, form: str) -> None:
    """Table 5 of the paper: N and L_u belong to the dataset."""
    ranker = built(EXPERIMENTS / f"{dataset}.yaml", EXPERIMENTS / "rankers" / f"{form}.yaml").model.ranker
    assert (ranker.max_items_per_pass, ranker.max_union_tokens) == (n_items, union)


@pytest.mark.parametrize("name", ["sodq", "msmarco", "sponsored"])
def test_the_papers_experiments_make_a_step(name: str, tmp_path: Path) -> None:
    """As a user tries them: their own files, other lists."""
    for split, seed in (("train", 1), ("dev", 2), ("test", 3)):
        write_lists(example_lists(9, seed=seed), tmp_path / f"{split}.parquet")
    command = ["fit", "-c", str(EXPERIMENTS / f"{name}.yaml"), "--data.root", str(tmp_path)]
    if name == "sponsored":  # as with a log of one's own
        for stage, split in (("train", "train"), ("val", "dev"), ("test", "test")):
            command += [f"--data.{stage}", f"{split}.parquet"]
    command += ["--trainer.fast_dev_run", "1", "--trainer.default_root_dir", str(tmp_path / "run")]
    assert main([*command, "--trainer.accelerator", "cpu"]) == 0


@pytest.mark.parametrize("name", ["packaged:rankers/bm25", "rankers/bm25", "experiments/rankers/bm25.yaml"])
@pytest.mark.parametrize("option", ["-c", "--config="])
def test_packaged_experiments_have_plain_names(
    name: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = str(EXPERIMENTS / "rankers" / "bm25.yaml")
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
