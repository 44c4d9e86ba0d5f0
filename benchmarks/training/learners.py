"""What learns in the measurement: a model, its loss, and one step of the same loop for all."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.measuring.build import build_ranker
from benchmarks.measuring.clock import synchronise
from crossjem_pl.lists import RankingList
from crossjem_pl.losses import RankingProbabilityLoss
from crossjem_pl.rankers.encoders import resolve

__all__ = ["SENTENCE_TRANSFORMERS", "Learner", "OwnLearner", "SentenceTransformersLearner", "learner_of"]

SENTENCE_TRANSFORMERS = "sentence-transformers"


class Learner(ABC):
    """A model in training mode with AdamW over all its weights, rate 1e-5.

    Args:
        module: what is trained.
        device: where it is.
        precision: float32, or what autocast multiplies in; float16 scales its gradients on a GPU.
    """

    def __init__(self, module: nn.Module, device: torch.device, precision: str) -> None:
        self.module, self.device, self.precision = module.train().to(device), device, precision
        weights = [weight for weight in module.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(weights, lr=1e-5)
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "float16")
        self.tokenising = 0.0
        """Seconds of the last step that went into making tensors of the texts."""

    @abstractmethod
    def loss(self, lists: Sequence[RankingList]) -> Tensor:
        """The loss of the lists, texts in; sets `tokenising`."""

    def step(self, lists: Sequence[RankingList]) -> tuple[float, float]:
        """One optimiser step: forward, loss, backward, AdamW.

        Returns:
            Seconds of the whole, and those of them that went into making tensors of the texts.
        """
        synchronise(self.device)
        start = time.perf_counter()
        lower = self.precision != "float32"
        dtype = getattr(torch, self.precision) if lower else None
        with torch.autocast(self.device.type, dtype=dtype, enabled=lower):
            loss = self.loss(lists)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        synchronise(self.device)
        return time.perf_counter() - start, self.tokenising


class OwnLearner(Learner):
    """One of this package's rankers with the ranking probability loss on the teacher's scores."""

    def __init__(
        self, name: str, encoder: str, device: torch.device, precision: str, changes: Mapping[str, Any]
    ) -> None:
        ranker = build_ranker(name, encoder, changes)
        super().__init__(ranker, device, precision)
        self.ranker = ranker
        self.criterion = RankingProbabilityLoss()
        self._forward: nn.Module = ranker

    def distribute(self) -> None:
        """Averages gradients over the processes of the default group from now on."""
        self._forward = DistributedDataParallel(self.ranker)

    def loss(self, lists: Sequence[RankingList]) -> Tensor:
        start = time.perf_counter()
        batch = self.ranker.collate(lists)
        targets = torch.zeros(batch.item_mask.shape)
        targets[batch.item_mask] = torch.tensor([score for one in lists for score in one.scores or ()])
        self.tokenising = time.perf_counter() - start
        batch = batch.to(self.device)
        return self.criterion(self._forward(batch), targets.to(self.device), batch.item_mask)


class SentenceTransformersLearner(Learner):
    """sentence-transformers' CrossEncoder with its ListNetLoss, in the same loop as the others.

    Its model and its loss, not its CrossEncoderTrainer, whose data collation, logging and callbacks would be measured
    too. Its losses tokenise the texts themselves, at every step. The pairs go through 32 at a time like monoBERT's;
    the loss's own default is as many as there are lists, which is slower.
    """

    def __init__(self, encoder: str, device: torch.device, precision: str, pairs_per_pass: int = 32) -> None:
        from sentence_transformers import CrossEncoder
        from sentence_transformers.cross_encoder.losses import ListNetLoss

        model = CrossEncoder(resolve(encoder), num_labels=1, device=device.type)
        super().__init__(model, device, precision)
        self.criterion = ListNetLoss(model, mini_batch_size=pairs_per_pass)
        preprocess = model.preprocess

        def timed(*args: Any, **keywords: Any) -> Any:
            start = time.perf_counter()
            out = preprocess(*args, **keywords)
            self.tokenising += time.perf_counter() - start
            return out

        model.preprocess = timed

    def loss(self, lists: Sequence[RankingList]) -> Tensor:
        self.tokenising = 0.0
        labels = [torch.tensor(one.scores or ()) for one in lists]
        return self.criterion([[one.query for one in lists], [list(one.items) for one in lists]], labels)


def learner_of(
    name: str, encoder: str, device: torch.device, precision: str, changes: Mapping[str, Any]
) -> Learner:
    """The learner of an overlay in `experiments/rankers/`, or of sentence-transformers."""
    if name == SENTENCE_TRANSFORMERS:
        return SentenceTransformersLearner(encoder, device, precision)
    return OwnLearner(name, encoder, device, precision, changes)
