"""Every command of the README and the docs runs, in the order of the page, on small data and tiny encoders."""

from __future__ import annotations

import gzip
import importlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest
import torch

from crossjem_pl.cli import main
from crossjem_pl.data import sources
from crossjem_pl.data.formats import write_lists
from crossjem_pl.data.simulator import simulate
from crossjem_pl.data.trec import write_qrels, write_run
from crossjem_pl.rankers import DPR, RANKERS, encoders
from crossjem_pl.rankers.folder import save_ranker
from tests import tiny_models
from tests.conftest import root
from tests.test_make import make

PAGES = [root() / "README.md", *sorted((root() / "docs").glob("*.md"))]
SMALL = ["--trainer.max_steps=1", "--trainer.enable_progress_bar=false", "--trainer.accelerator=cpu"]
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Language, file name if it has one, and text of what runs here; `make test-adapters` runs the adapters'."""
    languages = "sh" if page.stem == "adapters" else "sh|python"
    fence = rf'^```({languages})(?: title="(.*?)")?\n(.*?)^```'
    return re.findall(fence, page.read_text(encoding="utf-8"), flags=re.S | re.M)


def commands(block: str) -> Iterator[list[str]]:
    for line in block.splitlines():
        if line.strip() and not line.startswith("#"):
            yield shlex.split(line)


@pytest.fixture(scope="module")
def small() -> Iterator[None]:
    """Every encoder is a tiny one, every simulation a small one."""

    def source(
        self: sources.SimulatorSource, lists: int, items: int = 100, seed: int = 0, split: str = "train"
    ) -> None:
        self.lists, self.items, self.seed, self.split = min(lists, 6), min(items, 20), seed, split  # type: ignore[assignment]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoders, "resolve", lambda name: name if Path(name).is_dir() else str(Path("encoder")))
        patch.setattr(sources.SimulatorSource, "__init__", source)
        yield


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, small: None) -> Path:
    """A working folder as the pages assume it, after the quickstart's training and test."""
    folder = tmp_path_factory.mktemp("template")
    encoder = tiny_models.write_bert(folder / "encoder", layers=3, positions=512)  # CoRAL takes 3
    (folder / "experiments").symlink_to(root() / "experiments")
    lists = list(simulate(6, 20))
    write_lists(simulate(20, 20), folder / "lists.jsonl")  # of which two are for dev
    for name in ("dev.parquet", "data/sodq/train.parquet", "data/sodq/dev.parquet"):
        write_lists(lists, folder / name)
    (folder / "log.csv").write_text("keyword,title,clicks\nred shoe,shoe,1\nred shoe,hat,0.5\n")
    write_run(lists, folder / "bm25.run")
    write_qrels(lists, folder / "judged.qrels")
    (folder / "queries.tsv").write_text("".join(f"{one.query_id}\t{one.query}\n" for one in lists))
    items = {i: text for one in lists for i, text in zip(one.item_ids, one.items, strict=True)}
    items |= {"item-1": "trail shoes", "item-2": "office chair"}
    (folder / "items.tsv").write_text("".join(f"{i}\t{text}\n" for i, text in items.items()))
    for dataset in ("debian-titles", "travel-se", "dbpedia-entity"):
        for name in ("train", "dev"):
            write_lists(lists, folder / "data" / dataset / f"{name}.jsonl.gz")
    rows = [json.loads(line) for line in (folder / "lists.jsonl").read_text().splitlines()]
    with gzip.open(folder / "train.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({**row, "first_stage": row["scores"]}) + "\n" for row in rows)
    save_ranker(DPR(str(encoder), max_query_tokens=16, max_item_tokens=16), folder / "dual")
    with chdir(folder):
        for command in ("fit", "test"):
            run(["lightning", command, "-c", "experiments/quickstart.yaml"], folder)
    for name in ("own-lists", "monobert", "crossjem"):  # other runs that pages have
        (folder / "runs" / name).symlink_to("quickstart")
    return folder


@pytest.fixture
def project(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the template, entered."""
    shutil.copytree(template, tmp_path, symlinks=True, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name, ranker in RANKERS._imported.items() if ranker.__module__ == "my_ranking"]:
        del RANKERS._imported[name]


def run(command: list[str], project: Path) -> None:
    program, *arguments = command
    if program == "make":
        planned = make(project, "-n", *arguments)
        assert planned.returncode == 0, planned.stderr
        return
    assert program in ("lightning", "crossjem"), command
    if arguments[0] == "serve":
        words = [sys.executable, "-m", "crossjem_pl", *arguments, "--port", "0"]
        served = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert served.stdout is not None
        assert any('"loaded"' in line for line in served.stdout), command
        served.terminate()
        assert served.wait(30) == 0, command
        return
    if arguments[0] in ("fit", "validate", "test", "predict") and arguments[1].startswith("-"):
        options = SMALL if arguments[0] == "fit" else [o for o in SMALL if "max_steps" not in o]
        arguments = [*arguments, *options, "--trainer.precision=32-true"]
    if arguments[0] == "blend":
        arguments = [*arguments, "--model", "dual"]
    if arguments[0] == "simulate":
        arguments = [*arguments, "--lists", "6", "--items", "20", "--held-out", "2"]
    assert main(arguments) == 0, command


@pytest.mark.usefixtures("traced_once")
@pytest.mark.parametrize("page", [p for p in PAGES if any(blocks(p))], ids=lambda p: p.stem)
def test_the_commands_and_the_python_of_the_page_run(page: Path, project: Path) -> None:
    """In the order of the page."""
    torch.manual_seed(0)
    names: dict[str, object] = {}
    for language, file, block in blocks(page):
        if file:
            Path(file).write_text(block)
            if file.startswith("test_"):
                module = importlib.import_module(Path(file).stem)
                [test() for name, test in vars(module).items() if name.startswith("test_")]
        elif language == "python":
            exec(compile(block, page.name, "exec"), names)
        else:
            for command in commands(block):
                run(command, project)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name}: {target}"
