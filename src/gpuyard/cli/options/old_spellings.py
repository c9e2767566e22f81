"""Options that had another name before every command had the same name for the same thing: they are still
taken, and no help shows them."""

from collections.abc import Mapping
from typing import Any

OLD_SPELLINGS: Mapping[str, Mapping[str, str]] = {
    "bench collectives": {"nodes": "workers"},
    "bench relief": {"nodes": "workers"},
    "bench storage": {"data": "dataset", "seconds": "time-per-point"},
    "bench train": {"seconds": "time-per-point"},
    "cost growth": {"people": "researchers"},
    "cost hybrid": {"life": "horizon", "pattern": "load"},
    "horovod install": {"again": "fresh"},
    "predict": {"beside": "other-jobs"},
    "topo": {"cluster": "on"},
}
"""Command → the old name of an option → its name."""


def take_old_spellings(command: Any, path: str) -> None:
    """Let this command and those below it read the old names as the new ones."""
    renamed = OLD_SPELLINGS.get(path)
    if renamed is not None:
        command.context_settings["token_normalize_func"] = lambda name: renamed.get(name, name)
    for name, below in getattr(command, "commands", {}).items():
        take_old_spellings(below, f"{path} {name}")
