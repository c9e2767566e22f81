"""A topology file from a stranger cannot exhaust this machine: bad files are rejected quickly, with a short error."""

from itertools import combinations
from pathlib import Path

import pytest

from gpuyard.errors import UserMistake
from gpuyard.hardware.product_names import find_catalog_gpu
from gpuyard.hardware.readers.topology_file import read_topology
from gpuyard.hardware.readers.xml_text import parse_xml
from gpuyard.predictor.topology import summarize_topology

_PCI_DEVICE = (
    "<object type='PCIDev' pci_busid='0000:{:02x}:{:02x}.{:x}' pci_type='{} [10de:102d] [0:0] a1'/>"
)
_CLASSES = ("NV1", "NV2", "SYS", "PIX", "PXB", "NODE", "PHB")


def hwloc(devices: int, kind: str, *, nested: int = 0) -> str:
    """Build a machine with N devices of a PCI class below one chain of bridges."""
    inner = "".join(_PCI_DEVICE.format(i // 256, i // 8 % 32, i % 8, kind) for i in range(devices))
    bridges = "<object type='Bridge'>" * nested + inner + "</object>" * nested
    return (
        "<topology><object type='Machine'><object type='Package' cpuset='0x1'/>"
        f"<object type='Bridge' bridge_type='0-1'>{bridges}</object></object></topology>"
    )


def matrix(count: int, device: str = "GPU{}") -> str:
    """Build a table whose cells have all classes and contradict each other."""
    names = ["GPU0", *(device.format(i) for i in range(1, count))]
    cells = {
        frozenset(pair): _CLASSES[i * i % 31 % len(_CLASSES)]
        for i, pair in enumerate(combinations(names, 2))
    }
    rows = (
        "\t".join([a, *(cells.get(frozenset((a, b)), "X") for b in names)]) + "\n" for a in names
    )
    return "\t".join(["", *names]) + "\n" + "".join(rows)


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        (matrix(700), ":1:2: one machine has at most 128 devices, this table has 700"),
        (matrix(129, "mlx5_{}"), "one machine has at most 128 devices, this table has 129"),
        (matrix(73), "one machine has at most 72 GPUs, this table has 73"),
        (matrix(2) + "GPU1\t" + "X\t" * 2_000_000, ":4:1: more than 500,000 characters"),
        ("<topology>" + "&#10;" * 3_000_000 + "</topology>", "larger than 5 MB"),
        ("<topology>" + "&#10;" * 900_000 + "</topology>",
         "more than 100,000 characters in one element"),
        ("<topology>" + "<a>" * 1_000, "nested deeper than 200"),
        ("<topology>" + "<a/>" * 900_000, "more than 100,000 elements"),
        ("<nvidia_smi_log>" + "<gpu/>" * 73 + "</nvidia_smi_log>",
         "one machine has at most 72 GPUs, this one has 73"),
        ("<topology><object type='Machine'>" + "<object type='PCIDev'/>" * 4097 + "</object></topology>",
         "more than 4,096 PCI devices and bridges in one machine"),
        ("<topology><object type='Machine'>" + "<object type='NUMANode'/>" * 257 + "</object></topology>",
         "more than 256 NUMA nodes in one machine"),
        (hwloc(73, "0302"), "one machine has at most 72 GPUs, this one has 73"),
        (hwloc(2000, "0302", nested=150), "one machine has at most 72 GPUs, this one has 2,000"),
        (hwloc(513, "0200"),
         "one machine has at most 512 GPUs, network cards, and drives, this one has 513"),
    ],
    ids=lambda text: text[:40].strip(),
)  # fmt: skip
@pytest.mark.timeout(60)  # some took minutes
def test_impossible_machines_get_a_short_error(tmp_path: Path, text: str, fragment: str) -> None:
    path = tmp_path / "machine"
    path.write_text(text)
    with pytest.raises(UserMistake) as mistake:
        read_topology(path)
    message = str(mistake.value).replace(str(path), "")
    assert fragment in message
    assert "\n" not in message
    assert len(message) < 200


@pytest.mark.timeout(60)  # it took minutes
@pytest.mark.parametrize("letter", ["(", "[", "1"])
def test_a_huge_product_name_matches_no_gpu(letter: str) -> None:
    assert find_catalog_gpu(letter * 100_000) is None


def test_an_incomplete_character_is_malformed_xml() -> None:
    with pytest.raises(UserMistake, match="malformed XML"):
        parse_xml("<topology>\ud800</topology>", "machine")


@pytest.mark.timeout(60)  # it took more than ten minutes
def test_the_largest_machine_is_read_and_summarized(tmp_path: Path) -> None:
    path = tmp_path / "machine"
    path.write_text(matrix(72))
    graph = read_topology(path, "h100-sxm5-80gb")
    assert len(graph.gpus) == 72
    assert "72 GPUs" in summarize_topology(graph).verdict
