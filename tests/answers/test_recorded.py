"""What programs read stays: fifty command lines give the figures that they gave when they were recorded.

A change that is meant to change figures records them anew, and its commit shows which:
`python -m tests.answers.record`.
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
# when it was made, by which version, and where: true of one run only
_OF_THE_RUN = {"created_at", "gpuyard_version", "host", "price_date"}


def command_line(name: str, directory: Path) -> list[str]:
    return [word.replace("{tmp}", str(directory)) for word in shlex.split(COMMANDS[name])]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_answer_is_as_recorded(cli: Cli, name: str, tmp_path: Path) -> None:
    recorded = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    answered = json.loads(cli(*command_line(name, tmp_path), "--json").stdout)
    assert list(differences(recorded, answered, name)) == []


def differences(recorded: Any, answered: Any, where: str) -> Any:
    """What was recorded and is not there any more; keys may have been added."""
    if isinstance(recorded, dict) and isinstance(answered, dict):
        for key in recorded.keys() - _OF_THE_RUN:
            if key in answered:
                yield from differences(recorded[key], answered[key], f"{where}.{key}")
            else:
                yield f"{where}.{key} is gone"
    elif isinstance(recorded, list) and isinstance(answered, list):
        if len(recorded) != len(answered):
            yield f"{where} has {len(answered)} entries, had {len(recorded)}"
        for index, (old, new) in enumerate(zip(recorded, answered, strict=False)):
            yield from differences(old, new, f"{where}[{index}]")
    elif isinstance(recorded, float) and isinstance(answered, float | int):
        if not math.isclose(recorded, answered, rel_tol=1e-9, abs_tol=1e-12):
            yield f"{where} is {answered}, was {recorded}"
    elif isinstance(recorded, str) and isinstance(answered, str):
        return  # words may get better
    elif recorded != answered:
        yield f"{where} is {answered!r}, was {recorded!r}"
