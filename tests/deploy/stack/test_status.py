"""Differences from the lock and their reasons, from recorded outputs of real tools."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.deploy.ansible.modules.nvidia_gpus import scan_gpus
from gpuyard.deploy.stack.facts import (
    StackFacts,
    parse_environment,
    parse_gpus,
    parse_packages,
    parse_runtimes,
)
from gpuyard.deploy.stack.lock import read_lock
from gpuyard.deploy.stack.status import StackFinding, compare

RECORDED = Path(__file__).parent / "recorded"
LOCK = read_lock()


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def create_matching_facts() -> StackFacts:
    """A machine with an Ada GPU on which everything is right."""
    gpus, _ = parse_gpus(recorded("rtx-4000-ada.txt").replace("595.84", "580.95.05"))
    pytorch = dict(pin.split("==") for pin in LOCK.frameworks["pytorch"].pins(gpu=True))
    return StackFacts(
        gpus_on_bus=1,
        loaded_driver="580.95.05",
        gpus=gpus,
        packages={"cuda-toolkit-13-0": "13.0.3-1", "nvidia-container-toolkit": "1.18.2-1"},
        environments={"pytorch": pytorch},
        docker="Docker version 20.10.24+dfsg1, build 297e128",
        docker_runtimes=parse_runtimes(
            '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}'
        ),
    )


def find_finding(facts: StackFacts, part: str) -> StackFinding:
    return next(finding for finding in compare(LOCK, facts) if finding.part == part)


def test_a_machine_that_matches_has_no_findings() -> None:
    assert all(finding.state == "same" for finding in compare(LOCK, create_matching_facts()))


def test_outputs_of_nvidia_smi_are_read() -> None:
    gpus, problem = parse_gpus(recorded("titan-v-and-rtx-5880.txt"))
    assert [gpu.capability for gpu in gpus] == ["7.0", "8.9"]
    assert gpus[0].name == "NVIDIA TITAN V"
    assert problem == ""
    for name in ("field-unknown.txt", "no-driver.txt", "mismatch.txt"):
        gpus, problem = parse_gpus(recorded(name))
        assert gpus == ()
        assert problem
    assert parse_gpus("GeForce GTX 680, 470.182.03\n")[0][0].capability is None


def test_a_machine_without_a_gpu_needs_no_driver() -> None:
    # recorded before the lock had torchvision
    more = {"pillow": "13.0.0", "torchvision": "0.28.0+cpu"}
    facts = StackFacts(
        packages=parse_packages(recorded("dpkg.txt")),
        environments={"pytorch": parse_environment(recorded("pip-pytorch.json")) | more},
        docker="Docker version 20.10.24+dfsg1, build 297e128",
    )
    states = {finding.part: finding.state for finding in compare(LOCK, facts)}
    assert states == {
        "NVIDIA driver": "not needed",
        "CUDA toolkit": "not needed",
        "pytorch": "same",
        "Docker": "same",
        "nvidia-container-toolkit": "not needed",
    }


def test_an_old_driver_is_too_old_for_the_frameworks_that_need_more() -> None:
    gpus, _ = parse_gpus(recorded("titan-v-and-rtx-5880.txt"))
    finding = find_finding(replace(create_matching_facts(), gpus=gpus), "NVIDIA driver")
    assert finding.state == "differs"
    assert "too old for pytorch (CUDA 13.0 needs 580)" in finding.why
    assert "tensorflow" not in finding.why  # CUDA 12 runs on 570


def test_a_newer_driver_differs_and_runs_everything() -> None:
    gpus, _ = parse_gpus(recorded("rtx-4000-ada.txt"))
    finding = find_finding(replace(create_matching_facts(), gpus=gpus), "NVIDIA driver")
    assert finding.state == "differs"
    assert finding.why.startswith("newer")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"nouveau": True}, "nouveau"),
        ({"secure_boot": True}, "secure boot"),
        ({"smi_problem": parse_gpus(recorded("no-driver.txt"))[1]}, "couldn't communicate"),
    ],
)
def test_why_no_driver_runs(change: dict[str, object], expected: str) -> None:
    facts = replace(create_matching_facts(), gpus=(), loaded_driver="", **change)  # type: ignore[arg-type]
    finding = find_finding(facts, "NVIDIA driver")
    assert finding.state == "missing"
    assert expected in finding.why


def test_an_update_without_a_restart_is_reported() -> None:
    problem = parse_gpus(recorded("mismatch.txt"))[1]
    facts = replace(
        create_matching_facts(), gpus=(), loaded_driver="580.65.06", smi_problem=problem
    )
    assert find_finding(facts, "NVIDIA driver").fix == "restart the machine"


@pytest.mark.parametrize(
    ("package", "version", "expected"),
    [
        ("torch", "2.13.0+cpu", "CPU build"),
        ("torch", "2.13.0+cu126", "built for CUDA 12.6 instead of 13.0"),
        ("torch", "2.12.0", "torch 2.12.0 instead of 2.13.0"),
        ("nvidia-nccl-cu13", "2.28.9", "nvidia-nccl-cu13 2.28.9 instead of 2.29.7"),
    ],
)
def test_a_framework_that_differs(package: str, version: str, expected: str) -> None:
    right = create_matching_facts()
    facts = replace(
        right, environments={"pytorch": {**right.environments["pytorch"], package: version}}
    )
    finding = find_finding(facts, "pytorch")
    assert finding.state == "differs"
    assert expected in finding.why


def test_the_same_build_from_pytorchs_own_index_is_the_same() -> None:
    right = create_matching_facts()
    installed = {**right.environments["pytorch"], "torch": "2.13.0+cu130"}
    assert (
        find_finding(replace(right, environments={"pytorch": installed}), "pytorch").state == "same"
    )


def test_a_gpu_that_the_build_no_longer_knows_is_named() -> None:
    gpus, _ = parse_gpus(recorded("titan-v-and-rtx-5880.txt"))
    finding = find_finding(
        replace(create_matching_facts(), gpus=gpus), "NVIDIA TITAN V with pytorch"
    )
    assert "no code for it" in finding.why
    assert "cu126" in finding.fix


@pytest.mark.parametrize(
    ("change", "part", "expected"),
    [
        ({"packages": {}}, "CUDA toolkit", "cannot be compiled"),
        ({"packages": {"cuda-toolkit-12-8": "12.8.1-1"}}, "CUDA toolkit", "cannot load"),
        ({"packages": {}}, "nvidia-container-toolkit", "containers cannot use GPUs"),
        ({"docker_runtimes": ()}, "nvidia-container-toolkit", "is not configured to use it"),
        ({"docker": ""}, "Docker", "containers cannot run"),
        ({"docker": "Docker version 18.09.1, build 4c52b90"}, "Docker", "--gpus"),
        ({"environments": {}}, "frameworks", "nothing can train"),
        ({"environments": {"pytorch": {}}}, "pytorch", "was interrupted"),
    ],
)
def test_other_differences_are_reported(
    change: dict[str, object], part: str, expected: str
) -> None:
    finding = find_finding(replace(create_matching_facts(), **change), part)  # type: ignore[arg-type]
    assert not finding.ok
    assert expected in finding.why


def pci(sysfs: Path, address: str, **words: str) -> None:
    device = sysfs / "bus/pci/devices" / address
    device.mkdir(parents=True)
    for name, word in words.items():
        (device / name.strip("_")).write_text(f"{word}\n")


def test_gpus_are_found_on_the_bus_without_a_driver(tmp_path: Path) -> None:
    assert scan_gpus(tmp_path)["gpus"] == []
    pci(tmp_path, "0000:00:02.0", vendor="0x8086", class_="0x030000", device="0x3e92")
    pci(tmp_path, "0000:01:00.1", vendor="0x10de", class_="0x040300", device="0x10f7")  # its sound
    assert scan_gpus(tmp_path)["gpus"] == []
    pci(tmp_path, "0000:01:00.0", vendor="0x10de", class_="0x030200", device="0x1eb8")  # a T4
    assert scan_gpus(tmp_path)["gpus"] == [{"address": "0000:01:00.0", "device": "0x1eb8"}]
    assert scan_gpus(tmp_path)["open_modules"]
    pci(tmp_path, "0000:02:00.0", vendor="0x10de", class_="0x030000", device="0x1b06")  # a 1080 Ti
    assert not scan_gpus(tmp_path)["open_modules"]


def test_obstacles_to_a_driver_are_found(tmp_path: Path) -> None:
    assert not scan_gpus(tmp_path)["secure_boot"]
    variable = tmp_path / "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    variable.parent.mkdir(parents=True)
    variable.write_bytes(b"\x06\x00\x00\x00\x01")
    (tmp_path / "module/nouveau").mkdir(parents=True)
    assert scan_gpus(tmp_path)["secure_boot"]
    assert scan_gpus(tmp_path)["nouveau"]
