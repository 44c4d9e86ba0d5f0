"""Texts of queries and keywords, and the candidate keywords that the retrievers of an ad system would return."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple, TypeVar

from crossjem_pl.data.simulator.intents import (
    NONE,
    Draw,
    Intent,
    draw_purpose,
    draw_values,
    random_intent,
    relevance,
)
from crossjem_pl.data.simulator.world import World

__all__ = ["SOURCES", "misspell", "retrieve", "write"]

T = TypeVar("T")

KEYWORD_CANONICAL_SHARE = 0.4
"""Advertisers lean to the canonical synonym, users write every one alike: a gap between the two vocabularies."""
LOOKALIKE_RELEVANCE = 0.01
KEYWORD_MISSPELLING_SHARE = 0.02
_PLURAL_SHARE = 0.5
_TRAILING_SHARE = 0.25
_TRAILING_BRAND_SHARE = 0.2
_PLACE_PATTERNS = ("* in {}", "* {}", "* {}", "{} *", "* near {}")
_LITERAL_SHARE = 0.4
_MAX_REPEATS = 8
"""Texts drawn in vain, because the list has them already, after which a slot is filled with any keyword."""


def _any(options: Sequence[T], draw: Draw) -> T:
    return options[int(draw() * len(options))]


def _synonym(options: Sequence[T], draw: Draw, canonical: float) -> T:
    """The canonical (first) option with probability `canonical`, otherwise any of the options."""
    u = draw()
    return options[0] if u < canonical else options[int((u - canonical) / (1.0 - canonical) * len(options))]


def write(world: World, intent: Intent, draw: Draw, canonical: float = 0.0, lookalike: bool = False) -> str:
    """One way to write `intent`, without misspellings.

    `canonical` is how often the canonical synonym is taken unseen. A `lookalike` shares words with the intent and means
    something else: a phrase with the product's word in another sense, or the product as part of another thing.
    """
    product = world.products[intent.product]
    kind = world.kinds[product.vertical]
    if lookalike and draw() < _LITERAL_SHARE:
        text = _any(world.lookalikes[product.family], draw)
    else:
        pattern = _any(kind.lookalikes, draw) if lookalike else "*"
        singular, plural = _synonym(product.names, draw, canonical)
        text = pattern.replace("*", plural if draw() < _PLURAL_SHARE else singular)
    for value in intent.values.values():
        entry = world.values[value]
        words = _synonym(entry.synonyms, draw, canonical)
        if entry.placement == "post":
            text = f"{text} {words}"
        elif entry.placement == "for":
            text = f"{text} for {words}" if draw() < 0.5 else f"{words} {text}"
        else:
            text = f"{text} {words}" if draw() < _TRAILING_SHARE else f"{words} {text}"
    if intent.brand != NONE:
        brand = world.brands[intent.brand]
        text = f"{text} {brand}" if draw() < _TRAILING_BRAND_SHARE else f"{brand} {text}"
    text = _any(kind.purposes[intent.purpose], draw).replace("*", text)
    if intent.place != NONE:
        text = _any(_PLACE_PATTERNS, draw).format(world.place_name(intent.place)).replace("*", text)
    return text


def misspell(world: World, text: str, draw: Draw) -> str:
    """`text` with one of its words, drawn at random, misspelt; unchanged if that word has no misspelling."""
    words = text.split()
    i = int(draw() * len(words))
    forms = world.misspellings.get(words[i])
    if forms is None:
        return text
    words[i] = _any(forms, draw)
    return " ".join(words)


class Market(NamedTuple):
    """The other brands, places and products that bid on one query; its keywords draw from these few."""

    brands: tuple[int, ...]
    places: tuple[int, ...]
    products: tuple[int, ...]


def _draw_market(world: World, query: Intent, n_items: int, draw: Draw) -> Market:
    """Up to 2 other brands, 3 places and 4 products of the query's family, one more of each per 150 items."""
    product = world.products[query.product]
    extra = n_items // 150
    rivals = [_any(world.vertical_brands[product.vertical], draw) for _ in range(2 + extra)]
    towns = len(world.towns)
    region = world.region_of(query.place) if query.place != NONE else int(draw() * len(world.regions))
    per_region = towns // len(world.regions)
    places = [towns + region, region * per_region + int(draw() * per_region)]
    places += [int(draw() * towns) for _ in range(1 + extra)]
    products = [_any(world.families[product.family], draw) for _ in range(4 + extra)]
    return Market(
        tuple(b for b in rivals if b != query.brand),
        tuple(p for p in places if p != query.place),
        tuple(p for p in products if p != query.product),
    )


SOURCES = {
    "same": 0.05, "narrower": 0.06, "broader": 0.12, "other value": 0.17, "competitor": 0.10, "other purpose": 0.08,
    "sibling": 0.15, "same product": 0.06, "lookalike": 0.14, "related": 0.07,
}  # fmt: skip
"""Retrievers, and the share of the tries that each makes; docs/simulator.md says what each returns."""
_NAMES = tuple(SOURCES)
_BOUNDS = tuple(accumulate(SOURCES.values()))[:-1]
_FAITHFUL = ("same", "narrower", "lookalike")
"""Sources that keep all that the query asks for; the others first forget parts of it."""


def _shortened(query: Intent, draw: Draw) -> Intent:
    """The query's intent with each attribute, the brand, the place and the purpose left out at random."""
    return Intent(
        query.product,
        {facet: value for facet, value in query.values.items() if draw() < 0.65},
        query.brand if draw() < 0.5 else NONE,
        query.place if draw() < 0.6 else NONE,
        query.purpose if draw() < 0.4 else "get",
    )


def _keyword(world: World, source: str, query: Intent, market: Market, draw: Draw) -> Intent | None:
    """A keyword's intent, made from the query's; None where the query leaves nothing of that kind to change."""
    product = world.products[query.product]
    replaced: str | None = None
    if source == "narrower":
        u = draw()
        if u < 0.15 and query.brand == NONE:
            replaced = "brand"
        elif u < 0.25 and query.place == NONE:
            replaced = "place"
        elif u < 0.5 and product.is_head:
            replaced = "product"
        else:
            facets = [facet for facet in product.facets if facet not in query.values]
            if not facets:
                return None
            facet = _any(facets, draw)
            return query._replace(values={**query.values, facet: _any(world.facet_values[facet], draw)})
    elif source == "broader":
        head = world.families[product.family][0]
        if draw() < 0.3:
            return None if head == query.product else query._replace(product=head)
        return query._replace(values={f: v for f, v in query.values.items() if draw() < 0.5})
    elif source == "other value":
        if not query.values:
            return None
        facet = _any(tuple(query.values), draw)
        value = _any(world.facet_values[facet], draw)
        return None if value == query.values[facet] else query._replace(values={**query.values, facet: value})
    elif source == "competitor":
        other_place = query.place != NONE and (query.brand == NONE or draw() < 0.5)
        replaced = "place" if other_place else "brand"
    elif source == "other purpose":
        purpose = draw_purpose(world.kinds[product.vertical], draw, 0.85)
        return None if purpose == query.purpose else query._replace(purpose=purpose)
    elif source == "sibling":
        replaced = "product"
    elif source == "same product":
        brand = _any(market.brands, draw) if draw() < 0.2 and market.brands else NONE
        values = draw_values(world, query.product, int(draw() * 3), draw)
        purpose = draw_purpose(world.kinds[product.vertical], draw, 0.4)
        return Intent(query.product, values, brand, NONE, purpose)
    elif source == "related":
        return random_intent(world, product.vertical, draw)
    if replaced is None:
        return query
    options = getattr(market, f"{replaced}s")
    return query._replace(**{replaced: _any(options, draw)}) if options else None


def retrieve(world: World, query: Intent, n_items: int, draw: Draw) -> list[tuple[str, float]]:
    """`n_items` keywords with different texts, in no informative order, each with its true relevance in [0, 1]."""
    market = _draw_market(world, query, n_items, draw)
    found: dict[str, float] = {}
    repeats = 0
    while len(found) < n_items:
        source = "related" if repeats >= _MAX_REPEATS else _NAMES[bisect_right(_BOUNDS, draw())]
        base = query if source in _FAITHFUL else _shortened(query, draw)
        keyword = _keyword(world, source, base, market, draw)
        if keyword is None:
            continue
        lookalike = source == "lookalike"
        score = LOOKALIKE_RELEVANCE if lookalike else relevance(world, query, keyword)
        text = write(world, keyword, draw, KEYWORD_CANONICAL_SHARE, lookalike)
        if draw() < KEYWORD_MISSPELLING_SHARE:
            text = misspell(world, text, draw)
        if text in found:
            repeats += 1
            continue
        repeats = 0
        found[text] = score
    keys = [draw() for _ in range(n_items)]
    return [pair for _, pair in sorted(zip(keys, found.items(), strict=True), key=lambda keyed: keyed[0])]
