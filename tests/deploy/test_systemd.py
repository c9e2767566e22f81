"""Our services under a real systemd: notebooks of several people, firewall and monitoring, as their roles set them up."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.lab.machine_root import make_root
from tests.conftest import LAB_ROOTS, MACHINE, Cli
from tests.deploy.bare_machine import BareMachine
from tests.deploy.systemd_machine import PACKAGES, systemd_machine

ROOT = Path(__file__).parents[2]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0xPYkTyiuYF6mGVxsgPq9Kh1OQZ0FQ3Yw4bLZ1cPpR"
FILE = """
name: served
cluster: {{name: served, nodes: 1, machine: {{gpu: t4, gpus: 1}}}}
target:
  kind: ssh
  machines: [{{name: one, address: 127.0.0.1, user: root, port: {port}}}]
head: [base, training, jupyter, monitoring, firewall]
environment: {environment}
users:
  - {{name: ada, keys: [{key} ada]}}
  - {{name: bob, keys: [{key} bob]}}
"""
SERVICES = ("chrony", "gpuyard-jupyterhub", "prometheus", "prometheus-node-exporter", "ssh")
ASK = """
import json, subprocess, time
from pathlib import Path
from tests.deploy.test_hub import Person, _processes_of
base = "http://127.0.0.1:8000"
tokens = {name: Path(f"/home/{name}/.jupyter_token").read_text().strip() for name in ("ada", "bob")}
stranger, ada, bob = Person(base), Person(base), Person(base)
said = {"stranger": stranger.get("/hub/api/user")[0], "guessed": stranger.log_in("ada", tokens["bob"])}
said["in"] = [ada.log_in("ada", tokens["ada"]), bob.log_in("bob", tokens["bob"])]
for person, name in ((ada, "ada"), (bob, "bob")):
    person.start_notebook(name)
    end = time.monotonic() + 120
    while person.get(f"/user/{name}/lab")[0] != 200 and time.monotonic() < end:
        time.sleep(1)
    (Path(f"/home/{name}") / "own.ipynb").write_text("{}")
    said[name] = person.get(f"/user/{name}/lab")[0]
said["other"] = bob.get("/user/ada/lab")[0]
said["file"] = bob.get("/user/ada/api/contents/own.ipynb")[0]
said["users"] = sorted(_processes_of(("ada", "bob")))
said["disk"] = subprocess.run(("su", "bob", "-c", "cat /home/ada/own.ipynb"), capture_output=True).returncode
print(json.dumps(said))
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BareMachine]:
    programs = ("debootstrap", "unshare", "nsenter", "ssh", "ssh-keygen")
    if os.geteuid() != 0 or not all(map(shutil.which, programs)):
        pytest.skip(f"a machine of its own needs root and {', '.join(programs)}")
    pytest.importorskip("ansible_runner")
    pytest.importorskip("jupyterhub")
    monkeypatch.setenv("GPUYARD_ROOTS", str(LAB_ROOTS))
    with systemd_machine(make_root(PACKAGES), tmp_path / "machine") as made:
        monkeypatch.setenv("PATH", f"{made.programs}:{os.environ['PATH']}")
        yield made


@MACHINE
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_roles_start_their_services_and_several_people_have_notebooks_of_their_own(
    cli: Cli, machine: BareMachine, tmp_path: Path
) -> None:
    file = tmp_path / "served.deployment.yaml"
    file.write_text(FILE.format(port=machine.port, environment=sys.prefix, key=KEY))
    cli("deploy", "up", str(file))
    assert machine.run(f"systemctl is-active {' '.join(SERVICES)}").split() == ["active"] * 5
    again = json.loads(cli("deploy", "up", str(file), "--json").stdout)
    assert again["changed_tasks"] == {"one": 0}

    machine.run("nft flush ruleset && systemctl restart gpuyard-firewall")  # as at the next start
    assert "policy drop" in machine.run("nft list table inet gpuyard")
    assert machine.run("systemctl is-enabled gpuyard-firewall") == "enabled\n"

    python = f"cd {ROOT} && PYTHONDONTWRITEBYTECODE=1 {sys.prefix}/bin/python -"
    said = json.loads(machine.run(f"{python} << 'END'\n{ASK}\nEND", seconds=400))
    assert said == {
        "stranger": 403,
        "guessed": 403,
        "in": [200, 200],
        "ada": 200,
        "bob": 200,
        "other": 403,
        "file": 403,
        "users": ["ada", "bob"],
        "disk": 1,
    }
    listening = {line.split()[3] for line in machine.run("ss -Hltn").splitlines()}
    assert "127.0.0.1:8000" in listening
    assert {one for one in listening if not one.startswith(("127.", "[::1]"))} == set()

    machine.run("systemctl kill --kill-whom=main --signal=KILL gpuyard-jupyterhub")
    machine.run("until systemctl is-active gpuyard-jupyterhub; do sleep 1; done")
