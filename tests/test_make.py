"""The make targets that chain teacher, scores, student and comparison."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from crossjem_pl.cli import main
from crossjem_pl.data.formats import write_lists
from tests import tiny_models
from tests.conftest import example_lists, root


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


def test_the_whole_pipeline_runs_once(tmp_path: Path) -> None:
    """Make says what it would run; this process runs it."""
    encoder = tiny_models.write_bert(tmp_path / "bert", positions=512)
    for name, seed in (("train", 1), ("dev", 2), ("test", 3)):
        write_lists(example_lists(9, seed=seed), tmp_path / "data" / f"{name}.parquet")
    limits = "--trainer.max_steps 2 --trainer.enable_progress_bar false --trainer.accelerator cpu"
    encoders = [f"ENCODER={encoder}", f"TEACHER_ENCODER={encoder}"]
    arguments = ["-n", "train-sodq", f"DATA={tmp_path / 'data'}", *encoders, f"OPTIONS={limits}"]
    ran = []
    for line in make(tmp_path, *arguments).stdout.replace("\\\n", " ").splitlines():
        program, *words = shlex.split(line)
        if program.endswith("/crossjem"):
            assert main([str(root() / word) if word.endswith(".yaml") else word for word in words]) == 0, line
            ran.append(words[0])
        elif program == "touch":
            Path(words[0]).touch()
    assert ran == ["fit", "teach", "fit", "compare"]
    assert "monobert" in (tmp_path / "runs" / "sodq" / "comparison" / "compare.md").read_text()
    assert "crossjem" not in make(tmp_path, *arguments).stdout, "finished steps are not repeated"
