"""GPUs of a deployment: the driver that the role gpu-stack installs or keeps, and the check that `verify` runs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gpuyard.catalog import gpus
from gpuyard.catalog.specfiles import read_deployment
from gpuyard.deploy.ansible.modules.nvidia_gpus import scan_gpus
from gpuyard.deploy.verify.gpus import _PROBE, evaluate_probe
from tests.conftest import Cli
from tests.deploy.rendering import ROLES, flatten_tasks, run_play
from tests.deploy.stack.test_status import pci

FILE = """
name: one
cluster: {name: one, nodes: 2, machine: {gpu: t4, gpus: 1}, network: {rate: 1 Gbit/s}}
target: {kind: ssh, machines: [{name: one, address: 192.0.2.1}, {name: two, address: 192.0.2.2}]}
"""
A100 = "NVIDIA A100-SXM4-40GB"


def _found(count: int, name: str = A100, **others: Any) -> dict[str, Any]:
    machine = {"gpus": [[name, "580.95.05"]] * count, "error": "", "cuda": 0}
    return {**machine, "adapters": 0, "fabric": 0, **others}


@pytest.mark.parametrize(
    ("found", "ok", "expected"),
    [
        (_found(8), True, f"8 × {A100}, driver 580.95.05"),
        (_found(7), False, f"7 × {A100}"),
        (_found(8, "NVIDIA A100-SXM4-80GB"), False, "NVIDIA A100-SXM4-80GB"),
        (_found(8, "NVIDIA Unheard 1"), True, "NVIDIA Unheard 1"),
        (_found(0, error="nvidia-smi not found"), False, "gpu-stack"),
        (_found(8, cuda=802), False, "nvidia-fabricmanager"),
        (_found(8, cuda=None, error="libcuda.so.1: cannot open"), False, "libcuda"),
        (_found(8, cuda=100), False, "100"),
    ],
)
def test_driver_model_count_and_cuda_are_checked(
    found: dict[str, Any], ok: bool, expected: str
) -> None:
    (check,) = evaluate_probe(found, "node0", gpus().get("a100-sxm4-40gb"), 8)
    assert check.ok is ok
    assert expected in check.detail


def test_paid_fabric_adapters_without_libfabric_are_reported() -> None:
    gpu = gpus().get("a100-sxm4-40gb")
    for usable in (0, 4):
        found = _found(8, adapters=4, fabric=usable)
        check = evaluate_probe(found, "node0", gpu, 8)[1]
        assert check.ok is (usable == 4)
        assert f"{usable} of 4" in check.detail


def test_the_probe_reads_what_nvidia_smi_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> dict[str, Any]:
        done = subprocess.run(
            (sys.executable, "-c", _PROBE), capture_output=True, text=True, check=True
        )
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    monkeypatch.setenv("PATH", str(tmp_path))
    assert run()["error"] == "nvidia-smi not found"
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho '{A100}, 580.95.05'\necho '{A100}, 580.95.05'\n")
    program.chmod(0o755)
    assert run()["gpus"] == [[A100, "580.95.05"]] * 2
    # as nvidia-smi says it when its driver is not loaded
    failure = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    program.write_text(f'#!/bin/sh\necho "{failure}"\nexit 9\n')
    found = run()
    assert (found["gpus"], found["error"]) == ([], failure)


def test_switches_and_fabric_adapters_are_found_on_the_bus(tmp_path: Path) -> None:
    pci(tmp_path, "0000:00:07.0", vendor="0x10de", class_="0x068000", device="0x03ef")  # a chipset
    pci(tmp_path, "0000:00:06.0", vendor="0x1d0f", class_="0x020000", device="0xec20")  # plain ENA
    plain = scan_gpus(tmp_path)
    assert (plain["nvswitches"], plain["managed_switches"], plain["efa"]) == (False, False, False)
    pci(tmp_path, "0000:00:08.0", vendor="0x1d0f", class_="0x020000", device="0xefa1")
    pci(tmp_path, "0000:07:00.0", vendor="0x10de", class_="0x068000", device="0x22a3")
    hopper = scan_gpus(tmp_path)
    assert (hopper["nvswitches"], hopper["managed_switches"], hopper["efa"]) == (True, False, True)


def test_rdma_cards_of_google_are_found_only_there(tmp_path: Path) -> None:
    pci(tmp_path, "0000:05:00.0", vendor="0x15b3", class_="0x020000", device="0x101e")
    assert not scan_gpus(tmp_path)["google_rdma"]
    product = tmp_path / "class/dmi/id/product_name"
    product.parent.mkdir(parents=True)
    product.write_text("Google Compute Engine\n")
    assert scan_gpus(tmp_path)["google_rdma"]


def test_switches_of_blackwell_are_found_by_the_card_that_manages_them(tmp_path: Path) -> None:
    pci(tmp_path, "0000:1b:00.0", vendor="0x10de", class_="0x030200", device="0x2901")  # a B200
    pci(
        tmp_path,
        "0000:05:00.0",
        vendor="0x15b3",
        class_="0x020700",
        device="0x1021",
        vpd="ConnectX",
    )
    assert not scan_gpus(tmp_path)["nvswitches"]
    pci(
        tmp_path,
        "0000:06:00.0",
        vendor="0x15b3",
        class_="0x020700",
        device="0x1021",
        vpd="SMDL=SW_MNG",
    )
    found = scan_gpus(tmp_path)
    assert (found["nvswitches"], found["managed_switches"]) == (True, True)


@pytest.mark.parametrize(
    ("loaded", "pinned", "keeps"),
    [
        ("", False, False),
        ("595.91.07", False, True),  # of Amazon's images of October 2026
        ("580.95.05", False, True),
        ("550.163.01", False, False),  # too old for the frameworks of the lock
        ("580.95.05", True, False),  # the role has installed it
    ],
)
def test_a_driver_that_an_image_has_stays_if_it_is_new_enough(
    tmp_path: Path, loaded: str, pinned: bool, keeps: bool
) -> None:
    pytest.importorskip("ansible_runner")
    tasks = YAML(typ="safe").load(ROLES / "gpu_stack/tasks/driver.yaml")
    (decide,) = (task for task in flatten_tasks(tasks) if task["name"].startswith("Decide whether"))
    answer = tmp_path / "answer"
    write = {
        "ansible.builtin.copy": {"dest": str(answer), "content": "{{ gpu_stack_keeps_driver }}"}
    }
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "gpu_stack_found": {"loaded": loaded},
        "gpu_stack_pinned": {"stat": {"exists": pinned}},
        "gpu_stack_minimum_driver": "580",
    }
    play = [{"hosts": "all", "gather_facts": False, "tasks": [decide, write]}]
    run_play(tmp_path, {"hosts": {"one": variables}}, play)
    assert answer.read_text() == str(keeps)


def test_every_deployment_gets_a_driver_unless_its_file_says_otherwise(
    cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "one.deployment.yaml"
    path.write_text(FILE)
    deployment = read_deployment(path)
    assert "gpu-stack" in deployment.head
    assert "gpu-stack" in deployment.workers
    planned = json.loads(cli("deploy", "plan", str(path), "--json", status=1).stdout)
    assert not any("gpu-stack" in note for note in planned["notes"])
    path.write_text(FILE + "workers: [base, training]\n")
    planned = json.loads(cli("deploy", "plan", str(path), "--json", status=1).stdout)
    assert any("workers" in note and "gpu-stack" in note for note in planned["notes"])
