"""Names that options had before keep working, and no help shows them."""

from typing import Any

import pytest
import typer

from gpuyard.cli.app import OLD_SPELLINGS, app

RENAMED = [
    (path, old, new) for path, renamed in OLD_SPELLINGS.items() for old, new in renamed.items()
]
VALUES = {"load": "spiky", "horizon": "7 years"}


def found(path: str) -> Any:
    command: Any = typer.main.get_command(app)
    for name in path.split():
        command = command.get_command(None, name)
    return command


@pytest.mark.parametrize(("path", "old", "new"), RENAMED)
def test_an_old_name_is_read_as_the_new_one(path: str, old: str, new: str) -> None:
    command = found(path)
    options = {option for p in command.params if not p.hidden for option in p.opts}
    assert f"--{new}" in options and f"--{old}" not in options
    (parameter,) = (p for p in command.params if f"--{new}" in p.opts)
    value = [] if parameter.is_flag else [VALUES.get(new, "7")]
    read = [
        command.make_context("gpuyard", [f"--{name}", *value], resilient_parsing=True).params
        for name in (old, new)
    ]
    assert read[0] == read[1]
    assert read[0][parameter.name] not in (None, parameter.default)
