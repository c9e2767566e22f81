"""The GPU table: stable ids, datasheet figures, and no sparse peaks."""

import datetime

import pytest

from gpuyard.catalog import gpus, links
from gpuyard.errors import UnknownName

FIXED_IDS = """
k80 gtx-1080-ti p40 p100-pcie-16gb p100-sxm2-16gb v100-pcie-16gb v100-sxm2-16gb v100-sxm2-32gb t4
rtx-2080-ti quadro-rtx-6000 quadro-rtx-8000 titan-rtx rtx-3090 rtx-4090 rtx-a6000 a10 a40 l40s
a100-pcie-40gb a100-sxm4-40gb a100-sxm4-80gb h100-pcie-80gb h100-sxm5-80gb h200-sxm5-141gb
gh200-96gb b200-sxm b300-sxm mi300x
"""

# Datasheets: memory GB, GB/s, fp32, 16-bit tensor, watts.
DATASHEETS = {
    "p100-sxm2-16gb": (16, 732, 10.6, 21.2, 300),
    "v100-sxm2-16gb": (16, 900, 15.7, 125, 300),
    "v100-pcie-16gb": (16, 900, 14, 112, 250),
    "t4": (16, 320, 8.1, 65, 70),
    "rtx-2080-ti": (11, 616, 13.4, 53.8, 250),
    "quadro-rtx-8000": (48, 672, 16.3, 130.5, 260),
    "rtx-3090": (24, 936, 35.6, 71, 350),
    "rtx-4090": (24, 1008, 82.6, 165.2, 450),
    "rtx-a6000": (48, 768, 38.7, 154.8, 300),
    "a10": (24, 600, 31.2, 125, 150),
    "a100-sxm4-80gb": (80, 2039, 19.5, 312, 400),
    "l40s": (48, 864, 91.6, 362, 350),
    "h100-pcie-80gb": (80, 2039, 51.2, 756, 350),
    "h100-sxm5-80gb": (80, 3352, 66.9, 989.4, 700),
    "h200-sxm5-141gb": (141, 4800, 66.9, 989.4, 700),
    "b200-sxm": (180, 8000, 75, 2250, 1000),
    "mi300x": (192, 5300, 163.4, 1307.4, 750),
}

TENSOR_ARCHITECTURES = {
    "Volta", "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell", "Blackwell Ultra",
    "CDNA", "CDNA 2", "CDNA 3", "CDNA 4",
}  # fmt: skip


def test_the_names_that_other_files_use_exist() -> None:
    assert set(FIXED_IDS.split()) <= set(gpus().ids())
    assert len(gpus()) >= 50


def test_every_row_names_a_source_from_its_lifetime() -> None:
    for gpu in gpus():
        assert gpu.source.strip()
        assert datetime.date(gpu.released - 1, 1, 1) <= gpu.date <= datetime.date(2027, 1, 1), (
            gpu.id
        )


@pytest.mark.parametrize("name", DATASHEETS)
def test_the_figures_are_the_datasheets(name: str) -> None:
    memory, bandwidth, fp32, half, watts = DATASHEETS[name]
    gpu = gpus().get(name)
    assert gpu.memory_gb == memory
    assert gpu.memory_bandwidth_gb_per_second == pytest.approx(bandwidth, rel=0.005)
    assert gpu.peak_flops("fp32") == pytest.approx(fp32 * 1e12, rel=0.005)
    assert gpu.peak_flops("fp16") == pytest.approx(half * 1e12, rel=0.005)
    assert gpu.board_watts == watts


def test_v100_powers_are_not_swapped() -> None:
    watts = {gpu.id: gpu.board_watts for gpu in gpus() if gpu.id.startswith("v100")}
    assert watts["v100-pcie-16gb"] == watts["v100-pcie-32gb"] == 250
    assert watts["v100-sxm2-16gb"] == watts["v100-sxm2-32gb"] == 300


def test_tensor_cores_are_never_slower_than_the_vector_units() -> None:
    for gpu in gpus():
        if gpu.architecture in TENSOR_ARCHITECTURES:
            assert gpu.fp16_tflops is not None, gpu.id
            assert gpu.fp32_tflops is not None, gpu.id
            for peak in (gpu.tf32_tflops, gpu.fp16_tflops, gpu.bf16_tflops, gpu.fp8_tflops):
                assert peak is None or peak >= gpu.fp32_tflops, gpu.id


def test_no_peak_counts_sparsity() -> None:
    """A datasheet's sparse figure would break the factor of two from each precision to the next."""
    for gpu in gpus():
        if gpu.vendor not in ("NVIDIA", "AMD"):  # others run all precisions at one rate
            continue
        if gpu.tf32_tflops and gpu.fp16_tflops:
            assert gpu.fp16_tflops / gpu.tf32_tflops == pytest.approx(2, rel=0.03), gpu.id
        if gpu.fp8_tflops and gpu.fp16_tflops:
            assert gpu.fp8_tflops / gpu.fp16_tflops == pytest.approx(2, rel=0.03), gpu.id


def test_bfloat16_came_with_ampere() -> None:
    for gpu in gpus():
        older = gpu.architecture in {"Kepler", "Maxwell", "Pascal", "Volta", "Turing"}
        assert (gpu.bf16_tflops is None) == older, gpu.id


def test_geforce_rtx_has_no_peer_to_peer_over_pcie() -> None:
    for gpu in gpus():
        if gpu.name.startswith("GeForce RTX"):
            assert not gpu.pcie_peer_to_peer, gpu.id
    for name in ("gtx-1080-ti", "quadro-rtx-6000", "rtx-a6000", "v100-pcie-16gb", "t4"):
        assert gpus().get(name).pcie_peer_to_peer


@pytest.mark.parametrize(
    ("name", "one_way_gb_per_second"),
    [
        ("p100-sxm2-16gb", 80),
        ("v100-sxm2-16gb", 150),
        ("a100-sxm4-80gb", 300),
        ("h100-sxm5-80gb", 450),
        ("b200-sxm", 900),
        ("rtx-3090", 56.25),
    ],
)
def test_nvlinks_add_up_to_the_published_rate(name: str, one_way_gb_per_second: float) -> None:
    gpu = gpus().get(name)
    assert gpu.nvlink_id is not None
    assert gpu.nvlink_links is not None
    link = links().get(gpu.nvlink_id)
    assert gpu.nvlink_links * link.raw_gb_per_second == one_way_gb_per_second


def test_links_of_other_vendors_have_a_row_and_a_topology() -> None:
    for gpu in gpus():
        fabric = (gpu.fabric_link, gpu.fabric_links, gpu.fabric_topology)
        assert all(fabric) or not any(fabric), gpu.id
        if gpu.fabric_link is not None:
            assert gpu.nvlink_id is None
            assert links().get(gpu.fabric_link).kind == "fabric"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rtx-3090", "4 × NVLink 3 on GA10x over a bridge to one other card"),
        ("h100-sxm5-80gb", "18 × NVLink 4"),
        ("rtx-4090", "PCIe 4.0 x16 and no links to other GPUs"),
        ("mi300x", "7 × AMD Infinity Fabric 32 GT/s"),
        ("tpu-v5e", "4 × Google ICI of TPU v5e"),
        ("gaudi-3", "21 × Gaudi 3 port, 200 Gbit/s Ethernet"),
    ],
)
def test_a_gpu_says_which_links_it_has(name: str, words: str) -> None:
    assert gpus().get(name).links_description == words


@pytest.mark.parametrize(
    ("name", "memory", "bf16", "one_way_gb_per_second"),
    [
        ("tpu-v4", 32, 275, 300),
        ("tpu-v5e", 16, 197, 200),
        ("tpu-v5p", 95, 459, 600),
        ("tpu-v6e", 32, 918, 400),
        ("trainium-1", 32, 190, 192),
        ("trainium-2", 96, 667, 640),
        ("gaudi-2", 96, 432, 262.5),
        ("gaudi-3", 128, 1835, 525),
        ("gb300", 288, 2500, 900),
    ],
)
def test_other_accelerators_that_clouds_rent(
    name: str, memory: int, bf16: float, one_way_gb_per_second: float
) -> None:
    gpu = gpus().get(name)
    assert (gpu.memory_gb, gpu.bf16_tflops) == (memory, bf16)
    assert gpu.peer_link is not None
    raw = links().get(gpu.peer_link).raw_gb_per_second
    assert gpu.peer_links * raw == one_way_gb_per_second


def test_every_nvlink_is_a_link_of_the_table() -> None:
    for gpu in gpus():
        assert (gpu.nvlink_generation is None) == (gpu.nvlink_links is None), gpu.id
        assert gpu.nvlink_id is None or gpu.nvlink_id in links(), gpu.id


def test_quantities_come_in_si_units() -> None:
    gpu = gpus().get("v100-sxm2-16gb")
    assert gpu.memory_bytes == 16 * 2**30
    assert gpu.memory_bytes_per_second == 900e9


def test_a_missing_precision_is_none_and_an_unknown_one_a_mistake() -> None:
    assert gpus().get("gtx-1080-ti").peak_flops("fp16") is None
    assert gpus().get("v100-sxm2-16gb").peak_flops("bf16") is None
    with pytest.raises(UnknownName, match="did you mean 'bf16'"):
        gpus().get("a40").peak_flops("bf-16")


def test_an_unknown_name_brings_the_closest() -> None:
    with pytest.raises(UnknownName) as raised:
        gpus().get("v100-sxm-16gb")
    assert raised.value.closest == "v100-sxm2-16gb"
    assert str(raised.value) == "no GPU is called 'v100-sxm-16gb'; did you mean 'v100-sxm2-16gb'?"
