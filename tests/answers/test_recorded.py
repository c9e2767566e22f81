"""The JSON output of fifty commands keeps its recorded keys and figures.

If a change intends to change figures, record them again with `python -m tests.answers.record`; the commit then shows which.
"""

import json
import math
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli

HERE = Path(__file__).parent
COMMANDS = dict(
    line.split(": ", 1)
    for line in (HERE / "commands.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
)
# time, version, and place of one run
_RUN_KEYS = {"created_at", "gpuyard_version", "host", "price_date"}


def command_line(name: str, directory: Path) -> list[str]:
    return [word.replace("{tmp}", str(directory)) for word in shlex.split(COMMANDS[name])]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_output_matches_the_recording(cli: Cli, name: str, tmp_path: Path) -> None:
    recorded = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    current = json.loads(cli(*command_line(name, tmp_path), "--json").stdout)
    assert list(find_differences(recorded, current, name)) == []


def find_differences(recorded: Any, current: Any, path: str) -> Any:
    """Yield each recorded value that is missing or different; new keys are allowed."""
    if isinstance(recorded, dict) and isinstance(current, dict):
        for key in recorded.keys() - _RUN_KEYS:
            if key in current:
                yield from find_differences(recorded[key], current[key], f"{path}.{key}")
            else:
                yield f"{path}.{key} is gone"
    elif isinstance(recorded, list) and isinstance(current, list):
        if len(recorded) != len(current):
            yield f"{path} has {len(current)} entries, had {len(recorded)}"
        for index, (old, new) in enumerate(zip(recorded, current, strict=False)):
            yield from find_differences(old, new, f"{path}[{index}]")
    elif isinstance(recorded, float) and isinstance(current, float | int):
        if not math.isclose(recorded, current, rel_tol=1e-9, abs_tol=1e-12):
            yield f"{path} is {current}, was {recorded}"
    elif isinstance(recorded, str) and isinstance(current, str):
        return  # wording may change
    elif recorded != current:
        yield f"{path} is {current!r}, was {recorded!r}"
