"""Tiny random encoders of several families with the tiny tokenizer, as hub folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModel

from tests import tiny_models

FAMILIES = ("bert", "distilbert", "electra", "roberta")


def write(folder: Path, family: str) -> str:
    """A random two-layer encoder of `family`, 32 wide (electra's embeddings are narrower)."""
    words = tiny_models.tokenizer()
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    if family == "distilbert":
        sizes = dict(zip(("dim", "n_layers", "n_heads", "hidden_dim"), sizes.values(), strict=True))
    shape: dict[str, Any] = {"vocab_size": len(words), "max_position_embeddings": 96, **sizes}
    shape |= {"pad_token_id": words.pad_token_id}
    more = {"electra": {"embedding_size": 16}, "roberta": {"type_vocab_size": 1}}
    shape |= {**more, "roformer": {"embedding_size": 32}}.get(family, {})
    if family == "bert":
        return str(tiny_models.write_bert(folder))
    if family == "modernbert":
        shape |= dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0)
    AutoModel.from_config(AutoConfig.for_model(family, **shape)).save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)
