"""`python -P -m gpuyard.deploy.reaper NAME LOCK`: waits until a deployment expires, then removes it.

It retries until nothing remains. LOCK is the descriptor that shows that this process is running.
"""

import os
import sys
import time

from gpuyard.deploy.deployment import remove
from gpuyard.deploy.expiry import read_expiry
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
                    remove(TARGETS[expiry.target], state, _log)
        except GpuyardError as error:
            _log(str(error))
        time.sleep(min(_MAX_RETRY_SECONDS, max(1.0, time.time() - expiry.unix_seconds)))


def _log(message: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {message}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
