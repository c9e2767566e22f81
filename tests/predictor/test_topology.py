"""The effect of a layout on training."""

import pytest

from gpuyard.catalog import gpus
from gpuyard.hardware import build_preset, get_preset
from gpuyard.hardware.rings import host_to_gpu_bytes_per_second
from gpuyard.predictor.platform import create_platform
from gpuyard.predictor.topology import name_gpus, summarize_topology
from gpuyard.predictor.transport import ring_rate
from gpuyard.specs import Cluster, MachineSpec, Topology


@pytest.mark.parametrize(
    ("preset", "gpu", "count", "words"),
    [
        ("dual-root", "gtx-1080-ti", 8,
         "GPUs 0-3 and 4-7 are on different sockets: an all-reduce over all 8 runs at 6 GB/s, "
         "within 4 at 12 GB/s; pin jobs of up to 4 GPUs to one socket."),
        ("dual-root", "gtx-1080-ti", 8, "For 2 GPUs, use GPUs 0 and 1 (12 GB/s), not GPUs 0 and 4 (6 GB/s)"),
        ("dual-root", "gtx-1080-ti", 4, "GPUs 0 and 1, and GPUs 2 and 3, are on different sockets"),
        ("nvswitch", "a100-sxm4-80gb", 8, "An all-reduce over all 8 GPUs runs at 233 GB/s over NVLink; fewer GPUs are no faster."),
        ("nvlink-hybrid-cube-mesh", "v100-sxm2-16gb", 8, "not GPUs 0 and 5 (6 GB/s): 6.7 times as fast"),
        ("workstation", "rtx-4090", 4, "staged through host memory"),
        ("full-mesh", "mi300x", 8, "An all-reduce over all 8 GPUs runs at 312 GB/s over links between the GPUs"),
        ("workstation", "t4", 1, "This machine has one GPU"),
    ],
)  # fmt: skip
def test_verdicts(preset: str, gpu: str, count: int, words: str) -> None:
    assert words in summarize_topology(build_preset(preset, gpus().get(gpu), count)).verdict


def test_all_reduces_are_given_for_every_size_of_job() -> None:
    summary = summarize_topology(build_preset("dual-socket", gpus().get("rtx-a6000"), 8))
    assert [len(r.gpus) for r in summary.all_reduces] == [2, 4, 8]
    assert [choice.count for choice in summary.choices] == [2, 4]
    assert all(choice.ratio >= 1 for choice in summary.choices)


@pytest.mark.parametrize(
    ("preset", "gpu", "count", "gigabytes"),
    [
        # the uplink's share of 12/4 GB/s, and 48% of it as two cards behind one switch reached
        ("single-root", "rtx-2080-ti", 8, 1.44),
        # the slots would give 5.8, but four GPUs share the host's memory; eight get less, and a second socket helps a bit
        ("workstation", "rtx-2080-ti", 4, 2.59),
        ("dual-socket", "rtx-3090", 8, 1.68),
        ("workstation", "gtx-1080-ti", 4, 12),
        ("full-mesh", "mi300x", 8, 312),
    ],
)
def test_a_machine_has_the_same_rate_everywhere(
    preset: Topology, gpu: str, count: int, gigabytes: float
) -> None:
    summary = summarize_topology(build_preset(preset, gpus().get(gpu), count))
    machine = MachineSpec(gpu=gpu, gpus=count, topology=preset)
    predicted = create_platform(Cluster(name="one", machine=machine)).inside(count)
    assert ring_rate(summary.all_reduces[-1]) == predicted.bytes_per_second
    assert predicted.bytes_per_second == pytest.approx(gigabytes * 1e9, rel=0.01)


@pytest.mark.parametrize(
    ("chosen", "name"),
    [
        (["GPU0", "GPU1", "GPU2", "GPU3"], "GPUs 0-3"),
        (["GPU0", "GPU1"], "GPUs 0 and 1"),
        (["GPU4", "GPU0", "GPU1", "GPU2"], "GPUs 0-2 and 4"),
        (["a", "b"], "a, b"),
    ],
)
def test_gpus_are_named_in_runs(chosen: list[str], name: str) -> None:
    assert name_gpus(chosen) == name


def test_gpus_behind_one_uplink_share_what_the_host_sends() -> None:
    gpu = gpus().get("gtx-1080-ti")
    cascaded = get_preset("cascaded", gpu, 8)
    assert host_to_gpu_bytes_per_second(cascaded, ["GPU0"]) == pytest.approx(12e9)
    assert host_to_gpu_bytes_per_second(cascaded, cascaded.gpus) == pytest.approx(12e9 / 8)
    assert get_preset("cascaded", gpu, 8) is cascaded
