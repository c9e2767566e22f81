"""What a job's pods print: those that ended, those that run, and with `follow` those to come.

The API gives each line its moment. After a connection that broke off the log is read again from its start, and what
was shown already is left out by its moments: no line is lost, and none is shown twice.
"""

import codecs
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gpuyard.errors import GpuyardError, NoAnswer
from gpuyard.jobs.engines.kubernetes.cluster import ApiRefused, KubernetesCluster, Quiet
from gpuyard.jobs.engines.kubernetes.draft import Manifest

_LONGEST_LINE = 1_000_000
_WATCH_SECONDS = 20
_END_SECONDS = 2  # where all pods have ended: the job's own end is no change of a pod
_MOST_BREAKS = 5  # one after the other, with nothing new in between
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class LogSource:
    """Where the pods of one job are found."""

    cluster: KubernetesCluster
    namespace: str
    selector: str
    container: str

    def pods(self) -> tuple[list[Manifest], str]:
        """And the version from which to watch."""
        return self.cluster.pods(self.namespace, self.selector)


def printed(source: LogSource, nodes: int) -> Iterator[str]:
    """All that there is now, pod after pod."""
    pods, _ = source.pods()
    for pod in pods:
        starts = _starts(pod, source.container)
        for previous in [True, False][max(0, 2 - starts) :]:
            for line in _Reader(source, pod["metadata"]["name"], previous).lines(follow=False):
                yield _lead(pod, nodes) + line


def followed(source: LogSource, nodes: int, ended: Callable[[], bool]) -> Iterator[str]:
    """Until the job has ended and all of it is shown; pods of several nodes are read at once."""
    follower = _Follower(source, nodes, ended)
    threading.Thread(target=follower.watch, name="logs", daemon=True).start()
    try:
        while (line := follower.lines.get()) is not None:
            if isinstance(line, GpuyardError):
                raise line
            yield line
    finally:
        follower.stop.set()


class _Follower:
    """One thread that looks for pods, and one for each pod that has something to say."""

    def __init__(self, source: LogSource, nodes: int, ended: Callable[[], bool]) -> None:
        self.source, self.nodes, self.ended = source, nodes, ended
        self.lines: queue.Queue[str | GpuyardError | None] = queue.Queue(maxsize=1000)
        """A fault ends it, and so does None."""
        self.stop = threading.Event()
        self.readers: dict[str, threading.Thread] = {}

    def watch(self) -> None:
        """Until the job has ended and every pod is read."""
        source, breaks = self.source, 0
        while not self.stop.is_set():
            try:
                over = self.ended()  # before the look at the pods: none comes after the end
                pods, version = source.pods()
                self._start_readers(pods)
                if over:
                    break
                self._wait(pods, version)
                breaks = 0
            except NoAnswer as fault:
                breaks += 1
                if breaks > _MOST_BREAKS:
                    self._hand_over(fault)
                    return
                self.stop.wait(_PAUSE_SECONDS)
            except GpuyardError as fault:
                self._hand_over(fault)
                return
        for reader in self.readers.values():
            reader.join()
        self._hand_over(None)

    def _wait(self, pods: Sequence[Manifest], version: str) -> None:
        """For a change of a pod. A watch that is too old is begun anew; who may not watch looks again."""
        source = self.source
        ended = [pod["status"].get("phase") in {"Succeeded", "Failed"} for pod in pods]
        seconds = _END_SECONDS if ended and all(ended) else _WATCH_SECONDS
        try:
            source.cluster.wait_for_pods(source.namespace, source.selector, version, seconds)
        except ApiRefused as refused:
            if refused.status == 410:
                raise NoAnswer(str(refused)) from None
            if refused.status != 403:
                raise
            self.stop.wait(_END_SECONDS)

    def _start_readers(self, pods: Sequence[Manifest]) -> None:
        for pod in pods:
            starts = _starts(pod, self.source.container)
            start = f"{pod['metadata']['name']}/{starts}"
            if starts and start not in self.readers:
                self.readers[start] = threading.Thread(target=self._read, args=(pod,), daemon=True)
                self.readers[start].start()

    def _read(self, pod: Manifest) -> None:
        try:
            for line in _Reader(self.source, pod["metadata"]["name"]).lines(follow=True):
                if not self._hand_over(_lead(pod, self.nodes) + line):
                    return
        except GpuyardError as fault:
            self._hand_over(fault)

    def _hand_over(self, what: str | GpuyardError | None) -> bool:
        """False: nobody listens any more."""
        while not self.stop.is_set():
            try:
                self.lines.put(what, timeout=0.5)
            except queue.Full:
                continue
            return True
        return False


@dataclass
class _Reader:
    """One pod's log, with how far it was read."""

    source: LogSource
    pod: str
    previous: bool = False
    """Of the container's start before this one, of which the node keeps the log."""
    shown: tuple[str, int] = ("", 0)
    """The moment of the last line that was shown, and how many of that moment were."""

    def lines(self, *, follow: bool) -> Iterator[str]:
        """Each with its line end. A pod that is gone has no more to say."""
        breaks = 0
        while True:
            before, read = self.shown, ("", 0)
            try:
                for moment, text in self._stamped(follow=follow):
                    read = (moment, read[1] + 1 if moment == read[0] else 1)
                    if read > before:
                        self.shown = read
                        yield text
            except Quiet:
                if not follow:
                    raise
                continue
            except NoAnswer:
                breaks = 1 if self.shown != before else breaks + 1
                if not follow or breaks > _MOST_BREAKS:
                    raise
                time.sleep(_PAUSE_SECONDS)
                continue
            except ApiRefused as refused:
                if refused.status in {400, 404}:  # its container has not started, or it is gone
                    return
                raise
            return

    def _stamped(self, *, follow: bool) -> Iterator[tuple[str, str]]:
        """Lines, each with its moment; a line of any length is handed on in pieces of the same moment."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        rest = ""
        where = self.source
        pieces = where.cluster.log(
            where.namespace, self.pod, where.container, follow=follow, previous=self.previous
        )
        for piece in pieces:
            *whole, rest = (rest + decoder.decode(piece)).split("\n")
            for line in whole:
                yield _cut(line + "\n")
            if len(rest) > _LONGEST_LINE:
                yield _cut(rest)
                rest = f"{rest.partition(' ')[0]} "
        rest += decoder.decode(b"", final=True)
        if rest:
            yield _cut(rest)


def _cut(line: str) -> tuple[str, str]:
    """ "2026-11-16T09:00:00.1Z loss 3\\n" → its moment, and what was printed.

    Fractions have no zeros at their end, so that without the Z moments sort as text: 00.1 before 00.12.
    """
    moment, _, text = line.partition(" ")
    return moment.rstrip("Z\n"), text or "\n"


def _starts(pod: Manifest, container: str) -> int:
    """How often the container was started; 0: not yet."""
    for each in pod.get("status", {}).get("containerStatuses") or []:
        state = each.get("state", {})
        if each.get("name") == container and (state.get("running") or state.get("terminated")):
            return int(each.get("restartCount", 0)) + 1
    return 0


def _lead(pod: Manifest, nodes: int) -> str:
    return f"[{pod['metadata']['name']}] " if nodes > 1 else ""
