"""The paper's algorithms written down literally: one list at a time, python loops, an N x M mask."""

from __future__ import annotations

import copy
import dataclasses
import math
import random
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM, LinearHead, MatchHead
from tests import tiny_models


def random_lists(count: int, seed: int, most_items: int = 12) -> list[RankingList]:
    """Lists with repeated items, repeated words, and texts longer than 6 tokens."""
    source = random.Random(seed)

    def text() -> str:
        return " ".join(source.choices(tiny_models.WORDS[:40], k=source.randint(1, 8)))

    made = []
    for i in range(count):
        items = [text() for _ in range(source.randint(1, most_items))]
        if source.random() < 0.3:
            items.append(source.choice(items))
        made.append(RankingList.from_texts(text(), items, f"q{i}"))
    return made


@torch.no_grad()
def sharpened(ranker: CrossJEM) -> CrossJEM:
    """The ranker in eval mode with larger weights, so that attention and positions show in the scores."""
    for parameter in ranker.parameters():
        if parameter.ndim == 2:
            parameter.mul_(3.0)
    return ranker.eval()


@dataclass
class Joint:
    """One joint pass: token ids and the states [tokens, width] of `[CLS] query [SEP] union`."""

    query: list[int]
    items: list[list[int]]
    union: list[int]
    places: list[int]
    states: Tensor

    @property
    def query_states(self) -> Tensor:
        return self.states[1 : 1 + len(self.query)]

    def state_of(self, token: int) -> Tensor:
        return self.states[len(self.query) + 2 + self.union.index(token)]


def joint_pass(
    ranker: CrossJEM, one: RankingList, *, segments: bool = True, first: int = 0, backwards: bool = False
) -> Joint:
    """Algorithm 2, lines 1 to 21. `backwards` turns the union round; `first` is the first position's id."""
    hf = ranker.tokenizer.hf
    vocabulary = hf.get_vocab()

    def tokenize(text: str, limit: int) -> list[int]:
        return [vocabulary[token] for token in hf.tokenize(text)][:limit]

    query = tokenize(one.query, ranker.max_query_tokens)
    union: set[int] = set()
    items = []
    for text in one.items:
        tokens = tokenize(text, ranker.max_item_tokens)
        union = union.union(tokens)
        items.append(tokens)
    ordered = sorted(union, reverse=backwards)
    ids = [hf.cls_token_id, *query, hf.sep_token_id]
    segment_ids = [0] * len(ids) + [0 if ranker.union_positions == "item" else 1] * len(ordered)
    places = [min(item.index(token) for item in items if token in item) for token in ordered]
    if ranker.union_positions == "sequential":
        positions = list(range(len(ids) + len(ordered)))
    else:
        positions = list(range(len(ids))) + [1 + place for place in places]
    mask = torch.ones(1, len(positions), dtype=torch.long)
    if ranker.union_attention == "item":
        mask = neighbours_table(ranker.query_bias, query, items, ordered)[None, None]
    inputs = {
        "input_ids": torch.tensor([ids + ordered]),
        "attention_mask": mask,
        "position_ids": torch.tensor([positions]) + first,
    }
    if segments:
        inputs["token_type_ids"] = torch.tensor([segment_ids])
    return Joint(query, items, ordered, places, ranker.encoder(**inputs).last_hidden_state[0])


def neighbours_table(query_bias: float, query: list[int], items: list[list[int]], union: list[int]) -> Tensor:
    """What is added to the logits when union tokens see the query and the tokens of their items."""
    start = len(query) + 2
    table = torch.full((start + len(union), start + len(union)), -math.inf)
    for row in range(start + len(union)):
        for column in range(start + len(union)):
            if column < start:
                word = 0 < column < start - 1
                table[row, column] = query_bias if row >= start and word else 0.0
            elif row >= start:
                one, other = union[row - start], union[column - start]
                if any(one in item and other in item for item in items):
                    table[row, column] = 0.0
    return table


def classifier(ranker: CrossJEM) -> nn.Linear:
    assert isinstance(ranker.head, LinearHead)
    return ranker.head.classifier


def attention_mask(query: list[int], union: list[int], item: list[int]) -> list[int]:
    """Algorithm 1, with the [SEP] that the pool's definition in section 3.1 has and the algorithm forgets."""
    mask = []
    for _ in range(len(query)):
        mask.append(1)
    mask.append(1)
    for token in union:
        if token in item:
            mask.append(1)
        else:
            mask.append(0)
    return mask


def sinusoid(position: int, width: int) -> Tensor:
    values = []
    for i in range(width):
        angle = position / 10000 ** ((i - i % 2) / width)
        values.append(math.sin(angle) if i % 2 == 0 else math.cos(angle))
    return torch.tensor(values)


def paper_scores(
    joint: Joint,
    classifier: nn.Linear,
    *,
    positions: bool = False,
    pool_cls: bool = False,
    own: list[Tensor] | None = None,
) -> Tensor:
    """Algorithm 2, lines 10 to 24: mask, selective mean pooling, classifier. Float32 [items].

    Args:
        own: states [tokens, width] of each item after item-side layers; they stand for the union's.
    """
    masks = [attention_mask(joint.query, joint.union, item) for item in joint.items]
    scores = []
    for number, (mask, item) in enumerate(zip(masks, joint.items, strict=True)):
        pool = [joint.states[0]] if pool_cls else []
        for column, selected in enumerate(mask):
            in_union = column > len(joint.query)
            if not selected or (own is not None and in_union):
                continue
            state = joint.states[column + 1]
            if positions and in_union:
                token = joint.union[column - len(joint.query) - 1]
                state = state + sinusoid(item.index(token), len(state))
            pool.append(state)
        for position, state in enumerate(own[number]) if own is not None else ():
            pool.append(state + sinusoid(position, len(state)) if positions else state)
        scores.append(classifier(torch.stack(pool).mean(0))[0])
    return torch.stack(scores)


def item_states(joint: Joint) -> list[Tensor]:
    """The joint states of each item's distinct tokens."""
    return [torch.stack([joint.state_of(token) for token in dict.fromkeys(item)]) for item in joint.items]


def item_side_states(ranker: CrossJEM, joint: Joint, first: int = 0) -> tuple[Joint, list[Tensor]]:
    """Every item's tokens after [CLS] query [SEP] through the item-side layers, one sequence each.

    Returns:
        The pass with the query's states after these layers, and the states [tokens, width] of each item.
    """
    assert ranker.item_side_layers is not None
    layers = copy.deepcopy(ranker.item_side_layers)
    for module in layers.modules():
        config = getattr(module, "config", None)
        if config is not None:
            config._attn_implementation = "eager"
    start = len(joint.query) + 2
    mask = torch.zeros(1, 1, *[start + max(map(len, joint.items))] * 2)
    mask[..., :start, start:] = -math.inf
    mask[..., start:, 1 : start - 1] = ranker.query_bias
    rows = []
    for item in joint.items:
        tokens = torch.stack([joint.state_of(token) for token in item])
        if ranker.own_places:
            table = ranker.encoder.get_parameter("embeddings.position_embeddings.weight")[first:]
            for place, token in enumerate(item):
                shift = table[1 + place] - table[1 + joint.places[joint.union.index(token)]]
                if hasattr(ranker.encoder, "embeddings_project"):  # ELECTRA's embeddings are narrower
                    shift = shift @ ranker.encoder.get_parameter("embeddings_project.weight").T
                tokens[place] += shift
        rows.append(torch.cat([joint.states[:start], tokens]))
    for layer in layers:
        own, between = [], []
        for states in rows:
            done, attended = with_attended(layer, states, mask[..., : len(states), : len(states)])
            own.append(done)
            between.append(attended)
        rows = shared_feed_forward(layer, joint, own, between) if ranker.shared_feed_forward else own
    context = torch.cat([rows[-1][:start], joint.states[start:]])
    return dataclasses.replace(joint, states=context), [states[start:] for states in rows]


def with_attended(layer: Any, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The states after the layer, and those that its feed-forward network reads."""
    seen: list[Tensor] = []
    inner = layer.intermediate if hasattr(layer, "intermediate") else layer.ffn
    hook = inner.register_forward_pre_hook(lambda _, given: seen.append(given[0][0]))
    done = layer(states[None], attention_mask=mask)[0]
    hook.remove()
    return done, seen[0]


def shared_feed_forward(layer: Any, joint: Joint, own: list[Tensor], between: list[Tensor]) -> list[Tensor]:
    """The states with the feed-forward network on the mean of what a token's copies got; the query's as they are."""
    start = len(joint.query) + 2
    copies: dict[int, list[Tensor]] = {}
    for item, attended in {tuple(item): x for item, x in zip(joint.items, between, strict=True)}.items():
        for token, x in zip(item, attended[start:], strict=True):
            copies.setdefault(token, []).append(x)
    made = []
    for item, states, attended in zip(joint.items, own, between, strict=True):
        done = states.clone()
        for place, token in enumerate(item, start):
            mean = torch.stack(copies[token]).mean(0)
            if hasattr(layer, "intermediate"):
                change = layer.output.dense(layer.intermediate(mean))
                done[place] = layer.output.LayerNorm(change + attended[place])
            else:
                done[place] = layer.output_layer_norm(layer.ffn(mean) + attended[place])
        made.append(done)
    return made


def query_scores(joint: Joint, own: list[Tensor], scale: float, *, whole: bool = False) -> Tensor:
    """Scale times the cosine of the item's mean and the query's mean; the whole query has [CLS], [SEP]."""
    query = joint.states[: len(joint.query) + 2].mean(0) if whole else joint.query_states.mean(0)
    return torch.stack([scale * F.cosine_similarity(states.mean(0), query, dim=0) for states in own])


def match_scores(joint: Joint, own: list[Tensor], head: MatchHead) -> Tensor:
    """The means' cosine, BERTScore's recall and its precision, each times its scale, in loops."""
    scores, scales = [], head.scale
    for states, mean in zip(own, query_scores(joint, own, 1.0, whole=head.whole_query), strict=True):
        cosines = [[float(F.cosine_similarity(q, t, dim=0)) for t in states] for q in joint.query_states]
        recall = sum(max(row) for row in cosines) / len(cosines)
        precision = sum(max(column) for column in zip(*cosines, strict=True)) / len(states)
        scores.append(scales[0] * mean + scales[1] * recall + scales[2] * precision)
    return torch.stack(scores)
