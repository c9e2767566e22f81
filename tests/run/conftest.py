"""Ranks import what lies beside the tests, as they would a user's own model."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
