"""The make targets that chain teacher, scores, student and comparison."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from crossjem_pl.cli import main
from tests import tiny_models
from tests.conftest import example_lists, root
from tests.prepare.file_server import dataset_files, serving


def make(tmp_path: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs make with this interpreter's environment in place of one of its own."""
    environment = tmp_path / "environment"
    environment.mkdir(exist_ok=True)
    if not (environment / "bin").exists():
        (environment / "bin").symlink_to(Path(sys.executable).parent)
    (environment / ".ready").touch()
    command = ["make", f"VENV={environment}", f"RUNS={tmp_path / 'runs'}", *arguments]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        command, cwd=root(), env=variables, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def test_help_lists_the_main_targets(tmp_path: Path) -> None:
    out = make(tmp_path, "help").stdout
    for target in ("quickstart", "test", "lint", "train-sodq", "train-msmarco"):
        assert f"  {target}" in out


def test_missing_data_is_told_with_sizes_and_places(tmp_path: Path) -> None:
    home = {"IR_DATASETS_HOME": str(tmp_path / "home")}
    done = make(tmp_path, "train-msmarco", f"DATA={tmp_path / 'nothing'}", **home)
    assert done.returncode != 0
    for words in (
        "msmarco-docs.trec.gz (8,501.8 MB, md5 d4863e4f",
        "non-commercial research",
        "to download, 8,9",
    ):
        assert words in done.stdout
    assert "nothing was downloaded; say --yes (make: YES=1)" in done.stderr
    assert str(tmp_path / "home" / "msmarco-document" / "collection.tsv.gz") in done.stderr
    planned = make(tmp_path, "-n", "train-sodq", f"DATA={tmp_path / 'nothing'}", "YES=1").stdout
    assert "crossjem prepare sodq --mteb mteb/stackoverflowdupquestions-reranking" in planned
    assert "--yes" in planned


def test_the_whole_pipeline_runs_once_from_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make says what it would run; this process runs it, the download from a server on the loopback."""
    encoder = tiny_models.write_bert(tmp_path / "bert", positions=512)
    rows = [
        {"query": one.query, "positive": one.items[0], "negative": list(one.items[1:])}
        for one in example_lists(60, seed=1)
        if one.items[0] not in one.items[1:] and len(one) > 1
    ]
    name = "mteb/stackoverflowdupquestions-reranking"
    limits = "--trainer.max_steps 2 --trainer.enable_progress_bar false --trainer.accelerator cpu"
    encoders = [f"ENCODER={encoder}", f"TEACHER_ENCODER={encoder}"]
    arguments = ["-n", "train-sodq", "YES=1", f"DATA={tmp_path / 'data'}", *encoders, f"OPTIONS={limits}"]

    def run_what_is_planned(until: str = "") -> list[str]:
        ran = []
        for line in make(tmp_path, *arguments).stdout.replace("\\\n", " ").splitlines():
            program, *words = shlex.split(line)
            if program.endswith("/crossjem"):
                words = [str(root() / word) if word.endswith(".yaml") else word for word in words]
                assert main(words) == 0, line
                ran.append(words[0])
                if words[0] == until:
                    break
            elif program == "touch":
                Path(words[0]).touch()
        return ran

    with serving() as server:
        server.files = dataset_files(name, {"train.jsonl.gz": rows[:50], "test.jsonl.gz": rows[50:]})
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        assert run_what_is_planned(until="prepare") == ["prepare"]
    assert run_what_is_planned() == ["fit", "teach", "fit", "test", "test", "compare"]
    assert "monobert" in (tmp_path / "runs" / "sodq" / "comparison" / "compare.md").read_text()
    assert run_what_is_planned() == [], "finished steps are not repeated"
