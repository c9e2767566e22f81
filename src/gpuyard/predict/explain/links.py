"""What could be changed about the links of a described cluster: the catalog names the next faster ones."""

from collections.abc import Iterator

from gpuyard import units
from gpuyard.catalog import Link, links
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import machine_of
from gpuyard.hardware.presets import topologies_of
from gpuyard.predict.platform import network_of
from gpuyard.predict.scenario import PlatformScenario
from gpuyard.predict.strategies.remedies import Proposal
from gpuyard.predict.table import Placement
from gpuyard.specs import Cluster, Network

_MORE_FLOWS = 4


def other_links(
    scenario: PlatformScenario, cluster: Cluster, here: Placement
) -> Iterator[Proposal]:
    """Between the machines, and inside."""
    network = network_of(cluster)
    if here.nodes > 1 and network is not None:
        for what, other, caveat in _other_networks(network):
            changed = cluster.model_copy(update={"network": other})
            yield Proposal(what, scenario.on(changed), caveat)
    if here.gpus_per_node > 1:
        yield from _best_topology(scenario, cluster, here)


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


def _best_topology(
    scenario: PlatformScenario, cluster: Cluster, here: Placement
) -> Iterator[Proposal]:
    gpu, machine = machine_of(cluster)
    found: list[Proposal] = []
    for topology in topologies_of(gpu):
        if topology == machine.topology:
            continue
        described = machine.model_copy(update={"topology": topology})
        # a named machine brings its network cards, a described one needs them said
        update = {"machine": described, "network": network_of(cluster)}
        try:
            other = scenario.on(cluster.model_copy(update=update))
        except UserMistake:
            continue  # so many can't be laid out so
        found.append(Proposal(f"{topology} machines of the same GPUs", other))
    if found:
        yield max(found, key=lambda proposal: proposal.rate(here))
