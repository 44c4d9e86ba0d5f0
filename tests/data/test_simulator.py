"""The simulated log: reproducible, sliceable, split by intent, and hard in the way that was designed."""

from __future__ import annotations

from itertools import combinations, islice

import pytest

from crossjem_pl.data.simulator import SPLITS, simulate
from crossjem_pl.data.simulator.intents import NONE, Intent, relevance, signature
from crossjem_pl.data.simulator.keywords import SOURCES, misspell
from crossjem_pl.data.simulator.world import World, build_world, uniforms
from crossjem_pl.hashing import content_sha256
from crossjem_pl.lists import RankingList


@pytest.fixture(scope="module")
def lists() -> list[RankingList]:
    return list(simulate(300))


@pytest.fixture(scope="module")
def world() -> World:
    return build_world(0)


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        (0, ("0f45194832283469", "c8d880903c0fa4d6", "dcbc8d181f48241e")),
        (1, ("2109b906d3d206d5", "c63cc574bbf32094", "27ebc4ec1fa28486")),
        (2, ("8344089b78db2ff1", "b6827f2c989fddac", "a0b5ceec9f05dbe1")),
    ],
)
def test_golden_lists(seed: int, expected: tuple[str, ...]) -> None:
    """A change of these hashes is a change of everybody's data and of recorded results: never only a new hash."""
    for split, digest in zip(SPLITS, expected, strict=True):
        lists = simulate(50, 100, seed=seed, split=split)
        fields = (repr((r.query_id, r.query, r.item_ids, r.items, r.labels, r.scores)) for r in lists)
        assert content_sha256(fields)[:16] == digest


def test_slices_are_independent() -> None:
    whole = list(simulate(12, 30, seed=3))
    assert list(simulate(5, 30, seed=3, start=7)) == whole[7:]
    assert [r for i in (2, 0, 1) for r in simulate(1, 30, seed=3, start=i)] == [whole[i] for i in (2, 0, 1)]


def test_nothing_is_drawn_before_the_first_list_is_asked_for() -> None:
    assert len(list(islice(simulate(10**12, 5), 2))) == 2
    assert list(simulate(0)) == []


def test_bad_arguments_are_refused_at_the_call() -> None:
    for name, value in {"n_lists": -1, "n_items": 0, "seed": -1, "start": -1, "split": "valid"}.items():
        with pytest.raises(ValueError, match=name):
            simulate(**{"n_lists": 1, name: value})  # type: ignore[arg-type]


def test_splits_share_no_query() -> None:
    bags = {s: {" ".join(sorted(r.query.split())) for r in simulate(600, 1, split=s)} for s in SPLITS}
    for a, b in combinations(SPLITS, 2):
        assert not bags[a] & bags[b]
    ids = [r.query_id for s in SPLITS for r in simulate(50, 1, split=s)]
    assert len(set(ids)) == len(ids)


def test_signature_ignores_order_and_purpose_and_keeps_the_rest(world: World) -> None:
    product = world.families[0][1]
    a, b = (world.facet_values[f][0] for f in world.products[product].facets[:2])
    fa, fb = world.products[product].facets[:2]
    base = Intent(product, {fa: a, fb: b}, world.vertical_brands[0][0], 3, "get")
    assert signature(world, base) == signature(world, base._replace(values={fb: b, fa: a}, purpose="cheap"))
    changes = [{"product": world.families[0][2]}, {"values": {fa: a}}, {"brand": NONE}, {"place": 4}]
    assert len({signature(world, base._replace(**c)) for c in [{}, *changes]}) == 5  # type: ignore[arg-type]


def test_every_product_text_means_one_product(world: World) -> None:
    owner: dict[str, int] = {}
    for number, product in enumerate(world.products):
        for text in {text for names in product.names for text in names}:
            assert owner.setdefault(" ".join(sorted(text.split())), number) == number, text
    for number, product in enumerate(world.products):
        for value in (v for f in product.facets for v in world.facet_values[f]):
            for text in world.values[value].synonyms:
                for noun in (text for names in product.names for text in names):
                    bag = " ".join(sorted(f"{text} {noun}".split()))
                    assert owner.get(bag, number) == number, bag


def test_values_lookalikes_and_purposes_are_unambiguous(world: World) -> None:
    assert len(world.verticals) >= 12
    assert len(world.products) >= 300
    assert sum(SOURCES.values()) == pytest.approx(1.0)
    for families in world.verticals:
        products = [world.products[p] for family in families for p in world.families[family]]
        facets = {facet for product in products for facet in product.facets}
        texts = [t for facet in facets for v in world.facet_values[facet] for t in world.values[v].synonyms]
        assert len(set(texts)) == len(texts)
        nouns = {text for product in products for names in product.names for text in names}
        assert all(world.lookalikes[family] for family in families)
        assert not nouns.intersection(phrase for family in families for phrase in world.lookalikes[family])
    for kind in world.kinds:
        texts = [text for patterns in kind.purposes.values() for text in set(patterns)]
        assert len(set(texts)) == len(texts)
    assert all(world.values[v].placement in ("pre", "post", "for") for f in world.facet_values for v in f)
    assert all(0 <= value.conflict <= 1 for value in world.values)
    assert all(len(values) > 1 for values in world.facet_values)


def test_misspellings_are_no_words_and_never_shared(world: World) -> None:
    forms = [form for entry in world.misspellings.values() for form in entry]
    assert len(set(forms)) == len(forms)
    assert not set(forms) & set(world.misspellings)
    assert not set(forms) & {*world.brands, *world.towns}
    draw = uniforms(5).__next__
    changed = [misspell(world, "waterproof sneakers", draw) for _ in range(20)]
    assert all(text != "waterproof sneakers" and len(text.split()) == 2 for text in changed)
    assert misspell(world, "tv", draw) == "tv"


@pytest.mark.parametrize("n_items", [1, 2, 10, 700, 1400])
def test_any_number_of_different_items(n_items: int) -> None:
    for ranking in simulate(3, n_items):
        assert len(ranking) == len(set(ranking.items)) == len(set(ranking.item_ids)) == n_items


def test_ids_belong_to_texts(lists: list[RankingList]) -> None:
    pairs = {(i, t) for r in lists for i, t in zip(r.item_ids, r.items, strict=True)}
    assert len({i for i, _ in pairs}) == len({t for _, t in pairs}) == len(pairs)
    assert len(pairs) < sum(map(len, lists))  # keywords recur from list to list


def find(world: World, name: str) -> int:
    return next(i for i, p in enumerate(world.products) if p.names[0][0] == name)


def test_relevance_is_a_product_of_the_factors_of_the_page(world: World) -> None:
    sofa, furniture = find(world, "sofa"), world.products[find(world, "sofa")].vertical
    values = {
        world.values[v].synonyms[0]: {f: v}
        for f in world.products[sofa].facets
        for v in world.facet_values[f]
    }
    mine, rival = world.vertical_brands[furniture][:2]
    query = Intent(sofa, values["grey"], mine, 0, "cheap")
    conflict = world.values[next(iter(values["grey"].values()))].conflict
    town, region, far = 1, len(world.towns) + world.region_of(0), len(world.towns) - 1
    for changes, factor in (
        ({}, 1.0), ({"product": find(world, "seating")}, 0.5), ({"product": find(world, "bench")}, 0.1),
        ({"product": find(world, "coffee table")}, 0.02), ({"product": find(world, "sneaker")}, 0.0),
        ({"values": {}}, 0.7), ({"values": values["white"]}, conflict),
        ({"values": {**values["grey"], **values["leather"]}}, 0.85), ({"brand": NONE}, 0.6), ({"brand": rival}, 0.25),
        ({"place": region}, 0.7), ({"place": NONE}, 0.65), ({"place": town}, 0.3), ({"place": far}, 0.04),
        ({"purpose": "get"}, world.purpose_relevance["cheap"]["get"]), ({"purpose": "repair"}, 0.2),
        ({"place": far, "brand": NONE}, 0.04 * 0.6),
    ):  # fmt: skip
        assert relevance(world, query, query._replace(**changes)) == pytest.approx(factor), changes
    for wanted, factor in (
        ({"product": find(world, "seating")}, 0.75),
        ({"brand": NONE}, 0.8),
        ({"place": NONE}, 0.4),
    ):
        assert relevance(world, query._replace(**wanted), query) == pytest.approx(factor), wanted
