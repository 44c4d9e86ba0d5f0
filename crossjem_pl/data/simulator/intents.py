"""Latent intents: what a query or a keyword asks for, how queries draw one, its split, and the true relevance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Literal, NamedTuple, get_args

from crossjem_pl.data.simulator.world import Kind, World

__all__ = ["NONE", "SPLITS", "Draw", "Intent", "Split", "draw_purpose", "draw_query_intent", "draw_values",
           "random_intent", "relevance", "signature", "split_of"]  # fmt: skip

Draw = Callable[[], float]
Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
NONE = -1
"""No brand, or no place."""

_REGION_SHARE = 0.2
_HEAD_SHARE = 0.12
_PURPOSE_SHARE = 0.35
_FACET_COUNTS = (0.22, 0.74, 0.96)
"""Probabilities that a query asks for 0, at most 1, at most 2 attributes; otherwise it asks for 3."""

BROADER, NARROWER, SIBLING, SAME_VERTICAL = 0.5, 0.75, 0.1, 0.02
MISSING_VALUE, EXTRA_VALUE = 0.7, 0.85
MISSING_BRAND, EXTRA_BRAND, OTHER_BRAND = 0.6, 0.8, 0.25
MISSING_PLACE, EXTRA_PLACE, OTHER_PLACE = 0.65, 0.4, 0.04
IN_ITS_REGION, SAME_REGION = 0.7, 0.3
DEFAULT_PURPOSE = 0.2  # where `World.purpose_relevance` says nothing


class Intent(NamedTuple):
    """A product with wanted attribute values, a brand, a place and a purpose; never changed in place.

    Args:
        product: index into `World.products`.
        values: facet -> value, in the order in which they were asked for.
        brand: index into `World.brands`, or `NONE`.
        place: a town or region (see `World.place_name`), or `NONE`.
        purpose: key of `Kind.purposes`; "get" is the default.
    """

    product: int
    values: Mapping[int, int]
    brand: int
    place: int
    purpose: str


def draw_values(world: World, product: int, count: int, draw: Draw) -> dict[int, int]:
    """`count` values of different facets of `product` (fewer if it has fewer facets)."""
    facets = list(world.products[product].facets)
    values: dict[int, int] = {}
    for _ in range(min(count, len(facets))):
        facet = facets.pop(int(draw() * len(facets)))
        options = world.facet_values[facet]
        values[facet] = options[int(draw() * len(options))]
    return values


def draw_query_intent(world: World, draw: Draw) -> Intent:
    """An intent as queries have them, from generic to specific."""
    families = world.verticals[int(draw() * len(world.verticals))]
    family = world.families[families[int(draw() * len(families))]]
    product = family[0] if draw() < _HEAD_SHARE else family[1 + int(draw() * (len(family) - 1))]
    vertical = world.products[product].vertical
    kind = world.kinds[vertical]
    u = draw()
    values = draw_values(world, product, sum(u >= bound for bound in _FACET_COUNTS), draw)
    brand = place = NONE
    if draw() < kind.brand_share:
        brands = world.vertical_brands[vertical]
        brand = brands[int(draw() * len(brands))]
    if draw() < kind.place_share:
        place = draw_place(world, draw)
    return Intent(product, values, brand, place, draw_purpose(kind, draw))


def draw_place(world: World, draw: Draw) -> int:
    """A region with probability 0.2, otherwise a town."""
    if draw() < _REGION_SHARE:
        return len(world.towns) + int(draw() * len(world.regions))
    return int(draw() * len(world.towns))


def draw_purpose(kind: Kind, draw: Draw, share: float = _PURPOSE_SHARE) -> str:
    """ "get" with probability 1 - share, otherwise any other purpose; early ones are likelier."""
    if draw() >= share:
        return "get"
    others = tuple(kind.purposes)[1:]
    u = draw()
    return others[int(u * u * len(others))]


def random_intent(world: World, vertical: int, draw: Draw) -> Intent:
    """Any keyword of a vertical."""
    families = world.verticals[vertical]
    family = world.families[families[int(draw() * len(families))]]
    product = family[int(draw() * len(family))]
    values = draw_values(world, product, int(draw() * 3), draw)
    brand = place = NONE
    u = draw()
    if u < 0.2:
        brands = world.vertical_brands[vertical]
        brand = brands[int(draw() * len(brands))]
    elif u < 0.3:
        place = draw_place(world, draw)
    return Intent(product, values, brand, place, draw_purpose(world.kinds[vertical], draw, 0.3))


def signature(world: World, intent: Intent) -> str:
    """The sorted canonical words of product, values, brand and place; purpose and word order play no part."""
    words = world.products[intent.product].names[0][0].split()
    for value in intent.values.values():
        words += world.values[value].synonyms[0].split()
    if intent.brand != NONE:
        words.append(world.brands[intent.brand])
    if intent.place != NONE:
        words += world.place_name(intent.place).split()
    return " ".join(sorted(words))


def split_of(world: World, intent: Intent) -> Split:
    """The split that owns an intent: a hash of its signature, 90 % train, 5 % dev, 5 % test."""
    digest = blake2b(signature(world, intent).encode(), digest_size=8).digest()
    percent = int.from_bytes(digest, "big") % 100
    return "train" if percent < 90 else "dev" if percent < 95 else "test"


def relevance(world: World, query: Intent, keyword: Intent) -> float:
    """Product of one factor per aspect, in [0, 1]:

        rel(q, k) = product(q, k) * prod_a value_a(q, k) * brand(q, k) * place(q, k) * purpose(q, k)

    Each factor is 1 where the keyword offers what the query asks for. It depends on the latent intents alone,
    never on how they are written.
    """
    wanted, offered = world.products[query.product], world.products[keyword.product]
    if query.product == keyword.product:
        score = 1.0
    elif wanted.family == offered.family:
        score = BROADER if offered.is_head else NARROWER if wanted.is_head else SIBLING
    else:
        return SAME_VERTICAL if wanted.vertical == offered.vertical else 0.0
    for facet, value in query.values.items():
        other = keyword.values.get(facet)
        if other is None:
            score *= MISSING_VALUE
        elif other != value:
            score *= world.values[value].conflict
    for facet in keyword.values:
        if facet not in query.values:
            score *= EXTRA_VALUE
    brand = EXTRA_BRAND if query.brand == NONE else MISSING_BRAND if keyword.brand == NONE else OTHER_BRAND
    place = _other_place(world, query.place, keyword.place)
    score *= (1.0 if query.brand == keyword.brand else brand) * (
        1.0 if query.place == keyword.place else place
    )
    if query.purpose != keyword.purpose:
        score *= world.purpose_relevance[query.purpose].get(keyword.purpose, DEFAULT_PURPOSE)
    return score


def _other_place(world: World, wanted: int, offered: int) -> float:
    if wanted == NONE:
        return EXTRA_PLACE
    if offered == NONE:
        return MISSING_PLACE
    if world.region_of(wanted) != world.region_of(offered):
        return OTHER_PLACE
    return IN_ITS_REGION if max(wanted, offered) >= len(world.towns) else SAME_REGION
