"""Ranking losses: masked classes that `LOSSES` names.

Every one is called with scores and targets, floating point [lists, items], and a mask, bool [lists, items] and True on
items, and gives a scalar.
"""

from crossjem_pl.losses.base import *  # noqa: F403 - each module's __all__ is the one list of its names
from crossjem_pl.losses.contrastive import *  # noqa: F403
from crossjem_pl.losses.listwise import *  # noqa: F403
from crossjem_pl.losses.pairwise import *  # noqa: F403
from crossjem_pl.losses.pointwise import *  # noqa: F403
from crossjem_pl.losses.ranking_probability import *  # noqa: F403
