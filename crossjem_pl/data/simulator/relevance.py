"""True graded relevance of a keyword's intent to a query's intent."""

from __future__ import annotations

from crossjem_pl.data.simulator.intents import NONE, Intent
from crossjem_pl.data.simulator.world import World

__all__ = ["relevance"]

BROADER, NARROWER, SIBLING, SAME_VERTICAL = 0.5, 0.75, 0.1, 0.02
MISSING_VALUE, EXTRA_VALUE = 0.7, 0.85
MISSING_BRAND, EXTRA_BRAND, OTHER_BRAND = 0.6, 0.8, 0.25
MISSING_PLACE, EXTRA_PLACE, OTHER_PLACE = 0.65, 0.4, 0.04
IN_ITS_REGION, SAME_REGION = 0.7, 0.3
DEFAULT_PURPOSE = 0.2
PURPOSE: dict[tuple[str, str], float] = {
    ("get", "cheap"): 0.8, ("get", "best"): 0.75, ("get", "local"): 0.75, ("get", "used"): 0.35,
    ("get", "bulk"): 0.3, ("get", "price"): 0.7, ("get", "rent"): 0.15, ("get", "repair"): 0.1,
    ("get", "job"): 0.05, ("get", "guide"): 0.15, ("get", "learn"): 0.15,
    ("cheap", "get"): 0.75, ("cheap", "best"): 0.55, ("cheap", "local"): 0.65, ("cheap", "used"): 0.55,
    ("cheap", "bulk"): 0.5, ("cheap", "price"): 0.75,
    ("best", "get"): 0.7, ("best", "cheap"): 0.55, ("best", "local"): 0.6, ("best", "price"): 0.5,
    ("local", "get"): 0.75, ("local", "cheap"): 0.65, ("local", "best"): 0.65, ("local", "price"): 0.55,
    ("price", "get"): 0.7, ("price", "cheap"): 0.8, ("price", "best"): 0.5, ("price", "local"): 0.55,
    ("used", "cheap"): 0.45, ("used", "get"): 0.35, ("bulk", "cheap"): 0.4, ("bulk", "get"): 0.35,
    ("guide", "learn"): 0.4, ("learn", "guide"): 0.4, ("job", "learn"): 0.05,
}  # fmt: skip
"""Factor for (purpose of the query, purpose of the keyword); 1 if equal, `DEFAULT_PURPOSE` if not listed."""


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
    score *= _brand(query.brand, keyword.brand) * _place(world, query.place, keyword.place)
    if query.purpose != keyword.purpose:
        score *= PURPOSE.get((query.purpose, keyword.purpose), DEFAULT_PURPOSE)
    return score


def _brand(wanted: int, offered: int) -> float:
    if wanted == offered:
        return 1.0
    if wanted == NONE:
        return EXTRA_BRAND
    return MISSING_BRAND if offered == NONE else OTHER_BRAND


def _place(world: World, wanted: int, offered: int) -> float:
    if wanted == offered:
        return 1.0
    if wanted == NONE:
        return EXTRA_PLACE
    if offered == NONE:
        return MISSING_PLACE
    if world.region_of(wanted) != world.region_of(offered):
        return OTHER_PLACE
    towns = len(world.towns)
    return IN_ITS_REGION if wanted >= towns or offered >= towns else SAME_REGION
