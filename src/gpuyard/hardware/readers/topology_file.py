"""Read a machine graph from a topology file; the tool that wrote it is recognized by the content."""

import codecs
from dataclasses import replace
from pathlib import Path

from gpuyard.catalog import gpus
from gpuyard.errors import UserMistake, quote
from gpuyard.files import read_bytes
from gpuyard.hardware.graph import (
    UNKNOWN_SLOT_NOTE,
    Device,
    MachineGraph,
    create_internal_wire,
    create_pcie_wire,
    get_gpu_slot,
)
from gpuyard.hardware.readers.lstopo import graph_from_lstopo
from gpuyard.hardware.readers.matrices import PeerMatrix, parse_p2p_matrix, parse_topo_matrix
from gpuyard.hardware.readers.matrix_graph import graph_from_matrix
from gpuyard.hardware.readers.matrix_text import LINK_CLASSES, PEER_STATUSES, find_matrices
from gpuyard.hardware.readers.smi_xml import graph_from_smi
from gpuyard.hardware.readers.xml_text import parse_xml

_EXPECTED = (
    "expected the output of `nvidia-smi topo -m`, `nvidia-smi topo -p2p r`, `nvidia-smi -q -x`, or "
    "`lstopo --of xml`"
)
_XML_READERS = {"topology": graph_from_lstopo, "nvidia_smi_log": graph_from_smi}  # by root element
_MAX_BYTES = 5_000_000  # for a large machine, hwloc writes about 1 MB


def read_topology(path: Path, gpu: str | None = None) -> MachineGraph:
    """Read the machine of a file; `gpu` is the catalog id of its GPUs, if the file does not name them."""
    if gpu is not None:
        gpus().get(gpu)
    return graph_from_text(_read_text(path), str(path), gpu)


def graph_from_text(text: str, source: str, gpu: str | None = None) -> MachineGraph:
    """Build the machine from the output of a tool; `source` is its name in error messages."""
    if text.lstrip().startswith("<"):
        return _graph_from_xml(text, source, gpu)
    tables = list(find_matrices(text, source))
    if not tables:
        raise UserMistake(f"{source}:1:1: machine not found; {_EXPECTED}")
    if not any(table.contains(PEER_STATUSES) for table in tables):
        return graph_from_matrix(parse_topo_matrix(text, source), gpu)
    peers = parse_p2p_matrix(text, source)
    if not any(table.contains(LINK_CLASSES) for table in tables):
        return _graph_from_peers(peers, gpu)
    matrix = parse_topo_matrix(text, source)
    if set(matrix.gpus) != set(peers.gpus):
        raise UserMistake(
            f"{source}: the two tables describe different machines: {len(matrix.gpus)} GPUs in "
            f"topo -m, {len(peers.gpus)} in topo -p2p"
        )
    return replace(graph_from_matrix(matrix, gpu), pcie_peers=peers.peers)


def _read_text(path: Path) -> str:
    content = read_bytes(path, max_bytes=_MAX_BYTES)
    # PowerShell redirects output as UTF-16
    utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise UserMistake(f"{path}:{line}:{column}: not a text file; {_EXPECTED}") from None


def _graph_from_xml(text: str, source: str, gpu: str | None) -> MachineGraph:
    root = parse_xml(text, source)
    if root.tag not in _XML_READERS:
        raise UserMistake(f"{root.place}: unknown root element {quote(root.tag)}; {_EXPECTED}")
    return _XML_READERS[root.tag](root, source, gpu)


def _graph_from_peers(peers: PeerMatrix, gpu: str | None) -> MachineGraph:
    model = gpus().get(gpu) if gpu else None
    slot = get_gpu_slot(model)
    notes = ["topo -p2p only shows peer access: all GPUs are drawn on one host bridge"]
    return MachineGraph(
        peers.source,
        (
            Device("CPU0", "socket", "CPU 0"),
            Device("HB0", "host-bridge", "host bridge 0"),
            *(Device(id, "gpu", model.name if model else id, gpu) for id in peers.gpus),
        ),
        (
            create_internal_wire("CPU0", "HB0", slot),
            *(create_pcie_wire("HB0", id, slot) for id in peers.gpus),
        ),
        peers.peers,
        (*notes, *([] if model else [UNKNOWN_SLOT_NOTE])),
    )
