"""The rank processes of one run: started together, listened to, and never left behind.

They run here, or, by a command in front of theirs, on the nodes of a lab or on other hosts.
"""

import contextlib
import json
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
from typing import Any, TypeVar

from pydantic import ValidationError

from gpuyard import errors
from gpuyard.errors import GpuyardError
from gpuyard.run.launch import JOBS_DIRECTORY, Crew, Job, Launcher, Meeting, crews
from gpuyard.run.protocol import LOST_PEER_STATUS, Refusal

_LAST_LINES = 25
_CULPRIT_SECONDS = 5.0
_LEAVE_SECONDS = 5.0


Event = TypeVar("Event")
Environment = Callable[[int], Mapping[str, str]]
"""What a rank's environment has beside this process's own."""
Command = Callable[[int, Sequence[str]], Sequence[str]]
"""From the arguments that start a rank to those that start it where it belongs."""

_Heard = queue.Queue[tuple[int, bytes | int]]
"""The number of a crew, and an event on its stdout or, at the end, its exit status."""


@contextlib.contextmanager
def private_directory() -> Iterator[Path]:
    """Where the ranks of one run meet; readable by this user only."""
    try:
        directory = Path(tempfile.mkdtemp(prefix="gpuyard-ranks-"))
    except OSError as error:
        raise _no_room(error) from error
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
    worker: str,
    command: Command = started_here,
    launcher: Launcher = "direct",
    meeting: Meeting | None = None,
    stop_signal: signal.Signals = signal.SIGKILL,
) -> Generator[Event, None, None]:
    """Start the ranks and yield what rank 0 reports; when this ends, in whatever way, so have they.

    `worker` is the module that each runs: it gets its job as one line of JSON on stdin, leaves when
    stdin ends, and says one event a line on stdout, which `parse` reads. torchrun's agents need to know
    where ranks on several hosts meet, and a command that only passes a rank on may need another
    `stop_signal` to end it.
    """
    started = crews(jobs, worker, launcher, meeting)
    heard: _Heard = queue.Queue()
    processes: list[subprocess.Popen[bytes]] = []
    listeners: list[threading.Thread] = []
    try:
        for number, crew in enumerate(started):
            argv = command(crew.rank, crew.argv)
            try:
                process = _start(crew, argv, environment(crew.rank))
            except OSError as error:
                raise _no_room(error) from error
            processes.append(process)
            listener = threading.Thread(
                target=_listen, args=(number, crew, process, heard), daemon=True
            )
            listener.start()
            listeners.append(listener)
        yield from _events(started, heard, parse)
    finally:
        _stop(processes, stop_signal)
        for listener in listeners:
            listener.join(_LEAVE_SECONDS)


def _start(
    crew: Crew, argv: Sequence[str], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    first = crew.jobs[0]
    threads = str(len(first.cores))
    pinned = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads} if first.cores else {}
    alone = len(crew.jobs) == 1
    if not alone:
        for job in crew.jobs:
            written = Path(job.directory) / f"rank{job.rank}.job"
            written.write_text(job.model_dump_json() + "\n", encoding="utf-8")
    with _stderr_file(crew).open("wb") as stderr:
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
                **({} if alone else {JOBS_DIRECTORY: first.directory}),
            },
        )
    stdin: Any = process.stdin
    if alone:
        with contextlib.suppress(BrokenPipeError):  # it died at once; its stderr says why
            stdin.write(first.model_dump_json().encode() + b"\n")
            stdin.flush()
    return process


def _listen(number: int, crew: Crew, process: subprocess.Popen[bytes], heard: _Heard) -> None:
    stdout: Any = process.stdout
    with stdout:
        for line in stdout:
            if _is_event(line):
                heard.put((number, line))
            else:  # ssh, srun or mpiexec says something of its own, or a host's banner does
                with contextlib.suppress(OSError), _stderr_file(crew).open("ab") as stderr:
                    stderr.write(line)
    heard.put((number, process.wait()))


def _is_event(line: bytes) -> bool:
    if not line.startswith(b"{"):
        return False
    try:
        said = json.loads(line)
    except ValueError:
        return False
    return isinstance(said, dict) and "event" in said


def _events(
    started: Sequence[Crew], heard: _Heard, parse: Callable[[bytes], Event | Refusal]
) -> Iterator[Event]:
    running = len(started)
    silence_seconds = started[0].jobs[0].silence_seconds
    while running:
        try:
            number, said = heard.get(timeout=silence_seconds)
        except queue.Empty:
            raise GpuyardError(
                f"no rank has made progress for {silence_seconds:.0f} s, so the run was "
                f"stopped; rank 0 last wrote:\n{_last_lines(started[0])}"
            ) from None
        if isinstance(said, bytes):
            event = _read(said, parse)
            if isinstance(event, Refusal):
                raise _refused(event)
            yield event
        elif said == 0:
            running -= 1
        else:
            raise _died(started, number, said, heard, parse)


def _read(line: bytes, parse: Callable[[bytes], Event | Refusal]) -> Event | Refusal:
    try:
        return parse(line)
    except ValidationError as invalid:
        raise GpuyardError(
            f"a rank said what this gpuyard does not understand ({invalid.errors()[0]['msg']}); "
            "is another version of gpuyard installed on its host?"
        ) from invalid


def _no_room(error: OSError) -> GpuyardError:
    return GpuyardError(
        f"the ranks can't be started: {error.strerror}; they need a little room in "
        f"{tempfile.gettempdir()}, or in another directory that TMPDIR names"
    )


def _refused(refusal: Refusal) -> GpuyardError:
    kind: type[GpuyardError] = getattr(errors, refusal.kind)
    return kind(refusal.sentence)


def _died(
    started: Sequence[Crew],
    number: int,
    status: int,
    heard: _Heard,
    parse: Callable[[bytes], Event | Refusal],
) -> GpuyardError:
    """The rank that failed first is the one to show; the others only lost their peer."""
    deadline = time.monotonic() + _CULPRIT_SECONDS
    while status == LOST_PEER_STATUS and (left := deadline - time.monotonic()) > 0:
        try:
            other, said = heard.get(timeout=left)
        except queue.Empty:
            break
        if isinstance(said, bytes):
            event = _read(said, parse)
            if isinstance(event, Refusal):
                return _refused(event)
        elif said not in (0, LOST_PEER_STATUS):
            number, status = other, said
    crew = started[number].failed()
    if status < 0:
        name = signal.Signals(-status).name
        how = f"was killed by {name}"
        if name == "SIGKILL":
            how += " (out of memory?)"
    else:
        how = f"ended with status {status}"
    return GpuyardError(
        f"rank {crew.rank} of {crew.jobs[0].processes} {how}; its last lines:\n{_last_lines(crew)}"
    )


def _stop(processes: Sequence[subprocess.Popen[bytes]], stop_signal: signal.Signals) -> None:
    for process in processes:
        _send(process, stop_signal)
    for process in processes:
        try:
            process.wait(timeout=_LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            _send(process, signal.SIGKILL)
            process.wait(timeout=_LEAVE_SECONDS)
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()  # the ranks of an agent leave when it ends


def _send(process: subprocess.Popen[bytes], what: signal.Signals) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, what)  # its session leads its group


def _stderr_file(crew: Crew) -> Path:
    return Path(crew.jobs[0].directory) / f"{crew.name}.stderr"


def _last_lines(crew: Crew) -> str:
    try:
        text = _stderr_file(crew).read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(f"  {line}" for line in lines[-_LAST_LINES:]) or "  (nothing)"
