"""Real machines of a lab, without roles."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpuyard import lab
from gpuyard.files import home
from gpuyard.lab import network
from gpuyard.lab.machines import answers_ssh
from gpuyard.lab.operation import call
from tests.conftest import Cli


@pytest.mark.usefixtures("can_deploy")
def test_a_dead_sshd_is_started_again_and_the_rest_of_the_machine_stays() -> None:
    node = lab.up(lab.plan_lab(1, "1Gbit")).nodes[0]
    disk = home() / "disk"
    settings: dict[str, Any] = {
        "name": "lab",
        "node": 0,
        "directory": str(disk),
        "authorized_key": "ssh-ed25519 AAAA x",
        "packages": [],
        "release": None,
        "mounts": [],
        "shared": str(home() / "shared"),
    }
    call("start", **settings)
    try:
        init = (disk / "held.lock").read_text()
        assert call("is_up", name="lab", node=0, directory=str(disk))
        for pid in network.processes_in([node.namespace]):
            if Path(f"/proc/{pid}/comm").read_text() == "sshd\n":
                os.kill(pid, signal.SIGKILL)
        assert not answers_ssh(node)
        assert not call("is_up", name="lab", node=0, directory=str(disk))
        call("start", **settings)
        assert answers_ssh(node)
        assert (disk / "held.lock").read_text() == init
    finally:
        call("remove", name="node0", directory=str(disk))
    assert not call("is_up", name="lab", node=0, directory=str(disk))


_FILE = """
name: pair
cluster: 2x1xt4@1G
target: {kind: lab}
head: [base]
workers: [base]
"""
_SLOW = "#!/bin/sh\nsleep 8765.43 &\nwait\n"


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("can_deploy")
def test_down_leaves_nothing_of_an_up_that_was_killed_during_debootstrap(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "debootstrap").write_text(_SLOW)
    (programs / "debootstrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("GPUYARD_ROOTS", str(tmp_path / "roots"))
    file = tmp_path / "pair.deployment.yaml"
    file.write_text(_FILE)
    argv = (sys.executable, "-P", "-m", "gpuyard", "deploy", "up", str(file))
    quiet = subprocess.DEVNULL
    up = subprocess.Popen(argv, stdin=quiet, stdout=quiet, stderr=quiet)
    deadline = time.monotonic() + 120
    while not _find_sleepers():
        assert up.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    up.kill()
    up.wait()
    down = cli("deploy", "down", str(file), "--yes", "--json")
    assert json.loads(down.stdout)["remains"] == []
    while _find_sleepers():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert not (home() / "deployments/pair").exists()


def _find_sleepers() -> list[int]:
    return [
        each.pid
        for each in psutil.process_iter(["cmdline"])
        if each.info["cmdline"] == ["sleep", "8765.43"]
    ]
