"""The rank processes of one run: started together, monitored, and always stopped in the end."""

import contextlib
import json
import logging
import queue
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import IO, Generic, TypeVar

from pydantic import ValidationError

from gpuyard import errors
from gpuyard.choices import Launcher
from gpuyard.errors import GpuyardError
from gpuyard.printable import make_printable
from gpuyard.run.launch import Environment, RankLaunch, plan_launches
from gpuyard.run.places.place import Place
from gpuyard.run.process import Command, start, stop
from gpuyard.run.protocol import (
    LOST_PEER_STATUS,
    RANK_PREFIX,
    REJECTED_PEER,
    Done,
    Failed,
    RankJob,
    RankRefusal,
    Rendezvous,
)
from gpuyard.temporary import shared_directory, temporary_directory

_LAST_LINES = 25
_CULPRIT_SECONDS = 5.0
_EXIT_SECONDS = 5.0

Event = TypeVar("Event")
_Parse = Callable[[bytes], Event | RankRefusal]
_Messages = queue.Queue[tuple[int, bytes | int]]
"""The index of a launch, and an event from its stdout or finally its exit status."""


@contextlib.contextmanager
def private_directory() -> Iterator[Path]:
    """Create a directory for the ranks of one run, which only this user can read."""
    with contextlib.ExitStack() as stack:
        try:
            directory = stack.enter_context(temporary_directory(shared_directory(), "ranks"))
        except OSError as error:
            raise _describe_start_failure(error) from error
        yield directory


def run_ranks(
    place: Place,
    jobs: Sequence[RankJob],
    *,
    parse: _Parse[Event],
    worker: str,
    launcher: Launcher = "direct",
    environment: Environment = lambda _rank: {},
) -> Generator[Event, None, None]:
    """Start a rank for each job at this place, and yield rank 0's events.

    `worker` is the module that each rank runs. It gets its job as one line of JSON, exits when stdin closes, and prints
    one event per line to stdout, which `parse` reads.
    """
    invited = invite_ranks(place, jobs, launcher)
    return run_launches(plan_launches(place, invited, worker, launcher, environment), parse)


def invite_ranks(place: Place, jobs: Sequence[RankJob], launcher: Launcher) -> list[RankJob]:
    """Add the rendezvous and a new secret to the jobs if the ranks are on several nodes."""
    if place.rendezvous_point is None:
        return list(jobs)
    rendezvous = Rendezvous(
        address=place.rendezvous_point.address,
        port=place.rendezvous_point.port,
        others=place.node_addresses[1:],
        secret=secrets.token_hex(32),
    )
    # With torchrun, the first agent serves the store.
    first = rendezvous.model_copy(update={"serves": launcher == "direct"})
    return [
        job.model_copy(update={"rendezvous": rendezvous if job.rank else first}) for job in jobs
    ]


def run_launches(
    launches: Sequence[RankLaunch], parse: _Parse[Event]
) -> Generator[Event, None, None]:
    """Start these processes and yield rank 0's events; stop all of them when this generator ends for any reason."""
    messages: _Messages = queue.Queue()
    processes: list[tuple[Command, subprocess.Popen[bytes]]] = []
    readers: list[threading.Thread] = []
    try:
        for index, launch in enumerate(launches):
            try:
                with _stderr_file(launch).open("wb") as stderr:
                    process = start(launch.command, stderr)
            except OSError as error:
                raise _describe_start_failure(error) from error
            processes.append((launch.command, process))
            stdin, stdout = process.stdin, process.stdout
            if stdin is None or stdout is None:
                raise RuntimeError("the process has no pipes")
            with contextlib.suppress(BrokenPipeError):  # It died at once; its stderr has the cause.
                stdin.write(b"".join(job.model_dump_json().encode() + b"\n" for job in launch.jobs))
                stdin.flush()
            reader = threading.Thread(
                target=_read_events, args=(index, launch, process, stdout, messages), daemon=True
            )
            reader.start()
            readers.append(reader)
        yield from _Monitor(launches, messages, parse).events()
    finally:
        stop(processes)
        for reader in readers:
            reader.join(_EXIT_SECONDS)
        _warn_of_rejected_peers(launches)


def _warn_of_rejected_peers(launches: Sequence[RankLaunch]) -> None:
    """Warn of connections that the store rejected; the first launch serves it."""
    lines = [line for line in _stderr_lines(launches[0]) if line.startswith(REJECTED_PEER)]
    for line in dict.fromkeys(lines):
        logging.getLogger("gpuyard").warning(
            "gpuyard: rejected a connection from %s to this run: it did not know the run's secret",
            make_printable(line.removeprefix(REJECTED_PEER)),
        )


def _read_events(
    index: int,
    launch: RankLaunch,
    process: subprocess.Popen[bytes],
    stdout: IO[bytes],
    messages: _Messages,
) -> None:
    with stdout:
        for line in stdout:
            if _is_event(line):
                messages.put((index, line))
            else:  # ssh, srun, or mpiexec printed a message, or a host its banner.
                with contextlib.suppress(OSError), _stderr_file(launch).open("ab") as stderr:
                    stderr.write(line)
    messages.put((index, process.wait()))


def _is_event(line: bytes) -> bool:
    if not line.startswith(b"{"):
        return False
    try:
        document = json.loads(line)
    except ValueError:
        return False
    return isinstance(document, dict) and "event" in document


class _Monitor(Generic[Event]):
    """Receives the messages of all launches of one run."""

    def __init__(
        self, launches: Sequence[RankLaunch], messages: _Messages, parse: _Parse[Event]
    ) -> None:
        self._launches, self._messages, self._parse = launches, messages, parse
        self._failed: dict[int, Failed] = {}
        self._done: set[int] = set()
        self._running = set(range(len(launches)))

    def events(self) -> Generator[Event, None, None]:
        silence_seconds = self._launches[0].jobs[0].silence_seconds
        while self._running:
            try:
                index, message = self._next(silence_seconds)
            except queue.Empty:
                raise GpuyardError(
                    f"the run was stopped because no rank made progress for {silence_seconds:.0f} s; "
                    f"the last lines of rank 0:\n{_last_lines(self._launches[0], 0)}"
                ) from None
            if not isinstance(message, int):
                yield message
            elif message != 0 or self._list_unfinished(index):
                raise self._describe_failure(index, message)

    def _next(self, timeout_seconds: float) -> tuple[int, Event | int]:
        """Return the index of a launch and its next event or its exit status; raise if a rank refused its job."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            index, message = self._messages.get(timeout=max(0.0, deadline - time.monotonic()))
            if isinstance(message, int):
                self._running.remove(index)
                return index, message
            event = self._parse_event(message)
            if isinstance(event, RankRefusal):
                kind: type[GpuyardError] = getattr(errors, event.kind)
                raise kind(event.message)
            if isinstance(event, Failed):
                self._failed[index] = event  # Its agent exits once all its output is written.
            elif isinstance(event, Done):
                self._done.add(event.rank)
            else:
                return index, event

    def _parse_event(self, line: bytes) -> Event | RankRefusal | Failed | Done:
        for kind in (Failed, Done):
            with contextlib.suppress(ValidationError):
                return kind.model_validate_json(line)
        try:
            return self._parse(line)
        except ValidationError as invalid:
            raise GpuyardError(
                f"a rank sent a message that this gpuyard cannot read ({invalid.errors()[0]['msg']}); "
                "check that its host has the same version of gpuyard"
            ) from invalid

    def _describe_failure(self, index: int, status: int) -> GpuyardError:
        """Describe the rank that failed first; the others only lost their peer."""
        culprit = self._find_fault(index, status)
        deadline = time.monotonic() + _CULPRIT_SECONDS
        while culprit.status == LOST_PEER_STATUS and self._running:
            try:
                other, message = self._next(deadline - time.monotonic())
            except queue.Empty:
                break
            if isinstance(message, int) and (message != 0 or self._list_unfinished(other)):
                fault = self._find_fault(other, message)
                if fault.status != LOST_PEER_STATUS:
                    index, culprit = other, fault
        launch = self._launches[index]
        return GpuyardError(
            f"rank {culprit.rank} of {launch.jobs[0].processes} {_describe_status(culprit.status)}; "
            f"its last lines:\n{_last_lines(launch, culprit.rank)}"
        )

    def _find_fault(self, index: int, status: int) -> Failed:
        """Return the failure that an agent reported, or that of the launch's only rank."""
        rank = (self._list_unfinished(index) or [self._launches[index].jobs[0].rank])[0]
        return self._failed.get(index, Failed(rank=rank, status=status))

    def _list_unfinished(self, index: int) -> list[int]:
        """List the ranks of a launch that have not reported that they are done."""
        return [job.rank for job in self._launches[index].jobs if job.rank not in self._done]


def _describe_status(status: int) -> str:
    if status == LOST_PEER_STATUS:
        return (
            "lost its connection to another rank, which reported nothing; check that its host is up"
        )
    if status == 0:
        return "exited before its work was done; check whether the model's code calls exit()"
    if status > 0:
        return f"exited with status {status}"
    name = signal.Signals(-status).name
    return f"was killed by {name}" + (" (possibly out of memory)" if name == "SIGKILL" else "")


def _describe_start_failure(error: OSError) -> GpuyardError:
    return GpuyardError(
        f"the ranks cannot be started: {error.strerror}; they need some disk space in "
        f"{shared_directory()}, or in another directory that TMPDIR names"
    )


def _stderr_file(launch: RankLaunch) -> Path:
    return Path(launch.jobs[0].directory) / f"rank{launch.jobs[0].rank}.stderr"


def _stderr_lines(launch: RankLaunch) -> list[str]:
    try:
        text = _stderr_file(launch).read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    return [line for line in text.splitlines() if line.strip()]


def _last_lines(launch: RankLaunch, rank: int) -> str:
    lines = [line for line in _stderr_lines(launch) if not line.startswith(REJECTED_PEER)]
    prefix = RANK_PREFIX.format(rank)
    own = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
    # Show the agent's own output only if its rank printed nothing.
    last = (own or lines)[-_LAST_LINES:]
    return "\n".join(f"  {line}" for line in last) or "  (nothing)"
