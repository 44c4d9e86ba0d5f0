"""A tiny encoder for all benchmark programs."""

from __future__ import annotations

import pytest

from tests import tiny_models


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three layers, since some overlays take three of an encoder; wide enough for matrices to be most of the work."""
    folder = tmp_path_factory.mktemp("benchmarks") / "bert"
    return str(tiny_models.write_bert(folder, hidden_size=96, layers=3, positions=512))
