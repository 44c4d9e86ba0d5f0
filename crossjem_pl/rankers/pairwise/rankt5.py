"""RankT5, a T5 that gives one number per (query, item) and is trained with ranking losses; and what monoT5 shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Unpack, get_args

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSeq2SeqLM, PretrainedConfig

from crossjem_pl.rankers.base import init_arguments, register
from crossjem_pl.rankers.encoders import EncoderOptions, load_encoder, resolve
from crossjem_pl.rankers.pairwise.pairs import PairRanker, joined
from crossjem_pl.rankers.precision import linear_float32
from crossjem_pl.text import Ragged

__all__ = ["RankT5", "RankT5Variant", "T5Ranker", "evenly_spaced"]

RankT5Variant = Literal["encoder-decoder", "encoder"]

_FAMILIES = ("t5", "mt5", "umt5")


class T5Ranker(PairRanker):
    """A T5 whose scores come from the logits of a few tokens, and the prompts that it reads.

    The output layer is cut to the rows of those tokens (times the checkpoint's own factor, width^-0.5 for the
    first T5 and 1 for T5 1.1), so no vocabulary of logits is computed. The rows are parameters of their own:
    in training they leave the token embeddings, to which a checkpoint may tie them.

    Args:
        init_args: the subclass's init arguments (see `Ranker`).
        encoder: hub id or folder of a T5, mT5 or umT5.
        prompt: the words before the query, before the item and after the item.
        labels: the tokens whose logits `logits` gives; empty with `decoder=False`.
        decoder: whether the decoder is kept.
        max_query_tokens: limit of a query.
        max_item_tokens: limit of an item.
        pairs_per_pass: prompts that go through the model together; they are sorted by length first.
        options: how the model is loaded; `layers` keeps that many layers of the encoder and as many of the
            decoder, evenly spaced (`evenly_spaced`).

    Raises:
        ValueError: on a model of another family, a label that is not one token, or limits below 1.
    """

    cls_and_sep = False

    def __init__(
        self,
        init_args: dict[str, Any],
        encoder: str,
        prompt: tuple[str, str, str],
        labels: Sequence[str],
        decoder: bool,
        max_query_tokens: int,
        max_item_tokens: int,
        pairs_per_pass: int,
        options: EncoderOptions,
    ) -> None:
        super().__init__(init_args, encoder, max_query_tokens, max_item_tokens, pairs_per_pass)
        tokenizer = self.tokenizer.hf
        self._prompt = [tokenizer.encode(words, add_special_tokens=False) for words in prompt]
        if tokenizer.eos_token_id is not None:
            self._prompt[2] = [*self._prompt[2], tokenizer.eos_token_id]
        model = _load(encoder, options)
        self._config: PretrainedConfig = model.config
        _keep_layers(model, encoder, options.get("layers"))
        self.encoder: nn.Module = model.encoder
        self.decoder: nn.Module | None = None
        self.labels: nn.Linear | None = None
        if decoder:
            self.decoder = model.decoder
            # the one embedding that the decoder needs is the encoder's, and the table would be saved twice
            model.decoder.register_module("embed_tokens", None)
            rows = model.lm_head.weight[[self._label_id(label, encoder) for label in labels]]
            self.labels = nn.Linear(rows.shape[1], len(labels), bias=False)
            with torch.no_grad():
                self.labels.weight.copy_(rows * _output_factor(model.config))

    @property
    def encoder_config(self) -> PretrainedConfig:
        return self._config

    def encoders(self) -> list[nn.Module]:
        return [self.encoder] if self.decoder is None else [self.encoder, self.decoder]

    def pair_rows(self, queries: Ragged, items: Ragged) -> Ragged:
        before_query, before_item, end = self._prompt
        return joined(before_query, queries, before_item, items, end)

    def states(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The encoder's states, [pairs, tokens, width]."""
        return self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    def logits(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The labels' logits at the first decoding step, float32 [pairs, labels]."""
        assert self.decoder is not None
        assert self.labels is not None
        first = torch.full_like(input_ids[:, :1], self._config.decoder_start_token_id or 0)
        decoded = self.decoder(
            inputs_embeds=self.encoder.embed_tokens(first),  # type: ignore[operator]
            encoder_hidden_states=self.states(input_ids, attention_mask),
            encoder_attention_mask=attention_mask,
            use_cache=False,
        ).last_hidden_state[:, 0]
        return linear_float32(self.labels, decoded)

    def _label_id(self, label: str, encoder: str) -> int:
        token = self.tokenizer.hf.convert_tokens_to_ids(label)
        if not isinstance(token, int) or token == self.tokenizer.hf.unk_token_id:
            raise ValueError(f"{label!r} is not a token of {encoder!r}; name one that is")
        return token


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

    def score_run(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        if self.classifier is None:
            return self.logits(input_ids, attention_mask)[:, 0]
        inside = attention_mask[:, :, None].float()
        mean = (self.states(input_ids, attention_mask).float() * inside).sum(1) / inside.sum(1)
        return linear_float32(self.classifier, mean)[:, 0]


def evenly_spaced(available: int, kept: int) -> list[int]:
    """Which of `available` layers stay if `kept` do: the first, the last and those evenly between them.

    Raises:
        ValueError: if `kept` is not between 1 and `available`.
    """
    if not 1 <= kept <= available:
        raise ValueError(f"layers={kept}, but there are {available}")
    return [round(i * (available - 1) / max(kept - 1, 1)) for i in range(kept)]


def _load(name: str, options: EncoderOptions) -> Any:
    whole: EncoderOptions = {**options, "layers": None}  # layers are chosen after loading
    dropout = options.get("dropout")
    # T5's attention reads its dropout from the configuration, not from a module
    overrides = {} if dropout is None else {"dropout_rate": dropout}
    family = AutoConfig.from_pretrained(resolve(name)).model_type
    if family not in _FAMILIES:
        raise ValueError(f"{name!r} is of the family {family!r}; this ranker takes {', '.join(_FAMILIES)}")
    return load_encoder(name, whole, AutoModelForSeq2SeqLM, **overrides)


def _keep_layers(model: Any, name: str, layers: int | None) -> None:
    if layers is None:
        return
    for stack in (model.encoder, model.decoder):
        try:
            kept = evenly_spaced(len(stack.block), layers)
        except ValueError as error:
            raise ValueError(f"{name!r}: {error}") from None
        stack.block = nn.ModuleList(stack.block[i] for i in kept)
    model.config.num_layers = model.config.num_decoder_layers = layers


def _output_factor(config: Any) -> float:
    """What the checkpoint multiplies decoder states with before its output layer."""
    scaled = getattr(config, "scale_decoder_outputs", config.model_type == "umt5")
    return config.d_model**-0.5 if scaled else 1.0
