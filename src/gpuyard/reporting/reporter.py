"""Times the steps of a training loop, and reports several seconds of steps per line.

A line is `MARKER` and one JSON object. Its keys:

    steps, samples, seconds     of the steps in this line, for all workers together
    step_seconds                the median of one step, which an evaluation between two steps does not change
    warmup                      true for the first steps, in which libraries tune themselves and caches fill
    steps_done, samples_done    since this process started, including the first step, which cannot be timed
    at                          when the line was written, in seconds since 1970
    gpus, nodes, workers        used for the training
    start                       an id shared by all lines of one process; a restarted job gets a new one
    job, number, total, loss    the job's UUID; the number of the last step, and of all steps; its loss
    checkpoints                 written in these steps; checkpoint_seconds is their time, which no step time contains
    startup_seconds             from the start of the process to the end of its first step, in the first line only
    testbed                     the machine, in the first line only
    rank, host, gpu             of the process that wrote the line
    input_seconds               of one step: waiting for a batch; null if the loop does not time it
    exchange_seconds            of one step: in collectives, including waiting for other ranks; null if not timed
    compute_seconds             the rest of one step
    cpu_wait                    share of the time in which the process was ready but other processes had the CPU
    links, cards                TCP to each other machine: bytes, seconds, retransmits; speeds of network cards
    load_per_core               processes that run or wait for a CPU on the machine, over the last minute
    clock_mhz, max_clock_mhz    of the GPU now, and at most; clock_reasons says why it is reduced
    gpu_processes               that use the GPU, including this one
    gpu_utilization             from 0 to 1; gpu_memory_bytes are in use; gpu_watts is the power

Rank 0 writes all keys after `MARKER`. Other ranks write only those about the rank, after `RANK_MARKER`, to a file of their
own, so that readers of throughput never see them. Every rank writes at most one line per window. An error here never stops the training.
"""

import atexit
import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from gpuyard.reporting.lines import LineAppender, write_to_stdout
from gpuyard.reporting.process import (
    describe_testbed,
    find_device,
    read_cpu_wait_ns,
    read_process_seconds,
)

if TYPE_CHECKING:
    from gpuyard.reporting.sensors import RankSensors

MARKER = "gpuyard-steps: "
RANK_MARKER = "gpuyard-rank: "
RANKS_SUFFIX = ".ranks"
"""The ending of the file for ranks other than 0, next to that of rank 0."""
T = TypeVar("T")
FILE_VARIABLE = "GPUYARD_STEPS"
"""The environment variable with the file to append lines to; the engines set it."""
REPORT_VARIABLE = "GPUYARD_REPORT"
JOB_VARIABLE = "GPUYARD_JOB"
GPUS_VARIABLE = "GPUYARD_GPUS"
NODES_VARIABLE = "GPUYARD_NODES"

_WARMUP_STEPS = 10
_MIN_WARMUP_STEPS, _LONG_WARMUP_SECONDS = 3, 10.0  # if steps are slow, fewer are enough
_MIN_SECONDS, _MAX_SECONDS = 1.0, 60.0  # that a line covers
_SHARE_OF_ELAPSED = 1 / 20  # a line covers this share of the time so far, so a month has few lines
_MAX_TIMES = 1024
_MAX_NUMBER = 1e15
_RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "HOROVOD_RANK")
# not SLURM_NTASKS, which is also set in a batch script that starts a single process
_WORLD_SIZE_VARIABLES = (
    "WORLD_SIZE",
    "SLURM_STEP_NUM_TASKS",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "HOROVOD_SIZE",
)


class Reporter:
    """Counts steps and writes a line from time to time; it is thread-safe."""

    def __init__(
        self,
        write: Callable[[str], None],
        common_fields: Mapping[str, object],
        *,
        workers: int = 1,
        clock: Callable[[], float] = time.perf_counter,
        rank: int = 0,
    ) -> None:
        self._write = write
        self._rank = rank
        self._cpu_wait_ns = 0
        self._common_fields = dict(common_fields)
        self._workers = workers
        self._clock = clock
        self._lock = (
            threading.RLock()
        )  # reentrant: a signal handler may interrupt step() and call it
        self._first: float | None = None
        self._warm = False
        self._testbed_reported = False
        self._steps_done = 0
        self._samples_done = 0.0
        self._number: int | None = None
        self._total: int | None = None
        self._loss: float | None = None
        self._last = self._window_start = self._due = self._paused = 0.0
        self._startup_seconds: float | None = None
        self._sensors: RankSensors | None = None
        self._start_window(0.0)

    def step(
        self,
        samples: float = 1,
        loss: float | None = None,
        number: int | None = None,
        total: int | None = None,
    ) -> None:
        """Count one finished step."""
        samples = _parse_number(samples) or 0.0
        with self._lock:
            now = self._clock()  # inside the lock, so that times are in order
            self._steps_done += 1
            self._samples_done += samples
            if loss is not None:
                self._loss = _parse_number(loss, minimum=-_MAX_NUMBER)
            if number is not None:
                self._number = _parse_integer(number)
            if total is not None:
                self._total = _parse_integer(total)
            if self._first is None:  # its start is unknown, so it is not timed
                self._first = now
                self._startup_seconds = read_process_seconds()
                self._start_window(now)
                return
            self._steps += 1
            self._samples += samples
            self._add_time(max(0.0, now - self._last - self._paused))
            self._last, self._paused = now, 0.0
            if self._sensors is not None:
                self._sensors.sample(now)
            if not self._warm:
                self._warm_up(now)
            elif now >= self._due:
                self._report(now, warmup=False)

    def add_phase(self, phase: str, seconds: float) -> None:
        """Count time of the current step that went into `input` or `exchange`."""
        with self._lock:
            self._phases[phase] = self._phases.get(phase, 0.0) + seconds

    def add_checkpoint(self, seconds: float) -> None:
        """Count a checkpoint that took this long; the step in which it was written does not include it."""
        with self._lock:
            self._checkpoints += 1
            self._checkpoint_seconds += seconds
            self._paused += seconds

    def close(self) -> None:
        """Report the steps that have not been reported yet."""
        with self._lock:
            if self._first is not None and self._steps:
                self._report(self._last, warmup=not self._warm)

    def reset_after_fork(self) -> None:
        """Release the lock in a forked process, and leave the counted steps to the parent's report."""
        self._lock = threading.RLock()
        self._first = None

    def _start_window(self, now: float) -> None:
        self._last = self._window_start = now
        self._steps = 0
        self._samples = 0.0
        self._times: list[float] = []
        self._stride = 1
        self._paused = 0.0  # since the last step
        self._checkpoints = 0
        self._checkpoint_seconds = 0.0
        self._phases: dict[str, float] = {}
        self._cpu_wait_ns = read_cpu_wait_ns()
        elapsed = now - (self._first if self._first is not None else now)
        self._due = now + min(max(elapsed * _SHARE_OF_ELAPSED, _MIN_SECONDS), _MAX_SECONDS)

    def _add_time(self, seconds: float) -> None:
        if self._steps % self._stride:
            return
        self._times.append(seconds)
        if len(self._times) >= _MAX_TIMES:  # the median of every other time is as good
            self._times = self._times[1::2]
            self._stride *= 2

    def _warm_up(self, now: float) -> None:
        slow = now - self._window_start >= _LONG_WARMUP_SECONDS
        if self._steps >= (_MIN_WARMUP_STEPS if slow else _WARMUP_STEPS):
            self._warm = True
            self._report(now, warmup=True)
            from gpuyard.reporting.sensors import RankSensors

            self._sensors = RankSensors(self._workers)
            self._start_window(self._clock())  # looking for DDP takes a while

    def _report(self, now: float, *, warmup: bool) -> None:
        ordered = sorted(self._times)
        middle = len(ordered) // 2
        median = (ordered[middle] + ordered[~middle]) / 2 if ordered else 0.0
        line: dict[str, object] = {
            **self._common_fields,
            "at": round(time.time(), 3),
            "workers": self._workers,
            "steps": self._steps,
            **self._describe_rank(now - self._window_start),
            "samples": self._samples * self._workers,
            "seconds": round(now - self._window_start, 6),
            "step_seconds": round(median, 9),
            "warmup": warmup,
            "steps_done": self._steps_done,
            "samples_done": self._samples_done * self._workers,
            "number": self._number,
            "total": self._total,
            "loss": self._loss,
        }
        if self._checkpoints:
            line["checkpoints"] = self._checkpoints
            line["checkpoint_seconds"] = round(self._checkpoint_seconds, 6)
        if not self._testbed_reported:
            self._testbed_reported = True
            line["startup_seconds"] = self._startup_seconds
            with contextlib.suppress(Exception):  # an error in torch must not stop the training
                line["testbed"] = describe_testbed()
        marker = MARKER
        if self._rank:
            marker = RANK_MARKER
            line = {key: line[key] for key in _RANK_KEYS if key in line}
        self._start_window(now)
        self._write(marker + json.dumps(line, allow_nan=False) + "\n")

    def _describe_rank(self, seconds: float) -> dict[str, object]:
        """Return the seconds of one step by phase; a phase that the loop does not time is part of compute."""
        steps = max(1, self._steps)
        mean = (seconds - self._checkpoint_seconds) / steps
        phases = {name: self._phases[name] / steps for name in _PHASES if name in self._phases}
        sensed = {} if self._sensors is None else self._sensors.read()
        exchange = sensed.pop("ddp_exchange_seconds", None)
        if isinstance(exchange, float):
            phases.setdefault("exchange", min(exchange, max(0.0, mean - sum(phases.values()))))
        waited = (read_cpu_wait_ns() - self._cpu_wait_ns) / 1e9 / seconds if seconds > 0 else 0.0
        return {
            "rank": self._rank,
            "host": _HOST,
            "gpu": find_device(),
            **{f"{name}_seconds": _round(phases.get(name)) for name in _PHASES},
            "compute_seconds": _round(max(0.0, mean - sum(phases.values()))),
            "cpu_wait": round(min(1.0, max(0.0, waited)), 4),
            **sensed,
        }


_PHASES = ("input", "exchange")
_RANK_KEYS = (
    "start", "job", "at", "steps", "seconds", "step_seconds", "warmup", "rank", "host", "gpu",
    "input_seconds", "exchange_seconds", "compute_seconds", "cpu_wait", "links", "cards", "load_per_core",
    "clock_mhz", "max_clock_mhz", "clock_reasons", "gpu_processes", "gpu_utilization", "gpu_memory_bytes",
    "gpu_watts",
)  # fmt: skip
_HOST = os.uname().nodename[:100]


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 9)


def _parse_number(value: object, minimum: float = 0.0) -> float | None:
    """Return None for anything but a number, because a wrong argument must not stop the training."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None
    return number if minimum <= number <= _MAX_NUMBER else None


def _parse_integer(value: object) -> int | None:
    number = _parse_number(value)
    return None if number is None else int(number)


def _read_integer(environment: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    for name in names:
        text = environment.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 9:
            return int(text)
    return default


def create_reporter(environment: Mapping[str, str]) -> Reporter | None:
    """Create the reporter that the environment asks for; None if none is requested."""
    path = environment.get(FILE_VARIABLE)
    if not path and environment.get(REPORT_VARIABLE) != "stdout":
        return None
    rank = _read_integer(environment, _RANK_VARIABLES, 0)
    workers = max(1, _read_integer(environment, _WORLD_SIZE_VARIABLES, 1))
    local_workers = _read_integer(environment, ("LOCAL_WORLD_SIZE",), workers)
    nodes = -(-workers // max(1, local_workers))
    common_fields: dict[str, object] = {
        "job": environment.get(JOB_VARIABLE, "")[:64],
        "start": os.urandom(6).hex(),
        "gpus": _read_integer(environment, (GPUS_VARIABLE,), workers),
        "nodes": _read_integer(environment, (NODES_VARIABLE,), nodes),
    }
    if path and rank:
        path += RANKS_SUFFIX
    write = LineAppender(path).write if path else write_to_stdout
    return Reporter(write, common_fields, workers=workers, rank=rank)


_initialization_lock = threading.Lock()
_initialized = False
_reporter: Reporter | None = None


def step(
    samples: float = 1,
    *,
    loss: float | None = None,
    number: int | None = None,
    total: int | None = None,
) -> None:
    """Report one finished training step with `samples` samples in this process.

    `loss` is a plain number. `number` is this step's number in the whole training, counted from 1, for a training that
    resumes from a checkpoint. `total` is the number of all steps.
    """
    if not _initialized:
        _initialize()
    if _reporter is not None:
        _reporter.step(samples, loss, number, total)


@contextlib.contextmanager
def checkpoint() -> Iterator[None]:
    """Time the writing of a checkpoint: `with gpuyard.checkpoint(): torch.save(…)`.

    From these times, `gpuyard status` proposes an interval. A checkpoint that fails is not counted.
    """
    started = time.perf_counter()
    yield
    add_checkpoint(time.perf_counter() - started)


@contextlib.contextmanager
def exchange() -> Iterator[None]:
    """Time communication with other ranks: `with gpuyard.exchange(): dist.all_reduce(…)`."""
    started = time.perf_counter()
    yield
    add_phase("exchange", time.perf_counter() - started)


def batches(loader: Iterable[T]) -> Iterator[T]:
    """Yield the batches of a loader, and time how long the training waits for each."""
    iterator = iter(loader)
    while True:
        started = time.perf_counter()
        try:
            batch = next(iterator)
        except StopIteration:
            return
        add_phase("input", time.perf_counter() - started)
        yield batch


def add_phase(phase: str, seconds: float) -> None:
    """Report time of the current step that went into `input` or `exchange`."""
    if not _initialized:
        _initialize()
    if _reporter is not None:
        _reporter.add_phase(phase, seconds)


def add_checkpoint(seconds: float) -> None:
    """Report a checkpoint that took this long."""
    if not _initialized:
        _initialize()
    if _reporter is not None:
        _reporter.add_checkpoint(seconds)


def _initialize() -> None:
    global _initialized, _reporter  # noqa: PLW0603
    with _initialization_lock:
        if _initialized:
            return
        _reporter = create_reporter(os.environ)
        _initialized = True
        if _reporter is not None:
            atexit.register(_reporter.close)
            os.register_at_fork(after_in_child=_reporter.reset_after_fork)
