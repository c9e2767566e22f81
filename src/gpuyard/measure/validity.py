"""Checks whether a run is valid. An invalid run is marked as doubtful or rejected with a reason, never averaged away."""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil

from gpuyard.catalog import ModelProfile
from gpuyard.hardware.product_names import find_catalog_gpu
from gpuyard.measure.training.records import Measurement
from gpuyard.specs import Precision, Workload
from gpuyard.units import format_bit_rate, format_count, format_per_second, format_share
from gpuyard.workloads.profiles import catalog_profile

MAX_SPREAD = 0.20
"""The maximum difference between the slowest and the fastest window, relative to the fastest."""
MAX_OTHER_LOAD = 0.10
"""The maximum share of the workers' cores that other programs may use."""
NAN_LOSS = "the loss was not a number"
_CLOCK_TOLERANCE = 1.02  # measured times may be this much too short
# no CPU core does more in fp32 than two 512-bit fused multiply-adds per cycle, and none is clocked higher
_CPU_FLOPS_PER_CYCLE = 64.0
_CPU_HERTZ = 6.5e9
_BURST_BYTES = 16e6

Judge = Callable[[Measurement, float | None], str | None]
"""Returns why a measurement is doubtful, or None; also gets the share of the cores that others used."""


class ValidityCheck:
    """Checks the runs of one workload."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    def __call__(self, measurement: Measurement, other_load_share: float | None) -> str | None:
        """Return why the run is doubtful, or None if it is valid."""
        m = measurement
        return (
            _find_nan_loss(m)
            or self._find_excess_speed(m)
            or _find_excess_link_rate(m)
            or find_load_doubt(other_load_share)
            or _find_uneven_windows(m)
        )

    def _find_excess_speed(self, m: Measurement) -> str | None:
        per_worker = m.samples_per_second / m.workers
        if m.synthetic is not None:
            limit = m.batch_per_worker / m.synthetic.step_seconds(m.batch_per_worker)
            return _compare_with_limit(per_worker, limit, f"{m.synthetic.gpu} alone")
        return find_impossible_speed(
            per_worker,
            catalog_profile(self._workload) or m.profile,
            # if the workload leaves the precision open, the run has the one it used
            precision=self._workload.precision or m.spec.get("precision") or "fp32",
            gpu=next(iter(m.place.gpus or m.provenance.gpus), "") if m.device == "cuda" else None,
            threads=m.provenance.threads_per_worker,
        )


def find_impossible_speed(
    samples_per_second: float,
    profile: ModelProfile | None,
    *,
    precision: Precision,
    gpu: str | None,
    threads: int,
) -> str | None:
    """Return why one worker cannot train this fast, or None if it can.

    The worker has a GPU, given by its driver's name, or a number of CPU threads.
    """
    peak, hardware = _find_peak_flops(gpu, threads, precision)
    if peak is None or profile is None or not profile.forward_flops:
        return None
    return _compare_with_limit(samples_per_second, peak / (3 * profile.forward_flops), hardware)


def _compare_with_limit(per_worker: float, limit: float, hardware: str) -> str | None:
    if per_worker <= _CLOCK_TOLERANCE * limit:
        return None
    return (
        f"{format_per_second(per_worker)} samples/s per worker is more than {hardware} can do "
        f"({format_per_second(limit)})"
    )


def _find_nan_loss(m: Measurement) -> str | None:
    if m.synthetic is None and (m.loss_first is None or m.loss_last is None):
        return NAN_LOSS
    return None


def _find_peak_flops(
    gpu: str | None, threads: int, precision: Precision
) -> tuple[float | None, str]:
    if gpu is not None:
        catalog = find_catalog_gpu(gpu)
        peak = catalog.peak_flops(precision) if catalog else None
        return peak, f"{catalog.id if catalog else 'the GPU'}'s peak"
    if not threads:  # unknown: workers on other machines choose their own
        return None, "a CPU"
    speedup = {"fp16": 2.0, "bf16": 32.0}.get(precision, 1.0)  # AMX does 16 times AVX-512's bf16
    peak = threads * _CPU_FLOPS_PER_CYCLE * _CPU_HERTZ * speedup
    return peak, f"any CPU with {format_count(threads, 'core')}"


def _find_excess_link_rate(m: Measurement) -> str | None:
    link = m.place.link_bytes_per_second
    crosses_nodes = len(m.place.nodes) > 1
    if link is None or not crosses_nodes or m.all_reduce_bytes is None or not m.all_reduce_seconds:
        return None
    # the bytes that a ring sends through each node's link (see gpuyard.predictor.collectives)
    sent = 2 * (m.workers - 1) / m.workers * m.all_reduce_bytes
    rate = sent / m.all_reduce_seconds
    # traffic shaping lets short bursts through, so small exchanges may exceed the rate
    if m.all_reduce_bytes > _BURST_BYTES and rate > 1.1 * link:
        return (
            f"gradients were exchanged at {format_bit_rate(rate)} over links of "
            f"{format_bit_rate(link)}: the lab's traffic shaping failed"
        )
    return None


def find_load_doubt(share: float | None) -> str | None:
    """Return why a result is doubtful if others used this share of its cores, or None."""
    if share is not None and share > MAX_OTHER_LOAD:
        return f"other programs used {format_share(share)} of the cores"
    return None


def _find_uneven_windows(m: Measurement) -> str | None:
    seconds = [window.seconds for window in m.windows]
    spread = max(seconds) / min(seconds) - 1
    if spread > MAX_SPREAD:
        return f"windows of the same work differ by {format_share(spread)}"
    return None


@dataclass(frozen=True)
class _CoreTimes:
    """Seconds since an arbitrary moment: of the clock, of the cores, and of the bench's own processes."""

    clock: float
    programs: float
    interrupts: float
    own: float


class OtherLoad:
    """Measures how much of a bench's cores other programs use, and how busy the cores are.

    The bench's own processes are this one, those of `machines`, given by their first process, and all their children.
    """

    def __init__(self, cores: Sequence[int], machines: Sequence[int] = ()) -> None:
        self._cores = set(cores)
        self._machines = tuple(machines)
        self._start: _CoreTimes | None = None

    def begin(self) -> None:
        """Start counting."""
        self._start = self._read_times()

    def share(self) -> float | None:
        """Return the share of the cores' time that others used since `begin`.

        It is None if the bench uses no core of this machine.
        """
        # interrupts are left out: on a lab's shaped links, this bench's own traffic causes them
        return self._divide(
            lambda start, now: (now.programs - start.programs) - (now.own - start.own)
        )

    def busy_share(self) -> float | None:
        """Return the share of the cores' time that anything used since `begin`, including interrupts."""
        return self._divide(
            lambda start, now: now.programs - start.programs + now.interrupts - start.interrupts
        )

    def _divide(self, seconds: Callable[[_CoreTimes, _CoreTimes], float]) -> float | None:
        if self._start is None or not self._cores:
            return None
        now = self._read_times()
        elapsed = (now.clock - self._start.clock) * len(self._cores)
        if elapsed <= 0:
            return None
        return min(1.0, max(0.0, seconds(self._start, now)) / elapsed)

    def _read_times(self) -> _CoreTimes:
        times = [t for core, t in enumerate(psutil.cpu_times(percpu=True)) if core in self._cores]
        return _CoreTimes(
            time.monotonic(),
            sum(t.user + t.nice + t.system + getattr(t, "steal", 0.0) for t in times),
            sum(getattr(t, "irq", 0.0) + getattr(t, "softirq", 0.0) for t in times),
            _read_own_cpu_seconds((os.getpid(), *self._machines)),
        )


def _read_own_cpu_seconds(roots: Sequence[int]) -> float:
    processes: set[psutil.Process] = set()
    for pid in roots:
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(pid)
            processes |= {root, *root.children(recursive=True)}
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            # children that have exited and were waited for
            exited = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
            total += times.user + times.system + exited
    return total
