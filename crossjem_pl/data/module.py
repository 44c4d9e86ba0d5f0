"""The LightningDataModule of ranking lists."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from lightning import LightningDataModule, Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_info

from crossjem_pl.data.batches import BatchLoader, ItemSampler, ListLoader
from crossjem_pl.data.sources import FileSource, ListSource
from crossjem_pl.files import existing
from crossjem_pl.hashing import content_id
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Ranker

__all__ = ["RankingDataModule"]

Stage = Literal["train", "val", "test", "predict"]


class RankingDataModule(LightningDataModule):
    """Ranking lists per stage and a sampler of N items per list. Knows no ranker: it asks the model's `collate`.

    Args:
        train, val, test, predict: a path (shorthand for `FileSource`) or a source. (`Path` in the types keeps the
            command line from reading an existing file of lists as a configuration.)
        root: folder that relative paths start from.
        batch_size: lists per training step and process.
        eval_batch_size: lists per evaluation step and process.
        n_items: items drawn per list and training step; None takes all that fit one pass.
        seed: of the order and of the draws; None for that of `seed_everything`, 0 without one.
        num_workers: processes that tokenise; 0 tokenises in the main one.
        teacher_scores: Parquet file of `query_id, item_id, score` that `crossjem teach` wrote; its scores replace
            those of the training lists. Lists that stream carry their scores in the shards instead.
        allow_missing_scores: leave out training items that the teacher did not score, instead of an error.

    Raises:
        ValueError: for a stage without a source, a list of a source that is not valid, or `teacher_scores` with
            training lists that stream.
    """

    def __init__(
        self,
        train: str | Path | ListSource | None = None,
        val: str | Path | ListSource | None = None,
        test: str | Path | ListSource | None = None,
        predict: str | Path | ListSource | None = None,
        root: str = ".",
        batch_size: int = 8,
        eval_batch_size: int = 16,
        n_items: int | None = None,
        seed: int | None = None,
        num_workers: int = 0,
        teacher_scores: str | None = None,
        allow_missing_scores: bool = False,
    ) -> None:
        super().__init__()
        for name, value in (("batch_size", batch_size), ("eval_batch_size", eval_batch_size)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        given = {"train": train, "val": val, "test": test, "predict": predict}
        self.sources: dict[str, ListSource] = {
            stage: FileSource(str(source)) if isinstance(source, (str, Path)) else source
            for stage, source in given.items()
            if source is not None
        }
        self.root = Path(root)
        self.batch_size, self.eval_batch_size = batch_size, eval_batch_size
        # where Lightning keeps the seed that it was given, for the processes of a run too
        seed = int(os.environ.get("PL_GLOBAL_SEED", 0)) if seed is None else seed
        self.item_sampler = ItemSampler(n_items, seed)
        self.seed, self.num_workers = seed, num_workers
        self.teacher_scores, self.allow_missing_scores = teacher_scores, allow_missing_scores
        self._lists: dict[str, list[RankingList]] = {}
        self._train_loader: BatchLoader | None = None
        self._resume_from: dict[str, Any] = {}

    def lists(self, stage: Stage) -> list[RankingList]:
        """The lists of a stage in memory, read at the first call.

        Evaluation lists that stream are read too, for the reports, and not kept.

        Raises:
            ValueError: if there are none, or they are training lists that stream.
        """
        if stage not in self._lists:
            streams = self._source(stage).stream(self.root) is not None
            if streams and stage == "train":
                raise ValueError(
                    "data.train streams, so its lists are not in memory; what has to see all of them, as the "
                    "mining of hard negatives does, needs a path or a FileSource"
                )
            lists = list(self._source(stage).read(self.root))
            if streams:
                return lists
            if not lists:
                raise ValueError(f"the source of data.{stage} gave no lists")
            if stage == "train" and self.teacher_scores is not None:
                from crossjem_pl.data.teacher import join_scores

                scores = self.root / self.teacher_scores
                lists = list(join_scores(lists, scores, allow_missing=self.allow_missing_scores))
            self._lists[stage] = lists
        return self._lists[stage]

    def check_files(self) -> None:
        """Raises a FileNotFoundError that names the option, for what a training reads and is not there."""
        sources = {stage: self.sources[stage] for stage in ("train", "val") if stage in self.sources}
        needed = {f"data.{stage}": source.files(self.root) for stage, source in sources.items()}
        if self.teacher_scores is not None:
            needed["data.teacher_scores"] = [self.root / self.teacher_scores]
        for option, files in needed.items():
            for file in files:
                existing(file, f"{option} (under data.root)")

    def item_texts(self) -> Iterator[str]:
        """The distinct item texts of all stages, the corpus; holds a hash of each (about 100 bytes) on the way.

        A stage that streams is read once from front to back and not held.
        """
        stages: tuple[Stage, ...] = ("train", "val", "test", "predict")
        seen: set[str] = set()
        for stage in stages:
            if stage not in self.sources:
                continue
            streams = self.sources[stage].stream(self.root) is not None
            for ranking_list in self.sources[stage].read(self.root) if streams else self.lists(stage):
                for text in ranking_list.items:
                    if (identifier := content_id(text)) not in seen:
                        seen.add(identifier)
                        yield text

    def train_dataloader(self) -> BatchLoader:
        before = self._train_loader
        self._train_loader = self._loader("train", self.batch_size, sampler=self.item_sampler, shuffle=True)
        if before is None or before.resumes:
            self._train_loader.load_state_dict(self._resume_from)
        return self._train_loader

    def state_dict(self) -> dict[str, Any]:
        """The position inside the epoch.

        Lightning keeps the loader's state too, but does not give it back to a loader that was built before the
        checkpoint was read, as it is when the schedule asks for the number of steps.
        """
        return {} if self._train_loader is None else self._train_loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._resume_from = state_dict
        if self._train_loader is not None:
            self._train_loader.load_state_dict(state_dict)

    def val_dataloader(self) -> BatchLoader | list[BatchLoader]:
        if "val" not in self.sources and self._trainer().state.fn == "fit":
            return []  # training without validation lists
        return self._loader("val", self.eval_batch_size)

    def test_dataloader(self) -> BatchLoader:
        return self._loader("test" if "test" in self.sources else "val", self.eval_batch_size)

    def predict_dataloader(self) -> BatchLoader:
        return self._loader("predict", self.eval_batch_size)

    def _loader(
        self, stage: Stage, batch_size: int, sampler: ItemSampler | None = None, shuffle: bool = False
    ) -> BatchLoader:
        trainer = self._trainer()
        ranker = trainer.lightning_module.ranker
        assert isinstance(ranker, Ranker)
        instead = (
            " (data.val: there is no data.test)" if trainer.state.fn == "test" and stage == "val" else ""
        )
        rank_zero_info(f"{stage} lists: {self._source(stage).describe(self.root)}{instead}")
        options: dict[str, Any] = {"sampler": sampler, "shuffle": shuffle, "seed": self.seed}
        options |= {"rank": trainer.global_rank, "world_size": trainer.world_size}
        options |= {"num_workers": self.num_workers, "pin_memory": torch.cuda.is_available()}
        stream = self._source(stage).stream(self.root)
        if stream is None:
            return ListLoader(self.lists(stage), ranker, batch_size, **options)
        if stage == "train" and self.teacher_scores is not None:
            raise ValueError(
                "data.train streams, and data.teacher_scores is joined in memory: write the scores into the shards "
                f"with: crossjem convert {stream.path} FOLDER --teacher-scores "
                f"{self.root / self.teacher_scores} --shard-size 10000, and set data.train to FOLDER"
            )
        from crossjem_pl.data.streaming import StreamingLoader

        return StreamingLoader(stream, ranker, batch_size, **options)

    def _source(self, stage: Stage) -> ListSource:
        if stage not in self.sources:
            raise ValueError(f"no lists for this stage: set data.{stage} to a file or a source")
        return self.sources[stage]

    def _trainer(self) -> Trainer:
        if self.trainer is None:
            raise RuntimeError("the data module is not attached to a trainer")
        return self.trainer
