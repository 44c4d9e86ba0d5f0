"""RankT5: a T5 that gives one number per (query, item) and is trained with ranking losses."""

from __future__ import annotations

from typing import Literal, Unpack, get_args

import torch
from torch import Tensor, nn

from crossjem_pl.rankers.base import init_arguments, register
from crossjem_pl.rankers.encoders import EncoderOptions
from crossjem_pl.rankers.pairwise.prompts import PromptBatch, in_place
from crossjem_pl.rankers.pairwise.t5 import T5Ranker
from crossjem_pl.rankers.precision import linear_float32

__all__ = ["RankT5", "RankT5Variant"]

RankT5Variant = Literal["encoder-decoder", "encoder"]


@register
class RankT5(T5Ranker):
    """RankT5 (Zhuang et al., SIGIR 2023, arXiv 2210.10634).

    The prompt is `Query: {q} Document: {item}` and the end token. Variants:
    - "encoder-decoder": f = logit of one unused token (`<extra_id_10>`) at the first decoding step;
    - "encoder": f = <w, mean of the encoder's states> + b, no decoder.

    Query and item are turned into tokens each by itself, which for T5's tokenizer is the same as tokenising
    the whole prompt.

    The 6-layer baseline of CROSS-JEM's paper has 74M parameters, encoder and decoder together: `layers=3` of
    T5-base (768 wide: 24.7M embeddings, 3 x 7.1M encoder and 3 x 9.4M decoder layers) gives that number.
    Layers are kept evenly spaced, the first and the last among them.

    Args:
        encoder: hub id or folder of a T5, mT5 or umT5.
        variant: see above.
        label_token: the token whose logit is the score.
        max_query_tokens: limit of a query.
        max_item_tokens: limit of an item.
        pairs_per_pass: prompts that go through the model together; they are sorted by length first.
        options: how the model is loaded, see `EncoderOptions`; `layers` counts per stack, see above.

    Raises:
        ValueError: on an unknown variant, a model of another family, or a label that is not a token of it.
    """

    name = "rankt5"

    def __init__(
        self,
        encoder: str,
        variant: RankT5Variant = "encoder-decoder",
        label_token: str = "<extra_id_10>",
        max_query_tokens: int = 64,
        max_item_tokens: int = 32,
        pairs_per_pass: int = 32,
        **options: Unpack[EncoderOptions],
    ) -> None:
        init_args = init_arguments(locals(), options)
        if variant not in get_args(RankT5Variant):
            raise ValueError(f"variant must be one of {', '.join(get_args(RankT5Variant))}; got {variant!r}")
        super().__init__(
            init_args,
            encoder,
            prompt=("Query:", "Document:", ""),
            labels=[label_token],
            decoder=variant == "encoder-decoder",
            max_query_tokens=max_query_tokens,
            max_item_tokens=max_item_tokens,
            pairs_per_pass=pairs_per_pass,
            options=options,
        )
        self.classifier = nn.Linear(self.encoder_config.d_model, 1) if self.decoder is None else None

    def forward(self, batch: PromptBatch) -> Tensor:
        return in_place(torch.cat([self._score(group) for group in batch.groups]), batch)

    def _score(self, group: dict[str, Tensor]) -> Tensor:
        if self.classifier is None:
            return self.logits(group)[:, 0]
        inside = group["attention_mask"][:, :, None].float()
        mean = (self.states(group).float() * inside).sum(1) / inside.sum(1)
        return linear_float32(self.classifier, mean)[:, 0]
