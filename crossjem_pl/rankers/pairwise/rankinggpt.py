"""RankingGPT: a causal language model ranks items by how likely they make the query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from crossjem_pl.rankers.base import init_arguments, register
from crossjem_pl.rankers.encoders import load_config, load_encoder, resolve
from crossjem_pl.rankers.neural import Side, check_positions
from crossjem_pl.rankers.pairwise.pairs import PairOptions, PairRanker
from crossjem_pl.text import Encoded, Ragged
from crossjem_pl.text.ragged import Ints, side_by_side

__all__ = ["RankingGPT"]

_IGNORED = -100


@register
class RankingGPT(PairRanker):
    """RankingGPT (Zhang et al., 2023, arXiv 2311.16720), query likelihood under any causal language model.

    f_j = 1/L_q * sum over i of log p(q_i | "Document: {item_j} Query:", q_1 .. q_(i-1)).

    As in the authors' published usage, the prompt has no special tokens and the query is turned into tokens
    by itself, without a space before it; so is the item, with its space. Items are scored each by itself.

    Args:
        encoder: hub id or folder of a causal language model (GPT-2, Llama, Qwen, BLOOM ...).
        lora_rank: rank of LoRA matrices (Hu et al., arXiv 2106.09685) on all linear layers but the output
            layer; the model itself is then frozen. 0 trains the whole model.
        lora_alpha: LoRA's update is scaled by lora_alpha / lora_rank.
        lora_dropout: dropout before the LoRA matrices.
        options: see `PairOptions`.

    Raises:
        ImportError: if `lora_rank` is not 0 and the extra `peft` is missing.
        ValueError: on a model that is not causal, limits below 1 or beyond its positions, or a negative rank.
    """

    name = "rankinggpt"
    score_kind = "log_probability"
    cls_and_sep = False
    limits: ClassVar[dict[str, int]] = {**PairRanker.limits, "pairs_per_pass": 16}

    def __init__(
        self,
        encoder: str,
        lora_rank: int = 0,
        lora_alpha: int = 32,
        lora_dropout: float = 0.0,
        **options: Unpack[PairOptions],
    ) -> None:
        init_args = init_arguments(locals(), options)
        super().__init__(init_args, encoder, options)
        if lora_rank < 0:
            raise ValueError(f"lora_rank must be at least 0, got {lora_rank}")
        tokenizer = self.tokenizer.hf
        # tokenizers of the SentencePiece kind put the space before a text themselves
        self._space = "" if tokenizer.tokenize("a")[0].startswith("▁") else " "
        self._before_item = tokenizer.encode("Document:", add_special_tokens=False)
        self._before_query = tokenizer.encode(f"{self._space}Query:", add_special_tokens=False)
        config = load_config(resolve(encoder))
        # transformers gives encoders a language model head too, but each of their tokens would see the query
        if config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(
            config, "is_decoder", False
        ):
            raise ValueError(
                f"{encoder!r} is of the family {config.model_type!r}, which is no causal language model"
            )
        self.model = load_encoder(encoder, options, AutoModelForCausalLM)
        query, item = self.max_query_tokens, self.max_item_tokens
        needed = query + item + len(self._before_item) + len(self._before_query)
        limits = f"max_query_tokens={query} + max_item_tokens={item} and the prompt"
        check_positions(self.encoder_config, needed, limits)
        if lora_rank:
            _add_lora(self.model, lora_rank, lora_alpha, lora_dropout)

    def encoders(self) -> list[nn.Module]:
        return [self.model]

    def shards(self) -> list[nn.Module]:
        names: Any = self.model._no_split_modules
        return [module for module in self.model.modules() if type(module).__name__ in names]

    def tokenize(self, texts: Sequence[str], side: Side) -> Encoded:
        if side == "query":
            return super().tokenize(texts, side)
        encoded = super().tokenize([self._space + text for text in texts], side)
        space = self.tokenizer.hf.encode(self._space, add_special_tokens=False)
        if len(space) == 1 and (encoded.tokens.values[encoded.tokens.starts] == space[0]).any():
            super().tokenize(texts, side)  # names an item that is nothing but its space
        return encoded

    def pair_rows(self, queries: Ragged, items: Ragged) -> Ragged:
        return side_by_side(self._before_item, items, self._before_query, queries)

    def more_inputs(self, rows: Ragged, queries: Ragged) -> dict[str, Ints]:
        """`predicting` int64 [places], from where query tokens are predicted, and the token after each of them, int64
        [pairs, places]; -100 where that is not the query's."""
        first = rows.lengths - queries.lengths
        predicting = np.arange(first.min() - 1, rows.lengths.max() - 1)
        after = rows.padded(0)[:, predicting + 1]
        of_query = (predicting >= first[:, None] - 1) & (predicting < rows.lengths[:, None] - 1)
        return {"predicting": predicting, "predicted": np.where(of_query, after, _IGNORED)}

    def score_run(
        self, input_ids: Tensor, attention_mask: Tensor, predicting: Tensor, predicted: Tensor
    ) -> Tensor:
        """Mean log-likelihood of each pair's query, float32 [pairs]; see `more_inputs`."""
        output = self.model(
            input_ids=input_ids, attention_mask=attention_mask, use_cache=False, logits_to_keep=predicting
        )
        with torch.autocast(input_ids.device.type, enabled=False):
            logits = output.logits.float().transpose(1, 2)
            losses = F.cross_entropy(logits, predicted, ignore_index=_IGNORED, reduction="none")
            return -losses.sum(1) / (predicted != _IGNORED).sum(1)

    @property
    def run_axes(self) -> dict[str, tuple[str, ...]]:
        return {**super().run_axes, "predicting": ("places",), "predicted": ("pairs", "places")}


def _add_lora(model: nn.Module, rank: int, alpha: int, dropout: float) -> None:
    """Puts LoRA matrices into `model` and freezes the rest of it."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise ImportError("lora_rank needs the extra: pip install 'crossjem_pl[peft]'") from error
    config = LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    inject_adapter_in_model(config, model)
