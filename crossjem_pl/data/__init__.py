"""Ranking lists in and out: formats, sources, the sampler of items, the simulator and the data module."""

from crossjem_pl.data.sources import (
    FileSource,
    ListSource,
    MemorySource,
    MixedSource,
    ShardSource,
    SimulatorSource,
)

__all__ = ["FileSource", "ListSource", "MemorySource", "MixedSource", "ShardSource", "SimulatorSource"]
