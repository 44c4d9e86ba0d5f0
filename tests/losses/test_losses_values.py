"""Values against slow loops over the items, written from the formulas and sharing no code with the losses."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from crossjem_pl import losses as x
from crossjem_pl.losses.base import better_count, logsumexp_below
from crossjem_pl.losses.combined import Term

Numbers = list[float]


def sigmoid(v: float) -> float:
    return 1 / (1 + math.exp(-v))


def softmax(values: Numbers) -> Numbers:
    total = sum(math.exp(v) for v in values)
    return [math.exp(v) / total for v in values]


def logit(p: float) -> float:
    return math.log(p / (1 - p))


def mean(values: Numbers) -> float:
    return sum(values) / len(values)


def bce(s: Numbers, y: Numbers) -> float:
    return mean(
        [-(t * math.log(sigmoid(f)) + (1 - t) * math.log(1 - sigmoid(f))) for f, t in zip(s, y, strict=True)]
    )


def mse(s: Numbers, y: Numbers) -> float:
    return mean([(f - t) ** 2 for f, t in zip(s, y, strict=True)])


def pairs_of(y: Numbers) -> list[tuple[int, int]]:
    return [(i, j) for i in range(len(y)) for j in range(len(y)) if y[i] > y[j]]


def ranknet(s: Numbers, y: Numbers) -> float:
    return mean([math.log(1 + math.exp(s[j] - s[i])) for i, j in pairs_of(y)])


def margin_mse(s: Numbers, y: Numbers) -> float:
    return mean([(s[i] - s[j] - y[i] + y[j]) ** 2 for i, j in pairs_of(y)])


def softmax_ce(s: Numbers, y: Numbers) -> float:
    return -sum(t / sum(y) * math.log(p) for t, p in zip(y, softmax(s), strict=True))


def poly1(s: Numbers, y: Numbers) -> float:
    return softmax_ce(s, y) + 0.7 * sum(t / sum(y) * (1 - p) for t, p in zip(y, softmax(s), strict=True))


def listnet(s: Numbers, y: Numbers) -> float:
    wanted = softmax([t / 0.5 for t in y])
    return -sum(w * math.log(p) for w, p in zip(wanted, softmax(s), strict=True))


def kl(s: Numbers, y: Numbers) -> float:
    wanted = softmax([logit(t) / 2 for t in y])
    got = softmax([f / 2 for f in s])
    return 4 * sum(w * math.log(w / p) for w, p in zip(wanted, got, strict=True))


def stage(s: Numbers, y: Numbers, i: int) -> float:
    """-log of the probability that item i comes first of itself and the items strictly below it."""
    rivals = [math.exp(s[k]) for k in range(len(y)) if y[k] < y[i]]
    return -math.log(math.exp(s[i]) / (math.exp(s[i]) + sum(rivals)))


def list_mle(s: Numbers, y: Numbers) -> float:
    return sum(stage(s, y, i) for i in range(len(y)))


def plistmle(s: Numbers, y: Numbers) -> float:
    n = len(y)
    order = sorted(range(n), key=lambda i: -y[i])
    place_weights = [2 ** (n - place) - 1 for place in range(1, n + 1)]
    total = 0.0
    for i in range(n):
        shared = [place_weights[place] for place in range(n) if y[order[place]] == y[i]]
        total += mean([float(w) for w in shared]) * stage(s, y, i)
    return total / sum(place_weights)


def lambda_reference(scheme: str, k: int | None = None) -> Callable[[Numbers, Numbers], float]:
    def value(s: Numbers, y: Numbers) -> float:
        n = len(y)
        cut = k or n
        rank = {i: place for place, i in enumerate(sorted(range(n), key=lambda i: -s[i]), start=1)}
        ideal = sorted((2**t - 1 for t in y), reverse=True)[:cut]
        gain = [(2**t - 1) / sum(g / math.log2(1 + p) for p, g in enumerate(ideal, start=1)) for t in y]
        inverse = [0.0] + [1 / math.log2(1 + p) for p in range(1, 2 * n + 1)]
        terms = []
        for i in range(n):
            for j in range(n):
                if i == j or (scheme != "ndcg_loss1" and not y[i] > y[j]) or min(rank[i], rank[j]) > cut:
                    continue
                d = abs(rank[i] - rank[j])
                loss2 = abs(inverse[d] - inverse[d + 1]) * abs(gain[i] - gain[j])
                lambdarank = abs(inverse[rank[i]] - inverse[rank[j]]) * abs(gain[i] - gain[j])
                weight = {
                    "none": 1.0,
                    "ndcg_loss1": gain[i] * inverse[rank[i]],
                    "ndcg_loss2": loss2,
                    "lambda_rank": lambdarank,
                    "ndcg_loss2pp": 10 * loss2 + lambdarank,
                }[scheme]
                terms.append(-weight * math.log2(sigmoid(s[i] - s[j])))
        return mean(terms)

    return value


def adr_mse(s: Numbers, y: Numbers) -> float:
    n = len(y)
    terms = []
    for i in range(n):
        places = [p for p, t in enumerate(sorted(y, reverse=True), start=1) if t == y[i]]
        true = mean([float(p) for p in places])
        smooth = 1 + sum(sigmoid((s[k] - s[i]) / 0.5) for k in range(n) if k != i)
        terms.append((true - smooth) ** 2 / math.log2(true + 1))
    return mean(terms)


def info_nce(s: Numbers, y: Numbers) -> float:
    negatives = [math.exp(f / 0.3) for f, t in zip(s, y, strict=True) if t <= 0.5]
    positives = [math.exp(f / 0.3) for f, t in zip(s, y, strict=True) if t > 0.5]
    return mean([-math.log(p / (p + sum(negatives))) for p in positives])


def coral(s: Numbers, y: Numbers) -> float:
    """The literal sum over ranks, for distinct targets."""
    order = sorted(range(len(y)), key=lambda i: -y[i])
    total = 0.0
    for i in range(2):
        following = sum(math.exp(s[order[j]] / 0.5) for j in range(i, len(order)))
        total += math.log(math.exp(s[order[i]] / 0.5) / following)
    return -total / 2


def tail_probabilities(v: Numbers, y: Numbers, temperature: float) -> dict[int, float]:
    result = {}
    for j in range(len(y)):
        below = [math.exp(v[k] / temperature) for k in range(len(y)) if y[k] < y[j]]
        if below:
            result[j] = sigmoid(v[j] / temperature - math.log(sum(below)))
    return result


def rpl(s: Numbers, y: Numbers) -> float:
    p = tail_probabilities(s, y, 1.0)
    wanted = tail_probabilities([logit(t) for t in y], y, 1.0)
    return mean([-wanted[j] * math.log(p[j]) - (1 - wanted[j]) * math.log(1 - p[j]) for j in p])


def rpl_weighted(s: Numbers, y: Numbers) -> float:
    p = tail_probabilities(s, y, 2.0)
    wanted = tail_probabilities([logit(t) for t in y], y, 2.0)
    return -sum(y[j] * wanted[j] * math.log(p[j]) for j in p) / sum(y[j] * wanted[j] for j in p)


def rpl_top2(s: Numbers, y: Numbers) -> float:
    p = tail_probabilities(s, y, 1.0)
    wanted = tail_probabilities([logit(t) for t in y], y, 1.0)
    kept = [j for j in p if sum(t > y[j] for t in y) < 2]
    total = sum(y[j] * (-wanted[j] * math.log(p[j]) - (1 - wanted[j]) * math.log(1 - p[j])) for j in kept)
    return total / sum(y[j] for j in kept)


def summed_reference(tail: str) -> Callable[[Numbers, Numbers], float]:
    def value(s: Numbers, y: Numbers) -> float:
        n = len(y)
        u, v = [], []
        for j in range(n):
            tail_of_j = [k for k in range(n) if (y[k] > y[j] if tail == "reversed" else y[k] < y[j])]
            read = [j] * len(tail_of_j) if tail == "corollary" else tail_of_j
            u.append(sum(s[k] for k in read))
            v.append(sum(y[k] for k in read))
        return -sum(w * math.log(p) for w, p in zip(v, softmax(u), strict=True))

    return value


CASES: dict[str, tuple[x.RankingLoss, Callable[[Numbers, Numbers], float]]] = {
    "bce": (x.BinaryCrossEntropy(), bce),
    "mse": (x.MeanSquaredError(), mse),
    "ranknet": (x.RankNet(), ranknet),
    "margin_mse": (x.MarginMSE(), margin_mse),
    "margin_mse of probabilities": (
        x.MarginMSE("probabilities"),
        lambda s, y: margin_mse(s, [logit(t) for t in y]),
    ),
    "softmax_ce": (x.SoftmaxCrossEntropy(), softmax_ce),
    "poly1": (x.Poly1CrossEntropy(0.7), poly1),
    "listnet": (x.ListNet(0.5), listnet),
    "kl": (x.KLDivergence(temperature=2.0), kl),
    "listmle": (x.ListMLE(), list_mle),
    "plistmle": (x.PositionAwareListMLE(), plistmle),
    **{
        f"lambdaloss {scheme} {k}": (x.LambdaLoss(scheme, k=k), lambda_reference(scheme, k))
        for scheme in ("none", "ndcg_loss1", "ndcg_loss2", "lambda_rank", "ndcg_loss2pp")
        for k in (None, 2)
    },
    "adr_mse": (x.ApproxDiscountedRankMSE(0.5), adr_mse),
    "info_nce": (x.InfoNCE(0.3, threshold=0.5), info_nce),
    "coral": (x.CoRAL(2, 0.5), coral),
    "rpl": (x.RankingProbabilityLoss(), rpl),
    "rpl weighted": (
        x.RankingProbabilityLoss(form="weighted_ce", weights="target", temperature=2.0),
        rpl_weighted,
    ),
    "rpl top 2": (x.RankingProbabilityLoss(top_k=2, weights="target"), rpl_top2),
    **{
        f"rpl {tail}": (x.RankingProbabilityLoss(tail=tail), summed_reference(tail))
        for tail in ("printed", "corollary", "reversed")
    },
}
DISTINCT = ([0.3, -1.2, 0.8, 2.0, -0.4, 0.1], [0.2, 0.9, 0.55, 0.05, 0.7, 0.4])
TIED = ([0.3, -1.2, 0.8, 2.0, -0.4, 0.1], [0.2, 0.9, 0.9, 0.2, 0.7, 0.2])


def as_batch(s: Numbers, y: Numbers) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.tensor([s], dtype=torch.float64),
        torch.tensor([y], dtype=torch.float64),
        torch.ones(1, len(s)) > 0,
    )


@pytest.mark.parametrize("name", sorted(CASES))
def test_value_equals_the_loop(name: str) -> None:
    loss, reference = CASES[name]
    assert loss(*as_batch(*DISTINCT)).item() == pytest.approx(reference(*DISTINCT), rel=1e-9)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"coral"}))
def test_value_equals_the_loop_with_ties(name: str) -> None:
    loss, reference = CASES[name]
    assert loss(*as_batch(*TIED)).item() == pytest.approx(reference(*TIED), rel=1e-9)


def test_the_cases_cover_the_registry() -> None:
    assert {type(loss).__name__ for loss, _ in CASES.values()} == set(x.LOSSES) - {"InBatchInfoNCE", "Sum"}


def test_coral_with_ties_contrasts_with_what_is_strictly_below() -> None:
    s, y = TIED
    expected = sum(stage(s, y, i) for i in (1, 2))
    for k in (1, 2):  # the two best are tied: both are among the top one
        assert x.CoRAL(k)(*as_batch(s, y)).item() == pytest.approx(expected / k)


@pytest.mark.parametrize("k", [5, 6, 10, None])
def test_coral_divides_by_k_even_where_the_list_is_not_longer(k: int | None) -> None:
    """-1/k times the sum of the logarithms, of which the last rank's is log 1."""
    s, y = DISTINCT
    expected = sum(stage(s, y, i) for i in range(len(y))) / (k or len(y))
    assert x.CoRAL(k)(*as_batch(s, y)).item() == pytest.approx(expected)


def test_position_weights_are_right_beyond_float32_powers() -> None:
    """With equal scores, the stage of place i of n costs log(n - i + 1)."""
    n = 400
    targets = torch.arange(n, 0, -1).float()[None]
    value = x.PositionAwareListMLE()(torch.zeros(1, n), targets, torch.ones(1, n) > 0)
    weights = [2 ** (n - i) - 1 for i in range(1, n + 1)]
    expected = sum(w / sum(weights) * math.log(n - i) for i, w in enumerate(weights))
    assert value.item() == pytest.approx(expected, rel=1e-5)


def test_tails_equal_the_square_matrix() -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(20, 15, generator=generator, dtype=torch.float64) * 5
    keys = torch.randint(0, 6, (20, 15), generator=generator).double()
    mask = torch.rand(20, 15, generator=generator) > 0.3
    below = (keys[:, None, :] < keys[:, :, None]) & mask[:, None, :] & mask[:, :, None]
    has_below = below.any(dim=-1)
    wide = values[:, None, :].expand(-1, 15, -1)
    expected = wide.masked_fill(~below, -torch.inf).logsumexp(-1).masked_fill(~has_below, 0.0)
    got, got_has = logsumexp_below(
        values.masked_fill(~mask, torch.nan), keys.masked_fill(~mask, torch.nan), mask
    )
    assert (got_has == has_below).all()
    torch.testing.assert_close(got, expected)
    better = (keys[:, None, :] > keys[:, :, None]) & mask[:, None, :] & mask[:, :, None]
    assert (better_count(keys, mask) == better.sum(-1)).all()


def test_reductions() -> None:
    scores = torch.tensor([[0.3, -1.2, 0.8], [1.0, 0.5, -2.0], [0.1, 0.2, 0.3]])
    targets = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    mask = torch.ones(3, 3, dtype=torch.bool)
    loss = x.SoftmaxCrossEntropy()
    each = loss(scores, targets, mask, "none")
    assert each.shape == (3,)
    assert each[2] == 0
    torch.testing.assert_close(loss(scores, targets, mask, "sum"), each.sum())
    torch.testing.assert_close(loss(scores, targets, mask), each.sum() / 2)
    with pytest.raises(ValueError, match="reduction must be one of"):
        loss(scores, targets, mask, "max")


@pytest.mark.parametrize(
    ("loss", "wrong", "message"),
    [
        (x.BinaryCrossEntropy(), 1.5, r"targets\[0, 1\] is 1.5: .*probabilities in \[0, 1\]"),
        (x.SoftmaxCrossEntropy(), -1.0, r"targets\[0, 1\] is -1: .*at least 0"),
        (x.LambdaLoss(), -3.0, "at least 0"),
        (x.LambdaLoss(), 40.0, "gain='linear'"),
        (x.KLDivergence(), 3.0, "KLDivergence with targets_are='probabilities'"),
        (x.RankingProbabilityLoss(), -0.5, "RankingProbabilityLoss with"),
    ],
)
def test_targets_that_a_loss_cannot_take_are_named(loss: x.RankingLoss, wrong: float, message: str) -> None:
    targets = torch.tensor([[0.5, wrong, 0.2]])
    scores = torch.zeros(1, 3)
    with pytest.raises(ValueError, match=message):
        loss(scores, targets, torch.ones(1, 3) > 0)
    loss(scores, targets, torch.tensor([[True, False, True]]))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: x.MarginMSE("odds"), "targets_are must be one of"),  # type: ignore[arg-type]
        (lambda: x.MarginMSE(epsilon=0.5), "epsilon must be"),
        (lambda: x.ListNet(math.inf), "temperature must be positive"),
        (lambda: x.Poly1CrossEntropy(-1.5), "epsilon must be at least -1"),
        (lambda: x.LambdaLoss("ndcg"), "scheme must be one of"),  # type: ignore[arg-type]
        (lambda: x.LambdaLoss(k=0), "k must be at least 1"),
        (lambda: x.LambdaLoss(mu=-1.0), "mu must be"),
        (lambda: x.InBatchInfoNCE(temperature=0.0, gather=True), "temperature must be positive"),
    ],
)
def test_options_are_checked_when_the_loss_is_built(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_a_sum_reads_labels_and_scores() -> None:
    scores, y, mask = as_batch(*DISTINCT)
    labels = (y > 0.6).double()
    terms = [Term(x.SoftmaxCrossEntropy(), "labels", 0.3), Term(x.RankingProbabilityLoss(), "scores", 2.0)]
    value = x.Sum(terms)(scores, torch.stack((labels, y), dim=-1), mask)
    expected = 0.3 * x.SoftmaxCrossEntropy()(scores, labels, mask) + 2 * x.RankingProbabilityLoss()(
        scores, y, mask
    )
    torch.testing.assert_close(value, expected)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ([], "needs at least one"),
        ([Term(x.ListNet(), "labels"), Term(x.ListNet(), "both")], "term 2, ListNet: targets must be"),  # type: ignore[arg-type]
        ([Term(x.ListNet(), "labels", 0.0)], "term 1, ListNet: weight must be positive"),
        (
            [Term(x.InBatchInfoNCE(), "labels")],
            "term 1: expected a loss over scores other than Sum, got InBatch",
        ),
    ],
)
def test_mistakes_in_a_sum_name_the_term(terms: list[Term], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        x.Sum(terms)


def test_a_sum_needs_both_targets() -> None:
    with pytest.raises(ValueError, match=r"targets \[lists, items, 2\].*got \(1, 6\)"):
        x.Sum([Term(x.ListNet(), "labels")])(*as_batch(*DISTINCT))
