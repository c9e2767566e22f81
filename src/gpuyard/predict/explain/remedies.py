"""What could be changed about a workload on a cluster: each change as a curve over the number of GPUs.

`relief.py` weighs what holds for any platform; here the catalog is known, so a faster network, another
layout of the machine or fewer bytes have a name.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import get_args

from gpuyard import units
from gpuyard.catalog import Link, ModelProfile, links
from gpuyard.errors import UserMistake
from gpuyard.predict.calibration.document import Calibration
from gpuyard.predict.explain.change import Change
from gpuyard.predict.explain.exchange_remedies import other_exchanges
from gpuyard.predict.explain.general import Remedy
from gpuyard.predict.explain.input_remedies import faster_inputs
from gpuyard.predict.explain.knee import DEFAULT_THRESHOLD, Knee, find_knee, placements_to_try
from gpuyard.predict.placement import Placement
from gpuyard.predict.platform.platform import machine_of, network_of
from gpuyard.predict.prediction import Prediction
from gpuyard.predict.setting import Setting, setting_of, throughput
from gpuyard.predict.step import doubled
from gpuyard.specs import Cluster, Network, Topology, Workload

_BATCH_FACTORS = (8, 4, 2)
_MORE_FLOWS = 4
# layouts whose NVLinks go further than the bridge between two cards
_NEED_MORE_THAN_BRIDGES = ("nvswitch", "nvlink-hybrid-cube-mesh")


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
) -> tuple[Remedy, ...]:
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
) -> tuple[tuple[Remedy, ...], Knees]:
    """Remedies that gain enough, and how many GPUs are worth it with and without one of them."""
    setting = setting_of(workload, profile, cluster, prediction, calibration)
    here = [Placement(prediction.gpus, prediction.nodes, prediction.gpus_per_node)]
    today = float(setting.samples_per_second(here)[0])

    def weigh(change: Change) -> Remedy:
        rate = float(change.samples_per_second(here)[0])
        return Remedy(change.what, rate, rate / today, change.caveat, change.memory_bytes)

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
        yield from other_exchanges(setting, here)
        yield from _other_links(setting, here)
    yield from faster_inputs(setting, here)


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


def _offered(setting: Setting, prediction: Prediction) -> tuple[Placement, ...]:
    platform = setting.platform
    nodes = 1 if setting.strategy == "dataparallel" else platform.nodes
    per_node = prediction.gpus_per_node if prediction.nodes > 1 else None
    in_machine = platform.gpus_per_node // (platform.beside + 1)  # other jobs have the rest
    return placements_to_try(nodes, in_machine, per_node)


def _more(setting: Setting, here: Placement, knee: Knee) -> Iterator[Remedy]:
    table, traffic = setting.configurations([here])
    faster = float(throughput(doubled(table, "gpu"), traffic)[0])
    yield Remedy("GPUs twice as fast", faster, 0.0)
    if knee.gpus > here.gpus:
        what = f"{knee.gpus} GPUs of the cluster (the knee)"
        yield Remedy(what, knee.samples_per_second, 0.0, adds_gpus=True)
    elif here.gpus == knee.gpus == knee.most_gpus and here.nodes > 1:
        # all that are there are worth it: as many machines again, on the same network
        more = replace(table, nodes=table.nodes * 2)
        rate = float(throughput(more, traffic)[0])
        yield Remedy("twice as many machines", rate, 0.0, adds_gpus=True)
