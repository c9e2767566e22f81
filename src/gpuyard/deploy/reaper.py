"""`python -P -m gpuyard.deploy.reaper NAME LOCK`: waits until a deployment expires, then removes it.

It retries until nothing remains. LOCK is the descriptor that shows that this process is running. If the expiry is only
the default one, it first waits until no job runs and copies the shared storage to this machine.
"""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from gpuyard import files
from gpuyard.deploy.access.fetch import FetchPlan, run_fetch
from gpuyard.deploy.deployment import remove
from gpuyard.deploy.expiry import Expiry, read_expiry
from gpuyard.deploy.loss import inspect_loss
from gpuyard.deploy.state import StateDirectory
from gpuyard.deploy.targets import TARGETS
from gpuyard.errors import GpuyardError

_POLL_SECONDS = 30.0  # another `up` may have moved the expiry
_MAX_RETRY_SECONDS = 30.0


def main(arguments: list[str]) -> None:
    os.chdir("/")
    state = StateDirectory(arguments[0])
    while (expiry := read_expiry(state)) is not None:
        remaining_seconds = expiry.unix_seconds - time.time()
        if remaining_seconds > 0:
            time.sleep(min(remaining_seconds, _POLL_SECONDS))
            continue
        try:
            with state.hold():
                # An `up` that held the lock until now may have moved the expiry.
                if read_expiry(state) == expiry:
                    if not expiry.asked:
                        rescue(state, expiry)
                    remove(TARGETS[expiry.target], state, _log)
        except GpuyardError as error:
            _log(str(error))
        time.sleep(min(_MAX_RETRY_SECONDS, max(1.0, time.time() - expiry.unix_seconds)))


@dataclass(frozen=True)
class _Machines:
    """The machines of a deployment whose file may have changed meanwhile."""

    state: StateDirectory


def rescue(state: StateDirectory, expiry: Expiry) -> Path | None:
    """Copy the shared storage to this machine and return where. Raises while jobs run, or if that is not possible."""
    hosts = state.hosts()
    if not hosts:
        return None
    machines = _Machines(state)
    loss = inspect_loss(machines, hosts, hosts, shared=expiry.shared, people=expiry.people)
    if loss.jobs:
        raise GpuyardError(f"kept because jobs run: {'; '.join(loss.jobs)}")
    if loss.unreachable:
        names = ", ".join(loss.unreachable)
        raise GpuyardError(f"kept because ssh does not reach {names}; `down` removes it")
    if not loss.files or expiry.shared is None:
        return None
    folder = files.home() / "fetched" / state.name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    run_fetch(machines, FetchPlan(expiry.shared, folder, hosts[0], ()), lambda _: None)
    _log(f"copied {expiry.shared} to {folder}")
    return folder


def _log(message: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
