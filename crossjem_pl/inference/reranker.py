"""`Reranker`: loads a ranker, scores, sorts, explains, and tunes itself to the machine."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from crossjem_pl.inference.configuration import (
    Configuration,
    Precision,
    Scorer,
    configured,
    save_configuration,
    stored_configuration,
)
from crossjem_pl.lists import RankingList, counted
from crossjem_pl.rankers.base import Explanation, Ranker
from crossjem_pl.rankers.encoders import PACKAGED
from crossjem_pl.rankers.folder import load_ranker, local_folder, save_ranker
from crossjem_pl.rankers.neural import NeuralRanker
from crossjem_pl.text import TokenizedList

if TYPE_CHECKING:
    from crossjem_pl.inference.tune import Bounds, TuneReport
    from crossjem_pl.rankers.threshold import StoredThreshold
    from crossjem_pl.text.token_store import TokenStore

__all__ = ["Activation", "RankedItem", "Reranker"]

log = logging.getLogger(__name__)

Activation = Literal["sigmoid", "softmax"]


@dataclass(frozen=True)
class RankedItem:
    """One row of a ranking, which can also be read like the dicts of sentence-transformers: `row["corpus_id"]`.

    Args:
        index: position of the item in the list that was given ("corpus_id").
        text: the item as it was given: its text, or its id in the token store.
        score: its score after the activation.
    """

    index: int
    text: str
    score: float

    def __getitem__(self, field: Literal["corpus_id", "text", "score"]) -> Any:
        return getattr(self, "index" if field == "corpus_id" else field)


class Reranker:
    """The inference face of any ranker.

    Lists longer than one pass of a joint ranker are split into passes that run in one batch; no token is
    dropped but for the limits of single texts, which `truncated` counts. Several threads may share one.

    Args:
        model: a model folder, a hub repository, an exported model, or a ranker, which is put into eval mode and
            moved to `device`. A folder's stored threshold and tuned configuration come with it. Without one: the
            packaged sentence encoder, all-MiniLM-L6-v2, by `Ahead.untrained`.
        device: "cpu", "cuda", ...; None takes a GPU if there is one.
        precision: of the matrix products; scores are float32 always. "bfloat16" on a CPU pays only with AMX
            or AVX-512 bf16. None takes what `tune` stored in the folder, else float32.
        batch_size: lists per forward pass.
        store: token ids of items. With it `items` are ids of the store, everywhere, and nothing but the queries
            is tokenised; see `TokenStore`.
        backend: "torch", "onnx" or "openvino"; None for what the folder holds. The latter two load what
            `crossjem export` wrote, on the CPU.

    Raises:
        FileNotFoundError: if there is no such model; says what to do.
        ImportError: if the runtime of an exported model is not installed.
        ValueError: if the folder does not hold one of our models, or not one for the backend, device and
            precision, its `threshold.json` is malformed, or an argument is out of range.

    Example:
        >>> reranker = Reranker()  # or Reranker("runs/quickstart/model")
        >>> reranker.rank("running shoes", ["office chair", "trail shoes"])[0].text
        'trail shoes'
    """

    def __init__(
        self,
        model: Ranker | str | Path = PACKAGED,
        device: str | torch.device | None = None,
        precision: Precision | None = None,
        batch_size: int = 32,
        store: TokenStore | None = None,
        backend: str | None = None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if precision is not None and precision not in get_args(Precision):
            raise ValueError(f"precision must be one of {', '.join(get_args(Precision))}, got {precision!r}")
        folder = None if isinstance(model, Ranker) else local_folder(str(model))
        exported = folder is not None and (
            backend not in (None, "torch") or (folder / "export.json").exists()
        )
        if isinstance(model, Ranker):
            ranker = model
        elif exported:
            from crossjem_pl.inference.export.ranker import load_exported

            ranker = load_exported(str(folder), precision or "float32", backend, device)
            device = "cpu"
        else:
            ranker = load_ranker(PACKAGED if str(model) == PACKAGED else str(folder))
        place = _available(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.batch_size = batch_size
        self.truncated = 0
        """How many texts have lost tokens to their length limit since the start."""
        self._scorer = Scorer(ranker.eval().to(place), place, precision or "float32")
        self._threshold: StoredThreshold | None = None
        self._threshold_fits: Scorer | None = None
        self._run = None if folder is None else _run_of(folder)
        if folder is not None:
            if (folder / "threshold.json").exists():
                from crossjem_pl.rankers.threshold import read_threshold

                self._threshold = read_threshold(folder / "threshold.json").of_folder(ranker)
            stored = None if precision or exported else stored_configuration(folder, self._scorer)
            if stored is not None:
                self.configure(stored)
        self._store: TokenStore | None = None
        self.reads_states = False
        """Whether the store has the states of its items that the ranker reads."""
        self.store = store

    @classmethod
    def from_pretrained(cls, name: str | Path, *arguments: Any, **options: Any) -> Reranker:
        """`Reranker(name, ...)`, under the name that Hugging Face's libraries use."""
        return cls(name, *arguments, **options)

    def save_pretrained(
        self,
        folder: str | Path,
        *,
        license: str | None = None,
        latency: bool = False,
        repository: str | None = None,
    ) -> None:
        """Writes the model folder: `model.safetensors`, `config.json`, tokenizer files and a model card.

        The tuned configuration goes with the model, and so does a stored threshold, unless weights or
        configuration have changed since it was chosen. The card, README.md, tells what the model is, how it was
        trained and how well it ranks, as far as the run folder says that it was loaded from; a README.md that is
        there stays.

        Args:
            folder: made if absent.
            license: of the weights, by its name on the Hugging Face hub ("apache-2.0"), for the card.
            latency: whether to measure for the card how long 10, 100 and 700 items take on this machine.
            repository: what the card's examples load; None for `folder`.
        """
        from crossjem_pl.inference.card import median_latencies, model_card

        scorer = self._scorer
        save_ranker(scorer.ranker, folder)
        if scorer.network is not None:
            save_configuration(folder, Configuration.of(scorer), scorer.device)
        if self._threshold is not None and self._threshold.misfit(scorer.ranker, scorer.precision) is None:
            from crossjem_pl.rankers.threshold import write_threshold

            write_threshold(self._threshold, folder)
        if not (path := Path(folder) / "README.md").exists():
            latencies = median_latencies(self.score) if latency else None
            names = {"license": license, "repository": repository}
            text = model_card(scorer.ranker, Path(folder), self._run, latencies=latencies, **names)
            path.write_text(text, encoding="utf-8")

    def push_to_hub(
        self,
        repository: str,
        *,
        private: bool | None = None,
        token: str | None = None,
        license: str | None = None,
        latency: bool = False,
        message: str = "Upload the model",
    ) -> str:
        """Uploads what `save_pretrained` writes to a repository of the Hugging Face hub, and returns the commit's URL.

        The repository is made if absent; a README.md that it has stays.

        Args:
            repository: "owner/name".
            private: whether a new repository is private; None for the owner's default.
            token: of the hub; None for the one that `hf auth login` stored.
            license, latency: see `save_pretrained`.
            message: of the commit.

        Raises:
            huggingface_hub.errors.HfHubHTTPError: if the hub refuses.
        """
        from tempfile import TemporaryDirectory

        from huggingface_hub import HfApi

        hub = HfApi(token=token)
        name = hub.create_repo(repository, private=private, exist_ok=True).repo_id
        kept = ["README.md"] if hub.file_exists(name, "README.md") else None
        with TemporaryDirectory() as folder:
            self.save_pretrained(folder, license=license, latency=latency, repository=name)
            done = hub.upload_folder(
                repo_id=name, folder_path=folder, commit_message=message, ignore_patterns=kept
            )
        return done.commit_url

    @property
    def ranker(self) -> Ranker:
        """The ranker, with its weights in float32, whatever the configuration computes in."""
        return self._scorer.ranker

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self._scorer.device

    @property
    def precision(self) -> Precision:
        """Of the matrix products."""
        return self._scorer.precision

    @property
    def threshold(self) -> StoredThreshold | None:
        """The threshold that was stored with the model, None if there is none.

        Raises:
            ValueError: if it was chosen for other weights, another precision or other passes.
        """
        scorer = self._scorer
        if self._threshold is not None and self._threshold_fits is not scorer:
            problem = self._threshold.misfit(scorer.ranker, scorer.precision)
            if problem is not None:
                raise ValueError(
                    f"the stored threshold was chosen for {problem}; choose it again with "
                    "`crossjem threshold MODEL LISTS`, or pass one"
                )
            self._threshold_fits = scorer
        return self._threshold

    @property
    def store(self) -> TokenStore | None:
        """Where the token ids of items are found; None: items are texts.

        Raises:
            ValueError: when a store is set that was built with another tokenizer or a lower limit than the
                ranker's, or holds states of another model, or the ranker does not score from plain token ids.
        """
        return self._store

    @store.setter
    def store(self, store: TokenStore | None) -> None:
        ranker, states = self.ranker, None
        if store is not None:
            if not isinstance(ranker, NeuralRanker) or not ranker.reads_token_ids():
                raise ValueError(
                    f"{type(ranker).__name__} ({ranker.name}) cannot rank by id: it does not read its items as "
                    "plain token ids; rank their texts"
                )
            store.check_tokenizer(ranker.tokenizer)
            store.check_limit(ranker.max_item_tokens)
            states = ranker.store_states() if store.has_states else None
            if states is not None:
                store.check_model(states.model, ranker.max_item_tokens)
        self._store, self.reads_states = store, states is not None

    def rank(
        self,
        query: str,
        items: Sequence[str],
        *,
        top_k: int | None = None,
        min_score: float | Literal["stored"] | None = None,
        activation: Activation | None = None,
        return_documents: bool = True,
    ) -> list[RankedItem]:
        """The items of one query, best first; equal scores keep the order of the input.

        Args:
            query: the query.
            items: item texts, or ids where there is a token store.
            top_k: return only the best `top_k`.
            min_score: return only items that score at least this; "stored" takes the threshold that was stored
                with the model. It is compared with the ranker's own score, whatever the activation.
            activation: of the scores that are returned: "sigmoid", "softmax" over the list, or None for the
                ranker's own.
            return_documents: False leaves the texts of the rows empty.

        Raises:
            ValueError: for an empty query, no items, a blank item or an unknown id (names field and position),
                an argument out of range, or if there is no stored threshold that fits.
        """
        rows = self.rank_batch([query], [items], top_k=top_k, min_score=min_score, activation=activation)[0]
        return rows if return_documents else [replace(row, text="") for row in rows]

    def rank_batch(
        self,
        queries: Sequence[str],
        items: Sequence[Sequence[str]],
        *,
        top_k: int | None = None,
        min_score: float | Literal["stored"] | None = None,
        activation: Activation | None = None,
    ) -> list[list[RankedItem]]:
        """`rank` for many queries, each with its own items.

        Raises:
            ValueError: if there are not as many item lists as queries, and as in `rank`.
        """
        if isinstance(queries, str):
            raise ValueError(f"queries: expected a sequence of texts, got the text {queries!r}; see `rank`")
        if len(queries) != len(items):
            raise ValueError(f"{len(queries)} queries but {len(items)} lists of items")
        if top_k is not None and top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {top_k}")
        if activation not in (None, *get_args(Activation)):
            raise ValueError(f"activation must be None, 'sigmoid' or 'softmax', got {activation!r}")
        lowest = self._lowest(min_score)
        lists = [self._list(f"query {i}", *each) for i, each in enumerate(zip(queries, items, strict=True))]
        ranked = []
        for ranking_list, scores in zip(lists, self.score(lists), strict=True):
            order = torch.sort(scores, descending=True, stable=True).indices
            order = order[scores.double()[order] >= lowest][:top_k]
            if activation is not None:
                scores = torch.sigmoid(scores) if activation == "sigmoid" else torch.softmax(scores, dim=0)
            rows = zip(order.tolist(), scores[order].tolist(), strict=True)
            ranked.append([RankedItem(i, ranking_list.items[i], score) for i, score in rows])
        return ranked

    def score(self, lists: Sequence[RankingList]) -> list[Tensor]:
        """Scores of each list's items, float32 [items] on the CPU, in the items' order.

        The lists are read as they are: their texts, or the token ids of a `TokenizedList`.

        Raises:
            ValueError: if a score is not finite; names the list.
        """
        return self._score(lists, self.batch_size)

    def _score(self, lists: Sequence[RankingList], batch_size: int) -> list[Tensor]:
        scores, truncated = self._scorer.score(lists, batch_size)
        if truncated and not self.truncated:
            log.warning("%s cut to the model's limits", counted(truncated, "text"))
        self.truncated += truncated
        return scores

    def explain(self, query: str, items: Sequence[str]) -> list[Explanation]:
        """Each item's score as an exact sum of token contributions, in the items' order, in float32.

        Raises:
            ValueError: if the ranker's score is not such a sum.
        """
        return self.ranker.explain(self._list("query", query, items))

    def predict(
        self, pairs: Sequence[Sequence[str]], batch_size: int | None = None, show_progress_bar: bool = False
    ) -> np.ndarray:
        """Scores of (query, item) pairs in their order, as `CrossEncoder.predict` of sentence-transformers.

        The pairs of one query are one list, wherever they are: a joint ranker scores them together.

        Args:
            pairs: (query, item) each; or a single pair, whose score is then a scalar.
            batch_size: lists per forward pass; None for the reranker's.
            show_progress_bar: whether to show one.

        Returns:
            float32 [pairs].

        Raises:
            ValueError: if `batch_size` is below 1, for what is no pair of texts, and as in `rank`.
        """
        size = self.batch_size if batch_size is None else batch_size
        if size < 1:
            raise ValueError(f"batch_size must be at least 1, got {size}")
        if len(pairs) == 2 and all(isinstance(text, str) for text in pairs):
            return self.predict([pairs])[0]  # type: ignore[list-item]
        positions: dict[str, list[int]] = {}
        for i, pair in enumerate(pairs):
            if len(pair) != 2 or not all(isinstance(text, str) and text.strip() for text in pair):
                raise ValueError(
                    f"pair {i}: expected a query and an item, two texts that are not blank, got {pair!r}"
                )
            positions.setdefault(pair[0], []).append(i)
        lists = [
            self._list(f"pair {own[0]}", query, [pairs[i][1] for i in own])
            for query, own in positions.items()
        ]
        starts: Any = range(0, len(lists), size)
        if show_progress_bar:
            from crossjem_pl.progress import track

            starts = track(starts, description="scoring")
        scores = np.empty(len(pairs), dtype=np.float32)
        numbers = list(positions.values())
        for first in starts:
            found = self._score(lists[first : first + size], size)
            for own, row in zip(numbers[first : first + size], found, strict=True):
                scores[own] = row.numpy()
        return scores

    def tune(
        self,
        lists: Sequence[RankingList] | None = None,
        *,
        passes: bool = True,
        precisions: Sequence[Precision] = ("bfloat16",),
        compile: bool = False,
        bounds: Bounds | None = None,
        rounds: int = 5,
    ) -> TuneReport:
        """Times candidate configurations on this machine and takes the fastest that keeps the ranking.

        One after the other: the passes of CROSS-JEM (N, L_u and their order), the precision, `torch.compile`, each
        with the best of the others until then; see `crossjem_pl.inference.tune`. Calls of other threads go on in the
        configuration in which they began. `save_pretrained` stores the choice with the model.

        Args:
            lists: lists like those to come, with as many items; None for 4 simulated ones of 100.
            passes: whether to try other limits of a pass.
            precisions: lower precisions to try.
            compile: whether to try `torch.compile`, which takes up to a minute, in every process anew.
            bounds: what the scores must keep; None for `Bounds()`.
            rounds: how often each list is timed.

        Raises:
            ValueError: if the ranker runs no network in torch, there are no lists, or an argument is out of range.
        """
        from crossjem_pl.inference.tune import tune

        self._scorer, report = tune(
            self._scorer,
            lists,
            passes=passes,
            precisions=precisions,
            compile=compile,
            bounds=bounds,
            rounds=rounds,
        )
        return report

    def configure(self, configuration: Configuration) -> None:
        """Runs in a configuration that was chosen elsewhere, see `configured`.

        Raises:
            ValueError: if the machine or the ranker cannot run like this.
        """
        self._scorer = configured(self._scorer, configuration)

    def _list(self, query_id: str, query: str, items: Sequence[str]) -> RankingList:
        """The list of these texts, or of these ids of the store."""
        if self._store is None:
            return RankingList.from_texts(query, items, query_id)
        if isinstance(items, str):
            raise ValueError(
                f"list {query_id!r}, field 'items': expected a sequence of ids, got the text {items!r}"
            )
        try:
            tokens = self._store.rows(items)
            states = self._store.states(items) if self.reads_states else None
        except ValueError as error:
            raise ValueError(f"list {query_id!r}, field 'items': {error}") from None
        names = tuple(items)
        return TokenizedList(
            query_id=query_id, query=query, item_ids=names, items=names, tokens=tokens, states=states
        )

    def _lowest(self, min_score: float | Literal["stored"] | None) -> float:
        if min_score is None:
            return -math.inf
        if min_score == "stored":
            stored = self.threshold
            if stored is None:
                raise ValueError(
                    "there is no stored threshold: choose one on labelled lists with `crossjem threshold MODEL LISTS`, "
                    "which stores it in the model folder, or pass one"
                )
            return stored.threshold
        if isinstance(min_score, str) or math.isnan(min_score):
            raise ValueError(f"min_score must be a number or 'stored', got {min_score!r}")
        return min_score


def _available(device: str | torch.device) -> torch.device:
    """The device; a ValueError that names it if this machine does not have it."""
    try:
        torch.empty(0, device=device)
    except (AssertionError, RuntimeError) as error:  # as torch puts it
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device {str(device)!r} is not available: {reason}") from None
    return torch.device(device)


def _run_of(folder: Path) -> Path | None:
    """The run folder that a model folder lies in as `model/`; None if it lies elsewhere."""
    run = folder.resolve().parent
    return run if folder.resolve().name == "model" and (run / "summary.json").is_file() else None
