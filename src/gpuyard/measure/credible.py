"""Whether a run is to be believed. What is not is marked or rejected with a reason, never averaged away."""

import contextlib
import os
import time
from collections.abc import Callable, Sequence

import psutil

from gpuyard.catalog import ModelProfile
from gpuyard.hardware.product_names import catalog_gpu
from gpuyard.measure.training.records import Measurement
from gpuyard.specs import Precision, Workload
from gpuyard.units import format_bit_rate, format_per_second, format_share
from gpuyard.workloads.profiles import catalog_profile

MOST_SPREAD = 0.20
"""Between the slowest and the fastest window, over the fastest."""
MOST_FOREIGN = 0.10
"""Of the cores that the workers were on."""
NO_LOSS = "the loss was not a number"
_CLOCK = 1.02  # a timer's own doubt, when something is said to be faster than possible
_CPU_FLOPS_PER_CYCLE = (
    64.0  # two 512-bit fused multiply-adds a cycle: no CPU core does more in fp32
)
_CPU_HERTZ = 6.5e9  # nor does any run faster
_BURST_BYTES = 16e6

Judge = Callable[[Measurement, float | None], str | None]
"""From a measurement and the foreign load beside it to the reason why it is not credible, if it is not."""


class Credibility:
    """Judges runs of one workload."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    def __call__(self, measurement: Measurement, foreign_share: float | None) -> str | None:
        """The reason why the run is not credible; None: it is."""
        m = measurement
        return (
            _no_loss(m)
            or self._too_fast(m)
            or _faster_than_its_link(m)
            or foreign_doubt(foreign_share)
            or _uneven(m)
        )

    def _too_fast(self, m: Measurement) -> str | None:
        each = m.samples_per_second / m.workers
        if m.synthetic is not None:
            most = m.batch_per_worker / m.synthetic.step_seconds(m.batch_per_worker)
            return _faster(each, most, f"{m.synthetic.gpu} alone")
        return faster_than_possible(
            each,
            catalog_profile(self._workload) or m.profile,
            # where the workload leaves it open, the run says what it was
            precision=self._workload.precision or m.spec.get("precision") or "fp32",
            gpu=next(iter(m.place.gpus or m.provenance.gpus), "") if m.device == "cuda" else None,
            threads=m.provenance.threads_per_worker,
        )


def faster_than_possible(
    each: float,
    profile: ModelProfile | None,
    *,
    precision: Precision,
    gpu: str | None,
    threads: int,
) -> str | None:
    """Why no worker of this hardware, a GPU by its driver's name or so many cores, trains so many samples a second."""
    peak, what = _peak_flops(gpu, threads, precision)
    if peak is None or profile is None or not profile.forward_flops:
        return None
    return _faster(each, peak / (3 * profile.forward_flops), what)


def _faster(each: float, most: float, what: str) -> str | None:
    if each <= _CLOCK * most:
        return None
    return (
        f"{format_per_second(each)} samples/s a worker is more than {what} can do "
        f"({format_per_second(most)})"
    )


def _no_loss(m: Measurement) -> str | None:
    if m.synthetic is None and (m.loss_first is None or m.loss_last is None):
        return NO_LOSS
    return None


def _peak_flops(gpu: str | None, threads: int, precision: Precision) -> tuple[float | None, str]:
    if gpu is not None:
        known = catalog_gpu(gpu)
        peak = known.peak_flops(precision) if known else None
        return peak, f"{known.id if known else 'the GPU'}'s peak"
    if not threads:  # other machines decide themselves
        return None, "a CPU"
    widening = {"fp16": 2.0, "bf16": 32.0}.get(precision, 1.0)  # AMX does 16 times AVX-512's bf16
    return threads * _CPU_FLOPS_PER_CYCLE * _CPU_HERTZ * widening, "any CPU of so many cores"


def _faster_than_its_link(m: Measurement) -> str | None:
    link = m.place.link_bytes_per_second
    crossed = len(m.place.nodes) > 1
    if link is None or not crossed or m.all_reduce_bytes is None or not m.all_reduce_seconds:
        return None
    # what a ring sends through each node's link (see gpuyard.predict.collectives)
    sent = 2 * (m.workers - 1) / m.workers * m.all_reduce_bytes
    rate = sent / m.all_reduce_seconds
    # the shaper lets short bursts through, so small exchanges may beat it
    if m.all_reduce_bytes > _BURST_BYTES and rate > 1.1 * link:
        return (
            f"the exchange went at {format_bit_rate(rate)} over links of {format_bit_rate(link)}: "
            "the lab's shaping did not hold"
        )
    return None


def foreign_doubt(share: float | None) -> str | None:
    """What speaks against anything that was measured while others used so much of its cores."""
    if share is not None and share > MOST_FOREIGN:
        return f"other programs used {format_share(share)} of the cores"
    return None


def _uneven(m: Measurement) -> str | None:
    seconds = [window.seconds for window in m.windows]
    spread = max(seconds) / min(seconds) - 1
    if spread > MOST_SPREAD:
        return f"windows of the same work differ by {format_share(spread)}"
    return None


class ForeignLoad:
    """Compares what the cores did with what our processes did; None where the cores are elsewhere."""

    def __init__(self, cores: Sequence[int]) -> None:
        self._cores = set(cores)
        self._start: tuple[float, float, float] | None = None

    def begin(self) -> None:
        """Count from here."""
        self._start = self._now()

    def share(self) -> float | None:
        """The part of our cores' time that went to others since then."""
        if self._start is None or not self._cores:
            return None
        began, busy_before, own_before = self._start
        now, busy, own = self._now()
        elapsed = (now - began) * len(self._cores)
        if elapsed <= 0:
            return None
        return max(0.0, (busy - busy_before) - (own - own_before)) / elapsed

    def _now(self) -> tuple[float, float, float]:
        # interrupts are left out: on a lab's shaped links they are our own traffic
        times = psutil.cpu_times(percpu=True)
        busy = sum(
            t.user + t.nice + t.system + getattr(t, "steal", 0.0)
            for core, t in enumerate(times)
            if core in self._cores
        )
        return time.monotonic(), busy, _own_cpu_seconds()


def _own_cpu_seconds() -> float:
    me = psutil.Process(os.getpid())
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            used = process.cpu_times()
            # of those that have ended, too, which their parent has waited for
            ended = getattr(used, "children_user", 0.0) + getattr(used, "children_system", 0.0)
            total += used.user + used.system + ended
    return total
