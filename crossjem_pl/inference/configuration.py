"""How a ranker runs: passes, precision, compilation; applied to a scorer, which computes, and stored in its folder."""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from crossjem_pl.lists import RankingList, shown
from crossjem_pl.process import release_freed
from crossjem_pl.rankers.base import Ranker
from crossjem_pl.rankers.encoders import read_json
from crossjem_pl.rankers.folder import write_config

__all__ = [
    "Configuration",
    "Passes",
    "Precision",
    "Scorer",
    "configured",
    "save_configuration",
    "stored_configuration",
    "unavailable",
]

Precision = Literal["float32", "bfloat16", "float16"]
_KEY = "inference"
_RELEASE = 5.0
"""Seconds of CPU time between two times that freed memory goes back to the system."""


_threads = {"started": False, "lost": False}
"""Whether this process has computed with several threads, and whether its parent had: a fork has no threads."""


def _forked() -> None:
    _threads["lost"] = _threads["started"]


os.register_at_fork(after_in_child=_forked)


def _note_threads() -> None:
    """Raises a RuntimeError where torch would wait for threads that a fork left behind, and never come back."""
    if torch.get_num_threads() > 1:
        if _threads["lost"]:
            raise RuntimeError(
                "this process was forked from one that had scored with several threads, which are not here, and torch "
                "would wait for them for good: start it with the method 'spawn' or 'forkserver', fork before the first "
                "scores, or call torch.set_num_threads(1) in it"
            )
        _threads["started"] = True


@dataclass(frozen=True)
class Scorer:
    """A ranker on a device in a precision. Several threads may use it at once.

    Args:
        ranker: with its weights in float32, in eval mode on `device`: what is saved and explained.
        device: where it computes.
        precision: of the matrix products; scores are float32 always.
        compiled: whether `torch.compile` made the network.
        network: the copy of the ranker that computes, see `configured`; None for the ranker itself.
    """

    ranker: Ranker
    device: torch.device
    precision: Precision = "float32"
    compiled: bool = False
    network: Ranker | None = None

    def score(self, lists: Sequence[RankingList], batch_size: int = 32) -> tuple[list[Tensor], int]:
        """Scores of each list's items, and how many texts lost tokens to their length limit.

        Args:
            lists: what to score.
            batch_size: lists per forward pass.

        Returns:
            float32 [items] on the CPU for each list, in the items' order; the number of truncated texts.

        Raises:
            ValueError: if a score is not finite; names the list.
            RuntimeError: in a process that was forked from one that had scored with several threads.
        """
        scores: list[Tensor] = []
        truncated = 0
        for first in range(0, len(lists), batch_size):
            found, more = self._score_batch(lists[first : first + batch_size])
            scores += found
            truncated += more
            release_freed(_RELEASE)
        return scores, truncated

    def _score_batch(self, lists: Sequence[RankingList]) -> tuple[list[Tensor], int]:
        _note_threads()
        ranker = self.network or self.ranker
        batch = ranker.collate(lists)
        lower = self.precision != "float32"
        dtype = getattr(torch, self.precision) if lower else None
        with torch.inference_mode(), torch.autocast(self.device.type, dtype=dtype, enabled=lower):
            scores = ranker(batch.to(self.device)).float().cpu()
        finite = torch.isfinite(scores).all(1)
        if not finite.all():
            first = lists[int(finite.int().argmin())]
            raise ValueError(
                f"list {first.query_id!r}: a score is not finite; the weights are broken, or "
                f"{self.precision} is too narrow for them (bfloat16 and float32 have the wider range)"
            )
        rows = [row[: len(one)] for row, one in zip(scores, lists, strict=True)]
        return rows, batch.truncated_items + batch.truncated_queries


class Passes(NamedTuple):
    """How CROSS-JEM splits a long list: N, L_u and the order, see `plan_passes`."""

    max_items_per_pass: int
    max_union_tokens: int
    pass_order: str

    @classmethod
    def of(cls, ranker: Ranker) -> Passes | None:
        """Those of a ranker; None if it makes no passes or cannot change them."""
        if not hasattr(ranker, "with_limits"):
            return None
        return cls(*(getattr(ranker, name) for name in cls._fields))


@dataclass(frozen=True)
class Configuration:
    """A candidate configuration.

    Args:
        precision: of the matrix products.
        compiled: whether `torch.compile` makes the network.
        passes: None where the ranker makes no passes.
    """

    precision: Precision = "float32"
    compiled: bool = False
    passes: Passes | None = None

    @classmethod
    def of(cls, scorer: Scorer) -> Configuration:
        """The configuration of a scorer."""
        return cls(scorer.precision, scorer.compiled, Passes.of(scorer.ranker))

    def __str__(self) -> str:
        passes = self.passes and "N {}, L_u {}, {}".format(*self.passes)
        return ", ".join(filter(None, (self.precision, "compiled" if self.compiled else "", passes)))


def configured(scorer: Scorer, configuration: Configuration) -> Scorer:
    """The scorer's ranker in another configuration; the scorer itself stays as it is.

    bfloat16 and float16 keep a copy of the matrices of the encoders' linear layers in that type, so that autocast,
    which still decides what is computed in it, need not cast them on every run: the scores are autocast's. A
    compiled network shares the weights.

    Raises:
        ValueError: if the device or the ranker cannot run like this, or the limits of a pass are out of range.
    """
    reason = unavailable(scorer, configuration)
    if reason is not None:
        raise ValueError(reason)
    ranker = scorer.ranker
    if configuration.passes not in (None, Passes.of(ranker)):
        ranker = ranker.with_limits(*configuration.passes)  # type: ignore[operator]
    network = ranker
    if configuration.precision != "float32":
        network = _cast(network, getattr(torch, configuration.precision))
    if configuration.compiled:
        network = _compile(network, scorer.device)
    return Scorer(
        ranker,
        scorer.device,
        configuration.precision,
        configuration.compiled,
        None if network is ranker else network,
    )


def unavailable(scorer: Scorer, configuration: Configuration) -> str | None:
    """Why this machine or this ranker cannot run in the configuration; None if it may."""
    device = scorer.device
    if configuration.precision == "float16" and device.type == "cpu":
        return "float16 is for GPUs: on a CPU bfloat16 has the wider range and the faster instructions"
    if configuration.precision == "bfloat16" and device.type == "cuda":
        return None if torch.cuda.is_bf16_supported(False) else "this GPU has no bfloat16"
    if not configuration.compiled:
        return None
    if not scorer.ranker.can_be_exported():
        return f"{scorer.ranker.name} has no network that can be compiled as a whole"
    if device.type == "cpu":
        compilers = filter(None, (os.environ.get("CXX"), "g++", "clang++", "c++"))
        if not any(map(shutil.which, compilers)):
            return "torch.compile needs a C++ compiler on the CPU (g++ or clang++), and there is none"
    elif find_spec("triton") is None:
        return f"torch.compile needs Triton on {device.type}, and it is not installed"
    return None


def save_configuration(folder: str | Path, configuration: Configuration, device: torch.device) -> None:
    """Writes a configuration into the `config.json` of a model folder, from where `Reranker` reads it.

    The passes become the model's own. Precision and compilation are used on devices of the same type.

    Raises:
        FileNotFoundError: if the folder has no `config.json`.
        ValueError: if it is not a folder that `save_pretrained` wrote.
    """
    path = Path(folder) / "config.json"
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: a configuration is saved in a model folder")
    config = read_json(path)
    if "crossjem_pl" not in config:
        raise ValueError(
            f"{folder} is not a model folder of crossjem_pl: write one with `save_pretrained` first"
        )
    stored = config["crossjem_pl"]
    if configuration.passes is not None:
        stored["init_args"].update(configuration.passes._asdict())
    values = asdict(replace(configuration, passes=None))
    del values["passes"]
    stored[_KEY] = {"device": device.type, **values}
    write_config(config, path)


def stored_configuration(folder: Path, scorer: Scorer) -> Configuration | None:
    """What `save_configuration` wrote for devices like the scorer's; None if nothing.

    Where nothing can be compiled, the network runs as it is: the scores are the same, only slower.

    Raises:
        ValueError: naming file and field, if it is not of this form.
    """
    path = folder / "config.json"
    stored = read_json(path).get("crossjem_pl", {}).get(_KEY)
    if stored is None:
        return None
    entries: Any = stored if isinstance(stored, dict) else {}
    precision, compiled = entries.get("precision"), entries.get("compiled")
    if precision not in get_args(Precision) or not isinstance(compiled, bool):
        raise ValueError(f"{path}, field {_KEY!r}: {shown(stored)} is not a precision and whether to compile")
    if entries.get("device") != scorer.device.type:
        return None
    found = Configuration(precision, compiled, Passes.of(scorer.ranker))
    return found if unavailable(scorer, found) is None else replace(found, compiled=False)


def _cast(ranker: Ranker, dtype: torch.dtype) -> Ranker:
    """A copy whose encoders keep their linear layers in the type."""
    tokenizer = getattr(ranker, "tokenizer", None)  # it only reads: the copy shares it, with its cache
    made = copy.deepcopy(ranker, {id(tokenizer): tokenizer}).eval().requires_grad_(False)
    for part in made.encoders():
        for module in part.modules():
            if isinstance(module, nn.Linear):
                module.to(dtype)
    return made


def _compile(ranker: Ranker, device: torch.device) -> Ranker:
    """A copy that shares the weights and runs a compiled network; on a GPU with one CUDA graph a shape."""
    made = copy.copy(ranker)
    graphs = device.type == "cuda"
    if graphs:
        made.pad_to_few_shapes()
    network = torch.compile(ranker.score_run, dynamic=True, mode="reduce-overhead" if graphs else None)

    def score_run(**tensors: Tensor) -> Tensor:
        if not graphs:
            return network(**tensors)
        torch.compiler.cudagraph_mark_step_begin()
        return network(**tensors).clone()  # the next run overwrites the graph's own output

    made.score_run = score_run  # type: ignore[method-assign]
    return made
