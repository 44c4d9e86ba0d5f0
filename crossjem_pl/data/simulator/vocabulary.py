"""The words of the simulated log: verticals, products, attributes, synonyms and look-alike phrases."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

__all__ = [
    "PATTERNS",
    "PURPOSES",
    "Facet",
    "Family",
    "Surface",
    "Vertical",
    "load_verticals",
    "parse_verticals",
]


@dataclass(frozen=True, slots=True)
class Surface:
    """One way to write a product; a mass noun has equal singular and plural."""

    singular: str
    plural: str


@dataclass(frozen=True, slots=True)
class Facet:
    """A kind of attribute.

    Args:
        name: unique inside its vertical.
        conflict: factor of the relevance when query and keyword ask for different values.
        placement: "pre" before the product, "post" after it, "for" either before or after it as "for ...".
        values: one tuple of synonyms per value, the canonical one first.
    """

    name: str
    conflict: float
    placement: str
    values: tuple[tuple[str, ...], ...]


@dataclass(slots=True)
class Family:
    """A generic product (`products[0]`), its kinds (each a tuple of synonyms) and look-alike phrases."""

    facets: tuple[str, ...]
    products: list[tuple[Surface, ...]]
    lookalikes: tuple[str, ...] = ()


@dataclass(slots=True)
class Vertical:
    """One line of business; `kind` is "goods" or "service" and decides which purposes its queries have."""

    name: str
    kind: str
    facets: dict[str, Facet] = field(default_factory=dict)
    families: list[Family] = field(default_factory=list)


PURPOSES: dict[str, dict[str, tuple[str, ...]]] = {
    "goods": {
        "get": ("*",) * 9 + ("buy *", "* online", "shop *", "order *", "* for sale"),
        "cheap": ("cheap *", "discount *", "affordable *", "* deals", "* best price", "low cost *",
                  "* clearance"),
        "best": ("best *", "top rated *", "* reviews", "top *"),
        "local": ("* near me", "* store nearby", "local * shop", "* close by"),
        "used": ("used *", "second hand *", "refurbished *", "pre owned *"),
        "rent": ("* rental", "rent *", "* hire"),
        "repair": ("* repair", "fix *", "* repair service"),
        "bulk": ("wholesale *", "* in bulk", "* supplier"),
    },
    "service": {
        "get": ("*",) * 8 + ("* online", "find *", "book *", "* services"),
        "cheap": ("cheap *", "affordable *", "* deals", "low cost *", "* best price", "discount *"),
        "best": ("best *", "top rated *", "* reviews", "top *"),
        "local": ("* near me", "local *", "* nearby", "* in my area"),
        "price": ("* cost", "* prices", "* quote", "* rates"),
        "job": ("* jobs", "* careers", "* salary", "* vacancies"),
        "guide": ("* tips", "* guide", "* advice"),
        "learn": ("* definition", "what is *", "* explained"),
    },
}  # fmt: skip
"""For each kind of vertical the purposes of a query, and how each is written around the product (`*`)."""

PATTERNS: dict[str, tuple[str, ...]] = {
    "goods": (
        "* clip art", "* costume", "* drawing", "* storage box", "* cleaning kit", "* stock photo", "* emoji",
        "toy *", "* coloring page", "* meaning", "* logo", "* song", "miniature *", "* history",
        "* cake topper",
    ),
    "service": (
        "* software", "* clip art", "* movie", "* exam questions", "* logo", "* meme", "* lawsuit",
        "* board game", "* scam", "* stock price", "* history", "* textbook", "* statistics", "* forum",
        "* song",
    ),
}  # fmt: skip
"""Phrases around a product's own words (`*`) that mean something else."""


def _surface(text: str) -> Surface:
    """`~`, and the ending -ing, mark a mass noun; other plurals follow the rules for regular nouns."""
    if text.startswith("~") or text.endswith("ing"):
        word = text.removeprefix("~")
        return Surface(word, word)
    if text == "chest of drawers":
        return Surface(text, "chests of drawers")
    if text.endswith("shelf"):
        return Surface(text, text[:-1] + "ves")
    if text.endswith(("x", "ch", "sh")):
        return Surface(text, text + "es")
    if text.endswith("y") and text[-2] not in "aeiou":
        return Surface(text, text[:-1] + "ies")
    return Surface(text, text if text.endswith("s") else text + "s")


def _parts(text: str, separator: str) -> list[str]:
    return [part.strip() for part in text.split(separator) if part.strip()]


def parse_verticals(text: str) -> tuple[Vertical, ...]:
    """Verticals from the compact notation of `verticals.txt`.

    A line starts with `vertical NAME KIND`, `facet NAME CONFLICT PLACEMENT: value/synonym, ...`,
    `family HEAD/synonym : FACET FACET ...` or `lookalike phrase, ...`; every other line lists kinds of the
    family above it, `product/synonym; product`.

    Raises:
        ValueError: names the line, for an unknown kind, placement or facet, a conflict outside [0, 1], or a
            line out of place.
    """
    verticals: list[Vertical] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        keyword, _, rest = line.strip().partition(" ")
        try:
            if keyword == "vertical":
                name, kind = rest.rsplit(" ", 1)
                if kind not in PURPOSES:
                    raise ValueError(f"kind {kind!r} is not one of {sorted(PURPOSES)}")
                verticals.append(Vertical(name, kind))
            elif keyword == "facet":
                facet = _facet(rest)
                verticals[-1].facets[facet.name] = facet
            elif keyword == "family":
                head, _, names = rest.partition(":")
                facets = tuple(names.split())
                unknown = [f for f in facets if f not in verticals[-1].facets]
                if unknown:
                    raise ValueError(f"unknown facets {unknown}")
                products = [tuple(_surface(s) for s in _parts(head, "/"))]
                verticals[-1].families.append(Family(facets, products))
            elif keyword == "lookalike":
                verticals[-1].families[-1].lookalikes = tuple(_parts(rest, ","))
            else:
                for product in _parts(line, ";"):
                    surfaces = tuple(_surface(s) for s in _parts(product, "/"))
                    verticals[-1].families[-1].products.append(surfaces)
        except (ValueError, IndexError) as error:
            raise ValueError(f"vocabulary, line {number}: {error} in {line!r}") from error
    return tuple(verticals)


def _facet(text: str) -> Facet:
    header, _, body = text.partition(":")
    name, conflict, placement = header.split()
    values = tuple(tuple(_parts(value, "/")) for value in _parts(body, ","))
    if placement not in ("pre", "post", "for"):
        raise ValueError(f"placement {placement!r} is not pre, post or for")
    if not 0.0 <= float(conflict) <= 1.0:
        raise ValueError(f"conflict {conflict} is outside [0, 1]")
    if len(values) < 2:
        raise ValueError("a facet needs at least two values")
    return Facet(name, float(conflict), placement, values)


@cache
def load_verticals() -> tuple[Vertical, ...]:
    """The verticals of `verticals.txt`, parsed once."""
    return parse_verticals(files(__package__).joinpath("verticals.txt").read_text(encoding="utf-8"))
