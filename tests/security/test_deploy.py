"""Text from a deployment file, its outputs, or a path never becomes an ssh option, an Ansible template, or a shell command."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuyard.catalog.specfiles import read_deployment
from gpuyard.deploy.ansible.run import build_inventory
from gpuyard.deploy.state import Host, StateDirectory
from gpuyard.deploy.terraform import run
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.specs.deployment import Deployment

MACHINE = {"name": "a", "address": "192.0.2.1"}
DOCUMENT: dict[str, Any] = {
    "name": "d", "cluster": "1x1xrtx-3090", "target": {"kind": "ssh", "machines": [MACHINE]},
}  # fmt: skip
LINE = "x\n  ProxyCommand touch /tmp/ran"
TEMPLATE = "{{ lookup('pipe', 'touch /tmp/ran') }}"
OPTION = "-oProxyCommand=touch"


@pytest.mark.parametrize("text", [LINE, TEMPLATE, OPTION, "x y", "x;y", "x$(y)"])
@pytest.mark.parametrize(
    "key", ["name", "shared", "environment", "machine name", "address", "user"]
)
def test_a_deployment_file_accepts_only_plain_names(tmp_path: Path, key: str, text: str) -> None:
    document = json.loads(json.dumps(DOCUMENT))
    section = (
        document["target"]["machines"][0]
        if key in ("machine name", "address", "user")
        else document
    )
    section[key.removeprefix("machine ")] = f"/{text}" if key in ("shared", "environment") else text
    path = tmp_path / "d.deployment.yaml"
    path.write_text(json.dumps(document))
    if (key, text) in (("shared", OPTION), ("environment", OPTION)):
        return  # after a "/" it is a valid path
    with pytest.raises(UserMistake):
        read_deployment(path)


@pytest.mark.parametrize(
    "changed",
    [
        {"name": LINE}, {"address": LINE}, {"user": "x\n"}, {"user": OPTION}, {"private_address": LINE}, {"address": OPTION},
        {"host_key": f"ssh-ed25519 AAAA\n{LINE}"}, {"proxy_command": "x\n  LocalCommand y"}, {"port": "22\n"}, {"port": True},
        {"address": 1}, {"address": TEMPLATE}, {"name": "x y"},
    ],
)  # fmt: skip
def test_invalid_hosts_are_rejected_when_created_and_when_read(
    home: Path, changed: dict[str, Any]
) -> None:
    del home
    with pytest.raises((ValueError, TypeError)):
        Host(**{**MACHINE, **changed})
    state = StateDirectory("d")
    state.path.mkdir(parents=True)
    (state.path / "hosts.json").write_text(json.dumps([{**MACHINE, **changed}]))
    with pytest.raises(GpuyardError, match=r"hosts\.json"):
        state.hosts()


@pytest.mark.parametrize("mark", [TEMPLATE, "{% raw %}", "{# x #}"])
def test_no_template_reaches_ansible(mark: str) -> None:
    deployment = Deployment.model_validate(DOCUMENT)
    hosts = [Host("a", "192.0.2.1")]
    build_inventory(
        deployment, hosts, {"training_archive": "/home/me/{x}", "training_packages": ["a==1"]}
    )
    for value in (f"/home/{mark}/archive", [mark], {"a": [{mark: 1}]}):
        with pytest.raises(GpuyardError, match="template"):
            build_inventory(deployment, hosts, {"training_archive": value})


def test_paths_with_quotes_are_not_run_as_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quoted = tmp_path / 'it\'s $(touch ran); "x"'
    quoted.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(quoted), *sys.path])
    monkeypatch.setattr(run, "module_argv", lambda _: ("printenv", "PYTHONPATH"))
    run.Terraform(quoted / "terraform").write(run.PROVIDER, {})
    script = quoted / "terraform" / "terraform-provider-gpuyard"
    output = subprocess.run([script], capture_output=True, text=True, check=True)
    assert output.stdout.split(os.pathsep)[0] == str(quoted)
    assert not (tmp_path / "ran").exists()
    settings = (quoted / "terraform" / "terraform.rc").read_text()
    assert f"= {json.dumps(str(quoted / 'terraform'))}\n" in settings


def test_paths_are_escaped_for_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = (Host("a", "192.0.2.1", trust_on_first_use=True),)
    monkeypatch.setenv("GPUYARD_HOME", str(tmp_path / "100%h"))
    state = StateDirectory("d")
    state.path.mkdir(parents=True)
    state.write_hosts(hosts)
    output = subprocess.run(
        ["ssh", "-G", "-F", state.ssh_config, "a"], capture_output=True, text=True, check=True
    ).stdout
    assert f"userknownhostsfile {state.path}/known_hosts\n" in output
    monkeypatch.setenv("GPUYARD_HOME", str(tmp_path / 'x"\n  ProxyCommand y'))
    StateDirectory("d").path.mkdir(parents=True)
    with pytest.raises(GpuyardError, match="GPUYARD_HOME"):
        StateDirectory("d").write_hosts(hosts)
