"""Real machines of a lab, without Terraform and roles."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from gpuyard import lab
from gpuyard.files import home
from gpuyard.lab import network
from gpuyard.lab.machines import answers_ssh
from gpuyard.lab.operation import call


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
