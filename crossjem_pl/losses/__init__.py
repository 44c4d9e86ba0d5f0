"""Ranking losses: pure masked functions, each with a thin `RankingLoss` module that `LOSSES` names.

Every function is `fn(scores, targets, mask, *, options, reduction="mean")`: scores and targets floating point
[lists, items], mask bool [lists, items] and True on items. It returns a scalar, or [lists] for reduction "none".
"""

from crossjem_pl.losses.base import *  # noqa: F403 - each module's __all__ is the one list of its names
from crossjem_pl.losses.contrastive import *  # noqa: F403
from crossjem_pl.losses.listwise import *  # noqa: F403
from crossjem_pl.losses.pairwise import *  # noqa: F403
from crossjem_pl.losses.pointwise import *  # noqa: F403
from crossjem_pl.losses.ranking_probability import *  # noqa: F403
