"""A cluster from what a command line names: a file, a machine of the catalog, or GPUs in a few characters."""

from pathlib import Path

from gpuyard import units
from gpuyard.catalog import Gpu, gpus, links, machines
from gpuyard.catalog.specfiles import is_file, known_names
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.hardware.graph import MachineGraph
from gpuyard.hardware.presets import usual_topology
from gpuyard.specs import Cluster, MachineSpec, Network, Topology, read_spec
from gpuyard.specs.base import ShortCluster, kind_of

_MOST_NODES, _MOST_GPUS = 100_000, 72


def read_cluster(name_or_path: str, directory: Path = Path()) -> Cluster:
    """A cluster file, one catalog machine (`dgx-a100`), several (`2xdgx-a100`), or GPUs: `rtx-3090` is one in
    one machine, `4xrtx-3090` four in one machine, `2x4xrtx-3090@10G` two such machines at 10 Gbit/s."""
    if is_file(name_or_path, directory):
        return read_spec(directory / name_or_path, Cluster, known_names())
    short = ShortCluster.of(name_or_path)
    if short is not None and short.name in machines():
        return _of_machines(short)
    if short is not None and short.name in gpus():
        return _of_gpus(short)
    if short is not None and (further := ShortCluster.of(short.name)) and further.counts:
        raise UserMistake(
            f"{name_or_path!r} has more than two numbers: write machines x GPUs in each x name, as in "
            "2x4xrtx-3090@10G"
        )
    raise _unknown(name_or_path if short is None else short.name)


_ONE_CPU = 4  # GPUs that hang on one CPU of a usual host
# where GPUs have links of their own
_LINKED: frozenset[Topology] = frozenset(
    {"nvlink-hybrid-cube-mesh", "nvlink-pairs", "nvswitch", "full-mesh", "torus"}
)


def machine_of(cluster: Cluster) -> tuple[Gpu, MachineSpec]:
    """The cluster's GPU and machine, whether named or described."""
    if isinstance(cluster.machine, str):
        known = machines().get(cluster.machine)
        machine = MachineSpec(
            gpu=known.gpu,
            gpus=known.gpus,
            topology=known.topology,
            socket_link=known.socket_link,
        )
    else:
        machine = cluster.machine
    gpu = gpus().get(machine.gpu)
    if machine.peer_to_peer:
        return gpu, machine
    # then links of their own carry nothing either, and what is left is the PCIe of a usual host
    through_host = gpu.model_copy(update={"pcie_peer_to_peer": False})
    if machine.topology not in _LINKED:
        return through_host, machine
    usual = "workstation" if machine.gpus <= _ONE_CPU else "dual-socket"
    return through_host, machine.model_copy(update={"topology": usual})


def network_rate(cluster: Cluster) -> float | None:
    """Of each machine's link in bytes per second, whether given or named."""
    network = cluster.network
    if network is None:
        return None
    return network.rate or links().get(network.link or "").raw_bytes_per_second


def cluster_as_wired(
    topology: Path, cluster: Cluster | None = None
) -> tuple[Cluster, MachineGraph]:
    """A cluster whose machines are wired as a file says. `nvidia-smi topo -m` says everything but which GPUs
    they are: then the cluster does."""
    from gpuyard.hardware.readers.read import read_topology  # most predictions read no such file

    graph = read_topology(topology)
    named = {device.gpu for device in graph.of_kind("gpu")}
    count = len(graph.gpus)
    if not count or len(named) > 1:
        raise UserMistake(
            f"{topology} has {'several kinds of GPU' if count else 'no GPU'}: "
            "a prediction is for machines of one kind"
        )
    (known,) = named
    if cluster is None:
        if known is None:
            raise UserMistake(
                f"{topology} does not say which GPUs these are; name them, e.g. --on {count}xrtx-3090"
            )
        return _of_gpus(ShortCluster((count,), known, None)), graph
    gpu, machine = machine_of(cluster)
    if machine.gpus != count:
        raise UserMistake(
            f"{topology} has {count} GPUs, and a machine of {cluster.name} has {machine.gpus}"
        )
    if known not in (None, gpu.id):
        raise UserMistake(f"{topology} has {known} GPUs, and {cluster.name} has {gpu.id}")
    return cluster, graph if known else read_topology(topology, gpu.id)


def _of_machines(short: ShortCluster) -> Cluster:
    if len(short.counts) > 1:
        raise UserMistake(
            f"a {short.name} has {machines().get(short.name).gpus} GPUs: write "
            f"{short.counts[0]}x{short.name} for {short.counts[0]} of them"
        )
    nodes = _counted(short.counts[0] if short.counts else 1, "machines", _MOST_NODES)
    many = f"{nodes} × " if nodes > 1 else ""
    network, joined = _network(short, nodes)
    return Cluster(
        name=f"{many}{machines().get(short.name).name}{joined}",
        nodes=nodes,
        machine=short.name,
        network=network,
    )


def _of_gpus(short: ShortCluster) -> Cluster:
    gpu = gpus().get(short.name)
    *machines_asked, count = short.counts or (1,)
    nodes = _counted(machines_asked[0] if machines_asked else 1, "machines", _MOST_NODES)
    _counted(count, "GPUs in a machine", _MOST_GPUS)
    network, joined = _network(short, nodes)
    if nodes > 1 and network is None:
        raise UserMistake(
            f"{nodes} machines need a network between them: add its rate, as in "
            f"{nodes}x{count}x{gpu.id}@10G"
        )
    many = f"{nodes} × {count} × " if nodes > 1 else f"{count} × "
    return Cluster(
        name=f"{many}{gpu.name}{joined}",
        nodes=nodes,
        machine=MachineSpec(gpu=gpu.id, gpus=count, topology=usual_topology(gpu, count)),
        network=network,
    )


def _counted(number: int, what: str, most: int) -> int:
    if not 1 <= number <= most:
        raise UserMistake(f"expected 1 to {most:,} {what}, got {number:,}")
    return number


def _network(short: ShortCluster, nodes: int) -> tuple[Network | None, str]:
    """What joins the machines, and how their name goes on."""
    if short.network is None:
        return None, ""
    if nodes == 1:
        each = f"{short.counts[-1] if short.counts else 1}x" if short.name in gpus() else ""
        raise UserMistake(
            f"@{short.network} joins machines, and this is one; two of them are "
            f"2x{each}{short.name}@{short.network}"
        )
    ports = f"{short.rails} × " if short.rails > 1 else ""
    if short.link in links():
        link = links().get(short.link)
        return Network(link=link.id, rails=short.rails), f", {ports}{link.name}"
    rate = short.rate()
    shown = units.format_bit_rate(units.parse_rate(rate))
    return Network.model_validate({"rate": rate, "rails": short.rails}), f", {ports}{shown}"


def _unknown(name: str) -> UnknownName:
    names = known_names()
    return UnknownName(
        "machine",
        name,
        names["machine"] | names["GPU"],
        instead=kind_of(name, names),
        called="cluster file and no machine or GPU of the catalog",
    )
