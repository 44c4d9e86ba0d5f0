"""Tiny random encoders with a real WordPiece tokenizer, written to folders in the hub's format."""

from __future__ import annotations

import string
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = (
    "red blue green cheap best new used big small long short running trail leather winter summer kids women men "
    "shoe shoes boot boots sofa couch table chair lamp phone laptop tablet camera book bike car pet dog cat food "
    "insurance travel hotel flight paris japan rome price near me buy repair online store shop what is the a of for in"
).split()


def tokenizer() -> PreTrainedTokenizerFast:
    """Lower-cased WordPiece over a few dozen words, single characters and their continuations."""
    alphabet = string.ascii_lowercase + string.digits
    vocabulary = [*SPECIAL, *alphabet, *("##" + c for c in alphabet), *sorted(set(WORDS) - set(alphabet)), "##s"]
    ids = {token: i for i, token in enumerate(dict.fromkeys(vocabulary))}
    backend = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def write_bert(folder: Path, *, hidden_size: int = 32, layers: int = 2, positions: int = 160) -> Path:
    """A random two-layer BERT with `tokenizer()`, as a hub folder."""
    words = tokenizer()
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * hidden_size,
        max_position_embeddings=positions,
        pad_token_id=words.pad_token_id,
    )
    BertModel(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder
