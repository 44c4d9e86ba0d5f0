"""What a seed fixes once for all its lists: brands, places, misspellings; the vocabulary as tables."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import numpy as np

__all__ = ["Kind", "Product", "Value", "World", "build_world", "uniforms"]

BRANDS_PER_VERTICAL = 14
REGIONS = 12
TOWNS_PER_REGION = 6
MISSPELLINGS_PER_WORD = 3
SHORTEST_MISSPELT = 5


def uniforms(*entropy: int) -> Iterator[float]:
    """An endless stream of floats in [0, 1) that depends on `entropy`, non-negative integers, only.

    Draws `numpy.random.Generator.random` alone (53 bits of a PCG64 word): no platform mathematics.
    """
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
    size = 512
    while True:
        yield from generator.random(size).tolist()
        size = 4096


@dataclass(frozen=True, slots=True)
class Kind:
    """Goods or services."""

    brand_share: float  # of their queries, that name a brand
    place_share: float
    lookalikes: list[str]  # phrases around a product's own words (`*`) that mean something else
    purposes: dict[str, list[str]]  # how each is written around the product, the default one first


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a facet: synonyms (canonical first), placement ("pre", "post", "for") and conflict factor."""

    synonyms: tuple[str, ...]
    placement: str
    conflict: float


@dataclass(frozen=True, slots=True)
class Product:
    """A product: its vertical, its family, whether it is the family's generic head, its facets, and the (singular,
    plural) of its synonyms, equal for a mass noun."""

    vertical: int
    family: int
    is_head: bool
    facets: tuple[int, ...]
    names: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class World:
    """Tables of the simulated market; cross-references are indices. A place below `len(towns)` is a town, others are
    regions after these. Brands, towns and regions are invented names."""

    products: tuple[Product, ...]
    families: tuple[tuple[int, ...], ...]  # products of each, head first
    verticals: tuple[tuple[int, ...], ...]  # families of each
    kinds: tuple[Kind, ...]  # of each vertical
    purpose_relevance: dict[str, dict[str, float]]  # purpose of a query -> purpose of a keyword -> factor
    values: tuple[Value, ...]  # of all facets
    facet_values: tuple[tuple[int, ...], ...]  # values of each facet
    lookalikes: tuple[
        tuple[str, ...], ...
    ]  # of each family: phrases that share its words and mean something else
    brands: tuple[str, ...]
    vertical_brands: tuple[tuple[int, ...], ...]
    towns: tuple[str, ...]
    regions: tuple[str, ...]
    misspellings: dict[str, tuple[str, ...]]  # by word; none is a word of the world or stands for two words

    def place_name(self, place: int) -> str:
        """Name of a town or region."""
        return self.towns[place] if place < len(self.towns) else self.regions[place - len(self.towns)]

    def region_of(self, place: int) -> int:
        """Index into `regions` of the region that holds (or is) `place`."""
        return place // TOWNS_PER_REGION if place < len(self.towns) else place - len(self.towns)


def _parts(text: str, separator: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(separator) if part.strip())


def _singular_and_plural(text: str) -> tuple[str, str]:
    """`~`, and the ending -ing, mark a mass noun; other plurals follow the rules for regular nouns."""
    if text.startswith("~") or text.endswith("ing"):
        return text.removeprefix("~"), text.removeprefix("~")
    if text == "chest of drawers":
        return text, "chests of drawers"
    if text.endswith("shelf"):
        return text, text[:-1] + "ves"
    if text.endswith(("x", "ch", "sh")):
        return text, text + "es"
    if text.endswith("y") and text[-2] not in "aeiou":
        return text, text[:-1] + "ies"
    return text, text if text.endswith("s") else text + "s"


def _names(stream: Iterator[float], parts: list[list[str]], count: int, taken: set[str]) -> list[str]:
    """Invented names, a syllable drawn from each of `parts`, none in `taken` (which grows by them)."""
    names: list[str] = []
    while len(names) < count:
        name = "".join(options[int(next(stream) * len(options))] for options in parts)
        if name not in taken:
            taken.add(name)
            names.append(name)
    return names


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
            middle = ("", 2 * word[i], word[i + 1] + word[i])[kind]
            form = word[:i] + middle + word[i + (2 if kind == 2 else 1) :]
            if form not in taken:
                taken.add(form)
                forms.append(form)
        if forms:
            table[word] = tuple(forms)
    return table


@lru_cache(maxsize=8)
def build_world(seed: int) -> World:
    """The world of a seed, a non-negative integer; built once per process (about 20 ms)."""
    source = tomllib.loads(files(__package__).joinpath("vocabulary.toml").read_text(encoding="utf-8"))
    kinds = {name: Kind(**kind) for name, kind in source["kinds"].items()}
    texts = [text for kind in kinds.values() for text in sum(kind.purposes.values(), kind.lookalikes)]
    values: list[Value] = []
    facet_values: list[tuple[int, ...]] = []
    products: list[Product] = []
    families: list[tuple[int, ...]] = []
    verticals: list[tuple[int, ...]] = []
    lookalikes: list[tuple[str, ...]] = []
    for number, vertical in enumerate(source["verticals"]):
        facets: dict[str, int] = {}
        for name, facet in vertical["facets"].items():
            facets[name] = len(facet_values)
            first_value = len(values)
            for value in _parts(facet["values"], ","):
                values.append(Value(_parts(value, "/"), facet["placement"], facet["conflict"]))
            facet_values.append(tuple(range(first_value, len(values))))
        first = len(families)
        for family in vertical["families"]:
            of_family = tuple(facets[name] for name in family["facets"].split())
            of_kind = _parts(family["products"].replace("\n", ";"), ";")
            for i, synonyms in enumerate(of_kind):
                names = tuple(_singular_and_plural(name) for name in _parts(synonyms, "/"))
                products.append(Product(number, len(families), i == 0, of_family, names))
            families.append(tuple(range(len(products) - len(of_kind), len(products))))
            lookalikes.append(_parts(family["lookalikes"], ","))
        verticals.append(tuple(range(first, len(families))))
    texts += [text for value in values for text in value.synonyms]
    texts += [text for phrases in lookalikes for text in phrases]
    texts += [text for product in products for names in product.names for text in names]

    stream = uniforms(seed)
    taken = {word for text in texts for word in text.split() if word != "*"}
    brands = _names(stream, source["brand_syllables"], BRANDS_PER_VERTICAL * len(verticals), taken)
    towns = _names(stream, source["place_syllables"], REGIONS * TOWNS_PER_REGION, taken)
    regions = _names(stream, source["place_syllables"], REGIONS, taken)
    starts = range(0, len(brands), BRANDS_PER_VERTICAL)
    return World(
        products=tuple(products),
        families=tuple(families),
        verticals=tuple(verticals),
        kinds=tuple(kinds[vertical["kind"]] for vertical in source["verticals"]),
        purpose_relevance=source["purpose_relevance"],
        values=tuple(values),
        facet_values=tuple(facet_values),
        lookalikes=tuple(lookalikes),
        brands=tuple(brands),
        vertical_brands=tuple(tuple(range(start, start + BRANDS_PER_VERTICAL)) for start in starts),
        towns=tuple(towns),
        regions=tuple(f"{name} county" for name in regions),
        misspellings=_misspellings(stream, taken),
    )
