"""Times the steps of a training loop and reports them, some seconds of steps to a line.

A line is `MARKER` and one JSON object. Its keys:

    steps, samples, seconds     of these steps, of all workers together
    step_seconds                the median of one step: an evaluation between two steps does not move it
    warmup                      true: the first steps, in which libraries tune themselves and caches fill
    steps_done, samples_done    since this process started, with the first step, which nobody could time
    at                          when the line was written, in seconds since 1970
    gpus, nodes, workers        that train
    start                       the same for all lines of one process: a job that starts again has a new one
    job, number, total, loss    the job's UUID; which step of how many the last one was; its loss
    testbed                     in the first line: what it runs on

Only rank 0 reports. What goes wrong here never stops the training.
"""

import atexit
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping

MARKER = "gpuyard-steps: "
FILE_VARIABLE = "GPUYARD_STEPS"
"""Where lines are appended; the engines set it."""
REPORT_VARIABLE = "GPUYARD_REPORT"
JOB_VARIABLE = "GPUYARD_JOB"
GPUS_VARIABLE = "GPUYARD_GPUS"
NODES_VARIABLE = "GPUYARD_NODES"

_WARMUP_STEPS = 10
_LEAST_WARMUP_STEPS, _LONG_WARMUP_SECONDS = 3, 10.0  # where steps are slow, fewer will do
_SHORTEST_SECONDS, _LONGEST_SECONDS = 1.0, 60.0  # that a line is about
_SHARE_OF_ALL = 1 / 20  # a line is about so much of the time until then: few lines in a month
_MOST_TIMES = 1024
_MOST = 1e15
_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "HOROVOD_RANK")
# not SLURM_NTASKS: a batch script has it, too, and starts one process for all of them
_WORLDS = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "HOROVOD_SIZE")


class Reporter:
    """Counts steps and hands out a line now and then; any number of threads may call it."""

    def __init__(
        self,
        write: Callable[[str], None],
        said: Mapping[str, object],
        *,
        workers: int = 1,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._write = write
        self._said = dict(said)
        self._workers = workers
        self._clock = clock
        self._lock = threading.RLock()  # a signal's handler may come in between, and train
        self._first: float | None = None
        self._warm = False
        self._testbed_said = False
        self._steps_done = 0
        self._samples_done = 0.0
        self._number: int | None = None
        self._total: int | None = None
        self._loss: float | None = None
        self._last = self._begun = self._due = 0.0
        self._begin(0.0)

    def step(
        self,
        samples: float = 1,
        loss: float | None = None,
        number: int | None = None,
        total: int | None = None,
    ) -> None:
        """One more is done."""
        samples = _number(samples) or 0.0
        with self._lock:
            now = self._clock()  # here: of two threads the first to come is the earlier
            self._steps_done += 1
            self._samples_done += samples
            if loss is not None:
                self._loss = _number(loss, least=-_MOST)
            if number is not None:
                self._number = _whole_number(number)
            if total is not None:
                self._total = _whole_number(total)
            if self._first is None:  # when it began is not known
                self._first = now
                self._begin(now)
                return
            self._steps += 1
            self._samples += samples
            self._keep(now - self._last)
            self._last = now
            if not self._warm:
                self._warm_up(now)
            elif now >= self._due:
                self._report(now, warmup=False)

    def close(self) -> None:
        """Say what has not been said yet."""
        with self._lock:
            if self._first is not None and self._steps:
                self._report(self._last, warmup=not self._warm)

    def unlock(self) -> None:
        """In a forked process nobody else holds it, and what its parent counted is its parent's to say."""
        self._lock = threading.RLock()
        self._first = None

    def _begin(self, now: float) -> None:
        self._last = self._begun = now
        self._steps = 0
        self._samples = 0.0
        self._times: list[float] = []
        self._stride = 1
        since = now - (self._first if self._first is not None else now)
        self._due = now + min(max(since * _SHARE_OF_ALL, _SHORTEST_SECONDS), _LONGEST_SECONDS)

    def _keep(self, seconds: float) -> None:
        if self._steps % self._stride:
            return
        self._times.append(seconds)
        if len(self._times) >= _MOST_TIMES:  # a median of every other one is as good
            self._times = self._times[1::2]
            self._stride *= 2

    def _warm_up(self, now: float) -> None:
        long = now - self._begun >= _LONG_WARMUP_SECONDS
        if self._steps >= (_LEAST_WARMUP_STEPS if long else _WARMUP_STEPS):
            self._warm = True
            self._report(now, warmup=True)

    def _report(self, now: float, *, warmup: bool) -> None:
        ordered = sorted(self._times)
        middle = len(ordered) // 2
        median = (ordered[middle] + ordered[~middle]) / 2 if ordered else 0.0
        line: dict[str, object] = {
            **self._said,
            "at": round(time.time(), 3),
            "workers": self._workers,
            "steps": self._steps,
            "samples": self._samples * self._workers,
            "seconds": round(now - self._begun, 6),
            "step_seconds": round(median, 9),
            "warmup": warmup,
            "steps_done": self._steps_done,
            "samples_done": self._samples_done * self._workers,
            "number": self._number,
            "total": self._total,
            "loss": self._loss,
        }
        if not self._testbed_said:
            self._testbed_said = True
            with contextlib.suppress(Exception):  # of torch, maybe; the training is worth more
                line["testbed"] = _testbed()
        self._begin(now)
        self._write(MARKER + json.dumps(line, allow_nan=False) + "\n")


def _number(value: object, least: float = 0.0) -> float | None:
    """None where it is none: a wrong argument is no reason to end a training."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None
    return number if least <= number <= _MOST else None


def _whole_number(value: object) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _testbed() -> dict[str, object]:
    """Of this process; a GPU's name only where the training has imported torch itself."""
    import platform

    from gpuyard import __version__
    from gpuyard.cpu import cpu_model, os_name, usable_cores

    torch = sys.modules.get("torch")
    gpus: list[str] = []
    if torch is not None and torch.cuda.is_available():
        gpus = [torch.cuda.get_device_name(i)[:100] for i in range(torch.cuda.device_count())]
        gpus = _with_hidden(gpus)
    return {
        "gpuyard": __version__,
        "torch": str(getattr(torch, "__version__", "none"))[:50],
        "python": platform.python_version(),
        "os": os_name()[:100],
        "kernel": platform.release()[:100],
        "host": platform.node()[:100],
        "cpu_model": cpu_model()[:100],
        "cores": len(usable_cores()),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": gpus[:64],
        "threads_per_worker": 0 if torch is None else int(torch.get_num_threads()),
    }


def _with_hidden(visible: list[str]) -> list[str]:
    """A lease shows some of a machine's GPUs; where they are alike, the driver says how many there are."""
    try:
        count = len(os.listdir("/proc/driver/nvidia/gpus"))  # noqa: PTH208
    except OSError:
        return visible
    return visible[:1] * count if len(set(visible)) == 1 and count > len(visible) else visible


class LineFile:
    """Appends whole lines; whoever reads the file meanwhile sees no half of one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._said_why = False

    def write(self, line: str) -> None:
        try:
            if self._descriptor is None:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._descriptor = os.open(self._path, flags | os.O_NONBLOCK, 0o600)
            os.write(self._descriptor, line.encode())
        except OSError as error:  # the training is worth more than its measurement
            if not self._said_why:
                self._said_why = True
                _complain(f"steps can't be reported: {error.strerror}")


def _to_stdout(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # closed, by its reader or by the training
        sys.stdout.write(line)
        sys.stdout.flush()


def _complain(words: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"gpuyard: {words}\n")


def _whole(environment: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    for name in names:
        text = environment.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 9:
            return int(text)
    return default


def reporter_of(environment: Mapping[str, str]) -> Reporter | None:
    """As the job's engine asks for it; None: nobody does, or another rank reports."""
    path = environment.get(FILE_VARIABLE)
    if not path and environment.get(REPORT_VARIABLE) != "stdout":
        return None
    if _whole(environment, _RANKS, 0) != 0:
        return None
    workers = max(1, _whole(environment, _WORLDS, 1))
    local = _whole(environment, ("LOCAL_WORLD_SIZE",), workers)
    said: dict[str, object] = {
        "job": environment.get(JOB_VARIABLE, "")[:64],
        "start": os.urandom(6).hex(),
        "gpus": _whole(environment, (GPUS_VARIABLE,), workers),
        "nodes": _whole(environment, (NODES_VARIABLE,), -(-workers // max(1, local))),
    }
    return Reporter(LineFile(path).write if path else _to_stdout, said, workers=workers)


_making = threading.Lock()
_made = False
_reporter: Reporter | None = None


def step(
    samples: float = 1,
    *,
    loss: float | None = None,
    number: int | None = None,
    total: int | None = None,
) -> None:
    """Say that one step of training is done, on `samples` samples of this process.

    `loss` is a plain number; `number` says which step of the whole training this was, the first being 1, where
    it goes on from a checkpoint; `total` says how many there will be.
    """
    if not _made:
        _make()
    if _reporter is not None:
        _reporter.step(samples, loss, number, total)


def _make() -> None:
    global _made, _reporter  # noqa: PLW0603
    with _making:
        if _made:
            return
        _reporter = reporter_of(os.environ)
        _made = True
        if _reporter is not None:
            atexit.register(_reporter.close)
            os.register_at_fork(after_in_child=_reporter.unlock)
