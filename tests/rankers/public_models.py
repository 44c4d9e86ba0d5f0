"""Tiny random models in the folders of other libraries, with tokenizers that add their own special tokens."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5EncoderModel,
)

from tests.tiny_models import WORDS

EXTRA = ["[unused0]", "[unused1]", "[Q] ", "[D] "]


def words(kind: str = "bert") -> PreTrainedTokenizerFast:
    """WordPiece with punctuation and markers, which adds its own special tokens: [CLS] a [SEP], or T5's a </s>."""
    bert = {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    special = bert if kind == "bert" else {"eos_token": "</s>"}
    vocabulary = ["[PAD]", "[UNK]", *special.values(), *EXTRA, *ascii_lowercase, *".,:?!", *WORDS]
    ids = {token: i for i, token in enumerate(dict.fromkeys(vocabulary))}
    backend = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]" if kind == "bert" else "$A </s>",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1" if kind == "bert" else "$A </s> $B </s>",
        special_tokens=[(token, ids[token]) for token in special.values()],
    )
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="[UNK]",
        pad_token="[PAD]",
        model_max_length=64,
        model_input_names=inputs if kind == "bert" else inputs[::2],
        **special,
    )
    made.add_tokens(["[Q] ", "[D] "])
    return made


def write_encoder(folder: Path, kind: str = "bert") -> Path:
    """A random BERT or T5 encoder with `words`."""
    tokenizer = words(kind)
    torch.manual_seed(1)
    if kind == "t5":
        config = T5Config(
            vocab_size=len(tokenizer), d_model=32, d_ff=48, d_kv=16, num_layers=2, num_heads=2, pad_token_id=0
        )
        T5EncoderModel(config).save_pretrained(folder)
    else:
        BertModel(
            BertConfig(
                vocab_size=len(tokenizer),
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=48,
                max_position_embeddings=64,
                pad_token_id=0,
                initializer_range=0.3,  # scores that differ visibly
            )
        ).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@cache
def loaded(folder: str) -> tuple[Any, Any]:
    """The tokenizer and the model in eval mode of a folder that does not change, as transformers reads them."""
    return AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()


def write_pylate(folder: Path, **settings: object) -> Path:
    """A ColBERT in PyLate's layout: modules.json of a Transformer and a Dense, settings at the top level."""
    write_encoder(folder)
    modules = [("", "sentence_transformers.models.Transformer"), ("1_Dense", "pylate.models.Dense.Dense")]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(modules)
    ]
    config = {
        "model_type": "ColBERT",
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "MaxSim",
        "query_prefix": "[Q] ",
        "document_prefix": "[D] ",
        "query_length": 12,
        "document_length": 20,
        "attend_to_expansion_tokens": False,
        "skiplist_words": [".", ",", "?", "!"],
        **settings,
    }
    dense = {
        "in_features": 32,
        "out_features": 16,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
        "use_residual": False,
    }
    _write(folder / "modules.json", listed)
    _write(folder / "config_sentence_transformers.json", config)
    _write(folder / "sentence_bert_config.json", {"max_seq_length": 19, "do_lower_case": False})
    (folder / "1_Dense").mkdir()
    _write(folder / "1_Dense" / "config.json", dense)
    weight = torch.randn(16, 32, generator=torch.Generator().manual_seed(3))
    save_file({"linear.weight": weight}, folder / "1_Dense" / "model.safetensors")
    return folder


def write_stanford(folder: Path, **metadata: object) -> Path:
    """A ColBERT in Stanford's layout: `bert.*` and `linear.weight` in one file, artifact.metadata."""
    write_encoder(folder)
    state = {f"bert.{name}": value for name, value in load_file(folder / "model.safetensors").items()}
    state["linear.weight"] = torch.randn(16, 32, generator=torch.Generator().manual_seed(4))
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    _write(folder / "config.json", {**config, "architectures": ["HF_ColBERT"]})
    given = {"query_maxlen": 12, "doc_maxlen": 20, "mask_punctuation": True, "attend_to_mask_tokens": False}
    _write(folder / "artifact.metadata", {**given, **metadata})
    return folder


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
