"""From a latent intent to text: synonyms, number, word order, commercial modifiers, misspellings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from crossjem_pl.data.simulator.intents import NONE, Draw, Intent
from crossjem_pl.data.simulator.vocabulary import PATTERNS, PURPOSES
from crossjem_pl.data.simulator.world import World

__all__ = ["misspell", "word_keyword", "word_lookalike", "word_query"]

T = TypeVar("T")

QUERY_CANONICAL_SHARE = 0.0
"""Users write every synonym alike ..."""
KEYWORD_CANONICAL_SHARE = 0.4
"""... advertisers lean to the canonical one: a gap between the two vocabularies."""
_PLURAL_SHARE = 0.5
_TRAILING_SHARE = 0.25
_TRAILING_BRAND_SHARE = 0.2
_PLACE_PATTERNS = ("* in {}", "* {}", "* {}", "{} *", "* near {}")
_LITERAL_SHARE = 0.4


def _choose(options: Sequence[T], draw: Draw, canonical: float) -> T:
    """The canonical (first) option with probability `canonical`, otherwise any of the options."""
    u = draw()
    return options[0] if u < canonical else options[int((u - canonical) / (1.0 - canonical) * len(options))]


def _product(world: World, product: int, draw: Draw, canonical: float) -> str:
    surface = _choose(world.products[product].surfaces, draw, canonical)
    return surface.plural if draw() < _PLURAL_SHARE else surface.singular


def _with_values(world: World, intent: Intent, text: str, draw: Draw, canonical: float) -> str:
    for value in intent.values.values():
        entry = world.values[value]
        words = _choose(entry.synonyms, draw, canonical)
        if entry.placement == "post":
            text = f"{text} {words}"
        elif entry.placement == "for":
            text = f"{text} for {words}" if draw() < 0.5 else f"{words} {text}"
        else:
            text = f"{text} {words}" if draw() < _TRAILING_SHARE else f"{words} {text}"
    return text


def _with_context(world: World, intent: Intent, text: str, draw: Draw) -> str:
    """Brand, purpose and place around the product and its attributes."""
    if intent.brand != NONE:
        brand = world.brands[intent.brand]
        text = f"{text} {brand}" if draw() < _TRAILING_BRAND_SHARE else f"{brand} {text}"
    kind = world.kinds[world.products[intent.product].vertical]
    patterns = PURPOSES[kind][intent.purpose]
    text = patterns[int(draw() * len(patterns))].replace("*", text)
    if intent.place != NONE:
        pattern = _PLACE_PATTERNS[int(draw() * len(_PLACE_PATTERNS))]
        text = pattern.format(world.place_name(intent.place)).replace("*", text)
    return text


def word_query(world: World, intent: Intent, draw: Draw) -> str:
    """One way in which users write `intent`, without misspellings."""
    return _word(world, intent, draw, QUERY_CANONICAL_SHARE)


def word_keyword(world: World, intent: Intent, draw: Draw) -> str:
    """One way in which advertisers write `intent`, without misspellings."""
    return _word(world, intent, draw, KEYWORD_CANONICAL_SHARE)


def _word(world: World, intent: Intent, draw: Draw, canonical: float) -> str:
    text = _product(world, intent.product, draw, canonical)
    return _with_context(world, intent, _with_values(world, intent, text, draw, canonical), draw)


def word_lookalike(world: World, intent: Intent, draw: Draw) -> str:
    """Text that shares words with `intent` and means something else.

    Either a phrase with the product's word in another sense, or the product as part of another thing; both
    dressed with the intent's own attributes.
    """
    canonical = KEYWORD_CANONICAL_SHARE
    product = world.products[intent.product]
    phrases = world.lookalikes[product.family]
    if draw() < _LITERAL_SHARE:
        text = phrases[int(draw() * len(phrases))]
    else:
        patterns = PATTERNS[world.kinds[product.vertical]]
        text = patterns[int(draw() * len(patterns))].replace(
            "*", _product(world, intent.product, draw, canonical)
        )
    return _with_context(world, intent, _with_values(world, intent, text, draw, canonical), draw)


def misspell(world: World, text: str, draw: Draw) -> str:
    """`text` with one of its words, drawn at random, misspelt; unchanged if that word has no misspelling."""
    words = text.split()
    i = int(draw() * len(words))
    forms = world.misspellings.get(words[i])
    if forms is None:
        return text
    words[i] = forms[int(draw() * len(forms))]
    return " ".join(words)
