"""Tiny random models with real tokenizers, written to folders in the hub's format."""

from __future__ import annotations

import string
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    BertConfig,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "[unused1]"]
WORDS = (  # noqa: SIM905
    "red blue green cheap best new used big small long short running trail leather winter summer kids "
    "women men shoe shoes boot boots sofa couch table chair lamp phone laptop tablet camera book bike car "
    "pet dog cat food insurance travel hotel flight paris japan rome price near me buy repair online "
    "store shop what is the a of for in"
).split()


def tokenizer() -> PreTrainedTokenizerFast:
    """Lower-cased WordPiece over a few dozen words, single characters and their continuations."""
    alphabet = string.ascii_lowercase + string.digits
    vocabulary = [
        *SPECIAL,
        *alphabet,
        *("##" + c for c in alphabet),
        *sorted(set(WORDS) - set(alphabet)),
        "##s",
    ]
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
        split_special_tokens=True,  # as `load_tokenizer` sets it
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


def write_t5(folder: Path, *, layers: int = 2, first_version: bool = True) -> Path:
    """A random T5 (or a T5 1.1: gated, output layer not scaled) with a unigram tokenizer, as a hub folder."""
    pieces = ["▁" + word for word in (*WORDS, "true", "false")]
    pieces += ["▁", ":", *string.ascii_letters, *string.digits]
    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    vocabulary += [(piece, -2.0 - 0.1 * (len(piece) < 3)) for piece in dict.fromkeys(pieces)]
    backend = Tokenizer(models.Unigram(vocabulary, unk_id=2))
    backend.normalizer = normalizers.BertNormalizer(lowercase=False)
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    words = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="<unk>",
        pad_token="<pad>",
        eos_token="</s>",
        extra_special_tokens=[f"<extra_id_{i}>" for i in range(12)],
    )
    torch.manual_seed(0)
    config = T5Config(  # type: ignore[call-arg]
        vocab_size=len(words),
        d_model=32,
        d_kv=16,
        d_ff=64,
        num_layers=layers,
        num_heads=2,
        feed_forward_proj="relu" if first_version else "gated-gelu",
        tie_word_embeddings=first_version,
        decoder_start_token_id=0,
    )
    T5ForConditionalGeneration(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def write_gpt(folder: Path, *, layers: int = 2, positions: int = 160) -> Path:
    """A random Llama with a byte-level BPE tokenizer, as a hub folder."""
    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.BertNormalizer(lowercase=False)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=alphabet, special_tokens=["<s>"], show_progress=False
    )
    backend.train_from_iterator([" ".join(WORDS), *WORDS, "Document: Query:"], trainer)
    words = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="<s>")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=positions,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder
