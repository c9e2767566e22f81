"""Nodes are judged by the spec and by the majority of the others, and a node is suspected before it is accused."""

import re
from pathlib import Path

import pytest

from gpuyard.hardware.clusters import read_cluster
from gpuyard.measure.acceptance.expected import (
    choose_workload,
    find_price,
    predict_link_loss,
    read_promise,
)
from gpuyard.measure.acceptance.inventory import read_inventory, read_smi
from gpuyard.measure.acceptance.judge_inventory import judge_inventory
from gpuyard.measure.acceptance.judge_speed import find_suspects, judge_speeds
from gpuyard.measure.acceptance.node_speed import read_quota_cores, read_throttled_seconds
from gpuyard.measure.acceptance.records import (
    Attempt,
    Check,
    GemmWindow,
    GpuFacts,
    Inventory,
    NodeSpeed,
)

RECORDED = Path(__file__).parents[2] / "hardware/recorded/smi-xml"
PROMISE = read_promise(read_cluster("4x2xt4@10G"))
T4 = GpuFacts(name="Tesla T4", memory_bytes=15360 * 2**20, lanes=16, max_lanes=16)


def make_inventory(count: int = 2, **changed: object) -> Inventory:
    facts = {
        "cpu_model": "EPYC", "cores": 32, "memory_bytes": 256 * 10**9, "kernel": "6.1", "os": "Debian",
        "gpuyard": "0.2", "torch": "2.13", "driver": "550.1", "gpus": (T4,) * count, "gpu_source": "nvidia-smi",
    }  # fmt: skip
    return Inventory.model_validate({**facts, **changed})


def judge(inventories: list[Inventory]) -> list[Check]:
    nodes = {f"node{index}": inventory for index, inventory in enumerate(inventories)}
    return judge_inventory(PROMISE, nodes, emulated=False)


def make_speed(rate: float, *, throttled: float = 0.0, other: float = 0.0) -> NodeSpeed:
    window = GemmWindow(
        flops_per_second=rate,
        undisturbed_flops_per_second=rate,
        other_share=other,
        throttled_share=throttled,
    )
    return NodeSpeed(gemm=(window,), memory_bytes_per_second=1e10)


def test_a_recorded_gpu_is_read_with_its_lanes_clock_and_errors() -> None:
    driver, (gpu,) = read_smi((RECORDED / "t4-passthrough-v11.xml").read_text())
    assert driver == "515.105.01"
    assert (gpu.name, gpu.memory_bytes) == ("Tesla T4", 15360 * 2**20)
    assert (gpu.lanes, gpu.max_lanes, gpu.max_generation, gpu.max_clock_mhz) == (8, 16, 3, 1590)
    assert (gpu.slowdowns, gpu.uncorrected_errors) == ((), 0)


def test_slowdowns_and_memory_errors_are_read() -> None:
    text = (RECORDED / "t4-passthrough-v11.xml").read_text()
    text = text.replace(
        ">Not Active</clocks_throttle_reason_hw_thermal",
        ">Active</clocks_throttle_reason_hw_thermal",
    )
    text = re.sub(
        r"(<volatile>.*?<dram_uncorrectable>)0", r"\g<1>3", text, count=1, flags=re.DOTALL
    )
    _, (gpu,) = read_smi(text)
    assert gpu.slowdowns == ("hw thermal slowdown",)
    assert gpu.uncorrected_errors == 3
    grades = {c.grade for c in judge([make_inventory(gpus=(gpu, gpu))]) if c.subject == "GPU0"}
    assert grades == {"warn", "fail"}


def test_text_that_is_no_xml_has_no_gpus() -> None:
    assert read_smi("NVIDIA-SMI has failed because it couldn't communicate") == (None, ())


def test_the_gpus_of_a_node_without_nvidia_smi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_inventory(tmp_path, {}).gpu_source == "none"
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).touch()
    inventory = read_inventory(tmp_path, {})
    assert (inventory.gpu_source, len(inventory.gpus)) == ("device nodes", 2)
    inventory = read_inventory(tmp_path, {"SLURM_STEP_GPUS": "0,2,3"})
    assert (inventory.gpu_source, len(inventory.gpus)) == ("slurm", 3)


def test_equal_nodes_as_ordered_have_no_findings() -> None:
    assert judge([make_inventory()] * 4) == []


def test_a_missing_gpu_is_named_once_with_what_it_costs() -> None:
    (check,) = judge([make_inventory(), make_inventory(1), make_inventory(), make_inventory()])
    assert (check.node, check.subject, check.grade) == ("node1", "GPUs", "fail")
    assert check.lost_share == pytest.approx(1 / 8)


def test_another_gpu_than_ordered_fails() -> None:
    wrong = T4.model_copy(update={"name": "NVIDIA A100-SXM4-80GB"})
    checks = judge([make_inventory(), make_inventory(gpus=(wrong, wrong)), make_inventory()])
    assert {c.node for c in checks} == {"node1"}
    assert any(c.subject == "GPU0" and "A100" in c.text for c in checks)


@pytest.mark.parametrize(
    ("changed", "subject", "grade"),
    [
        ({"driver": "535.2"}, "driver", "warn"),
        ({"memory_bytes": 128 * 10**9}, "memory", "fail"),
        ({"cores": 16}, "cores", "fail"),
        ({"kernel": "5.10"}, "kernel", "warn"),
        ({"gpus": (T4, T4.model_copy(update={"lanes": 4}))}, "PCIe lanes", "fail"),
        ({"gpus": (T4, T4.model_copy(update={"nvlinks": 4}))}, "NVLinks", "fail"),
    ],
)
def test_a_node_that_differs_from_the_majority_is_named(
    changed: dict[str, object], subject: str, grade: str
) -> None:
    checks = judge([make_inventory(), make_inventory(), make_inventory(2, **changed)])
    assert {(c.node, c.subject, c.grade) for c in checks} == {("node2", subject, grade)}


def test_memory_that_differs_by_a_percent_is_the_same() -> None:
    assert (
        judge([make_inventory(), make_inventory(), make_inventory(memory_bytes=254 * 10**9)]) == []
    )


def test_without_a_majority_nobody_is_accused() -> None:
    assert judge([make_inventory(driver="1"), make_inventory(driver="2")]) == []


def test_lanes_that_all_gpus_lack_are_a_warning_for_the_cluster() -> None:
    narrow = T4.model_copy(update={"lanes": 8})
    (check,) = judge([make_inventory(gpus=(narrow, narrow))] * 3)
    assert (check.node, check.subject, check.grade) == (None, "PCIe lanes", "warn")


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_gpu_on_fewer_lanes_is_named_without_a_majority_of_nodes(nodes: int) -> None:
    narrow = T4.model_copy(update={"lanes": 8})
    inventories = [make_inventory(8), make_inventory(gpus=(*(T4,) * 7, narrow))][-nodes:]
    promise = read_promise(read_cluster(f"{nodes}x8xt4{'@10G' if nodes > 1 else ''}"))
    named = {f"node{index}": inventory for index, inventory in enumerate(inventories)}
    (check,) = judge_inventory(promise, named, emulated=False)
    assert (check.node, check.subject, check.grade) == (f"node{nodes - 1}", "PCIe lanes", "fail")
    assert "GPU7 uses 8 of 16" in check.text


def test_missing_nvlinks_are_named_by_the_spec() -> None:
    gpus = [GpuFacts(name="NVIDIA H100 80GB HBM3", nvlinks=n) for n in (18,) * 7 + (12,)]
    promise = read_promise(read_cluster("dgx-h100"))
    inventory = make_inventory(gpus=tuple(gpus), cores=224)
    (check,) = judge_inventory(promise, {"node0": inventory}, emulated=False)
    assert (check.subject, check.grade) == ("GPU7", "fail")
    assert "12 of 18" in check.text


def test_a_slow_node_is_accused_only_if_it_is_slow_again() -> None:
    first = Attempt(speeds={f"node{i}": make_speed(50e9 if i == 2 else 100e9) for i in range(4)})
    assert find_suspects([first]) == ["node2"]
    assert [c.grade for c in judge_speeds([first], PROMISE, retried=False)] == ["warn"]
    fast = Attempt(
        speeds={"node2": make_speed(95e9), "node0": make_speed(100e9)}, references=("node0",)
    )
    assert find_suspects([first, fast]) == []
    slow = Attempt(
        speeds={"node2": make_speed(52e9, throttled=0.5), "node0": make_speed(100e9)},
        references=("node0",),
    )
    (check,) = judge_speeds([first, slow], PROMISE, retried=True)
    assert (check.node, check.grade) == ("node2", "fail")
    assert check.ratio == pytest.approx(0.52)


def test_a_disturbance_that_hits_the_references_too_accuses_nobody() -> None:
    first = Attempt(speeds={f"node{i}": make_speed(50e9 if i == 2 else 100e9) for i in range(4)})
    both = Attempt(
        speeds={"node2": make_speed(40e9), "node0": make_speed(45e9)}, references=("node0",)
    )
    assert find_suspects([first, both]) == []


def test_other_programs_are_a_warning_not_a_fault() -> None:
    speeds = {f"node{i}": make_speed(100e9) for i in range(3)}
    speeds["node3"] = make_speed(40e9, other=0.6)
    attempt = Attempt(speeds=speeds)
    checks = list(judge_speeds([attempt, attempt], PROMISE, retried=True))
    assert {(c.node, c.grade) for c in checks} == {("node3", "warn")}


def test_a_slow_link_costs_more_if_the_network_is_the_choke() -> None:
    slow_network = read_promise(read_cluster("4x2xt4@1G"))
    fast_network = read_promise(read_cluster("4x2xt4@100G"))
    workload = choose_workload(fast_network)
    assert workload.name == "resnet50"
    losses = [predict_link_loss(p, workload, 0.5) for p in (slow_network, fast_network)]
    assert 0.3 < losses[0] < 0.6
    assert 0 <= losses[1] < losses[0]


@pytest.mark.parametrize("name", ["8x8xh100@ndr", "4x2xt4@1G", "2xdgx-a100"])
def test_a_link_at_its_full_rate_costs_nothing(name: str) -> None:
    promise = read_promise(read_cluster(name))
    assert predict_link_loss(promise, choose_workload(promise), 1.0) == pytest.approx(0, abs=0.01)


def test_the_price_is_that_of_all_nodes() -> None:
    one, four = (find_price(read_cluster(name)) for name in ("2x8xh100@ndr", "8x8xh100@ndr"))
    assert one is not None
    assert four is not None
    assert four.usd_per_hour == pytest.approx(4 * one.usd_per_hour)


@pytest.mark.parametrize("version", [1, 2])
def test_the_quota_of_a_group_or_of_one_above_it_is_read(tmp_path: Path, version: int) -> None:
    top = tmp_path / ("sys/fs/cgroup/cpu" if version == 1 else "sys/fs/cgroup")
    own = top / "slurm/step"
    own.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    line = "4:cpu,cpuacct:/slurm/step\n0::/\n" if version == 1 else "0::/slurm/step\n"
    (tmp_path / "proc/self/cgroup").write_text(line)
    unit = "throttled_time 2500000000" if version == 1 else "throttled_usec 2500000"
    (own / "cpu.stat").write_text(f"nr_periods 9\nnr_throttled 3\n{unit}\n")
    assert read_throttled_seconds(tmp_path) == 2.5
    assert read_quota_cores(tmp_path) is None
    if version == 1:
        for group, quota in ((own, "-1"), (own.parent, "150000")):
            (group / "cpu.cfs_quota_us").write_text(quota)
            (group / "cpu.cfs_period_us").write_text("100000")
    else:
        (own / "cpu.max").write_text("max 100000\n")
        (own.parent / "cpu.max").write_text("150000 100000\n")
    assert read_quota_cores(tmp_path) == 1.5


def test_without_control_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert (read_throttled_seconds(tmp_path), read_quota_cores(tmp_path)) == (None, None)
