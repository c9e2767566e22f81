"""Where gpuyard keeps what it stores for a user."""

import os
from pathlib import Path


def home() -> Path:
    """`$GPUYARD_HOME`, or `gpuyard` under `$XDG_DATA_HOME` (by default `~/.local/share`)."""
    named = os.environ.get("GPUYARD_HOME")
    if named:
        return Path(named).expanduser()
    shared = os.environ.get("XDG_DATA_HOME")
    base = Path(shared) if shared else Path.home() / ".local" / "share"
    return base / "gpuyard"


def directories() -> tuple[Path, ...]:
    """All that gpuyard keeps files in."""
    return tuple(home() / name for name in ("", "checkpoints", "datasets", "labs"))


def results_file() -> Path:
    """The SQLite store of measurements."""
    return home() / "results.sqlite"


def calibration_file() -> Path:
    """The constants that were fitted to this user's measurements."""
    return home() / "calibration.json"


def prices_file() -> Path:
    """Prices that are newer than the shipped ones, where the user took some in."""
    return home() / "prices.csv"


def dataset_directory(name: str) -> Path:
    """Where a fetched dataset lies."""
    return home() / "datasets" / name
