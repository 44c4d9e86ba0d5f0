"""BERT as the encoder of a ranker: the layers, weights' names and numbers of transformers' `BertModel`, no more.

Importing transformers takes longer than ranking a list: what is left out here no ranker uses, or it is imported when
somebody asks for that.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

__all__ = ["HIDDEN", "Bert", "BertConfig", "JsonTokenizer", "attend"]

HIDDEN = -3e4
"""What is added to the logit of a token that may not be seen; float16 has it too."""

_SHORT = 64
"""Up to so many keys, attention in training on a CPU is an explicit product."""


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, *, scaling: float | None, dropout: float
) -> Tensor:
    """Attention inside padded rows, [rows, length, heads, head width].

    Args:
        query: [rows, length, heads, head width].
        key, value: [rows, keys, heads, head width].
        mask: what is added to the logits of each row, or of each place in it, float [rows, keys] or [rows, length,
            keys].
        scaling: factor of the dot products; None for one over the root of the head width.
        dropout: probability of dropping an attention weight.
    """
    q, k, v = (states.transpose(1, 2) for states in (query, key, value))
    seen = mask[:, None, None, :] if mask.ndim == 2 else mask[:, None]
    if q.device.type == "cpu" and torch.is_grad_enabled() and k.shape[2] <= _SHORT:
        # the fused CPU kernel's backward pass takes longer than this there
        logits = (q @ k.transpose(-1, -2)) * (q.shape[-1] ** -0.5 if scaling is None else scaling)
        out = F.dropout(torch.softmax(logits + seen, dim=-1).to(v.dtype), dropout) @ v
    else:
        out = F.scaled_dot_product_attention(
            q, k, v, attn_mask=seen.to(q.dtype), dropout_p=dropout, scale=scaling
        )
    return out.transpose(1, 2)


class BertConfig:
    """A BERT's configuration with the fields and defaults of transformers' class.

    Args:
        content: what a `config.json` holds.
    """

    DEFAULTS: ClassVar[dict[str, Any]] = {
        **{"model_type": "bert", "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12},
        **{"num_attention_heads": 12, "intermediate_size": 3072, "hidden_act": "gelu", "type_vocab_size": 2},
        **{"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 512},
        **{"initializer_range": 0.02, "layer_norm_eps": 1e-12, "pad_token_id": 0, "is_decoder": False},
        **{"add_cross_attention": False, "chunk_size_feed_forward": 0},
    }

    def __init__(self, content: dict[str, Any]) -> None:
        self.__dict__.update(self.DEFAULTS | content)

    @property
    def whole(self) -> PretrainedConfig:
        """The same as transformers has it."""
        from transformers import BertConfig as Whole

        return Whole.from_dict(dict(vars(self)))

    def to_dict(self) -> dict[str, Any]:
        """All fields."""
        return self.whole.to_dict()


class JsonTokenizer:
    """A folder's tokenizer: what ranking asks it, and by way of `whole` all that transformers' class has.

    Args:
        folder: with a `tokenizer.json` that agrees with the rest, as transformers writes it.
        config: what its `tokenizer_config.json` holds.
        split_special_tokens: whether a special token that a text spells out is text.
    """

    CLASSES = ("BertTokenizer", "BertTokenizerFast", "TokenizersBackend", "PreTrainedTokenizerFast")
    """Those of transformers that do no more than their `tokenizer.json` says."""
    TOKENS = ("unk", "sep", "pad", "cls", "mask", "bos", "eos")
    is_fast = True

    def __init__(self, folder: Path, config: dict[str, Any], split_special_tokens: bool) -> None:
        names = ("tokenizer.json", "tokenizer_config.json")
        self._files = {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}
        self.backend_tokenizer = Tokenizer.from_buffer(self._files[names[0]])
        self.name_or_path, self.split_special_tokens = str(folder), split_special_tokens
        self.all_special_ids: list[int] = []
        for name in self.TOKENS:
            token = config.get(f"{name}_token")
            number = None if token is None else self.backend_tokenizer.token_to_id(token)
            setattr(self, f"{name}_token_id", number)
            self.all_special_ids += [] if number is None else [number]

    def get_vocab(self) -> dict[str, int]:
        """The id of every token."""
        return self.backend_tokenizer.get_vocab(with_added_tokens=True)

    @cached_property
    def whole(self) -> PreTrainedTokenizerBase:
        """The same as transformers has it."""
        from transformers import AutoTokenizer

        with TemporaryDirectory() as folder:
            for name, content in self._files.items():
                (Path(folder) / name).write_bytes(content)
            out = AutoTokenizer.from_pretrained(folder, use_fast=True, trust_remote_code=False)
        out.name_or_path = self.name_or_path
        out.split_special_tokens = out.init_kwargs["split_special_tokens"] = self.split_special_tokens
        return out

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.whole, name)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """As transformers' class."""
        return self.whole(*args, **keywords)


class Encoding(NamedTuple):
    """What an encoder makes of texts: `last_hidden_state`, [rows, tokens, width]."""

    last_hidden_state: Tensor


class Bert(nn.Module):
    """BERT without a pooler; its embeddings are not initialised, see `init_weights`.

    Args:
        config: this module's or transformers' `BertConfig`, for which `fits` is true.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.embeddings = _Embeddings(self.config)
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList(_Layer(self.config) for _ in range(config.num_hidden_layers))

    def init_weights(self) -> Bert:
        """Draws random weights as transformers does, and returns the module."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=self.config.initializer_range)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        return self

    @staticmethod
    def fits(config: Any) -> bool:
        """Whether a configuration describes an encoder such as this one."""
        return (
            config.model_type == "bert"
            and config.hidden_act == "gelu"
            and not (config.is_decoder or config.add_cross_attention)
            and config.hidden_size % config.num_attention_heads == 0
        )

    def get_input_embeddings(self) -> nn.Embedding:
        """The word embeddings."""
        return self.embeddings.word_embeddings

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Encoding:
        """The last hidden states.

        Args:
            input_ids: int64 [rows, tokens].
            attention_mask: int64 [rows, tokens], 0 where there is padding, or float32 [rows, 1, tokens, tokens], what
                is added to the logits; None for no padding.
            token_type_ids, position_ids: int64 [rows, tokens]; None for the first segment, and for 0, 1, 2...
        """
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        if attention_mask.ndim == 2:
            attention_mask = ((attention_mask - 1.0) * -HIDDEN)[:, None, None]
        states = self.embeddings(input_ids, token_type_ids, position_ids)
        for layer in self.encoder.layer:  # type: ignore[union-attr]
            states = layer(states, attention_mask)
        return Encoding(states)


class _Embeddings(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        width = config.hidden_size

        def table(rows: int, padding: int | None = None) -> nn.Embedding:
            return nn.Embedding.from_pretrained(torch.empty(rows, width), freeze=False, padding_idx=padding)

        self.word_embeddings = table(config.vocab_size, config.pad_token_id)
        self.position_embeddings = table(config.max_position_embeddings)
        self.token_type_embeddings = table(config.type_vocab_size)
        self.LayerNorm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        segments = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        words = self.word_embeddings(input_ids) + self.token_type_embeddings(segments)
        return self.dropout(self.LayerNorm(words + self.position_embeddings(position_ids)))


class _Layer(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.attention = nn.Module()
        self.attention.self = _SelfAttention(config)
        self.attention.output = _Residual(config.hidden_size, config)
        self.intermediate = _Intermediate(config)
        self.output = _Residual(config.intermediate_size, config)

    def forward(self, states: Tensor, attention_mask: Tensor) -> Tensor:
        between = self.attention.output(self.attention.self(states, attention_mask), states)  # type: ignore[operator]
        return self.output(self.intermediate(between), between)


class _SelfAttention(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.attention_head_size = config.hidden_size // config.num_attention_heads
        self.query, self.key, self.value = (nn.Linear(config.hidden_size, config.hidden_size) for _ in "qkv")
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def forward(self, states: Tensor, attention_mask: Tensor) -> Tensor:
        size, dropout = self.attention_head_size, self.dropout.p if self.training else 0.0
        projections = (self.query, self.key, self.value)
        q, k, v = (project(states).unflatten(-1, (-1, size)) for project in projections)
        return attend(q, k, v, attention_mask[:, 0], scaling=None, dropout=dropout).flatten(2)


class _Intermediate(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)

    def forward(self, states: Tensor) -> Tensor:
        return F.gelu(self.dense(states))


class _Residual(nn.Module):
    def __init__(self, inputs: int, config: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, states: Tensor, before: Tensor) -> Tensor:
        return self.LayerNorm(self.dropout(self.dense(states)) + before)
