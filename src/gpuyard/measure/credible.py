"""Whether a run is to be believed. What is not is rejected with a reason, never averaged away."""

from dataclasses import dataclass

from gpuyard.catalog import ModelProfile
from gpuyard.hardware.product_names import catalog_gpu
from gpuyard.measure.training.measurement import Measurement
from gpuyard.specs import Precision
from gpuyard.units import format_bit_rate, format_share

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


@dataclass(frozen=True)
class Credibility:
    """Judges runs of one workload."""

    profile: ModelProfile
    precision: Precision

    def __call__(self, measurement: Measurement, foreign_share: float | None) -> str | None:
        """The reason why the run is not credible; None: it is."""
        m = measurement
        return (
            _no_loss(m)
            or _too_fast(m, self.profile, self.precision)
            or _faster_than_its_link(m)
            or _foreign(foreign_share)
            or _uneven(m)
        )


def _no_loss(m: Measurement) -> str | None:
    if m.synthetic is None and (m.loss_first is None or m.loss_last is None):
        return NO_LOSS
    return None


def _too_fast(m: Measurement, profile: ModelProfile, precision: Precision) -> str | None:
    each = m.samples_per_second / m.workers
    if m.synthetic is not None:
        most = m.batch_per_worker / m.synthetic.step_seconds(m.batch_per_worker)
        what = f"{m.synthetic.gpu} alone"
    else:
        peak, what = _peak_flops(m, precision)
        if peak is None or not profile.forward_flops:
            return None
        most = peak / (3 * profile.forward_flops)
    if each > _CLOCK * most:
        return f"{each:,.1f} samples/s a worker is more than {what} can do ({most:,.1f})"
    return None


def _peak_flops(m: Measurement, precision: Precision) -> tuple[float | None, str]:
    if m.device == "cuda":
        names = m.place.gpus or m.provenance.gpus
        gpu = catalog_gpu(names[0]) if names else None
        return (
            gpu.peak_flops(precision) if gpu else None
        ), f"{gpu.id if gpu else 'the GPU'}'s peak"
    threads = m.provenance.threads_per_worker
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


_BURST_BYTES = 16e6


def _foreign(share: float | None) -> str | None:
    if share is not None and share > MOST_FOREIGN:
        return f"other programs used {format_share(share)} of the cores"
    return None


def _uneven(m: Measurement) -> str | None:
    seconds = [window.seconds for window in m.windows]
    spread = max(seconds) / min(seconds) - 1
    if spread > MOST_SPREAD:
        return f"windows of the same work differ by {format_share(spread)}"
    return None
