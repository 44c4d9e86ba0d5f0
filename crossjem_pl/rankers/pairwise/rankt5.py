"""RankT5, a T5 that gives one number per (query, item) and is trained with ranking losses; and what monoT5 shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Unpack, get_args

import torch
from torch import Tensor, nn
from transformers import AutoModelForSeq2SeqLM, PretrainedConfig

from crossjem_pl.lists import shown
from crossjem_pl.rankers.base import check_choice, init_arguments, register
from crossjem_pl.rankers.encoders import T5_FAMILIES, load_config, load_encoder, resolve
from crossjem_pl.rankers.neural import linear_float32
from crossjem_pl.rankers.pairwise.pairs import PairOptions, PairRanker
from crossjem_pl.text import Ragged
from crossjem_pl.text.ragged import side_by_side

__all__ = ["RankT5", "RankT5Variant", "T5Ranker"]

RankT5Variant = Literal["encoder-decoder", "encoder"]


class T5Ranker(PairRanker):
    """A T5 whose scores come from the logits of a few tokens, and the prompts that it reads.

    The output layer is cut to the rows of those tokens (times the checkpoint's own factor, width^-0.5 for the
    first T5 and 1 for T5 1.1), so no vocabulary of logits is computed. The rows are parameters of their own:
    in training they leave the token embeddings, to which a checkpoint may tie them. Query and item are turned into
    tokens each by itself, which for T5's tokenizer is the same as tokenising the whole prompt.

    `labels` are the tokens whose logits `logits` gives; without any the decoder is left out. `layers` keeps that many
    layers of the encoder and as many of the decoder, evenly spaced, the first and the last among them.

    Raises:
        ValueError: on a model of another family, a label that is not one token, or a wrong number of layers.
    """

    cls_and_sep = False
    prompt: ClassVar[tuple[str, str, str]] = ("Query:", "Document:", "")
    """The words before the query, before the item and after the item."""

    def __init__(
        self, init_args: dict[str, Any], encoder: str, labels: Sequence[str], options: PairOptions
    ) -> None:
        super().__init__(init_args, encoder, options)
        tokenizer = self.tokenizer.hf
        self._prompt = [tokenizer.encode(words, add_special_tokens=False) for words in self.prompt]
        if tokenizer.eos_token_id is not None:
            self._prompt[2] = [*self._prompt[2], tokenizer.eos_token_id]
        family = load_config(resolve(encoder)).model_type
        layers: Any = options.pop("layers", None)
        if family not in T5_FAMILIES:
            raise ValueError(
                f"{encoder!r} is of the family {family!r}; this ranker takes {', '.join(T5_FAMILIES)}"
            )
        model: Any = load_encoder(encoder, options, AutoModelForSeq2SeqLM)
        for stack in (model.encoder, model.decoder) if layers is not None else ():
            have = len(stack.block)
            if not 1 <= layers <= have:
                raise ValueError(f"{encoder!r}: layers={layers}, but there are {have}")
            kept = [round(i * (have - 1) / max(layers - 1, 1)) for i in range(layers)]
            stack.block = nn.ModuleList(stack.block[i] for i in kept)
            model.config.num_layers = model.config.num_decoder_layers = layers
        self._config: PretrainedConfig = model.config
        start = model.config.decoder_start_token_id
        self._start = 0 if start is None else start
        if type(self._start) is not int or not 0 <= self._start < model.config.vocab_size:
            raise ValueError(
                f"{encoder}: config.json, field 'decoder_start_token_id': {shown(start)} is no token's id"
            )
        self.encoder = model.encoder
        self.decoder: nn.Module | None = None
        if labels:
            self.decoder = model.decoder
            # the one embedding that the decoder needs is the encoder's, and the table would be saved twice
            model.decoder.register_module("embed_tokens", None)
            ids = [tokenizer.convert_tokens_to_ids(label) for label in labels]
            for label, token in zip(labels, ids, strict=True):
                if not isinstance(token, int) or token == tokenizer.unk_token_id:
                    raise ValueError(f"{label!r} is not a token of {encoder!r}; name one that is")
            rows = model.lm_head.weight[ids]
            scaled = getattr(model.config, "scale_decoder_outputs", family == "umt5")
            self.labels = nn.Linear(rows.shape[1], len(labels), bias=False)
            with torch.no_grad():
                self.labels.weight.copy_(rows * (model.config.d_model**-0.5 if scaled else 1.0))

    @property
    def encoder_config(self) -> PretrainedConfig:
        return self._config

    def encoders(self) -> list[nn.Module]:
        return [self.encoder] if self.decoder is None else [self.encoder, self.decoder]

    def pair_rows(self, queries: Ragged, items: Ragged) -> Ragged:
        before_query, before_item, end = self._prompt
        return side_by_side(before_query, queries, before_item, items, end)

    def states(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The encoder's states, [pairs, tokens, width]."""
        return self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    def logits(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The labels' logits at the first decoding step, float32 [pairs, labels]."""
        assert self.decoder is not None
        first = torch.full_like(input_ids[:, :1], self._start)
        decoded = self.decoder(
            inputs_embeds=self.encoder.embed_tokens(first),
            encoder_hidden_states=self.states(input_ids, attention_mask),
            encoder_attention_mask=attention_mask,
            use_cache=False,
        ).last_hidden_state[:, 0]
        return linear_float32(self.labels, decoded)


@register
class RankT5(T5Ranker):
    """RankT5 (Zhuang et al., SIGIR 2023, arXiv 2210.10634).

    The prompt is `Query: {q} Document: {item}` and the end token. Variants:
    - "encoder-decoder": f = logit of one unused token (`<extra_id_10>`) at the first decoding step;
    - "encoder": f = <w, mean of the encoder's states> + b, no decoder.

    The 6-layer baseline of CROSS-JEM's paper has 74M parameters, encoder and decoder together: `layers=3` of
    T5-base (768 wide: 24.7M embeddings, 3 x 7.1M encoder and 3 x 9.4M decoder layers) gives that number.

    Args:
        encoder: hub id or folder of a T5, mT5 or umT5.
        variant: see above.
        label_token: the token whose logit is the score.
        options: see `PairOptions` and `T5Ranker`.

    Raises:
        ValueError: on an unknown variant, and as `T5Ranker` does.
    """

    name = "rankt5"

    def __init__(
        self,
        encoder: str,
        variant: RankT5Variant = "encoder-decoder",
        label_token: str = "<extra_id_10>",
        **options: Unpack[PairOptions],
    ) -> None:
        init_args = init_arguments(locals(), options)
        check_choice("variant", variant, get_args(RankT5Variant))
        super().__init__(init_args, encoder, [] if variant == "encoder" else [label_token], options)
        self.classifier = nn.Linear(self.encoder_config.d_model, 1) if self.decoder is None else None

    def score_run(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        if self.classifier is None:
            return self.logits(input_ids, attention_mask)[:, 0]
        inside = attention_mask[:, :, None].float()
        mean = (self.states(input_ids, attention_mask).float() * inside).sum(1) / inside.sum(1)
        return linear_float32(self.classifier, mean)[:, 0]
