"""Reads a machine from text, whichever tool wrote it."""

import codecs
from dataclasses import replace
from pathlib import Path

from gpuyard.catalog import gpus
from gpuyard.errors import UserMistake, quoted
from gpuyard.files import read_bytes
from gpuyard.hardware.graph import (
    UNKNOWN_SLOT_NOTE,
    Device,
    MachineGraph,
    internal_wire,
    pcie_wire,
    slot_of_gpu,
)
from gpuyard.hardware.readers.from_matrix import graph_from_matrix
from gpuyard.hardware.readers.lstopo import graph_from_lstopo
from gpuyard.hardware.readers.matrices import PeerMatrix, parse_p2p_matrix, parse_topo_matrix
from gpuyard.hardware.readers.matrix_text import LINK_CLASSES, PEER_STATUSES, find_matrices
from gpuyard.hardware.readers.smi_xml import graph_from_smi
from gpuyard.hardware.readers.xml_text import parse_xml

_READABLE = (
    "expected the output of `nvidia-smi topo -m`, `nvidia-smi topo -p2p r`, `nvidia-smi -q -x` or "
    "`lstopo --of xml`"
)
_BY_ROOT_ELEMENT = {"topology": graph_from_lstopo, "nvidia_smi_log": graph_from_smi}
_MOST_BYTES = 5_000_000  # hwloc writes about 1 MB of a large machine


def read_topology(path: Path, gpu: str | None = None) -> MachineGraph:
    """The machine of a file; `gpu` is the catalog id of its GPUs where the file does not name them."""
    if gpu is not None:
        gpus().get(gpu)
    return graph_from_text(_read(path), str(path), gpu)


def graph_from_text(text: str, source: str, gpu: str | None = None) -> MachineGraph:
    """The machine that a tool printed; `source` is what messages call it."""
    if text.lstrip().startswith("<"):
        return _from_xml(text, source, gpu)
    tables = list(find_matrices(text, source))
    if not tables:
        raise UserMistake(f"{source}:1:1: found no machine here; {_READABLE}")
    if not any(table.holds(PEER_STATUSES) for table in tables):
        return graph_from_matrix(parse_topo_matrix(text, source), gpu)
    peers = parse_p2p_matrix(text, source)
    if not any(table.holds(LINK_CLASSES) for table in tables):
        return _from_peers(peers, gpu)
    matrix = parse_topo_matrix(text, source)
    if set(matrix.gpus) != set(peers.gpus):
        raise UserMistake(
            f"{source}: the two tables describe different machines: {len(matrix.gpus)} GPUs in "
            f"topo -m, {len(peers.gpus)} in topo -p2p"
        )
    return replace(graph_from_matrix(matrix, gpu), pcie_peers=peers.peers)


def _read(path: Path) -> str:
    content = read_bytes(path, most_bytes=_MOST_BYTES)
    # PowerShell writes what it redirects as UTF-16
    utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise UserMistake(f"{path}:{line}:{column}: not a text file; {_READABLE}") from None


def _from_xml(text: str, source: str, gpu: str | None) -> MachineGraph:
    root = parse_xml(text, source)
    if root.tag not in _BY_ROOT_ELEMENT:
        raise UserMistake(f"{root.place}: unknown root element {quoted(root.tag)}; {_READABLE}")
    return _BY_ROOT_ELEMENT[root.tag](root, source, gpu)


def _from_peers(peers: PeerMatrix, gpu: str | None) -> MachineGraph:
    model = gpus().get(gpu) if gpu else None
    slot = slot_of_gpu(model)
    notes = ["topo -p2p shows peer access only: all GPUs are drawn on one host bridge"]
    return MachineGraph(
        peers.source,
        (
            Device("CPU0", "socket", "CPU 0"),
            Device("HB0", "host-bridge", "host bridge 0"),
            *(Device(id, "gpu", model.name if model else id, gpu) for id in peers.gpus),
        ),
        (internal_wire("CPU0", "HB0", slot), *(pcie_wire("HB0", id, slot) for id in peers.gpus)),
        peers.peers,
        (*notes, *([] if model else [UNKNOWN_SLOT_NOTE])),
    )
