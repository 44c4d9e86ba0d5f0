"""Candidate keywords of a query, as several retrievers of an ad system would return them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

from crossjem_pl.data.simulator.intents import NONE, Draw, Intent, draw_purpose, draw_values, random_intent
from crossjem_pl.data.simulator.relevance import relevance
from crossjem_pl.data.simulator.wording import misspell, word_keyword, word_lookalike
from crossjem_pl.data.simulator.world import World

__all__ = ["SOURCES", "Candidate", "Market", "draw_market", "retrieve"]

LOOKALIKE_RELEVANCE = 0.01
KEYWORD_MISSPELLING_SHARE = 0.02
_MAX_REPEATS = 8
"""Texts drawn in vain, because the list has them already, after which a slot is filled with any keyword."""


class Candidate(NamedTuple):
    """A keyword: its text and its true relevance in [0, 1]."""

    text: str
    relevance: float


class Market(NamedTuple):
    """The other brands, places and products that bid on one query; its keywords draw from these few."""

    brands: tuple[int, ...]
    places: tuple[int, ...]
    products: tuple[int, ...]


def draw_market(world: World, query: Intent, n_items: int, draw: Draw) -> Market:
    """Up to 2 other brands, 3 places and 4 products of the query's family, one more of each per 150 items."""
    product = world.products[query.product]
    extra = n_items // 150
    brands = world.vertical_brands[product.vertical]
    rivals = [brands[int(draw() * len(brands))] for _ in range(2 + extra)]
    towns = len(world.towns)
    region = world.region_of(query.place) if query.place != NONE else int(draw() * len(world.regions))
    per_region = towns // len(world.regions)
    places = [towns + region, region * per_region + int(draw() * per_region)]
    places += [int(draw() * towns) for _ in range(1 + extra)]
    family = world.families[product.family]
    products = [family[int(draw() * len(family))] for _ in range(4 + extra)]
    return Market(
        tuple(b for b in rivals if b != query.brand),
        tuple(p for p in places if p != query.place),
        tuple(p for p in products if p != query.product),
    )


Change = Callable[[World, Intent, Market, Draw], "Intent | None"]
"""Makes a keyword's intent from the query's; None where the query leaves nothing of that kind to change."""


def _pick(options: tuple[int, ...], draw: Draw) -> int | None:
    return options[int(draw() * len(options))] if options else None


def _shortened(query: Intent, draw: Draw) -> Intent:
    """The query's intent with each attribute, the brand, the place and the purpose left out at random."""
    return Intent(
        query.product,
        {facet: value for facet, value in query.values.items() if draw() < 0.65},
        query.brand if draw() < 0.5 else NONE,
        query.place if draw() < 0.6 else NONE,
        query.purpose if draw() < 0.4 else "get",
    )


def _same(world: World, query: Intent, market: Market, draw: Draw) -> Intent | None:
    return query


def _narrower(world: World, query: Intent, market: Market, draw: Draw) -> Intent | None:
    """One more attribute, or a brand, or a place; or a kind of the generic product."""
    u = draw()
    if u < 0.15 and query.brand == NONE:
        brand = _pick(market.brands, draw)
        return None if brand is None else query._replace(brand=brand)
    if u < 0.25 and query.place == NONE:
        place = _pick(market.places, draw)
        return None if place is None else query._replace(place=place)
    if u < 0.5 and world.products[query.product].is_head:
        product = _pick(market.products, draw)
        return None if product is None else query._replace(product=product)
    facets = [f for f in world.products[query.product].facets if f not in query.values]
    if not facets:
        return None
    facet = facets[int(draw() * len(facets))]
    options = world.facet_values[facet]
    return query._replace(values={**query.values, facet: options[int(draw() * len(options))]})


def _broader(world: World, query: Intent, market: Market, draw: Draw) -> Intent | None:
    """The family's generic product, or the product with fewer attributes."""
    head = world.families[world.products[query.product].family][0]
    if draw() < 0.3:
        return None if head == query.product else query._replace(product=head)
    return query._replace(values={f: v for f, v in query.values.items() if draw() < 0.5})


def _other_value(world: World, query: Intent, market: Market, draw: Draw) -> Intent | None:
    """One attribute conflicts."""
    if not query.values:
        return None
    facets = tuple(query.values)
    facet = facets[int(draw() * len(facets))]
    options = world.facet_values[facet]
    value = options[int(draw() * len(options))]
    if value == query.values[facet]:
        return None
    return query._replace(values={**query.values, facet: value})


def _competitor(world: World, query: Intent, market: Market, draw: Draw) -> Intent | None:
    """Another brand or another place."""
    if query.place != NONE and (query.brand == NONE or draw() < 0.5):
        place = _pick(market.places, draw)
        return None if place is None else query._replace(place=place)
    brand = _pick(market.brands, draw)
    return None if brand is None else query._replace(brand=brand)


def _other_purpose(world: World, query: Intent, market: Market, draw: Draw) -> Intent | None:
    purpose = draw_purpose(world.kinds[world.products[query.product].vertical], draw, 0.85)
    return None if purpose == query.purpose else query._replace(purpose=purpose)


def _sibling(world: World, query: Intent, market: Market, draw: Draw) -> Intent | None:
    """A different product with the same attributes, brand and place: shared words, little relevance."""
    product = _pick(market.products, draw)
    return None if product is None else query._replace(product=product)


def _same_product(world: World, query: Intent, market: Market, draw: Draw) -> Intent | None:
    """The product with attributes of its own: what a retriever by product alone returns."""
    brand = _pick(market.brands, draw) if draw() < 0.2 else None
    values = draw_values(world, query.product, int(draw() * 3), draw)
    purpose = draw_purpose(world.kinds[world.products[query.product].vertical], draw, 0.4)
    return Intent(query.product, values, NONE if brand is None else brand, NONE, purpose)


def _related(world: World, query: Intent, market: Market, draw: Draw) -> Intent | None:
    """Any keyword of the query's vertical."""
    return random_intent(world, world.products[query.product].vertical, draw)


SOURCES: dict[str, tuple[float, Change | None]] = {
    "same": (0.05, _same),
    "narrower": (0.06, _narrower),
    "broader": (0.12, _broader),
    "other value": (0.17, _other_value),
    "competitor": (0.10, _competitor),
    "other purpose": (0.08, _other_purpose),
    "sibling": (0.15, _sibling),
    "same product": (0.06, _same_product),
    "lookalike": (0.14, None),
    "related": (0.07, _related),
}
"""Retrievers: the share of the tries each makes, and how it makes an intent (None: a look-alike phrase)."""

_CHANGES = tuple(change for _, change in SOURCES.values())
_FAITHFUL = (_same, _narrower, None)
"""Sources that keep all that the query asks for; the others first forget parts of it."""
_BOUNDS = tuple(accumulate(share for share, _ in SOURCES.values()))[:-1]


def retrieve(world: World, query: Intent, n_items: int, draw: Draw) -> list[Candidate]:
    """`n_items` keywords with different texts, in no informative order.

    Args:
        world: the world that `query` lives in.
        query: what the query asks for.
        n_items: number of keywords, at least 1.
        draw: source of numbers in [0, 1).
    """
    market = draw_market(world, query, n_items, draw)
    found: dict[str, float] = {}
    repeats = 0
    while len(found) < n_items:
        change: Change | None = _related
        if repeats < _MAX_REPEATS:
            change = _CHANGES[bisect_right(_BOUNDS, draw())]
        base = query if change in _FAITHFUL else _shortened(query, draw)
        keyword = base if change is None else change(world, base, market, draw)
        if keyword is None:
            continue
        if change is None:
            text, score = word_lookalike(world, keyword, draw), LOOKALIKE_RELEVANCE
        else:
            text, score = word_keyword(world, keyword, draw), relevance(world, query, keyword)
        if draw() < KEYWORD_MISSPELLING_SHARE:
            text = misspell(world, text, draw)
        if text in found:
            repeats += 1
            continue
        repeats = 0
        found[text] = score
    candidates = [Candidate(text, score) for text, score in found.items()]
    order = sorted(range(n_items), key=[draw() for _ in range(n_items)].__getitem__)
    return [candidates[i] for i in order]
