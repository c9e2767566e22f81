"""The rank processes of one run: started together, listened to, and never left behind.

They run here, or, by a command in front of theirs, on the nodes of a lab or on other hosts.
"""

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gpuyard import errors
from gpuyard.errors import GpuyardError
from gpuyard.measure.job import LOST_PEER_STATUS, Refusal

_LAST_LINES = 25
_CULPRIT_SECONDS = 5.0
_LEAVE_SECONDS = 5.0

TRAINING_WORKER = "gpuyard.measure.worker"


class Job(Protocol):
    """What every rank is told, whatever it is there for: its place among the others, and where they meet."""

    @property
    def rank(self) -> int: ...
    @property
    def processes(self) -> int: ...
    @property
    def directory(self) -> str: ...
    @property
    def cores(self) -> tuple[int, ...]: ...
    @property
    def silence_seconds(self) -> float: ...
    def model_dump_json(self) -> str: ...


Event = TypeVar("Event")
Environment = Callable[[int], Mapping[str, str]]
"""What a rank's environment has beside this process's own."""
Command = Callable[[int, Sequence[str]], Sequence[str]]
"""From the arguments that start a rank to those that start it where it belongs."""

_Heard = queue.Queue[tuple[int, bytes | int]]
"""Rank, and a line of its stdout or, at the end, its exit status."""


@contextlib.contextmanager
def private_directory() -> Iterator[Path]:
    """Where the ranks of one run meet; readable by this user only."""
    directory = Path(tempfile.mkdtemp(prefix="gpuyard-ranks-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def started_here(_rank: int, argv: Sequence[str]) -> Sequence[str]:
    """The command of a rank that runs on this machine as it is."""
    return argv


def run_ranks(
    jobs: Sequence[Job],
    environment: Environment,
    *,
    parse: Callable[[bytes], Event | Refusal],
    worker: str = TRAINING_WORKER,
    command: Command = started_here,
) -> Generator[Event, None, None]:
    """Start the ranks and yield what rank 0 reports; when this ends, in whatever way, so have they.

    `worker` is the module that each runs: it gets its job as one line of JSON on stdin, leaves when
    stdin ends, and says one event a line on stdout, which `parse` reads.
    """
    heard: _Heard = queue.Queue()
    processes: list[subprocess.Popen[bytes]] = []
    listeners: list[threading.Thread] = []
    try:
        for job in jobs:
            argv = command(job.rank, [sys.executable, "-P", "-m", worker])
            process = _start(job, argv, environment(job.rank))
            processes.append(process)
            listener = threading.Thread(target=_listen, args=(job, process, heard), daemon=True)
            listener.start()
            listeners.append(listener)
        yield from _events(jobs, heard, parse)
    finally:
        _stop(processes)
        for listener in listeners:
            listener.join(_LEAVE_SECONDS)


def _start(
    job: Job, argv: Sequence[str], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    threads = str(len(job.cores))
    pinned = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads} if job.cores else {}
    with _stderr_file(job).open("wb") as stderr:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            # Ctrl-C is for the sweep, which then stops its ranks
            start_new_session=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
                **pinned,
                **environment,
            },
        )
    stdin: Any = process.stdin
    with contextlib.suppress(BrokenPipeError):  # it died at once; its stderr says why
        stdin.write(job.model_dump_json().encode() + b"\n")
        stdin.flush()
    return process


def _listen(job: Job, process: subprocess.Popen[bytes], heard: _Heard) -> None:
    stdout: Any = process.stdout
    with stdout:
        for line in stdout:
            if line.startswith(b"{"):
                heard.put((job.rank, line))
            else:  # ssh, srun or mpiexec says something of its own
                with contextlib.suppress(OSError), _stderr_file(job).open("ab") as stderr:
                    stderr.write(line)
    heard.put((job.rank, process.wait()))


def _events(
    jobs: Sequence[Job], heard: _Heard, parse: Callable[[bytes], Event | Refusal]
) -> Iterator[Event]:
    running = len(jobs)
    while running:
        try:
            rank, said = heard.get(timeout=jobs[0].silence_seconds)
        except queue.Empty:
            raise GpuyardError(
                f"no rank has made progress for {jobs[0].silence_seconds:.0f} s, so the run was "
                f"stopped; rank 0 last wrote:\n{_last_lines(jobs[0])}"
            ) from None
        if isinstance(said, bytes):
            event = parse(said)
            if isinstance(event, Refusal):
                raise _refused(event)
            yield event
        elif said == 0:
            running -= 1
        else:
            raise _died(jobs, rank, said, heard, parse)


def _refused(refusal: Refusal) -> GpuyardError:
    kind: type[GpuyardError] = getattr(errors, refusal.kind)
    return kind(refusal.sentence)


def _died(
    jobs: Sequence[Job],
    rank: int,
    status: int,
    heard: _Heard,
    parse: Callable[[bytes], object],
) -> GpuyardError:
    """The rank that failed first is the one to show; the others only lost their peer."""
    deadline = time.monotonic() + _CULPRIT_SECONDS
    while status == LOST_PEER_STATUS and (left := deadline - time.monotonic()) > 0:
        try:
            other, said = heard.get(timeout=left)
        except queue.Empty:
            break
        if isinstance(said, bytes):
            event = parse(said)
            if isinstance(event, Refusal):
                return _refused(event)
        elif said not in (0, LOST_PEER_STATUS):
            rank, status = other, said
    job = jobs[rank]
    if status < 0:
        name = signal.Signals(-status).name
        how = f"was killed by {name}"
        if name == "SIGKILL":
            how += " (out of memory?)"
    else:
        how = f"ended with status {status}"
    return GpuyardError(
        f"rank {rank} of {job.processes} {how}; its last lines:\n{_last_lines(job)}"
    )


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # its session leads its group
    for process in processes:
        process.wait(timeout=_LEAVE_SECONDS)
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()


def _stderr_file(job: Job) -> Path:
    return Path(job.directory) / f"rank{job.rank}.stderr"


def _last_lines(job: Job) -> str:
    try:
        text = _stderr_file(job).read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(f"  {line}" for line in lines[-_LAST_LINES:]) or "  (nothing)"
