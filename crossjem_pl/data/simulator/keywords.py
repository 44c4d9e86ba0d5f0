"""Texts of queries and keywords, and the candidate keywords that the retrievers of an ad system would return."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

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

__all__ = ["SOURCES", "Candidate", "misspell", "retrieve", "write"]

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

    Args:
        world: the world that `intent` lives in.
        intent: what is asked for.
        draw: source of numbers in [0, 1).
        canonical: how often the canonical synonym is taken unseen; 0 as users write.
        lookalike: write a text that shares words with `intent` and means something else: a phrase with the product's
            word in another sense, or the product as part of another thing, dressed with the intent's attributes.
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


class Candidate(NamedTuple):
    """A keyword: its text and its true relevance in [0, 1]."""

    text: str
    relevance: float


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


Change = Callable[[World, Intent, Market, Draw], "Intent | None"]
"""Makes a keyword's intent from the query's; None where the query leaves nothing of that kind to change."""


def _replaced(query: Intent, aspect: str, options: tuple[int, ...], draw: Draw) -> Intent | None:
    """The intent with another brand, place or product; None without options."""
    changed: dict[str, Any] = {aspect: _any(options, draw)} if options else {}
    return query._replace(**changed) if changed else None


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
        return _replaced(query, "brand", market.brands, draw)
    if u < 0.25 and query.place == NONE:
        return _replaced(query, "place", market.places, draw)
    if u < 0.5 and world.products[query.product].is_head:
        return _replaced(query, "product", market.products, draw)
    facets = [f for f in world.products[query.product].facets if f not in query.values]
    if not facets:
        return None
    facet = _any(facets, draw)
    return query._replace(values={**query.values, facet: _any(world.facet_values[facet], draw)})


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
    facet = _any(tuple(query.values), draw)
    value = _any(world.facet_values[facet], draw)
    return None if value == query.values[facet] else query._replace(values={**query.values, facet: value})


def _competitor(world: World, query: Intent, market: Market, draw: Draw) -> Intent | None:
    """Another brand or another place."""
    if query.place != NONE and (query.brand == NONE or draw() < 0.5):
        return _replaced(query, "place", market.places, draw)
    return _replaced(query, "brand", market.brands, draw)


def _other_purpose(world: World, query: Intent, market: Market, draw: Draw) -> Intent | None:
    purpose = draw_purpose(world.kinds[world.products[query.product].vertical], draw, 0.85)
    return None if purpose == query.purpose else query._replace(purpose=purpose)


def _sibling(world: World, query: Intent, market: Market, draw: Draw) -> Intent | None:
    """A different product with the same attributes, brand and place: shared words, little relevance."""
    return _replaced(query, "product", market.products, draw)


def _same_product(world: World, query: Intent, market: Market, draw: Draw) -> Intent | None:
    """The product with attributes of its own: what a retriever by product alone returns."""
    brand = _any(market.brands, draw) if draw() < 0.2 and market.brands else NONE
    values = draw_values(world, query.product, int(draw() * 3), draw)
    purpose = draw_purpose(world.kinds[world.products[query.product].vertical], draw, 0.4)
    return Intent(query.product, values, brand, NONE, purpose)


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
    market = _draw_market(world, query, n_items, draw)
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
        score = LOOKALIKE_RELEVANCE if change is None else relevance(world, query, keyword)
        text = write(world, keyword, draw, KEYWORD_CANONICAL_SHARE, lookalike=change is None)
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
