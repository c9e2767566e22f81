"""Convert nccl-tests results of public threads into the columns of `gpuyard validate`'s table of collectives.

    python scripts/import_collectives.py nccl_release.csv    # writes src/gpuyard/catalog/data/published/collectives.csv

The source file has one row per printed result: thread, GPU, ranks, machines, operation, size, and bus bandwidth. Its
`inferred_fields` name what a thread does not state. A row stays in the table with a reason to skip it if the GPU, the
ranks, the size, or the network is unknown; no rate is predicted from a guess of these.
"""

import argparse
import csv
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

OUTPUT = Path(__file__).parent.parent / "src/gpuyard/catalog/data/published/collectives.csv"
COLUMNS = [
    "thread",
    "gpu",
    "topology",
    "machine_gpus",
    "peer_to_peer",
    "nodes",
    "gpus",
    "network",
    "op",
    "nvls",
    "size_bytes",
    "bus_gb_per_second",
    "date",
    "skip",
    "source",
]
# the catalog's GPU for the beginning of a name in the source
GPUS = {
    "RTX 4090": "rtx-4090",
    "RTX 2080 Ti": "rtx-2080-ti",
    "RTX 5090": "rtx-5090",
    "T4": "t4",
    "L40S": "l40s",
    "A100 PCIe": "a100-pcie-80gb",
    "A100 SXM": "a100-sxm4-80gb",
    "H100 PCIe": "h100-pcie-80gb",
    "H100 SXM": "h100-sxm5-80gb",
    "H200 SXM": "h200-sxm5-141gb",
    "B200 SXM": "b200-sxm",
    "B300 SXM": "b300-sxm",
    "V100 SXM2": "v100-sxm2-16gb",
    "V100 32GB": "v100-sxm2-32gb",
    "V100 PCIe": "v100-pcie-16gb",
    "MI300X": "mi300x",
    "MI325X": "mi325x",
    "MI355X": "mi355x",
}
# the network per machine for the beginning of its description; RoCE and InfiniBand of one rate are alike
NETWORKS = {
    "IB HDR via Gen3 slots, 2 NICs": "2xinfiniband-hdr",
    "IB HDR 200G, 4 NICs": "4xinfiniband-hdr",
    "IB HDR 200G, 8 NICs": "8xinfiniband-hdr",
    "IB 200G class, 4 NICs": "4xinfiniband-hdr",
    "RoCE 100G, 16 ports": "16xroce-100g",
    "RoCE 100G, 1 NIC": "1xroce-100g",
    "RoCE 400G total": "1xroce-400g",
    "RoCE/IB 400G, 4 NICs": "4xinfiniband-ndr",
    "RoCE/IB 400G, 8 NICs": "8xinfiniband-ndr",
    "IB/RoCE 400G, 8 NICs": "8xinfiniband-ndr",
    "IB 400G, 8 NICs": "8xinfiniband-ndr",
    "RoCE 400G, 8 NICs": "8xroce-400g",
    "RoCE Pollara 400G, 8 NICs": "8xroce-400g",
    "RoCE AINIC 400G, 8 NICs": "8xroce-400g",
    "EFA 100G, 4 NICs": "4xefa-100g",
    "EFA v3 200G, 16 NICs": "16xefa-200g",
    "EFA v4 400G, 8 NICs": "8xefa-400g",
    "GPUDirect-TCPX 200G, 4 NICs": "4xtcpx-200g",
    "GPUDirect-TCPXO 200G, 8 NICs": "8xtcpxo-200g",
    "plain TCP sockets, 4 NICs 200G": "4xethernet-200g",
    "TCP 100G, 1 NIC": "1xethernet-100g",
    "TCP 10G, 1 NIC": "1xethernet-10g",
}
# wirings that a thread describes, as a topology and the GPUs of such a machine
WIRINGS = {
    ("RTX 2080 Ti", "PIX"): ("single-root", 4),  # the first two of four GPUs are behind one switch
    ("RTX 5090", "unknown"): ("dual-socket", 8),  # two sockets; nothing is known about switches
    ("V100 SXM2", ""): ("nvlink-hybrid-cube-mesh", 8),
    ("V100 32GB", ""): ("nvlink-hybrid-cube-mesh", 8),
    ("H100 PCIe (NVLink bridge pair)", ""): ("nvlink-pairs", 2),
    ("MI3", ""): ("full-mesh", 8),
}
SWITCHED = ("A100 SXM", "H100 SXM", "H200 SXM", "B200 SXM", "B300 SXM")
TRAINING_OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="nccl_release.csv")
    with parser.parse_args().source.open(encoding="utf-8", newline="") as file:
        rows = list(convert(csv.DictReader(file)))
    with OUTPUT.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{len(rows)} rows, {sum(not row['skip'] for row in rows)} of them to predict")


def convert(rows: Iterable[dict[str, str]]) -> Iterator[dict[str, str | int]]:
    for row in rows:
        gpu, network = find_prefix(GPUS, row["gpu"]), find_prefix(NETWORKS, row["network"])
        nodes, gpus = int(row["nodes"]), int(row["gpus"])
        topology, machine_gpus = find_wiring(row, -(-gpus // nodes))
        yield {
            "thread": name_thread(row["source_url"]),
            "gpu": gpu,
            "topology": topology,
            "machine_gpus": machine_gpus,
            "peer_to_peer": "no" if row["p2p"] in ("disabled", "shm") else "yes",
            "nodes": nodes,
            "gpus": gpus,
            "network": network,
            "op": row["op"],
            "nvls": find_nvls(row["topology_note"]),
            "size_bytes": row["size_bytes"],
            "bus_gb_per_second": row["busbw_GBs"],
            "date": row["date"].removeprefix("commit "),
            "skip": find_skip(row, gpu, network),
            "source": describe_source(row["source_url"]),
        }


def find_prefix(table: dict[str, str], text: str) -> str:
    return next((name for prefix, name in table.items() if text.startswith(prefix)), "")


def find_wiring(row: dict[str, str], per_node: int) -> tuple[str, int]:
    """Return the topology of a machine and the number of GPUs in it."""
    for (gpu, note), wiring in WIRINGS.items():
        if row["gpu"].startswith(gpu) and row["topology_note"].startswith(note):
            return wiring if per_node <= wiring[1] else (wiring[0], per_node)
    if row["gpu"].startswith(SWITCHED):
        return "nvswitch", 8
    return "workstation", per_node


def find_nvls(note: str) -> str:
    return "off" if re.search(r"NVLS off|ALGO=RING", note) else ""


def find_skip(row: dict[str, str], gpu: str, network: str) -> str:
    if row["op"] not in TRAINING_OPERATIONS:
        return "no operation of data-parallel training"
    if row["quality"] == "C" or not gpu or "-class" in row["gpu"]:
        return "the GPU, the ranks, or the size is uncertain"
    if "+" in row["gpu"] and "1 NIC" not in row["network"]:
        return "two kinds of GPU"
    if int(row["nodes"]) > 1 and not network:
        return "the network is not stated"
    return ""


def name_thread(source: str) -> str:
    """Return a short name, e.g. "NVIDIA/nccl issue 1130"."""
    if match := re.match(r"https://github.com/([^/]+/[^/ ]+)/(?:issues|pull)/(\d+)", source):
        kind = "pull request" if "/pull/" in source else "issue"
        return f"{match[1]} {kind} {match[2]}"
    if match := re.match(r"stored file id \d+ \((.*)\)", source):
        return match[1].split(",")[0]
    match = re.match(r"https://github.com/([^/]+/[^/ ]+)", source)
    return match[1] if match else source


def describe_source(source: str) -> str:
    if match := re.match(r"stored file id \d+ \((.*)\)", source):
        return f"{match[1]}, a file of a public repository whose name was not recorded"
    return re.sub(r";? ?stored file id \d+", "", source)


if __name__ == "__main__":
    main()
