"""More training lists from the items of lists: queries by templates, or by a sequence-to-sequence model.

A model that writes queries for documents is doc2query (Nogueira et al., 2019, arXiv 1904.08375); training re-rankers
on such queries is InPars (Bonifacio et al., SIGIR 2022).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from string import Formatter

import numpy as np

from crossjem_pl.data.checks import normalise
from crossjem_pl.data.formats import read_lists
from crossjem_pl.data.shards import Manifest
from crossjem_pl.files import existing, read_lines
from crossjem_pl.hashing import content_id, text_key
from crossjem_pl.lists import RankingList
from crossjem_pl.prepare.output import fingerprint, one_line, write_part
from crossjem_pl.progress import track

__all__ = ["read_templates", "template_queries", "write_augmented"]

TEMPLATES = ("{words}",)
_BLOCK = 32
SENTENCES = {
    "known_queries": "queries left out, their text is one of the lists', of the held-out lists or an earlier one",
    "blank_queries": "queries left out, they are blank",
    "short_lists": "drawn items left out, their list has no other item without a positive label",
}

Write = Callable[[Sequence[str], np.random.Generator], list[str]]
"""One query for each item text, from them and a source of random numbers."""


def write_augmented(
    lists: Path,
    out: Path,
    *,
    templates: Path | None = None,
    model: str | None = None,
    prompt: str = "{item}",
    per_list: int = 1,
    held_out: Sequence[Path] = (),
    max_query_tokens: int = 24,
    seed: int = 0,
) -> Manifest:
    """Writes `out/augmented.parquet/`: for items drawn from each list a new query, for which the item has label 1.

    The other items of its list have label 0, but those that the list itself labels above 0, which may well answer the
    new query too and are left out. Query texts that exist already, but for case and white space, are not written
    again.

    Args:
        lists: lists in any layout that `read_lists` understands.
        out: folder to fill; a finished one of the same input and options is left as it is.
        templates: file with a template in each line, see `read_templates`; one is drawn for each query. By default
            "{words}".
        model: folder or hub id of a sequence-to-sequence model that writes the queries, in place of templates.
        prompt: what the model reads, "{item}" for the item.
        per_list: items drawn from each list.
        held_out: lists whose queries are not written, such as dev and test.
        max_query_tokens: longest query of the model.
        seed: of all draws.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: templates and model together, a bad template, `per_list` below 1, or malformed lists (names file,
            line and field).
    """
    if templates is not None and model is not None:
        raise ValueError("templates and a model are two ways to write queries; give one of them")
    if per_list < 1 or max_query_tokens < 1:
        raise ValueError("per_list and max_query_tokens must be at least 1")
    texts = TEMPLATES if templates is None else read_templates(templates)
    _check_template(prompt, "prompt", ("item",))
    made_of = {
        "command": "augment",
        "lists": fingerprint(existing(lists, "lists")),
        "held_out": [fingerprint(existing(path, "lists")) for path in held_out],
        "queries": [model, prompt, max_query_tokens] if model else list(texts),
        "per_list": per_list,
        "seed": seed,
    }

    def make(counts: Counter[str]) -> Iterator[RankingList]:
        write = template_queries(texts) if model is None else _model_queries(model, prompt, max_query_tokens)
        known = {text_key(normalise(one.query)) for path in (lists, *held_out) for one in _read(path)}
        drawn = _drawn(track(_read(lists), "queries"), per_list, seed, counts)
        for number in count():
            block = list(islice(drawn, _BLOCK))
            if not block:
                return
            items = [one.items[position] for one, position in block]
            queries = write(items, np.random.default_rng([seed, number, 1]))
            for (one, position), query in zip(block, queries, strict=True):
                key = text_key(normalise(query))
                if not query or key in known:
                    counts["known_queries" if query else "blank_queries"] += 1
                    continue
                known.add(key)
                yield _list(one, position, query)

    return write_part(out, "augmented", made_of, make, SENTENCES)


def read_templates(path: Path) -> list[str]:
    """The templates of a file, one a line: "{item}" stands for the item, "{words}" for a run of its words.

    Raises:
        ValueError: names file and line of a template with neither, or with other fields; or an empty file.
    """
    templates = []
    for number, line in read_lines(path):
        _check_template(line, f"{path}, line {number}", ("item", "words"))
        templates.append(line.strip())
    if not templates:
        raise ValueError(f"{path}: the file has no templates")
    return templates


def _check_template(text: str, where: str, fields: Sequence[str]) -> None:
    try:
        found = [name for _, name, *_ in Formatter().parse(text) if name is not None]
        if not found or not {*found} <= {*fields}:
            raise ValueError(f"it names {found or 'no field'}")
    except ValueError as error:
        wanted = " and ".join(f"{{{name}}}" for name in fields)
        raise ValueError(f"{where}: not a template with {wanted} ({error}): {text.strip()[:80]!r}") from None


def _read(path: Path) -> Iterator[RankingList]:
    return read_lists(path, score_column=None)


def _drawn(
    lists: Iterable[RankingList], per_list: int, seed: int, counts: Counter[str]
) -> Iterator[tuple[RankingList, int]]:
    """A list and the position of one of its items, for each query to write."""
    for number, one in enumerate(lists):
        for position in np.random.default_rng([seed, number]).permutation(len(one))[:per_list].tolist():
            if _others(one, position):
                yield one, position
            else:
                counts["short_lists"] += 1


def _others(one: RankingList, position: int) -> list[int]:
    """The items that are irrelevant for a query made of the item at `position`."""
    text, labels = one.items[position], one.labels or (0.0,) * len(one)
    return [i for i, item in enumerate(one.items) if item != text and labels[i] <= 0]


def _list(one: RankingList, position: int, query: str) -> RankingList:
    """The new list, its items in their order; no scores, which are a teacher's for another query."""
    chosen = one.select(sorted([position, *_others(one, position)]))
    item_id = one.item_ids[position]
    labels = tuple(float(other == item_id) for other in chosen.item_ids)
    return RankingList(content_id(query), query, chosen.item_ids, chosen.items, labels)


def template_queries(templates: Sequence[str]) -> Write:
    """Queries of one of the templates each. "{words}" is a run of at least half of an item's words, never all of two or
    more."""

    def write(items: Sequence[str], draw: np.random.Generator) -> list[str]:
        queries = []
        for item in items:
            words = item.split()
            size = int(draw.integers((len(words) + 1) // 2, max(len(words), 2)))
            start = int(draw.integers(len(words) - size + 1))
            template = templates[int(draw.integers(len(templates)))]
            queries.append(one_line(template.format(item=item, words=" ".join(words[start : start + size]))))
        return queries

    return write


def _model_queries(name: str, prompt: str, max_tokens: int) -> Write:
    """Queries that a sequence-to-sequence model samples (of the ten likeliest tokens)."""
    import torch
    from transformers import AutoModelForSeq2SeqLM

    from crossjem_pl.rankers.encoders import load_encoder, load_tokenizer

    tokenizer = load_tokenizer(name, cls_and_sep=False)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load_encoder(name, {}, AutoModelForSeq2SeqLM).to(device).eval()

    def write(items: Sequence[str], draw: np.random.Generator) -> list[str]:
        prompts = [prompt.format(item=item) for item in items]
        inputs = tokenizer(prompts, padding=True, return_tensors="pt")
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(int(draw.integers(2**31)))
            tokens = model.generate(  # type: ignore[operator]
                **{name: inputs[name].to(device) for name in ("input_ids", "attention_mask")},
                do_sample=True,
                top_k=10,
                max_new_tokens=max_tokens,
            )
        return [one_line(text) for text in tokenizer.batch_decode(tokens, skip_special_tokens=True)]

    return write
