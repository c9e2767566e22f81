"""Read the logs of a job's pods: ended ones, running ones, and, when following, future ones.

The API adds a time to each line. After a broken connection, the log is read again from its start, and lines that were
already shown are skipped by their times. So no line is lost, and none is shown twice.
"""

import codecs
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gpuyard.errors import GpuyardError, NoResponse
from gpuyard.jobs.engines.kubernetes.cluster import ApiError, KubernetesCluster, LogTimeout, PodList
from gpuyard.jobs.engines.kubernetes.draft import Manifest

_MAX_LINE = 1_000_000  # characters
_WATCH_SECONDS = 20
_END_SECONDS = 2  # after all pods have ended, because the job's own end does not change a pod
_MAX_BREAKS = 5  # in a row, without new output in between
_PAUSE_SECONDS = 1.0
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T")


@dataclass(frozen=True)
class LogSource:
    """The pods of one job, whose logs are read."""

    cluster: KubernetesCluster
    namespace: str
    selector: str
    container: str

    def list_pods(self) -> PodList:
        return self.cluster.list_pods(self.namespace, self.selector)


def read_logs(source: LogSource, nodes: int) -> Iterator[str]:
    """Yield all current output, pod by pod; raise MalformedObject at the end if a pod cannot be read."""
    listed = source.list_pods()
    for pod in listed.pods:
        starts = _count_starts(pod, source.container)
        for previous in [True, False][max(0, 2 - starts) :]:
            for line in _PodLog(source, pod["metadata"]["name"], previous).lines(follow=False):
                yield _format_prefix(pod, nodes) + line
    for error in listed.malformed:
        raise error


def follow_logs(source: LogSource, nodes: int, ended: Callable[[], bool]) -> Iterator[str]:
    """Yield output until the job has ended; pods of several nodes are read in parallel."""
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
    """One thread that looks for pods, and one thread for each pod with output."""

    def __init__(self, source: LogSource, nodes: int, ended: Callable[[], bool]) -> None:
        self.source, self.nodes, self.ended = source, nodes, ended
        self.lines: queue.Queue[str | GpuyardError | None] = queue.Queue(maxsize=1000)
        """An error or None is the last item."""
        self.stop = threading.Event()
        self.readers: dict[str, threading.Thread] = {}

    def watch(self) -> None:
        """Watch pods until the job has ended and every log is read."""
        source, breaks = self.source, 0
        while not self.stop.is_set():
            try:
                over = self.ended()  # checked before the pods: no pod starts after the end
                listed = source.list_pods()
                self._start_readers(listed.pods)
                for error in listed.malformed:
                    raise error
                if over:
                    break
                self._wait_for_change(listed.pods, listed.version)
                breaks = 0
            except NoResponse as error:
                breaks += 1
                if breaks > _MAX_BREAKS:
                    self._put(error)
                    return
                self.stop.wait(_PAUSE_SECONDS)
            except GpuyardError as error:
                self._put(error)
                return
        for reader in self.readers.values():
            reader.join()
        self._put(None)

    def _wait_for_change(self, pods: Sequence[Manifest], version: str) -> None:
        """Wait until a pod changes; without permission to watch, poll instead."""
        source = self.source
        ended = [pod.get("status", {}).get("phase") in {"Succeeded", "Failed"} for pod in pods]
        seconds = _END_SECONDS if ended and all(ended) else _WATCH_SECONDS
        try:
            source.cluster.wait_for_pods(source.namespace, source.selector, version, seconds)
        except ApiError as error:
            if error.status == 410:  # the version is too old: list the pods again
                raise NoResponse(str(error)) from None
            if error.status != 403:
                raise
            self.stop.wait(_END_SECONDS)

    def _start_readers(self, pods: Sequence[Manifest]) -> None:
        for pod in pods:
            starts = _count_starts(pod, self.source.container)
            start = f"{pod['metadata']['name']}/{starts}"
            if starts and start not in self.readers:
                self.readers[start] = threading.Thread(target=self._read, args=(pod,), daemon=True)
                self.readers[start].start()

    def _read(self, pod: Manifest) -> None:
        try:
            for line in _PodLog(self.source, pod["metadata"]["name"]).lines(follow=True):
                if not self._put(_format_prefix(pod, self.nodes) + line):
                    return
        except GpuyardError as error:
            self._put(error)

    def _put(self, item: str | GpuyardError | None) -> bool:
        """Put an item into the queue; return False if the reader has stopped."""
        while not self.stop.is_set():
            try:
                self.lines.put(item, timeout=0.5)
            except queue.Full:
                continue
            return True
        return False


@dataclass
class _PodLog:
    """One pod's log and how far it was read."""

    source: LogSource
    pod: str
    previous: bool = False
    """True to read the container's previous start, whose log the node keeps."""
    shown: tuple[str, int] = ("", 0)
    """The time of the last line that was shown, and how many lines with that time were."""

    def lines(self, *, follow: bool) -> Iterator[str]:
        """Yield lines with their line ends; stop without an error if the pod is gone."""
        breaks = 0
        while True:
            before, read = self.shown, ("", 0)
            try:
                for time_text, text in self._timed_lines(follow=follow):
                    read = (time_text, read[1] + 1 if time_text == read[0] else 1)
                    if read > before:
                        self.shown = read
                        yield text
            except LogTimeout:
                if not follow:
                    raise
                continue
            except NoResponse:
                breaks = 1 if self.shown != before else breaks + 1
                if not follow or breaks > _MAX_BREAKS:
                    raise
                time.sleep(_PAUSE_SECONDS)
                continue
            except ApiError as error:
                if error.status in {400, 404}:  # its container has not started, or it is gone
                    return
                raise
            return

    def _timed_lines(self, *, follow: bool) -> Iterator[tuple[str, str]]:
        """Yield each line's time and text; a very long line is split into parts with the same time."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        rest = ""
        source = self.source
        chunks = source.cluster.log(
            source.namespace, self.pod, source.container, follow=follow, previous=self.previous
        )
        for chunk in chunks:
            *lines, rest = (rest + decoder.decode(chunk)).split("\n")
            for line in lines:
                yield _split_time(line + "\n")
            if len(rest) > _MAX_LINE:
                yield _split_time(rest)
                rest = f"{rest.partition(' ')[0]} "
        rest += decoder.decode(b"", final=True)
        if rest:
            yield _split_time(rest)


def _split_time(line: str) -> tuple[str, str]:
    """Split "2026-11-16T09:00:00.1Z loss 3\\n" into its time and text.

    Fractions have no trailing zeros, so without the Z, times sort as text: 00.1 before 00.12.
    """
    time_text, _, text = line.partition(" ")
    if not _TIME.match(time_text):  # the node's own message, such as a missing log file
        return "", line
    return time_text.rstrip("Z\n"), text or "\n"


def _count_starts(pod: Manifest, container: str) -> int:
    """Return the number of starts of the container."""
    for status in pod.get("status", {}).get("containerStatuses") or []:
        state = status.get("state", {})
        if status.get("name") == container and (state.get("running") or state.get("terminated")):
            return int(status.get("restartCount", 0)) + 1
    return 0


def _format_prefix(pod: Manifest, nodes: int) -> str:
    return f"[{pod['metadata']['name']}] " if nodes > 1 else ""
