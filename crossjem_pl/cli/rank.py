"""`crossjem rank`: a ranked table of items for one query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from crossjem_pl.cli.command import make_table, new_console
from crossjem_pl.process import importing

if TYPE_CHECKING:
    from crossjem_pl.rankers.base import Explanation

__all__ = ["rank"]


def rank(
    texts: Sequence[str],
    *,
    model: str | None = None,
    items: Path | None = None,
    store: Path | None = None,
    top_k: int | None = None,
    activation: Literal["none", "sigmoid", "softmax"] = "none",
    filter: bool = False,
    threshold: float | None = None,
    explain: bool = False,
    json: bool = False,
    device: str | None = None,
) -> None:
    """Ranks items for one query.

    Args:
        texts: [MODEL] QUERY ITEM [ITEM ...]. The first is a model if it is a model folder or starts with `packaged:`;
            then the query and the items (ids with --store). Without a model: the packaged sentence encoder.
        model: model folder, packaged name or hub repository; then the first text is the query.
        items: text file, one item per line.
        store: token store whose ids the items are.
        top_k: print only the best so many.
        activation: of the scores that are printed.
        filter: print only items at or above the threshold that `crossjem threshold` stored with the model.
        threshold: print only items with at least this score.
        explain: print what each token adds to the score.
        json: print one JSON object instead of a table.
        device: cpu, cuda, ...; by default a GPU if there is one.
    """
    if filter and threshold is not None:
        raise ValueError("give one of --filter and --threshold")
    if model is None:
        model, texts = _model_and_texts(texts)
    every = [*texts[1:], *(_read_items(items) if items else [])]
    if not texts or not every:
        raise ValueError("no items: give them after the query, or with --items FILE")
    query = texts[0]
    with importing():
        from crossjem_pl.inference import Reranker
        from crossjem_pl.rankers.encoders import PACKAGED

    reranker = Reranker(model or PACKAGED, device=device)
    if store is not None:
        from crossjem_pl.text.token_store import TokenStore

        reranker.store = TokenStore.open(store)
    ranked = reranker.rank(
        query,
        every,
        top_k=top_k,
        min_score="stored" if filter else threshold,
        activation=None if activation == "none" else activation,
    )
    explanations = reranker.explain(query, every) if explain else []
    if json:
        rows = [asdict(row) for row in ranked]
        for row in rows if explain else ():
            row["contributions"] = [asdict(c) for c in explanations[row["index"]].contributions]
        print(dumps({"query": query, "items": rows, "truncated": reranker.truncated}, ensure_ascii=False))
        return
    header = ["rank", "score", "item", *(["contributions (they sum to the score)"] if explain else [])]
    cells = [
        [place, f"{item.score:.4f}", item.text, *map(_contributions, explanations[item.index :][:1])]
        for place, item in enumerate(ranked, 1)
    ]
    new_console().print(make_table(f"query: {query}", header, cells, left=4))
    if filter or threshold is not None:
        stored = reranker.threshold if filter else None
        score = threshold if stored is None else stored.threshold
        why = f", which {stored.meaning} (on {stored.lists:,} lists)" if stored is not None else ""
        best = "" if top_k is None else f"the best {top_k} of "
        print(f"{len(ranked)} of {len(every)} items: {best}those that score at least {score:.6g}{why}")
    if model is None:
        print(f"scores: {PACKAGED} as it is, not trained on your lists; see crossjem fit")


def _model_and_texts(texts: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """The model, None for the default, and the query with its items."""
    first = texts[0]
    files = ("config.json", "modules.json", "export.json", "model/config.json")  # the last: of a run's folder
    if first.startswith("packaged:") or any((Path(first) / file).is_file() for file in files):
        return first, texts[1:]
    if "/" in first and not any(letter.isspace() for letter in first):
        raise ValueError(
            f"{first!r} looks like a model, but no such folder holds one (config.json). For a model of the Hugging "
            f"Face hub, or if {first!r} is the query: crossjem rank --model MODEL QUERY ITEM ..."
        )
    return None, texts


def _read_items(path: Path) -> list[str]:
    """The lines of a text file, none of which may be blank."""
    from crossjem_pl.files import read_lines

    lines = list(read_lines(path, blank=True))
    for number, line in lines:
        if not line.strip():
            raise ValueError(f"{path}, line {number}: blank line; each line is one item")
    return [line for _, line in lines]


def _contributions(explanation: Explanation) -> str:
    """What the item's tokens add, the largest first, then query and bias together."""
    parts = sorted(explanation.contributions, key=lambda c: -abs(c.value))
    shown = [f"{c.token} {c.value:+.3f}" for c in parts if c.part == "item"]
    rest = [c.value for c in parts if c.part != "item"]
    return ", ".join([*shown, *([f"query and bias {sum(rest):+.3f}"] if rest else [])])
