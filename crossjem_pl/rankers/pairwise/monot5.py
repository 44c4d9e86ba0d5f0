"""monoT5: a T5 that says "true" or "false" to a query and an item."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from crossjem_pl.rankers.base import init_arguments, register
from crossjem_pl.rankers.pairwise.pairs import PairOptions
from crossjem_pl.rankers.pairwise.rankt5 import T5Ranker

__all__ = ["MonoT5"]


@register
class MonoT5(T5Ranker):
    """monoT5 (Nogueira et al., Findings of EMNLP 2020, arXiv 2003.06713).

    The prompt is `Query: {q} Document: {item} Relevant:` and the end token; with the logits z at the first
    decoding step, f = log( exp(z_true) / (exp(z_true) + exp(z_false)) ), the log-probability of "true".

    Args:
        encoder: hub id or folder of a T5, mT5 or umT5.
        true_token, false_token: the two answers, as tokens of the vocabulary (some checkpoints say yes and
            no).
        options: see `PairOptions` and `T5Ranker`.
    """

    name = "monot5"
    score_kind = "log_probability"
    prompt = ("Query:", "Document:", "Relevant:")

    def __init__(
        self,
        encoder: str,
        true_token: str = "▁true",
        false_token: str = "▁false",
        **options: Unpack[PairOptions],
    ) -> None:
        super().__init__(init_arguments(locals(), options), encoder, [true_token, false_token], options)

    def score_run(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return torch.log_softmax(self.logits(input_ids, attention_mask), dim=-1)[:, 0]
