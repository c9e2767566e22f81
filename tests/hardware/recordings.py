"""Recorded outputs of tools; a new case is a new file and its table in sources.toml."""

import tomllib
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded"
SOURCES: dict[str, dict[str, Any]] = tomllib.loads(
    (RECORDED / "sources.toml").read_text(encoding="utf-8")
)


def list_recordings(folder: str, *, bad: bool = False) -> list[str]:
    """Return the names of the valid (or the broken) recordings in a folder."""
    names = sorted(f"{folder}/{path.name}" for path in (RECORDED / folder).iterdir())
    return [name for name in names if bool(SOURCES[name].get("bad")) == bad]


def read_recording(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8")
