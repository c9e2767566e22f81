"""What failed on which machine at which step, as one sentence with the next thing to try."""

import re
from collections.abc import Mapping
from typing import Any

_WORDS = 300  # of what a failed task has said
_AGAIN = "then run it again: it continues where it stopped"
_CAUSES = (
    (
        re.compile(r"(?:incorrect|wrong) sudo password", re.IGNORECASE),
        "sudo took no such password there: give the right one with --ask-sudo-password or GPUYARD_SUDO_PASSWORD, the same "
        "for every machine",
    ),
    (
        re.compile(r"missing sudo password|sudo: a password is required", re.IGNORECASE),
        "sudo wants a password there: give it with --ask-sudo-password or GPUYARD_SUDO_PASSWORD",
    ),
    (
        re.compile(r"no space left on device|not enough free space|disk quota", re.IGNORECASE),
        f"a disk of this machine is full: make room on it, {_AGAIN}",
    ),
    (
        re.compile(
            r"failed to (?:fetch|update apt cache)|unable to fetch|could ?n[o']t (?:connect to|resolve) |"
            r"temporary failure (?:in name resolution|resolving)|could not find a version",
            re.IGNORECASE,
        ),
        f"this machine does not get its packages: look whether it reaches the mirror that its apt or pip names, {_AGAIN}",
    ),
)


def failure(data: Mapping[str, Any]) -> str:
    """Of an event of Ansible's about a task that failed, or a machine that it does not reach."""
    result = data.get("res") or {}
    parts = [result.get(key) for key in ("msg", "stderr", "stdout")]
    said = "; ".join(str(part) for part in parts if part) or "no words"
    words = " ".join(said.split())
    short = words.rstrip(".:") if len(words) <= _WORDS else words[:_WORDS] + "…"
    host, step = data.get("host", "a host"), data.get("task", "a task")
    if result.get("unreachable"):
        return f"{host} can't be reached at the step {step!r}: {short}. See that it is up and that ssh lets you in, {_AGAIN}"
    if limit := (result.get("timedout") or {}).get("period"):
        return (
            f"{host}: {step!r} did not end in {limit} s. What it waits for does not answer, like a mount whose server is "
            f"gone: see with `findmnt` and `ps` there what hangs, and mend it, {_AGAIN}"
        )
    advice = next((words_ for cause, words_ in _CAUSES if cause.search(words)), "")
    return f"{host}: {step!r} failed: {short}" + (
        f". {advice[0].upper()}{advice[1:]}" if advice else ""
    )
