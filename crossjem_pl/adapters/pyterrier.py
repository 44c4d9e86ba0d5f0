"""PyTerrier: a ranker as a transformer of result frames."""

from __future__ import annotations

import numpy as np
import pandas as pd

from crossjem_pl.adapters import Model, as_reranker, library_of_extra
from crossjem_pl.lists import RankingList

with library_of_extra("pyterrier"):
    import pyterrier as pt

__all__ = ["PyTerrierReranker"]


class PyTerrierReranker(pt.Transformer):
    """Sets `score` and `rank` of each query's results, which are scored together; no Java is started.

    Args:
        model: a model folder, a hub repository, a ranker or a reranker.
        text_field: the column of the items' texts.
    """

    def __init__(self, model: Model, text_field: str = "text") -> None:
        super().__init__()
        self.reranker = as_reranker(model)
        self.text_field = text_field

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """The rows of `inp` in their order, with the columns `qid, docno, query`, the text, `score` and `rank`.

        Raises:
            pt.validate.InputValidationError: if a column is missing.
            ValueError: if a text is blank, a `qid` is missing or has several queries, or a `docno` comes twice in a
                query.
        """
        pt.validate.result_frame(inp, extra_columns=["query", self.text_field], context=self)
        if inp["qid"].isna().any():
            raise ValueError("column 'qid': a row has none")
        positions = list(inp.groupby("qid", sort=False).indices.items())
        lists = []
        for qid, rows in positions:
            own = inp.iloc[rows]
            if own["query"].nunique(dropna=False) > 1:
                raise ValueError(
                    f"list {str(qid)!r}, field 'query': {own['query'].nunique()} texts for one qid"
                )
            ids, texts = own["docno"].astype(str), own[self.text_field]
            lists.append(RankingList(str(qid), own["query"].iloc[0], tuple(ids), tuple(texts)))
        scores = np.empty(len(inp))
        for (_, rows), found in zip(positions, self.reranker.score(lists), strict=True):
            scores[rows] = found.numpy()
        return pt.model.add_ranks(inp.assign(score=scores))
