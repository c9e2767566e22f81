"""What differs from the lock and why: from recorded outputs of real tools."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.deploy.ansible.modules.nvidia_gpus import found
from gpuyard.deploy.stack.facts import (
    StackFacts,
    read_environment,
    read_gpus,
    read_packages,
    read_runtimes,
)
from gpuyard.deploy.stack.lock import read_lock
from gpuyard.deploy.stack.status import StackFinding, compare

RECORDED = Path(__file__).parent / "recorded"
LOCK = read_lock()


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def as_the_lock_says() -> StackFacts:
    """A machine with an Ada GPU on which everything is right."""
    gpus, _ = read_gpus(recorded("rtx-4000-ada.txt").replace("595.84", "580.95.05"))
    pytorch = dict(pin.split("==") for pin in LOCK.frameworks["pytorch"].pinned(gpu=True))
    return StackFacts(
        gpus_on_bus=1,
        loaded_driver="580.95.05",
        gpus=gpus,
        packages={"cuda-toolkit-13-0": "13.0.3-1", "nvidia-container-toolkit": "1.18.2-1"},
        environments={"pytorch": pytorch},
        docker="Docker version 20.10.24+dfsg1, build 297e128",
        docker_runtimes=read_runtimes(
            '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}'
        ),
    )


def of(facts: StackFacts, part: str) -> StackFinding:
    return next(finding for finding in compare(LOCK, facts) if finding.part == part)


def test_a_machine_that_is_right_has_nothing_to_say() -> None:
    assert all(finding.state == "same" for finding in compare(LOCK, as_the_lock_says()))


def test_outputs_of_nvidia_smi_are_read() -> None:
    gpus, problem = read_gpus(recorded("titan-v-and-rtx-5880.txt"))
    assert [gpu.capability for gpu in gpus] == ["7.0", "8.9"]
    assert gpus[0].name == "NVIDIA TITAN V"
    assert problem == ""
    for name in ("field-unknown.txt", "no-driver.txt", "mismatch.txt"):
        gpus, problem = read_gpus(recorded(name))
        assert gpus == ()
        assert problem
    assert read_gpus("GeForce GTX 680, 470.182.03\n")[0][0].capability is None


def test_a_machine_without_a_gpu_needs_no_driver() -> None:
    facts = StackFacts(
        packages=read_packages(recorded("dpkg.txt")),
        environments={"pytorch": read_environment(recorded("pip-pytorch.json"))},
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
    gpus, _ = read_gpus(recorded("titan-v-and-rtx-5880.txt"))
    finding = of(replace(as_the_lock_says(), gpus=gpus), "NVIDIA driver")
    assert finding.state == "differs"
    assert "too old for pytorch (CUDA 13.0 needs 580)" in finding.why
    assert "tensorflow" not in finding.why  # CUDA 12 runs on 570


def test_a_newer_driver_differs_and_runs_everything() -> None:
    gpus, _ = read_gpus(recorded("rtx-4000-ada.txt"))
    finding = of(replace(as_the_lock_says(), gpus=gpus), "NVIDIA driver")
    assert finding.state == "differs"
    assert finding.why.startswith("newer")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nouveau": True}, "nouveau holds it"),
        ({"secure_boot": True}, "secure boot is on"),
        ({"smi_problem": read_gpus(recorded("no-driver.txt"))[1]}, "couldn't communicate"),
    ],
)
def test_why_no_driver_runs(change: dict[str, object], said: str) -> None:
    facts = replace(as_the_lock_says(), gpus=(), loaded_driver="", **change)  # type: ignore[arg-type]
    finding = of(facts, "NVIDIA driver")
    assert finding.state == "missing"
    assert said in finding.why


def test_an_update_without_a_restart_is_said() -> None:
    problem = read_gpus(recorded("mismatch.txt"))[1]
    facts = replace(as_the_lock_says(), gpus=(), loaded_driver="580.65.06", smi_problem=problem)
    assert of(facts, "NVIDIA driver").fix == "restart the machine"


@pytest.mark.parametrize(
    ("package", "version", "said"),
    [
        ("torch", "2.13.0+cpu", "does not see the GPU"),
        ("torch", "2.13.0+cu126", "built for CUDA 12.6 and not 13.0"),
        ("torch", "2.12.0", "torch 2.12.0 instead of 2.13.0"),
        ("nvidia-nccl-cu13", "2.28.9", "nvidia-nccl-cu13 2.28.9 instead of 2.29.7"),
    ],
)
def test_a_framework_that_differs(package: str, version: str, said: str) -> None:
    right = as_the_lock_says()
    facts = replace(
        right, environments={"pytorch": {**right.environments["pytorch"], package: version}}
    )
    finding = of(facts, "pytorch")
    assert finding.state == "differs"
    assert said in finding.why


def test_the_same_build_from_pytorchs_own_index_is_the_same() -> None:
    right = as_the_lock_says()
    have = {**right.environments["pytorch"], "torch": "2.13.0+cu130"}
    assert of(replace(right, environments={"pytorch": have}), "pytorch").state == "same"


def test_a_gpu_that_the_build_no_longer_knows_is_named() -> None:
    gpus, _ = read_gpus(recorded("titan-v-and-rtx-5880.txt"))
    finding = of(replace(as_the_lock_says(), gpus=gpus), "NVIDIA TITAN V with pytorch")
    assert "no code for it" in finding.why
    assert "cu126" in finding.fix


@pytest.mark.parametrize(
    ("change", "part", "said"),
    [
        ({"packages": {}}, "CUDA toolkit", "can't be compiled"),
        ({"packages": {"cuda-toolkit-12-8": "12.8.1-1"}}, "CUDA toolkit", "can't be loaded"),
        ({"packages": {}}, "nvidia-container-toolkit", "containers see no GPU"),
        ({"docker_runtimes": ()}, "nvidia-container-toolkit", "is not configured to use it"),
        ({"docker": ""}, "Docker", "no container"),
        ({"docker": "Docker version 18.09.1, build 4c52b90"}, "Docker", "--gpus"),
        ({"environments": {}}, "frameworks", "nothing trains"),
        ({"environments": {"pytorch": {}}}, "pytorch", "was cut off"),
    ],
)
def test_what_else_may_be_wrong(change: dict[str, object], part: str, said: str) -> None:
    finding = of(replace(as_the_lock_says(), **change), part)  # type: ignore[arg-type]
    assert not finding.ok
    assert said in finding.why


def pci(sysfs: Path, address: str, **words: str) -> None:
    device = sysfs / "bus/pci/devices" / address
    device.mkdir(parents=True)
    for name, word in words.items():
        (device / name.strip("_")).write_text(f"{word}\n")


def test_gpus_are_found_on_the_bus_without_a_driver(tmp_path: Path) -> None:
    assert found(tmp_path)["gpus"] == []
    pci(tmp_path, "0000:00:02.0", vendor="0x8086", class_="0x030000", device="0x3e92")
    pci(tmp_path, "0000:01:00.1", vendor="0x10de", class_="0x040300", device="0x10f7")  # its sound
    assert found(tmp_path)["gpus"] == []
    pci(tmp_path, "0000:01:00.0", vendor="0x10de", class_="0x030200", device="0x1eb8")  # a T4
    assert found(tmp_path)["gpus"] == [{"address": "0000:01:00.0", "device": "0x1eb8"}]
    assert found(tmp_path)["open_modules"]
    pci(tmp_path, "0000:02:00.0", vendor="0x10de", class_="0x030000", device="0x1b06")  # a 1080 Ti
    assert not found(tmp_path)["open_modules"]


def test_what_stands_in_a_drivers_way_is_found(tmp_path: Path) -> None:
    assert not found(tmp_path)["secure_boot"]
    variable = tmp_path / "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    variable.parent.mkdir(parents=True)
    variable.write_bytes(b"\x06\x00\x00\x00\x01")
    (tmp_path / "module/nouveau").mkdir(parents=True)
    assert found(tmp_path)["secure_boot"]
    assert found(tmp_path)["nouveau"]
