"""GPUs and slots from `nvidia-smi -q -x`, and notes about its limits."""

import pytest

from gpuyard.errors import UserMistake
from gpuyard.hardware.product_names import find_catalog_gpu
from gpuyard.hardware.readers.topology_file import graph_from_text
from tests.hardware.recordings import SOURCES, list_recordings, read_recording


@pytest.mark.parametrize("name", list_recordings("smi-xml"))
def test_recorded_gpus(name: str) -> None:
    case = SOURCES[name]
    expected = case["expected"]
    graph = graph_from_text(read_recording(name), name)
    assert len(graph.gpus) == case["gpus"]
    assert graph.device("GPU0").label == expected["product_name"]
    slot = next(wire for wire in graph.wires if wire.b == "GPU0")
    assert f"{slot.width}x" == expected["pcie_width_current"]
    assert slot.generation == expected.get("pcie_gen_max", 3)
    assert any("does not show sockets" in note for note in graph.notes)


def test_missing_gpus_are_noted() -> None:
    name = "smi-xml/a100-mig-v12.xml"
    notes = graph_from_text(read_recording(name), name).notes
    assert any(note.startswith("4 GPUs") and note.endswith("lists 1") for note in notes)


def test_every_pci_domain_has_a_host_bridge() -> None:
    gpus = "".join(f"<gpu id='0000000{d}:0{b}:00.0'/>" for d, b in ((0, 1), (0, 2), (1, 1)))
    graph = graph_from_text(f"<nvidia_smi_log>{gpus}</nvidia_smi_log>", "smi.xml")
    assert [graph.path_class("GPU0", gpu) for gpu in graph.gpus] == ["X", "PHB", "NODE"]


def test_a_log_without_gpus_is_refused() -> None:
    with pytest.raises(UserMistake, match=r"smi\.xml:2:1: <nvidia_smi_log>.*<gpu>"):
        graph_from_text("\n<nvidia_smi_log/>", "smi.xml")


@pytest.mark.parametrize(
    ("product", "id"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090"),
        ("NVIDIA GeForce RTX 3090 Ti", "rtx-3090-ti"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("Quadro RTX 6000", "quadro-rtx-6000"),
        ("Tesla K80", "k80"),
        ("NVIDIA Corporation GK210GL [Tesla K80]", "k80"),
        ("NVIDIA GeForce GTX 1070 Ti", None),
        ("NVIDIA A100", None),
        ("", None),
    ],
)
def test_product_names(product: str, id: str | None) -> None:
    gpu = find_catalog_gpu(product)
    assert (gpu.id if gpu else None) == id
