"""monoT5: a T5 that says "true" or "false" to a query and an item."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from crossjem_pl.rankers.base import init_arguments, register
from crossjem_pl.rankers.encoders import EncoderOptions
from crossjem_pl.rankers.pairwise.rankt5 import T5Ranker

__all__ = ["MonoT5"]


@register
class MonoT5(T5Ranker):
    """monoT5 (Nogueira et al., Findings of EMNLP 2020, arXiv 2003.06713).

    The prompt is `Query: {q} Document: {item} Relevant:` and the end token; with the logits z at the first
    decoding step, f = log( exp(z_true) / (exp(z_true) + exp(z_false)) ), the log-probability of "true".

    Query and item are turned into tokens each by itself, which for T5's tokenizer is the same as tokenising
    the whole prompt.

    Args:
        encoder: hub id or folder of a T5, mT5 or umT5.
        true_token, false_token: the two answers, as tokens of the vocabulary (some checkpoints say yes and
            no).
        max_query_tokens: limit of a query.
        max_item_tokens: limit of an item.
        pairs_per_pass: prompts that go through the model together; they are sorted by length first.
        options: how the model is loaded, see `EncoderOptions`; `layers` keeps that many layers of the encoder
            and as many of the decoder, evenly spaced.

    Raises:
        ValueError: on a model of another family, or an answer that is not a token of it.
    """

    name = "monot5"
    score_kind = "log_probability"

    def __init__(
        self,
        encoder: str,
        true_token: str = "▁true",
        false_token: str = "▁false",
        max_query_tokens: int = 64,
        max_item_tokens: int = 32,
        pairs_per_pass: int = 32,
        **options: Unpack[EncoderOptions],
    ) -> None:
        super().__init__(
            init_arguments(locals(), options),
            encoder,
            prompt=("Query:", "Document:", "Relevant:"),
            labels=[true_token, false_token],
            decoder=True,
            max_query_tokens=max_query_tokens,
            max_item_tokens=max_item_tokens,
            pairs_per_pass=pairs_per_pass,
            options=options,
        )

    def score_run(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return torch.log_softmax(self.logits(input_ids, attention_mask), dim=-1)[:, 0]
