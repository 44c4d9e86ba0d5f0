"""Tiny random encoders of several families with the tiny tokenizer, as hub folders."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import (
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraModel,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaModel,
)

from tests import tiny_models

FAMILIES = ("bert", "distilbert", "electra", "roberta")


def write(folder: Path, family: str) -> str:
    """A random two-layer encoder of `family`, 32 wide (electra's embeddings are narrower)."""
    if family == "bert":
        return str(tiny_models.write_bert(folder))
    words = tiny_models.tokenizer()
    torch.manual_seed(0)
    shape = {
        "vocab_size": len(words),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 96,
        "pad_token_id": words.pad_token_id,
    }
    model: PreTrainedModel
    if family == "distilbert":
        model = DistilBertModel(
            DistilBertConfig(
                vocab_size=len(words),
                dim=32,
                n_layers=2,
                n_heads=2,
                hidden_dim=64,
                max_position_embeddings=96,
            )
        )
    elif family == "electra":
        model = ElectraModel(ElectraConfig(**shape, embedding_size=16))
    elif family == "roberta":
        model = RobertaModel(RobertaConfig(**shape, type_vocab_size=1))
    else:
        special = {f"{name}_token_id": words.pad_token_id for name in ("bos", "eos", "cls", "sep")}
        model = ModernBertModel(ModernBertConfig(**shape, **special))
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)
