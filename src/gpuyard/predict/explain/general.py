"""What would help one configuration, and by how much: the same step model with one thing changed."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.predict.step import Configurations, Traffic, doubled, step_parts

ACCUMULATED_STEPS = 4


@dataclass(frozen=True)
class Remedy:
    """A change, and the throughput with it."""

    what: str
    samples_per_second: float
    gain: float  # times the throughput as it is
    caveat: str = ""  # what it costs besides money
    memory_bytes: float | None = None  # of a GPU, where the change needs more of it
    adds_gpus: bool = False


def reliefs(
    table: Configurations,
    traffic: Traffic,
    gpus: int,
    fits_batch: Callable[[int], bool],
    *,
    least_gain: float = 1.03,
) -> tuple[Remedy, ...]:
    """Remedies for a one-row table, the most helpful first; those that hardly help are left out."""
    if len(table.nodes) != 1:
        raise ValueError("relief is found for one configuration at a time")
    batch = int(table.batch_per_gpu[0])

    def throughput(changed: Configurations) -> float:
        seconds = float(step_parts(changed, traffic).step_seconds[0])
        return gpus * float(changed.batch_per_gpu[0]) / seconds

    today = throughput(table)
    found = [("GPUs twice as fast", throughput(doubled(table, "gpu")))]
    if gpus > 1:
        found += _cheaper_exchange(table, traffic, throughput)
    for factor in (8, 4, 2):
        if fits_batch(batch * factor):
            larger = replace(table, batch_per_gpu=table.batch_per_gpu * factor)
            found.append((f"{factor} × the batch ({batch * factor} a GPU)", throughput(larger)))
            break
    if np.isfinite(table.storage_bytes_per_second[0]):
        found.append(("storage twice as fast", throughput(doubled(table, "storage"))))
    weighed = (Remedy(what, rate, rate / today) for what, rate in found)
    helpful = (relief for relief in weighed if relief.gain >= least_gain)
    return tuple(sorted(helpful, key=lambda relief: -relief.gain))


def _cheaper_exchange(
    table: Configurations, traffic: Traffic, throughput: Callable[[Configurations], float]
) -> list[tuple[str, float]]:
    halved = replace(table, sent_share=table.sent_share / 2)
    found = [("gradients sent as 16-bit numbers", throughput(halved))]
    if traffic.strategy != "dataparallel":  # which copies everything at every pass
        seldom = replace(table, accumulate=table.accumulate * ACCUMULATED_STEPS)
        what = f"gradients exchanged every {ACCUMULATED_STEPS} steps (accumulation)"
        found.append((what, throughput(seldom)))
    if table.nodes[0] > 1:
        found.append(("a network twice as fast", throughput(doubled(table, "network"))))
    if table.gpus_per_node[0] > 1:
        faster = throughput(doubled(table, "pcie"))
        found.append(("links inside the machine twice as fast", faster))
    return found
