"""Latent intents: what a query or a keyword asks for, how queries draw one, which split owns one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Literal, NamedTuple, get_args

from crossjem_pl.data.simulator.vocabulary import PURPOSES
from crossjem_pl.data.simulator.world import World

__all__ = ["NONE", "SPLITS", "Intent", "Split", "draw_query_intent", "random_intent", "signature", "split_of"]

Draw = Callable[[], float]
Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
_BUCKETS = 100
_FIRST_DEV, _FIRST_TEST = 90, 95

NONE = -1
"""No brand, or no place."""

_BRAND_SHARE = {"goods": 0.25, "service": 0.15}
_PLACE_SHARE = {"goods": 0.06, "service": 0.30}
_REGION_SHARE = 0.2
_HEAD_SHARE = 0.12
_PURPOSE_SHARE = 0.35
_FACET_COUNTS = (0.22, 0.74, 0.96)
"""Probabilities that a query asks for 0, at most 1, at most 2 attributes; otherwise it asks for 3."""


class Intent(NamedTuple):
    """A product with wanted attribute values, a brand, a place and a purpose; never changed in place.

    Args:
        product: index into `World.products`.
        values: facet -> value, in the order in which they were asked for.
        brand: index into `World.brands`, or `NONE`.
        place: a town or region (see `World.place_name`), or `NONE`.
        purpose: key of `PURPOSES[kind]`; "get" is the default.
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
    if draw() < _BRAND_SHARE[kind]:
        brands = world.vertical_brands[vertical]
        brand = brands[int(draw() * len(brands))]
    if draw() < _PLACE_SHARE[kind]:
        place = draw_place(world, draw)
    return Intent(product, values, brand, place, draw_purpose(kind, draw))


def draw_place(world: World, draw: Draw) -> int:
    """A region with probability 0.2, otherwise a town."""
    if draw() < _REGION_SHARE:
        return len(world.towns) + int(draw() * len(world.regions))
    return int(draw() * len(world.towns))


def draw_purpose(kind: str, draw: Draw, share: float = _PURPOSE_SHARE) -> str:
    """ "get" with probability 1 - share, otherwise any other purpose; early ones are likelier."""
    if draw() >= share:
        return "get"
    others = tuple(PURPOSES[kind])[1:]
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
    """The sorted canonical words of product, values, brand and place.

    Purpose, synonyms, number, word order and misspellings leave it unchanged.
    """
    words = world.products[intent.product].surfaces[0].singular.split()
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
    bucket = int.from_bytes(digest, "big") % _BUCKETS
    if bucket < _FIRST_DEV:
        return "train"
    return "dev" if bucket < _FIRST_TEST else "test"
