"""Which remedies the predictor names for a configuration, among those that can be measured here.

`gpuyard predict --why` changes one thing at a time; here 16 bits go together with everything, and local SGD
is also asked with longer periods, since what it does to the loss is about to be measured.
"""

import math
from dataclasses import replace
from functools import partial

from gpuyard.catalog import ModelProfile
from gpuyard.measure.training.records import Measurement
from gpuyard.predict import (
    CPU_VARIATION,
    HOP_HERE,
    LINK_HERE,
    ComputeLine,
    Pipe,
    Placement,
    Platform,
    PlatformScenario,
    strategy_of,
)
from gpuyard.predict.constants import fitted
from gpuyard.predict.strategies.remedies import ACCUMULATED_STEPS, BUCKET_MEGABYTES, POWERSGD_RANK
from gpuyard.predict.transport import between_machines
from gpuyard.run.places.place import RunPlace
from gpuyard.specs import ExchangeOptions, Network, Workload

LEAST_GAIN = 1.03
"""As in `gpuyard predict --why`."""
_LOCAL_STEPS = (ACCUMULATED_STEPS, 8, 16)

CANDIDATES = (
    ExchangeOptions(compress="fp16"),
    ExchangeOptions(compress=f"powersgd:{POWERSGD_RANK}"),
    ExchangeOptions(accumulate=ACCUMULATED_STEPS),
    ExchangeOptions(compress="fp16", accumulate=ACCUMULATED_STEPS),
    *(ExchangeOptions(compress="fp16", local_sgd=steps) for steps in _LOCAL_STEPS),
)
"""What can be measured; the predictor says which of them are worth it."""


def predicted_gains(
    workload: Workload, profile: ModelProfile, alone: Measurement, workers: int, place: RunPlace
) -> dict[ExchangeOptions, float] | None:
    """Speed-ups over plain DDP that are worth it, the largest first; None where the link is not known.

    `alone` is one worker at the same batch: what a step takes without any exchange.
    """
    platform = _platform(workers, place)
    if platform is None:
        return None
    batch = alone.batch_per_worker
    seconds = alone.step.step_seconds
    line = ComputeLine(0.0, seconds / batch, "measured here", f"run {alone.id}")
    where = Placement(workers, platform.nodes, platform.gpus_per_node)

    plainly = PlatformScenario(
        workload.model_copy(update={"batch_per_gpu": batch}),
        profile,
        platform,
        line,
        strategy_of("ddp"),
        variation=CPU_VARIATION,
    )

    def rate(remedy: ExchangeOptions) -> float:
        return float(replace(plainly, exchange=remedy).samples_per_second([where])[0])

    plain = rate(ExchangeOptions())
    buckets = [ExchangeOptions(bucket_mb=float(size)) for size in BUCKET_MEGABYTES]
    tried = (*CANDIDATES, max(buckets, key=rate))
    gains = {remedy: rate(remedy) / plain for remedy in tried}
    worth = [(gain, remedy) for remedy, gain in gains.items() if gain >= LEAST_GAIN]
    return {remedy: gain for gain, remedy in sorted(worth, key=lambda pair: -pair[0])}


def _platform(workers: int, place: RunPlace) -> Platform | None:
    here, rate = place.kind == "here", place.link_bytes_per_second
    per_node = workers if here else place.ranks_per_node or 1
    between = None
    if not here:
        if rate is None:
            return None
        network = Network.model_validate({"rate": f"{8 * rate} bit/s"})
        between = partial(between_machines(network)[0].pipe, tuning=fitted())
    return Platform(
        name=place.kind,
        nodes=math.ceil(workers / per_node),
        gpus_per_node=per_node,
        inside=lambda _: Pipe(LINK_HERE.value, HOP_HERE.value, LINK_HERE.basis),
        between=between,
        host_to_gpu_bytes_per_second=None,  # the samples are read in the measured step
        storage_bytes_per_second=None,
        memory_bytes=None,
    )
