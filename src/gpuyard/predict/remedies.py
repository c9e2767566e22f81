"""What could be changed about a workload on a cluster: each change as a curve over the number of GPUs.

`relief.py` weighs what holds for any platform; here the catalog is known, so a faster network, another
layout of the machine or fewer bytes have a name.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from gpuyard import units
from gpuyard.catalog import Link, ModelProfile, links
from gpuyard.errors import UserMistake
from gpuyard.predict import powersgd
from gpuyard.predict.buckets import Buckets, bucket_caps, fill
from gpuyard.predict.calibration.document import Calibration
from gpuyard.predict.knee import DEFAULT_THRESHOLD, Knee, find_knee, placements_to_try
from gpuyard.predict.placement import Placement
from gpuyard.predict.platform import machine_of, network_of
from gpuyard.predict.prediction import Prediction
from gpuyard.predict.relief import ACCUMULATED_STEPS, Relief, accumulated_throughput
from gpuyard.predict.setting import Setting, setting_of, throughput
from gpuyard.predict.step import Configurations, Floats, Traffic, doubled
from gpuyard.specs import Cluster, Network, Topology, Workload

Curve = Callable[[Sequence[Placement]], Floats]
_BUCKET_MEGABYTES = (5, 10, 25, 50, 100)
_BATCH_FACTORS = (8, 4, 2)
_MORE_FLOWS = 4
# layouts whose NVLinks go further than the bridge between two cards
_NEED_MORE_THAN_BRIDGES = ("nvswitch", "nvlink-hybrid-cube-mesh")


@dataclass(frozen=True)
class Change:
    """One remedy, for any number of GPUs."""

    what: str
    samples_per_second: Curve
    caveat: str = ""
    memory_bytes: float | None = None


@dataclass(frozen=True)
class Knees:
    """How many GPUs are worth it, as it is and with the remedy that gets most out of them."""

    as_it_is: Knee
    relieved: Knee | None
    remedy: str | None


def relieve_cluster(
    workload: Workload,
    profile: ModelProfile,
    cluster: Cluster,
    prediction: Prediction,
    *,
    least_gain: float = 1.03,
    calibration: Calibration | None = None,
) -> tuple[Relief, ...]:
    """What would help one predicted configuration of a described cluster, the most helpful first."""
    found, _ = relieve_with_knees(
        workload, profile, cluster, prediction, least_gain=least_gain, calibration=calibration
    )
    return found


def relieve_with_knees(
    workload: Workload,
    profile: ModelProfile,
    cluster: Cluster,
    prediction: Prediction,
    *,
    least_gain: float = 1.03,
    threshold: float = DEFAULT_THRESHOLD,
    calibration: Calibration | None = None,
) -> tuple[tuple[Relief, ...], Knees]:
    """Remedies that gain enough, and how many GPUs are worth it with and without one of them."""
    asked = prediction.batch_per_gpu, prediction.strategy
    setting = setting_of(workload, profile, cluster, *asked, calibration=calibration)
    here = [Placement(prediction.gpus, prediction.nodes, prediction.gpus_per_node)]
    today = float(setting.samples_per_second(here)[0])

    def weigh(change: Change) -> Relief:
        rate = float(change.samples_per_second(here)[0])
        return Relief(change.what, rate, rate / today, change.caveat, change.memory_bytes)

    tried = list(changes(setting, here[0]))
    offered = _offered(setting, prediction)
    counts = [placement.gpus for placement in offered]
    knee = find_knee(counts, setting.samples_per_second(offered), threshold)
    found = [
        *map(weigh, tried),
        *(replace(r, gain=r.samples_per_second / today) for r in _more(setting, here[0], knee)),
    ]
    helpful = [relief for relief in found if relief.gain >= least_gain]
    helpful.sort(key=lambda relief: -relief.gain)
    worth = {relief.what for relief in helpful}
    moved = [
        (find_knee(counts, change.samples_per_second(offered), threshold), change.what)
        for change in tried
        if change.what in worth
    ]
    best = max(moved, key=lambda pair: pair[0].samples_per_second, default=(None, None))
    return tuple(helpful), Knees(knee, *best)


def changes(setting: Setting, here: Placement) -> Iterator[Change]:
    """All but other and more GPUs, whether it helps or not."""
    yield from _bigger_batch(setting)
    if here.gpus > 1:
        yield from _other_exchange(setting, here)
        yield from _other_links(setting, here)
    yield from _faster_storage(setting, here)


def _changed(
    setting: Setting, change: Callable[[Configurations, Traffic], tuple[Configurations, Traffic]]
) -> Curve:
    return lambda placements: throughput(*change(*setting.configurations(placements)))


def _with_buckets(setting: Setting, buckets: Buckets) -> Curve:
    return _changed(setting, lambda table, traffic: (table, replace(traffic, buckets=buckets)))


def _bigger_batch(setting: Setting) -> Iterator[Change]:
    for factor in _BATCH_FACTORS:
        larger = replace(setting, batch_per_gpu=setting.batch_per_gpu * factor)
        if setting.fits(larger.batch_per_gpu):
            yield Change(
                f"{factor} × the batch ({larger.batch_per_gpu} a GPU)",
                larger.samples_per_second,
                f"an update sees {factor} × the samples: learning rate and accuracy may need care",
                larger.memory_bytes,
            )
            return


def _other_exchange(setting: Setting, here: Placement) -> Iterator[Change]:
    profile, strategy = setting.profile, setting.strategy
    if strategy in ("dataparallel", "parameter-server"):
        yield Change(
            f"DistributedDataParallel instead of {strategy}",
            replace(setting, strategy="ddp").samples_per_second,
            "one process a GPU",
        )
    if strategy == "dataparallel":
        return
    whole = fill(profile, bucket_caps(strategy))
    yield Change(
        "gradients sent as 16-bit numbers",
        _with_buckets(setting, Buckets(whole.size_bytes / 2, whole.ready_share)),
        "gradients are rounded; seldom harmful",
    )
    yield Change(
        f"gradients exchanged every {ACCUMULATED_STEPS} steps (accumulation)",
        lambda placements: accumulated_throughput(*setting.configurations(placements)),
        f"an update sees {ACCUMULATED_STEPS} × the samples: learning rate and accuracy may need care",
    )
    if strategy == "parameter-server":
        return
    yield _power_sgd(setting, profile)
    yield max(
        _bucket_sizes(setting),
        key=lambda change: float(change.samples_per_second([here])[0]),
    )


def _power_sgd(setting: Setting, profile: ModelProfile) -> Change:
    buckets = powersgd.compressed(profile, setting.strategy)
    cost = powersgd.seconds(profile, setting.gpu.memory_bytes_per_second)
    ratio = profile.gradient_bytes / buckets.total_bytes

    def change(table: Configurations, traffic: Traffic) -> tuple[Configurations, Traffic]:
        # one GPU has nothing to compress
        slower = table.fixed_seconds + np.where(table.gpus > 1, cost, 0.0)
        return replace(table, fixed_seconds=slower), replace(traffic, buckets=buckets)

    return Change(
        f"PowerSGD of rank {powersgd.RANK} (lossy, about {ratio:.0f} × fewer bytes)",
        _changed(setting, change),
        "lossy: accuracy may fall, compare it first; shapes of layers are assumed",
        setting.memory_bytes + profile.gradient_bytes,  # the error that is fed back
    )


def _bucket_sizes(setting: Setting) -> Iterator[Change]:
    option = {"ddp": "bucket_cap_mb", "horovod": "HOROVOD_FUSION_THRESHOLD"}[setting.strategy]
    for megabytes in _BUCKET_MEGABYTES:
        caps = bucket_caps(setting.strategy, megabytes * 2.0**20)
        buckets = fill(setting.profile, caps)
        count = len(buckets.size_bytes)
        many = "1 bucket" if count == 1 else f"{count} buckets"
        yield Change(f"{megabytes} MiB in {option} ({many})", _with_buckets(setting, buckets))


def _other_links(setting: Setting, here: Placement) -> Iterator[Change]:
    network = network_of(setting.cluster)
    if here.nodes > 1 and network is not None:
        for what, other, caveat in _other_networks(network):
            cluster = setting.cluster.model_copy(update={"network": other})
            yield Change(what, setting.on(cluster).samples_per_second, caveat)
    if here.gpus_per_node > 1:
        yield from _best_topology(setting, here)


def _other_networks(network: Network) -> Iterator[tuple[str, Network, str]]:
    current = links().get(network.link) if network.link else None
    rdma = (network.protocol or (current.protocol if current else "tcp")) == "rdma"
    capped = network.per_flow is not None and not rdma
    if capped:
        flows = network.flows * _MORE_FLOWS
        many = network.model_copy(update={"flows": flows})
        yield f"{flows} TCP flows between two machines", many, "NCCL_NSOCKS_PERTHREAD"
    port = current.raw_bytes_per_second if current else network.rate or 0.0
    family = current.id.split("-")[0] if current else "roce" if rdma else "ethernet"
    faster = _next_faster(family, port)
    if faster is None:
        what = "a network twice as fast"
        update: dict[str, object] = {"rate": 2 * port, "link": None}
        update["protocol"] = "rdma" if rdma else "tcp"
    else:
        what = f"{faster.id} ({units.format_bit_rate(faster.raw_bytes_per_second)}) as network"
        update = {"link": faster.id, "rate": None}
    yield what, network.model_copy(update=update), ""
    if not rdma and not capped:  # clouds that cap flows let nobody choose the protocol
        # what was given as latency is that of TCP
        over = network.model_copy(update={"protocol": "rdma", "latency": None})
        yield "RDMA (RoCE) over the same network", over, "cards and switches must offer it"


def _next_faster(family: str, bytes_per_second: float) -> Link | None:
    faster = (
        link
        for link in links()
        if link.id.split("-")[0] == family and link.raw_bytes_per_second > 1.01 * bytes_per_second
    )
    return min(faster, key=lambda link: link.raw_bytes_per_second, default=None)


def _best_topology(setting: Setting, here: Placement) -> Iterator[Change]:
    _, machine = machine_of(setting.cluster)
    found: list[Change] = []
    for topology in get_args(Topology):
        bridged = setting.gpu.nvlink_bridge and topology in _NEED_MORE_THAN_BRIDGES
        if topology == machine.topology or bridged:
            continue
        described = machine.model_copy(update={"topology": topology})
        # a named machine brings its network cards, a described one needs them said
        update = {"machine": described, "network": network_of(setting.cluster)}
        try:
            other = setting.on(setting.cluster.model_copy(update=update))
        except UserMistake:
            continue  # this GPU can't be laid out so
        found.append(Change(f"{topology} machines of the same GPUs", other.samples_per_second))
    if found:
        yield max(found, key=lambda change: float(change.samples_per_second([here])[0]))


def _faster_storage(setting: Setting, here: Placement) -> Iterator[Change]:
    rate = setting.platform.storage_bytes_per_second
    if rate is None:
        return
    endless = replace(setting, platform=replace(setting.platform, storage_bytes_per_second=None))
    table, traffic = endless.configurations([here])
    per_second = float(throughput(table, traffic)[0])
    needed = per_second * traffic.storage_bytes_per_sample
    if needed > rate:
        yield Change(
            f"storage that reads {units.format_byte_rate(needed)}",
            endless.samples_per_second,
            "or the data set kept in the machines' memory",
        )


def _offered(setting: Setting, prediction: Prediction) -> tuple[Placement, ...]:
    platform = setting.platform
    nodes = 1 if setting.strategy == "dataparallel" else platform.nodes
    per_node = prediction.gpus_per_node if prediction.nodes > 1 else None
    return placements_to_try(nodes, platform.gpus_per_node, per_node)


def _more(setting: Setting, here: Placement, knee: Knee) -> Iterator[Relief]:
    table, traffic = setting.configurations([here])
    faster = float(throughput(doubled(table, "gpu"), traffic)[0])
    yield Relief("GPUs twice as fast", faster, 0.0)
    if knee.gpus > here.gpus:
        what = f"{knee.gpus} GPUs of the cluster (the knee)"
        yield Relief(what, knee.samples_per_second, 0.0, adds_gpus=True)
    elif here.gpus == knee.gpus == knee.most_gpus and here.nodes > 1:
        # all that are there are worth it: as many machines again, on the same network
        more = replace(table, nodes=table.nodes * 2)
        rate = float(throughput(more, traffic)[0])
        yield Relief("twice as many machines", rate, 0.0, adds_gpus=True)
