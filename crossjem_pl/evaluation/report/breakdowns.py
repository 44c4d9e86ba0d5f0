"""The section that says on which kinds of lists the systems do well."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from crossjem_pl.evaluation.report.buckets import Breakdown, break_down, word_overlap
from crossjem_pl.evaluation.report.contents import Block, Figure, Missing, Paragraph, Section, Table
from crossjem_pl.evaluation.report.figures import draw_breakdown
from crossjem_pl.text import ShortTextTokenizer

__all__ = ["breakdown_section"]

_NO_LIMIT = 1 << 30
"""Tokens of an item: none are cut off for the count."""


def breakdown_section(
    scores: Mapping[str, Mapping[str, float]],
    qrels: Mapping[str, Mapping[str, int]],
    texts: tuple[Mapping[str, str], Mapping[str, Mapping[str, str]]],
    per_query: pd.DataFrame,
    metric: str,
    draw: bool,
    tokenizer: ShortTextTokenizer | None = None,
    no_texts: str = "",
) -> Section:
    """The metric by words of the query, overlap of the items, and, where they vary, items and relevant items.

    Args:
        scores: of the run whose lists are looked at, query id -> item id -> score.
        qrels: query id -> item id -> grade.
        texts: query id -> text, and query id -> item id -> text; what is absent is counted and left out.
        per_query: index query id, one column of values of `metric` per system.
        metric: its name.
        draw: whether plots are wanted.
        tokenizer: counts the overlap in its tokens in place of words.
        no_texts: why there are no texts, if there are none.
    """
    query_texts, item_texts = texts
    judged = set(map(str, per_query.index))
    blocks: list[Block] = []
    if not judged & query_texts.keys():
        blocks.append(Missing(f"By words of the query and by overlap of the items: {no_texts}"))
    else:
        words = {query: float(len(text.split())) for query, text in query_texts.items() if query in judged}
        unit, count = _overlap(tokenizer)
        overlap = {
            query: count(list(items.values())) for query, items in item_texts.items() if query in judged
        }
        blocks += _blocks(break_down("words of the query", words, per_query, metric), "query-words", draw)
        found = break_down(f"overlap of the items in {unit}", overlap, per_query, metric)
        blocks += _blocks(found, "item-overlap", draw)
        blocks.append(
            Paragraph(
                f"Overlap is the number of {unit} in all items of a list over the number of distinct ones: 1 where "
                "nothing is shared. "
                + ("White space parts words and case is ignored." if tokenizer is None else "No item is cut.")
            )
        )
    sizes = {query: float(len(items)) for query, items in scores.items() if query in judged}
    positives = {
        query: float(sum(qrels[query].get(item, 0) >= 1 for item in items))
        for query, items in scores.items()
        if query in judged
    }
    same = []
    for name, title, values in (
        ("items", "items of the list", sizes),
        ("relevant-items", "relevant items in the list", positives),
    ):
        if len(set(values.values())) > 1:
            blocks += _blocks(break_down(title, values, per_query, metric), name, draw)
        else:
            same.append(
                f"All lists have {next(iter(values.values())):,.0f} {title.partition(' of ')[0].partition(' in ')[0]}."
            )
    if same:
        blocks.append(Paragraph(" ".join(same)))
    blocks.append(
        Paragraph(
            "Lists are split into up to five groups of about equal size by the property; lists with one value stay "
            "together. In brackets: 95% bootstrap intervals. Groups differ in more than the property, so a "
            "difference between groups is an observation and not an effect."
        )
    )
    # the plots side by side first, where there is room; sorting keeps the order otherwise
    return Section("On which lists", tuple(sorted(blocks, key=lambda block: not isinstance(block, Figure))))


def _overlap(tokenizer: ShortTextTokenizer | None) -> tuple[str, Callable[[Sequence[str]], float]]:
    if tokenizer is None:
        return "words", word_overlap

    def of_tokens(items: Sequence[str]) -> float:
        values = tokenizer.encode(items, _NO_LIMIT).tokens.values
        return len(values) / len(set(values.tolist()))

    return "tokens", of_tokens


def _blocks(found: Breakdown, name: str, draw: bool) -> list[Block]:
    systems = list(found.buckets[0].means)
    heading = found.property[0].upper() + found.property[1:]
    rows = tuple(
        (
            bucket.label,
            f"{bucket.queries:,}",
            *(
                f"{mean:.4f} [{low:.4f}, {high:.4f}]"
                for mean, low, high in (bucket.means[s] for s in systems)
            ),
        )
        for bucket in found.buckets
    )
    columns = (heading, "Lists", *(systems if len(systems) > 1 else [found.metric]))
    blocks: list[Block] = [Figure(f"by-{name}", draw_breakdown(found))] if draw else []
    blocks.append(Table(columns, rows))
    if found.left_out:
        blocks.append(Missing(f"{found.left_out:,} judged queries are not in it: no run holds their lists."))
    return blocks
