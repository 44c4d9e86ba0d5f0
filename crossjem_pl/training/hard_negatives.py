"""Hard negatives searched anew during training with the model as it is (ANCE)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.dual.towers import DualRanker

__all__ = ["MineHardNegatives", "nearest_items"]


class MineHardNegatives(Callback):
    """Gives every training list the items that the model itself ranks high for its query, as negatives.

    Approximate nearest neighbour negative contrastive estimation (Xiong et al., arXiv 2007.00808), with an exact
    search. Every `every_n_steps` steps all distinct item texts of the training lists (the corpus) and all their
    queries are encoded, in evaluation mode; the `depth` items with the greatest inner products with each query are
    looked up; known positives go; and of those left `n_negatives` are drawn. A list then is its positives (label above
    0) and those negatives, label 0, ids `mined:<number in the corpus>`. What was mined before is replaced. A list for
    which nothing is left keeps its own negatives, one without a positive stays as it is.

    Known positives are told by text, without case and blanks: all texts that have a label above 0 in any list with the
    same query text, and the query itself. An unlabelled item may still be relevant, the usual weakness of mined
    negatives.

    The data module's lists are replaced in place for the next batch (with worker processes: the first that they have
    not begun), and given back when training ends. Teacher scores do not cover mined items, so the loss has to read
    labels. Every process of a distributed run mines everything for itself.

    The draw is a function of the seed, the step and the list. Mined lists are not in checkpoints: a run that resumes
    mines when it starts, with the weights that it resumes from.

    Args:
        every_n_steps: optimiser steps between searches.
        depth: how many of the best items are considered (ANCE: 200).
        n_negatives: how many of them are drawn for a list.
        at_start: mine before the first step too. Without, the first steps see the data's own negatives (a warm-up).
        batch_size: texts encoded at a time.
        seed: seed of the draws.

    Raises:
        ValueError: at the start of training, if the ranker is no dual encoder that compares by inner product or
            cosine, the loss reads teacher scores, or a list has no labels.
    """

    def __init__(
        self,
        every_n_steps: int,
        depth: int = 200,
        n_negatives: int = 20,
        at_start: bool = False,
        batch_size: int = 1024,
        seed: int = 0,
    ) -> None:
        super().__init__()
        for name, value in (("every_n_steps", every_n_steps), ("depth", depth), ("n_negatives", n_negatives)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if n_negatives > depth:
            raise ValueError(f"n_negatives={n_negatives} cannot be drawn from depth={depth} items")
        self.every_n_steps, self.depth, self.n_negatives = every_n_steps, depth, n_negatives
        self.at_start, self.batch_size, self.seed = at_start, batch_size, seed
        self._given: list[RankingList] = []
        self._last_step = -1

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._ranker(pl_module).check_inner_product()
        if getattr(pl_module, "targets", "labels") != "labels":
            raise ValueError(
                "mined negatives have no teacher scores: set model.targets to labels, or leave out "
                "MineHardNegatives"
            )
        lists = _train_lists(trainer)
        for ranking_list in lists:
            if ranking_list.labels is None:
                raise ValueError(
                    f"list {ranking_list.query_id!r}, field 'labels': there are none to tell positives by"
                )
        self._given = list(lists)
        self._last_step = -1

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.at_start or trainer.global_step > 0:
            self._mine(trainer, pl_module)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step = trainer.global_step
        if step % self.every_n_steps == 0 and step not in (0, self._last_step):
            self._mine(trainer, pl_module)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        _train_lists(trainer)[:] = self._given

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if self._given:
            self.on_fit_end(trainer, pl_module)

    def _mine(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._last_step = trainer.global_step
        ranker = self._ranker(pl_module)
        was_training = ranker.training
        ranker.eval()
        with trainer.strategy.precision_plugin.forward_context():
            mined = self.mine(ranker, self._given, trainer.global_step)
        ranker.train(was_training)
        if not any(item_id.startswith("mined:") for new in mined for item_id in new.item_ids):
            rank_zero_warn(
                f"step {trainer.global_step}: no hard negatives were mined for any of {len(mined)} lists, which keep "
                f"their own: the {self.depth} best items of each query are its positives, or no label is above 0"
            )
        _train_lists(trainer)[:] = mined

    def mine(self, ranker: DualRanker, lists: Sequence[RankingList], step: int = 0) -> list[RankingList]:
        """`lists` with negatives that `ranker`, in the mode that it is in, ranks high; see the class.

        Args:
            ranker: compares by inner product.
            lists: with labels; their item texts are the corpus.
            step: part of the draw's seed.
        """
        corpus = list(dict.fromkeys(text for ranking_list in lists for text in ranking_list.items))
        queries = list(dict.fromkeys(ranking_list.query for ranking_list in lists))
        nearest = nearest_items(
            ranker.text_vectors(queries, "query", self.batch_size),
            ranker.text_vectors(corpus, "items", self.batch_size),
            self.depth,
        ).tolist()
        best = dict(zip(queries, nearest, strict=True))
        forbidden = {q: {_form(q)} for q in queries}
        for ranking_list in lists:
            labelled = zip(ranking_list.items, ranking_list.labels or (), strict=True)
            forbidden[ranking_list.query].update(_form(text) for text, label in labelled if label > 0)
        return [
            self._with_negatives(old, best[old.query], corpus, forbidden[old.query], [self.seed, step, i])
            for i, old in enumerate(lists)
        ]

    def _with_negatives(
        self, old: RankingList, best: list[int], corpus: list[str], forbidden: set[str], seed: list[int]
    ) -> RankingList:
        assert old.labels is not None
        kept = [i for i, label in enumerate(old.labels) if label > 0]
        left = [j for j in best if _form(corpus[j]) not in forbidden]
        if not left or not kept:
            return replace(old, scores=None)
        drawn = np.sort(np.random.default_rng(seed).permutation(len(left))[: self.n_negatives])
        mined = [left[i] for i in drawn]
        return RankingList(
            query_id=old.query_id,
            query=old.query,
            item_ids=(*(old.item_ids[i] for i in kept), *(f"mined:{j}" for j in mined)),
            items=(*(old.items[i] for i in kept), *(corpus[j] for j in mined)),
            labels=(*(old.labels[i] for i in kept), *(0.0 for _ in mined)),
        )

    @staticmethod
    def _ranker(pl_module: LightningModule) -> DualRanker:
        ranker = pl_module.ranker
        if not isinstance(ranker, DualRanker):
            raise ValueError(
                f"hard negatives are searched by inner product: {type(ranker).__name__} has no vectors; use "
                "a dual encoder (dpr, ance, twinbert, instructor, coral)"
            )
        return ranker


def _form(text: str) -> str:
    """What two texts are compared by: case and blanks make no difference."""
    return " ".join(text.casefold().split())


def _train_lists(trainer: Trainer) -> list[RankingList]:
    """The data module's own list of training lists."""
    data = getattr(trainer, "datamodule", None)
    if data is None or not hasattr(data, "lists"):
        raise ValueError("MineHardNegatives needs a RankingDataModule, whose training lists it can replace")
    return data.lists("train")


def nearest_items(
    queries: Tensor, items: Tensor, depth: int, chunk: int = 65_536, rows: int = 1024
) -> Tensor:
    """Numbers of the `depth` items with the greatest inner products with each query, best first; exact.

    Memory is that of `rows` x `chunk` products beyond the vectors. (A flat faiss index is no faster: 2,000 queries and
    100,000 items of width 384 take 6.5 s and 6.7 s on two cores.)

    Args:
        queries: float32 [queries, width].
        items: float32 [items, width], on the same device.
        depth: how many; all items if there are fewer.
        chunk, rows: items and queries compared at a time.

    Returns:
        int64 [queries, depth] on the CPU.
    """
    nearest = []
    for part in queries.split(rows):
        best = part.new_empty(len(part), 0)
        number = torch.empty(len(part), 0, dtype=torch.int64, device=part.device)
        for begin in range(0, len(items), chunk):
            products = part @ items[begin : begin + chunk].T
            best = torch.cat((best, products), dim=1)
            new = torch.arange(begin, begin + products.shape[1], device=part.device)
            number = torch.cat((number, new.expand(len(part), -1)), dim=1)
            best, kept = best.topk(min(depth, best.shape[1]), dim=1)
            number = number.gather(1, kept)
        nearest.append(number.cpu())
    return torch.cat(nearest)
