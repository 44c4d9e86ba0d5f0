"""The model card tells what is known of a model, and no more; push_to_hub uploads a folder that loads."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
import yaml

from crossjem_pl.cli import main
from crossjem_pl.data.formats import write_lists
from crossjem_pl.inference.reranker import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import DPR, MonoBERT
from tests.conftest import example_lists

LIMITS = {"max_query_tokens": 16, "max_item_tokens": 16}


@pytest.fixture(scope="module")
def run(tiny_bert: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of a monoBERT with metrics on val and test."""
    folder = tmp_path_factory.mktemp("run")
    lists = tmp_path_factory.mktemp("data") / "own.parquet"
    write_lists(example_lists(12, seed=3), lists)
    limits = [f"--model.ranker.init_args.{name}={value}" for name, value in LIMITS.items()]
    common = ["-c", "quickstart", "-c", "rankers/monobert", "-c", "losses/softmax_ce"]
    common += [f"--data.{stage}={lists}" for stage in ("train", "val", "test")]
    common += [f"--model.ranker.init_args.encoder={tiny_bert}", *limits, "--trainer.accelerator=cpu"]
    common += [f"--trainer.default_root_dir={folder}", "--trainer.enable_progress_bar=false"]
    assert main(["fit", *common]) == 0
    assert main(["test", *common, f"--model.weights={folder / 'model'}"]) == 0
    return folder


def card(folder: Path) -> tuple[dict[str, object], str]:
    """The metadata and the text."""
    _, head, text = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(head), text


def test_the_card_of_a_run(run: Path, tmp_path: Path) -> None:
    reranker = Reranker(run / "model")
    reranker.save_pretrained(tmp_path / "named", license="mit", latency=True)
    metadata, text = card(tmp_path / "named")
    assert metadata == {
        "library_name": "crossjem_pl",
        "pipeline_tag": "text-ranking",
        "tags": ["reranking", "monobert"],
        "license": "mit",
    }
    means = json.loads((run / "test_metrics.json").read_text())["means"]
    assert f"| test | 12 | RR@10 | {means['RR@10']:.4f} |" in text
    for known in ("`own.parquet`", "distinct lists | 12", "`SoftmaxCrossEntropy()` on labels", "| 700 |"):
        assert known in text
    assert 'CrossEncoder("named")' in text
    assert str(run) not in text, "no places of this machine"
    assert "None" not in text

    run_file = run / "test.trec"
    written = run_file.read_text()
    run_file.write_text(written.replace("monobert-", "monobert-0"))
    reranker.save_pretrained(tmp_path / "other")
    assert "| val |" in card(tmp_path / "other")[1]
    assert "| test |" not in card(tmp_path / "other")[1], "other weights wrote these scores"
    run_file.write_text(written)

    (tmp_path / "named" / "README.md").write_text("mine")
    reranker.save_pretrained(tmp_path / "named")
    assert (tmp_path / "named" / "README.md").read_text() == "mine"


def test_what_is_not_known_is_left_out(run: Path, tiny_bert: str, tmp_path: Path) -> None:
    Reranker(DPR(tiny_bert, shared=True, **LIMITS)).save_pretrained(tmp_path / "bare")
    metadata, text = card(tmp_path / "bare")
    assert "license" not in metadata
    assert "SentenceTransformer(" in text
    changed = Reranker(run / "model")
    torch.nn.init.zeros_(changed.ranker.model.classifier.bias)  # type: ignore[union-attr, arg-type]
    changed.save_pretrained(tmp_path / "changed")
    for other in (text, card(tmp_path / "changed")[1]):
        for part in ("## Training", "## Evaluation", "## Latency"):
            assert part not in other, "other weights than the run's, or no run"


def test_push_to_hub(tiny_bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def upload(self: object, *, repo_id: str, folder_path: str, **options: object) -> SimpleNamespace:
        Path(folder_path).rename(tmp_path / "uploaded")
        Path(folder_path).mkdir()
        calls.update(options, repo_id=repo_id)
        return SimpleNamespace(commit_url="https://hub/commit")

    calls: dict[str, object] = {}
    hub = huggingface_hub.HfApi
    monkeypatch.setattr(hub, "create_repo", lambda self, name, **_: SimpleNamespace(repo_id=f"me/{name}"))
    monkeypatch.setattr(hub, "file_exists", lambda self, name, file: True)
    monkeypatch.setattr(hub, "upload_folder", upload)
    reranker = Reranker(MonoBERT(tiny_bert, **LIMITS))
    assert reranker.push_to_hub("shoes") == "https://hub/commit"
    assert calls["repo_id"] == "me/shoes"
    assert calls["ignore_patterns"] == ["README.md"], "the repository's own card stays"
    assert 'Reranker("me/shoes")' in card(tmp_path / "uploaded")[1]
    one = RankingList.from_texts("red shoes", ["blue boots", "red shoe"])
    torch.testing.assert_close(Reranker(tmp_path / "uploaded").score([one]), reranker.score([one]))
