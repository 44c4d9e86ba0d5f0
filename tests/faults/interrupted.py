"""Commands that are killed at random moments, or whose disk is full: what is left is whole, or is refused by name.

    python -m tests.faults.interrupted kills 200 [COMMAND ...]
    python -m tests.faults.interrupted full 10 [COMMAND ...]

Every command is run once undisturbed. After a kill what it left is read, and the command is given again (a training
goes on from its last checkpoint): the end must be the same. `full` gives the command again over its whole output, or
for the first time, on a tmpfs with room for a part of it, the parts spread evenly from nothing to all: it must end in
one line that names the file, and leave the former output. Where mounting is not allowed, files that cannot grow beyond
such a size stand in for the disk. The processes are forked from this one, which only imports.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from safetensors.torch import load_file

from crossjem_pl.cli import main
from crossjem_pl.data.formats import read_lists, write_lists
from crossjem_pl.data.teacher import read_scores
from crossjem_pl.inference import Reranker
from crossjem_pl.rankers import CrossJEM
from crossjem_pl.rankers.folder import save_ranker
from crossjem_pl.text.token_store import TokenStore
from tests import tiny_models
from tests.conftest import example_lists

for module in ("training", "lists", "score", "export", "prepare"):
    importlib.import_module(f"crossjem_pl.cli.{module}")
for module in ("duckdb", "onnx", "onnxruntime", "onnxscript", "pandas", "pyarrow.dataset", "pyarrow.parquet"):
    importlib.import_module(module)  # so that a kill meets work, not an import

SEED = int(os.environ.get("FUZZ_SEED", "0"))
CONFIG = """
seed_everything: 3
trainer: {{accelerator: cpu, max_epochs: 3, enable_progress_bar: false, enable_model_summary: false}}
checkpoint: {{every_n_train_steps: 5, save_last: true}}
model:
  ranker:
    class_path: crossjem_pl.rankers.CrossJEM
    init_args: {{encoder: {work}/bert, max_query_tokens: 16, max_item_tokens: 16, max_union_tokens: 128}}
  loss: {{class_path: crossjem_pl.losses.RankingProbabilityLoss}}
data: {{train: {work}/lists.jsonl, n_items: 4, batch_size: 2}}
"""


@dataclass(frozen=True)
class Command:
    """Words of a command, in which {work} and {out} are folders, and how its output is read."""

    words: str
    read: Callable[[Path], object]
    share: int = 4
    """How often it is drawn."""


def ids(work: Path) -> list[str]:
    return [line.partition("\t")[0] for line in (work / "items.tsv").read_text().splitlines()]


def parts(folder: Path) -> object:
    """The lists of train, dev and test."""
    return [
        list(read_lists(next(folder.glob(f"{name}*"), folder / name))) for name in ("train", "dev", "test")
    ]


COMMANDS = {
    "simulate": Command("simulate --out {out} --lists 60 --items 10 --held-out 10 --shard-size 16", parts),
    "convert": Command(
        "convert {work}/many.jsonl {out}/lists.parquet", lambda out: list(read_lists(out / "lists.parquet"))
    ),
    "split": Command("split {work}/many.jsonl {out}", parts, 2),
    "log": Command(
        "prepare log {work}/log.tsv --out {out} --any-click --dev-fraction 0.1 --test-fraction 0.1", parts
    ),
    "tokens": Command(
        "tokens {work}/items.tsv --model {work}/model --out {out}/store",
        lambda out: TokenStore.open(out / "store").rows(ids(out.parents[1])).values.tolist(),
    ),
    "teach": Command(
        "teach {work}/model {work}/lists.jsonl --out {out}/teacher.parquet --lists-per-part 8 --device cpu",
        lambda out: read_scores(out / "teacher.parquet"),
    ),
    "score": Command(
        "score {work}/model {work}/lists.jsonl --out {out}/scores --lists-per-part 8 --device cpu",
        lambda out: sorted(map(str, pq.read_table(out / "scores").to_pylist())),
    ),
    "fit": Command(
        "fit -c {work}/config.yaml --trainer.default_root_dir {out}",
        lambda out: {k: v.tolist() for k, v in load_file(out / "model" / "model.safetensors").items()},
        1,
    ),
    "export": Command(
        "export {work}/model --to onnx --out {out}/onnx",
        lambda out: Reranker(out / "onnx").score(example_lists(2))[0].tolist(),
        1,
    ),
}


def write_inputs(work: Path) -> None:
    tiny_models.write_bert(work / "bert")
    limits = {"max_query_tokens": 16, "max_item_tokens": 16, "max_union_tokens": 64}
    save_ranker(CrossJEM(str(work / "bert"), **limits), work / "model")  # type: ignore[arg-type]
    write_lists(example_lists(60), work / "lists.jsonl")
    write_lists(example_lists(1500), work / "many.jsonl")
    items = [f"{one.query_id}-{name}\t{text}\n" for one in example_lists(1500) for name, text in rows(one)]
    (work / "items.tsv").write_text("".join(items))
    clicks = [
        f"{one.query} {one.query_id}\t{t}\t{int(i == '0')}\n"
        for one in example_lists(800)
        for i, t in rows(one)
    ]
    (work / "log.tsv").write_text("query\tkeyword\tclicked\n" + "".join(clicks))
    (work / "config.yaml").write_text(CONFIG.format(work=work))


def rows(one: object) -> list[tuple[str, str]]:
    return list(zip(one.item_ids, one.items, strict=True))  # type: ignore[attr-defined]


def start(work: Callable[[], int], log: Path) -> int:
    """A forked process that does this work and writes what it prints to a file."""
    process = os.fork()
    if process == 0:
        handle = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        try:
            status = work()
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return process


def ended(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


class Disk:
    """A folder; for full disks a tmpfs, where mounting is allowed."""

    ROOM = 64 << 20

    def __init__(self, folder: Path, full: bool) -> None:
        folder.mkdir()
        self.folder = folder
        command = ["mount", "-t", "tmpfs", "-o", f"size={self.ROOM}", "tmpfs", str(folder)]
        self.mounted = full and subprocess.run(command, capture_output=True).returncode == 0

    def leave(self, free: int | None) -> None:
        """Leaves so many free bytes, in whole pages; None: enough."""
        used = sum(path.lstat().st_blocks * 512 for path in self.folder.rglob("*"))
        size = self.ROOM if free is None else max(4096, used + free // 4096 * 4096)
        command = ["mount", "-o", f"remount,size={size}", str(self.folder)]
        subprocess.run(command, check=True)

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


class Trial:
    """A command in a folder of its own."""

    def __init__(self, name: str, work: Path, disk: Disk) -> None:
        self.command, self.out, self.log = COMMANDS[name], disk.folder / "out", work / "log"
        self._work, self._disk = work, disk
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()

    def start(self, limit: int | None = None) -> int:
        """The command; limit: bytes that the disk has left, or that a file may have."""
        words = [word.format(work=self._work, out=self.out) for word in self.command.words.split()]
        if words[0] == "fit" and list(self.out.glob("checkpoints/*.ckpt")):
            words += ["--ckpt_path", "last"]

        if limit is not None and self._disk.mounted:
            self._disk.leave(limit)

        def work() -> int:
            if limit is not None and not self._disk.mounted:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            return main(words)

        return start(work, self.log)

    def full(self, limit: int) -> int:
        """The status of the command on a full disk."""
        try:
            return ended(self.start(limit))
        finally:
            if self._disk.mounted:
                self._disk.leave(None)

    def run(self) -> float:
        """The seconds of the command, undisturbed."""
        before = time.monotonic()
        if status := ended(self.start()):
            raise AssertionError(f"{self.command.words}: status {status}\n{self.log.read_text()[-2000:]}")
        return time.monotonic() - before

    def read(self) -> str:
        """A digest of the output, or "refused" for an error that names it."""

        def work() -> int:
            try:
                print(hashlib.sha256(repr(self.command.read(self.out)).encode()).hexdigest())
            except (ValueError, FileNotFoundError) as error:
                print(
                    "refused"
                    if str(self.out) in str(error) and "\n" not in str(error)
                    else f"unnamed: {error}"
                )
            return 0

        if ended(start(work, self.log)):
            return self.log.read_text()[-2000:]
        return self.log.read_text().splitlines()[-1]


def kill(trial: Trial, expected: str, after: float) -> str:
    """What came of a kill: "whole", "refused" (a whole output is not written again) or a problem."""
    process = trial.start()
    time.sleep(after)
    os.kill(process, signal.SIGKILL)
    ended(process)
    left = trial.read()
    if left not in (expected, "refused"):
        return f"what is left: {left}"
    status = ended(trial.start())
    told = trial.log.read_text()
    if status and left != expected:
        return f"what is left blocks the command, status {status}: {told[-1500:]}"
    if status:
        return unclear(trial, status, told) or "refused"
    if (found := trial.read()) != expected:
        return f"again: {found}"
    scratch = [str(path) for path in trial.out.rglob("*") if path.name.endswith(".tmp")]
    return f"scratch files: {scratch}" if scratch else "whole"


def unclear(trial: Trial, status: int, told: str) -> str | None:
    """What is wrong with how a command refused to go on; None if nothing is."""
    lines = [line for line in told.splitlines() if line.startswith("error: ")]
    clear = status == 2 and "Traceback" not in told and len(lines) == 1 and str(trial.out) in lines[0]
    return None if clear else f"status {status}: {told[-1500:]}"


def full_disk(trial: Trial, expected: str, limit: int) -> str:
    """What came of a disk with so many bytes left."""
    former = any(trial.out.iterdir())
    status = trial.full(limit)
    told = trial.log.read_text().strip()
    if status == 0:
        return "whole" if trial.read() == expected else "status 0, and another output"
    if problem := unclear(trial, status, told):
        return problem
    left = trial.read()
    return "refused" if left == expected or (left == "refused" and not former) else f"what is left: {left}"


GOOD = ("whole", "refused")


def tried(
    how: str, times: int, name: str, chance: random.Random, work: Path, disk: Disk
) -> list[tuple[str, str]]:
    """What was done to a command so many times, and what came of it each time."""
    trial, outcomes = Trial(name, work, disk), []
    seconds = trial.run()
    expected = trial.read()
    sizes = [path.stat().st_size for path in trial.out.rglob("*") if path.is_file()]
    most = sum(-(-size // 4096) * 4096 for size in sizes) + (1 << 16) if disk.mounted else max(sizes)
    for number in range(times):
        if how == "kills":
            trial = Trial(name, work, disk) if chance.random() < 0.8 else trial
            after = chance.uniform(0, 1.1 * seconds)
            told, outcome = f"killed after {after:.2f} s", kill(trial, expected, after)
        else:
            limit = int(most * (number + chance.random()) / times)
            if name == "fit" or chance.random() < 0.5:  # half of them begin with nothing
                trial = Trial(name, work, disk)
            told, outcome = f"at most {limit} bytes", full_disk(trial, expected, limit)
        outcomes.append((told, outcome))
        if outcome not in GOOD:
            print(f"{name}, {told}: {outcome}", flush=True)
        if how == "full" and trial.read() != expected:
            trial = Trial(name, work, disk)
            trial.run()
    return outcomes


def run(how: str, count: int, names: list[str]) -> list[str]:
    """Tries commands `count` times, prints what came of it, and returns the problems."""
    chance, problems = random.Random(SEED), []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        if ended(start(lambda: write_inputs(work) or 0, work / "log")):  # type: ignore[func-returns-value]
            raise AssertionError((work / "log").read_text())
        disk = Disk(work / "disk", how == "full")
        if how == "full":
            print("a tmpfs" if disk.mounted else "no mounting: files that cannot grow", flush=True)
        drawn = chance.choices(names, [COMMANDS[name].share for name in names], k=max(0, count - len(names)))
        try:
            for name in names:
                found = tried(how, min(1, count) + drawn.count(name), name, chance, work, disk)
                outcomes = Counter(outcome for _, outcome in found)
                problems += [f"{name}, {told}: {outcome}" for told, outcome in found if outcome not in GOOD]
                print(f"{name}: {dict(outcomes)}", flush=True)
        finally:
            disk.close()
    return problems


if __name__ == "__main__":
    how, count, *names = sys.argv[1:]
    sys.exit(1 if run(how, int(count), names or list(COMMANDS)) else 0)
