"""The hardware of one row in a table of published runs: the GPU, the machines, and the network between them."""

import re
from collections.abc import Mapping

from gpuyard.catalog import Gpu, links, machines
from gpuyard.errors import UserMistake
from gpuyard.hardware.presets import choose_topology
from gpuyard.predictor.large.row_numbers import read_integer
from gpuyard.specs import Cluster, MachineSpec, Network

_GENERATION_PORTS = {
    "Volta": 100,
    "Ampere": 200,
    "Hopper": 400,
    "Blackwell": 400,
    "Blackwell Ultra": 800,
}
_LINK_GBITS = {"fdr": 56, "edr": 100, "hdr": 200, "ndr": 400, "xdr": 800}


def parse_cluster(gpu: Gpu, count: int, cells: Mapping[str, str]) -> Cluster:
    """Return the cluster of a row; a network that is not stated is what such machines usually have."""
    text = cells.get("interconnect", "")
    per_node = max(1, min(read_integer(cells, "gpus_per_node", min(count, 8)), count))
    if "NVL72" in text or gpu.id.startswith("gb"):
        per_node = 64 if count > 72 and count % 64 == 0 else min(count, 72)
    nodes = max(1, -(-count // per_node))
    if per_node > 72:
        raise UserMistake(f"a machine with {per_node} GPUs is not supported")
    topology = choose_topology(gpu, per_node)
    rate = f"{_parse_port_rate(gpu, text, per_node) / 1.25e8:.6g} Gbit/s"
    network = Network.model_validate({"rate": rate, "protocol": _parse_protocol(text)})
    return Cluster(
        name=f"{nodes} × {per_node} × {gpu.name}",
        nodes=nodes,
        machine=MachineSpec(gpu=gpu.id, gpus=per_node, topology=topology),
        network=network if nodes > 1 else None,
    )


def _parse_protocol(text: str) -> str:
    tcp = re.search(r"\btcp\b|ethernet", text, re.IGNORECASE) and not re.search(
        "roce|rdma|tcpx", text, re.IGNORECASE
    )
    return "tcp" if tcp else "rdma"


def _parse_port_rate(gpu: Gpu, text: str, per_node: int) -> float:  # noqa: PLR0911, one per notation
    """Return the bytes per second of all network ports of one machine."""
    scale_out = "; ".join(
        part for part in text.split(";") if not re.match(r"\s*NVLink[\d ]*(in node)?\s*$", part)
    )
    if match := re.search(r"(\d+) ?[x×] ?(\d+(?:\.\d+)?) ?(GB|Gb|G\b)", scale_out):
        rate = float(match[1]) * float(match[2])
        return rate * (1e9 if match[3] == "GB" else 1.25e8)
    if match := re.search(
        r"(\d[\d.]*) ?(?:Gb/?s|Gbps|Gbit/s|G) (?:CX-\d )?(?:a|per) GPU", scale_out
    ):
        return float(match[1]) * 1.25e8 * per_node
    if match := re.search(
        r"(\d[\d.]*) ?(?:Gb/?s|Gbps|Gbit/s|G) (?:a|per) (?:node|machine)", scale_out
    ):
        return float(match[1]) * 1.25e8
    if match := re.search(r"(\d[\d.]*) ?Tb(?:/?s|ps|it/s)", scale_out):
        return float(match[1]) * 1.25e11
    if match := re.search(r"(?:(\d+) ?[x×]? ?)?\b(fdr|edr|hdr|ndr|xdr)", scale_out, re.IGNORECASE):
        ports = (
            int(match[1])
            if match[1] and int(match[1]) <= 16
            else (per_node if gpu.released >= 2020 else 1)
        )
        return ports * _LINK_GBITS[match[2].lower()] * 1.25e8
    if match := re.search(r"(\d[\d.]*) ?(?:Gb/?s|Gbps|Gbit/s)", scale_out):
        return float(match[1]) * 1.25e8
    return _find_usual_rate(gpu, per_node)


def _find_usual_rate(gpu: Gpu, per_node: int) -> float:
    """Return the rate of the ports that machines with this GPU usually have."""
    for machine in machines():
        if machine.gpu == gpu.id and machine.nics and machine.gpus >= per_node:
            ports = machine.nics * per_node / machine.gpus
            if machine.nic_link:
                return links().get(machine.nic_link).raw_bytes_per_second * ports
    gbits = _GENERATION_PORTS.get(gpu.architecture, 100)
    ports = per_node if gpu.nvswitch_gpus else 1
    return gbits * 1.25e8 * ports
