"""Code that a spec from elsewhere names: `--allow-code`, or a question on the terminal."""

import sys
from typing import Any

from gpuyard.cli.output import added_flag
from gpuyard.errors import CodeNotAllowed
from gpuyard.printable import printable

MAY_RUN_CODE = frozenset(
    {
        "bench relief",
        "bench sweep",
        "bench train",
        "catalog gpus",
        "facility fabric",
        "facility storage",
        "plan",
        "playbook",
        "predict",
        "study",
        "topo compare",
        "train",
    }
)
"""The commands that read workloads and run what these name."""


def add_allow_code_option(command: Any, path: str) -> None:
    """To this command, if it may run a user's code, and to those below it."""
    if path in MAY_RUN_CODE:
        help = "Run code that a spec outside this project names."
        command.params.append(added_flag("--allow-code", help, _allow))
    for name, below in getattr(command, "commands", {}).items():
        add_allow_code_option(below, f"{path} {name}")


def agreed(found: CodeNotAllowed) -> bool:
    """Whether somebody at a terminal lets it run; from then on it is allowed."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    sys.stderr.write(printable(f"gpuyard: {found.found}.\nRun it? [y/N] "))
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        return False
    from gpuyard.workloads.own_code import allow_code

    allow_code(found.file)
    return True


def _allow(wanted: bool) -> None:
    if wanted:
        from gpuyard.workloads.own_code import allow_code

        allow_code()
