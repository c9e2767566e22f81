"""The process that profiles a user's own model: `python -m gpuyard.workloads.profile_process`.

It gets one line of JSON on stdin and replies with one on its original stdout. When its stdin closes, its parent is gone,
and it exits.
"""

import gc
import os
import signal
import sys
import threading

from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.workloads.profiles import ProfileReply, ProfileRequest, profile_in_process

_GC_THRESHOLD = 100_000  # objects: the process imports a lot and ends soon


def main() -> None:
    """Run the profiling process."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    workload = ProfileRequest.model_validate_json(_read_request()).workload
    sys.argv = [workload.model_name.partition(":")[0]]
    gc.set_threshold(_GC_THRESHOLD)

    try:
        reply = ProfileReply(profile=profile_in_process(workload))
    except GpuyardError as error:
        kinds = (MissingRequirement, UserMistake)
        kind = next((k.__name__ for k in kinds if isinstance(error, k)), "GpuyardError")
        reply = ProfileReply.model_validate({"kind": kind, "message": str(error)})
    replies.write(reply.model_dump_json(round_trip=True))  # without computed fields
    replies.close()
    sys.stderr.flush()
    os._exit(0)  # at once, so that threads of the user's code don't delay it


def _read_request() -> bytes:
    """Read one line, then close stdin for the user's code and wait for the parent's end in a thread."""
    line = b""
    while not line.endswith(b"\n") and (data := os.read(0, 2**16)):
        line += data
    from_parent = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    threading.Thread(target=_exit_with_parent, args=(from_parent,), daemon=True).start()
    return line


def _exit_with_parent(from_parent: int) -> None:
    while os.read(from_parent, 1024):
        pass
    os.killpg(0, signal.SIGKILL)  # also kills the children of the user's code


if __name__ == "__main__":
    main()
