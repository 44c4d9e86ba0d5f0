"""CROSS-JEM for items that are known ahead: the lower layers see each item alone, the upper ones the query too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self, Unpack

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from crossjem_pl.hashing import weights_sha256
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Batch, init_arguments, item_mask, item_places, register, tensors
from crossjem_pl.rankers.bert import HIDDEN
from crossjem_pl.rankers.crossjem.attention import Copies, ItemSideLayers, check_attention
from crossjem_pl.rankers.crossjem.batch import Steps, group_items, padded, token_tables, up
from crossjem_pl.rankers.crossjem.heads import (
    HeadRanker,
    MatchHead,
    ScoringHead,
    TokenStates,
    best_head,
)
from crossjem_pl.rankers.encoders import encode_tokens, load_encoder, resolve
from crossjem_pl.rankers.folder import length_limit
from crossjem_pl.rankers.neural import RankerOptions, check_positions, distinct_in, list_runs
from crossjem_pl.text import ItemStates, Ragged, StateRows, TokenizedList
from crossjem_pl.text.ragged import Ints, side_by_side

__all__ = ["Ahead"]

_WITH_STATES = (
    *("query_ids", "context_mask", "word_mask", "group_item", "group_pass", "item_pass"),
    *("item_mask", "item_rows", "item_positions", "item_states", "group_token"),
)
_GROUPS_PER_PASS = 256


@register
class Ahead(HeadRanker):
    """The "ahead" form of CROSS-JEM: what an encoder's lower layers make of an item does not depend on the query.

    `[CLS] item [SEP]` and `[CLS] query [SEP]` pass the lower layers each alone, as a sentence encoder was trained, so
    that the items' states can be computed once. In the upper layers an item's tokens attend to the query's states too,
    and the query to itself, as in PreTTR (MacAvaney et al., arXiv 2004.14255) and MICE (arXiv 2602.16299); a scoring
    head of CROSS-JEM reads the words' states. Without upper layers it is late interaction.

    There is no union: a score depends on the query and its item alone, and unions' shared tokens spare nothing.

    Args:
        encoder: hub id, folder, or `packaged:all-MiniLM-L6-v2`; BERT, DistilBERT, ELECTRA, RoBERTa and their kin.
        head: how token states become scores; None for `MatchHead` as in CROSS-JEM's recommended form.
        upper_layers: how many of the encoder's last layers see the query; each costs more than all the rest of ranking
            by id.
        query_bias: what is added to the items' attention logits on the query's words. Below 0, training begins near an
            encoding of the items on their own.
        options: see `RankerOptions`.

    Raises:
        ValueError: if there are not as many layers and one below, an encoder has windows of attention of its own, or a
            limit is beyond its positions.
    """

    name = "ahead"
    independent = True

    def __init__(
        self,
        encoder: str,
        head: ScoringHead | None = None,
        upper_layers: int = 1,
        query_bias: float = -3.0,
        **options: Unpack[RankerOptions],
    ) -> None:
        init_args = init_arguments(locals(), options)
        made = best_head() if head is None else head
        init_args["head"] = {"class": type(made).__name__, "init_args": made.init_args}
        super().__init__(init_args, encoder, options)
        self.encoder = load_encoder(encoder, options)
        check_attention(self.encoder, "encoding items in groups")
        self.upper = ItemSideLayers(self.encoder, upper_layers, "upper_layers") if upper_layers else None
        longest = max(self.max_query_tokens, self.max_item_tokens)
        limits = f"max_query_tokens={self.max_query_tokens} and max_item_tokens={self.max_item_tokens}"
        check_positions(self.encoder_config, longest + 2, limits)
        self.query_bias, self.steps = query_bias, Steps()
        self.head = made
        self.head.build(int(self.encoder_config.hidden_size), self.max_item_tokens)

    def encoders(self) -> list[nn.Module]:
        return [part for part in (self.encoder, self.upper) if part is not None]

    @classmethod
    def untrained(cls, encoder: str) -> Self:
        """A sentence encoder as it is: late interaction with scores in [-1, 1], texts as long as the encoder allows.

        Cosine, recall and precision count 4 : 4 : 1, chosen on training lists of four fields.
        """
        folder = Path(resolve(encoder))
        longest = length_limit(folder) - 2
        head = MatchHead(scale=4 / 9, precision_scale=1 / 9, whole_query=True)
        return cls(encoder, head, upper_layers=0, max_query_tokens=longest, max_item_tokens=longest)

    def collate(self, lists: Sequence[RankingList]) -> Batch:
        mask, hf = item_mask(lists), self.tokenizer.hf
        queries, items = self.encode_queries(lists), self.encode_items(lists)
        query_rows = side_by_side([hf.cls_token_id], queries.tokens, [hf.sep_token_id])
        list_of_item = np.repeat(np.arange(len(lists)), [len(one) for one in lists])
        first, member = distinct_in(list_of_item, items.tokens)
        rows = side_by_side([hf.cls_token_id], items.tokens.take(first), [hf.sep_token_id])
        counts = np.bincount(list_of_item[first])
        begin = np.cumsum(counts) - counts
        states = _states(lists)
        if states is not None:
            states = states.take(first)
            if (states.lengths != rows.lengths).any():
                raise ValueError(
                    "states of items that were cut to another limit; build the token store again"
                )
        runs, offset = [], np.zeros(len(lists), dtype=np.int64)  # of the outputs of each list
        before = 0
        for a, b in list_runs(np.add.reduceat(rows.lengths, begin)):
            own = rows.slice(begin[a], begin[b - 1] + counts[b - 1])
            made = self._tensors(query_rows.slice(a, b), own, np.repeat(np.arange(b - a), counts[a:b]))
            if states is not None:
                start = rows.starts[begin[a]]
                made["item_states"] = states.values[start : start + len(own.values)]
            names = self.run_axes if states is None else [name for name in _WITH_STATES if name in made]
            runs.append(tensors({name: made[name] for name in names}))
            offset[a:b] = before - begin[a]
            before += len(made["item_pass"])
        outputs = offset[list_of_item] + member
        return Batch(mask, items.truncated, queries.truncated, runs=runs, places=item_places(mask, outputs))

    def _tensors(self, queries: Ragged, rows: Ragged, list_of_row: Ints) -> dict[str, np.ndarray]:
        """The arrays of a run (see `run_axes`), from rows `[CLS] query [SEP]` and `[CLS] item [SEP]`."""
        steps = self.steps
        size = up(len(queries.lengths), steps.passes), up(int(queries.lengths.max()), 4)
        query_ids = np.full(size, self.tokenizer.hf.pad_token_id or 0)
        query_ids[queries.row_of, queries.position_of] = queries.values
        lengths, column = padded(queries.lengths, steps.passes, 1)[:, None], np.arange(size[1])[None, :]
        groups, own = group_items(
            rows, list_of_row, len(queries.lengths), np.arange(len(rows.values)), steps.groups
        )
        index, inside = groups["group_token"], groups["group_item"] >= 0
        words = (rows.position_of > 0) & (rows.position_of < rows.lengths[rows.row_of] - 1)
        places = Ragged(own.values[words] + query_ids.size, rows.lengths - 2)
        return {
            "query_ids": query_ids,
            "context_mask": column < lengths,
            "word_mask": (column > 0) & (column < lengths - 1),
            "input_ids": np.where(inside, rows.values[index], self.tokenizer.hf.pad_token_id or 0),
            "position_ids": np.where(inside, rows.position_of[index], 0),
            **groups,
            "item_pass": padded(list_of_row, steps.items, 0),
            **token_tables(places, rows.position_of[words] - 1, len(padded(list_of_row, steps.items, 0))),
        }

    @torch.no_grad()
    def item_states(self, tokens: Ragged) -> NDArray[np.float16]:
        """What the lower layers make of `[CLS] item [SEP]`, float16 [states, width], one item after the other.

        Args:
            tokens: token ids of the items, at most `max_item_tokens` each.
        """
        rows = side_by_side([self.tokenizer.hf.cls_token_id], tokens, [self.tokenizer.hf.sep_token_id])
        one = np.zeros(len(rows.lengths), dtype=np.int64)
        groups, own = group_items(rows, one, 1, np.arange(len(rows.values)), 1)
        inside, device = groups["group_item"] >= 0, next(self.parameters()).device
        ids = np.where(inside, rows.values[groups["group_token"]], self.tokenizer.hf.pad_token_id or 0)
        positions = np.where(inside, rows.position_of[groups["group_token"]], 0)
        whole = (torch.from_numpy(each).to(device) for each in (ids, positions, groups["group_item"]))
        parts = zip(*(each.split(_GROUPS_PER_PASS) for each in whole), strict=True)
        states = torch.cat([self._lower(*part).half().flatten(0, 1) for part in parts])
        return states[torch.from_numpy(own.values).to(device)].cpu().numpy()

    def store_states(self) -> ItemStates:
        return ItemStates(self.item_states, weights_sha256(self), int(self.encoder_config.hidden_size))

    def _lower(self, input_ids: Tensor, position_ids: Tensor, group_item: Tensor) -> Tensor:
        """States [G, W, width] of items in groups, each of which sees itself alone."""
        alone = torch.where(group_item[:, :, None] == group_item[:, None, :], 0.0, HIDDEN).unsqueeze(1)
        return encode_tokens(self.encoder, input_ids, alone, position_ids=position_ids)

    @property
    def run_axes(self) -> dict[str, tuple[str, ...]]:
        """The names of the tensors of a run and of their axes: P queries of Q tokens, R distinct items of T words, and
        the items' tokens put into G groups of W, each of items of one list.

        - query_ids: int64 [P, Q]; context_mask, word_mask: bool [P, Q], which are no padding, and which words.
        - input_ids, position_ids: int64 [G, W]; group_item: int64 [G, W], the item of each token, -1 on padding;
          group_pass: int64 [G], the query of each group.
        - item_pass: int64 [R], the query of each item; item_mask: bool [R, T]; item_rows: int64 [R, T], where its words
          are among all P * Q + G * W; item_positions: int64 [R, T], their places in it.
        """
        context, groups, items = (
            ("passes", "context_tokens"),
            ("groups", "group_tokens"),
            ("items", "item_tokens"),
        )
        axes: dict[str, tuple[str, ...]] = dict.fromkeys(("query_ids", "context_mask", "word_mask"), context)
        axes |= {"group_item": groups, "group_pass": ("groups",), "item_pass": ("items",)}
        axes |= dict.fromkeys(("item_mask", "item_rows", "item_positions"), items)
        return axes | dict.fromkeys(("input_ids", "position_ids"), groups)

    def score_run(
        self,
        query_ids: Tensor,
        context_mask: Tensor,
        word_mask: Tensor,
        group_item: Tensor,
        group_pass: Tensor,
        item_pass: Tensor,
        item_mask: Tensor,
        item_rows: Tensor,
        item_positions: Tensor,
        input_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        item_states: Tensor | None = None,
        group_token: Tensor | None = None,
    ) -> Tensor:
        """Scores of distinct items, float32 [R], from the tensors of `run_axes`.

        Instead of input_ids and position_ids, items whose states are known have item_states, float16 [n, width], and
        group_token, int64 [G, W], which of these each token of a group is.
        """
        query = encode_tokens(self.encoder, query_ids, context_mask.long())
        if item_states is not None:
            assert group_token is not None
            items = F.embedding(group_token, item_states.to(query.dtype))
        else:
            assert input_ids is not None
            assert position_ids is not None
            items = self._lower(input_ids, position_ids, group_item)
        if self.upper is not None:
            states = torch.cat([query.flatten(0, 1), items.flatten(0, 1)])
            columns = torch.arange(context_mask.numel(), device=states.device).unflatten(
                0, context_mask.shape
            )
            rows = torch.arange(group_item.numel(), device=states.device).unflatten(0, group_item.shape)
            rows = context_mask.numel() + rows
            masks = context_mask, word_mask, group_item, group_pass
            query, items = self.upper(Copies(states, columns, rows), *masks, self.query_bias)
        of_items = (item_rows - context_mask.numel()).clamp(min=0), item_mask, item_positions, item_pass
        of_query = query.float(), context_mask, word_mask
        return self.apply_head(TokenStates(*of_query, items.float(), group_pass, *of_items))


def _states(lists: Sequence[RankingList]) -> StateRows | None:
    """The states of all items, list after list; None unless all lists have some."""
    found = [one.states for one in lists if isinstance(one, TokenizedList) and one.states is not None]
    if len(found) < len(lists):
        return None
    if len(found) == 1:
        return found[0]
    return StateRows(*(np.concatenate(parts) for parts in zip(*found, strict=True)))
