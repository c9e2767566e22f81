"""Ranks can import modules from this directory, as they would import a user's own model."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _test_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
