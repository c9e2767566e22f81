"""The recorded outputs: adding a case is adding a file and its paragraph in sources.toml."""

import tomllib
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded"
SOURCES: dict[str, dict[str, Any]] = tomllib.loads(
    (RECORDED / "sources.toml").read_text(encoding="utf-8")
)


def recorded(folder: str, *, bad: bool = False) -> list[str]:
    """Names of the good, or of the broken, recordings in a folder."""
    names = sorted(f"{folder}/{path.name}" for path in (RECORDED / folder).iterdir())
    return [name for name in names if bool(SOURCES[name].get("bad")) == bad]


def text_of(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8")
