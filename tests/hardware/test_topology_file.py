"""Topology files of all supported tools."""

from pathlib import Path

import pytest

from gpuyard.errors import UnknownName, UserMistake
from gpuyard.hardware.readers.topology_file import read_topology
from tests.hardware.recordings import RECORDED, SOURCES


@pytest.mark.parametrize("name", [name for name, case in SOURCES.items() if not case.get("bad")])
def test_every_recording_is_read(name: str) -> None:
    graph = read_topology(RECORDED / name)
    assert len(graph.gpus) == SOURCES[name]["gpus"]
    assert graph.name == str(RECORDED / name)


def test_peer_matrix_alone_puts_all_gpus_on_one_host_bridge() -> None:
    graph = read_topology(RECORDED / "p2p/rtx5090-2gpu-gns.txt", "rtx-5090")
    assert graph.path_class("GPU0", "GPU1") == "PHB"
    assert not graph.has_peer_access("GPU0", "GPU1")
    allowed = read_topology(RECORDED / "p2p/epyc-5gpu-ok.txt")
    assert allowed.has_peer_access("GPU0", "GPU4")


def test_both_tables_in_one_file(tmp_path: Path) -> None:
    both = tmp_path / "both.txt"
    parts = ("p2p/epyc-5gpu-ok.txt", "topo-m/epyc-5gpu-node-phb.txt")
    both.write_text("\n\n".join((RECORDED / part).read_text() for part in parts))
    graph = read_topology(both)
    assert graph.path_class("GPU3", "GPU4") == "PHB"
    assert graph.pcie_peers is not None and len(graph.pcie_peers) == 10
    parts = ("p2p/l4-2gpu-cns-no-legend.txt", "topo-m/epyc-5gpu-node-phb.txt")
    both.write_text("\n\n".join((RECORDED / part).read_text() for part in parts))
    with pytest.raises(UserMistake, match=r"5 GPUs in topo -m, 2 in topo -p2p"):
        read_topology(both)


def test_utf_16_output_of_powershell(tmp_path: Path) -> None:
    file = tmp_path / "topo.txt"
    text = (RECORDED / "topo-m/rtx3090-2gpu-nv4.txt").read_text()
    file.write_text(text.replace("\n", "\r\n"), encoding="utf-16", newline="")
    assert read_topology(file).path_class("GPU0", "GPU1") == "NV4"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<?xml version='1.0'?>\n\n<svg/>", ":3:1: unknown root element 'svg'"),
        (b"<topology", ":1:1: malformed XML: unclosed token"),
        (b"hello\n", ":1:1: machine not found"),
        (b"", ":1:1: machine not found"),
        (b"GPU0\n\xff\xff\x00", ":2:1: not a text file"),
        (b"\tGPU0\tGPU1\nGPU0\t X \tPXX\n", ":2:10: 'PXX' is not a link class; did you mean 'PIX'?"),
    ],
)  # fmt: skip
def test_errors_name_the_position_and_the_problem(
    tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(UserMistake) as refused:
        read_topology(file)
    assert str(refused.value).startswith(f"{file}{message}")


def test_a_missing_file_a_directory_and_an_unknown_gpu_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match=r"absent: file not found"):
        read_topology(tmp_path / "absent")
    with pytest.raises(UserMistake, match="directory, not a file"):
        read_topology(tmp_path)
    with pytest.raises(UnknownName):
        read_topology(RECORDED / "topo-m/rtx3090-2gpu-nv4.txt", "rtx-3091")
