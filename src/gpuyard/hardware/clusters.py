"""Clusters as named on a command line: a file, a catalog machine, or a short form like 2x4xrtx-3090@10G."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpuyard import units
from gpuyard.catalog import Gpu, Machine, gpus, links, machines, prices
from gpuyard.catalog.prices import find_instance_network
from gpuyard.catalog.short_names import (
    SHORT_NAMES,
    find_hardware,
    find_instance_machine,
    find_link_id,
    list_link_names,
)
from gpuyard.catalog.specfiles import is_file, known_names
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.hardware.graph import MachineGraph
from gpuyard.hardware.presets import choose_topology, suggest_machines
from gpuyard.specs import Cluster, MachineSpec, Network, Topology, read_spec
from gpuyard.specs.base import ShortCluster, find_kind, match_ids

_TRAILING_COUNT = re.compile(r"([^/]+)[xX×](\d{1,3})")
_MAX_NODES, _MAX_GPUS = 100_000, 72
_MAX_PCIE_GPUS, _USUAL_GPUS = 20, 8  # in one machine without NVSwitch
_RDMA_BYTES_PER_SECOND = 12.5e9  # from 100 Gbit/s on, networks of GPUs mostly use RDMA


def read_cluster(name_or_path: str, directory: Path = Path()) -> Cluster:
    """Read a cluster file, or build the cluster of a short form.

    A short form is one machine or cloud instance (`dgx-a100`, `p4d.24xlarge`), several (`2xdgx-a100`), or GPUs: `h100` is
    one GPU, `8xh100`, `h100x8`, and `h100:8` are eight in one machine, and `2x4xrtx-3090@10G` is two machines at 10 Gbit/s.
    """
    if is_file(name_or_path, directory):
        return read_spec(directory / name_or_path, Cluster, known_names())
    short = _split_count(ShortCluster.parse(name_or_path))
    hardware = None if short is None else find_hardware(short.name)
    if short is None or hardware is None:
        raise _explain_unknown(name_or_path, short)
    named = replace(short, name=hardware.id)
    match hardware.kind:
        case "machine":
            cluster = _build_from_machines(named)
        case "GPU":
            cluster = _build_from_gpus(named)
        case "instance":
            cluster = _build_from_instances(named)
    return cluster.copy_with_note(" ".join(filter(None, (hardware.note, cluster.note))))


def _split_count(short: ShortCluster | None) -> ShortCluster | None:
    """Read `h100x8` as `8xh100`. With its cloud, as in `gcp/H100x8`, such a name is an instance."""
    match = None if short is None else _TRAILING_COUNT.fullmatch(short.name)
    if short is None or match is None or not match_ids(match[1], gpus().ids()):
        return short
    return replace(short, counts=(*short.counts, int(match[2])), name=match[1])


def _explain_unknown(name_or_path: str, short: ShortCluster | None) -> UserMistake:
    if short is not None and (nested := ShortCluster.parse(short.name)) and nested.counts:
        return UserMistake(
            f"{name_or_path!r} has more than two numbers: write MACHINESxGPUSxNAME, e.g. "
            "2x4xrtx-3090@10G"
        )
    name = name_or_path if short is None else short.name
    names = known_names()
    instances = {price.instance for price in prices()} | {price.id for price in prices()}
    return UnknownName(
        "machine or instance",
        name,
        names["machine"] | names["GPU"] | SHORT_NAMES | instances,
        actual_kind=find_kind(name, names),
        searched="cluster file, machine, GPU, or cloud instance",
    )


_MAX_GPUS_PER_CPU = 4  # in a host without PCIe switches
_LINKED_TOPOLOGIES: frozenset[Topology] = frozenset(
    {"nvlink-hybrid-cube-mesh", "nvlink-pairs", "nvswitch", "full-mesh", "torus"}
)


def resolve_machine(cluster: Cluster) -> tuple[Gpu, MachineSpec]:
    """Return the cluster's GPU and machine, looking up a machine that is given by its catalog id."""
    if isinstance(cluster.machine, str):
        entry = machines().get(cluster.machine)
        machine = MachineSpec(
            gpu=entry.gpu,
            gpus=entry.gpus,
            topology=entry.topology,
            socket_link=entry.socket_link,
        )
    else:
        machine = cluster.machine
    gpu = gpus().get(machine.gpu)
    if machine.peer_to_peer:
        return gpu, machine
    # without peer access GPU links are unused, too: what remains is the PCIe of an ordinary host
    staged_gpu = gpu.model_copy(update={"pcie_peer_to_peer": False})
    if machine.topology not in _LINKED_TOPOLOGIES:
        return staged_gpu, machine
    pcie_topology = "workstation" if machine.gpus <= _MAX_GPUS_PER_CPU else "dual-socket"
    return staged_gpu, machine.model_copy(update={"topology": pcie_topology})


def machine_load_watts(cluster: Cluster) -> float:
    """Return the power of one of the cluster's machines under load."""
    gpu, machine = resolve_machine(cluster)
    entry = machines().get(cluster.machine) if isinstance(cluster.machine, str) else None
    return (entry.max_watts if entry else None) or gpu.server_watts(machine.gpus)


def find_network_rate(cluster: Cluster) -> float | None:
    """Return the rate of one network port in bytes per second, from the spec or from the catalog link."""
    network = cluster.network
    if network is None:
        return None
    return network.rate or links().get(network.link or "").raw_bytes_per_second


def cluster_from_topology_file(
    topology: Path, cluster: Cluster | None = None
) -> tuple[Cluster, MachineGraph]:
    """Build a cluster whose machines are connected as a topology file describes.

    The output of `nvidia-smi topo -m` does not name the GPUs; the cluster must then do it.
    """
    # imported here because most predictions read no topology file
    from gpuyard.hardware.readers.topology_file import read_topology

    graph = read_topology(topology)
    models = {device.gpu for device in graph.devices_of_kind("gpu")}
    count = len(graph.gpus)
    if not count or len(models) > 1:
        raise UserMistake(
            f"{topology} has {'several kinds of GPU' if count else 'no GPU'}: "
            "a prediction needs GPUs of one kind"
        )
    (model,) = models
    if cluster is None:
        if model is None:
            raise UserMistake(
                f"{topology} does not name its GPUs; name them, e.g. --on {count}xrtx-3090"
            )
        return _build_from_gpus(ShortCluster((count,), model, None)), graph
    gpu, machine = resolve_machine(cluster)
    if machine.gpus != count:
        raise UserMistake(
            f"{topology} has {count} GPUs, but a machine of {cluster.name} has {machine.gpus}"
        )
    if model not in (None, gpu.id):
        raise UserMistake(f"{topology} has {model} GPUs, but {cluster.name} has {gpu.id}")
    return cluster, graph if model else read_topology(topology, gpu.id)


def _build_from_machines(short: ShortCluster) -> Cluster:
    if len(short.counts) > 1:
        raise UserMistake(
            f"a {short.name} has {machines().get(short.name).gpus} GPUs: write "
            f"{short.counts[0]}x{short.name} for {short.counts[0]} of them"
        )
    nodes = short.counts[0] if short.counts else 1
    _check_count(nodes, "machines", _MAX_NODES)
    prefix = f"{nodes} × " if nodes > 1 else ""
    network, suffix = _build_network(short, nodes)
    machine = machines().get(short.name)
    network, note = _complete_network(short, network, [machine], machine.gpus)
    return Cluster(
        name=f"{prefix}{machine.name}{suffix}",
        nodes=nodes,
        machine=short.name,
        network=network,
    ).copy_with_note(note)


def _build_from_instances(short: ShortCluster) -> Cluster:
    price = prices().get(short.name)
    if price.gpu is None:
        raise UserMistake(
            f"gpuyard cannot predict {price.id}: its GPU ({price.gpu_name}) is not in the catalog"
        )
    if len(short.counts) > 1:
        raise UserMistake(
            f"{price.id} has {price.gpus} GPUs: write {short.counts[0]}x{short.name} for "
            f"{short.counts[0]} of them"
        )
    nodes = short.counts[0] if short.counts else 1
    _check_count(nodes, "machines", _MAX_NODES)
    machine = find_instance_machine(price)
    topology = choose_topology(gpus().get(price.gpu), price.gpus)
    network, suffix = _build_network(short, nodes)
    listed = find_instance_network(price)
    if nodes > 1 and network is None and listed is not None:
        network, suffix = listed.network, f", {listed.description}"
    if nodes > 1 and network is None and machine is None:
        raise UserMistake(
            f"the network of {price.id} is not in the catalog: add its rate, e.g. "
            f"{nodes}x{short.name}@10G"
        )
    return Cluster(
        name=f"{f'{nodes} × ' if nodes > 1 else ''}{price.cloud} {price.instance}{suffix}",
        nodes=nodes,
        machine=machine.id
        if machine
        else MachineSpec(gpu=price.gpu, gpus=price.gpus, topology=topology),
        network=network,
    )


def _build_from_gpus(short: ShortCluster) -> Cluster:
    gpu = gpus().get(short.name)
    *node_counts, count = short.counts or (1,)
    nodes = node_counts[0] if node_counts else 1
    _check_count(nodes, "machines", _MAX_NODES)
    _check_count(count, "GPUs in a machine", _MAX_GPUS)
    if count > max(_MAX_PCIE_GPUS, gpu.nvswitch_gpus or 0):
        raise UserMistake(
            f"no machine has {count} {gpu.id}; " + suggest_machines(gpu, count, _USUAL_GPUS)
        )
    network, suffix = _build_network(short, nodes)
    if nodes > 1 and network is None:
        raise UserMistake(
            f"{nodes} machines need a network: add its rate, e.g. {nodes}x{count}x{gpu.id}@10G"
        )
    products = [machine for machine in machines() if machine.gpu == gpu.id]
    network, note = _complete_network(short, network, products, count)
    prefix = f"{nodes} × {count} × " if nodes > 1 else f"{count} × "
    return Cluster(
        name=f"{prefix}{gpu.name}{suffix}",
        nodes=nodes,
        machine=MachineSpec(gpu=gpu.id, gpus=count, topology=choose_topology(gpu, count)),
        network=network,
    ).copy_with_note(note)


def _complete_network(
    short: ShortCluster, network: Network | None, products: Sequence[Machine], count: int
) -> tuple[Network | None, str]:
    """Return the ports of this rate that a machine with such GPUs comes with, and a note on what is assumed.

    A rate alone says neither how many ports a machine has nor whether they use RDMA.
    """
    if network is None or network.rate is None or short.has_rails:
        return network, ""
    for product in products:
        link = links().get(product.nic_link) if product.nic_link else None
        if link and link.protocol == "rdma" and link.raw_bytes_per_second == network.rate:
            ports = max(1, round((product.nics or 1) * count / product.gpus))
            number = f"{ports} ports" if ports > 1 else "one port"
            return Network(link=link.id, rails=ports), (
                f"@{short.network} is {number} of {link.name} per machine, as in {product.name}; for one Ethernet port "
                f"with TCP, write @1x{short.network}."
            )
    if network.rate < _RDMA_BYTES_PER_SECOND:
        return network, ""
    return network, (
        f"@{short.network} is one Ethernet port per machine with TCP; for RDMA, name the link, e.g. @roce-100g."
    )


def _check_count(count: int, noun: str, maximum: int) -> None:
    if not 1 <= count <= maximum:
        raise UserMistake(f"expected 1 to {maximum:,} {noun}, got {count:,}")


def _build_network(short: ShortCluster, nodes: int) -> tuple[Network | None, str]:
    """Build the network between the machines, and the suffix that it adds to the cluster's name."""
    if short.network is None:
        return None, ""
    link_id = find_link_id(short.link)
    # first, because it may be ambiguous
    rate = "" if link_id else short.complete_rate(list_link_names())
    if nodes == 1:
        count = f"{short.counts[-1] if short.counts else 1}x" if short.name in gpus() else ""
        raise UserMistake(
            f"@{short.network} needs at least two machines, e.g. 2x{count}{short.name}@{short.network}"
        )
    ports = f"{short.rails} × " if short.rails > 1 else ""
    if link_id is not None:
        link = links().get(link_id)
        return Network(link=link.id, rails=short.rails), f", {ports}{link.name}"
    formatted = units.format_bit_rate(units.parse_rate(rate))
    return Network.model_validate({"rate": rate, "rails": short.rails}), f", {ports}{formatted}"
