"""The one contract that every ranker keeps, and the registry of rankers."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from crossjem_pl.lists import RankingList
from crossjem_pl.text.ragged import Ints

__all__ = [
    "DEFAULT_PREFIXES",
    "RANKERS",
    "Batch",
    "Explanation",
    "Ranker",
    "TensorRecord",
    "TokenContribution",
    "allow_only",
    "check_choice",
    "import_named",
    "init_arguments",
    "item_mask",
    "item_places",
    "item_scores",
    "public_classes",
    "register",
    "tensors",
]

_PART = 64
"""Items of a part, where every item could be one."""


class TensorRecord:
    """A dataclass whose tensors move together, those in lists, tuples, dicts and nested records included."""

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """A copy with every tensor on `device`."""
        return self._map(lambda t: t.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        """A copy with every tensor in pinned memory (DataLoader calls this)."""
        return self._map(lambda t: t.pin_memory())

    def _map(self, fn: Callable[[Tensor], Tensor]) -> Self:
        changed = {f.name: _map_tensors(getattr(self, f.name), fn) for f in fields(self)}  # type: ignore[arg-type]
        return replace(self, **changed)  # type: ignore[type-var]


def _map_tensors(value: Any, fn: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return fn(value)
    if isinstance(value, TensorRecord):
        return value._map(fn)
    if isinstance(value, dict):
        return {k: _map_tensors(v, fn) for k, v in value.items()}
    if isinstance(value, list):
        return [_map_tensors(v, fn) for v in value]
    if type(value) is tuple:
        return tuple(_map_tensors(v, fn) for v in value)
    return value


@dataclass
class Batch(TensorRecord):
    """What `Ranker.collate` returns and `Ranker.forward` reads. Rankers extend it with their own tensors.

    Args:
        item_mask: bool [lists, max_items], True where there is an item, False on padding.
        truncated_items: items of this batch that lost tokens to a length limit.
        truncated_queries: queries of this batch that lost tokens to a length limit.
        runs: the inputs of each run of the ranker's network, for rankers that define `score_run`.
        places: int64 [lists, max_items], where the score of each item is among the outputs of all runs, one run after
            another; items that are scored once share a place. Anything on padding.
    """

    item_mask: Tensor
    truncated_items: int
    truncated_queries: int
    runs: list[dict[str, Tensor]] = field(default_factory=list, kw_only=True)
    places: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64), kw_only=True)


@dataclass(frozen=True)
class TokenContribution:
    """What one token adds to one item's score.

    Args:
        token: the word piece.
        part: whether it belongs to the item, the query, is a special token, or the classifier's bias.
        value: what it adds, in units of the score.
    """

    token: str
    part: Literal["item", "query", "special", "bias"]
    value: float


@dataclass(frozen=True)
class Explanation:
    """An item's score and the contributions that sum to it (to float32 rounding)."""

    item: str
    score: float
    contributions: tuple[TokenContribution, ...]


class Ranker(nn.Module, ABC):
    """Scores the items of queries; joint, pointwise, dual, sequence-to-sequence and sparse rankers alike.

    A subclass calls `super().__init__(dict_of_its_own_init_arguments)`; the dict must be JSON serialisable,
    and `cls(**init_args)` must build an equal architecture: it is what a model folder stores.

    `collate` runs in DataLoader workers: it reads only CPU state (tokenizer, limits) and never the weights. It
    makes every index, padded; the network computes on tensors only.

    A ranker whose scores come from a network defines `score_run` and `run_axes`: what is trained is then what is
    compiled and exported. Any other ranker defines `forward`.
    """

    name: ClassVar[str]
    """Key in the registry, the name of the overlay `experiments/rankers/<name>.yaml`."""
    equivariant: ClassVar[bool] = True
    """Whether permuting a list's items permutes the scores and changes nothing else."""
    trainable: ClassVar[bool] = True
    """Whether scores carry a gradient (BM25's do not)."""
    independent: ClassVar[bool] = False
    """Whether an item's score depends on the query and the item alone."""
    score_kind: ClassVar[Literal["logit", "log_probability"]] = "logit"
    """What a score is: a logit of relevance (or any number on that scale), or the logarithm of a probability."""

    def __init__(self, init_args: dict[str, Any]) -> None:
        super().__init__()
        self.init_args = init_args

    @abstractmethod
    def collate(self, lists: Sequence[RankingList]) -> Batch:
        """Tokenises `lists` into one batch. Pure CPU; the object that is bound must be picklable."""

    def forward(self, batch: Any) -> Tensor:
        """Scores, float32 [lists, max_items]; entries where `batch.item_mask` is False are 0."""
        return item_scores([self.score_run(**run) for run in batch.runs], batch)

    def score_run(self, *args: Any, **tensors: Any) -> Tensor:
        """The network: the outputs of one run, float32 [n], from its inputs by name.

        It reads tensors only: no size and no branch depends on a tensor's value, so that it can be compiled as a
        whole and exported.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither score_run nor forward")

    @property
    def run_axes(self) -> dict[str, tuple[str, ...]]:
        """For each input of `score_run`, in order, the names of its axes; axes of one name have one size.

        A name that is a number ("3") stands for an axis that always has this size.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no run_axes")

    def pad_to_few_shapes(self) -> None:
        """Makes `collate` pad to coarse multiples, where a ranker can, for devices that capture a graph per shape."""

    @classmethod
    def can_be_exported(cls) -> bool:
        """Whether other runtimes can run this ranker: whether it defines `score_run`."""
        return cls.score_run is not Ranker.score_run

    def probabilities(self, scores: Tensor) -> Tensor:
        """Probabilities of relevance, in [0, 1]: the sigmoid of logits, the exponential of log-probabilities."""
        return torch.sigmoid(scores) if self.score_kind == "logit" else torch.exp(scores)

    def index_items(self, items: Iterable[str]) -> None:
        """Learns the item corpus before scoring, for rankers with corpus statistics (BM25)."""

    def encoders(self) -> list[nn.Module]:
        """The pretrained parts, which may get another learning rate than the rest."""
        return []

    def shards(self) -> list[nn.Module]:
        """Parts whose weights sharded training gathers one part at a time: modules that every run calls, and calls as
        modules, equally often. By default none: all weights are gathered at once."""
        return []

    def one_pass_items(self, ranking_list: RankingList) -> int:
        """How many of the leading items one training pass can hold (all unless a ranker has a limit)."""
        return len(ranking_list)

    def parts(self, ranking_list: RankingList) -> list[Ints]:
        """Positions of items that have the same scores when the list is scored in these parts: int64, all together
        each item once. Only `independent` rankers and those with passes divide a list."""
        positions = np.arange(len(ranking_list))
        return np.split(positions, range(_PART, len(positions), _PART)) if self.independent else [positions]

    def vectors(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Query vectors [lists, size] and item vectors [lists, max_items, size] whose inner product is the score.

        The batches of such a ranker carry `query_keys` int64 [lists] and `item_keys` int64 [lists, max_items], equal
        where texts are.

        Raises:
            ValueError: if the ranker does not compare such vectors; only dual encoders do.
        """
        raise ValueError(
            f"{self.name} has no query and item vectors: losses over vectors need a dual encoder"
        )

    def explain(self, ranking_list: RankingList) -> list[Explanation]:
        """Each item's score as a sum of token contributions, exactly, in the items' order.

        Raises:
            ValueError: if the ranker's score is not such a sum.
        """
        raise ValueError(f"{self.name} cannot explain: its score is not a sum over tokens (crossjem's is)")

    @abstractmethod
    def save_assets(self, folder: str) -> dict[str, Any]:
        """Writes what is not a weight (tokenizer files) to `folder`; returns the content of `config.json`.

        For a neural ranker the content is the Hugging Face configuration of its encoder, so that public tools
        read the folder; the caller adds the ranker's own part under the key `crossjem_pl`.
        """

    def save_public(self, folder: Path) -> str:
        """Writes what other libraries need besides to read the model folder.

        Returns what they want the weights' names to be without at their front: "" if the names stay.
        """
        return ""

    @classmethod
    @abstractmethod
    def from_folder(cls, folder: str, init_args: dict[str, Any]) -> Self:
        """The architecture with the assets of a model folder, weights not yet loaded."""


R = TypeVar("R", bound=type[Ranker])


class Registry(Mapping[str, type[Ranker]]):
    """Rankers by name; those of this package are imported when they are asked for, and not before.

    A ranker of this package is a class decorated with `@register` in a file of a folder beside this one. No list
    names it: the files' text is searched for such classes. Others are entered when their module is imported.
    """

    def __init__(self) -> None:
        self._imported: dict[str, type[Ranker]] = {}

    def __getitem__(self, name: str) -> type[Ranker]:
        if name not in self._imported:
            import_module(_modules(_REGISTERED)[name])
        return self._imported[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*_modules(_REGISTERED), *self._imported}))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def enter(self, cls: type[Ranker]) -> None:
        """Enters a ranker under its name, which no ranker of another module may have."""
        known = self._imported.get(cls.name)
        module = known.__module__ if known else _modules(_REGISTERED).get(cls.name, cls.__module__)
        if module != cls.__module__:
            raise ValueError(f"two rankers are named {cls.name!r}: {module} and {cls.__module__}")
        self._imported[cls.name] = cls


_REGISTERED = r'^@register\nclass .*?^    name = "([\w-]+)"'


@cache
def _modules(pattern: str) -> dict[str, str]:
    """Modules of the ranker packages by the names that `pattern` finds in their text; none is imported."""
    modules: dict[str, str] = {}
    for path in sorted(Path(__file__).parent.glob("*/*.py")):
        names = re.findall(pattern, path.read_text(encoding="utf-8"), re.M | re.S)
        modules.update(dict.fromkeys(names, f"{__package__}.{path.parent.name}.{path.stem}"))
    return modules


def public_classes() -> dict[str, str]:
    """Module of every public class of the ranker packages by the class's name, without importing one."""
    return _modules(r"^class ([A-Z]\w*)")


RANKERS = Registry()
"""All rankers by name."""


def register(cls: R) -> R:
    """Class decorator that enters a ranker in the registry under `cls.name`.

    Raises:
        ValueError: if another ranker has the name.
    """
    RANKERS.enter(cls)
    return cls


def item_mask(lists: Sequence[RankingList]) -> Tensor:
    """bool [lists, max_items]: True where a list has an item."""
    if not lists:
        raise ValueError("collate needs at least one list")
    counts = torch.tensor([len(one) for one in lists])
    return torch.arange(int(counts.max()))[None, :] < counts[:, None]


def item_scores(outputs: Sequence[Tensor], batch: Batch) -> Tensor:
    """Scores, float32 [lists, max_items]: of the outputs of all runs, [n] each, those at the batch's `places`; 0 on
    padding."""
    values = torch.cat(list(outputs)) if len(outputs) != 1 else outputs[0]
    return values[batch.places].float().masked_fill(~batch.item_mask, 0.0)


def item_places(mask: Tensor, outputs: Ints) -> Tensor:
    """Numbers int64 [items] of all items, list after list, in the shape of a bool mask [lists, max_items]; else 0."""
    places = torch.zeros(mask.shape, dtype=torch.int64)
    places[mask] = torch.from_numpy(outputs)
    return places


def init_arguments(scope: dict[str, Any], options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The arguments of an `__init__`, from its `locals()` at the first line and its keyword `options`."""
    own = {k: v for k, v in scope.items() if k not in ("self", "__class__", "options")}
    return {**own, **(options or {})}


def check_choice(name: str, value: str, allowed: Iterable[str]) -> None:
    """Raises a ValueError if the argument `name` is none of the allowed values."""
    if value not in (choices := list(allowed)):
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def tensors(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    """numpy arrays as tensors of the same names; they share their memory."""
    return {name: torch.from_numpy(value) for name, value in arrays.items()}


DEFAULT_PREFIXES = ("crossjem_pl", "lightning", "torch")
"""What `--allow-classes` allows in any case."""
_allowed: tuple[str, ...] | None = None


def allow_only(prefixes: Sequence[str] | None) -> None:
    """Limits `import_named` in this process to these modules and what is below them; None: no limit."""
    global _allowed
    _allowed = None if prefixes is None else tuple(prefixes)


def import_named(module: str) -> ModuleType:
    """The module of this name.

    Raises:
        ImportError: for a module that is not allowed (see `allow_only`), or that cannot be imported.
    """
    if _allowed is not None and not any(f"{module}.".startswith(f"{prefix}.") for prefix in _allowed):
        raise ImportError(f"--allow-classes does not allow {module!r}, only {', '.join(_allowed)}")
    return import_module(module)
