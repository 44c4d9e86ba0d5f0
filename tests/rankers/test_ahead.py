"""The ahead form against the encoder's own layers, one item at a time."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from crossjem_pl.cli import main
from crossjem_pl.inference import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import Ahead, MatchHead, MonoBERT, neural
from crossjem_pl.rankers.folder import length_limit, save_ranker
from crossjem_pl.serving.models import ServedModel
from crossjem_pl.text import TokenizedList
from crossjem_pl.text.token_store import TokenStore
from tests import tiny_models
from tests.rankers import encoder_families
from tests.rankers.literal import Joint, match_scores, random_lists

LIMITS: dict[str, Any] = {"max_query_tokens": 6, "max_item_tokens": 6, "dropout": 0.0}
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}


def build(folder: str, **options: Any) -> Ahead:
    torch.manual_seed(0)
    ranker = Ahead(folder, **{"query_bias": -1.5, **LIMITS, **options}).eval()
    with torch.no_grad():
        for parameter in ranker.parameters():
            if parameter.ndim == 2:
                parameter.mul_(3.0)
    assert isinstance(ranker.head, MatchHead)
    ranker.head.scale.data = torch.tensor([4.0, 2.0, 8.0])
    return ranker


def literal(ranker: Ahead, one: RankingList) -> Tensor:
    """Each text alone through the lower layers; then query and item, where the query does not see the item."""
    hf = ranker.tokenizer.hf

    def alone(text: str) -> tuple[list[int], Tensor]:
        words = hf.convert_tokens_to_ids(hf.tokenize(text))[:6]
        ids = torch.tensor([[hf.cls_token_id, *words, hf.sep_token_id]])
        return words, ranker.encoder(input_ids=ids).last_hidden_state[0]

    layers = copy.deepcopy(ranker.upper) if ranker.upper is not None else torch.nn.ModuleList()
    for module in layers.modules():
        config = getattr(module, "config", None)
        if config is not None:
            config._attn_implementation = "eager"
    query, below = alone(one.query)
    start, context, own = len(below), below, []
    for text in one.items:
        states = torch.cat([below, alone(text)[1]])[None]
        mask = torch.zeros(states.shape[1], states.shape[1])
        mask[:start, start:] = -math.inf
        mask[start:, 1 : start - 1] = ranker.query_bias
        for layer in layers:
            states = layer(states, attention_mask=mask[None, None])
        context = states[0, :start]
        own.append(states[0, start + 1 : -1])
    assert isinstance(ranker.head, MatchHead)
    return match_scores(Joint(query, [], [], [], context), own, ranker.head)


@torch.no_grad()
@pytest.mark.parametrize("family", encoder_families.FAMILIES)
@pytest.mark.parametrize("upper", [0, 1])
def test_equals_a_literal_reference(
    family: str, upper: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = build(encoder_families.write(tmp_path / family, family), upper_layers=upper)
    lists = random_lists(6, seed=2)
    expected = [literal(ranker, one) for one in lists]
    for tokens in (10, 1 << 14):  # lists apart, and together
        monkeypatch.setattr(neural, "_TOKENS_PER_RUN", tokens)
        batch = ranker.collate(lists)
        assert (len(batch.runs) == 1) == (tokens > 10)
        for row, one, scores in zip(ranker(batch), lists, expected, strict=True):
            torch.testing.assert_close(row[: len(one)], scores, **CLOSE)


@torch.no_grad()
def test_an_untrained_encoder_equals_a_literal_reference_with_scores_up_to_one(tiny_bert: str) -> None:
    ranker = Ahead.untrained(tiny_bert).eval()
    one = RankingList.from_texts("red shoes", ["red shoes", "blue shoes", "office chair"])
    scores = ranker(ranker.collate([one]))[0]
    torch.testing.assert_close(scores, literal(ranker, one), **CLOSE)
    assert scores.abs().max() <= 1
    assert ranker.max_query_tokens == ranker.max_item_tokens == length_limit(Path(tiny_bert)) - 2


@torch.no_grad()
def test_several_upper_layers_few_shapes_and_one_graph(tmp_path: Path) -> None:
    ranker = build(str(tiny_models.write_bert(tmp_path / "bert", layers=3)), upper_layers=2)
    one = random_lists(1, seed=3)[0]
    expected = literal(ranker, one)
    ranker.pad_to_few_shapes()
    batch = ranker.collate([one])
    torch.testing.assert_close(ranker(batch)[0], expected, **CLOSE)
    (run,) = batch.runs
    assert list(run) == list(ranker.run_axes)
    assert {
        run["group_item"].shape[0] % 64,
        run["item_mask"].shape[0] % 64,
        run["query_ids"].shape[0] % 4,
    } == {0}
    compiled = torch.compile(ranker.score_run, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(**run), ranker.score_run(**run), **CLOSE)


@torch.no_grad()
def test_contributions_sum_to_the_scores(tiny_bert: str) -> None:
    ranker = build(tiny_bert, upper_layers=1)
    one = random_lists(1, seed=6, most_items=9)[0]
    explained = ranker.explain(one)
    sums = torch.tensor([sum(part.value for part in each.contributions) for each in explained])
    torch.testing.assert_close(sums, ranker(ranker.collate([one]))[0], **CLOSE)
    for each in explained:
        assert [part.token for part in each.contributions] == ranker.tokenizer.hf.tokenize(each.item)[:6]


def test_mistakes_are_named(tiny_bert: str, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="upper_layers=2, but the encoder has 2 layers and one must come before them"
    ):
        Ahead(tiny_bert, upper_layers=2)
    with pytest.raises(ValueError, match="max_query_tokens=159 and max_item_tokens=32 need 161 positions"):
        Ahead(tiny_bert, upper_layers=1, max_query_tokens=159)
    with pytest.raises(
        ValueError, match="encoding items in groups needs an encoder whose layers see the whole"
    ):
        Ahead(encoder_families.write(tmp_path / "modern", "modernbert"), upper_layers=1)


def test_items_by_id_take_their_states_from_the_store(tiny_bert: str, tmp_path: Path) -> None:
    ranker, one = build(tiny_bert, upper_layers=1), random_lists(1, seed=4, most_items=40)[0]
    texts = dict.fromkeys(one.items)
    items = {f"id-{i}": text for i, text in enumerate([*texts, "red shoe boots car dog cat book lamp"])}
    save_ranker(ranker, tmp_path / "model")
    (tmp_path / "items.tsv").write_text("".join(f"{name}\t{text}\n" for name, text in items.items()))
    command = ["tokens", str(tmp_path / "items.tsv"), "--model", str(tmp_path / "model"), "--states"]
    assert main([*command, "--out", str(tmp_path / "store")]) == 0
    by_text, by_id = Reranker(tmp_path / "model", "cpu"), Reranker(tmp_path / "model", "cpu")
    by_id.store = TokenStore.open(tmp_path / "store")
    read: list[int] = []
    hook = by_id.ranker.get_submodule("encoder").register_forward_hook(
        lambda *call: read.append(len(call[2][0]))
    )
    for names in (list(items), [*items][::-2]):
        expected = by_text.rank(one.query, [items[name] for name in names])
        found = by_id.rank(one.query, names)
        assert [row.index for row in found] == [row.index for row in expected]
        gaps = [abs(a.score - b.score) for a, b in zip(found, expected, strict=True)]
        assert 0 < max(gaps) < 0.02, "float16 states"
    assert len(read) == 2, "the lower layers read the queries alone"
    hook.remove()
    lists = [by_id._list("q", one.query, names) for names in (list(items)[:7], list(items)[3:])]
    assert isinstance(lists[1], TokenizedList)
    together = by_id.score(lists)
    torch.testing.assert_close(together[1], by_id.score(lists[1:])[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        by_id.score([lists[1].select([4, 0])])[0], together[1][[4, 0]], rtol=1e-4, atol=1e-4
    )
    served = ServedModel("ahead", Reranker(tmp_path / "model", "cpu"), store=by_id.store)
    (part,) = served.prepare([one.query], list(items)[:7], ids=True)[1]
    torch.testing.assert_close(by_id.score([part.payload])[0], together[0], rtol=1e-4, atol=1e-4)
    assert isinstance(part.payload, TokenizedList)
    assert part.payload.states is not None
    other = Reranker(build(tiny_bert, upper_layers=1, query_bias=0.0), "cpu")
    with torch.no_grad():
        next(other.ranker.parameters()).add_(1.0)
    with pytest.raises(ValueError, match="states of a model with other weights or another limit"):
        other.store = by_id.store


def test_a_model_without_states_is_told(
    tiny_bert: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_ranker(MonoBERT(tiny_bert, **LIMITS), tmp_path / "model")
    (tmp_path / "items.tsv").write_text("a\tred\n")
    command = ["tokens", str(tmp_path / "items.tsv"), "--model", str(tmp_path / "model"), "--states"]
    assert main([*command, "--out", str(tmp_path / "store")]) == 2
    assert "holds a monobert ranker, which has no states of items" in capsys.readouterr().err
