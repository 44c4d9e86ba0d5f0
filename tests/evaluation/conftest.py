"""Fewer samples than users get, but for the tests of the significance itself."""

from __future__ import annotations

import pytest

from crossjem_pl.evaluation.significance import bootstrap_interval, randomisation_test


@pytest.fixture(autouse=True)
def few_samples(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.module.__name__.endswith("test_significance"):
        for function in (bootstrap_interval, randomisation_test):
            monkeypatch.setitem(function.__kwdefaults__, "samples", 1000)
