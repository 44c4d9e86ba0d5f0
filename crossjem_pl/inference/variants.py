"""The same ranker run in another way: attention kernel, precision of the weights, compilation."""

from __future__ import annotations

import copy
import functools
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from crossjem_pl.rankers.attention import HIDDEN
from crossjem_pl.rankers.base import Ranker
from crossjem_pl.rankers.crossjem.model import CrossJEM
from crossjem_pl.rankers.encoders import first_position
from crossjem_pl.rankers.neural import NeuralRanker

__all__ = ["Settings", "attention_of", "bucketed", "has_encoder", "no_compiler", "variant"]

Precision = Literal["float32", "bfloat16", "float16"]

_ROWS, _WIDTH = 4, 64
_KERNELS = ("sdpa", "eager")


@dataclass(frozen=True)
class Settings:
    """How a ranker runs.

    Args:
        precision: of the matrix products.
        attention: "sdpa" (torch's fused kernels) or "eager"; None where the ranker brings its own.
        compiled: whether `torch.compile` made the encoder.
        threads: of torch in this process.
    """

    precision: Precision
    attention: str | None
    compiled: bool
    threads: int

    def __str__(self) -> str:
        parts = [self.precision, self.attention, "compiled" if self.compiled else None]
        return ", ".join([p for p in parts if p] + [f"{self.threads} threads"])


def has_encoder(ranker: Ranker) -> bool:
    """Whether the ranker runs a Hugging Face model in torch."""
    return bool(_models(ranker))


def attention_of(ranker: Ranker) -> str | None:
    """The attention kernel of the ranker's encoders, if it is one that can be exchanged."""
    names = {model.config._attn_implementation for model in _models(ranker)}
    return names.pop() if len(names) == 1 and names <= set(_KERNELS) else None


def variant(ranker: Ranker, settings: Settings, device: torch.device) -> Ranker:
    """A copy of the ranker, in eval mode, that runs in this way; the ranker stays as it is.

    bfloat16 and float16 keep the matrices of the encoders' linear layers in that type, so that autocast, which
    still decides what is computed in it, need not cast them on every run: the scores are autocast's.

    Raises:
        ValueError: if the encoder does not have this attention, or the ranker cannot be compiled; says why.
    """
    # the tokenizer only reads: the copy shares it, with its cache
    memo = {id(ranker.tokenizer): ranker.tokenizer} if isinstance(ranker, NeuralRanker) else {}
    made = copy.deepcopy(ranker, memo).eval().requires_grad_(False)
    for model in _models(made):
        if settings.attention is not None and model.config._attn_implementation != settings.attention:
            model.set_attn_implementation(settings.attention)
    if settings.precision != "float32":
        for part in (*_models(made), *made.encoders()):
            for module in part.modules():
                if isinstance(module, nn.Linear):
                    module.to(getattr(torch, settings.precision))
    if settings.compiled:
        _compile(made, device)
    return made


def no_compiler(device: torch.device) -> str | None:
    """Why torch.compile cannot work on this machine, None if it may."""
    if device.type == "cpu":
        known = [name for name in (os.environ.get("CXX"), "g++", "clang++", "c++") if name]
        if not any(map(shutil.which, known)):
            return "torch.compile needs a C++ compiler on the CPU (g++ or clang++), and there is none"
    elif find_spec("triton") is None:
        return f"torch.compile needs Triton on {device.type}, and it is not installed"
    return None


def bucketed(run: Callable[..., Tensor], positions: int) -> Callable[..., Tensor]:
    """`run` on inputs [rows, width] padded to multiples of 4 rows and 64 tokens; the padding is cut off again.

    So few shapes occur that each can have a compiled program of its own.

    Args:
        run: takes tensors [rows, width] by name, `attention_mask` (or a table [rows, 1, width, width] that is added to
            the attention logits) among them, and returns [rows, width, size].
        positions: the width without `position_ids` that must not be passed.
    """

    def padded(**inputs: Tensor) -> Tensor:
        rows, width = inputs["input_ids"].shape
        more_rows, more = -rows % _ROWS, -width % _WIDTH
        if "position_ids" not in inputs:
            more = max(min(more, positions - width), 0)
        larger = {name: _padded(x, more, more_rows) for name, x in inputs.items()}
        if larger["attention_mask"].ndim == 2:
            larger["attention_mask"][rows:, 0] = 1  # a row without any token would attend to nothing
        return run(**larger)[:rows, :width].clone()

    return padded


def _padded(x: Tensor, more: int, more_rows: int) -> Tensor:
    if x.ndim == 2:
        return F.pad(x, (0, more, 0, more_rows))
    return F.pad(x, (0, more, 0, more, 0, 0, 0, more_rows), value=HIDDEN)  # no token sees the padding


def _compile(ranker: Ranker, device: torch.device) -> None:
    """Puts the compiled forward in the place of the encoder's own."""
    if not isinstance(ranker, CrossJEM):
        raise ValueError(f"only crossjem's encoder is compiled, this is a {ranker.name} ranker")
    encoder: Any = ranker.encoder
    forward = encoder.forward
    config = ranker.encoder_config

    def hidden(**inputs: Tensor) -> Tensor:
        return forward(**inputs).last_hidden_state

    if device.type == "cuda":
        graphs = torch.compile(hidden, mode="reduce-overhead", dynamic=False)
        seen: set[tuple[int, ...]] = set()

        def captured(**inputs: Tensor) -> Tensor:
            torch.compiler.cudagraph_mark_step_begin()
            shape = tuple(inputs["input_ids"].shape)
            if shape in seen:
                return graphs(**inputs)
            seen.add(shape)
            with torch._dynamo.config.patch(recompile_limit=1024):  # one program for each shape is meant
                return graphs(**inputs)

        positions = int(getattr(config, "max_position_embeddings", 1 << 30)) - first_position(config)
        run = bucketed(captured, positions)
    else:
        run = torch.compile(hidden, dynamic=True)

    @functools.wraps(forward)
    def compiled(**inputs: Tensor) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=run(**inputs))

    encoder.forward = compiled


def _models(ranker: Ranker) -> list[PreTrainedModel]:
    """The outermost Hugging Face models of the ranker."""
    found: list[PreTrainedModel] = []
    for module in ranker.modules():
        if isinstance(module, PreTrainedModel) and not any(module in set(m.modules()) for m in found):
            found.append(module)
    return found
