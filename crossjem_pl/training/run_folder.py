"""What a run leaves on disk: model folder, TREC runs, metrics table, summary, checkpoints."""

from __future__ import annotations

import fcntl
import os
import platform
import re
import sys
import time
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import torch
from lightning import Trainer
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import Callback, WeightAveraging
from torch import Tensor

from crossjem_pl.data.formats import write_lists
from crossjem_pl.data.module import RankingDataModule, Stage
from crossjem_pl.data.trec import write_qrels, write_run
from crossjem_pl.evaluation.metrics import evaluate_run
from crossjem_pl.files import replacing, write_json
from crossjem_pl.hashing import weights_sha256
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Ranker
from crossjem_pl.rankers.encoders import read_json
from crossjem_pl.rankers.folder import save_ranker
from crossjem_pl.training.callbacks import AverageWithStart
from crossjem_pl.training.module import RankingModule

__all__ = [
    "AtomicCheckpointIO",
    "RunFolder",
    "describe_machine",
    "last_whole_checkpoint",
    "locked",
    "set_aside",
    "written_files",
]


_WRITTEN = (
    *("config.yaml", "summary.json", "metrics.csv", "metrics-*.csv", "model", "checkpoints"),
    *(
        f"{stage}{name}"
        for stage in ("val", "test", "predict")
        for name in (".trec", ".qrels", "_lists.parquet")
    ),
    *(f"{stage}_metrics.*" for stage in ("val", "test")),
)
"""What runs write into their folder."""


class RunFolder(Callback):
    """Writes the results of a run into its folder (the trainer's `default_root_dir`).

    After every validation that is the best so far by the first of the module's metrics: `model/` (under
    `AverageWithStart` and Lightning's `WeightAveraging` the averaged weights, which were validated), `val.trec`,
    `val_metrics.json` and `.md`. After `test`: the same for "test", without the model; after `predict`:
    `predict.trec`. `summary.json` is kept up to date: ranker, parameters, lists and seconds trained, machine, seed and
    the figures of each stage. Runs without validation lists export the model when training ends.
    """

    def __init__(self) -> None:
        self.best: float | None = None
        self.seconds = 0.0
        self._started: float | None = None
        self._exported = False
        self._validated: dict[str, Tensor] | None = None

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "seconds": self._elapsed(), "exported": self._exported}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.seconds = state_dict["best"], state_dict["seconds"]
        self._exported = state_dict["exported"]

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        self._started = time.monotonic()
        if not trainer.strategy.broadcast((_root(trainer) / "model").exists()):
            self.best, self._exported = None, False  # resumed in another folder

    def on_validation_batch_start(
        self,
        trainer: Trainer,
        pl_module: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        # averaged weights are there while lists are scored, and gone when the validation ends
        kinds = (WeightAveraging, AverageWithStart)
        averaged = any(isinstance(callback, kinds) for callback in trainer.callbacks)  # type: ignore[attr-defined]
        if averaged and batch_idx == 0 and not trainer.sanity_checking:
            self._validated = _weights(pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        if trainer.sanity_checking:
            return
        monitored = trainer.callback_metrics.get(f"val/{pl_module.metrics[0]}")
        value = None if monitored is None else float(monitored)
        if value is not None and self.best is not None and value <= self.best:
            return
        self.best = value
        with self._validated_weights(pl_module):
            ranker = pl_module.whole_ranker()
            if _writes(trainer):
                self._write_stage(trainer, pl_module, "val", ranker)
            if trainer.state.fn == "fit":
                self._export(trainer, ranker)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        self.seconds, self._started = self._elapsed(), None
        if not self._exported:  # never validated
            with ExitStack() as stack:
                for callback in trainer.callbacks:  # type: ignore[attr-defined]
                    if isinstance(callback, AverageWithStart):
                        stack.enter_context(callback.averaged(pl_module))
                self._export(trainer, pl_module.whole_ranker())
        if not _writes(trainer):
            return
        self._summarise(trainer, pl_module, {})
        root = _root(trainer)
        score = (
            f" ({pl_module.metrics[0]} {self.best:.4f} on the validation lists)"
            if self.best is not None
            else " (no validation metrics)"
        )
        print(f"The model is in {root / 'model'}{score}.")
        print(f"Evaluate it: crossjem test {root / 'model'} LISTS")
        print(f"Use it:      crossjem rank {root / 'model'} QUERY ITEM ITEM ...", flush=True)

    def on_test_end(self, trainer: Trainer, pl_module: Any) -> None:
        ranker = pl_module.whole_ranker()
        if _writes(trainer):
            self._write_stage(trainer, pl_module, "test", ranker)

    def on_predict_end(self, trainer: Trainer, pl_module: Any) -> None:
        ranker = pl_module.whole_ranker()
        if _writes(trainer):
            write_run(pl_module.runs["predict"], _root(trainer) / "predict.trec", tag=_tag(ranker))

    def _export(self, trainer: Trainer, ranker: Ranker) -> None:
        if _writes(trainer):
            check_finite(ranker.state_dict())
            save_ranker(ranker, _root(trainer) / "model")
        self._exported = True

    @contextmanager
    def _validated_weights(self, module: RankingModule) -> Iterator[None]:
        """While it lasts the ranker has the averaged weights that were validated, if there are such."""
        if self._validated is None:
            yield
            return
        now = _weights(module)
        module.ranker.load_state_dict(self._validated)
        yield
        module.ranker.load_state_dict(now)

    def _write_stage(self, trainer: Trainer, module: RankingModule, stage: Stage, ranker: Ranker) -> None:
        root, run = _root(trainer), module.runs[stage]
        write_run(run, root / f"{stage}.trec", tag=_tag(ranker))
        data = getattr(trainer, "datamodule", None)
        lists: list[RankingList] = []
        if isinstance(data, RankingDataModule):
            source: Stage = stage if stage in data.sources else "val"
            lists = [ranking_list for ranking_list in data.lists(source) if ranking_list.query_id in run]
        judgements = {
            ranking_list.query_id: dict(zip(ranking_list.item_ids, ranking_list.labels, strict=True))
            for ranking_list in lists
            if ranking_list.labels is not None
        }
        labelled = bool(lists) and len(judgements) == len(lists)
        graded = labelled and all(
            float(label).is_integer() for labels in judgements.values() for label in labels.values()
        )
        named = ("_lists.parquet", "_metrics.json", "_metrics.md")
        for name, written in {**dict.fromkeys(named, labelled), ".qrels": graded}.items():
            if not written:  # what an evaluation of other lists left
                (root / f"{stage}{name}").unlink(missing_ok=True)
        means: Mapping[str, float] = {}
        if labelled:
            write_lists(lists, root / f"{stage}_lists.parquet")
            if graded:
                write_qrels(lists, root / f"{stage}.qrels")
            evaluation = evaluate_run(run, judgements, module.metrics, relevant_from=module.relevant_from)
            evaluation.write(root, prefix=f"{stage}_")
            means = evaluation.means
        self._summarise(trainer, module, {stage: means})

    def _summarise(self, trainer: Trainer, module: RankingModule, figures: Mapping[Stage, Any]) -> None:
        """Updates `summary.json`; an evaluation leaves what a training wrote there and replaces its stage's figures."""
        path = _root(trainer) / "summary.json"
        summary: dict[str, Any] = read_json(path)
        fitting, data = trainer.state.fn == "fit", getattr(trainer, "datamodule", None)
        if fitting or "trained_lists" not in summary:
            summary.update(
                ranker=module.ranker.name,
                parameters=sum(p.numel() for p in module.ranker.parameters()),
                machine=describe_machine(),
                precision=str(trainer.precision),
                relevant_from=module.relevant_from,
                processes=trainer.world_size,
            )
            if isinstance(data, RankingDataModule):
                summary["seed"] = data.seed
        if fitting and isinstance(data, RankingDataModule):
            if "training_data" not in summary and data.sources["train"].stream(data.root) is None:
                summary["training_data"] = _statistics(data.lists("train"), module.relevant_from)
            steps = trainer.global_step * trainer.accumulate_grad_batches
            summary["trained_lists"] = steps * data.batch_size * trainer.world_size
            summary["train_seconds"] = round(self._elapsed(), 1)
            summary["epochs"] = trainer.current_epoch
        known = summary.get("split_metrics", {}) | figures
        summary["split_metrics"] = {stage: means for stage, means in known.items() if means}
        write_json(path, summary)

    def _elapsed(self) -> float:
        return self.seconds + (0.0 if self._started is None else time.monotonic() - self._started)


def _statistics(lists: Sequence[RankingList], relevant_from: float) -> dict[str, float]:
    """How many lists there are, and means over them and over their items."""
    items = [text for ranking_list in lists for text in ranking_list.items]
    found: dict[str, float] = {
        "lists": len(lists),
        "items_per_list": len(items) / len(lists),
        "query_words": sum(len(ranking_list.query.split()) for ranking_list in lists) / len(lists),
        "item_words": sum(len(text.split()) for text in items) / len(items),
    }
    labels = [ranking_list.labels for ranking_list in lists if ranking_list.labels is not None]
    if len(labels) == len(lists):
        relevant = sum(label >= relevant_from for row in labels for label in row)
        found["relevant_per_list"] = relevant / len(lists)
    return {name: round(value, 2) for name, value in found.items()}


def _root(trainer: Trainer) -> Path:
    return Path(trainer.default_root_dir)


def _tag(ranker: Ranker) -> str:
    """Of the lines of a run: the ranker and the first 12 digits of its `weights_sha256`."""
    return f"{ranker.name}-{weights_sha256(ranker)[:12]}"


def _weights(module: RankingModule) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.ranker.state_dict().items()}


def _writes(trainer: Trainer) -> bool:
    """Whether this process writes: the first one, if the run is more than a dry one (`fast_dev_run`)."""
    return trainer.is_global_zero and not getattr(trainer, "fast_dev_run", False)


def describe_machine() -> str:
    """The processor or accelerator and the number of threads, for the side of a figure."""
    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    return f"{_processor()}, {torch.get_num_threads()} threads"


def _processor() -> str:
    """The name of the processor, with its instructions for bfloat16."""
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8", errors="replace") if info.exists() else ""
    name = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    matrix = sorted({"amx_bf16", "avx512_bf16"} & set(text.split()))
    found = platform.processor() or platform.machine() if name is None else name[1]
    return f"{found} ({', '.join(matrix)})" if matrix else found


def set_aside(root: Path, resumes: bool) -> None:
    """Moves what an earlier training left out of the way of one that begins; nothing is deleted.

    A training that resumes goes on with the files of the earlier start, but for `metrics.csv`, which the logger would
    overwrite: it becomes `metrics-1.csv`, and so on. Any other one begins in an empty folder: what a run has written
    there goes to `earlier-1`, and so on, and the move is told.
    """
    if resumes and (root / "metrics.csv").exists():
        (root / "metrics.csv").rename(_unused(root, "metrics-{}.csv"))
    written = written_files(root)
    if not resumes and written:
        earlier = _unused(root, "earlier-{}")
        earlier.mkdir()
        for path in written:
            path.rename(earlier / path.name)
        print(f"{root} holds an earlier run, which is in {earlier} now", file=sys.stderr)


def written_files(root: Path) -> list[Path]:
    """What a run has written into its folder."""
    return [path for pattern in _WRITTEN for path in root.glob(pattern)]


def _unused(root: Path, name: str) -> Path:
    return next(path for n in count(1) if not (path := root / name.format(n)).exists())


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps other runs out of a folder; the system gives the lock back with the process, however that ends.

    Raises:
        ValueError: names the process whose run is under way in the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise ValueError(
                f"{folder}: a run of {holder} is under way there; wait for it, or give another "
                "--trainer.default_root_dir"
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n")
        file.flush()
        yield


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target, flushes to the disk and renames: a full disk or a kill leaves the former file.

    Lightning's own plugin writes to TMPDIR and copies. Addresses of object storage are left to it.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Writes `checkpoint` to `path`.

        Raises:
            ValueError: if a weight is not finite; nothing is written.
        """
        check_finite(checkpoint.get("state_dict", {}))
        if "://" in str(path) or storage_options is not None:
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        with replacing(Path(path)) as stream:
            torch.save(checkpoint, stream)

    def load_checkpoint(
        self, path: str | Path, map_location: Any = "cpu", weights_only: bool | None = None
    ) -> dict[str, Any]:
        """What is in `path`; tensors and plain values only, unless `weights_only` is False.

        Raises:
            ValueError: names the file, if it is damaged or cut off.
        """
        damaged = f"checkpoint {path} is damaged or cut off; --ckpt_path last takes the newest whole one"
        if "://" not in str(path) and Path(path).exists() and not is_whole(Path(path)):
            raise ValueError(damaged)
        try:
            return super().load_checkpoint(path, map_location, weights_only is not False)
        except (RuntimeError, UnicodeDecodeError) as error:  # of a damaged directory of the archive
            raise ValueError(f"{damaged} ({' '.join(str(error).split())[:100]})") from None


def check_finite(weights: dict[str, Tensor]) -> None:
    """Raises a ValueError that names the first weight with a value that is not finite."""
    for name, value in weights.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise ValueError(
                f"weight {name} is not finite, so nothing is saved: training diverged; resume with --ckpt_path last "
                "and a lower learning rate"
            )


def is_whole(path: Path) -> bool:
    """Whether every part of a checkpoint file (a ZIP archive) has its check sum."""
    if not path.is_file():
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except (
        zipfile.BadZipFile,
        OSError,
        EOFError,
        RuntimeError,
        ValueError,
    ):  # also: encrypted, names not UTF-8
        return False


def last_whole_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint of `folder` that can be read, or None if there is no checkpoint; warns about others.

    Raises:
        ValueError: names the files, if none can be read.
    """
    damaged: list[str] = []
    for path in sorted(folder.glob("*.ckpt"), key=lambda p: p.stat().st_mtime_ns, reverse=True):
        if is_whole(path):
            if damaged:
                warnings.warn(f"{', '.join(damaged)}: damaged or cut off; resuming from {path}", stacklevel=2)
            return path
        damaged.append(str(path))
    if damaged:
        raise ValueError(f"{', '.join(damaged)}: damaged or cut off, and there is no other checkpoint")
    return None
