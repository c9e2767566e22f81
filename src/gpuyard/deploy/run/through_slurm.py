"""Run the command as a Slurm job, which the head submits. It continues if the connection is lost."""

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any

from gpuyard.deploy.access.remote import last_line
from gpuyard.deploy.run.over_ssh import WriteLine
from gpuyard.deploy.run.plan import RunPlan
from gpuyard.errors import GpuyardError
from gpuyard.run.process import start, stop

_TIMEOUT_SECONDS = 120.0


def run_through_slurm(plan: RunPlan, write: WriteLine) -> int:
    """Submit the job, follow its log, and return its exit status. Ctrl-C cancels it."""
    submitted = _ask(plan, plan.submit_words())
    handle = submitted["handle"]
    write(f"gpuyard: submitted {handle} to Slurm")
    for caveat in submitted["caveats"]:
        write(f"gpuyard: {caveat}")
    try:
        _follow(plan, handle, write)
        status = _ask(plan, ("gpuyard", "status", handle, "--json"))
    except KeyboardInterrupt:
        _call(plan, ("gpuyard", "cancel", handle))
        write(f"gpuyard: canceled {handle}")
        raise
    if status["state"] not in ("succeeded", "failed"):
        reason = f": {status['reason']}" if status["reason"] else ""
        raise GpuyardError(f"{handle} is {status['state']}{reason}; {_advise(plan, handle)}")
    if status["state"] == "succeeded":
        return 0
    if status["reason"]:
        write(f"gpuyard: {handle} failed: {status['reason']}")
    return int(status["exit_status"] or 1)  # Slurm may have recorded no status, or 0


def _follow(plan: RunPlan, handle: str, write: WriteLine) -> None:
    command = plan.over_ssh(0, ("gpuyard", "logs", "--follow", handle))
    process = start(command, stderr=subprocess.STDOUT)
    if process.stdout is None:
        raise TypeError("expected a pipe to read from")
    try:
        with process.stdout as stdout:
            for line in stdout:
                write(line.decode(errors="replace").rstrip("\r\n"))
        if process.wait() != 0:
            raise GpuyardError(
                f"the log of {handle} is no longer followed, but the job continues; {_advise(plan, handle)}"
            )
    finally:
        stop([(command, process)])


def _advise(plan: RunPlan, handle: str) -> str:
    return f"on {plan.head.name}, follow it with: gpuyard logs --follow {handle}"


def _ask(plan: RunPlan, words: Sequence[str]) -> Any:
    """Run a gpuyard command on the head, and return its JSON answer."""
    return json.loads(_call(plan, words))


def _call(plan: RunPlan, words: Sequence[str]) -> str:
    # stdin is a pipe that stays open, because closing it would stop the command
    stdin, held = os.pipe()
    try:
        done = subprocess.run(
            plan.over_ssh(0, words).argv,
            stdin=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_TIMEOUT_SECONDS,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        raise GpuyardError(
            f"{plan.head.name}: `{words[0]} {words[1]}` did not answer within {_TIMEOUT_SECONDS:.0f} s"
        ) from None
    finally:
        os.close(stdin)
        os.close(held)
    if done.returncode != 0:
        message = last_line(done.stderr).removeprefix("gpuyard: ")
        raise GpuyardError(f"{plan.head.name}: `{words[0]} {words[1]}` failed: {message}")
    return done.stdout
