"""GPU names as people and tables write them: one resolver for the command line and for CSV files."""

import pytest

from gpuyard.catalog import gpus, links
from gpuyard.catalog.short_names import find_gpu, find_hardware, find_stated_gpu
from gpuyard.errors import UserMistake


@pytest.mark.parametrize(
    ("text", "gpu"),
    [
        ("h100-sxm-80gb", "h100-sxm5-80gb"), ("A100 80GB", "a100-sxm4-80gb"), ("a100-sxm4-40gb", "a100-sxm4-40gb"),
        ("NVIDIA H200", "h200-sxm5-141gb"), ("b200-sxm", "b200-sxm"), ("AMD Instinct MI300X", "mi300x"),
        ("v100-sxm2-32gb (inferred)", "v100-sxm2-32gb"), ("rtx-4090", "rtx-4090"), ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
        ("GeForce RTX 3090", "rtx-3090"), ("rtx-3090-24gb", "rtx-3090"), ("rtx4090", "rtx-4090"), ("a6000", "rtx-a6000"),
        ("gaudi2", "gaudi-2"), ("dgxh100", "h100-sxm5-80gb"), ("HGX H100 80GB", "h100-sxm5-80gb"),
        ("p5.48xlarge", "h100-sxm5-80gb"), ("a3-ultragpu (H200)", "h200-sxm5-141gb"), ("8x H100", "h100-sxm5-80gb"),
        ("h100-sxm-96gb-hbm2e-500w", "h100-sxm5-80gb"), ("H100 PCIe", "h100-pcie-80gb"), ("GB200 NVL72", "gb200"),
        ("H20", "h20-sxm5-96gb"), ("L20", "l20"), ("A800", "a800-sxm4-80gb"), ("H800", "h800-sxm5-80gb"),
        ("A100", "a100-sxm4-80gb"), ("GH200", "gh200-96gb"), ("mi250x-gcd", "mi250x-gcd"), ("MI250X (1 GCD)", "mi250x-gcd"),
        ("MI250X", "mi250x"),
    ],
)  # fmt: skip
def test_names_as_tables_write_them(text: str, gpu: str) -> None:
    assert find_stated_gpu(text).id == gpu


@pytest.mark.parametrize("name", ["A100", "gh200", "h100", "v100", "A800", "tesla-v100-sxm2-32gb"])
def test_the_command_line_and_tables_agree(name: str) -> None:
    assert find_gpu(name) == find_stated_gpu(name)


@pytest.mark.parametrize("name", ["abacus", "h100x", "", "nvidia", "("])
def test_an_unknown_name_is_a_mistake(name: str) -> None:
    with pytest.raises(UserMistake, match="not in the catalog"):
        find_stated_gpu(name)


def test_the_command_line_does_not_ignore_words() -> None:
    assert find_hardware("h100-96gb") is None
    assert find_hardware("h100-foo") is None


@pytest.mark.parametrize("name", ["a800-sxm4-80gb", "h800-sxm5-80gb"])
def test_export_variants_have_400_gb_per_second_of_nvlink(name: str) -> None:
    gpu = gpus().get(name)
    assert gpu.nvlink_id is not None
    assert 2 * gpu.peer_links * links().get(gpu.nvlink_id).raw_gb_per_second == 400
