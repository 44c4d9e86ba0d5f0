"""What a seed fixes once for all its lists: brands, places, misspellings; the vocabulary as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crossjem_pl.data.simulator.vocabulary import (
    PATTERNS,
    PURPOSES,
    Family,
    Surface,
    Vertical,
    load_verticals,
)

__all__ = ["Product", "Value", "World", "build_world", "uniforms"]

BRANDS_PER_VERTICAL = 14
REGIONS = 12
TOWNS_PER_REGION = 6
MISSPELLINGS_PER_WORD = 3
SHORTEST_MISSPELT = 5

# fmt: off
_ONSETS = (
    "b", "br", "c", "cl", "d", "dr", "f", "fl", "g", "gr", "h", "k", "l", "m", "n", "p", "pr", "r", "s", "st",
    "t", "tr", "v", "z",
)
_VOWELS = ("a", "e", "i", "o", "u")
_CODAS = ("l", "n", "r", "v", "s", "nd", "nt", "st", "m", "d", "t", "k")
_TOWN_STARTS = (
    "ash", "oak", "mill", "stone", "river", "king", "west", "north", "east", "bridge", "clear", "fair",
    "green", "high", "lake", "maple", "red", "silver", "spring", "wood",
)
_TOWN_ENDS = (
    "ford", "field", "ton", "ville", "dale", "brook", "port", "bury", "haven", "mont", "ridge", "view",
)
# fmt: on


def uniforms(*entropy: int) -> Iterator[float]:
    """An endless stream of floats in [0, 1) that depends on `entropy` only.

    Draws `numpy.random.Generator.random` alone (53 bits of a PCG64 word), so the stream uses no platform
    mathematics.

    Args:
        entropy: non-negative integers for `numpy.random.SeedSequence`.
    """
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
    size = 512
    while True:
        yield from generator.random(size).tolist()
        size = 4096


@dataclass(frozen=True, slots=True)
class Value:
    """A value of facet number `facet`: synonyms (canonical first), placement and conflict factor."""

    facet: int
    synonyms: tuple[str, ...]
    placement: str
    conflict: float


@dataclass(frozen=True, slots=True)
class Product:
    """A product: its vertical, its family, whether it is the family's generic head, how it is written."""

    vertical: int
    family: int
    is_head: bool
    surfaces: tuple[Surface, ...]
    facets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class World:
    """Tables of the simulated market; every cross-reference is an index into one of them.

    Args:
        products: all products of all verticals.
        families: products of each family, head first.
        verticals: families of each vertical.
        kinds: "goods" or "service" for each vertical.
        values: all facet values.
        facet_values: values of each facet.
        lookalikes: for each family the phrases that share its words and mean something else.
        brands: invented names.
        vertical_brands: brands of each vertical.
        towns: invented names; a place p below `len(towns)` is a town, others are regions p - len(towns).
        regions: invented names.
        misspellings: word -> misspelt forms. None of them is a word of the world, and none stands for two
            words.
    """

    products: tuple[Product, ...]
    families: tuple[tuple[int, ...], ...]
    verticals: tuple[tuple[int, ...], ...]
    kinds: tuple[str, ...]
    values: tuple[Value, ...]
    facet_values: tuple[tuple[int, ...], ...]
    lookalikes: tuple[tuple[str, ...], ...]
    brands: tuple[str, ...]
    vertical_brands: tuple[tuple[int, ...], ...]
    towns: tuple[str, ...]
    regions: tuple[str, ...]
    misspellings: dict[str, tuple[str, ...]]

    def place_name(self, place: int) -> str:
        """Name of a town or region."""
        return self.towns[place] if place < len(self.towns) else self.regions[place - len(self.towns)]

    def region_of(self, place: int) -> int:
        """Index into `regions` of the region that holds (or is) `place`."""
        return place // TOWNS_PER_REGION if place < len(self.towns) else place - len(self.towns)


def _choice(options: tuple[str, ...], draw: float) -> str:
    return options[int(draw * len(options))]


def _names(stream: Iterator[float], count: int, taken: set[str]) -> tuple[str, ...]:
    """Invented brand names of two short syllables, none in `taken` (which grows by them)."""
    names: list[str] = []
    while len(names) < count:
        parts = [
            _choice(_ONSETS, next(stream)),
            _choice(_VOWELS, next(stream)),
            _choice(_CODAS, next(stream)),
        ]
        name = "".join((*parts, _choice(_VOWELS, next(stream))))
        if name not in taken:
            taken.add(name)
            names.append(name)
    return tuple(names)


def _places(stream: Iterator[float], count: int, taken: set[str]) -> tuple[str, ...]:
    """Invented English-sounding place names, none in `taken` (which grows by them)."""
    names: list[str] = []
    while len(names) < count:
        name = _choice(_TOWN_STARTS, next(stream)) + _choice(_TOWN_ENDS, next(stream))
        if name not in taken:
            taken.add(name)
            names.append(name)
    return tuple(names)


def _misspellings(stream: Iterator[float], words: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Dropped, doubled or swapped letters after the first; unique over the world."""
    taken = set(words)
    table: dict[str, tuple[str, ...]] = {}
    for word in sorted(taken):
        if len(word) < SHORTEST_MISSPELT or not word.isalpha():
            continue
        forms: list[str] = []
        for _ in range(MISSPELLINGS_PER_WORD):
            i = 1 + int(next(stream) * (len(word) - 2))
            kind = int(next(stream) * 3)
            if kind == 0:
                form = word[:i] + word[i + 1 :]
            elif kind == 1:
                form = word[:i] + word[i] + word[i:]
            else:
                form = word[:i] + word[i + 1] + word[i] + word[i + 2 :]
            if form not in taken:
                taken.add(form)
                forms.append(form)
        if forms:
            table[word] = tuple(forms)
    return table


def _texts(verticals: Iterable[Vertical]) -> Iterator[str]:
    """Every phrase of the vocabulary."""
    for patterns in (*PATTERNS.values(), *(p for kinds in PURPOSES.values() for p in kinds.values())):
        yield from patterns
    for vertical in verticals:
        for facet in vertical.facets.values():
            for synonyms in facet.values:
                yield from synonyms
        for family in vertical.families:
            yield from family.lookalikes
            for surfaces in family.products:
                for surface in surfaces:
                    yield surface.singular
                    yield surface.plural


@lru_cache(maxsize=8)
def build_world(seed: int) -> World:
    """The world of a seed, built once per process (about 20 ms).

    Args:
        seed: non-negative integer.

    Raises:
        ValueError: if `seed` is negative.
    """
    if seed < 0:
        raise ValueError(f"seed: expected a non-negative integer, got {seed}")
    stream = uniforms(seed)
    parsed = load_verticals()
    words = {word for text in _texts(parsed) for word in text.split() if word != "*"}
    taken = set(words)
    brands = _names(stream, BRANDS_PER_VERTICAL * len(parsed), taken)
    towns = _places(stream, REGIONS * TOWNS_PER_REGION, taken)
    regions = tuple(f"{name} county" for name in _places(stream, REGIONS, taken))

    values: list[Value] = []
    facet_values: list[tuple[int, ...]] = []
    products: list[Product] = []
    families: list[tuple[int, ...]] = []
    verticals: list[tuple[int, ...]] = []
    lookalikes: list[tuple[str, ...]] = []
    for v, vertical in enumerate(parsed):
        numbers: dict[str, int] = {}
        for facet in vertical.facets.values():
            numbers[facet.name] = len(facet_values)
            facet_values.append(tuple(range(len(values), len(values) + len(facet.values))))
            values += [
                Value(numbers[facet.name], synonyms, facet.placement, facet.conflict)
                for synonyms in facet.values
            ]
        first = len(families)
        for family in vertical.families:
            families.append(_add_products(products, family, v, len(families), numbers))
            lookalikes.append(family.lookalikes)
        verticals.append(tuple(range(first, len(families))))
    return World(
        products=tuple(products),
        families=tuple(families),
        verticals=tuple(verticals),
        kinds=tuple(vertical.kind for vertical in parsed),
        values=tuple(values),
        facet_values=tuple(facet_values),
        lookalikes=tuple(lookalikes),
        brands=brands,
        vertical_brands=tuple(
            tuple(range(v * BRANDS_PER_VERTICAL, (v + 1) * BRANDS_PER_VERTICAL)) for v in range(len(parsed))
        ),
        towns=towns,
        regions=regions,
        misspellings=_misspellings(stream, taken),
    )


def _add_products(
    products: list[Product], family: Family, vertical: int, number: int, facets: dict[str, int]
) -> tuple[int, ...]:
    start = len(products)
    for i, surfaces in enumerate(family.products):
        products.append(
            Product(vertical, number, i == 0, surfaces, tuple(facets[name] for name in family.facets))
        )
    return tuple(range(start, len(products)))
