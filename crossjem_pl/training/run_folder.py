"""What a run leaves on disk: model folder, TREC runs, metrics table, summary."""

from __future__ import annotations

import json
import platform
import time
from pathlib import Path
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, WeightAveraging
from torch import Tensor

from crossjem_pl.data.formats import write_lists, write_qrels, write_run
from crossjem_pl.data.module import RankingDataModule, Stage
from crossjem_pl.evaluation.measures import evaluate_run
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.folder import save_ranker
from crossjem_pl.training.module import RankingModule

__all__ = ["RunFolder", "describe_machine", "set_aside_metrics"]


class RunFolder(Callback):
    """Writes the results of a run into its folder (the trainer's `default_root_dir`).

    After every validation that is the best so far by the first of the module's metrics: `model/` (under Lightning's
    `WeightAveraging` the averaged weights, which were validated), `val.trec`, `val_metrics.json` and `.md`. After
    `test`: the same for "test", without the model; after `predict`: `predict.trec`. `summary.json` is kept up to
    date: ranker, parameters, lists and seconds trained, machine, seed and the figures of each stage.
    Runs without validation lists export the model when training ends.
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

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._started = time.monotonic()

    def on_validation_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        # averaged weights are there while lists are scored, and gone when the validation ends
        averaged = any(isinstance(callback, WeightAveraging) for callback in trainer.callbacks)  # type: ignore[attr-defined]
        if averaged and batch_idx == 0 and not trainer.sanity_checking:
            assert isinstance(pl_module, RankingModule)
            self._validated = _weights(pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or _is_dry_run(trainer) or not trainer.is_global_zero:
            return
        assert isinstance(pl_module, RankingModule)
        monitored = trainer.callback_metrics.get(f"val/{pl_module.metrics[0]}")
        value = None if monitored is None else float(monitored)
        if value is not None and self.best is not None and value <= self.best:
            return
        self.best = value
        self._write_stage(trainer, pl_module, "val")
        if trainer.state.fn == "fit":
            self._export(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.seconds, self._started = self._elapsed(), None
        if _is_dry_run(trainer) or not trainer.is_global_zero:
            return
        assert isinstance(pl_module, RankingModule)
        if not self._exported:
            self._export(trainer, pl_module)
        self._summarise(trainer, pl_module, None)
        folder = self._root(trainer) / "model"
        best = (
            "" if self.best is None else f", {pl_module.metrics[0]} {self.best:.4f} on the validation lists"
        )
        print(
            f"model: {folder}{best}; rank with it: crossjem rank {folder} QUERY ITEM ITEM ...; "
            f"evaluate it: crossjem test -c {self._root(trainer)}/config.yaml --model.weights {folder}",
            flush=True,
        )

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero and not _is_dry_run(trainer):
            assert isinstance(pl_module, RankingModule)
            self._write_stage(trainer, pl_module, "test")

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero and not _is_dry_run(trainer):
            assert isinstance(pl_module, RankingModule)
            path = self._root(trainer) / "predict.trec"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_run(pl_module.runs["predict"], path, tag=pl_module.ranker.name)

    def _export(self, trainer: Trainer, module: RankingModule) -> None:
        folder = self._root(trainer) / "model"
        if self._validated is None:
            save_ranker(module.ranker, folder)
        else:
            now = _weights(module)
            module.ranker.load_state_dict(self._validated)
            save_ranker(module.ranker, folder)
            module.ranker.load_state_dict(now)
        self._exported = True

    def _write_stage(self, trainer: Trainer, module: RankingModule, stage: Stage) -> None:
        root = self._root(trainer)
        run = module.runs[stage]
        write_run(run, root / f"{stage}.trec", tag=module.ranker.name)
        lists = [one for one in self._lists(trainer, stage) if one.query_id in run]
        evaluation = None
        if lists and all(one.labels is not None for one in lists):
            write_lists(lists, root / f"{stage}_lists.parquet")
            if all(float(label).is_integer() for one in lists for label in one.labels or ()):
                write_qrels(lists, root / f"{stage}.qrels")
            evaluation = evaluate_run(
                run,
                {one.query_id: dict(zip(one.item_ids, one.labels or (), strict=True)) for one in lists},
                module.metrics,
                relevant_from=module.relevant_from,
            )
            evaluation.write(root, prefix=f"{stage}_")
        self._summarise(trainer, module, None if evaluation is None else {stage: evaluation.means})

    @staticmethod
    def _lists(trainer: Trainer, stage: Stage) -> list[RankingList]:
        module = getattr(trainer, "datamodule", None)
        if not isinstance(module, RankingDataModule):
            return []
        source: Stage = stage if stage in module.sources else "val"
        return module.lists(source)

    def _summarise(self, trainer: Trainer, module: RankingModule, metrics: dict[str, Any] | None) -> None:
        path = self._root(trainer) / "summary.json"
        summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        data = getattr(trainer, "datamodule", None)
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
            if trainer.state.fn == "fit":
                steps = trainer.global_step * trainer.accumulate_grad_batches
                summary["trained_lists"] = steps * data.batch_size * trainer.world_size
                summary["train_seconds"] = round(self._elapsed(), 1)
                summary["epochs"] = trainer.current_epoch
        summary.setdefault("split_metrics", {}).update(metrics or {})
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")

    def _elapsed(self) -> float:
        running = 0.0 if self._started is None else time.monotonic() - self._started
        return self.seconds + running

    @staticmethod
    def _root(trainer: Trainer) -> Path:
        return Path(trainer.default_root_dir)


def _weights(module: RankingModule) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.ranker.state_dict().items()}


def _is_dry_run(trainer: Trainer) -> bool:
    """Whether the trainer only tries a batch or two (`fast_dev_run`, an attribute that Trainer sets by hand)."""
    return bool(getattr(trainer, "fast_dev_run", False))


def describe_machine() -> str:
    """The processor or accelerator and the number of threads, for the side of a figure."""
    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    return f"{_processor()}, {torch.get_num_threads()} threads"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="utf-8", errors="replace").splitlines()
        fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        name = fields.get("model name", platform.machine())
        flags = fields.get("flags", "").split()
        matrix = [flag for flag in ("amx_bf16", "avx512_bf16") if flag in flags]
        return f"{name} ({', '.join(matrix)})" if matrix else name
    return platform.processor() or platform.machine()


def set_aside_metrics(root: Path) -> None:
    """Renames the `metrics.csv` of an earlier start to `metrics-1.csv`, ...: the logger would overwrite it."""
    current = root / "metrics.csv"
    if current.exists():
        number = 1
        while (root / f"metrics-{number}.csv").exists():
            number += 1
        current.rename(root / f"metrics-{number}.csv")
