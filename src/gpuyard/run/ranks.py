"""The rank processes of one run: started together, listened to, and never left behind."""

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
from gpuyard.errors import GpuyardError
from gpuyard.printable import printable
from gpuyard.run.launch import Crew, Environment, Launcher, crews
from gpuyard.run.places.place import Place
from gpuyard.run.process import Command, start, stop
from gpuyard.run.protocol import (
    LOST_PEER_STATUS,
    RANK_PREFIX,
    STRANGER,
    Done,
    Failed,
    RankJob,
    RankRefusal,
    Rendezvous,
)
from gpuyard.temporary import held_directory, shared_directory

_LAST_LINES = 25
_CULPRIT_SECONDS = 5.0
_LEAVE_SECONDS = 5.0

Event = TypeVar("Event")
_Parse = Callable[[bytes], Event | RankRefusal]
_Heard = queue.Queue[tuple[int, bytes | int]]
"""The number of a crew, and an event on its stdout or, at the end, its exit status."""


@contextlib.contextmanager
def private_directory() -> Iterator[Path]:
    """Where the ranks of one run meet; readable by this user only."""
    with contextlib.ExitStack() as until_end:
        try:
            directory = until_end.enter_context(held_directory(shared_directory(), "ranks"))
        except OSError as error:
            raise _no_room(error) from error
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
    """Start a rank for each job in this place, and yield what rank 0 reports.

    `worker` is the module that each runs: it gets its job as one line of JSON, leaves when stdin ends, and
    says one event a line on stdout, which `parse` reads.
    """
    told = invited(place, jobs, launcher)
    return run_crews(crews(place, told, worker, launcher, environment), parse)


def invited(place: Place, jobs: Sequence[RankJob], launcher: Launcher) -> list[RankJob]:
    """Each with where the ranks meet and a secret of this run, where they are on several nodes."""
    if place.meeting is None:
        return list(jobs)
    point = Rendezvous(
        address=place.meeting.address,
        port=place.meeting.port,
        others=place.node_addresses[1:],
        secret=secrets.token_hex(32),
    )
    # of torchrun's, the first agent keeps it
    first = point.model_copy(update={"keeps": launcher == "direct"})
    return [job.model_copy(update={"rendezvous": point if job.rank else first}) for job in jobs]


def run_crews(started: Sequence[Crew], parse: _Parse[Event]) -> Generator[Event, None, None]:
    """Start these processes and yield what rank 0 reports; when this ends, in whatever way, so have they."""
    heard: _Heard = queue.Queue()
    processes: list[tuple[Command, subprocess.Popen[bytes]]] = []
    listeners: list[threading.Thread] = []
    try:
        for number, crew in enumerate(started):
            try:
                with _stderr_file(crew).open("wb") as stderr:
                    process = start(crew.command, stderr)
            except OSError as error:
                raise _no_room(error) from error
            processes.append((crew.command, process))
            stdin, stdout = process.stdin, process.stdout
            if stdin is None or stdout is None:
                raise RuntimeError("a process is started with pipes")
            with contextlib.suppress(BrokenPipeError):  # it died at once; its stderr says why
                stdin.write(b"".join(job.model_dump_json().encode() + b"\n" for job in crew.jobs))
                stdin.flush()
            listener = threading.Thread(
                target=_listen, args=(number, crew, process, stdout, heard), daemon=True
            )
            listener.start()
            listeners.append(listener)
        yield from _Listening(started, heard, parse).events()
    finally:
        stop(processes)
        for listener in listeners:
            listener.join(_LEAVE_SECONDS)
        _tell_of_strangers(started)


def _tell_of_strangers(started: Sequence[Crew]) -> None:
    """The first crew keeps the store of those that run on several nodes."""
    told = [line for line in _stderr_lines(started[0]) if line.startswith(STRANGER)]
    for line in dict.fromkeys(told):
        logging.getLogger("gpuyard").warning(
            "gpuyard: a stranger at %s tried to join this run and was turned away: it did not know the "
            "run's secret",
            printable(line.removeprefix(STRANGER)),
        )


def _listen(
    number: int, crew: Crew, process: subprocess.Popen[bytes], stdout: IO[bytes], heard: _Heard
) -> None:
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


class _Listening(Generic[Event]):
    """What all crews of one run say, in the order in which it is heard."""

    def __init__(self, started: Sequence[Crew], heard: _Heard, parse: _Parse[Event]) -> None:
        self._started, self._heard, self._parse = started, heard, parse
        self._failed: dict[int, Failed] = {}
        self._done: set[int] = set()
        self._running = set(range(len(started)))

    def events(self) -> Generator[Event, None, None]:
        silence_seconds = self._started[0].jobs[0].silence_seconds
        while self._running:
            try:
                number, said = self._next(silence_seconds)
            except queue.Empty:
                raise GpuyardError(
                    f"no rank has made progress for {silence_seconds:.0f} s, so the run was "
                    f"stopped; rank 0 last wrote:\n{_last_lines(self._started[0], 0)}"
                ) from None
            if not isinstance(said, int):
                yield said
            elif said != 0 or self._ended_early(number):
                raise self._died(number, said)

    def _next(self, most_seconds: float) -> tuple[int, Event | int]:
        """The number of a crew, and its next event or its exit status; raises what it refuses."""
        deadline = time.monotonic() + most_seconds
        while True:
            number, said = self._heard.get(timeout=max(0.0, deadline - time.monotonic()))
            if isinstance(said, int):
                self._running.remove(number)
                return number, said
            event = self._read(said)
            if isinstance(event, RankRefusal):
                kind: type[GpuyardError] = getattr(errors, event.kind)
                raise kind(event.sentence)
            if isinstance(event, Failed):
                self._failed[number] = event  # its agent ends as soon as all its words are written
            elif isinstance(event, Done):
                self._done.add(event.rank)
            else:
                return number, event

    def _read(self, line: bytes) -> Event | RankRefusal | Failed | Done:
        for kind in (Failed, Done):
            with contextlib.suppress(ValidationError):
                return kind.model_validate_json(line)
        try:
            return self._parse(line)
        except ValidationError as invalid:
            raise GpuyardError(
                f"a rank sent a message that this gpuyard can't read ({invalid.errors()[0]['msg']}); "
                "is another version of gpuyard installed on its host?"
            ) from invalid

    def _died(self, number: int, status: int) -> GpuyardError:
        """The rank that failed first is the one to show; the others only lost their peer."""
        culprit = self._fault(number, status)
        deadline = time.monotonic() + _CULPRIT_SECONDS
        while culprit.status == LOST_PEER_STATUS and self._running:
            try:
                other, said = self._next(deadline - time.monotonic())
            except queue.Empty:
                break
            if isinstance(said, int) and (said != 0 or self._ended_early(other)):
                fault = self._fault(other, said)
                if fault.status != LOST_PEER_STATUS:
                    number, culprit = other, fault
        crew = self._started[number]
        return GpuyardError(
            f"rank {culprit.rank} of {crew.jobs[0].processes} {_how(culprit.status)}; "
            f"its last lines:\n{_last_lines(crew, culprit.rank)}"
        )

    def _fault(self, number: int, status: int) -> Failed:
        """As an agent has said, else of the one rank that the crew is."""
        rank = (self._ended_early(number) or [self._started[number].jobs[0].rank])[0]
        return self._failed.get(number, Failed(rank=rank, status=status))

    def _ended_early(self, number: int) -> list[int]:
        """The ranks of a crew that have not said that they are done."""
        return [job.rank for job in self._started[number].jobs if job.rank not in self._done]


def _how(status: int) -> str:
    if status == LOST_PEER_STATUS:
        return "has lost its connection to another rank, which said nothing (is its host still up?)"
    if status == 0:
        return "ended before its work was done (does the model's code call exit?)"
    if status > 0:
        return f"ended with status {status}"
    name = signal.Signals(-status).name
    return f"was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


def _no_room(error: OSError) -> GpuyardError:
    return GpuyardError(
        f"the ranks can't be started: {error.strerror}; they need a little disk space in "
        f"{shared_directory()}, or in another directory that TMPDIR names"
    )


def _stderr_file(crew: Crew) -> Path:
    return Path(crew.jobs[0].directory) / f"rank{crew.jobs[0].rank}.stderr"


def _stderr_lines(crew: Crew) -> list[str]:
    try:
        text = _stderr_file(crew).read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    return [line for line in text.splitlines() if line.strip()]


def _last_lines(crew: Crew, rank: int) -> str:
    lines = [line for line in _stderr_lines(crew) if not line.startswith(STRANGER)]
    prefix = RANK_PREFIX.format(rank)
    own = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
    # an agent's own words only where its rank has none
    shown = (own or lines)[-_LAST_LINES:]
    return "\n".join(f"  {line}" for line in shown) or "  (nothing)"
