"""The LightningModule: a ranker, a loss, an optimiser and metrics. Knows no model family."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import partial, partialmethod
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from lightning import LightningModule
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from crossjem_pl.data.batches import ListBatch
from crossjem_pl.evaluation.metrics import RankingMetrics
from crossjem_pl.losses.base import RankingLoss, VectorLoss
from crossjem_pl.process import release_freed
from crossjem_pl.rankers.base import Ranker
from crossjem_pl.rankers.folder import copy_weights

__all__ = ["RankingModule", "adamw", "gathered"]

log = logging.getLogger(__name__)

Run = dict[str, dict[str, float]]
T = TypeVar("T")


class RankingModule(LightningModule):
    """Trains and evaluates any ranker.

    Args:
        ranker: what scores.
        loss: what training minimises; a `VectorLoss` (in-batch negatives) needs a ranker with `vectors`.
        targets: which numbers of the lists the loss gets: "scores" (a teacher's), "labels", or "both" (`losses.Sum`).
        lr: learning rate of AdamW, the default optimiser.
        head_lr: learning rate of the parameters outside the encoder, with any optimiser; None for the same.
        weight_decay: of AdamW. No optimiser decays biases and scales, only weight matrices.
        warmup: share of all steps over which the learning rate rises from 0; then it falls linearly to 0.
        optimizer: another optimiser with its own `lr`, in YAML a `class_path` and `init_args`.
        lr_scheduler: another schedule, stepped after every optimiser step (`ReduceLROnPlateau`: after every epoch, by
            the first of the metrics).
        metrics: monitored on validation and test lists, ir-measures names (RR, AP, nDCG, P, R with a cut-off).
        relevant_from: lowest label that is relevant for RR, AP, P and R, monitored and written.
        weights: model folder of the same kind of ranker to start from: a second training stage, or the evaluation of
            an exported model.

    Monitored values are those of `evaluate_run` on the run that is written: both call `evaluation.metrics`.
    """

    def __init__(
        self,
        ranker: Ranker,
        loss: RankingLoss | VectorLoss,
        targets: Literal["scores", "labels", "both"] = "scores",
        lr: float = 1e-4,
        head_lr: float | None = None,
        weight_decay: float = 0.01,
        warmup: float = 0.1,
        optimizer: OptimizerCallable | None = None,
        lr_scheduler: LRSchedulerCallable | None = None,
        metrics: Sequence[str] = ("RR@10", "AP@10", "nDCG@10"),
        relevant_from: float = 1.0,
        weights: str | None = None,
    ) -> None:
        super().__init__()
        if not 0.0 <= warmup < 1.0:
            raise ValueError(f"warmup is a share of all steps in [0, 1), got {warmup}")
        self.ranker, self.loss, self.targets = ranker, loss, targets
        self.head_lr, self.warmup = head_lr, warmup
        self.optimizer: OptimizerCallable = optimizer or partial(adamw, lr=lr, weight_decay=weight_decay)
        self.lr_scheduler: LRSchedulerCallable = lr_scheduler or self._warmup_and_decay
        self.metrics, self.relevant_from = list(metrics), relevant_from
        self.ranking_metrics = RankingMetrics(metrics, relevant_from)
        if weights is not None:
            copy_weights(weights, ranker)
        self.runs: dict[str, Run] = {}
        """Scores of the last finished validation ("val"), test and predict, by query id and item id."""
        self._scored: Run = {}
        self._trained_texts: Counter[str] = Counter()
        self._scored_texts: Counter[str] = Counter()
        self._warned: set[str] = set()
        self._whole: tuple[Ranker, ...] = ()
        """The ranker as it was before it was sharded; in a tuple, as it is no part of this module."""

    def setup(self, stage: str) -> None:
        corpus = getattr(getattr(self.trainer, "datamodule", None), "item_texts", None)
        if not self.ranker.trainable and corpus is not None:
            self.ranker.index_items(corpus())

    def configure_model(self) -> None:
        """Under Lightning's `ModelParallelStrategy` leaves each process its part of every weight (FSDP2).

        The first process gives the weights; in the others the ranker may be on the meta device.
        """
        if self.device_mesh is None or self._whole:
            return
        whole, mesh = self.ranker, self.device_mesh["data_parallel"]
        empty: dict[int, Any] = {}
        for parameter in whole.parameters():
            empty[id(parameter)] = nn.Parameter(parameter.to("meta"), parameter.requires_grad)
        ranker = self.ranker = deepcopy(whole, empty)
        for module in (*ranker.shards(), ranker):
            fully_shard(module, mesh=mesh, reshard_after_forward=True)  # callbacks see no whole weights
        register_fsdp_forward_method(ranker, "vectors")
        ranker.to_empty(device=mesh.device_type)
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(ranker, whole.state_dict(), options=options)
        # also those that no state dict has
        for buffer, given in zip(ranker.buffers(), whole.buffers(), strict=True):
            if self.global_rank == 0:
                buffer.copy_(given)
            dist.broadcast(buffer, 0)
        self._whole = (whole,)

    def whole_ranker(self) -> Ranker:
        """The ranker with all its weights, which is what is saved; all processes call it together.

        Sharded weights are gathered in the memory of the first process's host; in the others they are anything.
        """
        if not self._whole:
            return self.ranker
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        if weights := get_model_state_dict(self.ranker, options=options):  # empty but in the first process
            self._whole[0].load_state_dict(weights)
        return self._whole[0]

    def forward(self, batch: ListBatch) -> Tensor:
        """Scores, float32 [lists, max_items]."""
        if self._whole and (runs := batch.inputs.runs):
            # sharded layers are gathered in every run, so all processes make as many; more of them change no score
            most = torch.tensor(len(runs), device=self.device)
            dist.all_reduce(most, dist.ReduceOp.MAX)
            runs += runs[-1:] * (int(most) - len(runs))
        return self.ranker(batch.inputs)

    def training_step(self, batch: ListBatch, batch_idx: int) -> Tensor:
        targets = self._targets(batch)
        try:
            scores, loss = self._scores_and_loss(batch, targets)
        except ValueError as error:
            raise ValueError(f"step {self.global_step}, {_named(batch)}: {error}") from error
        if not bool(torch.isfinite(loss)):
            raise ValueError(self._why_not_finite(batch, targets, scores, loss))
        _count_texts(self._trained_texts, batch)
        size, inputs = len(batch.query_ids), batch.inputs
        self.log("train/loss", loss, prog_bar=True, batch_size=size)
        for name in ("truncated_items", "truncated_queries", "items_left_out"):
            count = getattr(batch if name == "items_left_out" else inputs, name)
            self.log(f"train/{name}", float(count), batch_size=size, reduce_fx="sum")
        return loss

    def _targets(self, batch: ListBatch) -> Tensor:
        """What the loss gets: [lists, items], or [lists, items, 2] of labels and scores."""
        kinds = {"labels": batch.labels, "scores": batch.scores}
        wanted = {name: kinds[name] for name in kinds if self.targets in (name, "both")}
        for name, values in wanted.items():
            if values is None:
                raise ValueError(
                    f"list {batch.query_ids[0]!r} has no {name}, which model.targets={self.targets!r} asks for"
                )
        found = [values for values in wanted.values() if values is not None]
        return found[0] if len(found) == 1 else torch.stack(found, dim=-1)

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        release_freed(20.0)  # a step's pages are many: fetching them anew takes a tenth of a second or two

    def on_train_epoch_start(self) -> None:
        self._trained_texts.clear()

    def on_train_epoch_end(self) -> None:
        self._warn_of_cut_texts("train", sum(gathered(self._trained_texts), Counter[str]()))

    def _warn_of_cut_texts(self, stage: str, texts: Counter[str]) -> None:
        """Once a stage; what is counted in the sanity check before a training does not count as told."""
        cut = [
            f"{texts[f'cut {side}']:,} of {texts[side]:,} {side} are longer than {limit} "
            f"({getattr(self.ranker, limit, 'the limit')})"
            for side, limit in (("queries", "max_query_tokens"), ("items", "max_item_tokens"))
            if texts[f"cut {side}"]
        ]
        if cut and stage not in self._warned and self.trainer.is_global_zero:
            log.warning("%s lists: %s and were cut", stage, ", ".join(cut))
            self._warned |= set() if self.trainer.sanity_checking else {stage}

    def _scores_and_loss(self, batch: ListBatch, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The scores, or for a loss over vectors the item vectors, and the loss."""
        mask = batch.inputs.item_mask
        if isinstance(self.loss, VectorLoss):
            queries, items = self.ranker.vectors(batch.inputs)
            inputs: Any = batch.inputs  # a ranker with vectors makes batches with the keys of their texts
            return items, self.loss(queries, items, targets, mask, inputs.item_keys, inputs.query_keys)
        scores = self(batch)
        return scores, self.loss(scores, targets, mask)

    def _why_not_finite(self, batch: ListBatch, targets: Tensor, scores: Tensor, loss: Tensor) -> str:
        def lists(numbers: Tensor) -> str:
            bad = ~torch.isfinite(numbers.reshape(*batch.inputs.item_mask.shape, -1)).all(dim=-1)
            rows = (bad & batch.inputs.item_mask).any(dim=-1).tolist()
            return ", ".join(repr(name) for name, is_bad in zip(batch.query_ids, rows, strict=True) if is_bad)

        if named := lists(targets):
            kind = "labels or scores" if self.targets == "both" else self.targets
            cause = f"the {kind} of {named} are not finite"
        elif named := lists(scores):
            cause = f"the ranker's output for {named} is not finite: try a lower learning rate or another precision"
        else:
            cause = (
                f"its inputs are finite, so {type(self.loss).__name__} overflows on these targets and scores"
            )
        return f"step {self.global_step}, {_named(batch)}: the loss is {loss.item()}; {cause}"

    def _start(self) -> None:
        self._scored = {}
        self._scored_texts.clear()
        self.ranking_metrics.reset()

    def configure_optimizers(self) -> Any:
        groups = list(self._parameter_groups())
        if not groups:
            raise ValueError(
                f"{type(self.ranker).__name__} has nothing to train; evaluate it with: lightning test"
            )
        optimizer = self.optimizer(groups)
        scheduler = self.lr_scheduler(optimizer)
        step: dict[str, Any] = {"scheduler": scheduler, "interval": "step"}
        if isinstance(scheduler, ReduceLROnPlateau):
            step |= {"interval": "epoch", "monitor": f"val/{self.metrics[0]}"}
        return {"optimizer": optimizer, "lr_scheduler": step}

    def _warmup_and_decay(self, optimizer: torch.optim.Optimizer) -> LambdaLR:
        steps = self.trainer.estimated_stepping_batches
        if not 0 <= steps < float("inf"):
            raise ValueError(
                "the learning rate falls to 0 over all steps, and their number is not known: set trainer.max_steps or "
                "trainer.max_epochs, or another model.lr_scheduler"
            )
        total = max(int(steps), 1)
        rising = int(total * self.warmup)

        def factor(step: int) -> float:
            if step < rising:
                return (step + 1) / rising
            return max(0.0, (total - step) / max(total - rising, 1))

        return LambdaLR(optimizer, factor)

    def _parameter_groups(self) -> Iterator[dict[str, Any]]:
        """Groups of the optimiser: no decay except on matrices; `head_lr` outside the encoder."""
        encoder = {id(p) for m in self.ranker.encoders() for p in m.parameters()}
        groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
        for parameter in self.ranker.parameters():
            if parameter.requires_grad:
                groups.setdefault((id(parameter) in encoder, parameter.ndim > 1), []).append(parameter)
        for (of_encoder, matrix), parameters in groups.items():
            group: dict[str, Any] = {"params": parameters}
            if not (of_encoder or self.head_lr is None):
                group["lr"] = self.head_lr
            if not matrix:
                group["weight_decay"] = 0.0
            yield group

    def _evaluate(self, batch: ListBatch, batch_idx: int) -> None:
        scores, mask = self(batch).float(), batch.inputs.item_mask
        if not bool(torch.isfinite(scores).all()):
            bad = int((~torch.isfinite(scores)).any(dim=1).nonzero()[0])
            raise ValueError(f"list {batch.query_ids[bad]!r}: the ranker gave a score that is not finite")
        counts = self._scored_texts
        _count_texts(counts, batch)
        for query_id, item_ids, row in zip(batch.query_ids, batch.item_ids, scores.tolist(), strict=True):
            self._scored[query_id] = dict(zip(item_ids, row, strict=False))  # the rest of the row is padding
        counts["labelled" if batch.labels is not None else "unlabelled"] += len(batch.query_ids)
        if batch.labels is not None:
            counts["positives"] += int((batch.labels >= self.relevant_from).sum())
            self.ranking_metrics.update(batch.query_ids, batch.item_ids, scores, batch.labels, mask)

    def _finish(self, stage: str) -> None:
        """Stores the run of all processes, each query once, and logs the means.

        Lists without a positive have no means: each would be 0 whatever the weights, and the first would stay the best.

        Raises:
            ValueError: if some lists have labels and others do not.
        """
        parts = gathered((self._scored, self._scored_texts))
        run = {query_id: scores for part, _ in parts for query_id, scores in part.items()}
        counts = sum((texts for _, texts in parts), Counter[str]())
        self._warn_of_cut_texts(stage, counts)
        if stage != "predict" and counts["labelled"] and counts["unlabelled"]:
            without, every = counts["unlabelled"], counts["queries"]
            raise ValueError(
                f"{without:,} of the {every:,} {stage} lists have no labels: label all of them or none"
            )
        if counts["labelled"] and not (counts["positives"] or self.trainer.sanity_checking):
            log.warning(
                "no label of the %s lists is %g or more (model.relevant_from), so there are no metrics, and a training "
                "keeps its newest weights", stage, self.relevant_from
            )  # fmt: skip
        self.runs[stage] = dict(sorted(run.items()))
        if stage != "predict" and counts["positives"]:
            for name, mean in self.ranking_metrics.compute().items():
                self.log(f"{stage}/{name}", mean, prog_bar=True, rank_zero_only=False)
        self._scored = {}

    on_validation_epoch_start = on_test_epoch_start = on_predict_epoch_start = _start
    on_validation_epoch_end = partialmethod(_finish, "val")
    on_test_epoch_end = partialmethod(_finish, "test")
    on_predict_epoch_end = partialmethod(_finish, "predict")
    validation_step = test_step = predict_step = _evaluate


def gathered(own: T) -> list[T]:
    """The values of all processes, by rank, which all call it together; `own` alone without a process group."""
    if not (dist.is_available() and dist.is_initialized()):
        return [own]
    values = [own] * dist.get_world_size()
    dist.all_gather_object(values, own)
    return values


def adamw(groups: list[dict[str, Any]], lr: float, weight_decay: float) -> AdamW:
    """AdamW; on a CPU in one kernel, which takes a sixth of the time that one kernel after the other takes."""
    on_cpu = all(parameter.device.type == "cpu" for group in groups for parameter in group["params"])
    optimizer = AdamW(groups, lr=lr, weight_decay=weight_decay, fused=on_cpu or None)
    if on_cpu:  # where no loss is scaled: Lightning need not refuse to clip gradients
        optimizer._step_supports_amp_scaling = False
    return optimizer


def _named(batch: ListBatch) -> str:
    return f"lists {', '.join(map(repr, batch.query_ids))}"


def _count_texts(counts: Counter[str], batch: ListBatch) -> None:
    counts["queries"] += len(batch.query_ids)
    counts["items"] += sum(map(len, batch.item_ids))
    counts["cut queries"] += batch.inputs.truncated_queries
    counts["cut items"] += batch.inputs.truncated_items
